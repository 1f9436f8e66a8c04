"""The cluster evens itself out: numbers of placement groups follow what pools hold, and bytes are spread by upmaps. With
stock `ceph`, under a client that writes and a server that is killed in the middle; and the commands' answers.

Texts recorded from Ceph 16.2.15 where it has them.
"""
import json
import os

import pytest

from skeptest.cluster import unique
from skeptest.run import end_group, wait_until
from skeptest.writer import check_notes, start_writer


def said(cluster, status, *args):
    return cluster.ceph(*args, check=status).err.strip()


def row(cluster, pool):
    return [p for p in cluster.ceph_json('osd', 'pool', 'ls', 'detail') if p['pool_name'] == pool][0]


def numbers(cluster, pool):
    r = row(cluster, pool)
    return r['pg_num'], r['pg_num_target']


def sizing(cluster, pool):
    return [p for p in cluster.ceph_json('osd', 'pool', 'autoscale-status') if p['pool_name'] == pool][0]


@pytest.mark.own
def test_a_pool_grows_and_shrinks_by_itself_under_writes_and_kills(own, tmp_path):
    skep = own().start()
    pool = unique('scaled')
    skep.ceph('osd', 'pool', 'create', pool, '--size', '3')
    skep.ceph('osd', 'pool', 'application', 'enable', pool, 'rados')
    assert row(skep, pool)['pg_autoscale_mode'] == 'on' and numbers(skep, pool) == (32, 32)
    skep.ceph('config', 'set', 'mgr', 'target_max_misplaced_ratio', '0.3')
    skep.ceph('config', 'set', 'mgr', 'mgr/pg_autoscaler/sleep_interval', '1')
    writer, notes = start_writer(skep, pool, tmp_path)

    def goes_on():
        size = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > size + 100, 120, what='acknowledged writes')

    def killed_between(low, high):
        wait_until(lambda: low < numbers(skep, pool)[0] < high, 180, 0.1, 'a number between %d and %d' % (low, high))
        skep.kill()
        skep.start()

    def arrives(pg_num):
        wait_until(lambda: numbers(skep, pool) == (pg_num, pg_num), 300, 0.5, '%d PGs' % pg_num)
        wait_until(lambda: skep.whole(pool), 180, 0.5, 'pool %s to be whole' % pool)
        goes_on()
    try:
        goes_on()
        # Three OSDs, three copies: a hundred groups for each OSD are a hundred, of which the nearest power is 128.
        skep.ceph('osd', 'pool', 'set', pool, 'target_size_ratio', '1')
        killed_between(32, 128)
        arrives(128)
        lines = skep.ceph('log', 'last', '200').out
        assert "PG autoscaler: pool '%s' shall have 128 PGs instead of 32: by its target_size_ratio" % pool in lines, lines
        # Nobody has asked for it: it does not shrink.
        skep.ceph('osd', 'pool', 'set', pool, 'target_size_ratio', '0')
        wait_until(lambda: sizing(skep, pool)['would_adjust'], 60, what='the wish to shrink')
        # Another does, so it has looked.
        other = unique('other')
        skep.ceph('osd', 'pool', 'create', other, '4', '--autoscale-mode=on')
        wait_until(lambda: numbers(skep, other) == (32, 32), 120, 0.5, 'another pool to grow')
        assert numbers(skep, pool) == (128, 128)
        skep.ceph('osd', 'pool', 'set', pool, 'pg_autoscale_mode', 'on')
        killed_between(32, 126)
        arrives(32)
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)
    skep.restart()
    check_notes(skep, pool, notes)
    assert numbers(skep, pool) == (32, 32)


def spread(cluster):
    """Bytes of copies on each OSD, by where they shall be."""
    out = dict.fromkeys(cluster.ceph_json('osd', 'ls'), 0)
    for pg in cluster.ceph_json('pg', 'dump', 'pgs')['pg_stats']:
        for osd in pg['up']:
            out[osd] += pg['stat_sum']['num_bytes']
    return out


def deviation(cluster):
    held = list(spread(cluster).values())
    mean = sum(held) / len(held)
    return (sum((b - mean) ** 2 for b in held) / len(held)) ** 0.5


def score(cluster, *of):
    return float(cluster.ceph('balancer', 'eval', *of).out.split(' score ')[1].split()[0])


def optimize(cluster, status, *args):
    """The answer, asked for again while there is no report yet of groups where they are now (EBUSY)."""
    def answer():
        r = cluster.ceph('balancer', 'optimize', *args, check=None)
        return r if r.returncode != 16 else None
    r = wait_until(answer, 120, 0.5, 'the reports that a plan is made from')
    assert r.returncode == status, r
    return r.err.strip()


