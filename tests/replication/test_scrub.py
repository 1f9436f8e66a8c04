"""Bit rot under three copies: scrub finds it and names the OSD, repair heals it, and a client that reads what rotted
never notices. Damage is made in the data file of one OSD while the server is stopped.
"""
import hashlib
import json
import mmap
import random

import pytest

from skeptest.run import wait_until

pytestmark = pytest.mark.own

LOG_END = (64 << 10) + (64 << 20)                       # of a store made with the default options
DATA = b''.join(hashlib.sha256(b'%d' % n).digest() for n in range(40_000))[:1_200_000]


def whole(skep):
    pgs = skep.pgs()
    return bool(pgs) and all(pg['state'].startswith('active+clean') for pg in pgs)


@pytest.fixture
def filled(own, tmp_path):
    """Three OSDs, a pool of three copies with one PG, in it `big` of DATA with attributes and omap, and some others."""
    skep = own().start()
    pool = skep.make_pool(pg_num=1)
    skep.ceph('osd', 'pool', 'set', pool, 'size', '3', '--yes-i-really-mean-it')
    skep.ceph('osd', 'pool', 'set', pool, 'min_size', '2')
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool')
    file = tmp_path / 'data'
    file.write_bytes(DATA)
    skep.rados(pool, 'put', 'big', file)
    skep.rados(pool, 'setxattr', 'big', 'colour', 'blue')
    skep.rados(pool, 'setomapval', 'big', 'key', 'value')
    for n in range(5):
        skep.rados(pool, 'put', 'small%d' % n, '-', stdin=b'%d' % n * 5000)
    where = skep.ceph_json('osd', 'map', pool, 'big')
    skep.pool, skep.pgid, skep.acting = pool, where['pgid'], where['acting']
    return skep


