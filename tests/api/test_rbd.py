"""python3-rbd: as OpenStack and ceph-csi use it: create, open, I/O at offsets, discard, snapshots, clones,
diff_iterate, exclusive lock handed over between clients."""
import os

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique

MIB = 1 << 20


@pytest.fixture
def call(cluster, rbd_pool):
    def run(body):
        def inner():
            handle = connect(cluster)
            try:
                with handle.open_ioctx(rbd_pool) as io:
                    return body(io)
            finally:
                handle.shutdown()
        return in_child(inner)
    return run


def test_life_of_an_image(call):
    name = unique('image')

    def body(io):
        import rbd
        lib = rbd.RBD()
        lib.create(io, name, 20 * MIB)
        assert name in lib.list(io)
        data = os.urandom(3 * MIB)
        with rbd.Image(io, name) as image:
            assert image.size() == 20 * MIB and image.stat()['num_objs'] == 5
            assert image.write(data, 7 * MIB + 17) == len(data)
            assert image.read(7 * MIB + 17, len(data)) == data
            image.flush()
            image.discard(8 * MIB, 65536)                     # librbd ignores less than this
            assert image.read(8 * MIB, 65536) == bytes(65536) and image.read(8 * MIB - 1, 1) == data[MIB - 18:MIB - 17]
            image.write_zeroes(9 * MIB, MIB)
            assert image.read(9 * MIB, MIB) == bytes(MIB)
            image.resize(24 * MIB)
            assert image.size() == 24 * MIB
        with pytest.raises(rbd.ImageExists):
            lib.create(io, name, MIB)
        lib.remove(io, name)
        with pytest.raises(rbd.ImageNotFound):
            rbd.Image(io, name)
    call(body)


def test_snapshots_and_clones(call):
    name = unique('image')

    def body(io):
        import rbd
        lib = rbd.RBD()
        lib.create(io, name, 8 * MIB)
        with rbd.Image(io, name) as image:
            image.write(b'A' * MIB, 0)
            image.create_snap('s')
            image.protect_snap('s')
            image.write(b'B' * MIB, 0)
            assert [s['name'] for s in image.list_snaps()] == ['s'] and image.is_protected_snap('s')
            with pytest.raises(rbd.ReadOnlyImage):
                rbd.Image(io, name, snapshot='s').write(b'x', 0)
        with rbd.Image(io, name, snapshot='s') as at:
            assert at.read(0, MIB) == b'A' * MIB
        lib.clone(io, name, 's', io, name + '-c')
        with rbd.Image(io, name + '-c') as child:
            assert child.read(0, MIB) == b'A' * MIB and child.parent_info()[1] == name
            child.write(b'C' * 512, 512)
            assert child.read(0, 2048) == b'A' * 512 + b'C' * 512 + b'A' * 1024
            child.flatten()
        with rbd.Image(io, name) as image:
            assert image.list_children2 and list(image.list_children()) == []
            image.unprotect_snap('s')
            image.rollback_to_snap('s')
            assert image.read(0, MIB) == b'A' * MIB
    call(body)


def test_diff_iterate(call):
    name = unique('image')

    def body(io):
        import rbd
        rbd.RBD().create(io, name, 32 * MIB)
        with rbd.Image(io, name) as image:
            image.write(b'x' * 4096, 5 * MIB)
            image.create_snap('s')
            image.write(b'y' * 8192, 21 * MIB)
            seen = []
            image.diff_iterate(0, 32 * MIB, 's', lambda offset, length, exists: seen.append((offset, length, exists)))
            # the object did not exist at the snapshot, so all of it up to its size is new
            assert seen == [(20 * MIB, MIB + 8192, True)], seen
    call(body)


def test_asynchronous_io(call):
    name = unique('image')

    def body(io):
        import rbd
        rbd.RBD().create(io, name, 32 * MIB)
        with rbd.Image(io, name) as image:
            done = []
            ops = [image.aio_write(b'%08d' % i * 512, i * 4096, lambda c: done.append(c)) for i in range(500)]
            for op in ops:
                op.wait_for_complete_and_cb()
            assert len(done) == 500
            for i in range(500):
                assert image.read(i * 4096, 4096) == b'%08d' % i * 512
    call(body)


def test_exclusive_lock_passes_from_one_client_to_another(call, cluster, rbd_pool):
    """Two clients write in turns: the lock is asked for by a notification and handed over."""
    name = unique('image')

    def body(io):
        import rbd
        rbd.RBD().create(io, name, 8 * MIB)
        other = connect(cluster)
        with other.open_ioctx(rbd_pool) as io2, rbd.Image(io, name) as a, rbd.Image(io2, name) as b:
            for i in range(3):
                a.write(b'a' * 512, i * 1024)
                assert a.is_exclusive_lock_owner()
                b.write(b'b' * 512, i * 1024 + 512)
                assert b.is_exclusive_lock_owner() and not a.is_exclusive_lock_owner()
            a.flush()
            b.flush()
            assert a.read(0, 3072) == (b'a' * 512 + b'b' * 512) * 3
        other.shutdown()
    call(body)


def test_mutation_through_the_lock_owner(call, cluster, rbd_pool):
    """A snapshot asked for by a client that does not own the lock is made by the one that does."""
    name = unique('image')

    def body(io):
        import rbd
        rbd.RBD().create(io, name, 8 * MIB)
        other = connect(cluster)
        with other.open_ioctx(rbd_pool) as io2, rbd.Image(io, name) as a:
            a.write(b'x' * 512, 0)
            with rbd.Image(io2, name) as b:
                b.create_snap('by-b')
                b.resize(16 * MIB)
            assert [s['name'] for s in a.list_snaps()] == ['by-b'] and a.size() == 16 * MIB
        other.shutdown()
    call(body)