@pytest.mark.own
def test_bytes_are_evened_out_by_plans_and_by_itself(own):
    skep = own().start()
    pool = skep.make_copies(2, pg_num=16)
    # Two large objects among many small ones: counts of groups say nothing.
    for n in range(12):
        skep.rados(pool, 'put', 'small-%d' % n, '-', stdin=os.urandom(10_000))
    for n in range(3):
        skep.rados(pool, 'put', 'large-%d' % n, '-', stdin=os.urandom(8 << 20))
    wait_until(lambda: sum(spread(skep).values()) >= 2 * (3 * (8 << 20) + 120_000), 60, 0.5, 'reports of it all')
    # A disk is nearly empty: by itself nobody would move anything.
    assert said(skep, 22, 'balancer', 'optimize', 'a') == \
        'Error EINVAL: Balancer enabled, disable to optimize manually'
    skep.ceph('balancer', 'off')
    assert optimize(skep, 114, 'a').startswith(
        'Error EALREADY: Unable to find further optimization, or pool(s) pg_num is decreasing')
    skep.ceph('config', 'set', 'mgr', 'mgr/balancer/min_disk_ratio', '0')
    # All large ones on two of three OSDs is what is put right.
    large = {skep.ceph_json('osd', 'map', pool, 'large-%d' % n)['pgid'] for n in range(3)}
    skep.ceph('osd', 'set-require-min-compat-client', 'luminous')
    for pg in large:
        raw = skep.ceph_json('pg', 'map', pg)['up']
        other = next(o for o in skep.ceph_json('osd', 'ls') if o not in raw)
        if 0 not in raw or 1 not in raw:
            skep.ceph('osd', 'pg-upmap-items', pg, next(o for o in raw if o not in (0, 1)), other)
    wait_until(lambda: skep.whole(), 120, 0.5, 'all to be whole')
    wait_until(lambda: spread(skep)[2] < 1 << 20, 60, 0.5, 'the large ones to be elsewhere')
    before, uneven = deviation(skep), score(skep)
    assert said(skep, 22, 'balancer', 'optimize', 'a', pool, 'nosuch') == "Error EINVAL: pools ['nosuch'] not found"
    optimize(skep, 0, 'a', pool)
    assert json.loads(skep.ceph('balancer', 'ls').out) == ['a']
    shown = skep.ceph('balancer', 'show', 'a').out
    assert '# mode upmap' in shown and 'pg-upmap-items' in shown, shown
    assert json.loads(skep.ceph('balancer', 'dump', 'a').out)['fsid'] == skep.ceph_json('status')['fsid']
    assert score(skep, 'a') < uneven
    skep.restart()
    assert json.loads(skep.ceph('balancer', 'ls').out) == ['a'], 'plans are kept'
    wait_until(lambda: skep.whole(), 120, 0.5, 'all to be whole')
    skep.ceph('balancer', 'execute', 'a')
    assert json.loads(skep.ceph('balancer', 'ls').out) == []
    wait_until(lambda: skep.whole(), 120, 0.5, 'all to be whole')
    wait_until(lambda: deviation(skep) < before, 60, 0.5, 'less deviation')
    # The rest comes by itself, and ends.
    skep.ceph('config', 'set', 'mgr', 'mgr/balancer/sleep_interval', '1')
    skep.ceph('balancer', 'on')
    wait_until(lambda: json.loads(skep.ceph('balancer', 'status').out)['no_optimization_needed'], 180, 0.5, 'an end')
    status = json.loads(skep.ceph('balancer', 'status').out)
    assert status['active'] and status['mode'] == 'upmap' and status['last_optimize_started'], status
    wait_until(lambda: skep.whole(), 120, 0.5, 'all to be whole')
    assert deviation(skep) < before
    for n in range(3):
        assert len(skep.rados(pool, 'get', 'large-%d' % n, '-').out_bytes) == 8 << 20
    # What no longer leads anywhere goes when OSDs leave.
    skep.ceph('balancer', 'off')
    if any(m['to'] == 2 for i in skep.ceph_json('osd', 'dump')['pg_upmap_items'] for m in i['mappings']):
        skep.ceph('osd', 'out', '2')
        wait_until(lambda: not any(m['to'] == 2 for i in skep.ceph_json('osd', 'dump')['pg_upmap_items']
                                   for m in i['mappings']), 60, 0.5, 'stale replacements to go')


