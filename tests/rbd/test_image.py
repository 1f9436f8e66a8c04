"""`skep image import` and `skep image export` with files that stock qemu-img made and compares, and images that stock rbd reads."""
import json
import os
import signal
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary

SIZE = 96 * MIB + 512
# How qemu-img is told to make them: suffix, format, options.
FORMATS = [
    ('qcow2', 'qcow2', []),
    ('qcow2', 'qcow2', ['-c']),
    ('qed', 'qed', []),
    ('vmdk', 'vmdk', []),
    ('vmdk', 'vmdk', ['-o', 'subformat=streamOptimized']),
    ('vdi', 'vdi', []),
    ('vhdx', 'vhdx', []),
    ('vhd', 'vpc', ['-o', 'force_size=on']),
]


@pytest.fixture(scope='module')
def disk(workdir):
    """A raw disk: three stretches of data, of which one crosses pieces; the rest are holes."""
    path = workdir / unique('disk.raw')
    with open(path, 'wb') as f:
        f.truncate(SIZE)
        for at in (0, 7 * MIB, SIZE - MIB):
            f.seek(at)
            f.write(pattern(MIB) if at != 7 * MIB else pattern(3 * MIB))
    yield path
    path.unlink()


class Tool:
    """`skep image` on one pool."""

    def __init__(self, cluster, pool):
        self.cluster, self.pool = cluster, pool

    def argv(self, command, *args):
        return [find_binary(), 'image', command, '-c', self.cluster.conf, '-p', self.pool, *args]

    def __call__(self, command, *args, **kw):
        return run(self.argv(command, *args), **kw)

    def json(self, command, *args, **kw):
        return json.loads(self(command, '-f', 'json', *args, **kw).out)

    def refused(self, command, *args, says, **kw):
        r = self(command, *args, check='fails', **kw)
        assert says in r.err, r
        return r

    def names(self):
        return set(self.cluster.rbd('ls', self.pool).out.split())


@pytest.fixture
def tool(cluster, rbd_pool):
    return Tool(cluster, rbd_pool)


def make(disk, path, fmt, options=()):
    run(['qemu-img', 'convert', '-f', 'raw', '-O', fmt, *options, disk, path])
    return path


def checksum(path):
    """As docs/operating/images.md says that anybody can compute it."""
    lines = run(['sh', '-c', "split -b 4M --filter='sha256sum | cut -c1-64' \"$0\" | sha256sum", path]).out
    return 'sha256-4M:' + lines.split()[0]


def test_every_format_at_once(tool, images, disk, tmp_path):
    files = [disk]
    for suffix, fmt, options in FORMATS:
        files.append(make(disk, tmp_path / ('%s.%s' % (unique('disk'), suffix)), fmt, options))
    rows = tool.json('import', '--jobs', '4', *files)
    assert [r['file'] for r in rows] == [str(f) for f in files]
    assert [r['format'] for r in rows] == ['raw'] + [suffix for suffix, _, _ in FORMATS]
    want = checksum(disk)
    used = {r['name']: r for r in images.cluster.rbd_json('du', '-p', images.pool)['images']}
    for row, file in zip(rows, files):
        name = file.name.rpartition('.')[0]
        assert (row['image'], row['size'], row['checksum']) == ('%s/%s' % (images.pool, name), SIZE, want), row
        assert row['verified'] is True
        # Data in 1 + 1 (7 to 10 MiB lies in two objects) + 2 objects of 25, the last one short.
        assert used[name]['provisioned_size'] == SIZE and used[name]['used_size'] == row['data'] <= 5 * 4 * MIB, used[name]
        images.cluster.run('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', disk, images.url(name), timeout=60)
    out = tmp_path / 'exported'
    images.cluster.rbd('export', images.spec(rows[3]['image'].split('/')[1]), out, timeout=60)
    assert out.read_bytes() == disk.read_bytes()


def test_export_to_every_format(tool, images, disk, tmp_path):
    name = unique('image')
    assert ' verified, ' in tool('import', disk, '--image', name).out
    want = checksum(disk)
    for fmt in ('raw', 'qcow2', 'qed', 'vmdk', 'vdi', 'vhdx'):
        out = tmp_path / ('back.' + fmt)
        row, = tool.json('export', name, '-o', out)
        assert (row['format'], row['size'], row['checksum'], row['file']) == (fmt, SIZE, want, str(out)), row
        assert json.loads(run(['qemu-img', 'info', '--output', 'json', out]).out)['format'] == fmt
        run(['qemu-img', 'compare', '-f', 'raw', '-F', fmt, disk, out])
        assert out.stat().st_blocks * 512 < 32 * MIB, 'not sparse'
        assert out.stat().st_mode & 0o777 == 0o600


