"""`ceph rbd task add migration execute|commit|abort`: migrations that stock clients prepare, done by the server."""
import contextlib
import json
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, Images, pattern, sha
from skeptest.run import end_group, run, wait_until
from skeptest.skep import find_binary

KIB = 1024


def task_list(cluster):
    return json.loads(cluster.ceph('rbd', 'task', 'list').out)


def add(cluster, step, spec):
    return json.loads(cluster.ceph('rbd', 'task', 'add', 'migration', step, spec).out)


def gone(cluster, task):
    """The task is over; what became of it is for the test to look at."""
    wait_until(lambda: all(t['id'] != task['id'] for t in task_list(cluster)), 90, 0.3, 'task %s to end' % task['message'])


def done(cluster, step, spec):
    task = add(cluster, step, spec)
    gone(cluster, task)
    past = json.loads(cluster.ceph('progress', 'json').out)['completed']
    assert all(e['message'] == task['message'] for e in past if e['id'] == task['id']), past
    return task


def failed_once(cluster, task):
    def why():
        return [t['retry_message'] for t in task_list(cluster) if t['id'] == task['id'] and 'retry_message' in t]
    return wait_until(why, 60, 0.3, 'the task to fail')[0]


def refused(cluster, step, spec, why):
    r = cluster.ceph('rbd', 'task', 'add', 'migration', step, spec, check=None)
    assert r.returncode == 22 and '[errno 22] RBD invalid argument (Image %s %s)' % (spec, why) in r.err, r


def state(cluster, spec):
    return cluster.rbd_json('status', spec).get('migration', {}).get('state')


def trashed(cluster, pool):
    return cluster.rbd_json('trash', 'ls', '--all', pool)


@contextlib.contextmanager
def watched(cluster, spec):
    """Somebody has the image open; at the end he leaves as one does."""
    watcher = cluster.popen('rbd', 'watch', spec, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: cluster.rbd_json('status', spec)['watchers'], 60, 0.3, 'the watcher')
        yield
        watcher.stdin.write(b'\n')
        watcher.stdin.close()
        assert watcher.wait(60) == 0
    finally:
        end_group(watcher)


@pytest.fixture
def two(cluster, tmp_path):
    """Two pools, the second with a namespace `n`."""
    pools = [cluster.make_pool('rbd') for _ in range(2)]
    cluster.rbd('namespace', 'create', pools[1] + '/n')
    yield [Images(cluster, pool, tmp_path) for pool in pools]
    for pool in pools:
        cluster.drop_pool(pool)


class Disk:
    """What is known to be in an image, at each of its snapshots and at its head."""

    def __init__(self, images, size=9 * MIB, args=('--object-size', '1M')):
        self.images, self.shown = images, {}
        self.data = bytearray(pattern(size))
        self.name = images.load(bytes(self.data), *args)

    def write(self, offset, size, spec=None):
        more = pattern(size, holes=False)
        self.data[offset:offset + size] = more
        images, name = self.images, self.name
        if spec:
            pool, _, name = spec.rpartition('/')
            images = Images(self.images.cluster, pool, self.images.tmp)
        images.write(name, offset, more)

    def snap(self, name):
        self.images.snap(self.name, name)
        self.shown[name] = bytes(self.data)

    def check(self, spec):
        """By `rbd export`, of all snapshots."""
        pool, _, name = spec.rpartition('/')
        images = Images(self.images.cluster, pool, self.images.tmp)
        for snap, data in list(self.shown.items()) + [(None, bytes(self.data))]:
            assert sha(images.read(name, snap)) == sha(data), (spec, snap)

    def spec(self):
        return self.images.spec(self.name)


def lived(images, **kw):
    """A disk with two snapshots, and with objects that came, changed and went between them."""
    disk = Disk(images, **kw)
    # One that is gone: what a snapshot is called in the source is not what it is called in the target.
    images.snap(disk.name, 's0')
    images.cluster.rbd('snap', 'rm', images.spec(disk.name, 's0'))
    disk.snap('s1')
    disk.write(0, 64 * KIB)
    disk.write(2 * MIB - 4 * KIB, 8 * KIB)
    images.cluster.run('qemu-io', '-f', 'raw', '-c', 'discard 3M 1M', '-c', 'flush', images.url(disk.name), timeout=60)
    disk.data[3 * MIB:4 * MIB] = bytes(MIB)
    disk.snap('s2')
    disk.write(3 * MIB + 8 * KIB, 4 * KIB)
    disk.write(7 * MIB, MIB)
    return disk


