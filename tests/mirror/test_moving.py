"""docs/operating/moving-in.md: a running virtual machine moves from one cluster to the other, and back, with its image mirrored. The guest is
paused while the roles change, its QEMU is followed by one on the other cluster, and all that it was told to be durable is there."""
import pathlib

import pytest

from skeptest import peer
from skeptest.cluster import unique
from skeptest.mirror import Pair
from skeptest.run import wait_until
from skeptest.vm import BLOCK, Guest, Vm

pytestmark = [pytest.mark.own, pytest.mark.long]


@pytest.fixture(scope='session')
def guest(workdir):
    folder = pathlib.Path(workdir) / 'moving-guest'
    folder.mkdir()
    return Guest(folder)


@pytest.fixture(params=['ceph', 'skep'])
def pair(request, own, workdir):
    if request.param == 'ceph':
        peer.needed()
    sites = [peer.RealCeph(workdir / unique('ceph')) if request.param == 'ceph' else own(osds=1), own(osds=1)]
    pair = None
    try:
        for site in sites:
            site.start()
        pair = Pair(*sites, workdir)
        yield pair
    finally:
        if pair:
            pair.end()
        for site in sites:
            site.kill()


def drive(site, image):
    return 'file=rbd:%s:id=admin:conf=%s,format=raw,cache=none' % (site.spec(image), site.cluster.conf)


def switch(here, there, source, target, image):
    """The running guest goes over: paused, roles changed, resumed there. QEMU's account of it."""
    here.ask('migrate-set-capabilities', capabilities=[{'capability': 'pause-before-switchover', 'state': True}])
    here.ask('migrate', uri='unix:%s' % there.way_in)
    status = lambda: here.ask('query-migrate')['status']
    wait_until(lambda: status() == 'pre-switchover', 60, 0.05, lambda: 'the pause: %s' % status())
    source.mirror('demote', image)
    target.take_over(image)
    here.ask('migrate-continue', state='pre-switchover')
    wait_until(lambda: status() == 'completed', 60, 0.05, lambda: 'the end: %s\n%s' % (status(), there.log.read_text()))
    wait_until(lambda: there.ask('query-status')['running'], 30, 0.01, 'the guest to run there')
    return here.ask('query-migrate')


@pytest.mark.parametrize('mode', ['snapshot', 'journal'])
def test_a_running_machine_moves_in_and_out(pair, mode, guest, tmp_path, record_property):
    a, b = pair.connect().sites
    a.rbd('create', '--size', '256M', a.spec('vm'))
    vms = [Vm(guest, tmp_path, 'here', drive(a, 'vm'))]
    try:
        vms[0].wait_blocks(10)
        # With the guest running.
        if mode == 'journal':
            a.rbd('feature', 'enable', a.spec('vm'), 'journaling')
        a.mirror('enable', 'vm', mode)
        b.wait_state('vm', 'up+replaying')
        for step, (source, target) in enumerate(((a, b), (b, a))):
            here, before = vms[-1], vms[-1].blocks()
            vms[-1].wait_blocks(before + 10)
            there = Vm(guest, tmp_path, 'step%d' % step, drive(target, 'vm'), incoming=True)
            vms.append(there)
            found = switch(here, there, source, target, 'vm')
            record_property('downtime_ms of %s, step %d' % (mode, step), found['downtime'])
            record_property('refusals at %s' % target.name, sorted(target.refused))
            there.wait_blocks(max(before, here.blocks()) + 10)
            here.quit()
            source.wait_state('vm', 'up+replaying')
            assert target.is_primary('vm') and not source.is_primary('vm')
        durable = vms[-1].blocks()
    finally:
        for vm in vms:
            vm.quit()
    # The machine was killed: what is only in the image's journal yet is brought in by whoever has the lock next.
    a.rbd('snap', 'create', a.spec('vm') + '@end')
    data = a.cluster.run('rbd', 'export', '--no-progress', a.spec('vm'), '-', timeout=180).out_bytes
    for n in range(durable):
        assert data[n * BLOCK:n * BLOCK + 10] == b'%010d' % n, 'block %d of %d is not what the guest wrote' % (n, durable)
    assert durable > 40
    pair.wait_copied(a, 'vm', mode)
    pair.same('vm')
