"""Clusters with a file system: those of the block bench, a metadata server more, and what it takes and keeps."""
import json
import pathlib
import subprocess
import sys

from block.commands import Failed, run, wait_for
from block.servers import TICK, Ceph, Skep

FS = 'bench'
WORKER = pathlib.Path(__file__).with_name('worker.py')


class Worker:
    """A client's process."""

    def __init__(self, kind, where, folder):
        self.p = subprocess.Popen([sys.executable, WORKER, kind, str(where), folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, line):
        self.p.stdin.write(line + '\n')
        self.p.stdin.flush()

    def end(self):
        line = self.p.stdout.readline()
        if not line:
            raise Failed(f'a client ended with status {self.p.wait()}')
        return json.loads(line)

    def close(self):
        self.p.stdin.close()
        try:
            self.p.wait(30)
        except subprocess.TimeoutExpired:
            self.p.kill()
            self.p.wait()


def each(workers, line):
    """All at once; their answers."""
    for w in workers:
        w.begin(line)
    return [w.end() for w in workers]


class Files:
    """What both sides have in common."""

    def active(self):
        ranks = json.loads(self.ceph('fs', 'get', FS, '-f', 'json'))['mdsmap']['info'].values()
        return any(r['state'] == 'up:active' for r in ranks)

    def mount(self):
        """By ceph-fuse, in a process of its own."""
        self.mnt = self.dir / 'mnt'
        self.mnt.mkdir(exist_ok=True)
        self.fuse = subprocess.Popen(['ceph-fuse', '-f', '-c', self.conf, '-n', 'client.admin', '--client_fs', FS, self.mnt],
                                     stdout=open(self.dir / 'fuse.out', 'wb'), stderr=subprocess.STDOUT)
        wait_for(lambda: self.mnt.is_mount() or self.fuse.poll() is not None, f'{self.name}: ceph-fuse')
        if self.fuse.poll() is not None:
            raise Failed(f"{self.name}: ceph-fuse: {(self.dir / 'fuse.out').read_text(errors='replace')[-400:]}")

    def umount(self):
        if getattr(self, 'fuse', None):
            subprocess.run(['umount', self.mnt], capture_output=True)
            try:
                self.fuse.wait(30)
            except subprocess.TimeoutExpired:
                self.fuse.kill()
                self.fuse.wait()
            self.fuse = None

    def tell(self, *words):
        return json.loads(self.ceph('tell', f'mds.{FS}:0', *words))


class FilesCeph(Files, Ceph):
    """With a ceph-mds."""

    tools = [*Ceph.tools, 'ceph-mds']

    def __init__(self, name, folder, args):
        super().__init__(name, folder, args)
        self.port = args.port

    def configure(self, conf, d):
        super().configure(conf, d)
        with open(conf, 'a') as rest:
            rest.write(f'[mds]\nmds_data = {d}/mds.$id\n')

    def start(self):
        super().start()
        (self.dir / 'mds.a').mkdir()
        for pool in ('meta', 'data'):
            self.ceph('osd', 'pool', 'create', f'{FS}.{pool}', '8', '8')
            force = ['--yes-i-really-mean-it'] if self.args.copies == 1 else []
            self.ceph('osd', 'pool', 'set', f'{FS}.{pool}', 'size', str(self.args.copies), *force)
        wait_for(self.clean, 'ceph: pools clean')
        self.ceph('fs', 'new', FS, f'{FS}.meta', f'{FS}.data')
        self.daemon('mds', 'a')
        wait_for(self.active, 'ceph: rank active')

    def mds_cpu(self):
        return self.usage('mds')[0]

    def mds_memory(self):
        """Resident bytes of the metadata server, and inodes and capabilities by its own count."""
        mds = self.tell('perf', 'dump')
        return self.usage('mds')[2], mds['mds_mem']['ino'], mds['mds_mem']['cap']


class FilesSkep(Files, Skep):
    """The metadata server is a thread of the one process."""

    def start(self):
        super().start()
        self.ceph('fs', 'volume', 'create', FS)
        for pool in ('meta', 'data'):
            force = ['--yes-i-really-mean-it'] if self.args.copies == 1 else []
            self.ceph('osd', 'pool', 'set', f'cephfs.{FS}.{pool}', 'size', str(self.args.copies), *force)
        wait_for(self.clean, f'{self.name}: pools clean')
        wait_for(self.active, f'{self.name}: rank active')

    def port(self):
        return self.args.port + 20 + 2 * self.args.sides.index(self.name)

    def mds_cpu(self):
        seconds = 0
        for task in pathlib.Path(f"/proc/{self.processes['skep'].pid}/task").iterdir():
            try:
                before, after = (task / 'stat').read_text().rsplit(')', 1)
            except FileNotFoundError:
                continue
            if before.partition('(')[2].startswith('mds.'):
                fields = after.split()
                seconds += (int(fields[11]) + int(fields[12])) / TICK
        return seconds

    def mds_memory(self):
        clients = self.tell('session', 'ls')
        inodes = self.tell('perf', 'dump')['mds']['inodes']
        return self.usage()[2], inodes, sum(c['num_caps'] for c in clients)


__all__ = ['FilesCeph', 'FilesSkep', 'Worker', 'each', 'run']
