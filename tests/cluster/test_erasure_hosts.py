"""An erasure-coded pool over hosts, of which one is killed under writes and comes back."""
import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']


@pytest.mark.parametrize('k, m', [(2, 1), (2, 2)])
def test_a_host_is_killed_and_comes_back(hosts, tmp_path, k, m):
    group = hosts(k + m)
    group.start_etcd()
    group[0].up(create=True, options=OPTIONS)
    for host in group.list[1:]:
        host.up(join=True, options=OPTIONS)
    a, pool = group[0], unique('coded')
    a.ceph('osd', 'erasure-code-profile', 'set', 'p', 'k=%d' % k, 'm=%d' % m)
    a.ceph('osd', 'pool', 'create', pool, 8, 8, 'erasure', 'p')
    a.ceph('osd', 'pool', 'set', pool, 'allow_ec_overwrites', 'true')
    a.ceph('osd', 'pool', 'application', 'enable', pool, 'rados')
    wait_until(lambda: a.whole(pool), 60, 0.3, 'a whole pool')
    proc, notes = start_writer(a, pool, tmp_path)
    wait_until(lambda: notes.stat().st_size > 2000, 60, 0.2, 'the first writes')
    for host in (group[1], group[2]):
        host.kill()
        seen = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > seen + 1000, 90, 0.2, 'writes without %s' % host.name)
        assert check_notes(a, pool, notes) > 0
        host.up(options=OPTIONS)
        wait_until(lambda: a.whole(pool), 120, 0.5, 'a whole pool with %s again' % host.name)
    proc.kill()
    proc.wait(60)
    assert check_notes(a, pool, notes) > 0