def test_snapshots_and_several_exports(tool, images, tmp_path):
    data = pattern(9 * MIB)
    name = images.load(data)
    images.snap(name, 'before')
    images.write(name, 0, b'x' * 4096)
    rows = tool.json('export', name, name + '@before', '--dir', tmp_path)
    assert [r['file'] for r in rows] == [str(tmp_path / ('%s.raw' % n)) for n in (name, name + '@before')]
    assert (tmp_path / (name + '@before.raw')).read_bytes() == data
    assert (tmp_path / (name + '.raw')).read_bytes() == b'x' * 4096 + data[4096:]


def test_layout_data_pool_and_odd_sizes(tool, cluster, images, tmp_path):
    data_pool = cluster.make_pool('rbd')
    disk = tmp_path / 'odd.img'
    data = pattern(5 * MIB) + b'end'
    disk.write_bytes(data)
    name = unique('image')
    tool('import', disk, '--image', name, '--object-size', '16K', '--data-pool', data_pool)
    info = images.info(name)
    assert (info['size'], info['order'], info['data_pool']) == (len(data), 14, data_pool), info
    assert images.read(name) == data
    for fmt in ('raw', 'qcow2'):
        tool('export', name, '-o', tmp_path / ('odd.' + fmt))
    assert (tmp_path / 'odd.raw').read_bytes() == data
    run(['qemu-img', 'compare', '-f', 'raw', '-F', 'qcow2', disk, tmp_path / 'odd.qcow2'])
    empty = tmp_path / 'empty.img'
    empty.write_bytes(b'')
    row, = tool.json('import', empty, '--image', unique('image'))
    assert row['size'] == 0 and row['checksum'] == checksum(empty)
    cluster.rbd('rm', images.spec(name), timeout=60)
    cluster.drop_pool(data_pool)


def test_broken_and_dangerous_files(tool, disk, tmp_path):
    """None of them becomes an image, and those beside them do."""
    secret = tmp_path / 'secret.raw'
    secret.write_bytes(pattern(MIB))
    backed, apart, flat = (tmp_path / unique(n) for n in ('backed.qcow2', 'apart.qcow2', 'flat.vmdk'))
    run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', secret, '-F', 'raw', backed])
    run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-o', 'data_file=%s' % secret, apart, '1M'])
    run(['qemu-img', 'create', '-q', '-f', 'vmdk', '-o', 'subformat=monolithicFlat', flat, '1M'])
    child = tmp_path / 'child.vmdk'
    run(['qemu-img', 'create', '-q', '-f', 'vmdk', '-b', make(disk, tmp_path / 'parent.vmdk', 'vmdk'), '-F', 'vmdk', child])
    # What a guest can write to its raw disk.
    guest = tmp_path / unique('guest.raw')
    guest.write_bytes(backed.read_bytes() + bytes(MIB))
    rubbish = tmp_path / unique('rubbish.vhdx')
    rubbish.write_bytes(b'vhdxfile' + pattern(MIB))
    good = tmp_path / (unique('good') + '.raw')
    good.write_bytes(pattern(MIB))
    before = tool.names()
    files = [backed, apart, flat, child, guest, rubbish, tmp_path, tmp_path / 'none', good]
    r = tool('import', '-f', 'json', '--jobs', '3', *files, check='fails')
    rows = json.loads(r.out)
    for row, says in zip(rows, ['has a backing file', 'data are in another file', 'data are in other files', 'has a parent',
                                'has a backing file', 'qemu-img: ', 'neither a file nor', 'No such file', None]):
        assert says is None or says in row['error'], row
    assert '8 of 9 were not copied' in r.err, r
    assert tool.names() - before == {good.stem}
    # Said in so many words, two of them are imported.
    name = unique('image')
    tool('import', '--allow-backing', backed, '--image', name)
    out = tmp_path / 'out.raw'
    tool('export', name, '-o', out)
    assert out.read_bytes() == secret.read_bytes()
    name = unique('image')
    row, = tool.json('import', '--from', 'raw', guest, '--image', name)
    assert row['format'] == 'raw' and row['checksum'] == checksum(guest)


