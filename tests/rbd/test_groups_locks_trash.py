"""`rbd lock`, `rbd trash`, `rbd group`, `rbd migration`: the bookkeeping that lives in omap and classes."""
import re

from skeptest.cluster import unique
from skeptest.images import MIB, pattern


def test_advisory_lock(cluster, images):
    spec = images.spec(images.create(MIB))
    cluster.rbd('lock', 'add', spec, 'mine')
    rows = cluster.rbd_json('lock', 'ls', spec)
    assert len(rows) == 1 and rows[0]['id'] == 'mine' and re.fullmatch(r'client\.\d+', rows[0]['locker']), rows
    assert rows[0]['address'].startswith('127.0.0.1:0/'), rows
    cluster.rbd_fails(('lock', 'add', spec, 'other'), 16, 'lock is already held by someone else')
    cluster.rbd_fails(('lock', 'rm', spec, 'mine', 'client.1'), 2, 'releasing lock failed: (2)')
    cluster.rbd('lock', 'rm', spec, 'mine', rows[0]['locker'])
    assert cluster.rbd_json('lock', 'ls', spec) == []


def test_shared_lock(cluster, images):
    spec = images.spec(images.create(MIB, '--image-feature', 'layering'))
    cluster.rbd('lock', 'add', spec, 'one', '--shared', 'tag')
    cluster.rbd('lock', 'add', spec, 'two', '--shared', 'tag')
    rows = cluster.rbd_json('lock', 'ls', spec)
    assert sorted(r['id'] for r in rows) == ['one', 'two'], rows
    cluster.rbd_fails(('lock', 'add', spec, 'three', '--shared', 'othertag'), 16, 'held by someone else with a different tag')


def test_trash(cluster, images):
    data = pattern(5 * MIB)
    name = images.load(data)
    image_id = images.info(name)['id']
    cluster.rbd('trash', 'mv', images.spec(name))
    assert name not in cluster.rbd('ls', images.pool).out.split()
    assert {'id': image_id, 'name': name} in cluster.rbd_json('trash', 'ls', images.pool)
    cluster.rbd('trash', 'restore', '--pool', images.pool, '--image-id', image_id)
    assert images.read(name) == data
    cluster.rbd('trash', 'mv', images.spec(name))
    cluster.rbd('trash', 'rm', '%s/%s' % (images.pool, image_id))
    assert image_id not in cluster.rbd('trash', 'ls', images.pool).out


def test_trash_purge_and_deferment(cluster, images):
    kept, gone = images.create(MIB), images.create(MIB)
    kept_id = images.info(kept)['id']
    cluster.rbd('trash', 'mv', images.spec(kept), '--expires-at', 'tomorrow')
    cluster.rbd('trash', 'mv', images.spec(gone))
    cluster.rbd_fails(('trash', 'rm', '%s/%s' % (images.pool, kept_id)), 1, 'Deferment time has not expired')
    cluster.rbd('trash', 'purge', images.pool)
    assert [r['name'] for r in cluster.rbd_json('trash', 'ls', images.pool)] == [kept]
    cluster.rbd('trash', 'rm', '--force', '%s/%s' % (images.pool, kept_id))


def test_group_snapshot(cluster, images):
    group, name = unique('group'), images.load(pattern(MIB))
    spec = '%s/%s' % (images.pool, group)
    cluster.rbd('group', 'create', spec)
    cluster.rbd('group', 'image', 'add', spec, images.spec(name))
    assert group in cluster.rbd('group', 'ls', images.pool).out.split()
    assert [i['image'] for i in cluster.rbd_json('group', 'image', 'ls', spec)] == [name]
    before = images.read(name)
    cluster.rbd('group', 'snap', 'create', spec + '@gs')
    images.write(name, 0, b'w' * 4096)
    cluster.rbd('group', 'snap', 'rollback', spec + '@gs')
    assert images.read(name) == before
    assert 'gs' in cluster.rbd('group', 'snap', 'ls', spec).out
    cluster.rbd('group', 'snap', 'rm', spec + '@gs')
    cluster.rbd('group', 'image', 'rm', spec, images.spec(name))
    cluster.rbd('group', 'rm', spec)


def test_migration_moves_an_image(cluster, images):
    data = pattern(5 * MIB)
    name, target = images.load(data), unique('image')
    cluster.rbd('migration', 'prepare', images.spec(name), images.spec(target))
    assert images.read(target) == data                          # served from the source meanwhile
    cluster.rbd('migration', 'execute', images.spec(target))
    cluster.rbd('migration', 'commit', images.spec(target))
    assert images.read(target) == data
    assert name not in cluster.rbd('ls', images.pool).out.split()
