"""A full store: ENOSPC to the client, reads and deletes go on, and after deleting, writes too; also after
a restart while full. Once because the OSD reached its own size (--osd-size), once because the disk has no
more: a small ext4 in a file, mounted for the test (root rights needed).
"""
import os
import shutil
import subprocess

import pytest

from skeptest.run import run
from skeptest.skep import Skep

pytestmark = pytest.mark.own

DISK_MIB = 700


@pytest.fixture
def small_disk(workdir):
    """A mounted file system of a few hundred MiB; unmounted with the test."""
    if os.geteuid() != 0:
        pytest.skip('mounting needs root')
    image, mount = workdir / 'small.img', workdir / 'small'
    run(['truncate', '-s', '%dM' % DISK_MIB, image])
    run(['/sbin/mke2fs', '-q', '-F', '-t', 'ext4', '-m', '0', image])
    mount.mkdir()
    r = run(['mount', '-o', 'loop', image, mount], check=None)
    if r.returncode:
        pytest.skip('no loop device here: ' + r.err.strip())
    yield mount
    run(['umount', '-l', mount], check=None)
    shutil.rmtree(mount, ignore_errors=True)
    image.unlink()


def fill_and_empty(skep, most_mib):
    """Writes until refused; then everything that must still work."""
    pool = skep.make_pool(pg_num=4)
    skep.rados(pool, 'put', 'precious', '-', stdin=b'precious' * 1000)
    block, full, n = os.urandom(4 << 20), None, 0
    while full is None:
        assert n * 4 <= most_mib, 'never refused, after %d MiB' % (n * 4)
        r = skep.rados(pool, 'put', 'fill-%d' % n, '-', stdin=block, check=None, timeout=60)
        if r.returncode:
            full = r
        else:
            n += 1
    assert n > 0 and '(28) No space left on device' in full.err, full
    assert skep.alive, skep.log_tail()
    for _ in range(2):
        assert skep.rados(pool, 'get', 'precious', '-').out == 'precious' * 1000
        assert skep.rados(pool, 'get', 'fill-%d' % (n - 1), '-').out_bytes == block
        skep.restart()                                     # being full does not keep it from starting
    for i in range(n // 2):
        skep.rados(pool, 'rm', 'fill-%d' % i)
    skep.rados(pool, 'put', 'after', '-', stdin=block, timeout=60)
    assert skep.rados(pool, 'get', 'after', '-').out_bytes == block
    assert skep.rados(pool, 'get', 'fill-%d' % (n - 1), '-').out_bytes == block
    assert skep.rados(pool, 'get', 'precious', '-').out == 'precious' * 1000


def test_osd_of_limited_size(own):
    skep = own(osds=1, options=['--osd-size', '256M']).start()
    fill_and_empty(skep, 300)


def test_full_disk(small_disk):
    skep = Skep(small_disk / 'data', osds=1)
    skep.log = small_disk.with_name('small.log')               # the log is not on the disk that fills
    try:
        fill_and_empty(skep.start(), DISK_MIB)
    finally:
        skep.kill()


def test_disk_that_fills_from_outside(small_disk):
    """Another program takes the space: the same answers, and no damage."""
    skep = Skep(small_disk / 'data', osds=1)
    skep.log = small_disk.with_name('small2.log')
    try:
        skep.start()
        pool = skep.make_pool(pg_num=4)
        for i in range(8):
            skep.rados(pool, 'put', 'o%d' % i, '-', stdin=b'%d' % i * 100000)
        subprocess.run(['dd', 'if=/dev/zero', 'of=%s' % (small_disk / 'other'), 'bs=1M'], stderr=subprocess.DEVNULL)
        block = os.urandom(8 << 20)
        results = [skep.rados(pool, 'put', 'more-%d' % i, '-', stdin=block, check=None, timeout=60) for i in range(40)]
        refused = [r for r in results if r.returncode]
        assert all('No space left' in r.err for r in refused), refused[0]
        for i in range(8):
            assert skep.rados(pool, 'get', 'o%d' % i, '-').out_bytes == b'%d' % i * 100000
        os.unlink(small_disk / 'other')
        skep.restart()
        for i, r in enumerate(results):
            if r.returncode == 0:
                assert skep.rados(pool, 'get', 'more-%d' % i, '-').out_bytes == block
        skep.rados(pool, 'put', 'again', '-', stdin=b'x', timeout=60)
    finally:
        skep.kill()
