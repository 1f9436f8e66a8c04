"""What systemd is told (sd_notify): ready when clients are served, alive as long as the process gets round, stopping."""
import os
import signal
import socket
import time

from skeptest.run import popen, wait_until
from skeptest.skep import Skep


class Manager:
    """Stands for systemd: takes what a service says."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.said = []

    def hears(self, word):
        while True:
            try:
                self.said += self.socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return [s for s in self.said if s.startswith(word)]


class Service(Skep):
    def __init__(self, data, told, **kw):
        super().__init__(data, **kw)
        self.told = told

    def launch(self):
        log = open(self.log, 'ab')
        self.said_before = self.log.stat().st_size
        self.proc = popen(self.argv(), env=self.told, stdout=log, stderr=log)
        log.close()


def test_systemd_is_told(tmp_path):
    manager = Manager(tmp_path / 'notify')
    env = {'NOTIFY_SOCKET': str(tmp_path / 'notify'), 'WATCHDOG_USEC': '400000'}
    skep = Service(tmp_path / 'data', env, osds=1)
    skep.launch()
    try:
        wait_until(lambda: manager.hears('READY=1'), 90, 0.05, 'the word that it is ready')
        skep.ceph('osd', 'ls')
        assert manager.hears('STATUS=serving %s' % skep.data)
        before = len(manager.hears('WATCHDOG=1'))
        wait_until(lambda: len(manager.hears('WATCHDOG=1')) > before + 3, 60, 0.05, 'signs of life')
        # Who stands still gives none.
        os.kill(skep.proc.pid, signal.SIGSTOP)
        manager.hears('WATCHDOG=1')
        time.sleep(0.5)
        before = len(manager.hears('WATCHDOG=1'))
        time.sleep(1)
        assert len(manager.hears('WATCHDOG=1')) == before
        os.kill(skep.proc.pid, signal.SIGCONT)
        assert not manager.hears('STOPPING=1')
        assert skep.stop() == 0
        assert manager.hears('STOPPING=1')
    finally:
        skep.kill()


def test_completions_and_pages_name_every_command(tmp_path, cluster):
    """Made from the same table as the help."""
    names = [line.split()[0] for line in cluster.cli('--help').out.split('Commands:')[1].split('Options:')[0].splitlines() if line]
    names.remove('help')
    for shell in ('bash', 'zsh', 'fish'):
        said = cluster.cli('completion', shell).out
        assert all(name in said for name in names), shell
    cluster.cli('man', tmp_path / 'man')
    pages = {p.name for p in (tmp_path / 'man').iterdir()}
    assert {'skep.1', *('skep-%s.1' % name for name in names)} <= pages and 'skep-rbd-io.1' not in pages
    up = (tmp_path / 'man' / 'skep-up.1').read_text()
    assert '\\-\\-osd\\-memory' in up and '.TH SKEP-UP 1' in up, up[:300]
    assert cluster.cli('completion', 'none', check=2).out == ''
