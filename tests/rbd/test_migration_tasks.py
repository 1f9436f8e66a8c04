"""`ceph rbd task add migration execute|commit|abort`: the server moves images that stock clients have prepared, and use meanwhile."""
import json
import pathlib
import random
import struct
import subprocess

import pytest

import skeptest
from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import end_group, wait_until

OBJECT = 4 * MIB
LIB = str(pathlib.Path(skeptest.__file__).parent.parent)


def task_list(cluster):
    return json.loads(cluster.ceph('rbd', 'task', 'list').out)


def add(cluster, step, spec):
    return json.loads(cluster.ceph('rbd', 'task', 'add', 'migration', step, spec).out)


def ended(cluster, task, timeout=180):
    wait_until(lambda: all(t['id'] != task['id'] for t in task_list(cluster)), timeout, 0.3, 'task %s to end' % task['message'])


def done(cluster, step, spec):
    """Does it, and it was not given up."""
    task = add(cluster, step, spec)
    ended(cluster, task)

    def event():
        past = json.loads(cluster.ceph('progress', 'json').out)['completed']
        return [e for e in past if e['id'] == task['id']]
    [event] = wait_until(event, 30, 0.3, 'progress of %s' % task['message'])
    assert event['message'] == task['message'], event
    return task


def refused(cluster, step, spec, code, text):
    r = cluster.ceph('rbd', 'task', 'add', 'migration', step, spec, check=None)
    assert r.returncode == code and text in r.err, r


def failed_once(cluster, task):
    def why():
        return [t['retry_message'] for t in task_list(cluster) if t['id'] == task['id'] and 'retry_message' in t]
    return wait_until(why, 90, 0.3, 'the task to fail')[0]


def state(cluster, spec):
    return cluster.rbd_json('status', spec).get('migration', {}).get('state')


class Image:
    """What an image holds at its head and its snapshots, by its own model."""

    def __init__(self, cluster, images, size=18 * MIB, create=(), pool=None):
        self.cluster, self.images, self.name = cluster, images, unique('image')
        self.spec = '%s/%s' % (pool or images.pool, self.name)
        self.data, self.snaps = bytearray(size), {}
        cluster.rbd('create', self.spec, '--size', '%dB' % size, *create)

    def write(self, *writes):
        """(offset, data), by librbd."""
        def run():
            import rbd
            pool, namespace, name = parts(self.spec)
            with connect(self.cluster).open_ioctx(pool) as io:
                io.set_namespace(namespace)
                with rbd.Image(io, name) as image:
                    for at, data in writes:
                        if data is None:
                            image.discard(at, min(OBJECT, image.size() - at))
                        else:
                            image.write(data, at)
            return True
        assert in_child(run, timeout=120)
        for at, data in writes:
            data = bytes(OBJECT) if data is None else data
            data = data[:len(self.data) - at]
            self.data[at:at + len(data)] = data

    def snap(self, name):
        self.cluster.rbd('snap', 'create', '%s@%s' % (self.spec, name))
        self.snaps[name] = bytes(self.data)

    def rollback(self, name):
        self.cluster.rbd('snap', 'rollback', '--no-progress', '%s@%s' % (self.spec, name))
        self.data = bytearray(self.snaps[name])

    def unsnap(self, name):
        self.cluster.rbd('snap', 'rm', '--no-progress', '%s@%s' % (self.spec, name))
        del self.snaps[name]

    def read(self, snap=None):
        path = self.images.tmp / unique('file')
        self.cluster.rbd('export', '--no-progress', self.spec + ('@' + snap if snap else ''), path, timeout=120)
        data = path.read_bytes()
        path.unlink()
        return data

    def check(self):
        for snap, data in [*self.snaps.items(), (None, self.data)]:
            got = self.read(snap)
            bad = [at for at in range(0, max(len(data), len(got)), 4096) if got[at:at + 4096] != data[at:at + 4096]]
            assert not bad, '%s@%s differs at %s' % (self.spec, snap, bad[:9])

    def ident(self):
        return self.cluster.rbd_json('info', self.spec).get('id', '')

    def prepare(self, target, *options):
        self.cluster.rbd('migration', 'prepare', '--rbd-default-clone-format', '2', *options, self.spec, target)
        self.spec = target

    def map_is_right(self, *but):
        """The maps of the head and all snapshots, but for these: librbd makes some that its own check calls invalid, without any migration."""
        if 'object-map' in self.cluster.rbd_json('info', self.spec)['features']:
            for snap in [None, *[s for s in self.snaps if s not in but]]:
                spec = self.spec + ('@' + snap if snap else '')
                self.cluster.rbd('object-map', 'check', '--no-progress', spec)
                assert 'object map invalid' not in self.cluster.rbd('info', spec).out, spec

    def data_objects(self):
        pool = self.spec.split('/')[0]
        prefix = self.cluster.rbd_json('info', self.spec)['block_name_prefix']
        return {o for o in self.cluster.rados(pool, 'ls', '--all').out.split() if o.startswith(prefix)}


