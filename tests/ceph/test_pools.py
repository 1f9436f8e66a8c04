"""`ceph osd pool ...`: life of a pool, its options, applications, snapshots, quotas; and the messages
and exit codes of Ceph 16.2 for what is wrong."""
import pytest

from skeptest.cluster import unique


def said(cluster, status, *args):
    """Runs `ceph` expecting this exit status; returns what it said on standard error."""
    return cluster.ceph(*args, check=status).err.strip()


@pytest.fixture
def name(cluster):
    name = unique('pool')
    yield name
    cluster.drop_pool(name)


def test_life_of_a_pool(cluster, name):
    assert said(cluster, 0, 'osd', 'pool', 'create', name, '8') == "pool '%s' created" % name
    assert said(cluster, 0, 'osd', 'pool', 'create', name, '8') == "pool '%s' already exists" % name
    assert name in cluster.ceph('osd', 'pool', 'ls').out.split()
    new = name + '-renamed'
    assert said(cluster, 0, 'osd', 'pool', 'rename', name, new) == "pool '%s' renamed to '%s'" % (name, new)
    cluster.rados(new, 'put', 'o', '-', stdin=b'x')
    warning = said(cluster, 1, 'osd', 'pool', 'delete', new)
    assert warning.startswith('Error EPERM: WARNING: this will *PERMANENTLY DESTROY* all data stored in pool %s.' % new)
    assert said(cluster, 1, 'osd', 'pool', 'delete', new, new).startswith('Error EPERM: WARNING')
    assert said(cluster, 0, 'osd', 'pool', 'delete', new, new, '--yes-i-really-really-mean-it') == "pool '%s' removed" % new
    assert said(cluster, 0, 'osd', 'pool', 'delete', new, new, '--yes-i-really-really-mean-it') == \
        "pool '%s' does not exist" % new
    cluster.rados(new, 'ls', check=1)


def test_a_new_pool_of_an_old_name_is_empty(cluster, name):
    cluster.ceph('osd', 'pool', 'create', name, '8')
    cluster.rados(name, 'put', 'o', '-', stdin=b'x')
    cluster.drop_pool(name)
    cluster.ceph('osd', 'pool', 'create', name, '8')
    assert cluster.rados(name, 'ls').out == ''


def test_get_and_set(cluster, pool):
    out = cluster.ceph('osd', 'pool', 'get', pool, 'all').out
    for line in ('pg_num: 8', 'pgp_num: 8', 'hashpspool: true', 'nodelete: false', 'fast_read: 0'):
        assert line + '\n' in out, out
    doc = cluster.ceph_json('osd', 'pool', 'get', pool, 'size')
    assert doc['pool'] == pool and doc['size'] >= 1 and doc['pool_id'] > 0
    assert cluster.ceph('osd', 'pool', 'get', pool, 'size').out == 'size: %d\n' % doc['size']
    message = said(cluster, 0, 'osd', 'pool', 'set', pool, 'nodelete', 'true')
    assert message == 'set pool %d nodelete to true' % doc['pool_id']
    assert cluster.ceph_json('osd', 'pool', 'get', pool, 'nodelete')['nodelete'] is True
    assert said(cluster, 1, 'osd', 'pool', 'delete', pool, pool, '--yes-i-really-really-mean-it').startswith('Error EPERM')
    cluster.ceph('osd', 'pool', 'set', pool, 'nodelete', 'false')


def test_errors(cluster, pool):
    assert said(cluster, 2, 'osd', 'pool', 'get', 'nopool', 'size') == "Error ENOENT: unrecognized pool 'nopool'"
    assert said(cluster, 2, 'osd', 'pool', 'set', 'nopool', 'size', '1') == "Error ENOENT: unrecognized pool 'nopool'"
    assert 'Invalid command: nosuch not in size|min_size|' in said(cluster, 22, 'osd', 'pool', 'get', pool, 'nosuch')
    assert 'Invalid command: nosuch not in size|min_size|' in said(cluster, 22, 'osd', 'pool', 'set', pool, 'nosuch', '1')
    assert said(cluster, 2, 'osd', 'map', 'nopool', 'o') == 'Error ENOENT: pool nopool does not exist'
    message = said(cluster, 22, 'osd', 'pool', 'create')
    assert message.startswith('Invalid command: missing required parameter pool(<poolname>)'), message
    assert message.endswith('Error EINVAL: invalid command'), message


def test_unknown_commands(cluster):
    for words in (['nosuch'], ['osd', 'nosuch']):
        message = said(cluster, 22, *words)
        assert message.startswith('no valid command found') and message.endswith('Error EINVAL: invalid command'), message


def test_applications(cluster, name):
    cluster.ceph('osd', 'pool', 'create', name, '8')
    assert said(cluster, 0, 'osd', 'pool', 'application', 'enable', name, 'rbd') == \
        "enabled application 'rbd' on pool '%s'" % name
    assert cluster.ceph_json('osd', 'pool', 'application', 'get', name) == {'rbd': {}}
    assert said(cluster, 1, 'osd', 'pool', 'application', 'enable', name, 'rgw').startswith('Error EPERM: Are you SURE?')
    row = next(p for p in cluster.ceph_json('osd', 'pool', 'ls', 'detail') if p['pool_name'] == name)
    assert row['application_metadata'] == {'rbd': {}}


def test_snapshots_by_command(cluster, name):
    cluster.ceph('osd', 'pool', 'create', name, '8')
    cluster.rados(name, 'put', 'o', '-', stdin=b'old')
    cluster.ceph('osd', 'pool', 'mksnap', name, 'snap')
    cluster.rados(name, 'put', 'o', '-', stdin=b'new')
    assert cluster.rados(name, '-s', 'snap', 'get', 'o', '-').out.endswith('old')
    cluster.ceph('osd', 'pool', 'rmsnap', name, 'snap')
    assert cluster.rados(name, 'lssnap').out == '0 snaps\n'


def test_pg_num_as_asked_for(cluster):
    """Placement does not depend on a power of two."""
    name = cluster.make_pool(pg_num=12)
    try:
        for i in range(30):
            cluster_data = b'object %d' % i
            cluster.rados(name, 'put', 'o%d' % i, '-', stdin=cluster_data) if i % 3 == 0 else None
        for i in range(0, 30, 3):
            assert cluster.rados(name, 'get', 'o%d' % i, '-').out_bytes == b'object %d' % i
        assert len(cluster.rados(name, 'ls').out.split()) == 10
    finally:
        cluster.drop_pool(name)