def test_cut_files(tool, disk, tmp_path):
    """QEMU reads zeros behind a file's end: none of its formats may come in so."""
    files = []
    for suffix, fmt, options in FORMATS:
        files.append(make(disk, tmp_path / ('%s.%s' % (unique('cut'), suffix)), fmt, options))
        os.truncate(files[-1], files[-1].stat().st_size // 2)
    before = tool.names()
    rows = json.loads(tool('import', '-f', 'json', *files, check='fails').out)
    assert [r['file'] for r in rows if 'error' not in r] == []
    says = ['cut short', 'cut short', 'cut short', 'Check failed', 'Check failed', 'cut short', 'truncated', 'truncated']
    for row, say in zip(rows, says):
        assert say in row['error'], row
    assert tool.names() == before


def test_what_is_refused(tool, images, disk, tmp_path):
    name = images.create(8 * MIB)
    before = tool.names()
    tool.refused('import', disk, '--image', name, says="image '%s' exists already" % name)
    assert images.info(name)['size'] == 8 * MIB, 'what was there stays'
    tool.refused('import', disk, '--image', 'a/b', says='no name for an image')
    tool.refused('import', disk, disk, says='two of them would become')
    tool.refused('import', disk, '--data-pool', 'no-such-pool', says='no-such-pool')
    Tool(tool.cluster, 'no-such-pool').refused('import', disk, says="pool 'no-such-pool'")
    there = tmp_path / 'there.raw'
    there.write_bytes(b'mine')
    tool.refused('export', name, '-o', there, says='exists')
    tool.refused('export', name, '-o', there, '--to', 'qcow2', says='exists')
    assert there.read_bytes() == b'mine'
    tool.refused('export', 'no-such-image', '-o', tmp_path / 'x.raw', says='no image')
    tool.refused('export', name + '@none', '-o', tmp_path / 'x.raw', says="no snapshot 'none'")
    tool.refused('export', name, '-o', tmp_path / 'x.vhd', says='vhd can be read, not written')
    tool.refused('export', name, '-o', tmp_path / 'no' / 'x.raw', says='No such file')
    assert tool.names() == before
    assert [p.name for p in tmp_path.iterdir()] == ['there.raw']


def test_without_qemu(tool, disk, tmp_path):
    """Where its tools are not installed raw files work, and the others say what is missing."""
    nowhere = {'PATH': str(tmp_path)}
    packed = make(disk, tmp_path / 'packed.qcow2', 'qcow2')
    name = unique('image')
    tool.refused('import', packed, '--image', name, env=nowhere, says='install qemu-utils')
    tool('import', disk, '--image', name, env=nowhere)
    tool('export', name, '-o', tmp_path / 'back.raw', env=nowhere)
    tool.refused('export', name, '-o', tmp_path / 'back.vdi', env=nowhere, says='install qemu-utils')
    assert not (tmp_path / 'back.vdi').exists()


SLOW_NBD = r'''#!/bin/sh
# The real one, with 2 MiB/s.
while [ $# -gt 1 ]; do
    case "$1" in --socket) socket=$2;; esac
    shift
done
exec /usr/bin/qemu-nbd --object throttle-group,id=slow,x-bps-total=2097152 --socket "$socket" --read-only --image-opts \
    "driver=throttle,throttle-group=slow,file.driver=qcow2,file.file.driver=file,file.file.filename=$1"
'''


@pytest.mark.parametrize('sig', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_import_leaves_nothing(tool, tmp_path, sig):
    slow, temporary = tmp_path / 'bin', tmp_path / 'tmp'
    slow.mkdir()
    temporary.mkdir()
    (slow / 'qemu-nbd').write_text(SLOW_NBD)
    (slow / 'qemu-nbd').chmod(0o755)
    raw = tmp_path / 'big.raw'
    raw.write_bytes(pattern(64 * MIB, holes=False))
    big, name = make(raw, tmp_path / 'big.qcow2', 'qcow2'), unique('image')
    proc = popen(tool.argv('import', big, '--image', name), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                 env={'PATH': '%s:%s' % (slow, os.environ['PATH']), 'TMPDIR': str(temporary)})
    try:
        wait_until(lambda: name in tool.names(), what='the image')
        assert list(temporary.iterdir()) == [], 'the socket stays only until it is used'
        proc.send_signal(sig)
        out, err = proc.communicate(timeout=60)
    finally:
        proc.kill()
    assert proc.returncode == 1 and b'interrupted' in err and out == b'', (proc.returncode, out, err)
    assert name not in tool.names()
    assert tool.cluster.rbd('trash', 'ls', '--all', tool.pool).out == ''
    wait_until(lambda: str(big) not in run(['ps', '-eo', 'args']).out, what='qemu-nbd to end')
