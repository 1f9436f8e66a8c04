"""A server that waits for no disk: one OSD of Skep with one copy, its file in memory. What a client and its way to a server and back
take by themselves: no side is faster through that client."""
import argparse
import pathlib
import shutil
import tempfile

from block.servers import Skep

IN_MEMORY = '/dev/shm'
DISK = 4 << 30


class Memory(Skep):
    def __init__(self, name, folder, args):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix='skep-bench-', dir=IN_MEMORY))
        about = argparse.Namespace(**{**vars(args), 'osds': 1, 'copies': 1, 'disk': min(args.disk, DISK)})
        super().__init__(name, args.skep, self.home / name, about)

    def end(self):
        super().end()
        shutil.rmtree(self.home, ignore_errors=True)
