"""`rbd` on whole images: create, ls, info, import, export, resize, cp, mv, rm, du, diff, bench, status,
features and object maps, namespaces, metadata; content compared byte for byte."""
import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, pattern, sha


def test_pool_init_is_repeatable(cluster, rbd_pool):
    cluster.rbd('pool', 'init', rbd_pool)


def test_create_and_info(cluster, images):
    name = images.create(64 * MIB)
    info = images.info(name)
    assert (info['name'], info['size'], info['objects'], info['order'], info['object_size']) == (
        name, 64 * MIB, 16, 22, 4 * MIB), info
    assert info['block_name_prefix'] == 'rbd_data.' + info['id']
    assert info['features'] == ['layering', 'exclusive-lock', 'object-map', 'fast-diff', 'deep-flatten'], info
    assert info['flags'] == [], info
    text = cluster.rbd('info', images.spec(name)).out
    assert text.startswith("rbd image '%s':\n\tsize 64 MiB in 16 objects\n" % name), text
    assert images.read(name) == bytes(64 * MIB)


def test_ls(cluster, images):
    name = images.create(8 * MIB)
    assert name in cluster.rbd('ls', images.pool).out.split()
    row = next(r for r in cluster.rbd_json('ls', '-l', images.pool) if r['image'] == name)
    assert row['size'] == 8 * MIB and row['format'] == 2, row


def test_create_forms(cluster, images):
    small = images.create(8 * MIB, '--object-size', '64K', '--stripe-unit', '16K', '--stripe-count', '4')
    info = images.info(small)
    assert (info['order'], info['stripe_unit'], info['stripe_count']) == (16, 16384, 4), info
    assert 'striping' in info['features']
    data = pattern(2 * MIB)
    images.write(small, 5001 * 512, data)
    assert images.read(small)[5001 * 512:5001 * 512 + len(data)] == data
    assert images.info(images.create(MIB, '--image-feature', 'layering'))['features'] == ['layering']


def test_create_errors(cluster, images):
    name = images.create(MIB)
    cluster.rbd_fails(('create', images.spec(name), '--size', '1M'), 17, 'create error: (17) File exists')
    cluster.rbd_fails(('info', images.spec('nosuch')), 2, 'error opening image nosuch: (2)')
    cluster.rbd_fails(('rm', images.spec('nosuch')), 2, 'delete error: (2) No such file')
    cluster.rbd_fails(('info', images.spec(name, 'none')), 2, 'error setting snapshot context: (2)')
    cluster.rbd_fails(('ls', 'nopool'), 2, "error opening pool 'nopool': (2)")


@pytest.mark.parametrize('size', [1, 4095, 7 * MIB + 511, 33 * MIB])
def test_import_export(images, size):
    data = pattern(size)
    name = images.load(data)
    assert images.info(name)['size'] == size
    assert sha(images.read(name)) == sha(data)


def test_import_export_by_pipe(cluster, images):
    data = pattern(9 * MIB)
    name = unique('image')
    cluster.rbd('import', '-', images.spec(name), stdin=data)
    assert sha(cluster.rbd('export', images.spec(name), '-').out_bytes) == sha(data)


def test_import_export_of_format_2_keeps_snapshots(cluster, images, tmp_path):
    first, second = pattern(5 * MIB), pattern(MIB)
    name = images.load(first)
    images.snap(name, 's')
    images.write(name, MIB, second)
    cluster.rbd('export', '--export-format', '2', images.spec(name), tmp_path / 'f')
    copy = unique('image')
    cluster.rbd('import', '--export-format', '2', tmp_path / 'f', images.spec(copy))
    assert images.read(copy, 's') == first
    assert images.read(copy) == first[:MIB] + second + first[2 * MIB:]


def test_rm(cluster, images):
    name = images.load(pattern(9 * MIB))
    prefix = images.info(name)['block_name_prefix']
    cluster.rbd('rm', images.spec(name))
    cluster.rbd_fails(('info', images.spec(name)), 2, 'No such file')
    left = [o for o in cluster.rados(images.pool, 'ls').out.split() if prefix.split('.')[1] in o]
    assert left == []