def test_the_table_and_the_warnings(cluster):
    pool = unique('sized')
    cluster.ceph('osd', 'pool', 'create', pool, '4', '--autoscale-mode=warn')
    try:
        heads = cluster.ceph('osd', 'pool', 'autoscale-status').out.splitlines()[0].split()
        assert heads == ('POOL SIZE TARGET SIZE RATE RAW CAPACITY RATIO TARGET RATIO EFFECTIVE RATIO BIAS PG_NUM '
                         'NEW PG_NUM AUTOSCALE BULK').split()
        found = sizing(cluster, pool)
        assert (found['pg_num_target'], found['pg_num_final'], found['would_adjust']) == (4, 32, True)

        def health(code):
            return cluster.ceph_json('health', 'detail')['checks'].get(code)
        lines = [d['message'] for d in health('POOL_TOO_FEW_PGS')['detail']]
        assert 'Pool %s has 4 placement groups, should have 32' % pool in lines
        cluster.ceph('osd', 'pool', 'set', pool, 'target_size_bytes', str(found['subtree_capacity'] * 2))
        lines = [d['message'] for d in health('POOL_TARGET_SIZE_BYTES_OVERCOMMITTED')['detail']]
        assert "due to target_size_bytes" in lines[0] and "on pools ['%s']" % pool in lines[0], lines
        cluster.ceph('osd', 'pool', 'set', pool, 'target_size_ratio', '0.5')
        assert health('POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO')
        assert not health('POOL_TARGET_SIZE_BYTES_OVERCOMMITTED'), 'the ratio counts'
        cluster.ceph('osd', 'pool', 'set', pool, 'pg_autoscale_mode', 'off')
        assert not health('POOL_TOO_FEW_PGS')
    finally:
        cluster.drop_pool(pool)


def test_modes_of_new_pools(cluster):
    made = []

    def mode(*args):
        made.append(unique('mode'))
        cluster.ceph('osd', 'pool', 'create', made[-1], *args)
        return row(cluster, made[-1])['pg_autoscale_mode']
    try:
        assert mode('8') == 'off', 'who gives a number means it'
        assert mode() == 'on'
        assert mode('8', '--autoscale-mode=on', '--pg-num-max', '8') == 'on'
        assert mode('--bulk', '--autoscale-mode=warn', '--target-size-bytes=1048576', '--pg-num-min', '8') == 'warn'
        r = row(cluster, made[-1])
        assert 'bulk' in r['flags_names'] and r['options'] == {'pg_num_min': 8, 'target_size_bytes': 1048576}, r
    finally:
        for name in made:
            cluster.drop_pool(name)


def test_one_switch_for_all(cluster):
    assert said(cluster, 0, 'osd', 'pool', 'get', 'noautoscale') == 'noautoscale is off'
    try:
        assert said(cluster, 0, 'osd', 'pool', 'set', 'noautoscale') == \
            'noautoscale is set, all pools now have autoscale off'
        assert said(cluster, 0, 'osd', 'pool', 'get', 'noautoscale') == 'noautoscale is on'
    finally:
        cluster.ceph('osd', 'pool', 'unset', 'noautoscale')
    assert said(cluster, 0, 'osd', 'pool', 'get', 'noautoscale') == 'noautoscale is off'


def test_what_the_balancer_refuses(cluster):
    assert 'crush-compat' in said(cluster, 95, 'balancer', 'mode', 'crush-compat')
    for verb in 'show', 'dump', 'execute':
        assert said(cluster, 2, 'balancer', verb, 'nosuch') == 'Error ENOENT: plan nosuch not found'
    assert said(cluster, 0, 'balancer', 'rm', 'nosuch') == ''
    assert said(cluster, 22, 'balancer', 'eval', 'nosuch') == 'Error EINVAL: option "nosuch" not a plan or a pool'
    assert said(cluster, 22, 'balancer', 'pool', 'add', 'nosuch') == "Error EINVAL: pool(s) ['nosuch'] not found"
    assert 'lower is better' in cluster.ceph('balancer', 'eval-verbose').out
    pool = cluster.make_pool()
    try:
        cluster.ceph('balancer', 'pool', 'add', pool)
        assert json.loads(cluster.ceph('balancer', 'pool', 'ls').out) == [pool]
        cluster.ceph('balancer', 'pool', 'rm', pool)
        assert cluster.ceph('balancer', 'pool', 'ls').out.strip() == ''
    finally:
        cluster.drop_pool(pool)
