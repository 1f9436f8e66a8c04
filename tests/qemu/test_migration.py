"""A running virtual machine moves between two stock QEMUs on one image: the exclusive lock goes with it, and nothing that the guest was
told to be durable is lost."""
import pathlib

import pytest

from skeptest.images import MIB
from skeptest.run import wait_until
from skeptest.vm import BLOCK, Guest, Vm

SIZE = 256 * MIB


@pytest.fixture(scope='session')
def guest(workdir):
    folder = pathlib.Path(workdir) / 'guest'
    folder.mkdir()
    return Guest(folder)


def lock_holder(cluster, spec):
    """The client that has the exclusive lock."""
    locks = cluster.rbd_json('lock', 'ls', spec)
    return locks[0]['locker'] if locks else None


def test_a_running_machine_moves_there_and_back(cluster, images, guest, tmp_path):
    name = images.create(SIZE)
    spec = images.spec(name)
    drive = 'file=%s,format=raw,cache=none' % images.url(name)
    vms, moved = [Vm(guest, tmp_path, 'a', drive, env=cluster.env())], []
    try:
        vms[0].wait_blocks(10)
        for step in 'bc':
            here = vms[-1]
            holder, before = lock_holder(cluster, spec), here.blocks()
            assert holder
            there = Vm(guest, tmp_path, step, drive, incoming=True, env=cluster.env())
            vms.append(there)
            moved.append(here.migrate(there))
            there.wait_blocks(max(before, here.blocks()) + 10)
            now = wait_until(lambda: lock_holder(cluster, spec), 30, 0.2, 'a holder of the lock')
            assert now != holder, 'the guest writes there, and the lock is still here'
            here.quit()
            there.wait_blocks(there.blocks() + 10)
        durable = vms[-1].blocks()
    finally:
        for vm in vms:
            vm.quit()
    # Killed with the guest running: whoever has the image next has all that the guest knows of.
    data = images.read(name)
    for n in range(durable):
        assert data[n * BLOCK:n * BLOCK + 10] == b'%010d' % n, 'block %d of %d is not what the guest wrote' % (n, durable)
    assert durable > 40
    for m in moved:
        assert m['downtime'] < 10_000, m
    images.cluster.rbd('object-map', 'check', spec)
