"""Faults of hosts, cables, disks and etcd under a stock client: no error, only a pause; nothing lost; whole again.

Three hosts, three copies. Each test has fio's rbd engine write and verify while the fault comes and goes (see
skeptest.load), then has every block read back, and waits until the cluster says HEALTH_OK. How long the client had to wait
is noted for the end of the run; no test asserts it, they only end what hangs. At the very end all hosts are stopped, and
their stores are compared object by object.
"""
import hashlib
import json
import shutil
import time

import pytest

from skeptest.cluster import unique
from skeptest.hosts import Hosts, usable
from skeptest.load import Load
from skeptest.run import end_group, run, wait_until
from skeptest.skep import find_binary
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

SMALL_DISK_MIB = 1024
PAUSE_S = 8
# All of one size: CRUSH gives room by weight, and hardly finds a host of far less of it than the others.
OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']


@pytest.fixture(scope='module')
def group(workdir):
    """Three hosts with an OSD each; the third one's disk is small."""
    why = usable()
    if why:
        pytest.skip(why)
    place = workdir / unique('faults')
    place.mkdir()
    hosts = Hosts(3, place)
    try:
        hosts[2].no_disk = hosts[2].on_small_disk(SMALL_DISK_MIB)
        hosts.start_etcd()
        hosts[0].up(create=True, options=OPTIONS)
        for host in hosts.list[1:]:
            host.up(join=True, options=OPTIONS)
        hosts.pool = hosts[0].make_copies(3, 'rbd', pg_num=16)
        yield hosts
    finally:
        hosts.close()
        shutil.rmtree(place, ignore_errors=True)


def healthy(group, timeout=60):
    """Waits until all copies are there and the cluster finds nothing wrong."""
    last = {}

    def ok():
        last['said'] = group[0].ceph_json('health', timeout=60)
        return last['said']['status'] == 'HEALTH_OK' and group[0].whole()
    try:
        wait_until(ok, timeout, 0.3, 'HEALTH_OK')
    except AssertionError:
        raise AssertionError('not HEALTH_OK within %s s: %s\n%s' % (
            timeout, json.dumps(last), '\n'.join('%s:\n%s' % (h.name, h.log_tail(15)) for h in group)))


@pytest.fixture
def load(group, workdir, record_property):
    """`with load() as fio:` around a fault; afterwards everything is verified, and healthy."""
    made = []

    def make(seconds=6):
        made.append(Load(group[0], group.pool, workdir, seconds, record_property))
        return made[-1]
    yield make
    for fio in made:
        if fio.gap is not None:
            fio.verify()
    healthy(group)
    for host in group:
        assert host.alive and 'panicked' not in host.log.read_text(errors='replace'), host.log_tail(80)


def marked_down(group, host, timeout=90):
    """Waits until the map says that its OSD is down. A client may meet the monitor of a host that is cut off from the
    others, which answers only when it is back: then it asks anew."""
    def down():
        try:
            osds = group[0].ceph_json('osd', 'dump', timeout=8)['osds']
        except AssertionError:
            return False
        return not next(o for o in osds if o['osd'] == host.osd)['up']
    wait_until(down, timeout, 0.2, 'osd.%d to be marked down' % host.osd)


def degraded(group):
    return any('undersized' in pg['state'] or 'degraded' in pg['state'] for pg in group[0].pgs())


@pytest.fixture(autouse=True, scope='module')
def numbers(group):
    """Which OSD is whose."""
    nodes = group[0].ceph_json('osd', 'tree')['nodes']
    for host in group:
        host.osd = next(n['children'][0] for n in nodes if n['name'] == host.name)


def test_a_copy_on_every_host(group):
    """As rados sees it: each object on three hosts; COPY_FROM fetches from primaries on other hosts."""
    host = group[0]
    pool = host.make_copies(3, pg_num=16)
    number = host.pool_number(pool)
    pgs = [pg for pg in host.pgs() if pg['pgid'].startswith('%d.' % number)]
    assert all(len(set(pg['acting'])) == 3 for pg in pgs), pgs
    assert {pg['acting_primary'] for pg in pgs} == {h.osd for h in group}
    across = 0
    for name in ('a', 'b', 'c'):
        copy = name + '-copy'
        homes = [host.ceph_json('osd', 'map', pool, n)['acting_primary'] for n in (name, copy)]
        across += homes[0] != homes[1]
        host.rados(pool, 'put', name, '-', stdin=name * 30000)
        host.rados(pool, 'cp', name, copy)
        assert host.rados(pool, 'get', copy, '-').out == name * 30000
    assert across > 0
    host.drop_pool(pool)


def test_killed(group, load):
    victim = group[1]
    with load():
        victim.kill()
        marked_down(group, victim)
        victim.start(60)


def test_paused(group, load):
    """For longer than its lease: when it wakes it must not serve what it takes for true."""
    victim = group[0]
    with load(12):
        victim.pause()
        try:
            since = time.monotonic()
            marked_down(group, victim)
            time.sleep(max(0, PAUSE_S - (time.monotonic() - since)))
        finally:
            victim.resume()