def test_an_image_with_snapshots_moves_to_another_pool(cluster, two):
    here, there = two
    disk = lived(here)
    source, target = disk.spec(), there.pool + '/n/' + unique('moved')
    ident = here.info(disk.name)['id']
    refused(cluster, 'execute', source, 'is not migrating')
    refused(cluster, 'abort', here.spec('nope'), 'is not migrating')
    cluster.rbd('migration', 'prepare', source, target)
    refused(cluster, 'commit', target, 'has not completed migration')
    disk.check(target)
    # One object by a client before, so that it must be left alone: with a piece of what was there.
    disk.write(5 * MIB + 4 * KIB, 8 * KIB, target)
    task = done(cluster, 'execute', target)
    pool, namespace, name = target.split('/')
    assert task['message'] == 'Migrating image %s to %s' % (source, target)
    assert task['refs'] == {'action': 'migrate execute', 'pool_name': pool, 'pool_namespace': namespace, 'image_name': name,
                            'image_id': cluster.rbd_json('info', target)['id']}
    assert state(cluster, target) == 'executed'
    refused(cluster, 'execute', target, 'is not in ready state')
    disk.check(target)
    assert cluster.rbd('object-map', 'check', target, check=None).returncode == 0
    task = done(cluster, 'commit', source)
    assert task['message'] == 'Committing image migration for ' + source
    assert state(cluster, target) is None and trashed(cluster, here.pool) == []
    left = cluster.rados(here.pool, 'ls').out.split()
    assert not [o for o in left if ident in o], left
    disk.check(target)
    disk.write(0, 4 * KIB, target)
    disk.check(target)
    for snap in (None, 's1', 's2'):
        at = target if snap is None else target + '@' + snap
        assert cluster.rbd('object-map', 'check', at).returncode == 0
    refused(cluster, 'abort', target, 'is not migrating')


def test_what_the_server_copies_is_what_a_client_copies(cluster, two):
    """The same disk twice, once executed by `rbd` and once by the server: the same differences between snapshots."""
    here, there = two
    disk = lived(here)
    twin = unique('twin')
    cluster.rbd('deep', 'cp', disk.spec(), here.spec(twin))
    diffs = []
    for name, by_client in ((disk.name, True), (twin, False)):
        target = there.spec(name)
        cluster.rbd('migration', 'prepare', here.spec(name), target)
        if by_client:
            cluster.rbd('migration', 'execute', target)
        else:
            done(cluster, 'execute', target)
        disk.check(target)
        done(cluster, 'commit', target)
        disk.check(target)
        since = ((target,), ('--from-snap', 's1', target), ('--from-snap', 's2', target), ('--from-snap', 's1', target + '@s2'))
        diffs.append([cluster.rbd_json('diff', '--whole-object', *args) for args in since])
        # What changed since the first snapshot, over a copy of that, is the image.
        path, base = here.tmp / unique('diff'), unique('base')
        cluster.rbd('export-diff', '--from-snap', 's1', target, path, timeout=60)
        cluster.rbd('cp', target + '@s1', there.spec(base))
        there.snap(base, 's1')
        cluster.rbd('import-diff', path, there.spec(base), timeout=60)
        assert sha(there.read(base)) == sha(disk.data)
    assert diffs[0] == diffs[1]


def test_a_clone_moves_and_keeps_its_parent(cluster, two):
    here, there = two
    parent = Disk(here)
    here.snap(parent.name, 'p', protect=True)
    disk = Disk.__new__(Disk)
    disk.images, disk.shown, disk.data, disk.name = here, {}, bytearray(parent.data), unique('clone')
    cluster.rbd('clone', here.spec(parent.name, 'p'), disk.spec())
    disk.write(MIB, 64 * KIB)
    disk.snap('s1')
    disk.write(4 * MIB + 4 * KIB, 4 * KIB)
    target = there.spec(disk.name)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    # Our own client reads through to the source and the parent, too, and writes nothing.
    out, tool = here.tmp / unique('file'), [find_binary(), 'image']
    run([*tool, 'export', '-c', cluster.conf, '-p', there.pool, disk.name, '-o', out], timeout=60)
    assert sha(out.read_bytes()) == sha(disk.data)
    done(cluster, 'execute', target)
    disk.check(target)
    done(cluster, 'commit', target)
    disk.check(target)
    assert cluster.rbd_json('info', target)['parent']['image'] == parent.name


