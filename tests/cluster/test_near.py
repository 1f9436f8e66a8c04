"""A pool near one host: its first copies lie there and lead; another host's loss or its own is survived."""
import pytest

from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own


def test_the_first_copy_is_on_the_writers_host(hosts):
    group = hosts(4)
    group.start_etcd()
    group[0].up(create=True)
    for host in group.list[1:3]:
        host.up(join=True)
    a, b = group[0], group[1]
    pool = a.make_pool(pg_num=16)
    a.rados(pool, 'put', 'o', '-', stdin=b'x' * 100000)
    near = run(a.argv([find_binary(), 'pool', 'near', pool, 'h2', '--data', a.data]))
    assert 'keeps its first copies on h2' in near.out, near
    there = next(n['children'] for n in a.ceph_json('osd', 'tree')['nodes'] if n['name'] == 'h2')

    def sets():
        return [(pg['up'], pg['acting'], pg['state']) for pg in a.pgs()]

    def settled(size=3):
        return all(up == acting and len(up) == size and up[0] in there and state == 'active+clean' for up, acting, state in sets())
    wait_until(settled, 60, 0.5, 'the first copies to be on h2')
    where = a.ceph_json('osd', 'map', pool, 'o')
    assert where['acting_primary'] in there and not set(where['acting'][1:]) & set(there), where
    # A further host takes of the other copies.
    group[3].up(join=True)
    new = next(n['children'] for n in a.ceph_json('osd', 'tree')['nodes'] if n['name'] == 'h4')
    wait_until(lambda: settled() and any(set(up[1:]) & set(new) for up, _, _ in sets()), 90, 0.5, 'copies on h4')
    # Without h2 the others serve.
    b.kill()
    assert a.rados(pool, 'get', 'o', '-', timeout=60).out_bytes == b'x' * 100000
    a.rados(pool, 'put', 'o', '-', stdin=b'y' * 1000, timeout=60)
    b.start(60)
    wait_until(settled, 60, 0.5, 'h2 to lead again')
    assert a.rados(pool, 'get', 'o', '-').out_bytes == b'y' * 1000