def test_resize(cluster, images):
    data = pattern(12 * MIB, holes=False)
    name = images.load(data)
    cluster.rbd_fails(('resize', images.spec(name), '--size', '5M'), 22, '--allow-shrink')
    cluster.rbd('resize', images.spec(name), '--size', '5M', '--allow-shrink')
    assert images.info(name)['size'] == 5 * MIB
    cluster.rbd('resize', images.spec(name), '--size', '12M')
    assert images.read(name) == data[:5 * MIB] + bytes(7 * MIB)     # what was cut off is gone for good


def test_cp_and_deep_cp(cluster, images):
    data, more = pattern(9 * MIB), pattern(MIB)
    name = images.load(data)
    images.snap(name, 's')
    images.write(name, 0, more)
    copy, deep = unique('image'), unique('image')
    cluster.rbd('cp', images.spec(name), images.spec(copy))
    cluster.rbd('deep', 'cp', images.spec(name), images.spec(deep))
    assert images.read(copy) == images.read(deep) == more + data[MIB:]
    assert cluster.rbd_json('snap', 'ls', images.spec(copy)) == []
    assert images.read(deep, 's') == data


def test_mv(cluster, images):
    data = pattern(MIB)
    name, new = images.load(data), unique('image')
    cluster.rbd('mv', images.spec(name), images.spec(new))
    assert images.read(new) == data
    names = cluster.rbd('ls', images.pool).out.split()
    assert new in names and name not in names


def test_du(cluster, images):
    name = images.create(64 * MIB)
    images.write(name, 4 * MIB, pattern(5 * MIB, holes=False))
    row = cluster.rbd_json('du', images.spec(name))['images'][0]
    assert (row['provisioned_size'], row['used_size']) == (64 * MIB, 8 * MIB), row       # fast-diff counts objects
    images.snap(name, 's')
    images.write(name, 0, b'x' * 4096)
    rows = {r.get('snapshot'): r['used_size'] for r in cluster.rbd_json('du', images.spec(name))['images']}
    assert rows == {'s': 8 * MIB, None: 4 * MIB}, rows


def test_diff(cluster, images):
    name = images.create(32 * MIB)
    images.write(name, 9 * MIB, b'x' * 4096)
    images.snap(name, 's')
    images.write(name, 20 * MIB, b'y' * 4096)
    spec = images.spec(name)
    # with the object map by whole objects, else by extents
    assert cluster.rbd_json('diff', '--whole-object', spec) == [
        {'offset': 8 * MIB, 'length': 4 * MIB, 'exists': 'true'}, {'offset': 20 * MIB, 'length': 4 * MIB, 'exists': 'true'}]
    assert cluster.rbd_json('diff', spec, '--from-snap', 's') == [{'offset': 20 * MIB, 'length': 4096, 'exists': 'true'}]
    cluster.run('qemu-io', '-f', 'raw', '-c', 'discard 8M 4M', images.url(name))
    assert {'offset': 8 * MIB, 'length': 4 * MIB, 'exists': 'false'} in \
        cluster.rbd_json('diff', '--whole-object', spec, '--from-snap', 's')


def test_export_diff_and_import_diff(cluster, images, tmp_path):
    data, more = pattern(9 * MIB), pattern(MIB)
    name = images.load(data)
    images.snap(name, 's')
    images.write(name, 3 * MIB, more)
    cluster.rbd('export-diff', images.spec(name, 's'), tmp_path / 'base')
    cluster.rbd('export-diff', images.spec(name), '--from-snap', 's', tmp_path / 'step')
    copy = images.create(9 * MIB)
    cluster.rbd('import-diff', tmp_path / 'base', images.spec(copy))
    assert images.read(copy) == data
    cluster.rbd('import-diff', tmp_path / 'step', images.spec(copy))
    assert images.read(copy) == data[:3 * MIB] + more + data[4 * MIB:]


def test_bench(cluster, images):
    name = images.create(32 * MIB)
    for kind in ('write', 'read', 'rw'):
        out = cluster.rbd('bench', '--io-type', kind, '--io-size', '4K', '--io-total', '2M', '--io-pattern', 'rand',
                          images.spec(name), timeout=60).out
        assert 'elapsed: ' in out and 'ops: 512 ' in ' '.join(out.split()), out


