"""`skep backup`: images that stock rbd made, wrote and compares; repositories that stock restic reads.

What needs no cluster (a wrong key, a flipped byte, a cut-off write, retention) is tried here on repositories made of real images."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary

SIZE = 24 * MIB
RESTIC_S = 120


class Tool:
    """`skep backup` on one repository."""

    def __init__(self, cluster, pool, tmp_path):
        self.cluster, self.pool = cluster, pool
        self.repo, self.key = tmp_path / 'repo', tmp_path / 'key'
        self.key.write_text('three in the morning\n')
        self.cache = tmp_path / 'cache'

    def argv(self, command, *args, key=None):
        of_cluster = ['-c', self.cluster.conf] if command in ('run', 'restore', 'trial') else []
        return [find_binary(), 'backup', command, '--key-file', key or self.key, *of_cluster, *args]

    def __call__(self, command, *args, key=None, **kw):
        return run(self.argv(command, *args, key=key), **kw)

    def json(self, command, *args, **kw):
        return json.loads(self(command, '-f', 'json', *args, **kw).out)

    def init(self):
        self('init', self.repo)
        return self

    def run(self, name, **kw):
        """One image's row."""
        row, = self.json('run', '--of', '%s/%s' % (self.pool, name), '--to', self.repo, **kw)
        return row

    def restored(self, images, spec):
        """What an image has that was made of this backup."""
        name = unique('restored')
        self('restore', self.repo, spec, '--to', '%s/%s' % (self.pool, name))
        return images.read(name)

    def restic(self, *args, **kw):
        env = {'RESTIC_CACHE_DIR': str(self.cache)}
        argv = ['restic', '-r', self.repo, '--password-file', self.key, *args]
        return run(argv, env=env, timeout=RESTIC_S, **kw)

    def packs(self):
        return sorted(p for p in (self.repo / 'data').glob('*/*') if len(p.name) == 64)


@pytest.fixture
def tool(cluster, rbd_pool, tmp_path):
    return Tool(cluster, rbd_pool, tmp_path).init()


def changed(images, name, data, at, length):
    """Writes at a place of the image by QEMU; what it has then."""
    new = os.urandom(length)
    images.write(name, at, new)
    return data[:at] + new + data[at + length:]


def ours(cluster, images, name):
    """Snapshots of ours on the image."""
    snaps = cluster.rbd_json('snap', 'ls', images.spec(name))
    return [s['name'] for s in snaps if s['name'].startswith('skep-backup.')]


def test_incremental_backups_restore_byte_for_byte(cluster, images, tool):
    first = pattern(SIZE)
    name = images.load(first)
    cluster.rbd('image-meta', 'set', images.spec(name), 'owner', 'me')
    one = tool.run(name)
    assert one['way'] == 'whole' and one['read'] == SIZE, one
    second = changed(images, name, first, 9 * MIB + 4096, 64 << 10)
    two = tool.run(name)
    # One object of 4 MiB was looked at, and one piece of 1 MiB of it is new.
    assert (two['way'], two['read']) == ('fast-diff', 4 * MIB), two
    assert 64 << 10 <= two['stored'] <= MIB + 4096, two
    assert len(ours(cluster, images, name)) == 1, 'the snapshot of the newest stays'
    rows = tool.json('ls', tool.repo)
    assert [r['id'] for r in rows] == [one['id'], two['id']], rows
    assert tool.restored(images, '%s@%s' % (name, one['time'])) == first
    assert tool.restored(images, '%s@%s' % (name, two['id'][:8])) == second
    # A new image is like the old one, and nothing that exists is touched.
    copy = unique('restored')
    tool('restore', tool.repo, name + '@latest', '--to', images.spec(copy))
    assert cluster.rbd('image-meta', 'get', images.spec(copy), 'owner').out.strip() == 'me'
    assert images.info(copy)['features'] == images.info(name)['features']
    refused = tool('restore', tool.repo, name + '@latest', '--to', images.spec(name), check='fails')
    assert 'exists, and is left alone' in refused.err, refused
    assert images.read(name) == second
    # Nothing changed: nothing is read.
    three = tool.run(name)
    assert (three['read'], three['stored']) == (0, 0), three
    tried = tool.json('trial', tool.repo, name + '@latest')
    assert tried[0]['compared'] is True, tried


