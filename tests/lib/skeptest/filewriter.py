"""A writer on a mount of a file system that goes on while servers come and go; and the check of what it was told, by another mount.

    with writing(host, 'fs', place) as files:  # a stock ceph-fuse, where the clients of `host` are
        host.restart()
        files.check()                          # once it goes on: every file again, through a fresh mount

Small files are written, synced and renamed to their names, of which there are few: so some take the place of an older file, others are
removed meanwhile. A log that stays open is appended to and synced. Each call is one that fails where it is carried out twice: what a
mount says again to the next server is found out. Names are not synced: their mount lives on, and has to bring back those that were
answered and not durable yet.

The check is exact, since the writer stands still during it, between two steps: all names that are acknowledged, with what was written
last, and no others. `longest_s` is the longest that a step took: what a program would have felt.
"""
import contextlib
import hashlib
import os
import threading
import time

from skeptest.cluster import unique
from skeptest.mounts import mounted
from skeptest.run import LIMIT_S, run
from skeptest.work import Work

NAMES = 60
SIZES = [100, 4096, 9000, 70000]
PAUSE_S = 0.1                                      # between steps: it writes beside other loads, on few processors


def content(i):
    size = SIZES[i % len(SIZES)]
    return (hashlib.sha256(b'%d' % i).digest() * (size // 32 + 1))[:size]


class Files:
    """The writer in a folder of its own on `mount`, of the file system `fs` of `cluster`."""

    def __init__(self, cluster, fs, mount, place):
        self.cluster, self.fs, self.mount, self.place = cluster, fs, mount, place
        self.top = mount / unique('written')
        self.top.mkdir()
        self.sums, self.lines, self.longest_s = {}, hashlib.sha256(), 0
        self.log = os.open(self.top / 'log', os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        self.between, self.pace = threading.Lock(), threading.Event()
        self.work = Work(self.step)

    def step(self, i):
        self.pace.wait(PAUSE_S)
        with self.between:
            began = time.monotonic()
            self.write(i)
            self.append(i)
            if i % 3 == 2:
                self.remove('f%d' % ((i - NAMES // 2) % NAMES))
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def write(self, i):
        new, name, data = self.top / 'new', 'f%d' % (i % NAMES), content(i)
        with open(new, 'xb') as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.rename(new, self.top / name)
        self.sums[name] = hashlib.sha256(data).hexdigest()

    def append(self, i):
        line = b'%d %d\n' % (i, len(self.sums))
        assert os.write(self.log, line) == len(line)
        os.fsync(self.log)
        self.lines.update(line)

    def remove(self, name):
        if name in self.sums:
            os.unlink(self.top / name)
            del self.sums[name]

    def goes_on(self, more=5):
        self.work.goes_on(more)

    def check(self):
        """It goes on, and all that was acknowledged so far is what a mount sees that has no caches."""
        self.goes_on()
        assert self.between.acquire(timeout=LIMIT_S), 'the writer waits for its servers'
        try:
            assert not self.work.failed, self.work.failed
            with mounted(self.cluster, self.place / unique('mount'), fs=self.fs) as other:
                self.compare(other / self.top.name)
        finally:
            self.between.release()

    def compare(self, top):
        """By programs with a time limit: a file that nobody serves is waited for without end."""
        wanted = {**self.sums, 'log': self.lines.hexdigest()}
        listed = run(['ls', '-A', top]).out.split()
        assert sorted(listed) == sorted(wanted), 'names: %s' % sorted(set(listed) ^ set(wanted))
        said = run(['sha256sum', *(top / name for name in sorted(wanted))]).out.splitlines()
        found = {os.path.basename(line.split()[1]): line.split()[0] for line in said}
        wrong = sorted(name for name in wanted if found.get(name) != wanted[name])
        assert not wrong, 'not what was written: %s' % wrong

    def end(self):
        """Where it does not end, its mount is killed, so that nobody waits for it."""
        try:
            self.work.end()
        except BaseException:
            self.mount.kill()
            raise
        finally:
            with contextlib.suppress(OSError):
                os.close(self.log)


@contextlib.contextmanager
def writing(cluster, fs, place):
    with mounted(cluster, place / unique('mount'), fs=fs) as mount:
        files = Files(cluster, fs, mount, place)
        try:
            yield files
        finally:
            files.end()
