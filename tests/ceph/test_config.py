"""`ceph config ...` and `ceph config-key ...`: the central configuration, and that clients receive it."""
from skeptest.cluster import unique


def test_set_get_dump_rm(cluster):
    cluster.ceph('config', 'set', 'client', 'rbd_default_order', '21')
    try:
        assert cluster.ceph('config', 'get', 'client', 'rbd_default_order').out == '21\n'
        row = next(r for r in cluster.ceph_json('config', 'dump') if r['name'] == 'rbd_default_order')
        assert (row['section'], row['value']) == ('client', '21'), row
        assert 'rbd_default_order' in cluster.ceph('config', 'dump').out
    finally:
        cluster.ceph('config', 'rm', 'client', 'rbd_default_order')
    assert not [r for r in cluster.ceph_json('config', 'dump') if r['name'] == 'rbd_default_order']


def test_clients_obey_it(cluster, rbd_pool):
    """The option reaches a client at its next start: an image is made with the object size set centrally."""
    cluster.ceph('config', 'set', 'client', 'rbd_default_order', '20')
    try:
        name = unique('image')
        cluster.rbd('create', '%s/%s' % (rbd_pool, name), '--size', '4M')
        assert cluster.rbd_json('info', '%s/%s' % (rbd_pool, name))['order'] == 20
    finally:
        cluster.ceph('config', 'rm', 'client', 'rbd_default_order')


def test_errors(cluster):
    assert cluster.ceph('config', 'get', 'osd.0', 'nosuchopt', check=2).err.strip() == \
        "Error ENOENT: unrecognized key 'nosuchopt'"
    assert cluster.ceph('config', 'set', 'osd', 'nosuchopt', '1', check=22).err.strip() == \
        "Error EINVAL: unrecognized config option 'nosuchopt'"


def test_config_key(cluster):
    key = unique('key')
    cluster.ceph('config-key', 'set', key, 'value')
    assert cluster.ceph('config-key', 'get', key).out.strip() == 'value'
    assert key in cluster.ceph_json('config-key', 'ls')
    cluster.ceph('config-key', 'rm', key)
    cluster.ceph('config-key', 'get', key, check=2)


def test_options_of_manager_modules(cluster):
    """As a real 16.2.15 answers."""
    def config(*args, check=0):
        return cluster.ceph('config', *args, check=check)
    name = 'mgr/telemetry/contact'
    before = cluster.ceph_json('config', 'log', '1')[0]['version']
    for who, value in ('mgr', 'us'), ('global', 'them'), ('mgr.x', 'me'):
        config('set', who, name, value)
    try:
        assert config('get', 'mgr', name).out == 'us\n' and config('get', 'mgr.x', name).out == 'me\n'
        set_at = {r['section'] for r in cluster.ceph_json('config', 'dump') if r['name'] == name}
        assert set_at == {'global', 'mgr', 'mgr.x'}
    finally:
        config('reset', str(before))
    assert not [r for r in cluster.ceph_json('config', 'dump') if r['name'] == name]
    assert config('get', 'mgr', 'mgr/telemetry/interval').out == '24\n'
    assert 'crush-compat, none, upmap' in config('help', 'mgr/balancer/mode').out
    assert config('set', 'mgr', 'mgr/balancer/mode', 'bogus', check=22).err.strip() == \
        "Error EINVAL: error parsing value: 'bogus' is not one of the permitted values: crush-compat, none, upmap"
    for unknown in 'mgr/nomod/x', 'mgr/balancer/nope', 'osd/x':
        assert config('set', 'mgr', unknown, '1', check=22).err.strip() == "Error EINVAL: unrecognized config option '%s'" % unknown
    assert config('get', 'mgr', 'mgr/nomod/x', check=2).err.strip() == "Error ENOENT: unrecognized key 'mgr/nomod/x'"