def test_stock_restic_reads_it(images, tool, tmp_path):
    data = pattern(SIZE)
    name = images.load(data)
    tool.run(name)
    data = changed(images, name, data, 5 * MIB, MIB)
    tool.run(name)
    assert len(json.loads(tool.restic('snapshots', '--json').out)) == 2
    dump = tool.restic('dump', 'latest', '/%s/%s.raw' % (tool.pool, name))
    assert dump.out_bytes == data
    checked = tool.restic('check', '--read-data')
    assert 'no errors were found' in checked.out, checked
    about = json.loads(tool.restic('dump', 'latest', '/%s/%s.json' % (tool.pool, name)).out)
    assert (about['image'], about['size']) == (name, SIZE), about
    # And what restic does to it we read: forgotten and pruned there, still whole here.
    tool.restic('forget', '--keep-last', '1', '--prune')
    assert len(tool.json('ls', tool.repo)) == 1
    assert tool.json('verify', '--read-all', tool.repo)['findings'] == []
    assert tool.restored(images, name + '@latest') == data


def test_without_object_map_and_other_layouts(images, tool):
    """The clones of each object say what changed; stripes and small objects are pieces, too."""
    name = images.create(8 * MIB + 512, '--image-feature', 'layering', '--object-size', '64K',
                         '--stripe-unit', '16K', '--stripe-count', '4')
    data = pattern(3 * MIB)
    images.write(name, 2 * MIB, data)
    whole = bytes(2 * MIB) + data + bytes(3 * MIB + 512)
    assert tool.run(name)['way'] == 'whole'
    whole = changed(images, name, whole, 8 * MIB, 512)
    row = tool.run(name)
    assert row['way'] == 'clones' and row['read'] < 2 * MIB, row
    assert tool.restored(images, name + '@latest') == whole


def test_sizes_change(cluster, images, tool):
    data = pattern(10 * MIB + 512)
    name = images.load(data)
    tool.run(name)
    for size, want in ((6 * MIB + 1024, data[:6 * MIB + 1024]),
                       (11 * MIB, data[:6 * MIB + 1024] + bytes(5 * MIB - 1024))):
        cluster.rbd('resize', images.spec(name), '--size', '%dB' % size, '--allow-shrink')
        tool.run(name)
        assert tool.restored(images, name + '@latest') == want


def test_snapshots_and_clones(cluster, images, tool):
    """Snapshots of users between ours hide nothing; a clone's backup is whole, and needs no parent to be restored."""
    base = pattern(SIZE)
    parent = images.load(base)
    images.snap(parent, 'base', protect=True)
    clone = unique('clone')
    cluster.rbd('clone', images.spec(parent, 'base'), images.spec(clone))
    data = changed(images, clone, base, 6 * MIB, 4096)
    tool.run(clone)
    data = changed(images, clone, data, 13 * MIB, 4096)
    images.snap(clone, 'users')
    data = changed(images, clone, data, 17 * MIB, 4096)
    row = tool.run(clone)
    assert (row['way'], row['read']) == ('fast-diff', 8 * MIB), row
    assert tool.restored(images, clone + '@latest') == data
    assert [s['name'] for s in cluster.rbd_json('snap', 'ls', images.spec(clone))][0] == 'users'
    # Flattened it reads from no parent any more: the next backup looks at all of it, and stores nothing.
    cluster.rbd('flatten', images.spec(clone))
    row = tool.run(clone)
    assert row['stored'] == 0, row
    assert tool.restored(images, clone + '@latest') == data


