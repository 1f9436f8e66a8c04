"""Erasure-coded pools through stock clients: whole objects, parts of them, block devices, one OSD less, restarts.

One machine with four OSDs, so that OSDs are the failure domain. What killed hosts do to such pools is in
`cluster/test_erasure_hosts.py`.
"""
import mmap
import random

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.coded import make_coded, one_osd_less
from skeptest.images import MIB
from skeptest.run import wait_until
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

DATA = random.Random(5).randbytes(3 * MIB + 4321)


@pytest.fixture(scope='module')
def four(serve):
    """Four OSDs for the tests that leave them alone."""
    yield from serve('four', osds=4)


@pytest.fixture(params=[(2, 1), (2, 2)], ids=['2+1', '2+2'])
def coded(four, request):
    return make_coded(four, *request.param)


def test_objects_come_back_as_they_were_written(four, coded, tmp_path):
    put, got = tmp_path / 'put', tmp_path / 'got'
    for n, size in enumerate([0, 1, 4095, 4096, 8192, 8193, len(DATA)]):
        put.write_bytes(DATA[:size])
        four.rados(coded, 'put', 'o%d' % n, put)
        four.rados(coded, 'get', 'o%d' % n, got)
        assert got.read_bytes() == DATA[:size], size
        assert ('size %d' % size) in four.rados(coded, 'stat', 'o%d' % n).out
    assert sorted(four.rados(coded, 'ls').out.split()) == ['o%d' % n for n in range(7)]
    put.write_bytes(b'more')
    four.rados(coded, 'append', 'o2', put)
    four.rados(coded, 'get', 'o2', got)
    assert got.read_bytes() == DATA[:4095] + b'more'
    four.rados(coded, 'truncate', 'o6', '5000')
    four.rados(coded, 'get', 'o6', got)
    assert got.read_bytes() == DATA[:5000]
    four.rados(coded, 'rm', 'o0')
    assert 'o0' not in four.rados(coded, 'ls').out.split()
    four.rados(coded, 'setxattr', 'o1', 'colour', 'blue')
    assert four.rados(coded, 'getxattr', 'o1', 'colour').out.strip() == 'blue'
    assert four.rados(coded, 'listxattr', 'o1').out.split() == ['colour']
    # There are no keys in such a pool: as with Ceph.
    assert '(95)' in four.rados(coded, 'setomapval', 'o1', 'k', 'v', check='fails').err


def test_parts_are_written_over(four, coded):
    def work():
        handle = connect(four)
        dice = random.Random(9)
        with handle.open_ioctx(coded) as io:
            want = bytearray()
            for n in range(120):
                kind, at, size = dice.randrange(10), dice.randrange(60_000), dice.choice([1, 100, 4096, 9000, 20_000])
                data = dice.randbytes(size)
                if kind < 7:
                    io.write('o', data, at)
                    want.extend(bytes(max(0, at + size - len(want))))
                    want[at:at + size] = data
                elif kind == 7:
                    io.append('o', data)
                    want.extend(data)
                elif kind == 8 and want:
                    io.trunc('o', at)
                    want = want[:at] + bytes(max(0, at - len(want)))
                else:
                    io.write_full('o', data)
                    want = bytearray(data)
                assert io.read('o', 1 << 20) == bytes(want), n
                part = dice.randrange(len(want) + 1)
                assert io.read('o', 5000, part) == bytes(want[part:part + 5000]), n
    in_child(work)


def test_snapshots_keep_what_was(four):
    pool = make_coded(four, 2, 1)

    def work():
        handle = connect(four)
        with handle.open_ioctx(pool) as io:
            io.write_full('o', DATA[:30_000])
            io.create_snap('s')
            io.write('o', b'new' * 3000, 7000)
            assert io.read('o', 1 << 20)[7000:16_000] == b'new' * 3000
            io.set_read(io.lookup_snap('s').snap_id)
            assert io.read('o', 1 << 20) == DATA[:30_000]
            io.set_read(2**64 - 2)
            io.snap_rollback('o', 's')
            assert io.read('o', 1 << 20) == DATA[:30_000]
            io.remove_snap('s')
    in_child(work)
    wait_until(lambda: four.whole(pool), 60, every=0.5, what='the pool whole after its snapshot is gone')


