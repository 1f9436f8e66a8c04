"""QEMU's block layer over `rbd:`: convert, info, compare, qemu-io patterns at the edges of objects,
discard, write zeroes, internal snapshots, resize; the qcow2 that goes in is the one that comes out."""
import json
import os
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, pattern, sha
from skeptest.run import end_group, run


def qemu_io(images, name, *commands):
    argv = ['qemu-io', '-f', 'raw']
    for c in commands:
        argv += ['-c', c]
    r = images.cluster.run(*argv, images.url(name), timeout=60)
    assert 'verification failed' not in r.out and 'failed' not in r.err, r
    return r


def test_convert_in_and_out(cluster, images, tmp_path):
    data = pattern(24 * MIB)
    (tmp_path / 'raw').write_bytes(data)
    run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', tmp_path / 'raw', tmp_path / 'in.qcow2'])
    name = unique('image')
    cluster.run('qemu-img', 'convert', '-f', 'qcow2', '-O', 'raw', tmp_path / 'in.qcow2', images.url(name), timeout=60)
    assert sha(images.read(name)) == sha(data)
    cluster.run('qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', images.url(name), tmp_path / 'out.qcow2', timeout=60)
    assert 'identical' in run(['qemu-img', 'compare', tmp_path / 'in.qcow2', tmp_path / 'out.qcow2']).out
    assert 'identical' in cluster.run('qemu-img', 'compare', '-f', 'raw', '-F', 'qcow2', images.url(name),
                                      tmp_path / 'in.qcow2').out


def test_create_info_resize(cluster, images):
    name = unique('image')
    cluster.run('qemu-img', 'create', '-f', 'raw', images.url(name), '30M')
    doc = json.loads(cluster.run('qemu-img', 'info', '--output', 'json', '-f', 'raw', images.url(name)).out)
    assert (doc['virtual-size'], doc['format'], doc['cluster-size']) == (30 * MIB, 'raw', 4 * MIB), doc
    cluster.run('qemu-img', 'resize', '-f', 'raw', images.url(name), '50M')
    assert images.info(name)['size'] == 50 * MIB
    cluster.run('qemu-img', 'info', '-f', 'raw', images.url('nosuch'), check=1)


@pytest.mark.parametrize('offset, length', [
    (0, 512), (4 * MIB - 512, 1024), (4 * MIB - 4096, 8192), (3 * MIB, 9 * MIB), (12345, 54321), (64 * MIB - 512, 512)])
def test_patterns_over_object_edges(images, offset, length):
    name = images.create(64 * MIB)
    qemu_io(images, name, 'write -P 0x5a %d %d' % (offset, length), 'flush',
            'read -P 0x5a %d %d' % (offset, length))
    commands = ['read -P 0x5a %d %d' % (offset, length)]        # and again by a client that never wrote it
    if offset:
        commands.append('read -P 0 0 %d' % offset)
    if offset + length < 64 * MIB:
        commands.append('read -P 0 %d %d' % (offset + length, 64 * MIB - offset - length))
    qemu_io(images, name, *commands)


def test_overlapping_writes_in_flight(images):
    name = images.create(16 * MIB)
    qemu_io(images, name, *['aio_write -P %d %d 64k' % (1 + i % 250, i * 65536) for i in range(128)], 'aio_flush')
    qemu_io(images, name, *['read -P %d %d 64k' % (1 + i % 250, i * 65536) for i in range(128)])


def test_discard_and_write_zeroes(images):
    name = images.create(32 * MIB)
    prefix = images.info(name)['block_name_prefix']
    qemu_io(images, name, 'write -P 1 0 32M', 'discard 4M 8M', 'discard 17M 1M', 'write -z 20M 4M', 'write -z -u 25M 64k')
    qemu_io(images, name, 'read -P 1 0 4M', 'read -P 0 4M 8M', 'read -P 1 12M 5M', 'read -P 0 17M 1M', 'read -P 1 18M 2M',
            'read -P 0 20M 4M', 'read -P 1 24M 1M', 'read -P 0 25M 64k', 'read -P 1 26M 6M')
    objects = [o for o in images.cluster.rados(images.pool, 'ls').out.split() if o.startswith(prefix)]
    assert len(objects) <= 6, 'discarded whole objects should be gone: %s' % objects


def test_internal_snapshots(cluster, images):
    name = images.create(8 * MIB)
    qemu_io(images, name, 'write -P 1 0 4M')
    cluster.run('qemu-img', 'snapshot', '-c', 'first', images.url(name))
    qemu_io(images, name, 'write -P 2 0 4M')
    assert 'first' in cluster.run('qemu-img', 'snapshot', '-l', images.url(name)).out
    assert [s['name'] for s in cluster.rbd_json('snap', 'ls', images.spec(name))] == ['first']
    cluster.run('qemu-img', 'snapshot', '-a', 'first', images.url(name))
    qemu_io(images, name, 'read -P 1 0 4M', 'read -P 0 4M 4M')
    cluster.run('qemu-img', 'snapshot', '-d', 'first', images.url(name))
    assert cluster.rbd_json('snap', 'ls', images.spec(name)) == []


def test_qcow2_overlay_on_an_image(cluster, images, tmp_path):
    """A local overlay whose backing file is an rbd image: reads through, writes stay local."""
    data = pattern(8 * MIB, holes=False)
    name = images.load(data)
    overlay = tmp_path / 'overlay.qcow2'
    cluster.run('qemu-img', 'create', '-f', 'qcow2', '-F', 'raw', '-b', images.url(name), overlay)
    cluster.run('qemu-io', '-f', 'qcow2', '-c', 'write -P 7 1M 64k', overlay)
    cluster.run('qemu-img', 'convert', '-f', 'qcow2', '-O', 'raw', overlay, tmp_path / 'flat')
    assert (tmp_path / 'flat').read_bytes() == data[:MIB] + b'\7' * 65536 + data[MIB + 65536:]
    assert images.read(name) == data


def test_image_on_clone(cluster, images):
    data = os.urandom(12 * MIB)
    parent, child = images.load(data), unique('clone')
    images.snap(parent, 's', protect=True)
    cluster.rbd('clone', images.spec(parent, 's'), images.spec(child))
    qemu_io(images, child, 'write -P 9 4194000 1000', 'discard 8M 4M')
    got = images.read(child)
    assert got[:4194000] == data[:4194000] and got[4194000:4195000] == b'\t' * 1000
    assert got[4195000:8 * MIB] == data[4195000:8 * MIB] and got[8 * MIB:] == bytes(4 * MIB)
    assert images.read(parent) == data


def test_export_by_nbd(cluster, images, tmp_path):
    """qemu-nbd serves an image: what hypervisors without an rbd driver do."""
    data = pattern(8 * MIB)
    name = images.load(data)
    sock = tmp_path / 's'
    server = cluster.popen('qemu-nbd', '-f', 'raw', '-t', '-k', sock, images.url(name), stdout=subprocess.DEVNULL)
    try:
        from skeptest.run import wait_until
        wait_until(sock.exists, what='qemu-nbd')
        url = 'nbd+unix:///?socket=%s' % sock
        run(['qemu-img', 'convert', '-f', 'raw', '-O', 'raw', url, tmp_path / 'out'])
        assert (tmp_path / 'out').read_bytes() == data
        run(['qemu-io', '-f', 'raw', '-c', 'write -P 3 1M 4k', '-c', 'flush', url])
    finally:
        end_group(server, 15)
        server.wait(60)
    assert images.read(name)[MIB:MIB + 4096] == b'\3' * 4096
