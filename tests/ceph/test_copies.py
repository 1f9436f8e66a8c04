"""The operator's side of copies with the stock `ceph`: sizes and their guards, placement by hand, buckets in several
places, what is safe to stop or destroy, and the commands that show what goes on. Texts recorded from Ceph 16.2.15.

`ceph doctor`, `skep doctor` and the cluster's part of `skep status` are Skep's own.
"""
import json

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until


def said(cluster, status, *args):
    return cluster.ceph(*args, check=status).err.strip()


@pytest.fixture
def name(cluster):
    name = unique('copies')
    yield name
    cluster.drop_pool(name)


def test_sizes_and_their_guards(cluster, name):
    cluster.ceph('osd', 'pool', 'create', name, '8', '8', 'replicated', '--size', '3')

    def sizes():
        return tuple(cluster.ceph_json('osd', 'pool', 'get', name, v)[v] for v in ('size', 'min_size'))
    assert sizes()[0] == 3
    out_of_range = 'Error EINVAL: pool min_size must be between 1 and size, which is set to 3'
    assert said(cluster, 22, 'osd', 'pool', 'set', name, 'min_size', '4') == out_of_range
    assert said(cluster, 22, 'osd', 'pool', 'set', name, 'min_size', '0') == out_of_range
    cluster.ceph('osd', 'pool', 'set', name, 'size', '2')
    assert sizes()[0] == 2 and sizes()[1] <= 2
    assert said(cluster, 22, 'osd', 'pool', 'set', name, 'size', '0') == \
        'Error EINVAL: pool size must be between 1 and 10'
    warning = said(cluster, 1, 'osd', 'pool', 'set', name, 'size', '1')
    assert warning.startswith('Error EPERM: WARNING: setting pool size 1 could lead to data loss without recovery.')
    cluster.ceph('osd', 'pool', 'set', name, 'size', '1', '--yes-i-really-mean-it')
    assert sizes() == (1, 1)


def test_placement_by_hand(cluster, name):
    cluster.ceph('osd', 'set-require-min-compat-client', 'luminous')
    cluster.ceph('osd', 'pool', 'create', name, '8', '8', 'replicated', '--size', '2')
    pool = cluster.ceph_json('osd', 'pool', 'get', name, 'size')['pool_id']
    pg = '%d.3' % pool

    def up():
        return cluster.ceph_json('pg', 'map', pg)['up']
    before = up()
    osds = cluster.ceph_json('osd', 'ls')
    spare = next(o for o in osds if o not in before)
    assert said(cluster, 0, 'osd', 'pg-upmap-items', pg, before[1], spare) == \
        'set %s pg_upmap_items mapping to [%d->%d]' % (pg, before[1], spare)
    assert up() == [before[0], spare]
    dump = cluster.ceph_json('osd', 'dump')['pg_upmap_items']
    assert {'pgid': pg, 'mappings': [{'from': before[1], 'to': spare}]} in dump
    assert said(cluster, 0, 'osd', 'rm-pg-upmap-items', pg) == 'clear %s pg_upmap_items mapping' % pg
    assert up() == before
    both = [spare, before[0]]
    assert said(cluster, 0, 'osd', 'pg-upmap', pg, *both) == 'set %s pg_upmap mapping to [%d,%d]' % (pg, *both)
    assert up() == both
    assert said(cluster, 0, 'osd', 'rm-pg-upmap', pg) == 'clear %s pg_upmap mapping' % pg
    assert said(cluster, 2, 'osd', 'pg-upmap', pg, '99', '1') == 'Error ENOENT: osd.99 does not exist'
    assert said(cluster, 2, 'osd', 'pg-upmap', '9999.0', '1') == 'Error ENOENT: pg 9999.0 does not exist'
    assert said(cluster, 22, 'osd', 'pg-upmap-items', pg, '1', '1').endswith(
        'from osd.1 == to osd.1, no valid upmap items(pairs) is specified')


def test_buckets_in_several_places(cluster):
    rack, host = unique('rack'), unique('host')
    cluster.ceph('osd', 'crush', 'add-bucket', rack, 'rack')
    cluster.ceph('osd', 'crush', 'add-bucket', host, 'host')
    try:
        linked = said(cluster, 0, 'osd', 'crush', 'link', host, 'rack=' + rack)
        assert linked.startswith('linked item id -') and linked.endswith('to location {rack=%s} in crush map' % rack)
        assert said(cluster, 0, 'osd', 'crush', 'link', host, 'rack=' + rack).startswith('no need to move item id -')
        assert said(cluster, 39, 'osd', 'crush', 'rm', rack) == 'Error ENOTEMPTY: (39) Directory not empty'
        assert said(cluster, 0, 'osd', 'crush', 'unlink', host, rack).startswith('removed item id -')
        assert said(cluster, 0, 'osd', 'crush', 'unlink', host, rack).endswith('does not appear in that position')
        assert said(cluster, 0, 'osd', 'crush', 'reweight-all') == 'reweighted crush hierarchy'
    finally:
        cluster.ceph('osd', 'crush', 'rm', host)
        cluster.ceph('osd', 'crush', 'rm', rack)


