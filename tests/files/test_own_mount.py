"""`skep mount`: a file system out of a spare directory, mounted by the program itself; killed, stopped, beside ceph-fuse."""
import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from skeptest.cluster import unique
from skeptest.mounts import mounted
from skeptest.ownmounts import OwnMount
from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary


@pytest.fixture(scope='module')
def folder():
    """One to which a way leads that all users may go."""
    path = Path(tempfile.mkdtemp(prefix='skep-own-', dir=os.environ.get('SKEP_TEST_DIR')))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope='module')
def own(folder):
    mount = OwnMount(folder / 'mnt', data=folder / 'data', options=['--allow-other']).start()
    yield mount
    try:
        if mount.proc.poll() is None:
            assert mount.stop() == 0, mount.said()
            assert not os.path.ismount(mount.path)
    finally:
        mount.end()


@pytest.fixture
def here(own):
    path = own / unique('d')
    path.mkdir()
    return path


@pytest.fixture
def stock(own, folder):
    """The stock client beside it."""
    with mounted(own.cluster, folder / 'stock', fs='files') as m:
        yield m


def fails(number, call, *args, **kw):
    with pytest.raises(OSError) as e:
        call(*args, **kw)
    assert e.value.errno == number, e.value


def test_a_tree_stays_through_a_clean_end(own, here, tmp_path):
    source = tmp_path / 'tree'
    for i in range(4):
        d = source / ('d%d' % i) / 'e'
        d.mkdir(parents=True)
        for j in range(4):
            (d / ('f%d' % j)).write_bytes(os.urandom(70_000 * j * j))
    os.symlink('d0/e', source / 'link')
    os.link(source / 'd0/e/f3', source / 'd1/hard')
    run(['cp', '-a', source, here / 'tree'])
    assert own.stop() == 0, own.said()
    assert not os.path.ismount(own.path) and os.listdir(own.path) == []
    own.start()
    run(['diff', '-r', '--no-dereference', source, here / 'tree'])
    assert os.stat(here / 'tree/d1/hard').st_nlink == 2
    for name in ('d0/e/f1', 'd2'):
        assert (here / 'tree' / name).stat().st_mtime_ns == (source / name).stat().st_mtime_ns
    run(['rm', '-r', here / 'tree'])
    assert os.listdir(here) == []


WRITER = r'''
import os, sys
out = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
n = 0
while True:
    os.pwrite(out, b'%010d' % n * 1000, n * 10_000)
    os.fsync(out)
    print(n, flush=True)
    n += 1
'''


def test_what_was_synced_outlives_a_kill_and_the_dead_mount_is_taken_away(own, here, tmp_path):
    notes = tmp_path / 'notes'
    with open(notes, 'wb') as f:
        writer = popen([sys.executable, '-c', WRITER, here / 'f'], stdin=subprocess.DEVNULL, stdout=f,
                       stderr=subprocess.DEVNULL)
    wait_until(lambda: notes.read_text().count('\n') > 60, what='a writer')
    own.kill()
    writer.wait(60)
    fails(errno.ENOTCONN, os.listdir, own.path)
    own.start()
    synced = notes.read_text().split()
    data = (here / 'f').read_bytes()
    assert len(data) >= len(synced) * 10_000
    for n in range(len(synced)):
        assert data[n * 10_000:(n + 1) * 10_000] == b'%010d' % n * 1000, n


MAKER = r'''
import os, sys
d = os.open(sys.argv[1], os.O_RDONLY)
n = 0
while True:
    for _ in range(20):
        os.close(os.open('f%d' % n, os.O_CREAT | os.O_EXCL | os.O_WRONLY, dir_fd=d))
        n += 1
    os.fsync(d)
    print(n, flush=True)
'''


def test_names_that_were_synced_outlive_a_kill(own, here, tmp_path):
    notes = tmp_path / 'notes'
    with open(notes, 'wb') as f:
        maker = popen([sys.executable, '-c', MAKER, here], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.DEVNULL)
    wait_until(lambda: notes.read_text().count('\n') > 10, what='names')
    own.kill()
    maker.wait(60)
    own.start()
    synced, names = int(notes.read_text().split()[-1]), set(os.listdir(here))
    assert {'f%d' % n for n in range(synced)} <= names
    # Of those behind, the first ones or none.
    assert names == {'f%d' % n for n in range(len(names))}