def trashed(cluster, pool, image):
    return [t for t in cluster.rbd_json('trash', 'ls', '--all', pool) if t['name'] == image.name]


def parts(spec):
    pool, *namespace, name = spec.split('/')
    return pool, ''.join(namespace), name


@pytest.fixture(scope='module')
def second(cluster):
    name = cluster.make_pool('rbd')
    cluster.rbd('namespace', 'create', '%s/ns' % name)
    yield name
    cluster.drop_pool(name)


def block(byte, length=65536):
    return bytes([byte]) * length


def history(image):
    """Snapshots with all that can happen between two: written, partly and whole, discarded, made; a snapshot that is gone, a rollback."""
    image.write((0, pattern(9 * MIB)), (2 * OBJECT, block(1)))
    image.snap('one')
    image.write((100, block(2)), (OBJECT, None), (3 * OBJECT, block(3)))
    image.snap('gone')
    image.write((OBJECT, block(4)))
    image.snap('two')
    image.write((0, pattern(OBJECT)), (3 * OBJECT, None), (4 * OBJECT, block(5)))
    image.rollback('two')
    image.write((4096, block(6)))
    image.unsnap('gone')
    image.snap('three')
    image.write((2 * OBJECT, None), (0, block(7, 512)))


KINDS = {
    'plain': ([], []),
    'no features': (['--image-feature', 'layering'], []),
    'striped': (['--stripe-unit', '65536', '--stripe-count', '3'], []),
    'other layout': ([], ['--object-size', '1M', '--stripe-unit', '1M', '--stripe-count', '1']),
    'striped to plain': (['--object-size', '1M', '--stripe-unit', '65536', '--stripe-count', '3'],
                         ['--stripe-unit', '4M', '--stripe-count', '1', '--object-size', '4M']),
}


# One of them at each change, all of them with --all.
@pytest.mark.parametrize('kind', [pytest.param(kind, marks=[] if kind == 'striped to plain' else pytest.mark.long) for kind in KINDS])
def test_an_image_with_a_history_moves(cluster, images, second, kind):
    create, prepare = KINDS[kind]
    image = Image(cluster, images, create=create)
    history(image)
    source, ident = image.spec, image.ident()
    refused(cluster, 'execute', source, 22, '[errno 22] RBD invalid argument (Image %s is not migrating)' % source)
    image.prepare('%s/%s' % (second, unique('moved')), *prepare)
    image.write((OBJECT + 4096, block(8)), (2 * OBJECT, block(9)))
    image.snap('younger')
    image.write((5, block(10)))
    refused(cluster, 'commit', image.spec, 22, 'Image %s has not completed migration' % image.spec)
    task = done(cluster, 'execute', image.spec)
    pool, _, name = parts(image.spec)
    # 16.2 names the source's pool for both.
    assert task['message'] in ['Migrating image %s to %s/%s' % (source, p, name) for p in (pool, images.pool)]
    assert task['refs'] == {'action': 'migrate execute', 'pool_name': pool, 'pool_namespace': '', 'image_name': name,
                            'image_id': image.ident()}
    assert state(cluster, image.spec) == 'executed'
    refused(cluster, 'execute', image.spec, 22, 'is not in ready state')
    image.check()
    # Named by its source.
    task = done(cluster, 'commit', source)
    assert task['message'] == 'Committing image migration for ' + source
    image.check()
    image.map_is_right('younger')
    assert state(cluster, image.spec) is None
    assert not trashed(cluster, images.pool, image)
    left = [o for o in cluster.rados(images.pool, 'ls').out.split() if ident in o]
    assert not left, left


@pytest.mark.long
def test_namespaces_and_data_pools(cluster, images, second):
    image = Image(cluster, images, create=['--data-pool', second])
    history(image)
    image.prepare('%s/ns/%s' % (second, unique('moved')), '--data-pool', images.pool)
    image.write((OBJECT, block(8)))
    done(cluster, 'execute', image.spec)
    done(cluster, 'commit', image.spec)
    image.check()
    image.map_is_right()
    cluster.rbd('migration', 'prepare', image.spec, '%s/%s' % (images.pool, image.name))
    done(cluster, 'abort', image.spec)
    image.check()


