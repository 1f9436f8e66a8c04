"""Compression of pools, as an operator sets it and stock clients write: what is compressed and what is not, what `df` says is saved,
and that data is what it was: after overwriting, with snapshots, after kill -9, after a bit has flipped on a disk.
"""
import json
import mmap
import random

import pytest

from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

MIB = 1 << 20
LOG_END = (64 << 10) + (64 << 20)                       # of a store made with the default options
ALGORITHMS = ['snappy', 'zlib', 'zstd', 'lz4']


def text(seed, size):
    """Like a log of a server: half of it and more can be saved."""
    dice = random.Random(seed)
    words = [b'error', b'warning', b'info', b'connection', b'from', b'client', b'closed', b'opened', b'osd', b'request']
    out = bytearray()
    while len(out) < size:
        out += b'%010d %s %s %s %08x\n' % (len(out), dice.choice(words), dice.choice(words), dice.choice(words),
                                           dice.getrandbits(32))
    return bytes(out[:size])


TEXT = text(1, 2 * MIB)
NOISE = random.Random(2).randbytes(MIB)


@pytest.fixture(scope='module')
def skep(serve):
    yield from serve('compression', osds=1)


@pytest.fixture
def pool(skep):
    """A pool of one copy and one PG that says nothing of compression."""
    name = skep.make_pool(pg_num=1)
    yield name
    skep.drop_pool(name)


def settings(skep, pool, **values):
    for name, value in values.items():
        skep.ceph('osd', 'pool', 'set', pool, 'compression_' + name, value)


def put(skep, pool, name, data, tmp_path):
    file = tmp_path / 'data'
    file.write_bytes(data)
    skep.rados(pool, 'put', name, file)


def get(skep, pool, name):
    return skep.rados(pool, 'get', name, '-').out_bytes


def stats(skep, pool):
    found = skep.ask('df', detail='detail')['pools']
    return next(p['stats'] for p in found if p['name'] == pool)


def wait_for(skep, pool, what, condition):
    wait_until(lambda: condition(stats(skep, pool)), 60, every=0.3, what='df to say that %s' % what)
    return stats(skep, pool)


def image(skep, pool, name, data, hint, tmp_path):
    """An image of these bytes; librbd tells with each write what is said of its data."""
    file = tmp_path / name
    file.write_bytes(data)
    skep.run('rbd', '--rbd_compression_hint', hint, 'import', '--dest-pool', pool, file, name)


def exported(skep, pool, name, tmp_path):
    file = tmp_path / (name + '.out')
    skep.run('rbd', 'export', '%s/%s' % (pool, name), file)
    return file.read_bytes()


@pytest.mark.parametrize('algorithm', ALGORITHMS)
def test_each_algorithm_saves_space_and_keeps_the_data(skep, pool, algorithm, tmp_path):
    settings(skep, pool, mode='force', algorithm=algorithm)
    put(skep, pool, 'text', TEXT, tmp_path)
    put(skep, pool, 'noise', NOISE, tmp_path)
    s = wait_for(skep, pool, 'text is compressed', lambda s: s['compress_under_bytes'] == len(TEXT)
                 and s['bytes_used'] == s['compress_bytes_used'] + len(NOISE))
    # What cannot be compressed is not; and what is takes at most the part that was asked for.
    assert s['stored'] == len(TEXT) + len(NOISE), s
    assert 0 < s['compress_bytes_used'] <= 0.875 * len(TEXT), s
    assert get(skep, pool, 'text') == TEXT and get(skep, pool, 'noise') == NOISE
    skep.rados(pool, 'rm', 'text')
    wait_for(skep, pool, 'nothing is', lambda s: s['compress_under_bytes'] == s['compress_bytes_used'] == 0)


def test_what_is_compressed_follows_mode_and_hints(skep, pool, tmp_path):
    under = 0

    def check(mode, what, compressed):
        nonlocal under
        settings(skep, pool, mode=mode)
        # The client begins with a map that has it, and an OSD waits for the map of what it is asked.
        what()
        under += len(TEXT) if compressed else 0
        wait_for(skep, pool, '%s: %s' % (mode, compressed), lambda s: s['compress_under_bytes'] == under)
    names = iter('abcdefgh')
    plain = lambda: put(skep, pool, next(names), TEXT, tmp_path)
    said = lambda hint: lambda: image(skep, pool, next(names), TEXT, hint, tmp_path)
    settings(skep, pool, algorithm='lz4')
    check('none', plain, False)
    check('passive', plain, False)
    check('passive', said('compressible'), True)
    check('aggressive', said('incompressible'), False)
    check('aggressive', plain, True)
    check('force', said('incompressible'), True)
    for name in 'abe':
        assert get(skep, pool, name) == TEXT, name
    for name in 'cdf':
        assert exported(skep, pool, name, tmp_path) == TEXT, name


def test_a_pool_that_says_nothing_goes_by_the_options(skep, pool, tmp_path):
    settings(skep, pool, algorithm='zstd')
    assert skep.ceph('config', 'set', 'osd', 'bluestore_compression_mode', 'aggressive').err.strip() == ''
    try:
        wait_until(lambda: skep.ceph_json('tell', 'osd.0', 'config', 'get', 'bluestore_compression_mode')
                   == {'bluestore_compression_mode': 'aggressive'}, 60, every=0.3, what='the option at the OSD')
        put(skep, pool, 'text', TEXT, tmp_path)
        wait_for(skep, pool, 'text is compressed', lambda s: s['compress_under_bytes'] == len(TEXT))
    finally:
        skep.ceph('config', 'rm', 'osd', 'bluestore_compression_mode')
    wait_until(lambda: skep.ceph_json('tell', 'osd.0', 'config', 'get', 'bluestore_compression_mode')
               == {'bluestore_compression_mode': 'none'}, 60, every=0.3, what='the default at the OSD')
    put(skep, pool, 'more', TEXT, tmp_path)
    s = wait_for(skep, pool, 'there is more', lambda s: s['stored'] == 2 * len(TEXT))
    assert s['compress_under_bytes'] == len(TEXT)


