"""Ceph 18.2 of Debian 13: its servers in a root folder made by debootstrap (kept in the cache), the clients those of this machine."""
import pathlib
import sys
import unittest

from block.commands import Failed
from block.servers import Ceph

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / 'tests' / 'lib'))

from skeptest.debian import ENTER, Root                        # noqa: E402

PACKAGES = ['ceph-mgr', 'ceph-mon', 'ceph-osd']


class Ceph18(Ceph):
    tools = ['debootstrap', 'unshare']
    port = 13310

    def __init__(self, name, folder, args):
        super().__init__(name, folder, args)
        self.seen = pathlib.Path('/mnt')

    def start(self):
        try:
            self.root = Root('trixie', [], PACKAGES)
        except unittest.SkipTest as e:
            raise Failed(str(e)) from e
        super().start()

    def command(self, *words):
        """In a mount namespace of its own, which ends with the server."""
        return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', ENTER, 'sh', self.root.path, self.dir, *words]

    def package(self):
        return self.root.version('ceph-osd')
