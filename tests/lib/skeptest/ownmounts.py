"""File systems mounted by `skep mount`."""
import os
import pathlib
import signal
import subprocess

from skeptest.cluster import Cluster
from skeptest.run import LIMIT_S, end_group, popen, run, wait_until
from skeptest.skep import READY_S, find_binary


class OwnMount:
    """One `skep mount DIR`: of a store of its own in `data`, or of the cluster of `conf`."""

    def __init__(self, path, data=None, conf=None, name=(), options=()):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True)
        self.data = data
        self.log = self.path.with_name(self.path.name + '.log')
        where = ['--conf', conf] if conf else ['--data', data]
        self.argv = [find_binary(), 'mount', *name, self.path, *where, *options]
        self.proc = None

    @property
    def cluster(self):
        return Cluster(self.data / 'ceph.conf')

    def start(self):
        with open(self.log, 'ab') as log:
            said_before = self.log.stat().st_size
            self.proc = popen(self.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def mounted():
            assert self.proc.poll() is None, 'skep mount ended with %s: %s' % (self.proc.returncode, self.said())
            return b'mounted at' in self.log.read_bytes()[said_before:]
        try:
            wait_until(mounted, READY_S, 0.02, 'a mount')
        except AssertionError:
            self.kill()
            raise
        assert os.path.ismount(self.path)
        return self

    def said(self):
        return self.log.read_text(errors='replace')[-4000:] if self.log.exists() else '(no log)'

    def stop(self):
        """SIGTERM; the exit status."""
        os.kill(self.proc.pid, signal.SIGTERM)
        return self.wait()

    def wait(self):
        try:
            return self.proc.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            said = self.said()
            self.kill()
            raise AssertionError('no end within %s s: %s' % (LIMIT_S, said))

    def kill(self):
        """SIGKILL; what is left of the mount stays."""
        end_group(self.proc)
        self.proc.wait(60)

    def end(self):
        """Nothing is left."""
        if self.proc is not None and self.proc.poll() is None:
            self.kill()
        while run(['umount', '-l', self.path], check=None).returncode == 0:
            pass

    def __truediv__(self, name):
        return self.path / name
