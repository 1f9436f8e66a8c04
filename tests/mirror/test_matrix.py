"""Mirroring between all pairs of Skep and a real Ceph, journal-based and snapshot-based: what an operator does with it, and what
must not matter: servers and daemons that are killed, a peer that is down for a while."""
import random
import threading
import time

import pytest

from skeptest import peer
from skeptest.cluster import unique
from skeptest.mirror import Pair
from skeptest.run import wait_until

pytestmark = [pytest.mark.own, pytest.mark.long]
FIO_S = 45
ROUNDS = 8


def _site(kind, own, workdir):
    if kind == 'skep':
        return own(osds=1)
    peer.needed()
    return peer.RealCeph(workdir / unique('ceph'))


@pytest.fixture(params=['skep-skep', 'ceph-skep', 'skep-ceph'])
def pair(request, own, workdir):
    sites = [_site(kind, own, workdir) for kind in request.param.split('-')]
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


@pytest.fixture(params=['journal', 'snapshot'])
def mode(request):
    return request.param


def test_round(pair, mode):
    """First copy, changes, failover and failback, by force and resync; several images, one of them a clone, one resized."""
    a, b = pair.connect().sites
    for image in ('i', 'grown'):
        a.create(image, mode)
    for image in ('i', 'grown'):
        pair.wait_copied(a, image, mode)
        pair.same(image)
    a.rbd('resize', '--size', '96M', a.spec('grown'))
    a.write('grown')
    a.rbd('snap', 'create', a.spec('grown') + '@s')
    a.write('grown')
    pair.wait_copied(a, 'grown', mode)
    pair.same('grown')
    pair.same('grown@s')
    # Over in good order, and back.
    for source, target in ((a, b), (b, a)):
        source.write('i')
        source.mirror('demote', 'i')
        target.wait_state('i', 'up+unknown', text='remote image')
        target.take_over('i')
        assert target.is_primary('i') and not source.is_primary('i')
        target.write('i')
        pair.wait_copied(target, 'i', mode)
        pair.same('i')
    # By force, with both alive: two histories, and one of them is given up.
    pair.b.daemon.stop()
    a.write('i')
    b.mirror('promote', 'i', '--force')
    b.write('i')
    assert a.sum('i') != b.sum('i')
    pair.b.daemon.start()
    a.mirror('demote', 'i')
    a.wait_state('i', 'up+error', text='split-brain')
    a.mirror('resync', 'i')
    a.wait_state('i', 'up+replaying')
    pair.wait_copied(b, 'i', mode)
    pair.same('i')


def test_peer_that_is_down(pair, mode):
    """The copying site is away while much is written, and catches up; then the primary's is, and nothing is lost by it."""
    a, b = pair.connect().sites
    a.create('i', mode)
    pair.wait_copied(a, 'i', mode)
    b.cluster.kill()
    for _ in range(3):
        a.write('i', total='8M')
    b.cluster.restart()
    pair.wait_copied(a, 'i', mode, timeout=300)
    pair.same('i')
    a.cluster.kill()
    time.sleep(5)
    a.cluster.restart()
    a.write('i')
    pair.wait_copied(a, 'i', mode, timeout=300)
    pair.same('i')


def test_kills_under_load(pair, mode):
    """fio writes and verifies at the primary while either site's servers and daemons are killed; the copy is the same, and what
    it took over after a demotion verifies."""
    a, b = pair.connect().sites
    a.create('i', mode, size='96M', data=False)
    pair.wait_copied(a, 'i', mode)
    job = ['--name=j', '--ioengine=rbd', '--clientname=admin', '--pool=' + pair.pool, '--rbdname=i', '--rw=randwrite', '--bs=16k',
           '--iodepth=8', '--size=96M', '--verify=crc32c', '--verify_fatal=1', '--randseed=7', '--verify_state_save=0']
    rng = random.Random(20 + len(mode))
    written = []

    def load():
        end = time.monotonic() + FIO_S
        while time.monotonic() < end or not written:
            # Each pass writes and then reads back every block.
            written.append(a.cluster.run('fio', *job, timeout=600, check=None))
            if written[-1].returncode:
                return
    thread = threading.Thread(target=load)
    thread.start()
    marks = 0
    while thread.is_alive() and marks < ROUNDS:
        time.sleep(rng.uniform(1, 4))
        if mode == 'snapshot':
            a.mirror('snapshot', 'i', check=None)
        victim = rng.choice([a, b, a.daemon, b.daemon])
        if victim in pair.sites:
            victim.cluster.restart()
        else:
            victim.kill()
            victim.start()
        marks += 1
    thread.join()
    assert all(r.returncode == 0 for r in written), written[-1]
    assert marks >= ROUNDS // 2, 'only %d kills' % marks
    for site in pair.sites:
        wait_until(lambda: site.cluster.ceph('fsid', check=None).returncode == 0, 90, 0.5, 'the site to serve')
        if not site.daemon.alive:
            site.daemon.start()
    pair.wait_copied(a, 'i', mode, timeout=300)
    pair.same('i')
    a.mirror('demote', 'i')
    b.wait_state('i', 'up+unknown', text='remote image')
    b.take_over('i')
    b.cluster.run('fio', *job, '--verify_only=1', timeout=300)
