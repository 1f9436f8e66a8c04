"""Failure domains and device classes: copies lie in as many racks, zones, hosts as there are copies, on disks of the class
that the rule takes, also after the tree, the rule, a class or a weight was changed; a client writes and verifies all the while.
"""
import pytest

from skeptest.cluster import unique
from skeptest.load import Load
from skeptest.run import wait_until

pytestmark = pytest.mark.own
# host: (zone, rack); one OSD on each.
PLACES = {'n0': ('z1', 'r1'), 'n1': ('z1', 'r1'), 'n2': ('z1', 'r2'), 'n3': ('z2', 'r3'), 'n4': ('z2', 'r3'),
          'n5': ('z2', 'r4'), 'n6': ('z3', 'r5'), 'n7': ('z3', 'r6')}


@pytest.fixture
def skep(own):
    """Eight OSDs, each on a host of its own in six racks in three zones; the first four are of class ssd."""
    skep = own(osds=8, options=['--osd-memory', '64M']).start()
    for host, (zone, rack) in PLACES.items():
        skep.ceph('osd', 'crush', 'set', 'osd.' + host[1:], '1.0', 'root=default', 'zone=' + zone, 'rack=' + rack, 'host=' + host)
    skep.ceph('osd', 'crush', 'rm-device-class', 'all')
    skep.ceph('osd', 'crush', 'set-device-class', 'ssd', '0', '1', '2', '3')
    skep.ceph('osd', 'crush', 'set-device-class', 'hdd', '4', '5', '6', '7')
    return skep


def make_rule(skep, domain, *cls):
    name = unique(domain)
    skep.ceph('osd', 'crush', 'rule', 'create-replicated', name, 'default', domain, *cls)
    return name


def inside(skep, kind):
    """OSD -> its bucket of that type."""
    nodes = skep.ask('osd', 'tree')['nodes']
    below = {n['id']: n.get('children', []) for n in nodes}

    def osds(item):
        return [item] if item >= 0 else [o for c in below[item] for o in osds(c)]
    return {o: n['name'] for n in nodes if n['type'] == kind for o in osds(n['id'])}


def spread(skep, pool, kind, osds=None):
    """True once every PG is whole, as many `kind`s as copies, and on these OSDs."""
    where, number = inside(skep, kind), skep.pool_number(pool)
    for pg in skep.pgs():
        if not pg['pgid'].startswith('%d.' % number):
            continue
        if pg['state'] != 'active+clean' or pg['up'] != pg['acting'] or len(pg['up']) != 3:
            return False
        assert len({where[o] for o in pg['up']}) == 3, (pg, where)
        if osds is not None and not set(pg['up']) <= set(osds):
            return False
    return True


def settle(skep, pool, kind, osds=None, seconds=120):
    wait_until(lambda: spread(skep, pool, kind, osds), seconds, 0.5, '3 copies over %ss on %s' % (kind, osds or 'all'))


def test_copies_follow_the_rule_and_the_tree(skep, tmp_path):
    pool = skep.make_copies(3, 'rbd', pg_num=32)
    with Load(skep, pool, tmp_path, seconds=14, note=lambda *a: print(*a)) as load:
        for domain in ('host', 'rack', 'zone'):
            skep.ceph('osd', 'pool', 'set', pool, 'crush_rule', make_rule(skep, domain))
            settle(skep, pool, domain)
        # A host moves to another zone, a rack with all in it too; one comes back.
        skep.ceph('osd', 'crush', 'move', 'n0', 'zone=z3', 'rack=r6')
        settle(skep, pool, 'zone')
        skep.ceph('osd', 'crush', 'move', 'r3', 'zone=z3')
        settle(skep, pool, 'zone')
        skep.ceph('osd', 'crush', 'move', 'n0', 'zone=z1', 'rack=r1')
        skep.ceph('osd', 'crush', 'move', 'r3', 'zone=z2')
        settle(skep, pool, 'zone')
    load.verify()


def test_copies_follow_device_classes_and_weights(skep, tmp_path):
    pool = skep.make_copies(3, 'rbd', pg_num=32)
    with Load(skep, pool, tmp_path, seconds=14, note=lambda *a: print(*a)) as load:
        skep.ceph('osd', 'pool', 'set', pool, 'crush_rule', make_rule(skep, 'osd', 'ssd'))
        settle(skep, pool, 'host', [0, 1, 2, 3])
        # One of them becomes another class: its copies go to those that stay.
        skep.ceph('osd', 'crush', 'rm-device-class', '3')
        skep.ceph('osd', 'crush', 'set-device-class', 'hdd', '3')
        settle(skep, pool, 'host', [0, 1, 2])
        skep.ceph('osd', 'crush', 'class', 'rename', 'ssd', 'fast')
        skep.ceph('osd', 'pool', 'set', pool, 'crush_rule', make_rule(skep, 'osd', 'hdd'))
        settle(skep, pool, 'host', [3, 4, 5, 6, 7])
        # Weights: 0 is nothing there, in CRUSH and by override.
        skep.ceph('osd', 'crush', 'reweight', 'osd.7', '0')
        settle(skep, pool, 'host', [3, 4, 5, 6])
        skep.ceph('osd', 'reweight', '6', '0')
        settle(skep, pool, 'host', [3, 4, 5])
        skep.ceph('osd', 'reweight', '6', '1')
        skep.ceph('osd', 'crush', 'reweight', 'osd.7', '1')
        settle(skep, pool, 'host', [3, 4, 5, 6, 7])
        # An OSD that shall not lead leads nothing.
        skep.ceph('osd', 'primary-affinity', '4', '0')
        settle(skep, pool, 'host', [3, 4, 5, 6, 7])
        leads = [pg['acting_primary'] for pg in skep.pgs()]
        assert 4 not in leads and len(set(leads)) >= 3, leads
    load.verify()


def test_a_group_is_moved_by_hand(skep, tmp_path):
    skep.ceph('osd', 'set-require-min-compat-client', 'luminous')
    pool = skep.make_copies(3, 'rbd', pg_num=8)
    pg = '%d.0' % skep.pool_number(pool)

    def up():
        return skep.ask('pg', 'map', pgid=pg)['up']
    before = up()
    spare = [o for o in range(8) if o not in before]
    with Load(skep, pool, tmp_path, seconds=6, note=lambda *a: print(*a)) as load:
        skep.ceph('osd', 'pg-upmap-items', pg, before[0], spare[0], before[2], spare[1])
        wait_until(lambda: sorted(up()) == sorted([spare[0], before[1], spare[1]]) and skep.whole(pool), 60, 0.5, 'the copies to move')
        skep.ceph('osd', 'rm-pg-upmap-items', pg)
        wait_until(lambda: up() == before and skep.whole(pool), 60, 0.5, 'the copies to be back')
    load.verify()
