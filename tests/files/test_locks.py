"""Byte-range and whole-file locks between mounts and clients of libcephfs: who waits, who is refused, and how it ends."""
import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys
import threading

import cephfs
import pytest

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.ownmounts import OwnMount
from skeptest.run import wait_until

SHARED, EXCLUSIVE, UNLOCK, NOW = fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN, fcntl.LOCK_NB
WAIT_S = 60


def refused(number, call, *args):
    with pytest.raises(OSError) as e:
        call(*args)
    assert e.value.errno == number, e.value


def may(f, kind, length=0, start=0):
    """Whether the owner gets a byte-range lock at once."""
    try:
        fcntl.lockf(f, kind | NOW, length, start)
        return True
    except BlockingIOError:
        return False


def whose(f, kind, start, length):
    """What stands in the way of a lock: kind, start, length; None: nothing."""
    asked = struct.pack('hhqqi', kind, os.SEEK_SET, start, length, 0)
    kind, _, start, length, _ = struct.unpack('hhqqi', fcntl.fcntl(f, fcntl.F_GETLK, asked))
    return None if kind == fcntl.F_UNLCK else (kind, start, length)


class Waits:
    """A call in a thread of its own, that has to wait."""

    def __init__(self, call, *args):
        self.outcome = None
        self.thread = threading.Thread(target=self.run, args=(call, args), daemon=True)
        self.thread.start()
        self.thread.join(0.3)
        assert self.thread.is_alive(), 'it did not wait: %s' % self.outcome

    def run(self, call, args):
        try:
            call(*args)
            self.outcome = 'got it'
        except OSError as e:
            self.outcome = e.errno

    def ends(self):
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive(), 'it waits still'
        return self.outcome


@contextlib.contextmanager
def both(dirs, name='f'):
    (dirs[0] / name).write_bytes(b'')
    with open(dirs[0] / name, 'r+b', buffering=0) as f, open(dirs[1] / name, 'r+b', buffering=0) as g:
        yield f, g


def test_ranges_are_split_joined_and_turned_into_others(dirs):
    with both(dirs) as (f, g):
        fcntl.lockf(f, EXCLUSIVE, 100, 0)
        assert whose(g, fcntl.F_RDLCK, 50, 1) == (fcntl.F_WRLCK, 0, 100)
        assert whose(f, fcntl.F_WRLCK, 50, 1) is None, 'an owner is never in his own way'
        fcntl.lockf(f, UNLOCK, 20, 40)
        assert may(g, EXCLUSIVE, 20, 40)
        assert not may(g, SHARED, 1, 39) and not may(g, SHARED, 1, 60)
        fcntl.lockf(g, UNLOCK, 20, 40)
        # A part becomes shared, the rest stays.
        fcntl.lockf(f, SHARED, 20, 0)
        assert may(g, SHARED, 10, 5) and not may(g, SHARED, 20, 5)
        assert not may(f, EXCLUSIVE, 20, 0), 'another shares it'
        fcntl.lockf(g, UNLOCK)
        assert may(f, EXCLUSIVE, 100, 0)
        assert whose(g, fcntl.F_RDLCK, 99, 5) == (fcntl.F_WRLCK, 0, 100)
        # To the end, wherever that is.
        fcntl.lockf(f, EXCLUSIVE, 0, 1 << 40)
        assert not may(g, SHARED, 1, (1 << 62))
        assert may(g, EXCLUSIVE, 1, (1 << 40) - 1)
    with both(dirs) as (f, g):
        assert may(g, EXCLUSIVE), 'who closes gives back'


def test_flock_and_ranges_do_not_see_each_other(dirs):
    with both(dirs) as (f, g):
        fcntl.flock(f, EXCLUSIVE)
        assert may(g, EXCLUSIVE)
        refused(errno.EAGAIN, fcntl.flock, g, SHARED | NOW)
        fcntl.flock(f, SHARED | NOW)
        fcntl.flock(g, SHARED | NOW)
        refused(errno.EAGAIN, fcntl.flock, f, EXCLUSIVE | NOW)


def test_waiters_get_their_turn(dirs):
    with both(dirs) as (f, g):
        fcntl.lockf(f, EXCLUSIVE, 10, 0)
        waits = Waits(fcntl.lockf, g, EXCLUSIVE, 5, 5)
        fcntl.lockf(f, UNLOCK, 5, 0)
        waits.thread.join(0.3)
        assert waits.thread.is_alive()
        fcntl.lockf(f, UNLOCK, 5, 5)
        assert waits.ends() == 'got it'
        assert whose(f, fcntl.F_RDLCK, 0, 10) == (fcntl.F_WRLCK, 5, 5)


def test_two_that_would_wait_for_each_other(dirs):
    with both(dirs, 'one') as (f1, g1), both(dirs, 'two') as (f2, g2):
        fcntl.lockf(f1, EXCLUSIVE, 10)
        fcntl.lockf(g2, EXCLUSIVE, 10)
        waits = Waits(fcntl.lockf, f2, EXCLUSIVE, 1)
        refused(errno.EDEADLK, fcntl.lockf, g1, EXCLUSIVE, 1)
        fcntl.lockf(g2, UNLOCK)
        assert waits.ends() == 'got it'


