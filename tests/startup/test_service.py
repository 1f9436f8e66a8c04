"""What systemd is told (sd_notify): ready when clients are served, alive as long as the process gets round, stopping."""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

import pytest

from skeptest.run import end_group, popen, run, wait_until
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


@pytest.fixture
def watched(tmp_path):
    """A service with a watchdog, and its manager."""
    manager = Manager(tmp_path / 'notify')
    env = {'NOTIFY_SOCKET': str(tmp_path / 'notify'), 'WATCHDOG_USEC': '400000'}
    skep = Service(tmp_path / 'data', env, osds=2)
    skep.start()
    yield skep, manager
    skep.kill()


def lives_on(manager):
    before = len(manager.hears('WATCHDOG=1'))
    wait_until(lambda: len(manager.hears('WATCHDOG=1')) > before + 3, 60, 0.05, 'signs of life')


def test_a_file_of_clients_that_is_not_answered_for_stops_no_sign_of_life(watched, tmp_path):
    skep, manager = watched
    conf = pathlib.Path(skep.conf)
    old = shutil.copy(conf, tmp_path / 'ceph.conf')
    # Whoever reads it waits, as on a disk that does not answer.
    conf.unlink()
    os.mkfifo(conf)
    run(['ceph', '-c', old, 'config', 'set', 'client', 'ms_client_mode', 'secure crc'])

    def reader():
        try:
            return os.open(conf, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return None
    held = wait_until(reader, 60, 0.05, 'the file to be read')
    try:
        lives_on(manager)
        run(['ceph', '-c', old, 'osd', 'ls'])
    finally:
        os.close(held)
    wait_until(lambda: conf.is_file() and 'ms_client_mode = secure crc' in conf.read_text(), 60, 0.1, 'the file')
    assert skep.stop() == 0


def test_a_copy_that_is_not_written_stops_no_sign_of_life(watched, tmp_path):
    """The flush of the copy of the cluster state takes long."""
    skep, manager = watched
    new = skep.data.resolve() / 'osd.0' / '.cluster.copy.new'
    with open(tmp_path / 'strace', 'wb') as err:
        tracer = popen(['strace', '-f', '-p', skep.proc.pid, '-o', '/dev/null', '-P', new,
                        '-e', 'inject=fsync:delay_enter=60000000'], stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    try:
        said = lambda: (tmp_path / 'strace').read_text()
        wait_until(lambda: 'attached' in said() or tracer.poll() is not None, 60, 0.05, 'strace to attach')
        if 'not permitted' in said():
            pytest.skip('this host lets nobody trace')
        skep.ceph('osd', 'set', 'noout')
        wait_until(new.exists, 60, 0.05, 'the copy to be written')
        # It may be the moment before the flush; and one that was not held up is gone soon.
        time.sleep(0.5)
        assert new.exists()
        lives_on(manager)
        assert new.exists(), 'signs came after the flush'
        # Nor the copies of other disks.
        other = skep.data.resolve() / 'osd.1' / 'cluster.copy'
        at = other.stat().st_mtime_ns
        skep.ceph('osd', 'set', 'noscrub')
        wait_until(lambda: other.stat().st_mtime_ns != at, 50, 0.1, 'the copy of another disk')
        assert new.exists(), 'it came after the flush'
    finally:
        end_group(tracer, signal.SIGINT)
        tracer.wait(60)
    # Nobody has heard it for a while, so that there is no room for what it says now: which keeps nothing from its end.
    assert skep.stop() == 0


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
