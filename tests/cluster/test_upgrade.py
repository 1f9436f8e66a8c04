"""Upgrade and way back with two programs: this one and the release before's (skeptest.before), machine by machine under loads that are verified: images, a
file system on a mount that stays, and, on a single machine, S3."""
import hashlib
import json
import os

import pytest

from skeptest import before
from skeptest.filewriter import writing
from skeptest.load import Load
from skeptest.mounts import make_volume
from skeptest.run import end_group, run, wait_until
from skeptest.s3 import Server, User
from skeptest.skep import find_binary, free_port
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

STILL_MIB = 24
# Of load, for each machine: what its stop and start take, and some.
SPAN_S = 20
# What lies in pools, whose servers look by themselves: the check says that it did not.
FILES, BUCKETS = 'file system', 'settings of an S3 bucket'
OBJECT_SIZES = [100, 300000, 5 << 20]


def check(host):
    """What this program says of a machine and its cluster, asked where the machine is."""
    said = run(host.argv([find_binary(), 'upgrade', 'check', '--data', host.data, '-f', 'json']))
    return json.loads(said.out)


def leads_back(found, *in_pools):
    """A check's findings: all that was looked at goes on and leads back, and this and nothing else was not looked at."""
    seen = [f for f in found if f['verdict'] != 'not-seen']
    assert seen and all(f['verdict'] == 'good' and f['way_back'] for f in seen), found
    assert sorted(f['name'] for f in found if f not in seen) == sorted(in_pools), found
    # Settings of buckets have newer forms, for who asks for them; file systems have none.
    assert all(f['way_back'] for f in found if f['name'] == FILES), found


def is_whole(skep, osds):
    """Of all pools: those of file systems wait for a copy, too, before the next machine may go."""
    up = skep.ceph_json('osd', 'stat')
    return up['num_up_osds'] == osds and up['num_in_osds'] == osds and skep.whole()


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


class Objects:
    """S3 of a node: what was put while one program served is got from the next."""

    def __init__(self, skep, port):
        self.skep, self.server, self.there = skep, Server(port), {}
        self.user = User(skep, 'upgraded')
        self.s3().create_bucket(Bucket='bucket')

    def s3(self):
        """Connections of before are dead with their server: a client of its own each time."""
        wait_until(lambda: self.skep.roles().get('s3.a', {}).get('state') == 'serving', 60, 0.1, 'S3 to be served')
        return self.server.client(self.user)

    def change(self):
        """Some are new, some take the place of what an earlier program put, and one of its objects is deleted."""
        s3, last = self.s3(), sorted(key for key in self.there if key.startswith('new-'))
        for size in OBJECT_SIZES:
            for key in ['new-%d-%d' % (size, len(self.there)), 'again-%d' % size]:
                data = os.urandom(size)
                s3.put_object(Bucket='bucket', Key=key, Body=data)
                self.there[key] = hashlib.sha256(data).hexdigest()
        for key in last[:1]:
            s3.delete_object(Bucket='bucket', Key=key)
            del self.there[key]

    def check(self):
        s3 = self.s3()
        assert [o['Key'] for o in s3.list_objects_v2(Bucket='bucket')['Contents']] == sorted(self.there)
        for key, wanted in self.there.items():
            assert hashlib.sha256(s3.get_object(Bucket='bucket', Key=key)['Body'].read()).hexdigest() == wanted, key


def roll(group, pool, files, program, tmp_path, note):
    """One machine after the other gets another program, each under a load of its own, the next when all is whole again and the file system is looked at.
    Gives the loads."""
    client, loads = group[0], []
    for host in group:
        with Load(client, pool, tmp_path, seconds=SPAN_S, note=lambda name, value, host=host: note('%s, %s' % (host.name, name), value)) as load:
            assert host.stop() == 0, host.log_tail()
            host.program = program
            host.start()
            assert load.proc.poll() is None, 'the load was over before %s served again' % host.name
        wait_until(lambda: is_whole(client, len(group.list)), 120, 0.5,
                   lambda: 'a whole cluster after %s: %s' % (host.name, client.ceph('-s', check=None).out))
        files.check()
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
    """The rank of the file system goes from machine to machine as they stop, and so from one program to the other, both ways: its mount is one and the same
    from the first to the last."""
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
    make_volume(client, 'fs')
    wait_until(lambda: is_whole(client, len(group.list)), 120, 0.5, 'all copies')
    # Asked of this program, while the old one serves.
    for host in group:
        found = check(host)
        leads_back(found, FILES)
        assert not any(f['converts'] for f in found), found
    loads = []
    with writing(client, 'fs', tmp_path) as files:
        for program, what in ((None, 'upgrade'), (old, 'way back'), (None, 'upgrade again')):
            loads += roll(group, pool, files, program, tmp_path, lambda name, value, what=what: record_property('%s: %s' % (what, name), value))
            for written in loads:
                written.verify()
            same(client, pool, tmp_path, wanted)
            scrubbed(client, pool)
            running = {host.name: host.program for host in group}
            assert set(running.values()) == {program}, running
        record_property('longest step of the mount', '%.2f s' % files.longest_s)


@pytest.mark.long
def test_a_single_machine_killed_between_both(own, tmp_path):
    old, port = before.program(), free_port()
    skep = own(options=['--s3', '--s3-listen', '127.0.0.1:%d' % port])
    skep.program = old
    skep.start()
    pool = skep.make_copies(3, 'rbd')
    wanted = still_image(skep, pool, tmp_path)
    make_volume(skep, 'fs')
    objects = Objects(skep, port)
    wait_until(lambda: is_whole(skep, 3), 120, 0.5, 'all copies')
    writer, notes = start_writer(skep, pool, tmp_path)

    def goes_on():
        so_far = len(notes.read_text().splitlines())
        wait_until(lambda: len(notes.read_text().splitlines()) > so_far + 100, 120, what='the writer to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    try:
        with writing(skep, 'fs', tmp_path) as files:
            for program in (None, old, None, None, old):
                objects.change()
                goes_on()
                files.goes_on()
                skep.kill()
                # What a kill leaves, too, is read by the one that comes next.
                found = json.loads(run([find_binary(), 'upgrade', 'check', '--data', skep.data, '-f', 'json']).out)
                leads_back(found, FILES, BUCKETS)
                skep.program = program
                skep.start()
                files.check()
                objects.check()
            goes_on()
    finally:
        end_group(writer)
        writer.wait(60)
    wait_until(lambda: is_whole(skep, 3), 120, 0.5, 'all copies')
    check_notes(skep, pool, notes)
    same(skep, pool, tmp_path, wanted)
    scrubbed(skep, pool)
