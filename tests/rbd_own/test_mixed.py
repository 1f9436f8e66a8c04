"""Our RBD client and librbd on the same image: what one writes the other reads, locks go back and forth, object maps and
diffs stay true. Every test runs against a real Ceph, too (tests/README.md)."""
import json
import os
import random

import pytest

from skeptest import rbdio
from skeptest.cluster import unique
from skeptest.images import MIB, sha
from skeptest.rbdio import Refused
from skeptest.run import wait_until
from skeptest.skep import find_binary

OBJECT = 4 * MIB


@pytest.fixture
def drivers(cluster, rbd_pool, tmp_path):
    """(ours, librbd's), with no image open."""
    both = rbdio.ours(cluster, rbd_pool, tmp_path), rbdio.librbd(cluster, rbd_pool, tmp_path)
    yield both
    for driver in both:
        driver.end()


@pytest.fixture
def more(cluster, rbd_pool, tmp_path):
    """Makes further drivers; ended with the test."""
    made = []

    def make(kind, **kw):
        made.append(kind(cluster, rbd_pool, tmp_path, **kw))
        return made[-1]
    yield make
    for driver in made:
        driver.end()


class Model:
    """What an image must contain."""

    def __init__(self, size, seed):
        self.data = bytearray(size)
        self.random = random.Random(seed)

    def range(self, longest):
        at = self.random.randrange(len(self.data))
        return at, self.random.randrange(1, min(longest, len(self.data) - at) + 1)

    def step(self, driver):
        """One random change by this driver."""
        kind = self.random.random()
        if kind < 0.7:
            at, n = self.range(MIB if kind < 0.6 else 3 * OBJECT)
            data = self.random.randbytes(n)
            driver.write(at, data)
            self.data[at:at + n] = data
        elif kind < 0.9:
            at, n = self.range(3 * OBJECT)
            # Of zeroing where an object has nothing the map says "changed" and its clones do not: librbd's own check of the map
            # finds fault with that, whoever did it.
            driver.write(at, self.random.randbytes(n))
            driver('zero', at, n)
            self.data[at:at + n] = bytes(n)
        else:
            at = self.random.randrange(len(self.data) // OBJECT) * OBJECT
            driver('discard', at, OBJECT)
            self.data[at:at + OBJECT] = bytes(OBJECT)
        driver('flush')                                 # librbd keeps writes back until then

    def check(self, driver):
        assert sha(driver.read(0, len(self.data))) == sha(self.data)


def check_maps(images, name):
    """`rbd object-map check` of the head and all snapshots says nothing, and no map is flagged invalid."""
    assert 'object map invalid' not in ' '.join(images.info(name).get('flags', []))
    snaps = [s['name'] for s in images.cluster.rbd_json('snap', 'ls', images.spec(name))]
    for snap in [None, *snaps]:
        said = images.cluster.rbd('object-map', 'check', images.spec(name, snap), timeout=60)
        assert 'error' not in said.err, said
    assert images.info(name)['flags'] == []


def check_diffs(images, name, contents):
    """`rbd diff --whole-object` names the same objects with fast-diff and, once that is disabled, by their clones: between all
    pairs of snapshots and the head (`contents`, in order; the head is None). Fast-diff may name an object more only if it
    looks the same in both: one that was emptied exists, but has no extents that the other way would find."""
    names = list(contents)
    pairs = [(start, end) for i, start in enumerate([None, *names[:-1]]) for end in names[i:]]

    def diffs():
        for start, end in pairs:
            since = ['--from-snap', start] if start else []
            rows = images.cluster.rbd_json('diff', '--whole-object', images.spec(name, end), *since)
            yield {r['offset'] // OBJECT for r in rows}
    fast = list(diffs())
    images.cluster.rbd('feature', 'disable', images.spec(name), 'fast-diff')
    for (start, end), with_map, without in zip(pairs, fast, diffs()):
        assert without <= with_map, (start, end)
        for at in (o * OBJECT for o in with_map - without):
            before = contents[start][at:at + OBJECT] if start else bytes(OBJECT)
            assert before == contents[end][at:at + OBJECT], (start, end, at)


@pytest.mark.parametrize('features', [None, 'layering', 'layering,exclusive-lock'])
def test_one_writes_the_other_reads(drivers, images, features):
    ours, theirs = drivers
    size = 22 * MIB + 4096
    name = images.create(size, *(['--image-feature', features] if features else []))
    model = Model(size, name)
    for driver in (ours, theirs):
        driver('open', name)
    for turn in range(24):
        model.step((ours, theirs)[turn % 2])
        if turn % 6 == 5:
            model.check(ours)
            model.check(theirs)
    for driver in (ours, theirs):
        driver('close')
    if features is None:
        check_maps(images, name)
    assert sha(images.read(name)) == sha(model.data)


@pytest.mark.parametrize('how', [[], ['unit=65536', 'count=3'], ['order=16'], ['features=1'], ['unit=4096', 'count=5', 'order=18']])
def test_what_we_create_librbd_takes(drivers, images, how):
    ours, theirs = drivers
    name, size = unique('image'), 9 * MIB + 513
    ours('create', name, size, *how)
    assert name in ours('list').split() and images.info(name)['size'] == size
    model = Model(size, name)
    ours('open', name)
    for _ in range(8):
        model.step(ours)
    ours('close')
    theirs('open', name)
    model.check(theirs)
    at, data = 3 * MIB, os.urandom(2 * MIB)
    theirs.write(at, data)
    model.data[at:at + len(data)] = data
    theirs('close')
    ours('open', name)
    model.check(ours)
    ours('close')
    ours('rename', name, name + '-b')
    assert sha(images.read(name + '-b')) == sha(model.data)
    ours('remove', name + '-b')
    assert name + '-b' not in images.cluster.rbd('ls', images.pool).out.split()
    left = images.cluster.rados(images.pool, 'ls').out
    assert name not in left


def test_data_pool_and_namespace(cluster, images, more):
    data_pool = cluster.make_pool('rbd')
    try:
        cluster.rbd('namespace', 'create', '%s/apart' % images.pool)
        ours, theirs = (more(kind, namespace='apart') for kind in (rbdio.ours, rbdio.librbd))
        ours('create', 'x', 10 * MIB, 'data-pool=' + data_pool)
        ours('open', 'x')
        data = os.urandom(5 * MIB)
        ours.write(MIB, data)
        ours('snap-create', 's')
        ours('close')
        theirs('open', 'x', 'snap=s')
        assert theirs.read(MIB, len(data)) == data
        theirs('close')
        assert 'rbd_data' in cluster.rados(data_pool, '--namespace', 'apart', 'ls').out
        ours('open', 'x')
        ours('snap-remove', 's')
        ours('close')
        ours('remove', 'x')
        assert not cluster.rados(data_pool, '--namespace', 'apart', 'ls').out.strip()
        with pytest.raises(Refused, match='ENOENT'):
            more(rbdio.ours, namespace='missing')('create', 'y', MIB)
    finally:
        cluster.drop_pool(data_pool)


@pytest.mark.parametrize('first', [0, 1])
def test_resizing(drivers, images, first):
    a, b = drivers[first], drivers[1 - first]
    name = images.create(20 * MIB)
    model = Model(20 * MIB, name)
    for driver in (a, b):
        driver('open', name)
    for driver in (a, b):
        model.step(driver)
    for driver, size in ((a, 13 * MIB + 100), (b, 30 * MIB), (a, 5 * MIB), (b, 4 * MIB), (a, 20 * MIB)):
        driver('resize', size, 'shrink')
        model.data = model.data[:size] + bytes(max(0, size - len(model.data)))
        wait_until(lambda: a('size') == b('size') == str(size), 60, 0.1, 'both to see the size')
        model.check(a)
        model.check(b)
        model.step(b)
        model.step(a)
    with pytest.raises(Refused, match='EINVAL'):
        drivers[0]('resize', MIB)
    for driver in (a, b):
        driver('close')
    check_maps(images, name)


def test_snapshots_of_both(drivers, images):
    ours, theirs = drivers
    size = 24 * MIB
    name = images.create(size)
    model, kept = Model(size, name), {}
    for driver in (ours, theirs):
        driver('open', name)
    for turn in range(6):
        for _ in range(3):
            model.step(drivers[model.random.randrange(2)])
        snap = 's%d' % turn
        drivers[turn % 2]('snap-create', snap)
        kept[snap] = bytes(model.data)
    for _ in range(4):
        model.step(ours)
        model.step(theirs)
    ours('snap-protect', 's4')
    with pytest.raises(Refused, match='EBUSY'):
        ours('snap-remove', 's4')
    ours('snap-unprotect', 's4')
    ours('snap-remove', 's1')
    theirs('snap-remove', 's2')
    del kept['s1'], kept['s2']
    assert set(ours('snap-list').split()) == set(theirs('snap-list').split()) == set(kept)
    for driver in (ours, theirs):
        driver('close')
    for driver in (ours, theirs):
        for snap, data in kept.items():
            driver('open', name, 'snap=' + snap)
            assert sha(driver.read(0, size)) == sha(data), snap
            driver('close')
    check_maps(images, name)
    assert sha(images.read(name)) == sha(model.data)
    check_diffs(images, name, {**kept, None: bytes(model.data)})


@pytest.mark.parametrize('map_of_child', [True, False])
@pytest.mark.parametrize('maker', [0, 1])
def test_clones(drivers, images, maker, map_of_child):
    ours, theirs = drivers
    size = 20 * MIB
    parent, child = images.create(size), unique('child')
    model = Model(size, parent)
    ours('open', parent)
    for _ in range(5):
        model.step(ours)
    ours('snap-create', 's')
    of_parent = bytes(model.data)
    ours.write(0, os.urandom(OBJECT))                   # not seen by the clone
    ours('close')
    if maker == 0 and map_of_child:
        ours('clone', parent, 's', child)
    else:
        features = [] if map_of_child else ['--image-feature', 'layering,exclusive-lock']
        images.cluster.rbd('clone', '--rbd-default-clone-format', '2', images.spec(parent, 's'), images.spec(child), *features)
    kept = {}
    for driver in (ours, theirs):
        driver('open', child)
        model.check(driver)
    for turn in range(4):
        for _ in range(3):
            model.step(drivers[model.random.randrange(2)])
        model.check(ours)
        drivers[turn % 2]('snap-create', 's%d' % turn)
        kept['s%d' % turn] = bytes(model.data)
    for _ in range(3):
        model.step(ours)
        model.step(theirs)
    model.check(theirs)
    for driver in (ours, theirs):
        driver('close')
        for snap, data in kept.items():
            driver('open', child, 'snap=' + snap)
            assert sha(driver.read(0, size)) == sha(data), (driver is ours, snap)
            driver('close')
    if map_of_child:
        check_maps(images, child)
    flattener = drivers[maker]
    flattener('open', child)
    flattener('flatten')
    flattener('close')
    assert 'parent' not in images.info(child)
    assert sha(images.read(child)) == sha(model.data)
    for snap, data in kept.items():
        assert sha(images.read(child, snap)) == sha(data)
    if map_of_child:
        check_maps(images, child)
    ours('open', parent, 'snap=s')
    assert sha(ours.read(0, size)) == sha(of_parent)
    ours('close')


def test_a_snapshot_goes_with_its_last_clone(drivers, images):
    ours, _ = drivers
    parent = images.create(8 * MIB)
    ours('open', parent)
    ours.write(0, b'x' * MIB)
    ours('snap-create', 's')
    ours('close')
    ours('clone', parent, 's', parent + '-c')
    ours('open', parent)
    ours('snap-remove', 's')
    assert ours('snap-list')                            # in the trash, under another name
    ours('close')
    ours('open', parent + '-c')
    assert ours.read(0, MIB) == b'x' * MIB
    ours('close')
    ours('remove', parent + '-c')
    assert images.cluster.rbd_json('snap', 'ls', '--all', images.spec(parent)) == []
    ours('remove', parent)


@pytest.mark.parametrize('features', [None, 'layering,exclusive-lock'])
def test_snapshots_of_a_clone_that_was_shrunk(drivers, images, features):
    """Each snapshot goes on seeing as much of the parent as it did: one of before the clone was shrunk all of it, one of after
    it was grown again no more than what was left, whatever we write later. (What librbd writes takes away from the older
    one all that the head does not see of the parent.)"""
    ours, theirs = drivers
    size, left = 2 * OBJECT, 2 * MIB
    parent, child = images.create(size), unique('child')
    of_parent = os.urandom(size)
    ours('open', parent)
    ours.write(0, of_parent)
    ours('snap-create', 's')
    ours('close')
    options = ['--image-feature', features] if features else []
    images.cluster.rbd('clone', '--rbd-default-clone-format', '2', images.spec(parent, 's'), images.spec(child), *options)
    ours('open', child)
    ours('snap-create', 'before')
    ours('resize', left, 'shrink')
    ours('snap-create', 'shrunk')
    ours('resize', size)
    ours('snap-create', 'after')
    ours('close')
    data = bytearray(of_parent[:left] + bytes(size - left))
    kept = {'before': of_parent, 'shrunk': bytes(data[:left]), 'after': bytes(data)}
    ours('open', child)
    for at in (MIB, OBJECT + MIB):                      # the head sees some of the parent, and nothing of it
        ours('fill', at, 4096, 7)
        data[at:at + 4096] = bytes([7]) * 4096
    ours('close')

    def check():
        for reader in drivers:
            for snap, want in [*kept.items(), (None, bytes(data))]:
                reader('open', child, *(['snap=' + snap] if snap else []))
                got = reader.read(0, len(want))
                assert sha(got) == sha(want), (reader is ours, snap)
                reader('close')
    check()
    if features is None:
        check_maps(images, child)
    ours('open', child)
    ours('flatten')
    ours('close')
    check()


def test_the_lock_goes_back_and_forth(drivers, images):
    ours, theirs = drivers
    name = images.create(8 * MIB)
    for driver in (ours, theirs):
        driver('open', name)
    for i in range(6):
        writer, other = drivers[i % 2], drivers[1 - i % 2]
        writer('fill', i * 4096, 4096, i + 1)
        assert writer('owner') == 'true' and other('owner') == 'false'
    theirs('flush')
    want = b''.join(bytes([i + 1]) * 4096 for i in range(6))
    assert ours.read(0, len(want)) == theirs.read(0, len(want)) == want
    for driver in (ours, theirs):
        driver('close')
    check_maps(images, name)


def test_both_write_at_once(drivers, images):
    """Each writes its own half of the blocks as fast as it can, so each asks the other for the lock all the time."""
    ours, theirs = drivers
    name, block, rounds = images.create(16 * MIB), 64 * 1024, 30
    for driver in (ours, theirs):
        driver('open', name)
    for i in range(rounds):
        ours.send('fill', 2 * i * block, block, i + 1)
        theirs.send('fill', (2 * i + 1) * block, block, i + 101)
    for _ in range(rounds):
        ours.answer(120)
        theirs.answer(120)
    theirs('flush')
    want = b''.join(bytes([i + 1]) * block + bytes([i + 101]) * block for i in range(rounds))
    assert sha(ours.read(0, len(want))) == sha(theirs.read(0, len(want))) == sha(want)
    for driver in (ours, theirs):
        driver('close')
    check_maps(images, name)


@pytest.mark.parametrize('dead', [0, 1])
def test_a_dead_owner_is_fenced(drivers, images, more, dead):
    name = images.create(8 * MIB)
    victim = more((rbdio.ours, rbdio.librbd)[dead])
    victim('open', name)
    victim('fill', 0, MIB, 7)
    victim('flush')
    victim.kill()
    survivor = drivers[1 - dead]
    survivor('open', name)
    survivor('fill', MIB, MIB, 8, timeout=90)
    assert survivor.read(0, 2 * MIB) == b'\7' * MIB + b'\x08' * MIB
    survivor('close')
    check_maps(images, name)


def test_an_owner_that_keeps_the_lock_is_respected(drivers, images):
    ours, theirs = drivers
    name = images.create(8 * MIB)
    theirs('open', name)
    theirs('keep')
    ours('open', name)
    with pytest.raises(Refused, match='EROFS'):
        ours('fill', 0, 4096, 1)
    assert ours.read(0, 10) == bytes(10)
    theirs('close')
    ours('fill', 0, 4096, 1)
    ours('close')


def test_librbd_asks_us_for_maintenance(drivers, images):
    """While we own the lock, librbd's requests for work come to us; what we do not serve it does itself."""
    ours, theirs = drivers
    name = images.create(8 * MIB)
    for driver in (ours, theirs):
        driver('open', name)
    ours('fill', 0, MIB, 1)
    assert ours('owner') == 'true'
    theirs('snap-create', 'a')
    theirs('resize', 12 * MIB)
    theirs('snap-protect', 'a')
    theirs('snap-unprotect', 'a')
    assert ours('owner') == 'true' and ours('size') == str(12 * MIB) and ours('snap-list') == 'a'
    ours('fill', 0, MIB, 2)
    theirs('snap-remove', 'a')
    assert ours('snap-list') == ''
    for driver in (ours, theirs):
        driver('close')
    check_maps(images, name)


def test_refused_clearly(cluster, drivers, images, tmp_path):
    ours, _ = drivers
    journaled = images.create(8 * MIB, '--image-feature', 'exclusive-lock,journaling')
    with pytest.raises(Refused, match='EOPNOTSUPP.*journaling'):
        ours('open', journaled)
    cluster.rbd('rm', images.spec(journaled))
    luks = images.create(8 * MIB)
    images.write(luks, 0, b'LUKS\xba\xbe' + bytes(506))
    with pytest.raises(Refused, match='EOPNOTSUPP.*encrypted'):
        ours('open', luks)
    ours('open', luks, 'encrypted')
    ours('close')
    moving = images.create(8 * MIB)
    cluster.rbd('migration', 'prepare', images.spec(moving), images.spec(moving + '-b'))
    with pytest.raises(Refused, match='EOPNOTSUPP.*migrated'):
        ours('open', moving + '-b')
    cluster.rbd('migration', 'abort', images.spec(moving + '-b'), timeout=60)
    (tmp_path / 'old').write_bytes(b'<<< Rados Block Device Image >>>\n'.ljust(112, b'\0'))
    cluster.rados(images.pool, 'put', 'old.rbd', tmp_path / 'old')
    with pytest.raises(Refused, match='EOPNOTSUPP.*format 1'):
        ours('open', 'old')
    cluster.rados(images.pool, 'rm', 'old.rbd')
    for command, errno in [(('open', 'nowhere'), 'ENOENT'), (('create', luks, MIB), 'EEXIST'), (('remove', 'nowhere'), 'ENOENT'),
                           (('create', 'a@b', MIB), 'EINVAL'), (('open', luks, 'snap=none', 'encrypted'), 'ENOENT')]:
        with pytest.raises(Refused, match=errno):
            ours(*command)
    ours('open', luks, 'encrypted')
    with pytest.raises(Refused, match='EINVAL'):
        ours('fill', 8 * MIB - 1, 2, 1)
    ours('snap-create', 's')
    with pytest.raises(Refused, match='EEXIST'):
        ours('snap-create', 's')
    ours('close')
    with pytest.raises(Refused, match='ENOTEMPTY'):
        ours('remove', luks)


def test_tell(cluster, rbd_pool):
    """`skep tell` prints what a daemon answers, and fails with its reason."""
    def tell(*words, check=0):
        return cluster.run(find_binary(), 'tell', '--conf', cluster.conf, *words, check=check)
    assert 'version' in json.loads(tell('osd.0', 'version').out)
    pool = next(p['poolnum'] for p in cluster.ceph_json('osd', 'lspools') if p['poolname'] == rbd_pool)
    pg = '%d.0' % pool
    assert json.loads(tell(pg, 'pg', 'cmd=query').out)['info']['pgid'] == pg
    assert 'version' in tell('mgr', 'version').out
    for words, why in ((['osd.99', 'version'], 'osd.99 does not exist'), (['osd.0', 'no', 'such'], 'Invalid argument')):
        assert why in tell(*words, check=1).err


def test_bench(cluster, rbd_pool, images):
    """`skep bench` of both kinds: what it says adds up, what it wrote is there, and nothing is left behind."""
    def bench(kind, *args, **kw):
        return cluster.run(find_binary(), 'bench', kind, '--conf', cluster.conf, '--pool', rbd_pool, *args, timeout=120, **kw)
    report = json.loads(bench('rbd', '--rw', 'mix', '--image-size', '24M', '--ops', 2000, '--verify', '-f', 'json').out)
    assert report['ops'] == 2000 == report['read']['ops'] + report['write']['ops'] and report['cpu']['client_us_per_op'] > 0
    latency = report['write']['latency_us']
    assert 0 < latency['p50'] <= latency['p99'] <= latency['p100']
    for rw in ('randread', 'write'):
        said = bench('rados', '--rw', rw, '--clients', 2, '--depth', 3, '--object-size', '64K', '--seconds', 1).out
        assert 'operations' in said and 'p99.9' in said, said
    name = images.create(8 * MIB)
    assert '--overwrite' in bench('rbd', '--image', name, check=1).err
    bench('rbd', '--image', name, '--overwrite', '--ops', 50, '--verify')
    check_maps(images, name)
    assert 'nowhere' in bench('rbd', '--rw', 'read', '--image', 'nowhere', check=1).err
    assert '1G' in bench('rados', '-b', '32M', '--object-size', '32M', '--depth', 1000, check=1).err
    assert 'skep_bench' not in cluster.rados(rbd_pool, 'ls').out and 'skep_bench' not in cluster.rbd('ls', rbd_pool).out
