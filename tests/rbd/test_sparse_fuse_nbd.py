"""`rbd sparsify` with what `rbd du`, `rbd diff` and `rbd export-diff` say of the image then; `rbd-fuse`; and of `rbd-nbd` what works without
the kernel's module. The numbers are those of a 16.2.15 with the same disk."""
import hashlib
import os
import random

import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until

MIB = 1 << 20
SIZE = 64 * MIB
PIECES = ((MIB, 5000), (5 * MIB + 123, 70000), (9 * MIB, 4096), (20 * MIB + 512, 512), (33 * MIB, 4 * MIB))
WHOLE = [(n * 4 * MIB, 4 * MIB) for n in range(16)]
SPARSE = [(0, 1056768), (4194304, 1122304), (8388608, 1052672), (20971520, 4096), (33554432, 4194304), (37748736, 1048576)]


def disk():
    rng = random.Random(3)
    data = bytearray(SIZE)
    for offset, length in PIECES:
        data[offset:offset + length] = rng.randbytes(length)
    return bytes(data)


@pytest.fixture
def written(cluster, rbd_pool, tmp_path):
    """An image of which every byte was written, most of them zeros."""
    name = unique('sparse')
    spec = '%s/%s' % (rbd_pool, name)
    cluster.rbd('create', '--size', '64M', spec)
    script = ('import rados, rbd, sys\n'
              'c = rados.Rados(conffile=sys.argv[1]); c.connect(); io = c.open_ioctx(sys.argv[2])\n'
              'data = sys.stdin.buffer.read()\n'
              'with rbd.Image(io, sys.argv[3]) as i:\n'
              '    for at in range(0, len(data), 1 << 20): i.write(data[at:at + (1 << 20)], at)\n')
    cluster.run('/usr/bin/python3', '-c', script, cluster.conf, rbd_pool, name, stdin=disk())
    yield spec
    cluster.rbd('snap', 'purge', '--no-progress', spec)
    cluster.rbd('rm', '--no-progress', spec)


def used(cluster, spec):
    return cluster.rbd_json('du', spec)['images'][-1]['used_size']


def extents(cluster, spec):
    return [(e['offset'], e['length']) for e in cluster.rbd_json('diff', spec)]


def digest(cluster, spec):
    return hashlib.sha256(cluster.rbd('export', '--no-progress', spec, '-').out_bytes).hexdigest()


def test_sparsify_du_diff(cluster, written):
    data = hashlib.sha256(disk()).hexdigest()
    assert digest(cluster, written) == data
    assert (used(cluster, written), extents(cluster, written)) == (SIZE, WHOLE)
    cluster.rbd('sparsify', '--no-progress', '--sparse-size', '4096', written)
    assert digest(cluster, written) == data
    assert (used(cluster, written), extents(cluster, written)) == (25165824, SPARSE)
    assert len(cluster.rbd_json('diff', '--whole-object', written)) == 6
    # A diff of the sparse image brings the same disk elsewhere.
    diff = cluster.rbd('export-diff', '--no-progress', written, '-').out_bytes
    assert 0 < len(diff) - sum(length for _, length in SPARSE) < 1000
    other = written + '-copy'
    cluster.rbd('create', '--size', '64M', other)
    cluster.rbd('import-diff', '--no-progress', '-', other, stdin=diff)
    assert digest(cluster, other) == data
    cluster.rbd('rm', '--no-progress', other)
    # Beneath a snapshot the old state stays.
    cluster.rbd('snap', 'create', '--no-progress', written + '@s')
    cluster.rbd('bench', '--io-type', 'write', '--io-total', '64K', '--io-size', '4K', '--io-pattern', 'seq', written)
    now = digest(cluster, written)
    cluster.rbd('sparsify', '--no-progress', '--sparse-size', '65536', written)
    assert (digest(cluster, written), digest(cluster, written + '@s')) == (now, data)
    assert extents(cluster, written + '@s') == SPARSE
    cluster.rbd_fails(['sparsify', '--sparse-size', '1000', written], 22, 'Invalid argument')


def test_fuse(cluster, written, tmp_path):
    if not os.path.exists('/dev/fuse') or os.geteuid() != 0:
        pytest.skip('needs /dev/fuse and root')
    pool, name = written.split('/')
    there = tmp_path / 'mnt'
    there.mkdir()
    proc = cluster.popen('rbd-fuse', '-f', '-c', cluster.conf, '-p', pool, there)
    try:
        wait_until(lambda: os.path.ismount(there), 30, 0.1, 'the mount')
        assert name in os.listdir(there) and (there / name).stat().st_size == SIZE
        assert (there / name).read_bytes() == disk()
        piece = random.Random(4).randbytes(2 * MIB)
        with open(there / name, 'r+b') as f:
            f.seek(3 * MIB + 77)
            f.write(piece)
        (there / 'fused').touch()
        assert 'fused' in cluster.rbd_json('ls', pool)
        os.rename(there / 'fused', there / 'fused2')
        assert 'fused2' in cluster.rbd_json('ls', pool)
        # rbd-fuse keeps its list of names, and takes a new one when the folder is read.
        wait_until(lambda: 'fused2' in os.listdir(there) and (there / 'fused2').exists(), 30, 0.1, 'the new name')
        os.truncate(there / 'fused2', 8 * MIB)
        assert cluster.rbd_json('info', pool + '/fused2')['size'] == 8 * MIB
    finally:
        run(['umount', there], check=None)
        proc.wait(60)
    data = bytearray(disk())
    data[3 * MIB + 77:5 * MIB + 77] = piece
    assert digest(cluster, written) == hashlib.sha256(data).hexdigest()
    cluster.rbd('rm', '--no-progress', pool + '/fused2')


def test_nbd_without_its_module(cluster, written):
    """Mapping needs the kernel's module nbd; where it is missing, the rest of the program works."""
    if os.path.exists('/sys/module/nbd'):
        pytest.skip('the module nbd is here: this test is about hosts without it')
    assert cluster.run('rbd-nbd', 'list-mapped').out == ''
    assert cluster.rbd('device', 'list', '-t', 'nbd').out == ''
    for verb in ('unmap', 'detach'):
        r = cluster.run('rbd-nbd', verb, written, check=1)
        assert 'is not mapped' in r.err, r
    r = cluster.run('rbd-nbd', 'map', written, check=1)
    assert 'failed to find unused device' in r.err, r
