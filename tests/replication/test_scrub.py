"""Bit rot under three copies: scrub finds it and names the OSD, repair heals it, and a client that reads what rotted
never notices. Damage is made in the data file of one OSD while the server is stopped.
"""
import hashlib
import json

import pytest

from skeptest.run import wait_until

pytestmark = pytest.mark.own

LOG_END = (64 << 10) + (64 << 20)                       # of a store made with the default options
DATA = b''.join(hashlib.sha256(b'%d' % n).digest() for n in range(40_000))[:1_200_000]


def whole(skep):
    brief = skep.ceph_json('pg', 'dump', 'pgs_brief')
    pgs = brief.get('pg_stats', brief) if isinstance(brief, dict) else brief
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
    """One bit in the middle of where `content` lies in the data file of an OSD, behind its log."""
    block = skep.data / ('osd.%d' % osd) / 'block'
    at = block.read_bytes().find(content, LOG_END)
    assert at > 0, 'the content is in the data file of osd.%d' % osd
    at += len(content) // 2
    with open(block, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 4]))


def damage(skep, osd, content=DATA[8 * 4096:9 * 4096]):
    skep.stop()
    flip(skep, osd, content)
    skep.start()
    wait_until(lambda: whole(skep), 40, every=0.5, what='a whole pool again')


def scrub(skep, kind):
    """Asks for a scrub and waits for its end."""
    field = 'last_scrub_stamp' if kind == 'scrub' else 'last_deep_scrub_stamp'

    def stamp():
        stats = skep.ceph_json('pg', 'dump', 'pgs')
        stats = stats.get('pg_stats', stats) if isinstance(stats, dict) else stats
        mine = [pg for pg in stats if pg['pgid'] == skep.pgid]
        return mine and (mine[0][field], mine[0]['state'])
    before = stamp()
    r = skep.ceph('pg', kind, skep.pgid)
    assert 'instructing pg %s on osd.' % skep.pgid in r.out + r.err and r.err.strip().endswith('to ' + kind), r

    def over():
        now = stamp()
        return now and now[0] != before[0] and 'scrubbing' not in now[1]
    wait_until(over, 60, every=0.3, what='the end of the %s' % kind)
    return stamp()[1]


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
        stats = skep.ceph_json('pg', 'ls')
        return not any('scrubbing' in pg['state'] for pg in stats['pg_stats'])
    wait_until(idle, 60, every=0.5, what='the end of all that was asked for')