def test_a_removed_file_lives_as_long_as_it_is_open(own, here):
    with open(here / 'f', 'w+b') as f, open(here / 'f', 'rb') as g:
        f.write(b'still here')
        f.flush()
        os.unlink(here / 'f')
        fails(errno.ENOENT, os.stat, here / 'f')
        assert os.fstat(f.fileno()).st_nlink == 0 and os.fstat(f.fileno()).st_size == 10
        f.write(b', and more')
        f.flush()
        assert g.read() == b'still here, and more'
    assert os.listdir(here) == []


def renameat2(a, b, flags):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags) != 0:
        raise OSError(ctypes.get_errno(), 'renameat2')


def test_names(own, here):
    (here / 'f').write_text('x')
    (here / 'g').write_text('y')
    with open(here / 'g') as open_before:
        os.rename(here / 'f', here / 'g')
        assert (here / 'g').read_text() == 'x' and open_before.read() == 'y'
    (here / 'h').write_text('z')
    fails(errno.EEXIST, renameat2, here / 'h', here / 'g', 1)
    fails(errno.EINVAL, renameat2, here / 'h', here / 'g', 2)
    renameat2(here / 'h', here / 'i', 1)
    (here / 'x/y').mkdir(parents=True)
    fails(errno.ENOTEMPTY, os.rmdir, here / 'x')
    fails(errno.EINVAL, os.rename, here / 'x', here / 'x/y/z')
    os.mkfifo(here / 'p')
    os.mknod(here / 'null', stat.S_IFCHR | 0o600, os.makedev(1, 3))
    assert stat.S_ISFIFO(os.stat(here / 'p').st_mode) and os.stat(here / 'null').st_rdev == os.makedev(1, 3)


def test_a_directory_of_more_names_than_a_page(own, here, stock):
    there, names = stock / here.name, ['file%04d' % i for i in range(1100)]
    for n in names:
        os.mknod(there / n)
    assert sorted(os.listdir(here)) == names
    with os.scandir(here) as entries:
        assert next(entries).is_file()
    for n in names:
        os.unlink(there / n)
    assert os.listdir(here) == []


def test_attributes(own, here):
    f = here / 'f'
    f.write_text('x')
    os.chmod(f, 0o640)
    os.chown(f, 12, 34)
    os.utime(f, ns=(1_000_000_001, 2_000_000_002))
    s = os.stat(f)
    assert (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode), s.st_atime_ns, s.st_mtime_ns) == (
        12, 34, 0o640, 1_000_000_001, 2_000_000_002)
    os.setxattr(f, 'user.k', b'v')
    os.setxattr(f, 'user.large', b'v' * 5000)
    fails(errno.EEXIST, os.setxattr, f, 'user.k', b'w', os.XATTR_CREATE)
    assert os.getxattr(f, 'user.large') == b'v' * 5000 and sorted(os.listxattr(f)) == ['user.k', 'user.large']
    os.removexattr(f, 'user.k')
    fails(errno.ENODATA, os.getxattr, f, 'user.k')
    fails(errno.EOPNOTSUPP, os.getxattr, f, 'system.other')
    space = os.statvfs(here)
    assert 0 < space.f_bavail <= space.f_blocks


ACCESS, DEFAULT = 'system.posix_acl_access', 'system.posix_acl_default'
OWNER, USER, GROUP, MASK, OTHER, NOBODY = 1, 2, 4, 16, 32, 0xffff_ffff


def acl(owner, group, other, mask=None, **users):
    entries = [(OWNER, owner, NOBODY), *[(USER, perm, int(name[1:])) for name, perm in users.items()], (GROUP, group, NOBODY)]
    entries += [] if mask is None else [(MASK, mask, NOBODY)]
    return struct.pack('<I', 2) + b''.join(struct.pack('<HHI', *e) for e in [*entries, (OTHER, other, NOBODY)])


