"""What mounts keep of what they were told: a second look asks nobody, and what one changes no other shows as it was before."""
import errno
import os
import random
import signal
import stat
import threading
import time

import pytest

from skeptest.cluster import unique
from skeptest.mounts import Mount, make_volume, mounted, wait_active
from skeptest.run import wait_until

# Calls of kernels of their own take some of them; without caching each name takes three.
FEW = 30


@pytest.fixture(scope='module')
def requests(cluster, fs):
    """How many requests clients have sent so far."""
    return lambda: cluster.ceph_json('tell', 'mds.%s:0' % fs, 'perf', 'dump')['mds']['request']


def look(d):
    """Names and attributes of a directory, as a mount shows them."""
    shown = {}
    for name in sorted(os.listdir(d)):
        s = os.stat(d / name, follow_symlinks=False)
        shown[name] = (s.st_ino, s.st_mode, s.st_uid, s.st_nlink, 0 if stat.S_ISDIR(s.st_mode) else s.st_size, s.st_mtime_ns)
    return shown


def test_a_second_look_asks_nobody(dirs, requests):
    a, b = dirs
    for i in range(200):
        os.mknod(a / ('f%d' % i))
    before = requests()
    first = look(b)
    assert requests() - before < 2 * FEW, 'a listing brings what a stat asks for'
    before = requests()
    for _ in range(3):
        assert look(b) == first
        with pytest.raises(FileNotFoundError):
            os.stat(b / 'none')
    assert requests() - before < FEW
    os.chmod(a / 'f7', 0o600)
    os.unlink(a / 'f8')
    assert stat.S_IMODE(os.stat(b / 'f7').st_mode) == 0o600
    with pytest.raises(FileNotFoundError):
        os.stat(b / 'f8')
    assert set(look(b)) == set(first) - {'f8'}


def test_who_makes_names_alone_asks_for_nothing_else(dirs, requests):
    a, _ = dirs
    (a / 'own').mkdir()
    before = requests()
    for i in range(200):
        os.close(os.open(a / 'own' / ('f%d' % i), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    assert requests() - before < 200 + FEW
    before = requests()
    assert len(os.listdir(a / 'own')) == 200
    for i in range(200):
        os.stat(a / 'own' / ('f%d' % i))
    assert requests() - before < FEW


CHANGES = {
    'chmod': lambda d: os.chmod(d / 'f', 0o700),
    'chown': lambda d: os.chown(d / 'f', 7, 8),
    'utime': lambda d: os.utime(d / 'f', (1, 2)),
    'utime of the directory': lambda d: os.utime(d / 'sub', (1, 2)),
    'truncate': lambda d: os.truncate(d / 'f', 1),
    'write': lambda d: (d / 'f').write_bytes(b'longer than before'),
    'append': lambda d: open(d / 'f', 'ab').write(b'more'),
    'setxattr': lambda d: os.setxattr(d / 'f', 'user.k', b'v'),
    'unlink': lambda d: os.unlink(d / 'f'),
    'rename': lambda d: os.rename(d / 'f', d / 'g'),
    'rename into': lambda d: os.rename(d / 'f', d / 'sub/f'),
    'replace': lambda d: os.rename(d / 'h', d / 'f'),
    'rename of the directory': lambda d: os.rename(d / 'sub', d / 'other'),
    'link': lambda d: os.link(d / 'f', d / 'g'),
    'create': lambda d: (d / 'g').write_bytes(b''),
    'mkdir': lambda d: (d / 'sub/deep').mkdir(),
    'rmdir': lambda d: os.rmdir(d / 'sub'),
    'symlink': lambda d: os.symlink('f', d / 'g'),
}


@pytest.mark.parametrize('what', CHANGES)
@pytest.mark.parametrize('maker', [0, 1])
def test_what_one_changes_the_other_sees_at_once(dirs, what, maker):
    """`maker`: which of them made what is changed by the first."""
    d, other = dirs
    (dirs[maker] / 'f').write_bytes(b'hello')
    (dirs[maker] / 'h').write_bytes(b'h')
    (dirs[maker] / 'sub').mkdir()
    for _ in range(2):
        look(other)
        look(other / 'sub')
        assert (other / 'f').read_bytes() == b'hello' and os.listxattr(other / 'f') == []
    CHANGES[what](d)
    shown = look(d)
    assert look(other) == shown
    for name in shown:
        if stat.S_ISDIR(shown[name][1]):
            assert look(other / name) == look(d / name)
        elif stat.S_ISREG(shown[name][1]):
            assert (other / name).read_bytes() == (d / name).read_bytes()
            assert os.listxattr(other / name) == os.listxattr(d / name)


def test_names_of_a_file_that_is_replaced_by_another_stay(dirs):
    """A client that trusts the directories of its other names without a pause takes them for gone."""
    a, b = dirs
    for d in 'pq':
        (a / d).mkdir()
    (a / 'p/f').write_text('x')
    os.link(a / 'p/f', a / 'q/other')
    (a / 'p/g').write_text('y')
    for d in (a, b):
        assert len(look(d / 'p')) == 2 and len(look(d / 'q')) == 1
    os.rename(a / 'p/g', a / 'p/f')
    for d in (a, b):
        assert (d / 'q/other').read_text() == 'x' and (d / 'p/f').read_text() == 'y'
        assert look(d / 'q')['other'][3] == 1


def test_random_changes_of_both_are_seen_by_both(dirs):
    a, b = dirs
    seed = unique('seed')
    dice = random.Random(seed)
    names = ['n%d' % i for i in range(6)]
    done = []
    for d in 'pq':
        (a / d).mkdir()
    for turn in range(400):
        d, other = dice.sample([a, b], 2)
        at, to = dice.choice('pq'), dice.choice('pq')
        name, new = d / at / dice.choice(names), d / to / dice.choice(names)
        calls = {
            'create': lambda: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)), 'write': lambda: name.write_bytes(b'x' * (turn % 99)),
            'unlink': lambda: os.unlink(name), 'rename': lambda: os.rename(name, new), 'link': lambda: os.link(name, new),
            'chmod': lambda: os.chmod(name, turn), 'utime': lambda: os.utime(name, (1, turn)), 'truncate': lambda: os.truncate(name, turn % 77),
            'setxattr': lambda: os.setxattr(name, 'user.k', b'%d' % turn), 'mkdir': lambda: os.mkdir(name), 'rmdir': lambda: os.rmdir(name)}
        what = dice.choice(sorted(calls))
        try:
            calls[what]()
            done.append((turn, what, d == a, '%s/%s' % (at, name.name), '%s/%s' % (to, new.name)))
        except OSError as e:
            assert e.errno in (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR, errno.EPERM, errno.EINVAL), e
        for top in 'pq':
            assert look(other / top) == look(d / top), '%s %s %s' % (seed, top, done[-5:])


