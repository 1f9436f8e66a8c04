"""Taking machines and OSDs away: data moves off while a client writes, then they are gone and stay gone."""
import pytest

from skeptest import objects
from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own


def up(hosts, n, **kw):
    group = hosts(n)
    group.start_etcd()
    group[0].up(create=True, **kw)
    for host in group.list[1:]:
        host.up(join=True, **kw)
    return group


def remove(host, *args, **kw):
    """`skep host rm` or `skep osd rm`, asked on this host."""
    return run(host.argv([find_binary(), *args, '--data', host.data]), timeout=kw.pop('timeout', 30), **kw)


def whole(host, size):
    return all(pg['state'] == 'active+clean' and len(pg['acting']) == size for pg in host.pgs())


def test_a_host_is_removed(hosts):
    group = up(hosts, 4)
    a, d = group[0], group[3]
    pool = a.make_pool(pg_num=16)
    assert a.ceph_json('osd', 'pool', 'get', pool, 'size')['size'] == 3
    names = ['o%d' % i for i in range(60)]
    contents = {name: name.encode() * 5000 for name in names}
    objects.put(a, pool, contents)
    wait_until(lambda: whole(a, 3), 60, 0.5, 'a whole pool')
    gone = a.ceph_json('osd', 'tree')['nodes']
    gone = next(sorted(n['children']) for n in gone if n['name'] == 'h4')
    said = remove(a, 'host', 'rm', 'h4', check='fails')
    assert 'would move' in said.out and 'skep host rm h4 --yes' in said.err, said
    assert a.ceph_json('osd', 'tree')['nodes'] and all(o['in'] for o in a.ceph_json('osd', 'dump')['osds'])
    assert 'is this machine' in remove(d, 'host', 'rm', 'h4', '--yes', check='fails').err
    said = remove(a, 'host', 'rm', 'h4', '--yes', timeout=120)
    assert 'host h4 is removed' in said.out, said
    # Its process has ended by itself, and does not come back.
    assert d.proc.wait(60) == 0, d.log_tail()
    assert 'were removed from the cluster' in d.refused()
    assert not set(gone) & set(a.ceph_json('osd', 'ls'))
    assert 'h4' not in a.ceph('osd', 'tree').out and 'h4' not in [m['name'] for m in a.ceph_json('mon', 'dump')['mons']]
    assert all('osd.%d' % o not in a.ceph('auth', 'ls').out for o in gone)
    wait_until(lambda: whole(a, 3), 60, 0.5, 'a whole pool')
    assert objects.get(a, pool, names) == contents
    # Run again it has nothing to do; and what would lose copies is refused before anything moves.
    assert 'not in the cluster' in remove(a, 'host', 'rm', 'h4', '--yes').out
    why = remove(a, 'host', 'rm', 'h3', '--yes', check='fails').err
    assert 'keeps 3 copies apart' in why and 'size 2' in why, why
    assert all(o['in'] for o in a.ceph_json('osd', 'dump')['osds'])


def test_an_osd_of_several_is_removed_and_the_host_stays(own):
    skep = own(osds=4).start()
    pool = skep.make_pool(pg_num=16)
    contents = {'o%d' % i: b'%d' % i * 3000 for i in range(40)}
    objects.put(skep, pool, contents)
    said = skep.cli('osd', 'rm', '1', '--yes', '--data', skep.data, timeout=120)
    assert 'osd.1 is removed' in said.out, said
    assert skep.ceph_json('osd', 'ls') == [0, 2, 3] and skep.alive
    skep.stop()
    skep.start()                                   # with --osds 4, as it was made
    assert skep.ceph_json('osd', 'ls') == [0, 2, 3]
    assert objects.get(skep, pool, contents) == contents
    why = skep.cli('osd', 'rm', '2', '--yes', '--data', skep.data, check='fails').err
    assert 'size 2' in why, why
