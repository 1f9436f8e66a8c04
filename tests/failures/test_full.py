"""A full store: ENOSPC to the client, reads and deletes go on, and after deleting, writes too; also after
a restart while full. Once because the OSD reached its own size (--osd-size), once because the disk has no
more: a small ext4 in a file, mounted for the test (root rights needed). Taken by another program to the last byte, it has no
room for the cluster's state either: changes of that wait, and everything else goes on.
"""
import os
import shutil
import subprocess

import pytest

from skeptest.run import end_group, run, wait_until
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


@pytest.fixture
def on_small_disk(small_disk):
    """A server on it, whose log is elsewhere."""
    skep = Skep(small_disk / 'data', osds=1)
    skep.log = small_disk.with_name('small2.log')
    try:
        yield skep.start()
    finally:
        skep.kill()


def fill_from_outside(disk):
    """To the last byte; what is asked for in pieces of a megabyte leaves almost one."""
    for size in ('1M', '4k'):
        with open(disk / ('other-' + size), 'ab') as f:
            subprocess.run(['dd', 'if=/dev/zero', 'bs=' + size], stdout=f, stderr=subprocess.DEVNULL)


def empty(disk):
    for other in disk.glob('other-*'):
        other.unlink()


def test_disk_that_fills_from_outside(small_disk, on_small_disk):
    """Another program takes the space: the same answers, and no damage."""
    skep = on_small_disk
    pool = skep.make_pool(pg_num=4)
    for i in range(8):
        skep.rados(pool, 'put', 'o%d' % i, '-', stdin=b'%d' % i * 100000)
    fill_from_outside(small_disk)
    block = os.urandom(8 << 20)
    results = [skep.rados(pool, 'put', 'more-%d' % i, '-', stdin=block, check=None, timeout=60) for i in range(40)]
    refused = [r for r in results if r.returncode]
    assert all('No space left' in r.err for r in refused), refused[0]
    assert refused and skep.alive, skep.log_tail()
    for i in range(8):
        assert skep.rados(pool, 'get', 'o%d' % i, '-').out_bytes == b'%d' % i * 100000
    empty(small_disk)
    skep.restart()
    for i, r in enumerate(results):
        if r.returncode == 0:
            assert skep.rados(pool, 'get', 'more-%d' % i, '-').out_bytes == block
    skep.rados(pool, 'put', 'again', '-', stdin=b'x', timeout=60)


def test_no_room_for_the_cluster_state(small_disk, on_small_disk):
    """Changes of it wait until there is room, and say so; nothing that was acknowledged is lost, nobody is stopped."""
    skep = on_small_disk
    pool = skep.make_pool(pg_num=4)
    skep.rados(pool, 'put', 'o', '-', stdin=b'o' * 100000)
    value, keys = os.urandom(30000).hex(), ['k%d' % i for i in range(100)]
    asked = small_disk.with_name('asked')
    asked.write_text(''.join('config-key set %s %s\n' % (k, value) for k in keys))

    def doctor():
        fill_from_outside(small_disk)                      # also what the server gave back
        return skep.cli('doctor', '--data', skep.data).out
    fill_from_outside(small_disk)
    with open(asked) as f:
        waits = skep.popen('ceph', stdin=f, stdout=-3, stderr=-3)
    try:
        wait_until(lambda: 'cannot write the cluster state' in (d := doctor()) and 'No space left' in d, 90, 0.5, 'the doctor to say why')
        assert 'CLUSTER_STATE_STALLED' in skep.ceph_json('health')['checks']
        assert skep.rados(pool, 'get', 'o', '-').out_bytes == b'o' * 100000
        skep.rados(pool, 'rm', 'o')
        assert skep.alive and waits.poll() is None, skep.log_tail()
        empty(small_disk)
        waits.wait(120)
    finally:
        end_group(waits)
        waits.wait(60)
    wait_until(lambda: 'CLUSTER_STATE_STALLED' not in skep.ceph_json('health')['checks'], 60, 0.5, 'health to be content')
    skep.restart()
    # One may have waited for longer than the 30 seconds after which a client is told that nobody knows.
    there = skep.ceph_json('config-key', 'dump')
    assert len([k for k in keys if there.get(k) == value]) >= len(keys) - 1, len(there)


def test_start_without_room(small_disk, on_small_disk):
    """After a crash, on a disk without a free byte: it serves what it has."""
    skep = on_small_disk
    pool = skep.make_pool(pg_num=4)
    skep.rados(pool, 'put', 'o', '-', stdin=b'o' * 100000)
    fill_from_outside(small_disk)
    for _ in range(3):
        skep.restart()
        assert skep.rados(pool, 'get', 'o', '-').out_bytes == b'o' * 100000
    skep.rados(pool, 'rm', 'o')
