"""The stock ceph-fuse mounts a file system of ours: the calls of every day, by one mount and seen by another."""
import errno
import fcntl
import os
import stat
import threading

import pytest

from skeptest.run import run


def fails(number, call, *args, **kw):
    with pytest.raises(OSError) as e:
        call(*args, **kw)
    assert e.value.errno == number, e.value


def test_files_are_written_read_renamed_and_removed(dirs):
    a, b = dirs
    (a / 'f').write_bytes(b'hello')
    assert (b / 'f').read_bytes() == b'hello'
    (b / 'f').write_bytes(b'hello again')
    assert (a / 'f').read_bytes() == b'hello again'
    (a / 'f').rename(a / 'g')
    assert sorted(os.listdir(b)) == ['g']
    (b / 'g').unlink()
    assert os.listdir(a) == []
    fails(errno.ENOENT, (a / 'g').read_bytes)


def test_large_files_come_back_as_they_were(dirs):
    a, b = dirs
    data = os.urandom(1 << 20) * 11
    (a / 'large').write_bytes(data)
    assert (b / 'large').read_bytes() == data
    os.truncate(b / 'large', 5 << 20)
    assert (a / 'large').read_bytes() == data[:5 << 20]
    os.truncate(a / 'large', 9 << 20)
    assert (b / 'large').read_bytes() == data[:5 << 20] + bytes(4 << 20)
    with open(a / 'large', 'wb') as f:
        f.write(b'short')
    assert (b / 'large').read_bytes() == b'short'


def test_directories(dirs):
    a, b = dirs
    (a / 'x/y/z').mkdir(parents=True)
    (b / 'x/y/f').write_text('1')
    fails(errno.ENOTEMPTY, os.rmdir, a / 'x/y')
    fails(errno.EEXIST, os.mkdir, b / 'x')
    fails(errno.EISDIR, os.unlink, b / 'x')
    fails(errno.ENOTDIR, os.rmdir, a / 'x/y/f')
    fails(errno.EINVAL, os.rename, a / 'x', a / 'x/y/w')
    assert os.stat(b / 'x').st_nlink == 3
    os.rename(b / 'x/y', b / 'w')
    assert os.listdir(a / 'x') == []
    assert sorted(os.listdir(a / 'w')) == ['f', 'z']
    os.rmdir(b / 'x')
    fails(errno.ENOENT, os.stat, a / 'x')


def test_links(dirs):
    a, b = dirs
    (a / 'f').write_text('x')
    os.link(a / 'f', a / 'g')
    assert os.stat(b / 'g').st_ino == os.stat(b / 'f').st_ino
    assert os.stat(b / 'f').st_nlink == 2
    os.symlink('g', b / 's')
    assert os.readlink(a / 's') == 'g' and (a / 's').read_text() == 'x'
    # A rename over a name whose inode has others (a trap of clients that cache).
    (a / 'h').write_text('y')
    os.rename(a / 'h', a / 'f')
    assert (a / 'g').read_text() == 'x' and (b / 'f').read_text() == 'y'
    assert os.stat(a / 'g').st_nlink == 1
    fails(errno.EPERM, os.link, a, a / 'dir')


def test_what_a_listing_says_is_not_the_last_word(dirs):
    """A client took the version of an entry and not its attributes, and so no later ones of that version."""
    a, b = dirs
    (a / 'f').write_text('x')
    assert os.stat(b / 'f').st_nlink == 1
    os.link(a / 'f', a / 'g')
    with open(a / 'f', 'a') as f:
        f.write('yz')
    assert sorted(os.listdir(b)) == ['f', 'g']
    s = os.stat(b / 'f')
    assert (s.st_nlink, s.st_size) == (2, 3)


