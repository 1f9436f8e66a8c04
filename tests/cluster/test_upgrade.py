"""Upgrade and way back with two programs: this one and the release before's (skeptest.before), machine by machine under a load that is verified."""
import hashlib
import json

import pytest

from skeptest import before
from skeptest.load import Load
from skeptest.run import end_group, run, wait_until
from skeptest.skep import find_binary
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

STILL_MIB = 24
# Of load, for each machine: what its stop and start take, and some.
SPAN_S = 20


def check(host):
    """What this program says of a machine and its cluster, asked where the machine is."""
    said = run(host.argv([find_binary(), 'upgrade', 'check', '--data', host.data, '-f', 'json']))
    return json.loads(said.out)


def is_whole(skep, pool, osds):
    up = skep.ceph_json('osd', 'stat')
    return up['num_up_osds'] == osds and up['num_in_osds'] == osds and skep.whole(pool)


def scrubbed(skep, pool):
    """All copies of all objects of a pool are compared, and equal."""
    of_pool = '%d.' % skep.pool_number(pool)

    def stamps():
        rows = skep.ceph_json('pg', 'dump', 'pgs')['pg_stats']
        return {r['pgid']: r['last_deep_scrub_stamp'] for r in rows if r['pgid'].startswith(of_pool)}
    earlier = stamps()
    skep.ceph('osd', 'pool', 'deep-scrub', pool)
    wait_until(lambda: all(at > earlier[pg] for pg, at in stamps().items()), 240, 1, 'the pool to be scrubbed')
    found = skep.ceph_json('health')['checks']
    assert not {'PG_DAMAGED', 'OSD_SCRUB_ERRORS'} & set(found), found


def still_image(skep, pool, tmp_path):
    """An image that nobody writes to, and what is in it."""
    data = b''.join(hashlib.sha256(b'%d' % n).digest() * 128 for n in range(STILL_MIB * 256))
    (tmp_path / 'still').write_bytes(data)
    skep.rbd('import', tmp_path / 'still', pool + '/still', timeout=120)
    skep.rbd('snap', 'create', pool + '/still@first')
    return hashlib.sha256(data).hexdigest()


def digest(skep, spec, tmp_path):
    (tmp_path / 'out').unlink(missing_ok=True)
    skep.rbd('export', spec, tmp_path / 'out', timeout=120)
    return hashlib.sha256((tmp_path / 'out').read_bytes()).hexdigest()


def same(skep, pool, tmp_path, wanted):
    for spec in ('/still', '/still@first'):
        assert digest(skep, pool + spec, tmp_path) == wanted, spec


def roll(group, pool, program, tmp_path, note):
    """One machine after the other gets another program, each under a load of its own, the next when all is whole again. Gives the loads."""
    client, loads = group[0], []
    for host in group:
        with Load(client, pool, tmp_path, seconds=SPAN_S, note=lambda name, value, host=host: note('%s, %s' % (host.name, name), value)) as load:
            assert host.stop() == 0, host.log_tail()
            host.program = program
            host.start()
            assert load.proc.poll() is None, 'the load was over before %s served again' % host.name
        wait_until(lambda: is_whole(client, pool, len(group.list)), 120, 0.5,
                   lambda: 'a whole cluster after %s: %s' % (host.name, client.ceph('-s', check=None).out))
        loads.append(load)
    return loads


def test_the_check_reads_etcd_and_leaves_it(hosts):
    group = hosts(1)
    group.start_etcd()
    host = group[0]
    host.up(create=True)
    running = check(host)
    state = [f for f in running if f['name'] == 'cluster state'][0]
    assert state['verdict'] == 'good' and state['place'].startswith('etcd at '), running
    assert host.stop() == 0

    def keys():
        return group.etcdctl('get', '', '--prefix', '--keys-only').out.split()

    def revision():
        return json.loads(group.etcdctl('get', 'none', '-w', 'json').out)['header']['revision']
    # What hangs on leases of the process that has ended goes by itself.
    wait_until(lambda: not [key for key in keys() if '/live/' in key], 60, 0.3, 'its leases to run out')
    at = revision()
    found = check(host)
    assert found and all(f['verdict'] == 'good' and f['way_back'] for f in found), found
    assert revision() == at


@pytest.mark.long
def test_rolling_upgrade_and_the_way_back_under_load(hosts, tmp_path, record_property):
    old = before.program()
    group = hosts(3)
    for host in group:
        host.program = old
    group.start_etcd()
    group[0].up(create=True)
    for host in group.list[1:]:
        host.up(join=True)
    client = group[0]
    pool = client.make_copies(3, 'rbd')
    wanted = still_image(client, pool, tmp_path)
    # Asked of this program, while the old one serves.
    for host in group:
        found = check(host)
        assert all(f['verdict'] == 'good' and f['way_back'] and not f['converts'] for f in found), found
    loads = []
    for program, what in ((None, 'upgrade'), (old, 'way back'), (None, 'upgrade again')):
        loads += roll(group, pool, program, tmp_path, lambda name, value, what=what: record_property('%s: %s' % (what, name), value))
        for written in loads:
            written.verify()
        same(client, pool, tmp_path, wanted)
        scrubbed(client, pool)
        running = {host.name: host.program for host in group}
        assert set(running.values()) == {program}, running


@pytest.mark.long
def test_a_single_machine_killed_between_both(own, tmp_path):
    old = before.program()
    skep = own()
    skep.program = old
    skep.start()
    pool = skep.make_copies(3, 'rbd')
    wanted = still_image(skep, pool, tmp_path)
    writer, notes = start_writer(skep, pool, tmp_path)

    def goes_on():
        so_far = len(notes.read_text().splitlines())
        wait_until(lambda: len(notes.read_text().splitlines()) > so_far + 100, 120, what='the writer to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    try:
        for program in (None, old, None, None, old):
            goes_on()
            skep.kill()
            # What a kill leaves, too, is read by the one that comes next.
            found = json.loads(run([find_binary(), 'upgrade', 'check', '--data', skep.data, '-f', 'json']).out)
            assert all(f['verdict'] == 'good' and f['way_back'] for f in found), found
            skep.program = program
            skep.start()
        goes_on()
    finally:
        end_group(writer)
        writer.wait(60)
    wait_until(lambda: is_whole(skep, pool, 3), 120, 0.5, 'all copies')
    check_notes(skep, pool, notes)
    same(skep, pool, tmp_path, wanted)
    scrubbed(skep, pool)
