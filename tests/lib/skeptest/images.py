"""RBD images for tests: test data with structure, import, export, checksums."""
import hashlib
import os

from skeptest.cluster import unique

MIB = 1 << 20


def pattern(size, holes=True):
    """Random data of `size` bytes with zeroed stretches, as a disk has."""
    data = bytearray(os.urandom(size))
    if holes:
        for start in range(MIB, size, 5 * MIB):
            data[start:start + MIB // 2] = bytes(len(data[start:start + MIB // 2]))
    return bytes(data)


def sha(data):
    return hashlib.sha256(data).hexdigest()


class Images:
    """Image operations in one pool."""

    def __init__(self, cluster, pool, tmp_path):
        self.cluster, self.pool, self.tmp = cluster, pool, tmp_path

    def spec(self, name, snap=None):
        return '%s/%s%s' % (self.pool, name, '@' + snap if snap else '')

    def create(self, size, *args):
        name = unique('image')
        self.cluster.rbd('create', self.spec(name), '--size', '%dB' % size, *args)
        return name

    def load(self, data, *args):
        """A new image with this content, by `rbd import`."""
        name, path = unique('image'), self.tmp / unique('file')
        path.write_bytes(data)
        self.cluster.rbd('import', *args, path, self.spec(name), timeout=60)
        path.unlink()
        return name

    def read(self, name, snap=None):
        """The whole content, by `rbd export`."""
        path = self.tmp / unique('file')
        self.cluster.rbd('export', self.spec(name, snap), path, timeout=60)
        data = path.read_bytes()
        path.unlink()
        return data

    def write(self, name, offset, data, *options):
        """Writes into an image with qemu-io, which verifies nothing by itself."""
        path = self.tmp / unique('file')
        path.write_bytes(data)
        self.cluster.run('qemu-io', '-f', 'raw', '-c', 'write -s %s %d %d' % (path, offset, len(data)), '-c', 'flush',
                         self.url(name), timeout=60)
        path.unlink()

    def url(self, name):
        """As QEMU names the image."""
        return 'rbd:%s/%s:id=admin:conf=%s' % (self.pool, name, self.cluster.conf.replace(':', '\\:'))

    def info(self, name, snap=None):
        return self.cluster.rbd_json('info', self.spec(name, snap))

    def snap(self, name, snap, protect=False):
        self.cluster.rbd('snap', 'create', self.spec(name, snap))
        if protect:
            self.cluster.rbd('snap', 'protect', self.spec(name, snap))