@pytest.mark.parametrize('stays', (True, False))
def test_rolled_back_between_backups(cluster, images, tool, stays):
    """A rollback takes the object map along: what it changed may be clean there. Also when its snapshot goes afterwards."""
    base = pattern(SIZE)
    name = images.load(base)
    images.snap(name, 'u0')
    images.snap(name, 'u1')
    written = changed(images, name, base, 9 * MIB, MIB)
    tool.run(name)
    assert tool.restored(images, name + '@latest') == written
    cluster.rbd('snap', 'rollback', images.spec(name, 'u1'))
    if not stays:
        for snap in ('u0', 'u1'):
            cluster.rbd('snap', 'rm', images.spec(name, snap))
    row = tool.run(name)
    assert tool.restored(images, name + '@latest') == base
    assert row['way'] == 'clones', row
    # Nobody can roll back beyond it: maps are believed again.
    if not stays:
        assert tool.run(name)['way'] == 'fast-diff'


def test_an_image_that_is_written_meanwhile(cluster, images, tool):
    """fio holds the exclusive lock and writes: the snapshot is taken by agreement with it, and it goes on."""
    name = images.create(16 * MIB)
    fio = cluster.popen(
        'fio', '--name=w', '--ioengine=rbd', '--clientname=admin', '--pool=' + images.pool, '--rbdname=' + name,
        '--rw=randwrite', '--bs=4k', '--iodepth=4', '--time_based', '--runtime=8', '--rate_iops=200',
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: 'watcher=' in cluster.rbd('status', images.spec(name)).out, what='fio')
        for _ in range(2):
            row = tool.run(name)
            tried = tool.json('trial', tool.repo, name + '@' + row['id'][:8])
            assert tried[0]['compared'] is True, tried
        out, _ = fio.communicate(timeout=90)
        assert fio.returncode == 0, out
    finally:
        fio.kill()
    assert tool.json('verify', '--read-all', tool.repo)['findings'] == []


def test_killed_in_the_midst(images, tool):
    """Old backups stay whole, the next one goes on, and prune takes away what was left."""
    data = pattern(SIZE)
    name = images.load(data)
    tool.run(name)
    big = images.load(os.urandom(2 * SIZE))
    before = set(tool.packs())
    proc = popen(tool.argv('run', '--of', '%s/%s' % (tool.pool, big), '--to', tool.repo))
    try:
        wait_until(lambda: set(tool.packs()) != before or proc.poll() is not None, every=0.01, what='a pack')
        proc.send_signal(signal.SIGKILL)
        proc.wait(60)
        assert proc.returncode == -signal.SIGKILL, 'it was too fast to be killed'
    finally:
        proc.kill()
    report = tool.json('verify', '--read-all', tool.repo)
    assert report['findings'] == [] and report['backups'] == 1, report
    assert report['unneeded'] > 0, report
    tool('prune', tool.repo)
    report = tool.json('verify', '--read-all', tool.repo)
    assert (report['findings'], report['unneeded']) == ([], 0), report
    assert set(tool.packs()) == before
    assert tool.restored(images, name + '@latest') == data
    # Its process is gone, so nobody waits for its lease; its snapshot goes with the next backup.
    tool.run(big)
    assert len(ours(images.cluster, images, big)) == 1


def test_what_it_relies_on_goes_while_it_reads(cluster, images, tool):
    """The snapshot, of which the OSDs then say zeros; the lease, whose next holder removes the snapshot: that is no backup."""
    # Without the exclusive lock, which who is stopped would not hand over.
    name = images.load(os.urandom(2 * SIZE), '--image-feature', 'layering')
    header = 'rbd_header.' + images.info(name)['id']

    def snapshot_goes():
        snap, = ours(cluster, images, name)
        # It waits for the one that is stopped to hear of it.
        started.append(cluster.popen('rbd', 'snap', 'rm', images.spec(name, snap)))
        wait_until(lambda: not ours(cluster, images, name), what='the snapshot goes')

    def lease_goes():
        info = cluster.rados(images.pool, 'lock', 'info', header, 'skep_backup', '--format', 'json')
        locker, = json.loads(info.out)['lockers']
        cluster.rados(images.pool, 'lock', 'break', header, 'skep_backup', locker['name'],
                      '--lock-cookie', locker['cookie'])

    for goes, says in ((snapshot_goes, b'removed while it was read'), (lease_goes, b'lease on the image was lost')):
        before = set(tool.packs())
        started = [popen(tool.argv('run', '--of', images.spec(name), '--to', tool.repo),
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)]
        try:
            wait_until(lambda: set(tool.packs()) != before or started[0].poll() is not None, every=0.01, what='a pack')
            started[0].send_signal(signal.SIGSTOP)
            goes()
            started[0].send_signal(signal.SIGCONT)
            _, err = started[0].communicate(timeout=120)
            assert started[0].returncode == 1 and says in err, (goes, err)
            for other in started[1:]:
                other.wait(60)
        finally:
            for proc in started:
                proc.kill()
        assert tool.json('ls', tool.repo) == []
        # What was stored is stored again, so that packs tell how far it is.
        tool('prune', tool.repo)
    data = images.read(name)
    tool.run(name)
    assert tool.restored(images, name + '@latest') == data


