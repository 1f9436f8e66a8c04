"""`rbd snap *`, clone, children, flatten: content of every snapshot and clone, and the rules that
protect them."""
from skeptest.cluster import unique
from skeptest.images import MIB, pattern


def clone(cluster, images, parent, snap, *args):
    name = unique('clone')
    cluster.rbd('clone', *args, images.spec(parent, snap), images.spec(name))
    return name


def test_snapshots_keep_their_content(cluster, images):
    content = [pattern(6 * MIB)]
    name = images.load(content[0])
    for i, (offset, data) in enumerate([(0, b'a' * 4096), (3 * MIB + 512, pattern(2 * MIB)), (5 * MIB, bytes(MIB))]):
        images.snap(name, 's%d' % i)
        images.write(name, offset, data)
        old = content[-1]
        content.append(old[:offset] + data + old[offset + len(data):])
    for i in range(3):
        assert images.read(name, 's%d' % i) == content[i]
    assert images.read(name) == content[3]
    rows = cluster.rbd_json('snap', 'ls', images.spec(name))
    assert [(r['name'], r['size'], r['protected']) for r in rows] == [('s%d' % i, 6 * MIB, 'false') for i in range(3)]
    cluster.rbd('snap', 'rm', images.spec(name, 's1'))
    assert images.read(name, 's0') == content[0] and images.read(name, 's2') == content[2]


def test_rollback(cluster, images):
    data = pattern(9 * MIB)
    name = images.load(data)
    images.snap(name, 's')
    images.write(name, MIB, b'z' * MIB)
    cluster.rbd('resize', images.spec(name), '--size', '20M')
    cluster.rbd('snap', 'rollback', images.spec(name, 's'))
    assert images.read(name) == data


def test_rename_limit_purge(cluster, images):
    name = images.create(MIB)
    images.snap(name, 'a')
    cluster.rbd('snap', 'rename', images.spec(name, 'a'), images.spec(name, 'b'))
    assert [r['name'] for r in cluster.rbd_json('snap', 'ls', images.spec(name))] == ['b']
    cluster.rbd('snap', 'limit', 'set', images.spec(name), '--limit', '1')
    cluster.rbd_fails(('snap', 'create', images.spec(name, 'c')), 122, '(122) Disk quota exceeded')
    cluster.rbd('snap', 'limit', 'clear', images.spec(name))
    images.snap(name, 'c')
    cluster.rbd('snap', 'purge', images.spec(name))
    assert cluster.rbd_json('snap', 'ls', images.spec(name)) == []


def test_errors(cluster, images):
    name = images.create(MIB)
    images.snap(name, 'x')
    spec = images.spec(name, 'x')
    cluster.rbd_fails(('snap', 'create', spec), 17, 'failed to create snapshot: (17) File exists')
    cluster.rbd_fails(('snap', 'rm', images.spec(name, 'no')), 2, 'failed to remove snapshot: (2)')
    cluster.rbd_fails(('rm', images.spec(name)), 39, 'image has snapshots')
    cluster.rbd_fails(('clone', spec, images.spec('c')), 22, 'clone error: (22) Invalid argument')
    cluster.rbd('snap', 'protect', spec)
    cluster.rbd_fails(('snap', 'protect', spec), 16, 'snap is already protected')
    cluster.rbd_fails(('snap', 'rm', spec), 16, 'is protected from removal')
    cluster.rbd('snap', 'unprotect', spec)
    cluster.rbd_fails(('snap', 'unprotect', spec), 22, 'snap is already unprotected')


