"""Flags of the OSD map, as an operator uses them before and during work: what each holds up, what it does not, that the
health and `doctor` say so, and that all goes on once it is unset.
"""
import subprocess
import time

import pytest

from skeptest import objects
from skeptest.run import end_group, wait_until

pytestmark = pytest.mark.own


@pytest.fixture
def skep(own):
    skep = own(osds=4, options=['--osd-memory', '64M']).start()
    skep.pool = skep.make_copies(3, pg_num=16)
    objects.put(skep, skep.pool, {'o%d' % n: b'%d' % n * 10000 for n in range(40)})
    return skep


def states(skep):
    return {pg['pgid']: pg['state'] for pg in skep.pgs()}


def flags(skep):
    check = skep.ceph_json('health')['checks'].get('OSDMAP_FLAGS')
    return check and check['summary']['message']


def osd(skep, id):
    return next(o for o in skep.ask('osd', 'dump')['osds'] if o['osd'] == id)


def settled(skep):
    return all(s == 'active+clean' for s in states(skep).values())


def test_pause_holds_up_clients_and_nothing_is_lost(skep):
    skep.ceph('osd', 'set', 'pause')
    assert flags(skep) == 'pauserd,pausewr flag(s) set'
    put = skep.popen('rados', '-p', skep.pool, 'put', 'late', '-', stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    get = skep.popen('rados', '-p', skep.pool, 'get', 'o1', '-', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        put.stdin.write(b'late')
        put.stdin.close()
        time.sleep(2)
        assert put.poll() is None and get.poll() is None
        skep.ceph('osd', 'unset', 'pause')
        assert put.wait(90) == 0 and get.communicate(timeout=90)[0] == b'1' * 10000
    finally:
        end_group(put)
        end_group(get)
    assert skep.rados(skep.pool, 'get', 'late', '-').out_bytes == b'late' and flags(skep) is None


@pytest.mark.parametrize('flag', ['nobackfill', 'norebalance'])
def test_data_does_not_move_while_it_shall_not(skep, flag):
    skep.ceph('osd', 'set', flag)
    assert flags(skep) == flag + ' flag(s) set'
    before = {pg['pgid']: pg['acting'] for pg in skep.pgs()}
    skep.ceph('osd', 'out', '3')

    def held():
        states = [pg['state'] for pg in skep.pgs() if 3 in pg['acting']]
        return bool(states) and all('remapped' in s for s in states)
    wait_until(held, 30, 0.5, 'groups that should move to say so')
    time.sleep(2)                                          # for long enough to move, if anything did
    assert held() and {pg['pgid']: pg['acting'] for pg in skep.pgs()} == before, skep.pgs()
    doctor = skep.ceph_json('doctor')['findings']
    assert any(f['subject'] == 'healing' and flag in f['waits_for'] and f['next'] == 'ceph osd unset ' + flag for f in doctor), doctor
    assert skep.rados(skep.pool, 'get', 'o1', '-').out_bytes == b'1' * 10000
    skep.ceph('osd', 'unset', flag)
    wait_until(lambda: settled(skep) and not any(3 in pg['acting'] for pg in skep.pgs()), 60, 0.5, 'the data to move')


def test_no_copies_are_caught_up_while_they_shall_not(skep):
    skep.ceph('osd', 'set', 'norecover')
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', '2')
    wait_until(lambda: osd(skep, 2)['up'] == 0, 60, what='osd.2 to be down')
    objects.put(skep, skep.pool, {'o%d' % n: b'%d' % n * 20000 for n in range(40)})
    skep.ceph('osd', 'unset', 'noup')
    wait_until(lambda: osd(skep, 2)['up'] == 1, 30, what='osd.2 to be up')

    def waiting():
        return [s for s in states(skep).values() if 'recovery_wait' in s]
    wait_until(waiting, 30, 0.5, 'groups to wait for recovery')
    time.sleep(2)                                          # for long enough to be caught up, if anything were
    assert waiting() and all('degraded' in s for s in waiting()), states(skep)
    skep.ceph('osd', 'unset', 'norecover')
    wait_until(lambda: settled(skep), 60, 0.5, 'all copies')


def test_noup_and_too_few_copies(skep):
    """As many copies as are required, and one of them is down: no writes, and the state and the health say so."""
    skep.ceph('osd', 'pool', 'set', skep.pool, 'min_size', '3')
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', '1')
    wait_until(lambda: osd(skep, 1)['up'] == 0, 60, what='osd.1 to be down')
    concerned = {pg['pgid'] for pg in skep.pgs() if pg['state'] != 'active+clean'}
    assert concerned

    def inactive():
        return all('active' not in s for p, s in states(skep).items() if p in concerned)
    wait_until(inactive, 60, 0.5, 'groups without enough copies to say so')
    assert 'PG_AVAILABILITY' in skep.ceph_json('health')['checks']
    assert not any('down for - ' in f['waits_for'] for f in skep.ceph_json('doctor')['findings'])
    skep.ceph('osd', 'pool', 'set', skep.pool, 'min_size', '2')
    wait_until(lambda: all('active' in s for s in states(skep).values()), 30, 0.5, 'groups to go on with two copies')
    assert osd(skep, 1)['up'] == 0
    skep.ceph('osd', 'unset', 'noup')
    wait_until(lambda: osd(skep, 1)['up'] == 1 and settled(skep), 60, 0.5, 'osd.1 to be up, and all copies')


def test_a_new_osd_waits_outside_while_noin_is_set(skep):
    skep.ceph('osd', 'set', 'noin')
    assert flags(skep) == 'noin flag(s) set'
    skep.stop()
    skep.osds = 5
    skep.start()
    wait_until(lambda: osd(skep, 4)['up'] == 1, 30, what='osd.4 to be up')
    assert osd(skep, 4)['in'] == 0, osd(skep, 4)
    skep.ceph('osd', 'unset', 'noin')
    skep.ceph('osd', 'in', '4')
    wait_until(lambda: settled(skep) and any(4 in pg['acting'] for pg in skep.pgs()), 60, 0.5, 'data on osd.4')
