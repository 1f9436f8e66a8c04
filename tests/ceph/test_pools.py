"""`ceph osd pool ...`: life of a pool, its options, applications, snapshots, quotas; and the messages
and exit codes of Ceph 16.2 for what is wrong."""
import json

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


@pytest.fixture
def rule(cluster):
    """A rule in which an OSD that falls out moves no other copy ("indep"), over single OSDs."""
    rule = unique('rule')
    cluster.ceph('osd', 'crush', 'rule', 'create-simple', rule, 'default', 'osd', 'indep')
    yield rule
    cluster.ceph('osd', 'crush', 'rule', 'rm', rule)


def test_copies_by_an_indep_rule(cluster, rule, name, tmp_path):
    # As the real one's: of copies, for 3 to 20 of them.
    dump = cluster.ceph_json('osd', 'crush', 'rule', 'dump', rule)
    ops = [step['op'] for step in dump['steps']]
    assert ops == ['set_chooseleaf_tries', 'set_choose_tries', 'take', 'choose_indep', 'emit']
    assert (dump['type'], dump['min_size'], dump['max_size']) == (1, 3, 20)
    # With fewer a client would find no place at all.
    small = 'Error EINVAL: pool size is smaller than the crush rule min size'
    create = ('osd', 'pool', 'create', name, '8', '8', 'replicated')
    assert said(cluster, 22, *create, rule, '--size', '2') == small
    cluster.ceph(*create, 'replicated_rule', '--size', '2')
    assert said(cluster, 22, 'osd', 'pool', 'set', name, 'crush_rule', rule) == small
    cluster.ceph('osd', 'pool', 'set', name, 'size', '3')
    cluster.ceph('osd', 'pool', 'set', name, 'crush_rule', rule)
    assert said(cluster, 22, 'osd', 'pool', 'set', name, 'size', '2') == small
    for n in range(20):
        cluster.rados(name, 'put', 'o%d' % n, '-', stdin=b'x%d' % n)
    assert sorted(cluster.rados(name, 'ls').out.split()) == sorted('o%d' % n for n in range(20))
    assert cluster.rados(name, 'get', 'o7', '-').out == 'x7'
    # Ceph's own tool, from our map, places as we do.
    cluster.ceph('osd', 'getmap', '-o', tmp_path / 'map')
    pool = cluster.pool_number(name)
    theirs = cluster.run('osdmaptool', tmp_path / 'map', '--test-map-pgs-dump', '--pool', pool).out
    for line in theirs.splitlines():
        if line.startswith('%d.' % pool):
            pg, up = line.split('\t')[:2]
            mapped = cluster.ceph_json('pg', 'map', pg)
            assert mapped['up'] == json.loads(up), line
    assert theirs.count('\n%d.' % pool) + theirs.startswith('%d.' % pool) == 8
