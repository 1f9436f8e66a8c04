"""Clients that are connected while their key is taken away or their capabilities change: what they may follows at once, without
a new connection and without the clients' help."""
import errno
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique

pytestmark = pytest.mark.cephx

# So that a client that is refused for good says so; without these it would try for ever.
GIVES_UP = {'rados_osd_op_timeout': 8, 'rados_mon_op_timeout': 8, 'client_mount_timeout': 30}
# Each of its operations is one that is never answered.
GIVES_UP_SOON = {'rados_osd_op_timeout': 6, 'rados_mon_op_timeout': 3, 'client_mount_timeout': 10}
PATIENCE_S = 60


@pytest.fixture
def user(cluster, tmp_path):
    """A user that may read and write, and the file with its key."""
    name = 'client.' + unique('user')
    path = tmp_path / name
    path.write_text(cluster.ceph('auth', 'get-or-create', name, 'mon', 'allow *', 'osd', 'allow rw').out)
    yield name, path
    cluster.ceph('auth', 'rm', name)


def until(what, outcome):
    """Tries again and again until `outcome` says that it came as expected; gives what it said."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            came = outcome(what())
        except Exception as e:                           # noqa: B902 - judged by the caller
            came = outcome(e)
        if came is not None:
            return came
    pytest.fail('nothing changed in %d s' % PATIENCE_S)


def failure(result):
    return result if isinstance(result, Exception) else None


def success(result):
    return None if isinstance(result, Exception) else True


def test_a_removed_client_loses_its_open_sessions(cluster, pool, user):
    name, path = user

    def body():
        handle = connect(cluster, name=name, keyring=path, **GIVES_UP_SOON)
        io = handle.open_ioctx(pool)
        last = [0]

        def write():
            io.write_full('o', b'%d' % (last[0] + 1))
            last[0] += 1
        until(write, success)
        until(lambda: handle.mon_command('{"prefix": "osd dump"}', b'')[0], lambda came: True if came == 0 else None)
        cluster.ceph('auth', 'rm', name)
        until(write, failure)
        with pytest.raises(Exception):
            write()
        # It made itself a key once.
        make = '{"prefix": "auth get-or-create", "entity": "client.sly-%s", "caps": ["mon", "allow *"]}' % name
        try:
            assert handle.mon_command(make, b'')[0] != 0
        except Exception:                                # noqa: B902 - no answer is an answer, too
            pass
        return last[0]
    last = in_child(body, timeout=240)
    assert cluster.rados(pool, 'get', 'o', '-').out_bytes == b'%d' % last, 'a write that was refused was done'
    assert 'client.sly' not in cluster.ceph('auth', 'ls').out


def test_a_client_that_is_made_anew_comes_in_with_its_new_key_only(cluster, pool, user):
    name, path = user
    cluster.ceph('auth', 'rm', name)
    old = path.with_suffix('.old')
    old.write_text(path.read_text())
    path.write_text(cluster.ceph('auth', 'get-or-create', name, 'mon', 'allow r', 'osd', 'allow rw').out)
    cluster.with_args('--name %s --keyring %s' % (name, path)).rados(pool, 'ls')
    refused = cluster.with_args('--name %s --keyring %s --client_mount_timeout=8' % (name, old)).rados(pool, 'ls', check=None)
    assert refused.returncode != 0, refused


def test_capabilities_of_a_connected_client_change_at_once(cluster, pool, user):
    name, path = user

    def body():
        handle = connect(cluster, name=name, keyring=path, **GIVES_UP)
        io = handle.open_ioctx(pool)
        instance = handle.get_instance_id()
        io.write_full('o', b'before')

        def write():
            io.write_full('o', b'x')
        cluster.ceph('auth', 'caps', name, 'mon', 'allow r', 'osd', 'allow r')
        # On a busy machine one may get no answer in its time, which says nothing.
        e = until(write, lambda came: None if getattr(came, 'errno', 0) == errno.ETIMEDOUT else failure(came))
        assert e.errno == errno.EPERM, e
        assert io.read('o') in (b'before', b'x')
        code, _, said = handle.mon_command('{"prefix": "osd set", "key": "noout"}', b'')
        assert code == -13, said
        cluster.ceph('auth', 'caps', name, 'mon', 'allow *', 'osd', 'allow rw')
        until(write, success)
        code, _, said = handle.mon_command('{"prefix": "config rm", "who": "global", "name": "osd_pool_default_size"}', b'')
        assert code == 0, said
        assert handle.get_instance_id() == instance
    in_child(body, timeout=240)
