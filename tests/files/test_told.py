"""`ceph tell mds.X ...`: who has a session, what is under way, settings; a session that is ended by command."""
import errno
import fcntl
import os
import threading

import pytest

from skeptest.cluster import unique
from skeptest.mounts import mounted
from skeptest.run import wait_until


@pytest.fixture(scope='module')
def tell(cluster, fs):
    def tell(*words, **kw):
        return cluster.ceph_json('tell', 'mds.%s:0' % fs, *words, **kw)
    return tell


def refused(cluster, fs, *words):
    said = cluster.ceph('tell', 'mds.%s:0' % fs, *words, check=None)
    assert said.returncode != 0
    return said.err


def of(tell, mount):
    """The session of a mount."""
    pid = str(mount.proc.pid)
    mine = [s for s in tell('session', 'ls') if s['client_metadata'].get('pid') == pid]
    return mine[0] if mine else None


def test_sessions_are_listed_by_filters(tell, mount):
    s = of(tell, mount)
    assert s['state'] == 'open' and s['num_caps'] >= 1 and s['client_metadata']['root'] == '/'
    assert s['entity']['name'] == {'type': 'client', 'num': s['id']}
    assert [x['id'] for x in tell('client', 'ls', 'id=%d' % s['id'])] == [s['id']]
    assert tell('session', 'ls', 'id=1') == []
    assert s['id'] in [x['id'] for x in tell('session', 'ls', 'state=open', 'auth_name=admin')]
    assert [x['id'] for x in tell('session', 'ls', 'client_metadata.pid=%d' % mount.proc.pid)] == [s['id']]


def test_an_evicted_client_is_fenced_and_the_others_go_on(cluster, fs, tell, mount, tmp_path):
    name = unique('evicted')
    with mounted(cluster, tmp_path / 'victim', fs=fs, options=['--client_reconnect_stale', 'false']) as victim:
        with open(victim / name, 'wb', buffering=0) as f:
            f.write(b'written')
            os.fsync(f.fileno())
            s = of(tell, victim)
            cluster.ceph('tell', 'mds.%s:0' % fs, 'session', 'evict', 'id=%d' % s['id'])
            assert of(tell, victim) is None
            nonce = '/%d ' % s['entity']['addr']['nonce']
            assert nonce in cluster.ceph('osd', 'blocklist', 'ls').out
            failed = []

            def stat():
                try:
                    os.stat(victim / unique('none'))
                except OSError as e:
                    if e.errno != errno.ENOENT:
                        failed.append(e.errno)
            asks = threading.Thread(target=stat, daemon=True)
            asks.start()
            assert (mount / name).read_bytes() == b'written'
            (mount / name).unlink()
            assert of(tell, mount) is not None
        victim.kill()
        asks.join(60)
        assert not asks.is_alive() and failed


def test_an_eviction_names_whom(cluster, fs, tell, mount):
    before = len(tell('session', 'ls'))
    assert 'id=NUMBER' in refused(cluster, fs, 'session', 'evict')
    assert 'no number' in refused(cluster, fs, 'session', 'evict', 'id=x')
    assert 'Invalid filter' in refused(cluster, fs, 'client', 'evict', 'colour=red')
    assert len(tell('session', 'ls')) == before and of(tell, mount)


def test_what_is_under_way_and_in_memory(tell, mount, second):
    assert tell('dump_ops_in_flight') == {'num_ops': 0, 'ops': []}
    name = unique('locked')
    with open(mount / name, 'w') as f, open(second / name, 'r+') as g:
        fcntl.flock(f, fcntl.LOCK_EX)
        waits = threading.Thread(target=fcntl.flock, args=(g, fcntl.LOCK_EX))
        waits.start()
        ops = wait_until(lambda: tell('ops')['ops'], 60, 0.1, 'a request that waits')
        assert 'setfilelock' in ops[0]['description'] and ops[0]['age'] >= 0
        fcntl.flock(f, fcntl.LOCK_UN)
        waits.join(60)
        assert not waits.is_alive()
    wait_until(lambda: tell('ops')['num_ops'] == 0, 60, 0.1, 'no request')
    assert tell('cache', 'status')['pool']['items'] > 0
    perf = tell('perf', 'dump')
    assert perf['mds']['request'] > 0 and perf['mds_sessions']['session_count'] >= 2
    assert tell('perf', 'dump', 'mds', 'caps').keys() == {'mds'}
    status = tell('status')
    assert status['state'] == 'up:active' and status['whoami'] == 0
    assert tell('flush', 'journal')['return_code'] == 0


def test_settings(cluster, fs, tell):
    shown = tell('config', 'show')
    assert tell('config', 'get', 'mds_cache_memory_limit') == {
        'mds_cache_memory_limit': shown['mds_cache_memory_limit']}
    tell('config', 'set', 'mds_cache_memory_limit', '100000000')
    assert tell('config', 'get', 'mds_cache_memory_limit')['mds_cache_memory_limit'] == '100000000'
    tell('config', 'set', 'mds_cache_memory_limit', shown['mds_cache_memory_limit'])
    assert 'a number' in refused(cluster, fs, 'config', 'set', 'mds_cache_memory_limit', 'many')
    assert 'No such file' in refused(cluster, fs, 'config', 'set', 'mds_colour', 'red')


def test_what_is_not_built_says_so(cluster, fs):
    assert 'no such command yet' in refused(cluster, fs, 'scrub', 'start', '/')
    assert refused(cluster, fs, 'dance')


def test_who_may_not_is_refused(cluster, fs, tmp_path):
    who = 'client.' + unique('u')
    keyring = cluster.ceph('fs', 'authorize', fs, who, '/', 'rw').out
    (tmp_path / 'keyring').write_text(keyring)
    cluster.ceph('auth', 'caps', who, 'mon', 'allow r', 'mgr', 'allow r', 'osd', 'allow r', 'mds', 'allow rw')
    said = cluster.ceph('-n', who, '-k', tmp_path / 'keyring', 'tell', 'mds.%s:0' % fs, 'session', 'ls', check=None)
    assert said.returncode != 0 and 'EACCES' in said.err