def test_rules_over_every_domain(cluster, name):
    for domain in ('osd', 'host', 'rack', 'zone'):
        rule = unique('rule')
        cluster.ceph('osd', 'crush', 'rule', 'create-replicated', rule, 'default', domain)
        steps = cluster.ceph_json('osd', 'crush', 'rule', 'dump', rule)['steps']
        assert any(s.get('type') == domain for s in steps), steps
        cluster.ceph('osd', 'crush', 'rule', 'rm', rule)
    cluster.ceph('osd', 'pool', 'create', name, '8')


def test_what_is_safe(cluster, pool):
    r = cluster.ceph('osd', 'ok-to-stop', *cluster.ceph_json('osd', 'ls'), check=16)
    assert 'unsafe to stop osd(s) at this time' in r.err and json.loads(r.out)['ok_to_stop'] is False
    assert cluster.ceph_json('osd', 'ok-to-stop', '77')['ok_to_stop'] is True
    assert said(cluster, 16, 'osd', 'safe-to-destroy', 'all').endswith('pgs currently mapped to them.')
    assert 'are safe to destroy without reducing data durability' in said(cluster, 0, 'osd', 'safe-to-destroy', '77')
    assert said(cluster, 0, 'osd', 'purge', '77', '--yes-i-really-mean-it') == 'osd.77 does not exist'
    assert said(cluster, 16, 'osd', 'lost', '0', '--yes-i-really-mean-it') == 'Error EBUSY: osd.0 is not down'


def test_what_goes_on(cluster, pool):
    assert set(cluster.ceph_json('progress', 'json')) == {'completed', 'events'}
    assert isinstance(cluster.ceph_json('-s')['progress_events'], dict)
    assert cluster.ceph_json('osd', 'blocked-by')['pg_ready'] is True
    stats = cluster.ceph_json('osd', 'pool', 'stats', pool)[0]
    assert {'recovery', 'recovery_rate', 'client_io_rate'} <= set(stats)
    quorum = cluster.ceph_json('quorum_status')
    assert quorum['quorum_leader_name'] == quorum['quorum_names'][0]
    assert said(cluster, 22, 'mon', 'rm', quorum['quorum_names'][0]).startswith(
        'Error EINVAL: error: refusing removal of last monitor')


@pytest.mark.own
def test_doctor_and_status(own):
    skep = own().start()
    ours = skep.cli('doctor', '--data', skep.data).out
    assert ours == skep.ceph('doctor').out == 'Nothing is blocked, slow or at risk.\n'
    assert json.loads(skep.cli('doctor', '--data', skep.data, '-f', 'json').out) == {'findings': []}
    shown = skep.cli('status', '--data', skep.data)
    assert 'health: HEALTH_OK' in shown.out and 'quorum a' in shown.out, shown
    doc = json.loads(skep.cli('status', '--data', skep.data, '-f', 'json').out)
    assert doc['cluster']['health']['status'] == 'HEALTH_OK' and doc['running'] is True
    skep.ceph('osd', 'set', 'pause')
    finding = skep.ceph_json('doctor')['findings'][0]
    assert finding['level'] == 'blocked' and finding['next'] == 'ceph osd unpause'
    skep.ceph('osd', 'unpause')
    assert skep.ceph_json('doctor') == {'findings': []}


@pytest.mark.own
def test_an_osd_that_stays_down_is_marked_out(own):
    """The OSDs of a process come up again by themselves: this one is an id without a process."""
    skep = own(osds=4).start()
    skep.ceph('config', 'set', 'mon', 'mon_osd_down_out_interval', '3')
    uuid = '6f3a1a52-0000-4000-8000-000000000001'
    new = skep.ceph('osd', 'new', uuid).out.strip()
    assert new == '4'
    skep.ceph('osd', 'in', new)

    def state():
        return next(o for o in skep.ceph_json('osd', 'dump')['osds'] if o['osd'] == 4)
    assert (state()['up'], state()['in']) == (0, 1)
    skep.ceph('osd', 'set', 'noout')
    wait_until(lambda: 'stays in: noout is set' in skep.ceph('doctor').out, 60, what='the reason')
    skep.ceph('osd', 'unset', 'noout')
    wait_until(lambda: state()['in'] == 0, 30, what='osd.4 being marked out')
    assert 'autoout' in state()['state']
    log = skep.ceph('log', 'last', '20').out
    assert 'Marking osd.4 out (has been down for' in log, log
