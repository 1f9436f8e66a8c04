"""One `skep` process over one data directory: start, wait until ready, kill, stop, start again."""
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import time

from skeptest.cluster import Cluster
from skeptest.run import end_group, popen, run, wait_until

READY_S = 90                                       # a hang is a failure; how fast it is, a benchmark says


def find_binary():
    """SKEP_BIN, else `skep` in the PATH. Fails where there is neither."""
    path = os.environ.get('SKEP_BIN') or shutil.which('skep')
    assert path and os.access(path, os.X_OK), 'no skep program: set SKEP_BIN (./dev/test does)'
    return path


GIVEN = set()


def free_port():
    """One that stays free while a server that has it is restarted: the kernel gives none out below 32768, each process of a
    parallel run (pytest-xdist) takes its own of them, and none twice: a server that is not started yet holds nothing."""
    worker = int(os.environ.get('PYTEST_XDIST_WORKER', 'gw0')[2:]) % 8
    while True:
        port = 12000 + 2500 * worker + random.randrange(2500)
        if port in GIVEN:
            continue
        with socket.socket() as s:
            try:
                s.bind(('127.0.0.1', port))
            except OSError:
                continue
        GIVEN.add(port)
        return port


class Skep(Cluster):
    """A cluster served by a process of ours. Its ports stay the same over restarts, as clients need them. Where it
    speaks messenger v1 first, so do stock clients: they dial the first address that they know."""

    def __init__(self, data, osds=3, auth='cephx', options=(), allow_pool_delete=True, msgr1_first=False):
        self.data = pathlib.Path(data)
        self.log = self.data.with_name(self.data.name + '.log')
        self.osds, self.auth, self.options = osds, auth, list(options)
        self.allow_pool_delete = allow_pool_delete
        self.port, self.msgr1_port, self.msgr1_first = free_port(), free_port(), msgr1_first
        self.proc = None
        self.program = None                        # the tested one; another release's (skeptest.before) while it is set
        super().__init__(self.data / 'ceph.conf')

    def argv(self):
        msgr1 = [] if '--msgr1-port' in self.options else ['--msgr1-port', self.msgr1_port]
        return [self.program or find_binary(), 'up', '--data', self.data, '--osds', self.osds, '--auth', self.auth,
                '--mon-port', self.port, *msgr1, *['--msgr1-first'] * self.msgr1_first,
                *['--allow-pool-delete'] * self.allow_pool_delete, *self.options]

    # -- life and death
    def start(self, timeout=READY_S):
        """Starts the process and returns when it says that it serves."""
        self.launch()
        return self.wait_ready(timeout)

    def launch(self):
        assert self.proc is None or self.proc.poll() is not None, 'runs already'
        log = open(self.log, 'ab')
        self.said_before = self.log.stat().st_size
        self.proc = popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()

    def wait_ready(self, timeout=READY_S):
        def ready():
            assert self.proc.poll() is None, 'skep ended at its start with %s:\n%s' % (
                self.proc.returncode, self.log_tail())
            with open(self.log, 'rb') as f:
                f.seek(self.said_before)
                return any(line.startswith(b'ready') for line in f)
        try:
            wait_until(ready, timeout, 0.02, 'skep to say ready')
        except AssertionError as e:
            self.kill()
            raise AssertionError('%s\n%s' % (e, self.log_tail()))
        return self

    def kill(self):
        """SIGKILL, as the out-of-memory killer would."""
        self.asker.end()
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)

    def stop(self, timeout=60):
        """SIGTERM; returns the exit status."""
        self.asker.end()
        os.kill(self.proc.pid, signal.SIGTERM)
        try:
            return self.proc.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError('no end within %s s of SIGTERM:\n%s' % (timeout, self.log_tail()))

    def restart(self):
        self.kill()
        return self.start()

    @property
    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def cli(self, *args, **kw):
        """A subcommand of the skep program itself."""
        return run([find_binary(), *args], **kw)

    # -- looking at it
    def admin(self, prefix, **more):
        """The admin socket's answer to a request."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(READY_S)
            s.connect(str(self.data / 'skep.asok'))
            s.sendall(json.dumps({'prefix': prefix, **more}).encode() + b'\0')
            with s.makefile('rb') as f:
                return json.loads(f.read(int.from_bytes(f.read(4), 'big')))

    def roles(self):
        """How the roles of the process are, by name."""
        return self.admin('skep status')['roles']

    def rss_kib(self):
        with open('/proc/%d/status' % self.proc.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith('VmRSS:'))

    def log_tail(self, lines=40):
        try:
            return '\n'.join(self.log.read_text(errors='replace').splitlines()[-lines:])
        except FileNotFoundError:
            return '(no log)'

    def wait_usable(self, timeout=READY_S):
        """Until a client's command is answered."""
        end = time.monotonic() + timeout
        while self.ceph('fsid', check=None, timeout=timeout).returncode != 0:
            assert time.monotonic() < end, 'not usable: %s' % self.log_tail()
        return self
