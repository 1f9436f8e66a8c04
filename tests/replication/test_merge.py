"""Placement groups are merged: `ceph osd pool set POOL pg_num` with fewer, under clients that write and a server that is
killed in the middle. Nothing that was acknowledged is lost, and snapshots are what they were."""
import hashlib
import json
import os
import subprocess
import time

import pytest

from skeptest import objects
from skeptest.images import MIB
from skeptest.run import end_group, wait_until
from skeptest.writer import check_notes, start_writer

SNAPPED = 60


def numbers(cluster, pool):
    row = [p for p in cluster.ceph_json('osd', 'pool', 'ls', 'detail') if p['pool_name'] == pool][0]
    return row['pg_num'], row['pg_num_target']


def merged(cluster, pool, pg_num):
    """Waits until no more are left, and all of them are whole."""
    wait_until(lambda: numbers(cluster, pool) == (pg_num, pg_num), 180, 0.5, '%d PGs' % pg_num)
    wait_until(lambda: cluster.whole(pool), 180, 0.5, 'pool %s to be whole' % pool)
    of_pool = '%d.' % cluster.pool_number(pool)
    assert sorted(p['pgid'] for p in cluster.pgs() if p['pgid'].startswith(of_pool)) == \
        sorted('%s%x' % (of_pool, n) for n in range(pg_num))


def put_all(cluster, pool, word):
    objects.put(cluster, pool, {'snapped-%d' % n: b'%s %d ' % (word, n) * (1 + n * 50) for n in range(SNAPPED)})


def sums(cluster, pool, snap=None):
    got = objects.get(cluster, pool, ['snapped-%d' % n for n in range(SNAPPED)], snap)
    return {name: hashlib.sha256(data).hexdigest() for name, data in got.items()}


@pytest.mark.own
def test_a_pool_shrinks_to_one_group_and_grows_again_under_writes_and_kills(own, tmp_path):
    skep = own().start()
    pool = skep.make_copies(3, pg_num=32)
    put_all(skep, pool, b'old')
    skep.rados(pool, 'mksnap', 's')
    put_all(skep, pool, b'new')
    before, at_snap = sums(skep, pool), sums(skep, pool, 's')
    assert before != at_snap
    writer, notes = start_writer(skep, pool, tmp_path)

    def goes_on():
        size = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > size + 200, 60, what='acknowledged writes')
    try:
        goes_on()
        said = skep.ceph('osd', 'pool', 'set', pool, 'pg_num', '8').err
        assert said.strip().endswith('pg_num to 8'), said
        # In the middle: some are merged, some are not.
        wait_until(lambda: numbers(skep, pool)[0] < 28, 120, 0.1, 'the first merges')
        skep.kill()
        skep.start()
        merged(skep, pool, 8)
        goes_on()
        skep.ceph('osd', 'pool', 'set', pool, 'pg_num', '1')
        wait_until(lambda: numbers(skep, pool)[0] < 6, 120, 0.1, 'further merges')
        skep.kill()
        skep.start()
        merged(skep, pool, 1)
        goes_on()
        assert sums(skep, pool) == before and sums(skep, pool, 's') == at_snap
        skep.ceph('osd', 'pool', 'set', pool, 'pg_num', '16')
        merged(skep, pool, 16)
        goes_on()
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)
    assert sums(skep, pool) == before and sums(skep, pool, 's') == at_snap
    names = skep.rados(pool, 'ls').out.split()
    assert len(names) == len(set(names)) == SNAPPED + 40, names
    # All copies of all objects are equal.
    of_pool = '%d.' % skep.pool_number(pool)

    def stamps():
        rows = skep.ceph_json('pg', 'dump', 'pgs')['pg_stats']
        return {r['pgid']: r['last_deep_scrub_stamp'] for r in rows if r['pgid'].startswith(of_pool)}
    earlier = stamps()
    skep.ceph('osd', 'pool', 'deep-scrub', pool)
    wait_until(lambda: all(at > earlier[pg] for pg, at in stamps().items()), 240, 1, 'the pool to be scrubbed')
    health = skep.ceph_json('health')['checks']
    assert not {'PG_DAMAGED', 'OSD_SCRUB_ERRORS'} & set(health), health
    counted = [p for p in skep.ceph_json('df')['pools'] if p['name'] == pool][0]['stats']['objects']
    assert counted == 2 * SNAPPED + 40, 'heads, and a clone of each that has changed since the snapshot'
    skep.restart()
    check_notes(skep, pool, notes)
    assert sums(skep, pool, 's') == at_snap


@pytest.mark.own
def test_an_image_under_fio_with_verification(own, tmp_path):
    skep = own().start()
    pool = skep.make_copies(3, 'rbd', pg_num=16)
    conf = skep.with_conf(tmp_path / 'nocache.conf', ['rbd_cache = false'])
    skep.rbd('create', '%s/i' % pool, '--size', '48M')
    argv = ['fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + pool, '--rbdname=i',
            '--rw=randwrite', '--bsrange=4k-64k', '--iodepth=16', '--size=48m', '--verify=crc32c', '--verify_fatal=1',
            '--randseed=3', '--verify_state_save=0', '--output-format=json']
    fio = conf.popen(*argv, '--rate=6m', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        time.sleep(1)
        skep.ceph('osd', 'pool', 'set', pool, 'pg_num', '2')
        out, _ = fio.communicate(timeout=240)
        assert fio.returncode == 0, out.decode()[-3000:]
    finally:
        end_group(fio)
    merged(skep, pool, 2)
    skep.restart()
    r = conf.run(*argv, '--verify_only', timeout=120)
    job = json.loads(r.out[r.out.index('{'):])['jobs'][0]
    assert job['error'] == 0 and job['read']['io_bytes'] == 48 * MIB, job


def test_what_is_refused_and_what_is_taken_back(cluster):
    pool = cluster.make_copies(3, pg_num=8)
    try:
        cluster.rados(pool, 'put', 'o', '-', stdin=os.urandom(10000))
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_num_max', '16')
        assert cluster.ceph('osd', 'pool', 'set', pool, 'pg_num', '17', check=22).err.strip() == \
            'Error EINVAL: specified pg_num 17 < pg_num_max 16'
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_num_min', '4')
        assert 'specified pg_num 3 < pg_num_min 4' in cluster.ceph('osd', 'pool', 'set', pool, 'pg_num', '3', check=22).err
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_num', '6')
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_num', '8')
        merged(cluster, pool, 8)
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_num', '5')
        merged(cluster, pool, 5)
        assert cluster.ceph_json('osd', 'pool', 'get', pool, 'pgp_num')['pgp_num'] == 5
    finally:
        cluster.drop_pool(pool)