def flip(skep, osd, content):
    """One bit in the middle of where `content` lies in the data file of an OSD, behind its log: wherever it does, since
    what a repair replaced may lie there yet."""
    block = skep.data / ('osd.%d' % osd) / 'block'
    with open(block, 'r+b') as f, mmap.mmap(f.fileno(), 0) as data:
        found = 0
        at = data.find(content, LOG_END)
        while at >= 0:
            data[at + len(content) // 2] ^= 4
            found += 1
            at = data.find(content, at + len(content))
    assert found, 'the content is in the data file of osd.%d' % osd


LARGE = random.Random(11).randbytes(40 << 20)            # more than one transaction takes


def large(skep, tmp_path):
    file = tmp_path / 'large'
    file.write_bytes(LARGE)
    skep.rados(skep.pool, 'put', 'large', file)
    skep.rados(skep.pool, 'setxattr', 'large', 'colour', 'red')
    skep.rados(skep.pool, 'setomapval', 'large', 'key', 'value')


def block(n):
    return LARGE[n * 4096:(n + 1) * 4096]


def flip_all(skep, *what):
    """Bits of blocks of `large`: (OSD, block) each."""
    skep.stop()
    for osd, n in what:
        flip(skep, osd, block(n))
    skep.start()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')


def read_on_each(skep):
    """Every OSD in turn leads, and gives what was written."""
    for osd in (0, 1, 2):
        skep.ceph('osd', 'down', str(osd))
        assert skep.rados(skep.pool, 'get', 'large', '-').out_bytes == LARGE
        assert skep.rados(skep.pool, 'getxattr', 'large', 'colour').out.strip() == 'red'
        assert b'value' in skep.rados(skep.pool, 'listomapvals', 'large').out_bytes


def names(skep):
    return sorted(skep.rados(skep.pool, 'ls').out.split())


def repaired(skep):
    """Copies that were repaired since the present primaries lead."""
    stats = skep.ceph_json('pg', skep.pgid, 'query')['info']['stats']['stat_sum']
    return stats['num_objects_repaired']


def damage(skep, osd, content=DATA[8 * 4096:9 * 4096]):
    skep.stop()
    flip(skep, osd, content)
    skep.start()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')


def scrub(skep, kind):
    """Asks for a scrub and waits for its end."""
    field = 'last_scrub_stamp' if kind == 'scrub' else 'last_deep_scrub_stamp'

    def stamp():
        stats = skep.ask('pg', 'dump', to='mgr', dumpcontents=['pgs'])
        stats = stats.get('pg_stats', stats) if isinstance(stats, dict) else stats
        mine = [pg for pg in stats if pg['pgid'] == skep.pgid]
        return mine and (mine[0][field], mine[0]['state'])
    before = stamp()
    r = skep.ceph('pg', kind, skep.pgid)
    assert 'instructing pg %s on osd.' % skep.pgid in r.out + r.err and r.err.strip().endswith('to ' + kind), r

    def over():
        now = stamp()
        return now and now[0] != before[0] and 'scrubbing' not in now[1] and now[1]
    return wait_until(over, 60, every=0.3, what='the end of the %s' % kind)


def health(skep):
    return skep.ceph_json('health', 'detail')['checks']


def inconsistent(skep):
    return json.loads(skep.run('rados', 'list-inconsistent-obj', skep.pgid, '--format=json').out)['inconsistents']


def test_a_flipped_bit_is_found_named_and_repaired(filled):
    skep, victim = filled, filled.acting[1]
    assert scrub(skep, 'deep-scrub') == 'active+clean' and inconsistent(skep) == []
    damage(skep, victim)
    assert scrub(skep, 'scrub') == 'active+clean', 'a light scrub does not read data'
    assert scrub(skep, 'deep-scrub') == 'active+clean+inconsistent'
    checks = health(skep)
    assert checks['OSD_SCRUB_ERRORS']['summary']['message'] == '1 scrub errors', checks
    assert checks['PG_DAMAGED']['summary']['message'] == 'Possible data damage: 1 pg inconsistent', checks
    assert json.loads(skep.run('rados', 'list-inconsistent-pg', skep.pool).out) == [skep.pgid]
    found = inconsistent(skep)
    assert [f['object']['name'] for f in found] == ['big'], found
    one = found[0]
    assert one['errors'] == [] and one['union_shard_errors'] == ['read_error'], one
    assert {s['osd']: s['errors'] for s in one['shards']} == {
        o: ['read_error'] if o == victim else [] for o in skep.acting}, one
    assert one['selected_object_info']['size'] == len(DATA), one
    assert skep.rados(skep.pool, 'get', 'big', '-').out_bytes == DATA
    assert scrub(skep, 'repair') == 'active+clean'
    assert inconsistent(skep) == []
    assert not {'OSD_SCRUB_ERRORS', 'PG_DAMAGED'} & set(health(skep))
    skep.restart()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')
    assert scrub(skep, 'deep-scrub') == 'active+clean' and inconsistent(skep) == []


def test_a_client_reads_what_rotted_on_the_primary_and_heals_it(filled):
    skep, victim = filled, filled.acting[0]
    damage(skep, victim)
    assert skep.rados(skep.pool, 'get', 'big', '-').out_bytes == DATA
    assert skep.rados(skep.pool, 'getxattr', 'big', 'colour').out.strip() == 'blue'
    assert b'value' in skep.rados(skep.pool, 'listomapvals', 'big').out_bytes
    assert scrub(skep, 'deep-scrub') == 'active+clean', 'the copy was healed by the read'
    r = skep.ceph_json('pg', skep.pgid, 'query')
    assert r['info']['stats']['stat_sum']['num_objects_repaired'] == 1, r


@pytest.mark.parametrize('victim', [0, 1], ids=['primary', 'replica'])
def test_a_large_object_is_repaired(filled, tmp_path, victim):
    skep = filled
    large(skep, tmp_path)
    before = names(skep)
    flip_all(skep, (skep.acting[victim], 5000))
    assert scrub(skep, 'deep-scrub') == 'active+clean+inconsistent'
    assert [f['object']['name'] for f in inconsistent(skep)] == ['large']
    assert scrub(skep, 'repair') == 'active+clean'
    assert inconsistent(skep) == [] and names(skep) == before
    read_on_each(skep)
    assert scrub_when_whole(skep) == 'active+clean'


def test_a_client_reads_a_large_object_that_rotted_on_the_primary(filled, tmp_path):
    skep = filled
    large(skep, tmp_path)
    flip_all(skep, (skep.acting[0], 77), (skep.acting[0], 9000))
    assert skep.rados(skep.pool, 'get', 'large', '-').out_bytes == LARGE
    assert repaired(skep) == 1
    assert scrub(skep, 'deep-scrub') == 'active+clean', 'the copy was healed by the read'


def test_copies_that_rotted_at_different_places_make_a_good_one(filled, tmp_path):
    """No copy is whole: the good one is made of the blocks of all."""
    skep = filled
    large(skep, tmp_path)
    a, b, c = skep.acting
    flip_all(skep, (a, 7), (a, 6000), (b, 9), (c, 8), (c, 9500))
    assert skep.rados(skep.pool, 'get', 'large', '-').out_bytes == LARGE
    flip_all(skep, (a, 100), (b, 101))
    assert scrub(skep, 'deep-scrub') == 'active+clean+inconsistent'
    assert inconsistent(skep)[0]['union_shard_errors'] == ['read_error']
    assert scrub(skep, 'repair') == 'active+clean'
    read_on_each(skep)
    assert scrub_when_whole(skep) == 'active+clean'


def test_what_rotted_on_all_copies_stays_and_is_said(filled, tmp_path):
    skep = filled
    large(skep, tmp_path)
    flip_all(skep, *((osd, 7) for osd in skep.acting))
    r = skep.rados(skep.pool, 'get', 'large', '-', check='fails')
    assert 'Input/output error' in r.err, r
    assert scrub(skep, 'repair') == 'active+clean+inconsistent'
    assert [f['object']['name'] for f in inconsistent(skep)] == ['large']


def test_a_copy_that_a_client_cannot_read_is_repaired(filled, tmp_path):
    """A client that reads from copies meets what rotted on one of them: it gets its data, and nobody has to scrub."""
    skep = filled
    skep.ceph('osd', 'pool', 'application', 'enable', skep.pool, 'rbd', '--yes-i-really-mean-it')
    image = '%s/i' % skep.pool
    (tmp_path / 'image').write_bytes(LARGE[:8 << 20])
    skep.rbd('import', '--object-size', '1M', tmp_path / 'image', image)
    for key in ('noscrub', 'nodeep-scrub'):
        skep.ceph('osd', 'set', key)
    skep.stop()
    for osd in skep.acting[1:]:
        flip(skep, osd, block(300))
    skep.start()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')
    balanced = skep.with_args('--rbd-read-from-replica-policy=balance')

    def mended():
        assert balanced.rbd('export', image, '-').out_bytes == LARGE[:8 << 20]
        return repaired(skep) == 2
    wait_until(mended, 40, every=0.2, what='the repair of both copies')
    assert scrub(skep, 'deep-scrub') == 'active+clean'


def test_an_image_on_rotting_disks(filled, tmp_path):
    """An object of an image rots on each OSD, another one on each: the image is what it was, before and after a repair."""
    skep = filled
    pool = skep.pool
    skep.ceph('osd', 'pool', 'application', 'enable', pool, 'rbd', '--yes-i-really-mean-it')
    content = b''.join(hashlib.sha256(b'image %d' % n).digest() for n in range(400_000))[:12 << 20]
    (tmp_path / 'image').write_bytes(content)
    skep.rbd('import', tmp_path / 'image', '%s/i' % pool)
    skep.rbd('snap', 'create', '%s/i@s' % pool)
    skep.stop()
    for n, osd in enumerate(skep.acting):
        flip(skep, osd, content[(n << 22) + 50 * 4096:][:4096])
        flip(skep, osd, content[(n << 22) + 900 * 4096:][:4096])
    skep.start()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')
    assert skep.rbd('export', '%s/i@s' % pool, '-').out_bytes == content
    assert scrub(skep, 'repair') == 'active+clean'
    for osd in (0, 1, 2):                       # every OSD in turn leads, and has all of it
        skep.ceph('osd', 'down', str(osd))
        assert skep.rbd('export', '%s/i' % pool, '-').out_bytes == content
    assert scrub_when_whole(skep) == 'active+clean'


def scrub_when_whole(skep):
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')
    return scrub(skep, 'deep-scrub')


def test_what_can_be_asked_for(filled):
    skep = filled
    assert 'instructed osd(s) 0 to scrub' in skep.ceph('osd', 'scrub', '0').err
    assert 'instructed osd(s) 0,1,2 to deep-scrub' in skep.ceph('osd', 'deep-scrub', 'all').err
    assert skep.ceph('osd', 'pool', 'repair', skep.pool).err.strip() == ''
    for args, status, words in (
            (('pg', 'scrub', '9.9'), 2, 'pg 9.9 does not exist'),
            (('osd', 'scrub', '77'), 11, 'osd.77 is not up'),
            (('osd', 'pool', 'scrub', 'nope'), 2, "unrecognized pool 'nope'")):
        assert words in skep.ceph(*args, check=status).err

    def idle():
        stats = skep.ask('pg', 'ls', to='mgr')
        return not any('scrubbing' in pg['state'] for pg in stats['pg_stats'])
    wait_until(idle, 60, every=0.5, what='the end of all that was asked for')