def test_status_shows_the_watcher_of_an_open_image(cluster, images):
    name = images.create(8 * MIB)
    assert cluster.rbd('status', images.spec(name)).out == 'Watchers: none\n'
    # a process that keeps the image open while its standard input is open
    import subprocess
    from skeptest.run import end_group, wait_until
    p = cluster.popen('qemu-io', '-f', 'raw', images.url(name), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        doc = wait_until(lambda: (d := cluster.rbd_json('status', images.spec(name)))['watchers'] and d, what='a watcher')
        assert set(doc['watchers'][0]) == {'address', 'client', 'cookie'}, doc
        assert doc['watchers'][0]['address'].startswith('127.0.0.1:0/'), doc
        cluster.rbd_fails(('rm', images.spec(name)), 16, 'image still has watchers')
        p.communicate(b'q\n', timeout=90)
        assert cluster.rbd_json('status', images.spec(name)) == {'watchers': []}
    finally:
        end_group(p)


def test_features_and_object_map(cluster, images):
    name = images.load(pattern(9 * MIB))
    spec = images.spec(name)
    cluster.rbd('feature', 'disable', spec, 'fast-diff', 'object-map')
    assert 'object-map' not in images.info(name)['features']
    cluster.rbd('feature', 'enable', spec, 'object-map', 'fast-diff')
    assert images.info(name)['flags'] == ['object map invalid', 'fast diff invalid']
    cluster.rbd('object-map', 'rebuild', spec)
    assert images.info(name)['flags'] == []
    cluster.rbd('object-map', 'check', spec)


def test_sparsify_frees_zeroed_objects(cluster, images):
    name = images.create(16 * MIB)
    prefix = images.info(name)['block_name_prefix']
    images.write(name, 0, bytes(8 * MIB) + b'x' * 4096)

    def count():
        return sum(o.startswith(prefix) for o in cluster.rados(images.pool, 'ls').out.split())
    assert count() == 3
    cluster.rbd('sparsify', images.spec(name))
    assert count() == 1
    assert images.read(name) == bytes(8 * MIB) + b'x' * 4096 + bytes(8 * MIB - 4096)


def test_namespaces(cluster, images):
    ns = unique('ns')
    cluster.rbd('namespace', 'create', '%s/%s' % (images.pool, ns))
    assert {'name': ns} in cluster.rbd_json('namespace', 'ls', images.pool)
    cluster.rbd('create', '%s/%s/image' % (images.pool, ns), '--size', '1M')
    assert cluster.rbd('ls', '%s/%s' % (images.pool, ns)).out == 'image\n'
    assert 'image' not in cluster.rbd('ls', images.pool).out.split()
    cluster.rbd('rm', '%s/%s/image' % (images.pool, ns))
    cluster.rbd('namespace', 'rm', '%s/%s' % (images.pool, ns))


def test_image_meta(cluster, images):
    name = images.create(MIB)
    spec = images.spec(name)
    assert cluster.rbd('image-meta', 'list', spec).out == 'There are 0 metadata on this image.\n'
    cluster.rbd('image-meta', 'set', spec, 'key', 'value with space')
    cluster.rbd('image-meta', 'set', spec, 'conf_rbd_cache', 'false')
    assert cluster.rbd('image-meta', 'get', spec, 'key').out == 'value with space\n'
    assert cluster.rbd_json('image-meta', 'list', spec) == {'conf_rbd_cache': 'false', 'key': 'value with space'}
    cluster.rbd('image-meta', 'remove', spec, 'key')
    cluster.rbd_fails(('image-meta', 'get', spec, 'key'), 2, 'failed to get metadata key of image : (2)')


def test_pool_stats_and_config(cluster, images):
    images.create(8 * MIB)
    doc = cluster.rbd_json('pool', 'stats', images.pool)
    assert doc['images']['count'] >= 1 and doc['images']['provisioned_bytes'] >= 8 * MIB, doc
    cluster.rbd('config', 'pool', 'set', images.pool, 'rbd_cache', 'false')
    rows = {r['name']: r for r in cluster.rbd_json('config', 'pool', 'ls', images.pool)}
    assert rows['rbd_cache'] == {'name': 'rbd_cache', 'value': 'false', 'source': 'pool'}
    cluster.rbd('config', 'pool', 'rm', images.pool, 'rbd_cache')