def test_it_takes_half_as_much_again(four, tmp_path):
    pool = make_coded(four, 2, 1)
    file = tmp_path / 'data'
    file.write_bytes(DATA)
    for n in range(4):
        four.rados(pool, 'put', 'o%d' % n, file)

    def row():
        pools = four.ask('df', 'detail')['pools']
        return next(p['stats'] for p in pools if p['name'] == pool)
    size = 4 * len(DATA)
    wait_until(lambda: row()['stored'] >= size and row()['bytes_used'] >= size, 60, every=0.5, what='a report of it')
    stats = row()
    assert stats['objects'] == 4
    # Half of it again for parity; blocks that are not full take a little.
    assert abs(stats['stored'] - size) < size // 10, stats
    assert size * 1.5 <= stats['bytes_used'] < size * 1.7, stats


def test_block_devices_with_their_data_there(four, tmp_path):
    pool, data = four.make_pool('rbd'), make_coded(four, 2, 1, app='rbd')
    spec = '%s/%s' % (pool, unique('image'))
    four.rbd('create', spec, '--size', '16M', '--data-pool', data)
    assert four.rbd_json('info', spec)['data_pool'] == data
    argv = ['fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + pool, '--rbdname=' + spec.split('/')[1],
            '--output-format=json', '--verify=crc32c', '--verify_fatal=1', '--verify_state_save=0', '--randseed=7',
            '--rw=randwrite', '--bsrange=4k-64k', '--iodepth=8', '--size=8m']
    four.run(*argv, timeout=120)
    four.run(*argv, '--verify_only', timeout=120)
    file, back = tmp_path / 'image', tmp_path / 'back'
    file.write_bytes(DATA)
    other = '%s/%s' % (pool, unique('image'))
    four.rbd('import', '--data-pool', data, file, other, timeout=60)
    four.rbd('snap', 'create', other + '@s')
    four.rbd('bench', other, '--io-type', 'write', '--io-size', '4K', '--io-total', '1M', '--io-pattern', 'rand', timeout=60)
    four.rbd('export', other + '@s', back, timeout=60)
    assert back.read_bytes() == DATA


def test_stock_bench(four, coded):
    r = four.rados(coded, 'bench', '3', 'write', '-b', '65536', '-t', '4', '--no-cleanup', timeout=60)
    assert 'Total writes made' in r.out
    four.rados(coded, 'bench', '3', 'seq', '-t', '4', timeout=60)
    four.rados(coded, 'cleanup', timeout=60)


@pytest.mark.parametrize('k, m', [(2, 1), (2, 2)])
def test_with_one_osd_less_and_back_again(own, tmp_path, k, m):
    """Of 2 + 1 two are the least, so that it goes on; what it misses it is given when it is back."""
    skep = own(osds=k + m).start()
    pool = make_coded(skep, k, m)
    proc, notes = start_writer(skep, pool, tmp_path)
    wait_until(lambda: notes.stat().st_size > 2000, 60, every=0.2, what='the first writes')
    for osd in range(2):
        with one_osd_less(skep, osd):
            seen = notes.stat().st_size
            wait_until(lambda: notes.stat().st_size > seen + 1000, 60, every=0.2, what='writes without osd.%d' % osd)
            assert check_notes(skep, pool, notes) > 0
    proc.kill()
    proc.wait(60)
    check_notes(skep, pool, notes)
    skep.restart()
    skep.wait_usable()
    wait_until(lambda: skep.whole(pool), 90, every=0.5, what='a whole pool after a restart')
    check_notes(skep, pool, notes)
    assert 'panicked' not in skep.log.read_text(errors='replace')


def test_killed_under_writes_nothing_is_lost(own, tmp_path):
    skep = own(osds=4).start()
    pool = make_coded(skep, 2, 2)
    proc, notes = start_writer(skep, pool, tmp_path)
    for _ in range(3):
        seen = notes.stat().st_size if notes.exists() else 0
        wait_until(lambda: notes.stat().st_size > seen + 1500, 60, every=0.2, what='writes')
        skep.restart()
    proc.kill()
    proc.wait(60)
    wait_until(lambda: skep.whole(pool), 90, every=0.5, what='a whole pool')
    assert check_notes(skep, pool, notes) > 0


LOG_END = (64 << 10) + (64 << 20)                       # of a store made with the default options