def may(uid, *command):
    return subprocess.run(command, user=uid, group=uid, extra_groups=[], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=60).returncode == 0


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_access_control_lists_are_obeyed(own, here):
    f = here / 'f'
    f.write_text('x')
    os.chmod(f, 0o600)
    assert not may(1001, 'cat', f)
    named = acl(6, 0, 0, mask=4, u1001=6)
    os.setxattr(f, ACCESS, named)
    assert os.getxattr(f, ACCESS) == named and mode(f) == 0o640
    # No more than the mask lets him.
    assert may(1001, 'cat', f) and not may(1002, 'cat', f) and not may(1001, 'dd', 'if=/dev/null', 'of=%s' % f, 'conv=notrunc')
    os.chmod(f, 0o600)
    assert not may(1001, 'cat', f)
    os.chmod(f, 0o660)
    assert os.getxattr(f, ACCESS) == acl(6, 0, 0, mask=6, u1001=6) and may(1001, 'dd', 'if=/dev/null', 'of=%s' % f, 'conv=notrunc')
    # What a mode can say is one.
    os.setxattr(f, ACCESS, acl(6, 4, 4))
    assert mode(f) == 0o644 and ACCESS not in os.listxattr(f) and may(1002, 'cat', f)
    fails(errno.ENODATA, os.getxattr, f, ACCESS)


def test_access_control_lists_are_inherited(own, here, folder):
    d, default = here / 'd', acl(7, 5, 0, mask=7, u1001=7)
    d.mkdir()
    with umask(0o027):
        (here / 'plain').write_text('x')
        (here / 'dir').mkdir()
        assert (mode(here / 'plain'), mode(here / 'dir')) == (0o640, 0o750)
    os.setxattr(d, DEFAULT, default)
    with umask(0o077):
        (d / 'f').write_text('y')
        (d / 'sub').mkdir()
        os.mkfifo(d / 'p')
    assert (mode(d / 'f'), mode(d / 'sub'), mode(d / 'p')) == (0o660, 0o770, 0o660)
    assert os.getxattr(d / 'sub', DEFAULT) == default and os.getxattr(d / 'f', ACCESS) == acl(6, 5, 0, mask=6, u1001=7)
    assert may(1001, 'cat', d / 'f') and may(1001, 'touch', d / 'sub/new') and not may(1002, 'cat', d / 'f')
    assert mode(d / 'sub/new') == 0o660
    # A stock mount that obeys them finds the same.
    with mounted(own.cluster, folder / 'acl', fs='files', options=['--client_acl_type', 'posix_acl', '--fuse_default_permissions', 'false']) as m:
        there = m / here.name / 'd'
        assert os.getxattr(there / 'f', ACCESS) == os.getxattr(d / 'f', ACCESS)
        (there / 'g').write_text('z')
        assert os.getxattr(d / 'g', ACCESS) == os.getxattr(d / 'f', ACCESS) and may(1001, 'cat', d / 'g')


def test_holes_truncation_and_zeros(own, here):
    f = here / 'f'
    data = os.urandom(1 << 20)
    with open(f, 'w+b') as out:
        out.seek(9 << 20)
        out.write(data)
        out.flush()
        assert os.fstat(out.fileno()).st_size == 10 << 20
        assert os.pread(out.fileno(), 4096, 5 << 20) == bytes(4096)
        run(['fallocate', '--punch-hole', '-o', (9 << 20) + 4096, '-l', 8192, f])
        assert os.pread(out.fileno(), 1 << 20, 9 << 20) == data[:4096] + bytes(8192) + data[12288:]
        run(['fallocate', '--zero-range', '-o', 10 << 20, '-l', 4096, f])
        assert os.fstat(out.fileno()).st_size == (10 << 20) + 4096
        assert run(['fallocate', '-l', '20M', f], check='fails').err
        os.truncate(f, (9 << 20) + 10)
        os.truncate(f, 10 << 20)
        assert os.pread(out.fileno(), 100, 9 << 20) == data[:10] + bytes(90)
    fails(errno.EFBIG, os.truncate, f, 1 << 60)
    with open(f, 'r+b') as out:
        fails(errno.EFBIG, os.pwrite, out.fileno(), b'x', 1 << 50)