@pytest.mark.own
def test_a_mount_that_does_not_answer_holds_a_change_up_until_it_is_ended(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    skep.ceph('fs', 'set', 'fs', 'session_timeout', '30')
    skep.ceph('fs', 'set', 'fs', 'session_autoclose', '30')
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        b = Mount(skep, tmp_path / 'b', fs='fs')
        try:
            (a / 'f').write_bytes(b'x')
            for _ in range(2):
                look(b.path)
            os.kill(b.proc.pid, signal.SIGSTOP)
            done = []
            changing = threading.Thread(target=lambda: done.append(os.chmod(a / 'f', 0o600)))
            changing.start()
            changing.join(5)
            assert not done, 'the other still trusts what it was told'
            changing.join(150)
            assert done
            sessions = skep.ceph_json('tell', 'mds.fs:0', 'session', 'ls')
            assert len([s for s in sessions if s['client_metadata'].get('mount_point') == str(b.path)]) == 0
        finally:
            os.kill(b.proc.pid, signal.SIGCONT)
            b.kill()


@pytest.mark.own
def test_what_is_kept_is_kept_over_a_restart_and_taken_back_after_it(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    with mounted(skep, tmp_path / 'a', fs='fs') as a, mounted(skep, tmp_path / 'b', fs='fs') as b:
        (a / 'd').mkdir()
        for i in range(3000):
            os.mknod(a / 'd' / ('f%d' % i))
        for _ in range(2):
            shown = look(b / 'd')
        skep.restart()
        began = time.monotonic()
        wait_active(skep, 'fs')
        assert look(b / 'd') == shown
        os.unlink(a / 'd/f5')
        os.chmod(a / 'd/f6', 0o600)
        os.rename(a / 'd/f7', a / 'd/g7')
        now = look(b / 'd')
        assert now == look(a / 'd')
        assert set(shown) - set(now) == {'f5', 'f7'} and set(now) - set(shown) == {'g7'}
        assert time.monotonic() - began < 120
        wait_until(lambda: len(skep.ceph_json('tell', 'mds.fs:0', 'session', 'ls')) == 2, 60, 0.5, 'both sessions')