@pytest.mark.long
@pytest.mark.parametrize('flatten', [False, True])
def test_a_clone_moves(cluster, images, second, flatten):
    parent = Image(cluster, images, size=16 * MIB)
    parent.write((0, pattern(OBJECT)), (2 * OBJECT, block(1)), (3 * OBJECT, block(2, OBJECT)))
    parent.snap('base')
    clone = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', clone.spec)
    cluster.rbd('clone', '--rbd-default-clone-format', '2', parent.spec + '@base', clone.spec)
    clone.data = bytearray(parent.data)
    clone.write((4096, block(3)))
    clone.snap('one')
    # Zeros that hide the parent's data.
    clone.write((3 * OBJECT, None), (OBJECT, block(4)))
    clone.snap('two')
    clone.write((0, block(5)))
    clone.prepare('%s/%s' % (second, unique('moved')), *(['--flatten'] if flatten else []))
    if not flatten:
        # Its snapshots would lose what is not copied yet.
        r = cluster.ceph('rbd', 'task', 'add', 'flatten', clone.spec, check=None)
        assert r.returncode == 95 and 'it is being migrated' in r.err, r
    clone.check()
    done(cluster, 'execute', clone.spec)
    clone.check()
    done(cluster, 'commit', clone.spec)
    clone.check()
    clone.map_is_right()
    info = cluster.rbd_json('info', clone.spec)
    assert ('parent' in info) != flatten, info
    if not flatten:
        done_flatten = json.loads(cluster.ceph('rbd', 'task', 'add', 'flatten', clone.spec).out)
        ended(cluster, done_flatten)
        clone.check()
    parent.check()


@pytest.mark.long
@pytest.mark.parametrize('snaps', [False, True])
def test_a_clone_that_was_shrunk_before(cluster, images, snaps):
    """It sees less of its parent than that has."""
    parent = Image(cluster, images, size=24 * MIB)
    parent.write((0, pattern(24 * MIB, holes=False)))
    parent.snap('base')
    clone = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', clone.spec)
    cluster.rbd('clone', '--rbd-default-clone-format', '2', parent.spec + '@base', clone.spec)
    clone.data = bytearray(parent.data)
    if snaps:
        clone.write((2 * OBJECT, block(1)))
        clone.snap('large')
    cluster.rbd('resize', '--no-progress', clone.spec, '--size', '6M', '--allow-shrink')
    cluster.rbd('resize', '--no-progress', clone.spec, '--size', '24M')
    clone.data = clone.data[:6 * MIB] + bytes(18 * MIB)
    clone.write((0, block(2)), (5 * OBJECT, block(3)))
    clone.check()
    clone.prepare('%s/%s' % (images.pool, unique('moved')))
    clone.check()
    done(cluster, 'execute', clone.spec)
    clone.check()
    done(cluster, 'commit', clone.spec)
    clone.check()


@pytest.mark.long
def test_format_1(cluster, images, second):
    image = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', image.spec)
    cluster.run('rbd', 'create', image.spec, '--size', '18M', '--image-format', '1', env={'RBD_FORCE_ALLOW_V1': '1'})
    image.data = bytearray(18 * MIB)
    history(image)
    source, target = image.spec, '%s/%s' % (second, unique('moved'))
    image.prepare(target)
    image.write((OBJECT, block(8)))
    done(cluster, 'execute', image.spec)
    image.check()
    done(cluster, 'abort', image.spec)
    image.spec = source
    image.check()
    image.prepare(target)
    done(cluster, 'execute', image.spec)
    done(cluster, 'commit', image.spec)
    image.check()
    left = cluster.rados(images.pool, 'ls').out.split()
    assert not [o for o in left if o.startswith('rb.') or o == image.name + '.rbd'], left


WRITER = r'''
import random, sys, time
sys.path.insert(0, sys.argv[1])
from skeptest.api import connect
from skeptest.cluster import Cluster
import rbd
handle = connect(Cluster(sys.argv[2]))
io = handle.open_ioctx(sys.argv[3])
draw = random.Random(int(sys.argv[5]))
with rbd.Image(io, sys.argv[4]) as image:
    size = image.size()
    print('open', flush=True)
    n = 0
    while True:
        n += 1
        at = draw.randrange(size // 4096) * 4096
        while True:
            try:
                image.write(bytes([n % 250 + 1]) * 4096, at)
                break
            except rbd.ReadOnlyImage:
                # A tool found the lock on its way over and keeps it while it makes its snapshot: librbd refuses the write, undone.
                print('refused', file=sys.stderr, flush=True)
                time.sleep(0.05)
        print(at, n % 250 + 1, flush=True)
'''


class Writer:
    """A librbd client that has the image open, and writes without end."""

    def __init__(self, skep, image, tmp_path, seed=1):
        script, self.notes = tmp_path / 'writer.py', tmp_path / unique('notes')
        script.write_text(WRITER)
        pool, _, name = parts(image.spec)
        self.image, self.errors = image, tmp_path / 'errors'
        with open(self.notes, 'w') as f:
            self.proc = skep.popen('/usr/bin/python3', '-u', script, LIB, skep.conf, pool, name, str(seed),
                                   stdin=subprocess.DEVNULL, stdout=f, stderr=open(self.errors, 'a'))
        self.wait(1)

    def lines(self):
        return self.notes.read_text().splitlines(True)

    def wait(self, more):
        have = len(self.lines())

        def has_gone_on():
            assert self.proc.poll() is None, self.errors.read_text()[-4000:]
            return len(self.lines()) >= have + more
        wait_until(has_gone_on, 120, 0.1, 'the writer to go on')

    def stop(self):
        """Into the model: what is noted was written; the one behind it may have been."""
        end_group(self.proc)
        for line in self.lines():
            if line.endswith('\n') and line != 'open\n':
                at, byte = map(int, line.split())
                self.image.data[at:at + 4096] = bytes([byte]) * 4096
        got = self.image.read()
        differs = [at for at in range(0, len(got), 4096) if got[at:at + 4096] != self.image.data[at:at + 4096]]
        assert len(differs) <= 1, differs
        for at in differs:
            assert len(set(got[at:at + 4096])) == 1, at
            self.image.data[at:at + 4096] = got[at:at + 4096]


