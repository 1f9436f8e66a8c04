"""Reads from copies, as stock clients ask for them: any copy (balance), the nearest one (localize).

The OSDs count what they answer for PGs that another one leads (`replica_read_served` of their `perf dump`).
"""
import random

import pytest

from skeptest.api import connect, in_child
from skeptest.images import MIB
from skeptest.run import wait_until

pytestmark = pytest.mark.own


def wait_whole(skep, pool):
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')


def make_pool(skep, app='rados'):
    pool = skep.make_pool(app, pg_num=8)
    skep.ceph('osd', 'pool', 'set', pool, 'size', '3', '--yes-i-really-mean-it')
    skep.ceph('osd', 'pool', 'set', pool, 'min_size', '2')
    wait_whole(skep, pool)
    return pool


def served(skep, osds=3):
    """Reads that each OSD answered for another one's PGs."""
    dumps = [skep.ceph_json('tell', 'osd.%d' % o, 'perf', 'dump')['osd'] for o in range(osds)]
    return [d['replica_read_served'] for d in dumps]


def make_image(skep, tmp_path):
    pool = make_pool(skep, app='rbd')
    content = random.Random(7).randbytes(24 * MIB)
    (tmp_path / 'f').write_bytes(content)
    skep.rbd('import', '--object-size', '1M', tmp_path / 'f', '%s/i' % pool)
    return '%s/i' % pool, content


def test_nobody_but_primaries_reads_unless_asked(own, tmp_path):
    skep = own().start()
    image, content = make_image(skep, tmp_path)
    assert skep.rbd('export', image, '-').out_bytes == content
    assert served(skep) == [0, 0, 0]


def test_rbd_reads_from_any_copy(own, tmp_path):
    skep = own().start()
    image, content = make_image(skep, tmp_path)
    balanced = skep.with_args('--rbd-read-from-replica-policy=balance')
    for _ in range(4):
        assert balanced.rbd('export', image, '-').out_bytes == content
    after = served(skep)
    # Some 96 reads at random from three copies: two of three of them are not the primary's.
    assert min(after) > 0, after
    balanced.rbd('bench', image, '--io-type', 'readwrite', '--io-size', '4K', '--io-total', '4M', '--io-pattern', 'rand',
                 '--rw-mix-read', '70')
    assert sum(served(skep)) > sum(after)


def test_rbd_reads_from_the_nearest_copy(own, tmp_path):
    skep = own().start()
    image, content = make_image(skep, tmp_path)
    for osd in range(3):
        skep.ceph('osd', 'crush', 'add-bucket', 'h%d' % osd, 'host')
        skep.ceph('osd', 'crush', 'move', 'h%d' % osd, 'root=default')
        skep.ceph('osd', 'crush', 'set', 'osd.%d' % osd, '1.0', 'root=default', 'host=h%d' % osd)
    wait_whole(skep, image.split('/')[0])
    before = served(skep)
    near = skep.with_args('--rbd-read-from-replica-policy=localize --crush-location=host=h1')
    assert near.rbd('export', image, '-').out_bytes == content
    after = served(skep)
    assert after[1] > before[1], (before, after)
    assert (after[0], after[2]) == (before[0], before[2]), 'others are farther away'


def test_a_read_of_any_copy_shows_the_last_write(own):
    """Each value is read back at once, from whatever copy librados chooses."""
    skep = own().start()
    pool = make_pool(skep)

    def rounds():
        import rados
        io = connect(skep).open_ioctx(pool)
        flags = (rados.LIBRADOS_OPERATION_BALANCE_READS, rados.LIBRADOS_OPERATION_LOCALIZE_READS)
        for n in range(600):
            oid, value = 'o%d' % (n % 5), b'%d' % n
            with rados.WriteOpCtx() as op:
                io.set_omap(op, ('k',), (value,))
                io.operate_write_op(op, oid)
            with rados.ReadOpCtx() as op:
                rows, _ = io.get_omap_vals_by_keys(op, ('k',))
                io.operate_read_op(op, oid, flag=flags[n % 2])
                assert dict(rows) == {'k': value}, n
        with rados.ReadOpCtx() as op:
            rows, _ = io.get_omap_vals_by_keys(op, ('k',))
            with pytest.raises(rados.ObjectNotFound):
                io.operate_read_op(op, 'nothing', flag=flags[0])
    in_child(rounds, timeout=120)
    assert sum(served(skep)) > 0


def test_watchers_are_told_by_the_primary_whoever_is_asked(own):
    """A header is opened with the policy on: its watch, its locks and its methods go their usual way."""
    skep = own().start()
    pool = make_pool(skep, app='rbd')
    balanced = skep.with_args('--rbd-read-from-replica-policy=balance')
    balanced.rbd('create', '%s/i' % pool, '--size', '8M')
    balanced.rbd('bench', '%s/i' % pool, '--io-type', 'write', '--io-size', '64K', '--io-total', '2M')
    balanced.rbd('snap', 'create', '%s/i@s' % pool)
    balanced.rbd('resize', '%s/i' % pool, '--size', '16M')
    assert balanced.rbd_json('info', '%s/i' % pool)['size'] == 16 * MIB
    assert [s['name'] for s in balanced.rbd_json('snap', 'ls', '%s/i' % pool)] == ['s']
    assert balanced.rbd_json('status', '%s/i' % pool)['watchers'] == []