def test_the_ratio_that_is_asked_for(skep, pool, tmp_path):
    settings(skep, pool, mode='force', algorithm='zstd', required_ratio='.05')
    put(skep, pool, 'text', TEXT, tmp_path)
    s = wait_for(skep, pool, 'text is there', lambda s: s['stored'] == len(TEXT))
    assert s['compress_under_bytes'] == 0 and s['bytes_used'] == len(TEXT), s


@pytest.fixture
def three(own, tmp_path):
    """Three copies of `big`: TEXT with a snapshot, written over in parts since."""
    skep = own().start()
    name = skep.make_pool(pg_num=1)
    skep.ceph('osd', 'pool', 'set', name, 'size', '3', '--yes-i-really-mean-it')
    settings(skep, name, mode='force', algorithm='lz4')
    wait_until(lambda: whole(skep), 60, every=0.5, what='a whole pool')
    put(skep, name, 'big', TEXT, tmp_path)
    skep.rados(name, 'mksnap', 'then')
    now = bytearray(TEXT)
    for offset, data in [(100_000, b'small' * 20), (65536, NOISE[:200_000]), (1_000_000, text(3, 300_000))]:
        file = tmp_path / 'part'
        file.write_bytes(data)
        skep.rados(name, 'put', 'big', file, '--offset', str(offset))
        now[offset:offset + len(data)] = data
    skep.pool, skep.now = name, bytes(now)
    skep.pgid = skep.ceph_json('osd', 'map', name, 'big')['pgid']
    return skep


def whole(skep):
    pgs = skep.pgs()
    return bool(pgs) and all(pg['state'].startswith('active+clean') for pg in pgs)


def as_written(skep):
    assert get(skep, skep.pool, 'big') == skep.now
    file = skep.data.with_name('then')
    skep.rados(skep.pool, '-s', 'then', 'get', 'big', file)
    assert file.read_bytes() == TEXT


def deep_scrub(skep, word='deep-scrub'):
    """The PG's state and its inconsistent objects after it."""
    def mine():
        pgs = skep.ask('pg', 'dump', to='mgr', dumpcontents=['pgs'])
        return next(pg for pg in (pgs['pg_stats'] if isinstance(pgs, dict) else pgs) if pg['pgid'] == skep.pgid)
    before = mine()['last_deep_scrub_stamp']
    skep.ceph('pg', word, skep.pgid)
    wait_until(lambda: mine()['last_deep_scrub_stamp'] != before and 'scrubbing' not in mine()['state'], 120, every=0.5,
               what='the end of the ' + word)
    found = json.loads(skep.run('rados', 'list-inconsistent-obj', skep.pgid, '--format=json').out)
    return mine()['state'], found['inconsistents']


def test_parts_snapshots_kills_and_rot(three):
    skep = three
    as_written(skep)
    skep.kill()
    for osd in range(3):
        report = json.loads(run([find_binary(), 'store', 'check', skep.data / ('osd.%d' % osd), '-f', 'json']).out)
        assert report['clean'] and report['complete'], report
    skep.start()
    wait_until(lambda: whole(skep), 60, every=0.5, what='a whole pool after the kill')
    as_written(skep)
    s = wait_for(skep, skep.pool, 'three copies are compressed',
                 lambda s: s['compress_under_bytes'] > 3 * len(TEXT) and s['compress_bytes_used'] > 0)
    assert s['compress_bytes_used'] < s['compress_under_bytes'] / 2, s
    line = next(l for l in skep.ceph('df', 'detail').out.splitlines() if l.split()[:1] == [skep.pool])
    used, _, under, _ = line.split()[-4:]
    assert 0 < float(used) < float(under), line
    perf = skep.ceph_json('tell', 'osd.0', 'perf', 'dump')['bluestore']
    assert 0 < perf['bluestore_compressed'] <= perf['bluestore_compressed_allocated'] \
        < perf['bluestore_compressed_original'], perf
    assert deep_scrub(skep)[1] == []

    skep.stop()
    rotten = flip_compressed(skep, 1)
    skep.start()
    wait_until(lambda: whole(skep), 60, every=0.5, what='a whole pool again')
    state, bad = deep_scrub(skep)
    assert 'inconsistent' in state and rotten, state
    assert {s['osd'] for b in bad for s in b['shards'] if s['errors']} == {1}, bad
    deep_scrub(skep, 'repair')
    wait_until(lambda: 'inconsistent' not in deep_scrub(skep)[0], 120, what='a repaired PG')
    assert deep_scrub(skep)[1] == []
    as_written(skep)
    skep.stop()
    report = json.loads(run([find_binary(), 'store', 'check', skep.data / 'osd.1', '-f', 'json']).out)
    assert report['clean'], report


def flip_compressed(skep, osd):
    """One bit in blobs: compressed by lz4 the text still begins with its first bytes. How many blobs that were."""
    block = skep.data / ('osd.%d' % osd) / 'block'
    first = TEXT[1_500_000 // 65536 * 65536:][:11]         # of a part that nobody wrote over
    with open(block, 'r+b') as f, mmap.mmap(f.fileno(), 0) as data:
        at, found = data.find(first, LOG_END), 0
        while at >= 0:
            if at % 4096 < 8:
                data[at + 2000] ^= 4
                found += 1
            at = data.find(first, at + 1)
    return found