def test_wrong_key_and_no_repository(tool, tmp_path):
    other = tmp_path / 'other'
    other.write_text('another')
    for command in ('ls', 'verify', 'prune'):
        refused = tool(command, tool.repo, key=other, check='fails')
        assert 'does not open the repository' in refused.err, refused
    assert 'there is no repository' in tool('ls', tmp_path / 'none', check='fails').err
    assert 'already' in tool('init', tool.repo, check='fails').err
    assert 'not built yet' in tool('init', 's3:bucket', check='fails').err
    empty = tmp_path / 'empty'
    empty.write_text('\n')
    assert 'empty' in tool('ls', tool.repo, key=empty, check='fails').err
    assert 'no key file' in tool('ls', tool.repo, key=tmp_path / 'none', check='fails').err


def flip(path, at):
    with open(path, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)
        f.seek(at)
        f.write(bytes([byte[0] ^ 1]))


def test_a_flipped_byte_is_named(images, tool):
    name = images.load(os.urandom(3 * MIB))
    tool.run(name)
    other = images.load(os.urandom(MIB))
    before = set(tool.packs())
    tool.run(other)
    # A pack with data of one backup alone: that of the folders is smaller.
    pack = max(set(tool.packs()) - before, key=lambda p: p.stat().st_size)
    flip(pack, 1000)
    assert tool.json('verify', tool.repo)['findings'] == [], 'data are not read unasked'
    report = tool('verify', '--read-all', tool.repo, check='fails')
    line = report.out.splitlines()[0]
    assert 'data/%s/%s' % (pack.parent.name, pack.name) in line and 'not what was written' in line, report
    assert '%s/%s@' % (tool.pool, other) in line and name not in line, report
    refused = tool('restore', tool.repo, other + '@latest', '--to', images.spec(unique('no')), check='fails')
    assert 'not what was written' in refused.err, refused
    assert 'TRIAL FAILED' in tool('trial', tool.repo, other + '@latest', check='fails').err
    tool.restored(images, name + '@latest')
    flip(pack, 1000)
    assert tool.json('verify', '--read-all', tool.repo)['findings'] == []
    os.truncate(pack, pack.stat().st_size - 1)
    assert 'bytes in place of' in tool('verify', tool.repo, check='fails').out
    pack.unlink()
    assert 'missing' in tool('verify', tool.repo, check='fails').out
    # What is lost is taken out, and the next backup reads and stores all of the image again.
    lost = tool.json('ls', tool.repo)[-1]
    tool('repair', tool.repo)
    assert 'in no pack' in tool('verify', tool.repo, check='fails').out
    row = tool.run(other)
    assert row['way'] == 'whole' and row['stored'] >= MIB, row
    # What described the older one was in the same pack: its data are there again, but it is not whole.
    report = tool('verify', '--read-all', tool.repo, check='fails')
    assert lost['id'][:8] in report.out and row['id'][:8] not in report.out, report
    tool('rm', tool.repo, '%s@%s' % (other, lost['id'][:8]))
    report = tool.json('verify', '--read-all', tool.repo)
    assert (report['findings'], report['backups']) == ([], 2), report
    tool.restored(images, other + '@latest')