def test_holes_are_found(own, here):
    at, n = 32 << 20, 1 << 16
    with open(here / 'f', 'wb', buffering=0) as out, open(here / 'f', 'rb', buffering=0) as f:
        fd = f.fileno()
        os.ftruncate(out.fileno(), 64 << 20)
        fails(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
        os.pwrite(out.fileno(), os.urandom(n), at)
        assert (os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, 0, os.SEEK_DATA)) == (0, at)
        assert (os.lseek(fd, at + 5, os.SEEK_DATA), os.lseek(fd, at, os.SEEK_HOLE)) == (at + 5, at + n)
        fails(errno.ENXIO, os.lseek, fd, at + n, os.SEEK_DATA)
        assert os.lseek(fd, at + n, os.SEEK_HOLE) == at + n
        fails(errno.ENXIO, os.lseek, fd, 64 << 20, os.SEEK_HOLE)
        # To the end of the file, where there is none behind it.
        os.ftruncate(out.fileno(), at + n)
        assert os.lseek(fd, at, os.SEEK_HOLE) == at + n
        # What is mapped to be written may be in the kernel alone: nothing is taken for a hole.
        with open(here / 'f', 'r+b') as both, mmap.mmap(both.fileno(), 0) as mapped:
            mapped[5] = 7
            assert (os.lseek(fd, 0, os.SEEK_DATA), os.lseek(fd, 0, os.SEEK_HOLE)) == (0, at + n)
        assert os.pread(fd, 1, 5) == b'\x07'
    run(['cp', '--sparse=auto', here / 'f', here / 'g'])
    run(['cmp', here / 'f', here / 'g'])


def test_the_stock_client_beside_it_sees_what_was_written_and_is_seen(own, here, stock):
    there = stock / here.name
    (here / 'f').write_bytes(b'one')
    assert (there / 'f').read_bytes() == b'one'
    with open(here / 'f', 'r+b', buffering=0) as f:
        f.seek(3)
        f.write(b', two')
        # Before it is closed, too: the server asks us for the size.
        assert (there / 'f').stat().st_size == 8
        (there / 'f').write_bytes(b'one, two, three')
        assert os.pread(f.fileno(), 100, 0) == b'one, two, three'
        assert os.fstat(f.fileno()).st_size == 15
        os.truncate(there / 'f', 3)
        assert os.pread(f.fileno(), 100, 0) == b'one'
    os.rename(there / 'f', there / 'g')
    assert os.listdir(here) == ['g']
    os.unlink(here / 'g')
    fails(errno.ENOENT, os.stat, there / 'g')
    # A snapshot that is made while a file is open keeps what was written before.
    with open(here / 's', 'wb', buffering=0) as f:
        f.write(b'before' * 1000)
        os.mkdir(there / '.snap' / 'one')
        f.write(b'behind' * 1000)
        os.pwrite(f.fileno(), b'change', 0)
    assert (there / '.snap/one/s').read_bytes() == b'before' * 1000
    assert (here / 's').read_bytes() == b'change' + b'before' * 999 + b'behind' * 1000
    os.rmdir(there / '.snap' / 'one')