def test_clients_write_and_make_snapshots_meanwhile(cluster, images, second, tmp_path):
    image = Image(cluster, images, size=64 * MIB)
    image.write((0, pattern(30 * MIB)))
    image.snap('one')
    image.write((10 * MIB, pattern(20 * MIB)))
    image.snap('two')
    image.write((0, pattern(5 * MIB)))
    image.prepare('%s/%s' % (second, unique('moved')))
    writer = Writer(cluster, image, tmp_path)
    try:
        task = add(cluster, 'execute', image.spec)
        # The owner of the lock does these himself, who asks for them gets it from us.
        for n in range(3):
            cluster.rbd('snap', 'create', '--no-progress', '%s@more%d' % (image.spec, n), timeout=60)
        # Not removed: one that the source has. librbd 16.2.15 ends by an assertion (compute_zero_ops) where it copies an object up after that.
        ended(cluster, task, 300)
        writer.wait(20)
    finally:
        writer.stop()
    assert state(cluster, image.spec) == 'executed'
    image.check()
    done(cluster, 'commit', image.spec)
    image.check()
    image.map_is_right()


@pytest.mark.long
def test_a_copy_that_was_cut_short_goes_on_after_a_snapshot_was_removed(cluster, images):
    """What an object has was judged by the snapshots of the target's header: after the newest was removed there, one that had the states up to the second
    newest counted as whole, and the source's newer ones were lost."""
    image = Image(cluster, images, size=2 * OBJECT)
    for n, snap in enumerate(['one', 'two', 'three']):
        image.write((n * 8192, block(n + 1, 8192)))
        image.snap(snap)
    image.write((65536, block(9)))
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    ids = {s['name']: s['id'] for s in cluster.rbd_json('snap', 'ls', image.spec)}
    prefix = cluster.rbd_json('info', image.spec)['block_name_prefix']

    def cut_copy():
        import rados
        with connect(cluster).open_ioctx(images.pool) as io:
            name = prefix + '.%016x' % 0
            io.write(name, block(1, 8192))
            io.set_self_managed_snap_write([ids['one']])
            with rados.WriteOpCtx() as op:
                op.write(block(2, 8192), 8192)
                io.operate_write_op(op, name)
        return True
    assert in_child(cut_copy, timeout=60)
    image.unsnap('three')
    done(cluster, 'execute', image.spec)
    image.check()
    done(cluster, 'commit', image.spec)
    image.check()
    image.map_is_right()


@pytest.mark.long
def test_resizes_of_the_target_neither_bring_back_nor_lose(cluster, images, second):
    for snaps in [True, False]:
        image = Image(cluster, images, size=32 * MIB)
        image.write((0, pattern(32 * MIB, holes=False)))
        if snaps:
            image.snap('one')
            image.write((20 * MIB, block(1)), (9 * MIB, block(2)))
        image.prepare('%s/%s' % (second, unique('moved')))
        # Half of it is there.
        image.write((0, block(3)), (9 * MIB, block(4)), (20 * MIB, block(5)))
        cluster.rbd('resize', '--no-progress', image.spec, '--size', '10M', '--allow-shrink')
        cluster.rbd('resize', '--no-progress', image.spec, '--size', '40M')
        image.data = image.data[:10 * MIB] + bytes(30 * MIB)
        image.check()
        image.write((24 * MIB, block(6)))
        done(cluster, 'execute', image.spec)
        image.check()
        done(cluster, 'commit', image.spec)
        image.check()
        image.map_is_right()


