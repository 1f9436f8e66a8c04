"""OSDs encrypted where they lie (`skep up --osd-keys`): stock clients notice nothing, the files tell nothing, kill -9 loses nothing, and without
the key nothing is read. Keys change; `skep store check` and `dump` take them.
"""
import base64
import os

import pytest

from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

MARK = b'what nobody finds on this disk. '
DATA = MARK * 100_000


def key(name):
    return '%s %s\n' % (name, base64.b64encode(os.urandom(32)).decode())


def store(*args, **kw):
    return run([find_binary(), 'store', *args], **kw)


def refused_to_start(skep, *words):
    skep.launch()
    assert skep.proc.wait(60) not in (0, None)
    said = skep.log.read_text(errors='replace')[skep.said_before:]
    assert all(w in said for w in words) and 'panicked' not in said, said


def test_a_server_with_encrypted_disks(own, tmp_path):
    first, second = key('first'), key('second')
    keys, plain = tmp_path / 'keys', tmp_path / 'data'
    keys.write_text(first)
    plain.write_bytes(DATA)
    skep = own(osds=1, auth='none', options=['--osd-keys', str(keys)]).start()
    osd = skep.data / 'osd.0'
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'big', plain)
    skep.rados(pool, 'setomapval', 'small', 'k', MARK.decode())
    skep.rados(pool, 'setxattr', 'small', 'x', MARK.decode())
    assert wait_until(lambda: skep.ceph_json('osd', 'metadata', '0').get('encrypted'), 60, 0.3, 'the OSD') == '1'
    skep.kill()
    for name in ('block', 'index'):
        with open(osd / name, 'rb') as f:
            while piece := f.read(1 << 24):
                assert MARK not in piece, name
                f.seek(-len(MARK), os.SEEK_CUR) if len(piece) == 1 << 24 else None
    # Its log is replayed.
    skep.start()
    got = tmp_path / 'got'

    def whole():
        skep.rados(pool, 'get', 'big', got)
        assert got.read_bytes() == DATA
        assert skep.rados(pool, 'getxattr', 'small', 'x').out.strip() == MARK.decode().strip()
        assert '|what nobody find|' in skep.rados(pool, 'listomapvals', 'small').out
    whole()
    assert skep.stop() == 0
    # From outside.
    r = store('check', osd, '--keys', keys)
    assert r.returncode == 0, r
    assert store('dump', osd, '--keys', keys, 'ls').out.count('big') == 1
    r = store('check', osd, check=None)
    assert r.returncode == 2 and "under the key 'first'" in r.err, r
    # Another key: the old one goes when the disk is under the new one.
    keys.write_text(second)
    refused_to_start(skep, "under the key 'first'", 'second')
    keys.write_text(second + first)
    skep.start()
    whole()
    skep.kill()
    keys.write_text(second)
    skep.start()
    whole()
    assert skep.stop() == 0
    skep.options = []
    refused_to_start(skep, "under the key 'second'", '--osd-keys')
    skep.options = ['--osd-keys', str(keys)]
    # To erase it.
    (osd / 'seal').unlink()
    refused_to_start(skep, 'osd.0')
    skep.kill()


def test_what_was_there_before_stays_as_it_is(own, tmp_path):
    keys = tmp_path / 'keys'
    keys.write_text('nonsense\n')
    skep = own(osds=1, auth='none', options=['--osd-keys', str(keys)])
    refused_to_start(skep, 'line 1')
    skep.options = []
    skep.start()
    pool = skep.make_pool()
    skep.rados(pool, 'setxattr', 'small', 'x', 'y')
    assert wait_until(lambda: skep.ceph_json('osd', 'metadata', '0').get('encrypted'), 60, 0.3, 'the OSD') == '0'
    skep.stop()
    keys.write_text(key('k'))
    skep.options = ['--osd-keys', str(keys)]
    skep.start()
    assert skep.rados(pool, 'getxattr', 'small', 'x').out.strip() == 'y', skep.log_tail(40)
    assert not (skep.data / 'osd.0/seal').exists()
    skep.stop()
