"""One file that is written, cut and read through several mounts in turn, each of which has it open all the time; beside a model."""
import ctypes
import os
import random

LENGTH_MAX = 3 << 20
PIECE_MAX = 200 << 10
PUNCH = 0x01 | 0x02                # FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE
_libc = ctypes.CDLL(None, use_errno=True)


class Exerciser:
    """Mounts have no page cache (`fuse_disable_pagecache`): a kernel keeps pages of an open file that another mount has written since."""

    def __init__(self, paths, seed):
        self.random, self.model, self.done = random.Random(seed), bytearray(), 0
        self.paths, self.fds = paths, [os.open(p, os.O_RDWR | os.O_CREAT, 0o644) for p in paths]
        self.seed = seed

    def close(self):
        for fd in self.fds:
            os.close(fd)

    def step(self, _=None):
        which = self.random.randrange(len(self.fds))
        what = self.random.choices([self.write, self.append, self.read, self.truncate, self.size, self.reopen, self.sync, self.punch],
                                   [10, 3, 12, 4, 4, 2, 1, 2])[0]
        try:
            what(which)
        except AssertionError as e:
            raise AssertionError('seed %d, step %d, mount %d, %s: %s' % (self.seed, self.done, which, what.__name__, e))
        self.done += 1

    def piece(self):
        return self.random.randbytes(self.random.randint(1, PIECE_MAX))

    def write(self, which):
        at, data = self.random.randrange(LENGTH_MAX), self.piece()
        assert os.pwrite(self.fds[which], data, at) == len(data)
        self.put(at, data)

    def append(self, which):
        data = self.piece()
        if len(self.model) < LENGTH_MAX:
            assert os.pwrite(self.fds[which], data, len(self.model)) == len(data)
            self.put(len(self.model), data)

    def put(self, at, data):
        if len(self.model) < at:
            self.model.extend(bytes(at - len(self.model)))
        self.model[at:at + len(data)] = data

    def read(self, which):
        at, n = self.random.randrange(LENGTH_MAX), self.random.randint(1, PIECE_MAX * 2)
        got = b''
        while len(got) < n:
            more = os.pread(self.fds[which], n - len(got), at + len(got))
            if not more:
                break
            got += more
        self.same(got, bytes(self.model[at:at + n]), at)

    @staticmethod
    def same(got, expected, at):
        assert len(got) == len(expected), '%d bytes at %d, %d expected' % (len(got), at, len(expected))
        wrong = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b), None)
        assert wrong is None, 'byte %d is %d, %d expected' % (at + wrong, got[wrong], expected[wrong])

    def truncate(self, which):
        size = self.random.choice([0, self.random.randrange(LENGTH_MAX), self.random.randrange(len(self.model) + 1)])
        os.ftruncate(self.fds[which], size)
        self.put(size, b'')
        del self.model[size:]

    def size(self, which):
        found = os.fstat(self.fds[which]).st_size
        assert found == len(self.model), 'a size of %d, %d expected' % (found, len(self.model))

    def reopen(self, which):
        os.close(self.fds[which])
        cut = self.random.random() < 0.2
        self.fds[which] = os.open(self.paths[which], os.O_RDWR | (os.O_TRUNC if cut else 0))
        if cut:
            self.model.clear()

    def sync(self, which):
        os.fsync(self.fds[which])

    def punch(self, which):
        if self.model:
            at, n = self.random.randrange(len(self.model)), self.random.randint(1, PIECE_MAX)
            if _libc.fallocate(self.fds[which], PUNCH, ctypes.c_long(at), ctypes.c_long(n)):
                raise OSError(ctypes.get_errno(), 'fallocate')
            end = min(len(self.model), at + n)
            self.model[at:end] = bytes(end - at)

    def compare(self, path):
        with open(path, 'rb') as f:
            self.same(f.read(), bytes(self.model), 0)