def test_abort_gives_the_source_back(cluster, images, second):
    image = Image(cluster, images, size=20 * MIB)
    history(image)
    group = '%s/%s' % (images.pool, unique('group'))
    cluster.rbd('group', 'create', group)
    cluster.rbd('group', 'image', 'add', group, image.spec)
    child = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', child.spec)
    cluster.rbd('clone', '--rbd-default-clone-format', '2', image.spec + '@two', child.spec)
    child.data = bytearray(image.snaps['two'])
    source, target = image.spec, '%s/%s' % (second, unique('moved'))
    for execute in [False, True]:
        image.prepare(target)
        ident = image.ident()
        image.write((OBJECT, block(8)), (3 * OBJECT + 100, block(9)), (0, bytes(8192)), (2 * OBJECT, None))
        if execute:
            done(cluster, 'execute', target)
        cluster.rbd('snap', 'create', '--no-progress', target + '@younger')
        # A clone that the source has no snapshot for.
        orphan = '%s/%s' % (images.pool, unique('orphan'))
        cluster.rbd('clone', '--rbd-default-clone-format', '2', target + '@younger', orphan)
        task = add(cluster, 'abort', target)
        assert task['message'] == 'Aborting image migration for ' + target
        assert "snapshot 'younger' of the target has clones" in failed_once(cluster, task)
        cluster.ceph('rbd', 'task', 'cancel', task['id'])
        image.check()
        cluster.rbd('rm', '--no-progress', orphan)
        done(cluster, 'abort', source)
        image.spec = source
        image.check()
        child.check()
        image.map_is_right('three')
        assert [i['image'] for i in cluster.rbd_json('group', 'image', 'ls', group)] == [image.name]
        assert cluster.rbd_json('info', child.spec)['parent']['image'] == image.name
        assert not trashed(cluster, images.pool, image)
        left = [o for o in cluster.rados(second, 'ls').out.split() if ident in o]
        assert not left, left
        assert target.split('/')[1] not in cluster.rbd('ls', second).out.split()


@pytest.mark.long
@pytest.mark.parametrize('step', ['abort', 'commit'])
def test_protected_snapshots_with_clones_of_the_older_kind(cluster, images, step):
    image = Image(cluster, images)
    history(image)
    cluster.rbd('snap', 'protect', image.spec + '@two')
    child = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', child.spec)
    cluster.rbd('clone', '--rbd-default-clone-format', '1', image.spec + '@two', child.spec)
    child.data = bytearray(image.snaps['two'])
    child.write((0, block(1)))
    source = image.spec
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    done(cluster, 'execute', image.spec)
    done(cluster, step, image.spec)
    if step == 'abort':
        image.spec = source
    image.check()
    child.check()
    assert cluster.rbd_json('info', child.spec)['parent']['image'] == parts(image.spec)[2]
    assert [c['image'] for c in cluster.rbd_json('children', image.spec + '@two')] == [child.name]
    r = cluster.rbd('snap', 'unprotect', image.spec + '@two', check=None)
    assert r.returncode == 16, r
    assert not trashed(cluster, images.pool, image)


@pytest.mark.long
def test_a_cancelled_execute_goes_on_when_it_is_added_again(cluster, images):
    image = Image(cluster, images, size=96 * MIB)
    image.write((0, pattern(50 * MIB)))
    image.snap('one')
    image.write((20 * MIB, pattern(70 * MIB)))
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    task = add(cluster, 'execute', image.spec)
    assert add(cluster, 'execute', image.spec)['id'] == task['id']
    wait_until(lambda: all(t.get('progress', 0) > 0 for t in task_list(cluster)), 60, 0.02, 'progress')
    r = cluster.ceph('rbd', 'task', 'cancel', task['id'], check=None)
    if r.returncode == 0:
        assert json.loads(r.out)['canceled'] is True
        wait_until(lambda: task_list(cluster) == [], 30, 0.3, 'no task')
        image.check()
        if state(cluster, image.spec) != 'executed':
            done(cluster, 'execute', image.spec)
    image.check()
    done(cluster, 'commit', image.spec)
    image.check()
    image.map_is_right()


@pytest.mark.long
def test_abort_of_an_executed_clone_makes_no_objects(cluster, images, second):
    parent = Image(cluster, images, size=8 * MIB)
    parent.write((0, pattern(8 * MIB)))
    parent.snap('base')
    clone = Image(cluster, images, size=MIB)
    cluster.rbd('rm', '--no-progress', clone.spec)
    cluster.rbd('clone', '--rbd-default-clone-format', '2', parent.spec + '@base', clone.spec)
    cluster.rbd('resize', '--no-progress', clone.spec, '--size', '24M')
    clone.data = bytearray(parent.data) + bytearray(16 * MIB)
    clone.write((4 * OBJECT, block(1)), (0, block(2)), (OBJECT, None))
    clone.write((4 * OBJECT, None))
    before = clone.data_objects()
    source = clone.spec
    clone.prepare('%s/%s' % (second, unique('moved')))
    clone.check()
    done(cluster, 'execute', clone.spec)
    done(cluster, 'abort', clone.spec)
    clone.spec = source
    clone.check()
    assert clone.data_objects() == before
    assert cluster.rbd_json('info', source)['parent']['image'] == parent.name


@pytest.mark.long
def test_abort_begins_only_if_the_source_can_have_its_name(cluster, images, second):
    """Ceph removes the target first, and is then left with a source in the trash that nobody can name."""
    image = Image(cluster, images)
    history(image)
    source = image.spec
    image.prepare('%s/%s' % (second, unique('moved')))
    cluster.rbd('create', source, '--size', '1M')
    task = add(cluster, 'abort', image.spec)
    assert 'another image has it' in failed_once(cluster, task)
    cluster.ceph('rbd', 'task', 'cancel', task['id'])
    assert state(cluster, image.spec) == 'prepared'
    image.check()
    cluster.rbd('rm', '--no-progress', source)
    done(cluster, 'abort', image.spec)
    image.spec = source
    image.check()