def test_cut_off(group, load):
    victim = group[1]
    with load(8):
        victim.cut()
        try:
            marked_down(group, victim)
        finally:
            victim.heal()


def test_two_hosts_cut_off_from_each_other(group, load):
    """The client, and the third host, reach both."""
    with load(8):
        group[0].isolate()
        group[1].isolate()
        try:
            wait_until(lambda: degraded(group), 30, 0.2, 'a copy to be missed')
        finally:
            group[0].isolate(False)
            group[1].isolate(False)


def test_mute(group, load):
    """Cut in one direction: what it sends to the other hosts is lost, what they send arrives."""
    victim = group[1]
    with load(8):
        victim.mute()
        try:
            marked_down(group, victim)
        finally:
            victim.unmute()


def test_full_disk(group, load):
    """Another program fills one host's disk: the others go on, health says so; when there is room again it catches up."""
    victim = group[2]
    if victim.disk is None:
        pytest.skip('no loop device here: %s' % group.no_disk)
    with load(8):
        victim.fill_disk()
        try:
            wait_until(lambda: degraded(group), 30, 0.2, 'a copy to be missed')
            wait_until(lambda: 'OSD_FULL' in group[0].ceph_json('health')['checks'], 30, 0.5, 'health to say OSD_FULL')
            # The primary of every PG is one that can write.
            wait_until(lambda: all(pg['acting_primary'] != victim.osd or pg['state'] == 'active+clean'
                                   for pg in group[0].pgs()), 30, 0.2, 'others to lead')
        finally:
            victim.empty_disk()


def test_etcd_loses_a_member(group, load):
    with load(8):
        group[0].etcd.kill()
        group[1].ceph('config', 'set', 'global', 'osd_pool_default_pg_num', '8', timeout=60)
        group[0].etcd.restart()
    group[1].ceph('config', 'rm', 'global', 'osd_pool_default_pg_num')


def test_etcd_loses_its_majority(group, load, tmp_path):
    """Nobody can be sure for long to serve alone: all wait, say so, and go on."""
    writer, notes = start_writer(group[0], group.pool, tmp_path)
    try:
        with load():
            wait_until(lambda: notes.stat().st_size > 200, 30, 0.05, 'acknowledged writes')
            for host in group.list[:2]:
                host.etcd.kill()
            wait_until(lambda: any('waiting for etcd (http' in h.log_tail(400) for h in group), 60, 0.2, 'a line in the log')
            wait_until(lambda: is_still(notes), 60, 0.1, 'writes to wait')
            for host in group.list[:2]:
                host.etcd.restart()
            wait_until(group.etcd_healthy, 30, 0.2, 'etcd')
        size = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > size, 60, 0.1, 'writes to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    assert check_notes(group[0], group.pool, notes) > 0


def is_still(notes):
    """Nothing was acknowledged for two seconds."""
    before = notes.stat().st_size
    time.sleep(2)
    return notes.stat().st_size == before


def test_rolling_restart(group, load, tmp_path):
    writer, notes = start_writer(group[0], group.pool, tmp_path)
    try:
        with load(12):
            for host in group:
                assert host.stop(30) == 0
                host.start(60)
                wait_until(lambda: group[0].whole(), 60, 0.3, 'all copies, before the next one is stopped')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    assert check_notes(group[0], group.pool, notes) > 0


def test_power_cut(group, load, tmp_path):
    """All machines, etcd with them: what was acknowledged is there, and the clients go on."""
    writer, notes = start_writer(group[0], group.pool, tmp_path)
    try:
        with load():
            wait_until(lambda: notes.stat().st_size > 200, 30, 0.05, 'acknowledged writes')
            group.power_cut()
            group.power_on()
        before = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > before, 60, 0.1, 'the writer to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    assert check_notes(group[0], group.pool, notes) > 0


def content(host, number, place):
    """Every object of the pool in its store: listing, and the bytes of each."""
    osd = host.data / ('osd.%d' % host.osd)
    store = [find_binary(), 'store', 'dump', osd]
    listing = json.loads(run([*store, 'ls', '--pool', str(number), '-f', 'json'], timeout=120).out)
    run([*store, 'export', '--pool', str(number), place], timeout=120)
    files = sorted(f for f in place.rglob('*') if f.is_file())
    digests = {str(f.relative_to(place)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    shutil.rmtree(place)
    return listing, digests


def test_the_copies_are_equal(group, tmp_path):
    """After everything above: three stores with the same objects, none of them damaged."""
    healthy(group)
    number = group[0].pool_number(group.pool)
    for host in group:
        assert host.stop(30) == 0
    contents = []
    for host in group:
        run([find_binary(), 'store', 'check', host.data / ('osd.%d' % host.osd)], timeout=120)
        contents.append(content(host, number, tmp_path / host.name))
    assert len(contents[0][1]) > 20
    assert contents[0] == contents[1] == contents[2]