@pytest.mark.parametrize('how', ['layout', pytest.param('flatten', marks=pytest.mark.long)])
def test_a_clone_moves_into_another_form(cluster, two, how):
    here, there = two
    parent = Disk(here)
    here.snap(parent.name, 'p', protect=True)
    disk = Disk.__new__(Disk)
    disk.images, disk.shown, disk.data, disk.name = here, {}, bytearray(parent.data), unique('clone')
    cluster.rbd('clone', here.spec(parent.name, 'p'), disk.spec())
    disk.write(MIB, 64 * KIB)
    disk.snap('s1')
    disk.write(4 * MIB + 4 * KIB, 4 * KIB)
    target = there.spec(disk.name)
    args = {'flatten': ['--flatten'], 'layout': ['--object-size', '2M', '--stripe-unit', '64K', '--stripe-count', '3']}[how]
    cluster.rbd('migration', 'prepare', *args, disk.spec(), target)
    disk.check(target)
    done(cluster, 'execute', target)
    disk.check(target)
    done(cluster, 'commit', target)
    disk.check(target)
    assert ('parent' in cluster.rbd_json('info', target)) == (how == 'layout')
    assert cluster.rbd('object-map', 'check', target).returncode == 0


def test_an_image_of_format_1_becomes_one_of_format_2(cluster, two):
    here, there = two
    old = {'RBD_FORCE_ALLOW_V1': '1'}
    disk = Disk.__new__(Disk)
    disk.images, disk.shown, disk.data, disk.name = here, {}, bytearray(pattern(9 * MIB)), unique('old')
    path = here.tmp / unique('file')
    path.write_bytes(disk.data)
    cluster.rbd('import', '--image-format', '1', path, disk.spec(), env=old)
    disk.snap('s1')
    disk.write(MIB, 64 * KIB)
    target = there.spec(disk.name)
    for step in ('execute', 'abort'):
        cluster.rbd('migration', 'prepare', disk.spec(), target)
        disk.check(target)
        if step == 'execute':
            done(cluster, 'execute', target)
            disk.check(target)
        done(cluster, 'abort', target)
        assert disk.name in cluster.rbd('ls', here.pool).out.split()
        assert cluster.rbd('ls', there.pool).out == ''
        disk.check(disk.spec())
        disk.write(2 * MIB, 64 * KIB)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    done(cluster, 'execute', target)
    done(cluster, 'commit', target)
    disk.check(target)
    assert [o for o in cluster.rados(here.pool, 'ls').out.split() if o.startswith('rb.') or o.endswith('.rbd')] == []


@pytest.mark.parametrize('at', ['prepared', 'executed'])
def test_an_abort_gives_the_source_back(cluster, two, at):
    here, there = two
    disk = lived(here)
    before = bytes(disk.data)
    target = there.pool + '/n/' + disk.name
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    ident = cluster.rbd_json('info', target)['id']
    disk.write(0, 4 * KIB, target)
    if at == 'executed':
        done(cluster, 'execute', target)
    spec = target if at == 'executed' else disk.spec()
    task = done(cluster, 'abort', spec)
    assert task['message'] == 'Aborting image migration for ' + spec
    disk.data[:] = before
    disk.check(disk.spec())
    assert trashed(cluster, here.pool) == [] and cluster.rbd('ls', there.pool + '/n').out == ''
    left = cluster.rados(there.pool, '-N', 'n', 'ls').out.split()
    assert not [o for o in left if ident in o], left
    assert 'migrating' not in here.info(disk.name)['features']
    disk.write(MIB, 4 * KIB)
    disk.check(disk.spec())


@pytest.mark.long
def test_an_image_migrates_in_its_place(cluster, two):
    """Source and target of one name: to another form, and back again."""
    here, _ = two
    disk = lived(here)
    cluster.rbd('migration', 'prepare', '--object-size', '4M', disk.spec(), disk.spec())
    done(cluster, 'abort', disk.spec())
    disk.check(disk.spec())
    cluster.rbd('migration', 'prepare', '--object-size', '4M', disk.spec(), disk.spec())
    done(cluster, 'execute', disk.spec())
    disk.check(disk.spec())
    done(cluster, 'commit', disk.spec())
    disk.check(disk.spec())
    assert here.info(disk.name)['object_size'] == 4 * MIB