@pytest.mark.long
def test_source_and_target_of_the_same_name(cluster, images):
    image = Image(cluster, images)
    history(image)
    for step in ['abort', 'commit']:
        image.prepare(image.spec)
        image.write((OBJECT, block(8)))
        done(cluster, 'execute', image.spec)
        done(cluster, step, image.spec)
        image.check()
        assert cluster.rbd('ls', images.pool).out.split().count(image.name) == 1
        assert not trashed(cluster, images.pool, image)


def header_call(cluster, pool, oid, method, data):
    def run():
        with connect(cluster).open_ioctx(pool) as io:
            io.execute(oid, 'rbd', method, data)
        return True
    assert in_child(run, timeout=60)


@pytest.mark.long
def test_what_was_cut_short_can_be_added_again(cluster, images, second, tmp_path):
    # A commit that cannot end, since somebody watches the source; the target is free already.
    image = Image(cluster, images)
    history(image)
    ident = image.ident()
    image.prepare('%s/%s' % (second, unique('moved')))
    done(cluster, 'execute', image.spec)
    watcher = cluster.popen('rados', '-p', images.pool, 'watch', 'rbd_header.' + ident, stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: 'watcher=' in cluster.rados(images.pool, 'listwatchers', 'rbd_header.' + ident).out, 30, 0.3, 'the watcher')
        task = add(cluster, 'commit', image.spec)
        assert 'somebody has the source open' in failed_once(cluster, task)
        cluster.ceph('rbd', 'task', 'cancel', task['id'])
        assert state(cluster, image.spec) is None
        refused(cluster, 'abort', image.spec, 22, 'is not migrating')
    finally:
        end_group(watcher)
    wait_until(lambda: 'watcher=' not in cluster.rados(images.pool, 'listwatchers', 'rbd_header.' + ident).out, 90, 0.5, 'no watcher')
    done(cluster, 'commit', image.spec)
    image.check()
    assert not trashed(cluster, images.pool, image)
    # An abort whose target has lost its snapshots, its data and its header.
    source = image.spec
    image.prepare('%s/%s' % (images.pool, unique('back')))
    of_source = image.cluster.rbd_json('trash', 'ls', '--all', second)
    [of_source] = [t['id'] for t in of_source if t['name'] == source.split('/')[1]]
    of_target = image.ident()
    done(cluster, 'execute', image.spec)
    cluster.rbd('snap', 'purge', '--no-progress', image.spec)
    for name in image.data_objects():
        cluster.rados(images.pool, 'rm', name)
    aborting = bytes([5]) + struct.pack('<I', 0)
    for pool, which in [(second, of_source), (images.pool, of_target)]:
        header_call(cluster, pool, 'rbd_header.' + which, 'migration_set_state', aborting)
    cluster.rados(images.pool, 'rm', 'rbd_header.' + of_target)
    done(cluster, 'abort', image.spec)
    image.spec = source
    image.check()
    assert of_target not in cluster.rados(images.pool, 'ls').out


def record_of(kind, pool, name, ident, state, mirroring=False):
    """A header's record of a migration, as it goes over the wire."""
    def blob(text):
        return struct.pack('<I', len(text)) + text.encode()
    body = struct.pack('<Bq', kind, pool) + blob('') + blob(name) + blob(ident) + struct.pack('<IQ??B', 0, 4 * OBJECT, False, mirroring, state)
    body += blob('') + struct.pack('<B', 0) + blob('')
    return struct.pack('<BBI', 3, 1, len(body)) + body


def test_a_record_that_its_source_does_not_confirm_is_not_followed(cluster, images, second):
    """Who can write to one pool alone had the server read and remove an image of another pool, with the server's rights."""
    victim = Image(cluster, images)
    history(victim)
    pool = next(p['pool'] for p in json.loads(cluster.ceph('osd', 'dump', '-f', 'json').out)['pools'] if p['pool_name'] == images.pool)
    for step, was in [('execute', 2), ('abort', 2), ('abort', 5), ('commit', 4)]:
        spec = '%s/%s' % (second, unique('forged'))
        cluster.rbd('create', spec, '--size', '16M', '--image-feature', 'layering')
        ident = cluster.rbd_json('info', spec)['id']
        header = 'rbd_header.' + ident
        header_call(cluster, second, header, 'migration_set', record_of(2, pool, victim.name, victim.ident(), was))
        ended(cluster, add(cluster, step, spec))
        assert header in cluster.rados(second, 'ls').out.split(), step
        assert victim.name in cluster.rbd('ls', images.pool).out.split(), step
        victim.check()
        assert 'rbd_data.' + ident not in cluster.rados(second, 'ls').out, step