def test_attributes(dirs):
    a, b = dirs
    (a / 'f').write_text('x')
    os.chmod(a / 'f', 0o4751)
    os.chown(b / 'f', 12, 34)
    s = os.stat(b / 'f')
    assert (s.st_uid, s.st_gid, stat.S_IMODE(s.st_mode)) == (12, 34, 0o751)
    os.utime(a / 'f', ns=(1_000_000_001, 2_000_000_002))
    s = os.stat(b / 'f')
    assert (s.st_atime_ns, s.st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    os.setxattr(a / 'f', 'user.k', b'v')
    assert os.getxattr(b / 'f', 'user.k') == b'v' and os.listxattr(b / 'f') == ['user.k']
    fails(errno.EEXIST, os.setxattr, b / 'f', 'user.k', b'w', os.XATTR_CREATE)
    os.removexattr(b / 'f', 'user.k')
    fails(errno.ENODATA, os.getxattr, a / 'f', 'user.k')
    os.mkfifo(a / 'p')
    assert stat.S_ISFIFO(os.stat(b / 'p').st_mode)


def test_a_removed_file_lives_as_long_as_it_is_open(dirs):
    a, b = dirs
    with open(a / 'f', 'w+') as f:
        f.write('still here')
        f.flush()
        os.unlink(b / 'f')
        fails(errno.ENOENT, os.stat, b / 'f')
        f.seek(0)
        assert f.read() == 'still here'


def test_appends_and_sizes_are_seen_by_the_other(dirs):
    a, b = dirs
    with open(a / 'f', 'ab', buffering=0) as f:
        for i in range(5):
            f.write(b'%d' % i)
            assert os.stat(b / 'f').st_size == i + 1
        assert (b / 'f').read_bytes() == b'01234'


def test_a_directory_that_another_changes_is_listed_again_and_again(dirs):
    """ceph-fuse aborts where it took a directory for complete and is shown another one, and nothing told it that."""
    a, b = dirs
    names = []
    for i in range(12):
        (a / ('n%d' % i)).touch()
        names.append('n%d' % i)
        assert sorted(os.listdir(b)) == sorted(names)
        if i % 3 == 2:
            os.unlink(a / names.pop(0))
            os.rename(a / names.pop(0), a / ('m%d' % i))
            names.append('m%d' % i)
            assert sorted(os.listdir(b)) == sorted(names)
    for n in names:
        os.unlink(a / n)
    assert os.listdir(b) == []
    (a / 'last').touch()
    assert os.listdir(b) == ['last']


def test_a_directory_of_many_names(dirs):
    a, b = dirs
    names = ['file%04d' % i for i in range(2500)]
    for n in names:
        os.mknod(a / n)
    assert sorted(os.listdir(b)) == names
    for n in names[::2]:
        os.unlink(b / n)
    assert sorted(os.listdir(a)) == names[1::2]


def test_locks_keep_the_other_out(dirs):
    a, b = dirs
    (a / 'f').write_text('')
    with open(a / 'f', 'r+') as f, open(b / 'f', 'r+') as g:
        fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
        fails(errno.EAGAIN, fcntl.lockf, g, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 5)
        fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 10)
        fcntl.flock(f, fcntl.LOCK_EX)
        got = []
        waits = threading.Thread(target=lambda: got.append(fcntl.flock(g, fcntl.LOCK_EX)))
        waits.start()
        waits.join(0.3)
        assert not got
        fcntl.flock(f, fcntl.LOCK_UN)
        waits.join(60)
        assert got


def test_a_tree_is_copied_and_compared(dirs, tmp_path):
    a, b = dirs
    source = tmp_path / 'tree'
    for i in range(8):
        d = source / ('d%d' % (i % 3)) / ('e%d' % i)
        d.mkdir(parents=True)
        for j in range(6):
            (d / ('f%d' % j)).write_bytes(os.urandom(100 * j * j))
    run(['cp', '-a', source, a / 'tree'])
    run(['diff', '-r', source, b / 'tree'])
    run(['rm', '-r', b / 'tree'])
    assert os.listdir(a) == []