def flip(skep, osd, content):
    """One bit in the middle of where `content` lies in the data file of an OSD, behind its log."""
    with open(skep.data / ('osd.%d' % osd) / 'block', 'r+b') as f, mmap.mmap(f.fileno(), 0) as data:
        at = data.find(content, LOG_END)
        assert at >= 0, 'the content is in the data file of osd.%d' % osd
        data[at + len(content) // 2] ^= 4


def shards_of(skep, pool):
    """OSDs that have a shard of any group of the pool."""
    of_pool = '%d.' % skep.pool_number(pool)
    return {osd for pg in skep.pgs() if pg['pgid'].startswith(of_pool) for osd in pg['acting']}


def test_an_osd_that_is_taken_out_gives_its_shards_away(own, tmp_path):
    skep = own(osds=4).start()
    pool = make_coded(skep, 2, 1)
    proc, notes = start_writer(skep, pool, tmp_path)
    wait_until(lambda: notes.stat().st_size > 2000, 60, every=0.2, what='the first writes')
    skep.ceph('osd', 'out', '1')
    wait_until(lambda: skep.whole(pool) and 1 not in shards_of(skep, pool), 120, every=0.5, what='all shards elsewhere')
    assert check_notes(skep, pool, notes) > 0

    def kept():
        nodes = skep.ask('osd', 'df', to='mgr')['nodes']
        return next(n['pgs'] for n in nodes if n['id'] == 1)
    wait_until(lambda: kept() == 0, 60, every=0.5, what='nothing on osd.1')
    skep.ceph('osd', 'in', '1')
    wait_until(lambda: skep.whole(pool) and 1 in shards_of(skep, pool), 120, every=0.5, what='shards on osd.1 again')
    proc.kill()
    proc.wait(60)
    check_notes(skep, pool, notes)


def test_below_the_data_shards_it_waits_for_their_return(own, tmp_path):
    skep = own(osds=3).start()
    pool = make_coded(skep, 2, 1)
    file = tmp_path / 'data'
    file.write_bytes(DATA)
    skep.rados(pool, 'put', 'o', file)
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', '0', '1')
    of_pool = '%d.' % skep.pool_number(pool)

    def states():
        return {pg['state'] for pg in skep.pgs() if pg['pgid'].startswith(of_pool)}
    wait_until(lambda: all('down' in state.split('+') for state in states()), 60, every=0.5, what='groups that are down')
    assert 'PG_AVAILABILITY' in skep.ceph_json('health')['checks']
    skep.ceph('osd', 'unset', 'noup')
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')
    skep.rados(pool, 'get', 'o', file)
    assert file.read_bytes() == DATA


def test_a_damaged_shard_is_read_around(own, tmp_path):
    skep = own(osds=3).start()
    pool = make_coded(skep, 2, 1, pg_num=1)
    file = tmp_path / 'data'
    file.write_bytes(DATA)
    skep.rados(pool, 'put', 'big', file)
    osd = skep.ceph_json('osd', 'map', pool, 'big')['acting'][1]
    skep.stop()
    flip(skep, osd, DATA[4096:8192])
    skep.start()
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')
    skep.rados(pool, 'get', 'big', file)
    assert file.read_bytes() == DATA


def test_a_damaged_shard_is_found_and_mended(own, tmp_path):
    skep = own(osds=3).start()
    pool = make_coded(skep, 2, 1, pg_num=1)
    file = tmp_path / 'data'
    file.write_bytes(DATA)
    skep.rados(pool, 'put', 'big', file)
    where = skep.ceph_json('osd', 'map', pool, 'big')
    pgid, osd = where['pgid'], where['acting'][1]
    skep.stop()
    # The second data shard has the second unit of each stripe.
    flip(skep, osd, DATA[4096:8192])
    skep.start()
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')

    def looked_at(since):
        """Once a deep scrub has ended since then: what it found, and left."""
        stats = next(pg for pg in skep.ask('pg', 'dump', to='mgr')['pg_map']['pg_stats'] if pg['pgid'] == pgid)
        return stats['last_deep_scrub_stamp'] > since and 'scrubbing' not in stats['state'] and stats

    stats = wait_until(lambda: looked_at(''), 60, every=0.5, what='the group in a report')
    errors = []
    for order in 'deep-scrub', 'repair', 'deep-scrub':
        before = stats['last_deep_scrub_stamp']
        skep.ceph('pg', order, pgid)
        stats = wait_until(lambda: looked_at(before), 60, every=0.5, what='the end of a ' + order)
        errors.append(stats['stat_sum']['num_scrub_errors'])
        if order == 'repair':
            assert stats['stat_sum']['num_objects_repaired'] > 0, stats
    assert errors == [1, 0, 0] and skep.whole(pool), (errors, stats)
    skep.rados(pool, 'get', 'big', file)
    assert file.read_bytes() == DATA