def test_a_commit_without_a_target_keeps_the_source(cluster, images, second):
    image = Image(cluster, images)
    history(image)
    source = image.spec
    image.prepare('%s/%s' % (second, unique('moved')))
    done(cluster, 'execute', image.spec)
    [trash] = trashed(cluster, images.pool, image)
    objects = {o for o in cluster.rados(images.pool, 'ls').out.split() if trash['id'] in o}
    cluster.rados(second, 'rm', 'rbd_header.' + image.ident())
    ended(cluster, add(cluster, 'commit', source))
    assert trashed(cluster, images.pool, image) == [trash]
    assert objects == {o for o in cluster.rados(images.pool, 'ls').out.split() if trash['id'] in o}


@pytest.mark.parametrize('writer', ['bare', 'librbd'])
def test_what_only_snapshots_have_is_not_lost_under_a_write(cluster, images, writer):
    """The source was larger once: behind its present end the target's head reads nothing from it, so that a client that writes there (the target has grown)
    copies nothing for the snapshots. Such an object counted as whole."""
    image = Image(cluster, images, size=3 * OBJECT)
    image.write((0, pattern(3 * OBJECT, holes=False)))
    image.snap('one')
    cluster.rbd('resize', '--no-progress', image.spec, '--size', '4M', '--allow-shrink')
    source, image.data = image.spec, image.data[:OBJECT]
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    cluster.rbd('resize', '--no-progress', image.spec, '--size', '12M')
    before = bytes(image.data)
    image.data += bytes(2 * OBJECT)
    image.check()
    if writer == 'librbd':
        image.write((2 * OBJECT, block(7)))
    else:
        [snap] = cluster.rbd_json('snap', 'ls', image.spec)
        name = cluster.rbd_json('info', image.spec)['block_name_prefix'] + '.%016x' % 2

        def write():
            import rados
            with connect(cluster).open_ioctx(images.pool) as io:
                io.set_self_managed_snap_write([snap['id']])
                with rados.WriteOpCtx() as op:
                    op.write(block(7), 0)
                    io.operate_write_op(op, name)
            return True
        assert in_child(write, timeout=60)
    ended(cluster, add(cluster, 'execute', image.spec))
    if state(cluster, image.spec) == 'executed':
        assert writer == 'librbd'
        image.check()
    else:
        assert state(cluster, image.spec) == 'executing'
        log = cluster.ceph('log', 'last', '50', 'warn').out
        assert "was written before it had what snapshot 'one' has" in log and '%016x' % 2 in log, log
    done(cluster, 'abort', image.spec)
    image.spec, image.data = source, bytearray(before)
    image.check()


@pytest.mark.long
def test_abort_with_clones_that_need_nothing_or_are_gone(cluster, images):
    image = Image(cluster, images)
    history(image)
    source = image.spec
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    clones = ['%s/%s' % (images.pool, unique('clone')) for _ in range(3)]
    for clone in clones:
        cluster.rbd('clone', '--rbd-default-clone-format', '2', image.spec + '@two', clone)
    empty, gone, whole = clones
    cluster.rbd('resize', '--no-progress', empty, '--size', '0', '--allow-shrink')
    cluster.rados(images.pool, 'rm', 'rbd_header.' + cluster.rbd_json('info', gone)['id'])
    done(cluster, 'abort', image.spec)
    image.spec = source
    image.check()
    children = {c['image'] for c in cluster.rbd_json('children', image.spec + '@two')}
    assert children == {parts(empty)[2], parts(whole)[2]}
    # One whose overlap is 0 is shown without its parent.
    assert cluster.rbd_json('info', whole)['parent']['image'] == image.name
    cluster.rbd('resize', '--no-progress', empty, '--size', '1M')
    path = images.tmp / unique('file')
    cluster.rbd('export', '--no-progress', empty, path)
    assert path.read_bytes() == bytes(MIB)


@pytest.mark.long
def test_a_source_that_has_a_clone_of_the_older_kind_is_not_committed(cluster, images, second):
    image = Image(cluster, images)
    history(image)
    pool = next(p['pool'] for p in json.loads(cluster.ceph('osd', 'dump', '-f', 'json').out)['pools'] if p['pool_name'] == images.pool)
    ident, snap = image.ident(), next(s['id'] for s in cluster.rbd_json('snap', 'ls', image.spec) if s['name'] == 'two')
    image.prepare('%s/%s' % (second, unique('moved')))
    done(cluster, 'execute', image.spec)
    row = struct.pack('<qI', pool, len(ident)) + ident.encode() + struct.pack('<QI', snap, 5) + b'child'
    header_call(cluster, images.pool, 'rbd_children', 'add_child', row)
    task = add(cluster, 'commit', image.spec)
    assert 'the source has clones' in failed_once(cluster, task)
    assert state(cluster, image.spec) == 'executed'
    assert [t['id'] for t in trashed(cluster, images.pool, image)] == [ident]
    image.check()
    header_call(cluster, images.pool, 'rbd_children', 'remove_child', row)
    ended(cluster, task)
    assert not trashed(cluster, images.pool, image)
    image.check()


