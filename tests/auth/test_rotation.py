"""Keys that are replaced under running clients, and keys that expire."""
import json
import threading
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique

pytestmark = pytest.mark.cephx

# So that a client that is refused for good says so.
GIVES_UP_SOON = {'rados_osd_op_timeout': 6, 'rados_mon_op_timeout': 3, 'client_mount_timeout': 10}
PATIENCE_S = 60
LIFE_S = 15


@pytest.fixture
def user(cluster, tmp_path):
    """A user that may read and write, and the file with its key."""
    name = 'client.' + unique('keys')
    path = tmp_path / name
    path.write_text(cluster.ceph('auth', 'get-or-create', name, 'mon', 'allow r', 'osd', 'allow rw').out)
    yield name, path
    cluster.ceph('auth', 'rm', name)


def until(what, outcome):
    """Tries again and again until `outcome` is content with what came, or with what was raised."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            came = what()
        except Exception as e:                           # noqa: B902 - judged by the caller
            came = e
        if outcome(came):
            return came
    pytest.fail('nothing changed in %d s' % PATIENCE_S)


def failed(came):
    return isinstance(came, Exception)


def refused(status):
    return isinstance(status, int) and status != 0


class Load:
    """Writes on and on; keeps what was not done."""

    def __init__(self, handle, pool):
        self.handle, self.io = handle, handle.open_ioctx(pool)
        self.done, self.errors, self.stop = 0, [], threading.Event()
        self.thread = threading.Thread(target=self.body, daemon=True)
        self.thread.start()

    def body(self):
        while not self.stop.is_set():
            try:
                self.io.write_full('load', b'%d' % (self.done + 1))
                self.done += 1
            except Exception as e:                       # noqa: B902 - kept for the end
                self.errors.append(e)

    def goes_on(self):
        """It writes after this was asked."""
        had = self.done
        until(lambda: time.sleep(.01), lambda _: self.done > had + 1)

    def end(self):
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert not self.errors, self.errors[:3]


def lists(cluster, pool, name, path):
    """The status of a client that comes with this keyring."""
    args = '--name %s --keyring %s --client_mount_timeout=8' % (name, path)
    return cluster.with_args(args).rados(pool, 'ls', check=None).returncode


def test_a_key_is_replaced_while_its_clients_go_on(cluster, pool, user):
    name, path = user
    new = path.with_suffix('.new')

    def body():
        load = Load(connect(cluster, name=name, keyring=path), pool)
        load.goes_on()
        new.write_text(cluster.ceph('auth', 'get-or-create-pending', name).out)
        pending = cluster.ceph_json('auth', 'get', name)[0]['pending_key']
        assert pending in new.read_text() and pending not in path.read_text()
        # Whoever has been given the new one, and whoever has not.
        assert lists(cluster, pool, name, new) == 0
        assert lists(cluster, pool, name, path) == 0
        late = Load(connect(cluster, name=name, keyring=new), pool)
        load.goes_on()
        late.goes_on()
        cluster.ceph('auth', 'commit-pending', name)
        load.goes_on()
        late.goes_on()
        assert lists(cluster, pool, name, new) == 0
        assert lists(cluster, pool, name, path) != 0
        load.goes_on()
        for one in (load, late):
            one.end()
    in_child(body, timeout=240)
    entity = cluster.ceph_json('auth', 'get', name)[0]
    assert 'pending_key' not in entity and entity['key'] in new.read_text()
    log = cluster.ceph('log', 'last', '50', 'info', 'audit').out
    for word in ('get-or-create-pending', 'commit-pending'):
        assert [x for x in log.splitlines() if '"auth %s"' % word in x and name in x], log
    assert entity['key'] not in log


def test_a_pending_key_that_is_dropped_opens_nothing(cluster, pool, user):
    name, path = user
    new = path.with_suffix('.new')
    new.write_text(cluster.ceph('auth', 'get-or-create-pending', name).out)
    cluster.ceph('auth', 'clear-pending', name)
    assert lists(cluster, pool, name, new) != 0
    assert lists(cluster, pool, name, path) == 0


def test_a_key_ends_when_it_was_said(cluster, pool, user):
    name, path = user

    def body():
        handle = connect(cluster, name=name, keyring=path, **GIVES_UP_SOON)
        io = handle.open_ioctx(pool)
        cluster.ceph('auth', 'expire', name, str(LIFE_S))
        io.write_full('o', b'in time')
        until(lambda: io.write_full('o', b'late'), failed)
        # The first failure may be another one. Once it is over it is over.
        until(lambda: lists(cluster, pool, name, path), refused)
        with pytest.raises(Exception):
            io.write_full('o', b'later')
    in_child(body, timeout=240)
    assert 'expired at' in cluster.ceph('auth', 'get', name).err
    check = json.loads(cluster.ceph('health', 'detail', '-f', 'json').out)['checks']['AUTH_KEY_EXPIRES']
    said = [d['message'] for d in check['detail']]
    assert [x for x in said if x.startswith(name + ' expired at ')], said
    until(lambda: cluster.ceph('log', 'last', '50', 'info', 'audit').out, lambda out: name + ' is over' in str(out))
    cluster.ceph('auth', 'expire', name, 'never')
    until(lambda: lists(cluster, pool, name, path), lambda status: status == 0)


def test_nobody_locks_himself_out(cluster):
    r = cluster.ceph('auth', 'expire', 'client.admin', '1', check=1)
    assert '--yes-i-really-mean-it' in r.err, r
    assert 'expires' not in cluster.ceph_json('auth', 'get', 'client.admin')[0]


@pytest.mark.own
def test_the_administrators_keyring_follows(own):
    skep = own(osds=1).start()
    keyring = skep.data / 'ceph.client.admin.keyring'
    key = skep.ceph('auth', 'get-or-create-pending', 'client.admin').out.split()[-1]
    assert key not in keyring.read_text()
    skep.ceph('auth', 'commit-pending', 'client.admin')
    until(keyring.read_text, lambda text: key in str(text))
    assert skep.ceph_json('auth', 'get', 'client.admin')[0]['key'] == key
    assert skep.stop() == 0