def test_clones_differ_from_parent_and_each_other(cluster, images):
    data = pattern(13 * MIB)
    parent = images.load(data)
    images.snap(parent, 's', protect=True)
    one, two = (clone(cluster, images, parent, 's') for _ in range(2))
    info = images.info(one)
    assert (info['parent']['image'], info['parent']['snapshot'], info['parent']['overlap']) == (
        parent, 's', 13 * MIB), info
    children = cluster.rbd_json('children', images.spec(parent, 's'))
    assert sorted(c['image'] for c in children) == sorted([one, two]), children
    assert images.read(one) == data
    images.write(one, 2 * MIB + 512, b'1' * 4096)              # copy-up of a part of an object
    images.write(two, 8 * MIB, pattern(4 * MIB, holes=False))   # a whole object
    got_one, got_two = images.read(one), images.read(two)
    assert got_one == data[:2 * MIB + 512] + b'1' * 4096 + data[2 * MIB + 512 + 4096:]
    assert got_two[:8 * MIB] == data[:8 * MIB] and got_two[12 * MIB:] == data[12 * MIB:] and got_two != data
    assert images.read(parent, 's') == images.read(parent) == data

    cluster.rbd_fails(('snap', 'unprotect', images.spec(parent, 's')), 16, '2 child(ren)')
    cluster.rbd('flatten', images.spec(one))
    assert 'parent' not in images.info(one)
    assert images.read(one) == got_one
    cluster.rbd_fails(('snap', 'unprotect', images.spec(parent, 's')), 16, '1 child(ren)')
    cluster.rbd('rm', images.spec(two))
    cluster.rbd('snap', 'unprotect', images.spec(parent, 's'))
    cluster.rbd('snap', 'rm', images.spec(parent, 's'))
    cluster.rbd('rm', images.spec(parent))
    assert images.read(one) == got_one


def test_clone_of_a_clone_and_its_snapshots(cluster, images):
    data = pattern(5 * MIB)
    parent = images.load(data)
    images.snap(parent, 's', protect=True)
    child = clone(cluster, images, parent, 's')
    images.write(child, MIB, b'c' * MIB)
    images.snap(child, 't', protect=True)
    images.write(child, 0, b'd' * 4096)
    grandchild = clone(cluster, images, child, 't')
    expected = data[:MIB] + b'c' * MIB + data[2 * MIB:]
    assert images.read(grandchild) == images.read(child, 't') == expected
    images.write(grandchild, 4 * MIB, b'g' * 512)
    assert images.read(grandchild) == expected[:4 * MIB] + b'g' * 512 + expected[4 * MIB + 512:]
    assert images.read(child) == b'd' * 4096 + expected[4096:]


def test_clone_format_2_needs_no_protection(cluster, images):
    data = pattern(MIB)
    parent = images.load(data)
    images.snap(parent, 's')
    child = clone(cluster.with_args('--rbd-default-clone-format=2'), images, parent, 's')
    assert images.read(child) == data
    cluster.rbd('snap', 'rm', images.spec(parent, 's'))      # moves to the trash namespace: the clone lives on
    assert images.read(child) == data
    cluster.rbd('rm', images.spec(child))


def test_clone_smaller_than_parent_after_resize(cluster, images):
    data = pattern(9 * MIB)
    parent = images.load(data)
    images.snap(parent, 's', protect=True)
    child = clone(cluster, images, parent, 's')
    cluster.rbd('resize', images.spec(child), '--size', '5M', '--allow-shrink')
    cluster.rbd('resize', images.spec(child), '--size', '9M')
    assert images.info(child)['parent']['overlap'] == 5 * MIB
    assert images.read(child) == data[:5 * MIB] + bytes(4 * MIB)


def test_deep_flatten_also_detaches_snapshots(cluster, images):
    data = pattern(5 * MIB)
    parent = images.load(data)
    images.snap(parent, 's', protect=True)
    child = clone(cluster, images, parent, 's')
    images.snap(child, 'of-child')
    images.write(child, 0, b'n' * MIB)
    cluster.rbd('flatten', images.spec(child))
    assert images.read(child, 'of-child') == data
    assert images.read(child) == b'n' * MIB + data[MIB:]
    cluster.rbd('snap', 'unprotect', images.spec(parent, 's'))