def test_commit_and_abort_of_a_mirrored_image_are_refused(cluster, images):
    """Such records are only of images that are mirrored by journals, which we do not open: ours is told so by both headers."""
    image = Image(cluster, images, size=4 * OBJECT)
    image.write((0, block(1)))
    pool = next(p['pool'] for p in json.loads(cluster.ceph('osd', 'dump', '-f', 'json').out)['pools'] if p['pool_name'] == images.pool)
    source, of_source = image.spec, image.ident()
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    of_target, moved = image.ident(), parts(image.spec)[2]

    def told(was, mirroring):
        for kind, here, name, there in [(1, of_source, moved, of_target), (2, of_target, image.name, of_source)]:
            header_call(cluster, images.pool, 'rbd_header.' + here, 'migration_remove', b'')
            header_call(cluster, images.pool, 'rbd_header.' + here, 'migration_set', record_of(kind, pool, name, there, was, mirroring))
    for step, was, shown in [('abort', 2, 'prepared'), ('commit', 4, 'executed')]:
        told(was, True)
        ended(cluster, add(cluster, step, image.spec))
        log = cluster.ceph('log', 'last', '50', 'warn').out
        assert "run 'rbd migration %s' with a client" % step in log, log
        assert state(cluster, image.spec) == shown
    told(2, False)
    done(cluster, 'abort', image.spec)
    image.spec = source
    image.check()


@pytest.mark.long
def test_an_owner_who_keeps_the_lock_is_waited_for(cluster, images):
    image = Image(cluster, images)
    history(image)
    image.prepare('%s/%s' % (images.pool, unique('moved')))
    pool, _, name = parts(image.spec)
    script = """if True:
        import rbd, sys
        from skeptest.api import connect
        from skeptest.cluster import Cluster
        handle = connect(Cluster(sys.argv[1]))
        io = handle.open_ioctx(sys.argv[2])
        with rbd.Image(io, sys.argv[3]) as image:
            image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
            print('locked', flush=True)
            sys.stdin.read()
    """
    keeper = cluster.popen('/usr/bin/python3', '-c', 'import sys; sys.path.insert(0, %r)\n' % LIB + script, cluster.conf, pool, name,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert keeper.stdout.readline().strip() in (b'locked', 'locked')
        task = add(cluster, 'execute', image.spec)
        why = failed_once(cluster, task)
        assert 'lock' in why, why
        image.check()
    finally:
        end_group(keeper)
    ended(cluster, task, 240)
    assert state(cluster, image.spec) == 'executed'
    image.check()


def test_an_import_is_refused(cluster, images, tmp_path):
    raw = tmp_path / 'raw'
    raw.write_bytes(pattern(5 * MIB))
    target = '%s/%s' % (images.pool, unique('imported'))
    spec = json.dumps({'type': 'raw', 'stream': {'type': 'file', 'file_path': str(raw)}})
    cluster.rbd('migration', 'prepare', '--import-only', '--source-spec', spec, target)
    refused(cluster, 'execute', target, 95, 'its source is no image of a pool')
    cluster.rbd('migration', 'abort', '--no-progress', target, check=None)


@pytest.mark.own
def test_a_server_that_is_killed_goes_on(own, tmp_path):
    from skeptest.images import Images
    skep = own(osds=1).start()
    skep.make_pool('rbd', name='rbd')
    images = Images(skep, 'rbd', tmp_path)
    draw = random.Random(7)
    image = Image(skep, images, size=96 * MIB)
    image.write((0, pattern(50 * MIB)))
    image.snap('one')
    image.write((20 * MIB, pattern(40 * MIB)), (0, block(1)))
    image.snap('two')
    image.write((3 * OBJECT, None), (70 * MIB, pattern(9 * MIB)))

    def through(step, spec, kills):
        task = add(skep, step, spec)
        for _ in range(kills):
            # Whenever it has done something.
            seen = draw.uniform(0, 1)
            wait_until(lambda: all(t.get('progress', 0) >= seen / 2 for t in task_list(skep)), 60, 0.05, 'progress')
            skep.kill()
            skep.start()
        ended(skep, task, 300)
    source = image.spec
    for step in ['abort', 'commit']:
        image.spec = source
        image.prepare('rbd/' + unique('moved'))
        # One who has it open would be in the way of an abort.
        writer = Writer(skep, image, tmp_path) if step == 'commit' else None
        try:
            through('execute', image.spec, 3)
            if writer:
                writer.wait(5)
        finally:
            if writer:
                writer.stop()
        assert state(skep, image.spec) == 'executed'
        image.check()
        through(step, image.spec, 2)
        if step == 'abort':
            image.spec = source
        image.check()
        assert skep.rbd_json('trash', 'ls', '--all', 'rbd') == []
    image.map_is_right()
    used = {o.split('.')[1] for o in skep.rados('rbd', 'ls').out.split() if o.startswith('rbd_data.')}
    assert used == {image.ident()}