def test_snapshots(own, here, stock):
    there, snap = stock / here.name, here / '.snap'
    (here / 'd').mkdir()
    (here / 'd/f').write_text('one')
    os.symlink('f', here / 'd/l')
    assert os.listdir(snap) == [] and os.listdir(here) == ['d']
    os.mkdir(snap / 's1')
    (here / 'd/f').write_text('two, and longer')
    os.unlink(here / 'd/l')
    (here / 'd/g').write_text('new')
    assert (snap / 's1/d/f').read_text() == 'one' and (snap / 's1/d/f').stat().st_size == 3
    assert sorted(os.listdir(snap / 's1/d')) == ['f', 'l'] and os.readlink(snap / 's1/d/l') == 'f'
    assert (there / '.snap/s1/d/f').read_text() == 'one' and (here / 'd/f').read_text() == 'two, and longer'
    # Below, the snapshot has a longer name.
    name = '_s1_%d' % here.stat().st_ino
    assert os.listdir(here / 'd/.snap') == [name] and (here / 'd/.snap' / name / 'f').read_text() == 'one'
    for call in (lambda: (snap / 's1/d/f').write_text('no'), lambda: os.mkdir(snap / 's1/d/new'), lambda: os.chmod(snap / 's1/d', 0o700),
                 lambda: os.unlink(snap / 's1/d/f'), lambda: (snap / 'file').write_text('no'), lambda: os.link(here / 'd/f', snap / 's1/d/h')):
        fails(errno.EROFS, call)
    fails(errno.EEXIST, os.mkdir, snap / 's1')
    fails(errno.EEXIST, os.mkdir, here / '.snap')
    os.rename(snap / 's1', snap / 's2')
    os.mkdir(there / '.snap/s3')
    assert os.listdir(snap) == ['s2', 's3'] and sorted(os.listdir(there / '.snap')) == ['s2', 's3']
    fails(errno.ENOENT, os.stat, snap / 's1')
    with open(snap / 's2/d/f') as f:
        os.rmdir(there / '.snap/s3')
        assert f.read() == 'one'
    os.rmdir(snap / 's2')
    assert os.listdir(snap) == [] and os.listdir(there / '.snap') == []


def test_disks_of_machines(own, here):
    disk = here / 'disk.qcow2'
    run(['qemu-img', 'create', '-f', 'qcow2', disk, '64M'])
    for cache in ('none', 'writeback'):
        run(['qemu-io', '-f', 'qcow2', '-t', cache, '-c', 'write -P 7 1M 3M', '-c', 'write -z 2M 64k', '-c', 'flush',
             '-c', 'read -P 7 1M 1M', '-c', 'read -P 0 2M 64k', disk])
    run(['qemu-img', 'check', disk])
    raw = here / 'disk.raw'
    run(['qemu-img', 'convert', '-t', 'none', '-O', 'raw', disk, raw])
    run(['qemu-img', 'compare', disk, raw])
    run(['fio', '--name=v', '--filename=%s' % (here / 'fio'), '--size=8M', '--rw=randrw', '--bs=4k,16k', '--ioengine=libaio',
         '--iodepth=8', '--direct=1', '--verify=crc32c', '--verify_fatal=1', '--verify_state_save=0', '--fsync=32',
         '--number_ios=600'])


def test_somebody_unmounts_it_and_a_second_one_is_refused(own, here, folder):
    binary = find_binary()
    r = run([binary, 'mount', own.path, '--data', folder / 'other'], check='fails')
    assert 'a file system is mounted there' in r.err, r
    full = folder / 'full'
    (full / 'x').mkdir(parents=True)
    for path, why in [(full, 'not empty'), (folder / 'none', 'no such directory'), (own.log, 'no directory')]:
        r = run([binary, 'mount', path, '--data', folder / 'other'], check='fails')
        assert why in r.err, r
    r = run([binary, 'mount', folder, '--data', folder / 'data'], check='fails')
    assert 'not empty' in r.err, r
    # A second mount of the store that runs, of a part of it, which changes nothing.
    (here / 'f').write_text('x')
    second = OwnMount(folder / 'second', data=folder / 'data', options=['--path', '/' + here.name, '--read-only']).start()
    try:
        assert (second / 'f').read_text() == 'x'
        fails(errno.EROFS, (second / 'f').write_text, 'y')
        run(['umount', second.path])
        assert second.wait() == 0, second.said()
    finally:
        second.end()


def test_its_end_takes_it_from_who_uses_it_with_all_that_was_written(own, here):
    f = open(here / 'f', 'w')
    f.write('x' * 100_000)
    f.flush()
    assert own.stop() == 0, own.said()
    assert not os.path.ismount(own.path)
    with contextlib.suppress(OSError):
        f.close()
    own.start()
    assert (here / 'f').stat().st_size == 100_000