def test_an_abort_waits_for_who_has_the_target_open(cluster, two):
    here, there = two
    disk = Disk(here)
    target = there.spec(disk.name)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    with watched(cluster, target):
        # To execute and to commit are no trouble for him.
        done(cluster, 'execute', target)
        assert state(cluster, target) == 'executed'
        task = add(cluster, 'abort', target)
        assert 'open' in failed_once(cluster, task)
        cluster.ceph('rbd', 'task', 'cancel', task['id'])
        done(cluster, 'commit', target)
    assert state(cluster, target) is None
    disk.check(target)


def test_clients_write_and_take_snapshots_meanwhile(cluster, two):
    """Whoever writes gets the lock between two batches; what he wrote is not copied over."""
    here, there = two
    disk = lived(here, size=32 * MIB, args=('--object-size', '64K'))
    target = there.spec(disk.name)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    there.snap(disk.name, 'late')
    disk.shown['late'] = bytes(disk.data)
    task, places = add(cluster, 'execute', target), iter(range(31, 0, -2))
    for place in places:
        disk.write(place * MIB + 4 * KIB, 68 * KIB, target)
        if all(t['id'] != task['id'] for t in task_list(cluster)):
            break
    gone(cluster, task)
    assert state(cluster, target) == 'executed'
    disk.check(target)
    done(cluster, 'commit', target)
    disk.check(target)
    for snap in ('', '@s1', '@s2', '@late'):
        assert cluster.rbd('object-map', 'check', target + snap).returncode == 0


@pytest.mark.long
def test_without_an_exclusive_lock_nobody_else_may_have_it_open(cluster, two):
    here, there = two
    disk = lived(here, args=('--object-size', '1M', '--image-feature', 'layering'))
    target = there.spec(disk.name)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    with watched(cluster, target):
        task = add(cluster, 'execute', target)
        assert 'exclusive lock' in failed_once(cluster, task)
    cluster.ceph('rbd', 'task', 'cancel', task['id'])
    done(cluster, 'execute', target)
    disk.check(target)
    done(cluster, 'commit', target)
    disk.check(target)


def test_with_clones_it_is_committed_and_not_aborted(cluster, two):
    here, there = two
    disk = lived(here)
    cluster.rbd('snap', 'protect', here.spec(disk.name, 's2'))
    clone = unique('clone')
    cluster.rbd('clone', here.spec(disk.name, 's2'), here.spec(clone))
    target = there.spec(disk.name)
    cluster.rbd('migration', 'prepare', disk.spec(), target)
    task = add(cluster, 'abort', target)
    gone(cluster, task)
    log = cluster.ceph('log', 'last', '20').out
    assert 'task %s (Aborting image migration for %s) is given up' % (task['id'], target) in log and 'it has clones' in log
    assert state(cluster, target) == 'prepared'
    assert sha(here.read(clone)) == sha(disk.shown['s2'])
    done(cluster, 'execute', target)
    done(cluster, 'commit', target)
    assert sha(here.read(clone)) == sha(disk.shown['s2'])
    disk.check(target)
    assert cluster.rbd_json('info', here.spec(clone))['parent']['pool'] == there.pool


@pytest.mark.parametrize('step', ['execute', pytest.param('commit', marks=pytest.mark.long), 'abort'])
def test_a_server_that_is_killed_goes_on(own, tmp_path, step):
    skep = own().start()
    here, there = [Images(skep, skep.make_pool('rbd'), tmp_path) for _ in range(2)]
    disk = lived(here, size=24 * MIB, args=('--object-size', '64K'))
    target = there.spec(disk.name)
    skep.rbd('migration', 'prepare', disk.spec(), target)
    if step == 'commit':
        done(skep, 'execute', target)
    task = add(skep, step, target)

    def is_under_way():
        found = [t for t in task_list(skep) if t['id'] == task['id']]
        return not found or found[0].get('progress', 0) > 0.1
    wait_until(is_under_way, 60, 0.05, 'the task to be under way')
    skep.kill()
    skep.start()
    gone(skep, task)
    if step == 'abort':
        disk.check(disk.spec())
        assert skep.rbd('ls', there.pool).out == '' and trashed(skep, here.pool) == []
        return
    assert state(skep, target) == ('executed' if step == 'execute' else None)
    disk.check(target)
    if step == 'execute':
        done(skep, 'commit', target)
    disk.check(target)
    assert trashed(skep, here.pool) == []
    assert skep.rbd('object-map', 'check', target).returncode == 0
