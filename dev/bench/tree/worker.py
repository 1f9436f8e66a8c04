"""One client of a file system: a session of libcephfs, or a process in a mount of ceph-fuse. Does jobs in a directory of its own when told to.

Told by lines on stdin: `mount`, `umount`, `JOB SECONDS`, `quit`; each is answered by a line of JSON: operations, seconds, processor time.
"""
import json
import os
import sys
import time

FILES_MAX = 100_000


class Fuse:
    """Calls of the kernel below a mount."""

    def __init__(self, root):
        self.root = root

    def mount(self):
        pass

    umount = mount

    def mkdirs(self, path):
        os.makedirs(self.root + path, exist_ok=True)

    def create(self, path, durable):
        fd = os.open(self.root + path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        if durable:
            os.fsync(fd)
        os.close(fd)

    def stat(self, path):
        os.stat(self.root + path)

    def unlink(self, path):
        os.unlink(self.root + path)

    def names(self, path):
        return os.listdir(self.root + path)


class Library:
    """A session of its own."""

    def __init__(self, conf):
        self.conf, self.fs = conf, None

    def mount(self):
        import cephfs
        self.fs = cephfs.LibCephFS(conffile=self.conf, auth_id='admin')
        self.fs.mount()

    def umount(self):
        if self.fs:
            self.fs.unmount()
            self.fs.shutdown()
        self.fs = None

    def mkdirs(self, path):
        self.fs.mkdirs(path, 0o755)

    def create(self, path, durable):
        fd = self.fs.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        if durable:
            self.fs.fsync(fd, 0)
        self.fs.close(fd)

    def stat(self, path):
        self.fs.stat(path)

    def unlink(self, path):
        self.fs.unlink(path)

    def names(self, path):
        with self.fs.opendir(path) as d:
            while e := d.readdir():
                if e.d_name not in (b'.', b'..'):
                    yield e.d_name.decode()


class Jobs:
    """What is done; each is bounded by time, and by what is there."""

    def __init__(self, fs, folder):
        self.fs, self.folder, self.made, self.round = fs, folder, {}, 0

    def loop(self, work, seconds):
        n, began = 0, time.monotonic()
        end = began + seconds
        for n, one in enumerate(work, 1):
            one()
            if time.monotonic() >= end:
                break
        return n, time.monotonic() - began

    def create(self, seconds, durable=False):
        self.round += 1
        d = f'{self.folder}/{self.round}'
        self.fs.mkdirs(d)
        count, took = self.loop((lambda i=i: self.fs.create(f'{d}/f{i}', durable) for i in range(FILES_MAX)), seconds)
        self.made[d] = count
        return count, took

    def durable(self, seconds):
        return self.create(seconds, True)

    def files(self):
        return [f'{d}/f{i}' for d, n in self.made.items() for i in range(n)]

    def stat(self, seconds):
        return self.loop((lambda f=f: self.fs.stat(f) for f in self.files()), seconds)

    def list(self, seconds):
        """Names, and what stands behind each."""
        def all():
            for d in self.made:
                for name in self.fs.names(d):
                    yield lambda f=f'{d}/{name}': self.fs.stat(f)
        return self.loop(all(), seconds)

    def unlink(self, seconds):
        """What was made last goes last; what is left is there for the next time."""
        files = self.files()
        count, took = self.loop((lambda f=f: self.fs.unlink(f) for f in files), seconds)
        self.made.clear()
        self.left = files[count:]
        return count, took


def main():
    kind, where, folder = sys.argv[1:]
    fs = Library(where) if kind == 'library' else Fuse(where)
    jobs = Jobs(fs, folder)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == 'quit':
            break
        before, answer = time.process_time(), {}
        if rest:
            answer['ops'], answer['seconds'] = getattr(jobs, word)(float(rest[0]))
        else:
            getattr(fs, word)()
        print(json.dumps({**answer, 'cpu': time.process_time() - before}), flush=True)
    fs.umount()


if __name__ == '__main__':
    main()
