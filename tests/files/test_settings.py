"""Layouts, quotas and sums, as attributes of directories and files."""
import errno
import os

import pytest

from skeptest.run import wait_until


def fails(number, call, *args, **kw):
    with pytest.raises(OSError) as e:
        call(*args, **kw)
    assert e.value.errno == number, e.value


def test_layouts_are_inherited_and_checked(dirs, fs):
    a, b = dirs
    os.setxattr(a, 'ceph.dir.layout', b'stripe_unit=65536 stripe_count=2 object_size=131072')
    (b / 'f').write_bytes(os.urandom(300_000))
    pool = 'cephfs.%s.data' % fs
    want = b'stripe_unit=65536 stripe_count=2 object_size=131072 pool=' + pool.encode()
    assert os.getxattr(b / 'f', 'ceph.file.layout') == want
    fails(errno.ENOTEMPTY, os.setxattr, a / 'f', 'ceph.file.layout.stripe_count', b'1')
    fails(errno.EINVAL, os.setxattr, a, 'ceph.dir.layout.stripe_unit', b'1000')
    os.removexattr(a, 'ceph.dir.layout')
    fails(errno.ENODATA, os.getxattr, a, 'ceph.dir.layout')
    assert (a / 'f').read_bytes() == (b / 'f').read_bytes()


def test_quotas_are_kept(dirs):
    a, b = dirs
    (a / 'q').mkdir()
    os.setxattr(a / 'q', 'ceph.quota.max_files', b'4')
    assert os.getxattr(b / 'q', 'ceph.quota.max_files') == b'4'

    def fill():
        for i in range(20):
            (b / 'q' / str(i)).write_text('x')
    fails(errno.EDQUOT, fill)
    assert len(os.listdir(a / 'q')) <= 4
    fails(errno.EINVAL, os.setxattr, a / 'q', 'ceph.quota.max_files', b'-1')


def test_sums_go_upward(dirs):
    a, b = dirs
    (a / 'x/y').mkdir(parents=True)
    (a / 'x/y/f').write_bytes(bytes(12345))
    wait_until(lambda: os.getxattr(b, 'ceph.dir.rbytes') == b'12345', 60, 0.1, 'sums')
    assert os.getxattr(b, 'ceph.dir.rfiles') == b'1'
    (b / 'x/y/f').unlink()
    wait_until(lambda: os.getxattr(a, 'ceph.dir.rbytes') == b'0', 60, 0.1, 'sums')