def test_nothing_is_written_without_a_lock(images, tool):
    data = pattern(MIB)
    name = images.load(data)
    tool.run(name)
    written = [p.stat().st_mtime_ns for p in (tool.repo, *sorted(tool.repo.rglob('*')))]
    assert tool.json('verify', '--no-lock', '--read-all', tool.repo)['findings'] == []
    assert tool.json('trial', '--no-lock', tool.repo, name + '@latest')[0]['compared'] is True
    copy = unique('restored')
    tool('restore', '--no-lock', tool.repo, name + '@latest', '--to', images.spec(copy))
    assert images.read(copy) == data
    assert [p.stat().st_mtime_ns for p in (tool.repo, *sorted(tool.repo.rglob('*')))] == written
    tool('verify', tool.repo)
    assert [p.stat().st_mtime_ns for p in (tool.repo, *sorted(tool.repo.rglob('*')))] != written, 'a lock shows'


def test_retention(images, tool):
    """Which go by which rules is tested in crates/backup; here that they go, with their data, and the others stay."""
    data = os.urandom(4 * MIB)
    name = images.load(data)
    other = images.load(os.urandom(MIB))
    tool.run(other)
    for n in range(3):
        data = changed(images, name, data, n * MIB, MIB)
        tool.run(name)
    size = sum(p.stat().st_size for p in tool.packs())
    dry = tool.json('prune', '--dry-run', '--keep', '1w:1w', tool.repo)
    assert len(dry['would_go']) == 2 and len(tool.json('ls', tool.repo)) == 4, dry
    done = tool.json('prune', '--keep', '1w:1w', tool.repo)
    assert done['gone'] == dry['would_go'] and done['kept'] == 2, done
    assert {r['image'].split('/')[1] for r in tool.json('ls', tool.repo)} == {name, other}
    assert sum(p.stat().st_size for p in tool.packs()) < size - MIB
    assert tool.json('verify', '--read-all', tool.repo)['findings'] == []
    assert tool.restored(images, name + '@latest') == data
    assert 'is no SPAN:EVERY' in tool('prune', '--keep', 'x', tool.repo, check='fails').err


def test_one_at_a_time(cluster, images, tool):
    """Another's lease keeps a second backup off; who removes is alone on the repository."""
    name = images.load(pattern(2 * MIB))
    header = 'rbd_header.' + images.info(name)['id']
    cluster.rados(images.pool, 'lock', 'get', header, 'skep_backup', '--lock-cookie', 'elsewhere:1:1',
                  '--lock-type', 'exclusive')
    args = ('run', '--of', images.spec(name), '--to', tool.repo)
    refused = tool(*args, check='fails')
    assert 'another backup of the image runs (elsewhere:1:1)' in refused.err, refused
    locker = json.loads(cluster.rados(images.pool, 'lock', 'info', header, 'skep_backup', '--format', 'json').out)
    cluster.rados(images.pool, 'lock', 'break', header, 'skep_backup', locker['lockers'][0]['name'],
                  '--lock-cookie', 'elsewhere:1:1')
    tool(*args)
    assert not pathlib.Path(tool.repo, 'locks').exists() or not list((tool.repo / 'locks').iterdir())


HOLDER = '''
import rados, rbd, sys
with rados.Rados(conffile=sys.argv[1], name='client.admin') as cluster, cluster.open_ioctx(sys.argv[2]) as io:
    with rbd.Image(io, sys.argv[3]) as image:
        image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        image.write(b'held', 0)
        print('held', flush=True)
        sys.stdin.read()
'''


def test_a_client_that_keeps_the_lock_takes_the_snapshot(cluster, images, tool):
    """As with `rbd device map --exclusive`: it does not hand the lock over, and is asked to do it itself."""
    data = pattern(2 * MIB)
    name = images.load(data)
    holder = cluster.popen(sys.executable, '-I', '-c', HOLDER, cluster.conf, images.pool, name,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b'held\n'
        tool.run(name)
        row = tool.run(name)
        assert row['way'] == 'fast-diff' and row['read'] == 0, row
        assert len(ours(cluster, images, name)) == 1
        holder.communicate(timeout=60)
        assert holder.returncode == 0
    finally:
        holder.kill()
    assert tool.restored(images, name + '@latest') == b'held' + data[4:]
