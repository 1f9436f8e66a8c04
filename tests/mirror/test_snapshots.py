"""Snapshot-based mirroring between two Skeps by stock rbd-mirror daemons: the operator's round, from the first copy over
failover and failback to a disaster and the resync after it; and what the servers show of the daemons."""
import pytest

from skeptest.mirror import Pair
from skeptest.run import wait_until

pytestmark = pytest.mark.own
MODE = 'snapshot'


@pytest.fixture
def pair(own, workdir):
    sites = [own(osds=1) for _ in range(2)]
    for skep in sites:
        skep.launch()
    for skep in sites:
        skep.wait_ready()
    pair = Pair(*sites, workdir)
    yield pair
    pair.end()


def daemons(cluster):
    """Names of the rbd-mirror daemons that the cluster knows."""
    service = cluster.ask('service', 'dump', to='mgr')['services'].get('rbd-mirror', {'daemons': {}})
    return [name for name in service['daemons'] if name != 'summary']


def refuses_writes(site, image):
    """Not by `rbd bench`: that one ends without closing the image, and whoever notifies of something waits 30 s for its watch."""
    for what in (['resize', '--size', '128M', site.spec(image)], ['snap', 'create', site.spec(image) + '@s']):
        site.cluster.rbd_fails(what, 30, 'Read-only file system')


def test_copy_and_failover(pair):
    """The first copy, what is shown of it, and the roles changed in good order."""
    a, b = pair.connect().sites
    for site, other in ((a, b), (b, a)):
        info = site.rbd_json('mirror', 'pool', 'info', pair.pool, '--all')
        assert info['mode'] == 'image' and info['site_name'] == site.name
        [peer] = info['peers']
        assert peer['site_name'] == other.name and peer['direction'] == 'rx-tx' and peer['key']
    a.create('i', MODE)
    pair.wait_copied(a, 'i', MODE)
    first = pair.same('i')

    # Who copies is seen at the servers, and so is how it goes.
    for site in pair.sites:
        [name] = wait_until(lambda: daemons(site.cluster), 30, 0.5, 'the daemon to be registered')
        facts = site.cluster.ask('service', 'dump', to='mgr')['services']['rbd-mirror']['daemons'][name]['metadata']
        assert facts['id'] == 'rbd-mirror' and facts['ceph_version_short']
        plain = site.cluster.ceph('-s').out
        assert '    rbd-mirror: 1 daemon active (1 hosts)\n' in plain and '    mon:        1 daemons' in plain
        assert list(site.cluster.ceph_json('versions')['rbd-mirror'].values()) == [1]
    assert b.status('i')['daemon_service']['daemon_id'] == 'rbd-mirror'
    assert a.wait_state('i', 'up+stopped')['description'] == 'local image is primary'
    # The copy is no one's to write.
    refuses_writes(b, 'i')

    # Failover in good order, and copies the other way.
    a.write('i')
    a.mirror('demote', 'i')
    assert not a.is_primary('i')
    b.wait_demoted('i')
    second = pair.same('i')
    assert second != first
    b.take_over('i')
    b.write('i')
    pair.wait_copied(b, 'i', MODE)
    assert pair.same('i') not in (first, second)
    refuses_writes(a, 'i')


@pytest.mark.long
def test_disaster(pair):
    """The primary's site does not answer; the other one takes over by force with what it has, and the old primary is brought to
    that by a resync. Then out of mirroring."""
    a, b = pair.connect().sites
    b.create('i', MODE)
    pair.wait_copied(b, 'i', MODE)
    a.wait_state('i', 'up+replaying', text='"replay_state":"idle"')
    lag = a.lag('i')
    assert lag['local_snapshot_timestamp'] == lag['remote_snapshot_timestamp']
    healthy = lambda: a.rbd_json('mirror', 'pool', 'status', pair.pool)['summary']['health'] == 'OK'
    wait_until(healthy, 60, 0.5, 'the pool to be healthy')
    before = a.sum('i')
    b.cluster.kill()
    a.mirror('promote', 'i', '--force')
    assert a.sum('i') == before
    a.write('i')
    b.cluster.start()
    assert b.is_primary('i') and a.is_primary('i')
    b.mirror('demote', 'i')
    b.wait_state('i', 'up+error', text='split-brain')
    b.mirror('resync', 'i')
    pair.wait_copied(a, 'i', MODE)
    b.wait_state('i', 'up+replaying')
    pair.same('i')

    # A daemon that ends says so.
    b.daemon.stop()
    wait_until(lambda: not daemons(b.cluster), 30, 0.5, 'the daemon to be gone')
    assert 'rbd-mirror' not in b.cluster.ceph('-s').out
    # Out of mirroring again: the copy goes with it.
    b.daemon.start()
    a.mirror('disable', 'i')
    gone = lambda: 'i' not in b.rbd_json('ls', pair.pool)
    wait_until(gone, 120, 0.5, lambda: 'the copy to be gone\n' + b.daemon.log_tail())
    assert a.rbd_json('mirror', 'pool', 'status', pair.pool)['summary']['states'] == {}
