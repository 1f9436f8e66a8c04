"""Two drivers of one RBD image, each a process that keeps it open and takes a line at a time: ours (`skep rbd-io`) and
librbd's. Both understand the same commands, so a test can let either do either part."""
import os
import pathlib
import queue
import subprocess
import sys
import threading

from skeptest.cluster import unique
from skeptest.run import LIMIT_S, end_group, popen
from skeptest.skep import find_binary

LIBRBD = r'''
import sys
import rados, rbd
conf, pool, namespace = sys.argv[1:4]
handle = rados.Rados(conffile=conf, name='client.admin')
handle.connect(timeout=60)
io = handle.open_ioctx(pool)
io.set_namespace(namespace)
image = None

def one(command, *a):
    global image
    if command == 'open':
        snap = [w[5:] for w in a if w.startswith('snap=')]
        image = rbd.Image(io, a[0], snapshot=snap[0] if snap else None, read_only='ro' in a)
    elif command == 'close':
        image.close()
        image = None
    elif command == 'read':
        with open(a[2], 'wb') as f:
            at, end = int(a[0]), int(a[0]) + int(a[1])
            while at < end:
                data = image.read(at, min(4 << 20, end - at))
                f.write(data)
                at += len(data)
    elif command == 'write':
        with open(a[1], 'rb') as f:
            data = f.read()
        assert image.write(data, int(a[0])) == len(data)
    elif command == 'fill':
        image.write(bytes([int(a[2])]) * int(a[1]), int(a[0]))
    elif command == 'discard':
        image.discard(int(a[0]), int(a[1]))
    elif command == 'zero':
        image.write_zeroes(int(a[0]), int(a[1]))
    elif command == 'flush':
        image.flush()
    elif command == 'size':
        return str(image.size())
    elif command == 'owner':
        return str(image.is_exclusive_lock_owner()).lower()
    elif command == 'resize':
        image.resize(int(a[0]), 'shrink' in a)
    elif command == 'snap-create':
        image.create_snap(a[0])
    elif command == 'snap-remove':
        image.remove_snap(a[0])
    elif command == 'snap-protect':
        image.protect_snap(a[0])
    elif command == 'snap-unprotect':
        image.unprotect_snap(a[0])
    elif command == 'snap-list':
        return ' '.join(s['name'] for s in image.list_snaps())
    elif command == 'flatten':
        image.flatten()
    elif command == 'keep':
        image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
    else:
        raise ValueError(command)
    return ''

for line in sys.stdin:
    try:
        print('ok', one(*line.split()), flush=True)
    except Exception as e:
        print('error', type(e).__name__, str(e).replace('\n', ' '), flush=True)
'''


class Refused(Exception):
    """The driver's answer was an error; its first word names it."""


class Driver:
    def __init__(self, argv, env, tmp):
        self.tmp = pathlib.Path(tmp)
        self.proc = popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.proc.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def send(self, *words):
        self.proc.stdin.write(' '.join(str(w) for w in words) + '\n')
        self.proc.stdin.flush()

    def answer(self, timeout=LIMIT_S):
        try:
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError('no answer within %s s' % timeout)
        assert line is not None, 'the driver ended with %s' % self.proc.wait()
        kind, _, rest = line.strip().partition(' ')
        if kind == 'error':
            raise Refused(rest)
        assert kind == 'ok', line
        return rest

    def __call__(self, *words, timeout=LIMIT_S):
        self.send(*words)
        return self.answer(timeout)

    def write(self, offset, data):
        path = self.tmp / unique('block')
        path.write_bytes(data)
        self('write', offset, path)
        path.unlink()

    def read(self, offset, length):
        path = self.tmp / unique('block')
        self('read', offset, length, path)
        data = path.read_bytes()
        path.unlink()
        return data

    def end(self):
        """A clean end: images are closed."""
        if self.proc.poll() is None:
            self.proc.stdin.close()
            try:
                self.proc.wait(LIMIT_S)
            finally:
                self.kill()

    def kill(self):
        end_group(self.proc)


def ours(cluster, pool, tmp, namespace=''):
    argv = [find_binary(), 'rbd-io', '--conf', cluster.conf, '--pool', pool]
    return Driver(argv + (['--namespace', namespace] if namespace else []), cluster.env(), tmp)


def librbd(cluster, pool, tmp, namespace=''):
    return Driver([sys.executable, '-c', LIBRBD, cluster.conf, pool, namespace], {**os.environ, **cluster.env()}, tmp)