# Waits for a lock until it is told by a signal that it has waited long enough.
WAITER = '''import fcntl, signal, sys
class Enough(Exception): pass
def enough(*_): raise Enough
signal.signal(signal.SIGUSR1, enough)
f = open(sys.argv[2], 'r+b')
print('begins', flush=True)
try:
    getattr(fcntl, sys.argv[1])(f, fcntl.LOCK_EX)
    print('got it', flush=True)
except Enough:
    print('enough', flush=True)
sys.stdin.read()
'''


@contextlib.contextmanager
def another_process(how, path):
    p = subprocess.Popen([sys.executable, '-c', WAITER, how, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert p.stdout.readline() == b'begins\n'
        yield p
    finally:
        p.kill()
        p.wait(WAIT_S)
        p.stdin.close()
        p.stdout.close()


@pytest.mark.parametrize('how', ['lockf', 'flock'])
def test_who_is_interrupted_gets_nothing(dirs, how):
    lock = getattr(fcntl, how)
    with both(dirs) as (f, g):
        lock(f, EXCLUSIVE)
        with another_process(how, dirs[1] / 'f') as p:
            # It may not have come to waiting yet: a signal before that ends it as well.
            p.send_signal(signal.SIGUSR1)
            said = p.stdout.readline()
            assert said in (b'enough\n', b''), said
            lock(f, UNLOCK)
            lock(f, EXCLUSIVE | NOW)
            lock(f, UNLOCK)
            lock(g, EXCLUSIVE | NOW)


@pytest.mark.parametrize('how', ['lockf', 'flock'])
def test_a_process_that_dies_gives_back(dirs, how):
    lock = getattr(fcntl, how)
    with both(dirs) as (f, g):
        with another_process(how, dirs[1] / 'f') as p:
            assert p.stdout.readline() == b'got it\n'
            refused(errno.EAGAIN, lock, f, SHARED | NOW)
            waits = Waits(lock, f, EXCLUSIVE)
            p.kill()
            assert waits.ends() == 'got it'


@contextlib.contextmanager
def library(cluster, fs):
    c = cephfs.LibCephFS(conffile=str(cluster.conf))
    c.mount(filesystem_name=fs.encode())
    try:
        yield c
    finally:
        c.shutdown()


def test_owners_within_a_client_and_across(cluster, fs, mount, dirs):
    name = unique('f')
    (mount / name).write_bytes(b'')
    with library(cluster, fs) as c, open(mount / name, 'r+b') as f:
        fd, other = c.open('/' + name, 'r+'), c.open('/' + name, 'r+')
        c.flock(fd, EXCLUSIVE, 1)
        with pytest.raises(cephfs.Error) as e:
            c.flock(other, SHARED | NOW, 2)
        assert abs(e.value.errno) == errno.EAGAIN
        refused(errno.EAGAIN, fcntl.flock, f, SHARED | NOW)
        waits = Waits(fcntl.flock, f, EXCLUSIVE)
        c.flock(fd, UNLOCK, 1)
        assert waits.ends() == 'got it'
        c.close(other)
        c.close(fd)


def test_an_evicted_client_loses_its_locks(cluster, fs, mount, tmp_path):
    name = unique('f')
    (mount / name).write_bytes(b'')
    with mounted(cluster, tmp_path / 'victim', fs=fs, options=['--client_reconnect_stale', 'false']) as victim:
        held = os.open(victim / name, os.O_RDWR)
        try:
            fcntl.lockf(held, EXCLUSIVE)
            with open(mount / name, 'r+b') as g:
                waits = Waits(fcntl.lockf, g, EXCLUSIVE)
                sessions = cluster.ceph_json('tell', 'mds.%s:0' % fs, 'session', 'ls')
                mine = [s['id'] for s in sessions if s['client_metadata'].get('pid') == str(victim.proc.pid)]
                cluster.ceph('tell', 'mds.%s:0' % fs, 'session', 'evict', 'id=%d' % mine[0])
                assert waits.ends() == 'got it'
        finally:
            # Fenced, so it can not even close.
            victim.kill()
            with contextlib.suppress(OSError):
                os.close(held)


@pytest.mark.own
def test_locks_and_who_waits_for_them_survive_a_restart(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    with mounted(skep, tmp_path / 'a', fs='fs') as a, mounted(skep, tmp_path / 'b', fs='fs') as b, both((a, b)) as (f, g):
        fcntl.lockf(f, EXCLUSIVE, 10, 0)
        fcntl.lockf(g, SHARED, 10, 20)
        waits = Waits(fcntl.lockf, g, EXCLUSIVE, 1, 0)
        skep.restart()
        wait_active(skep, 'fs')
        wait_until(lambda: whose(f, fcntl.F_WRLCK, 20, 1) is not None, WAIT_S, 0.2, 'the lock of the other')
        assert whose(f, fcntl.F_WRLCK, 20, 1) == (fcntl.F_RDLCK, 20, 10)
        assert waits.thread.is_alive() and not may(f, EXCLUSIVE, 1, 25)
        fcntl.lockf(f, UNLOCK)
        assert waits.ends() == 'got it'
        assert whose(f, fcntl.F_RDLCK, 0, 5) == (fcntl.F_WRLCK, 0, 1)


@pytest.fixture(scope='module')
def ours(cluster, fs, tmp_path_factory):
    """`skep mount` of the same file system."""
    own = OwnMount(tmp_path_factory.mktemp('own') / 'm', conf=cluster.conf, name=[fs])
    try:
        yield own.start()
    finally:
        own.end()


@pytest.fixture(params=['stock first', 'ours first'])
def mixed(request, mount, ours):
    """A new directory, as a stock mount and one of ours see it."""
    name = unique('d')
    (mount / name).mkdir()
    both = mount / name, ours / name
    return both if request.param == 'stock first' else both[::-1]


@pytest.mark.parametrize('check', [
    test_ranges_are_split_joined_and_turned_into_others, test_waiters_get_their_turn, test_two_that_would_wait_for_each_other])
def test_ranges_between_a_stock_mount_and_ours(mixed, check):
    check(mixed)


@pytest.mark.parametrize('check', [test_who_is_interrupted_gets_nothing, test_a_process_that_dies_gives_back])
def test_a_process_that_waits_or_dies_beside_ours(mixed, check):
    check(mixed, 'lockf')


def test_a_waiter_of_ours_that_is_killed_is_gone(mount, ours):
    """The kernel waits with it for our answer: it is to be told that nobody waits any more."""
    name = unique('f')
    (mount / name).write_bytes(b'')
    with open(mount / name, 'r+b') as f:
        fcntl.lockf(f, EXCLUSIVE)
        with another_process('lockf', ours / name) as p:
            with pytest.raises(subprocess.TimeoutExpired):
                p.wait(1)
            p.kill()
            p.wait(WAIT_S)
        fcntl.lockf(f, UNLOCK)
        assert may(f, EXCLUSIVE)


def test_a_file_of_a_lost_session_of_ours_gets_no_locks(cluster, fs, mount, tmp_path):
    """What the next session would be given nobody would give back."""
    def sessions():
        return {s['id'] for s in cluster.ceph_json('tell', 'mds.%s:0' % fs, 'session', 'ls')}
    name = unique('f')
    (mount / name).write_bytes(b'')
    before = sessions()
    victim = OwnMount(tmp_path / 'victim', conf=cluster.conf, name=[fs])
    try:
        victim.start()
        mine, = sessions() - before
        held = os.open(victim / name, os.O_RDWR)
        try:
            fcntl.lockf(held, EXCLUSIVE, 10)
            with open(mount / name, 'r+b') as f:
                assert not may(f, EXCLUSIVE, 10)
                cluster.ceph('tell', 'mds.%s:0' % fs, 'session', 'evict', 'id=%d' % mine)
                wait_until(lambda: may(f, EXCLUSIVE, 10), WAIT_S, 0.05, 'the lock of the lost session')
                refused(errno.EIO, fcntl.lockf, held, EXCLUSIVE | NOW, 10)
                assert may(f, EXCLUSIVE, 10)
        finally:
            with contextlib.suppress(OSError):
                os.close(held)
    finally:
        victim.end()


F_OFD_SETLK = 37


def test_locks_of_an_open_file_go_with_it(mount, ours):
    name = unique('f')
    (mount / name).write_bytes(b'')
    with open(mount / name, 'r+b') as f, open(ours / name, 'r+b') as other:
        with open(ours / name, 'r+b') as g:
            fcntl.fcntl(g, F_OFD_SETLK, struct.pack('hhqqi', fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0))
            assert not may(f, SHARED, 5, 0) and may(f, EXCLUSIVE, 5, 10)
        # The kernel tells of it behind the close.
        wait_until(lambda: may(f, SHARED, 5, 0), WAIT_S, 0.05, 'what the closed file had locked')
        assert other.read() == b''


@pytest.mark.own
def test_locks_of_our_mount_survive_a_restart(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    ours = OwnMount(tmp_path / 'm', conf=skep.conf, name=['fs'])
    try:
        ours.start()
        with mounted(skep, tmp_path / 'a', fs='fs') as a, both((a, ours)) as (f, g):
            fcntl.lockf(g, EXCLUSIVE, 10, 20)
            fcntl.lockf(f, EXCLUSIVE, 10, 0)
            waits = Waits(fcntl.lockf, g, EXCLUSIVE, 1, 0)
            # Its process is made while these files are open, and closes its copies of them: it never locked, and waits for nobody.
            skep.restart()
            wait_active(skep, 'fs')
            assert not may(f, SHARED, 1, 25) and may(f, SHARED, 1, 30)
            assert waits.thread.is_alive()
            fcntl.lockf(f, UNLOCK)
            assert waits.ends() == 'got it'
    finally:
        ours.end()
