"""`ceph fs ...`, `ceph mds ...`, `ceph fs volume ...`: file systems from their first pool to their end, and the messages and
exit codes of Ceph 16.2 for what is wrong. (Mounts: tests/files.)"""
import json

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until


def said(cluster, status, *args):
    """Runs `ceph` expecting this exit status; returns what it said on standard error."""
    return cluster.ceph(*args, check=status).err.strip()


@pytest.fixture
def pools(cluster):
    """Pools for a file system that a test makes by hand; with their file systems they go at the end."""
    names = [unique('fspool') for _ in range(3)]
    for name in names:
        cluster.ceph('osd', 'pool', 'create', name, '8')
    yield names
    for fs in cluster.ceph_json('fs', 'ls'):
        if fs['metadata_pool'] in names or set(fs['data_pools']) & set(names):
            remove(cluster, fs['name'])
    for name in names:
        cluster.drop_pool(name)


def remove(cluster, fs):
    cluster.ceph('fs', 'fail', fs)
    cluster.ceph('fs', 'rm', fs, '--yes-i-really-mean-it')


@pytest.fixture
def fs(cluster, pools):
    name = unique('fs')
    cluster.ceph('fs', 'new', name, pools[0], pools[1])
    return name


def mdsmap(cluster, fs):
    return cluster.ceph_json('fs', 'get', fs)['mdsmap']


def pool_id(cluster, name):
    return cluster.ceph_json('osd', 'pool', 'get', name, 'size')['pool_id']


def test_life_of_a_file_system(cluster, pools):
    name = unique('fs')
    meta, data, more = pools
    ids = [pool_id(cluster, p) for p in pools]
    assert said(cluster, 2, 'fs', 'new', name, 'nopool', data) == "Error ENOENT: pool 'nopool' does not exist"
    assert said(cluster, 2, 'fs', 'new', name, meta, 'nopool') == "Error ENOENT: pool 'nopool' does not exist"
    assert said(cluster, 0, 'fs', 'new', name, meta, data) == \
        'new fs with metadata pool %d and data pool %d' % (ids[0], ids[1])
    assert said(cluster, 0, 'fs', 'new', name, meta, data) == "filesystem '%s' already exists" % name
    assert said(cluster, 22, 'fs', 'new', name, meta, more) == \
        "Error EINVAL: filesystem already exists with name '%s'" % name
    assert said(cluster, 17, 'fs', 'new', name + '2', meta, more).startswith(
        "Error EEXIST: Filesystem '%s2' is already using one of the specified RADOS pools." % name)
    assert 'name: %s, metadata pool: %s, data pools: [%s ]\n' % (name, meta, data) in cluster.ceph('fs', 'ls').out
    assert {'name': name, 'metadata_pool': meta, 'metadata_pool_id': ids[0], 'data_pool_ids': [ids[1]],
            'data_pools': [data]} in cluster.ceph_json('fs', 'ls')
    assert cluster.ceph_json('osd', 'pool', 'application', 'get', meta) == {'cephfs': {'metadata': name}}
    assert cluster.ceph_json('osd', 'pool', 'application', 'get', data) == {'cephfs': {'data': name}}
    assert said(cluster, 16, 'osd', 'pool', 'rm', meta, meta, '--yes-i-really-really-mean-it') == \
        "Error EBUSY: pool '%s' is in use by CephFS" % meta

    assert said(cluster, 0, 'fs', 'add_data_pool', name, more) == 'added data pool %d to fsmap' % ids[2]
    assert said(cluster, 0, 'fs', 'add_data_pool', name, more) == 'data pool %d is already on fs %s' % (ids[2], name)
    assert cluster.ceph_json('osd', 'pool', 'application', 'get', more) == {'cephfs': {'data': name}}
    assert mdsmap(cluster, name)['data_pools'] == ids[1:]
    assert said(cluster, 22, 'fs', 'rm_data_pool', name, data) == 'Error EINVAL: cannot remove default data pool'
    assert said(cluster, 0, 'fs', 'rm_data_pool', name, more) == 'removed data pool %d from fsmap' % ids[2]

    assert said(cluster, 0, 'fs', 'fail', name) == \
        '%s marked not joinable; MDS cannot join the cluster. All MDS ranks marked failed.' % name
    assert said(cluster, 1, 'fs', 'rm', name).startswith('Error EPERM: this is a DESTRUCTIVE operation')
    assert said(cluster, 0, 'fs', 'rm', name, '--yes-i-really-mean-it') == ''
    assert said(cluster, 0, 'fs', 'rm', name, '--yes-i-really-mean-it') == "filesystem '%s' does not exist" % name
    assert name not in cluster.ceph('fs', 'ls').out


def test_pools_of_others_are_not_taken(cluster, pools):
    name = unique('fs')
    cluster.ceph('osd', 'pool', 'application', 'enable', pools[0], 'rbd')
    number = pool_id(cluster, pools[0])
    assert said(cluster, 22, 'fs', 'new', name, pools[0], pools[1]) == \
        "Error EINVAL:  pool '%s' (id '%d') has a non-CephFS application enabled." % (pools[0], number)
    assert said(cluster, 22, 'fs', 'new', name, pools[1], pools[0]).endswith('has a non-CephFS application enabled.')
    assert name not in cluster.ceph('fs', 'ls').out


def test_settings(cluster, fs):
    def set_(*args):
        return said(cluster, 0, 'fs', 'set', fs, *args)

    assert set_('session_timeout', '90') == '' and set_('session_autoclose', '200') == ''
    assert set_('max_file_size', '5000000') == '' and set_('max_mds', '1') == ''
    assert set_('allow_new_snaps', 'false') == 'disabled new snapshots'
    m = mdsmap(cluster, fs)
    assert (m['session_timeout'], m['session_autoclose'], m['max_file_size']) == (90, 200, 5000000)
    assert m['flags'] == 0x10
    assert set_('allow_new_snaps', 'true') == 'enabled new snapshots'
    assert mdsmap(cluster, fs)['flags'] == 0x12
    for args, code, text in [
        (('max_mds', '0'), 22, 'EINVAL: You must specify at least one MDS'),
        (('max_mds', 'abc'), 22, "EINVAL: Expected option value to be integer, got 'abc'"),
        (('session_timeout', '1'), 34, 'ERANGE: session_timeout must be at least 30s'),
        (('session_autoclose', '1'), 34, 'ERANGE: session_autoclose must be at least 30s'),
        (('max_file_size', '5'), 34, 'ERANGE: max_file_size must at least 65536'),
        (('max_file_size', 'abc'), 22, 'EINVAL: max_file_size requires an integer value'),
        (('allow_new_snaps', 'maybe'), 22, 'EINVAL: value must be false|no|0 or true|yes|1'),
        (('standby_count_wanted', '-1'), 34, 'ERANGE: standby_count_wanted must be non-negative'),
    ]:
        assert said(cluster, code, 'fs', 'set', fs, *args) == 'Error ' + text
    # Two ranks are one more than there can be.
    assert 'not built in skep yet' in said(cluster, 95, 'fs', 'set', fs, 'max_mds', '2')
    assert mdsmap(cluster, fs)['max_mds'] == 1
    assert said(cluster, 2, 'fs', 'set', 'nofs', 'max_mds', '1') == "Error ENOENT: Filesystem not found: 'nofs'"
    assert said(cluster, 2, 'fs', 'get', 'nofs') == "Error ENOENT: filesystem 'nofs' not found"


def test_client_features(cluster, fs):
    def feature(*args, status=0):
        return said(cluster, status, 'fs', 'required_client_features', fs, *args)

    assert feature('add', 'metric_collect') == "added feature 'metric_collect' to required_client_features"
    assert feature('add', '14') == "feature 'metric_collect' is already set"
    assert mdsmap(cluster, fs)['required_client_features'] == {'feature_14': 'metric_collect'}
    assert feature('rm', 'metric_collect') == "removed feature 'metric_collect' from required_client_features"
    assert feature('rm', 'metric_collect') == "feature 'metric_collect' is already unset"
    assert feature('add', 'nope', status=22) == 'Error EINVAL: Invalid feature name: nope'
    assert mdsmap(cluster, fs)['required_client_features'] == {}


def test_default_file_system_and_dump(cluster, fs):
    cluster.ceph('fs', 'set-default', fs)
    doc = cluster.ceph_json('fs', 'dump')
    me = next(f for f in doc['filesystems'] if f['mdsmap']['fs_name'] == fs)
    assert doc['default_fscid'] == me['id']
    plain = cluster.ceph('fs', 'dump').out
    assert "\nFilesystem '%s' (%d)\nfs_name\t%s\n" % (fs, me['id'], fs) in plain
    assert 'legacy client fscid: %d\n' % me['id'] in plain
    assert said(cluster, 2, 'fs', 'set-default', 'nofs') == "Error ENOENT: Filesystem not found: 'nofs'"


def test_keys_of_clients(cluster, fs):
    who = 'client.' + unique('user')
    out = cluster.ceph('fs', 'authorize', fs, who, '/a', 'rwp', '/b', 'r', 'root_squash').out
    assert out.startswith('[%s]\n\tkey = ' % who) and out.count('\n') == 2
    caps = cluster.ceph_json('auth', 'get', who)[0]['caps']
    assert caps == {
        'mds': 'allow rwp fsname=%s path=/a, allow r fsname=%s path=/b root_squash' % (fs, fs),
        'mon': 'allow r fsname=%s' % fs,
        'osd': 'allow rw tag cephfs data=%s' % fs,
    }
    assert cluster.ceph('fs', 'authorize', fs, who, '/a', 'rwp', '/b', 'r', 'root_squash').out == out
    assert said(cluster, 22, 'fs', 'authorize', fs, who, '/', 'r').startswith(
        'Error EINVAL: %s already has fs capabilities that differ from those supplied.' % who)
    other = 'client.' + unique('user')
    assert said(cluster, 22, 'fs', 'authorize', fs, other, '/x', 'zz') == \
        "Error EINVAL: Permission flags must start with 'r' or 'rw'."
    assert said(cluster, 22, 'fs', 'authorize', 'nofs', other, '/x', 'r') == \
        'Error EINVAL: filesystem nofs does not exist.'
    assert said(cluster, 22, 'fs', 'authorize', fs, other, '/', 'rws', '/b', 'rwsp').startswith(
        "Error EINVAL: mds capability parse failed, stopped at 'p fsname=%s path=/b'" % fs)
    cluster.ceph('fs', 'authorize', fs, other, '/', 'r')
    assert cluster.ceph_json('auth', 'get', other)[0]['caps']['osd'] == 'allow r tag cephfs data=%s' % fs
    for name in (who, other):
        cluster.ceph('auth', 'rm', name)


def active(cluster, fs):
    return [i for i in mdsmap(cluster, fs)['info'].values() if i['state'] == 'up:active']


def test_a_volume_serves_by_itself(cluster):
    """`fs volume create NAME` is all that it takes: pools, file system, and an active metadata server."""
    name = unique('vol')
    cluster.ceph('fs', 'volume', 'create', name)
    cluster.ceph('fs', 'volume', 'create', name)
    assert {'name': name} in json.loads(cluster.ceph('fs', 'volume', 'ls').out)
    wait_until(lambda: active(cluster, name), what='an active metadata server of ' + name)
    i = active(cluster, name)[0]
    assert i['rank'] == 0 and i['name']
    assert '%s=%s=up:active' % (0, i['name']) in cluster.ceph('mds', 'stat').out
    facts = cluster.ceph_json('mds', 'metadata', i['name'])
    assert facts['addr'] and facts['ceph_version']
    assert said(cluster, 22, 'mds', 'metadata', 'nobody') == \
        "Error EINVAL: MDS named 'nobody' does not exist, or is not up"
    status = cluster.ceph('-s').out
    assert '\n    mds: 1/1 daemons up' in status and '\n    volumes: 1/1 healthy\n' in status
    assert cluster.ceph_json('-s')['fsmap']['by_rank'][0]['status'] == 'up:active'
    doc = json.loads(cluster.ceph('fs', 'volume', 'info', name).out)
    assert [p['name'] for p in doc['pools']['data']] == ['cephfs.%s.data' % name]

    # The operator wants another one to have it: what held it is fenced, and comes back by itself.
    epoch = cluster.ceph_json('osd', 'dump')['epoch']
    assert said(cluster, 0, 'mds', 'fail', name + ':0') == 'failed mds gid %d' % i['gid']
    assert cluster.ceph_json('osd', 'dump')['epoch'] > epoch
    fenced = cluster.ceph('osd', 'blocklist', 'ls').out
    assert i['addrs']['addrvec'][0]['addr'] in fenced
    wait_until(lambda: active(cluster, name) and active(cluster, name)[0]['gid'] != i['gid'],
               what='another run of the metadata server')
    assert mdsmap(cluster, name)['last_failure_osd_epoch'] > epoch

    assert said(cluster, 1, 'fs', 'volume', 'rm', name).startswith('Error EPERM: WARNING: this will *PERMANENTLY DESTROY*')
    cluster.ceph('fs', 'volume', 'rm', name, '--yes-i-really-mean-it')
    assert json.loads(cluster.ceph('fs', 'volume', 'ls').out) == []
    assert 'cephfs.%s' % name not in cluster.ceph('osd', 'pool', 'ls').out
    assert said(cluster, 2, 'fs', 'volume', 'rm', name, '--yes-i-really-mean-it') == \
        "Error ENOENT: volume %s doesn't exist" % name


def test_down_and_failed_are_shown(cluster, fs):
    """Health, `mds stat` and `-s` of a file system that an operator has taken down."""
    wait_until(lambda: active(cluster, fs), what='an active metadata server')
    cluster.ceph('fs', 'fail', fs)
    health = cluster.ceph_json('health', 'detail')['checks']
    assert health['FS_DEGRADED']['summary']['message'] == '1 filesystem is degraded'
    assert health['MDS_ALL_DOWN']['severity'] == 'HEALTH_ERR'
    assert health['MDS_ALL_DOWN']['detail'][0]['message'] == \
        'fs %s is offline because no MDS is active for it.' % fs
    assert cluster.ceph('mds', 'stat').out.startswith('%s:0/1' % fs)
    assert 'volumes: 0/1 healthy, 1 failed\n' in cluster.ceph('-s').out
    assert said(cluster, 0, 'fs', 'set', fs, 'joinable', 'true') == \
        '%s marked joinable; MDS may join as newly active.' % fs
    wait_until(lambda: active(cluster, fs), what='an active metadata server')
    checks = cluster.ceph_json('health', 'detail')['checks']
    assert not [c for c in checks if c.startswith(('FS_', 'MDS_ALL'))], checks
    assert said(cluster, 22, 'fs', 'rm', fs, '--yes-i-really-mean-it') == \
        'Error EINVAL: all MDS daemons must be inactive/failed before removing filesystem. See `ceph fs fail`.'
    assert said(cluster, 0, 'fs', 'set', fs, 'down', 'true') == '%s marked down.' % fs
    assert mdsmap(cluster, fs)['max_mds'] == 0 and mdsmap(cluster, fs)['up'] == {}
    assert said(cluster, 0, 'fs', 'set', fs, 'down', 'false') == '%s marked up, max_mds = 1' % fs
    wait_until(lambda: active(cluster, fs), what='an active metadata server')
    assert said(cluster, 0, 'mds', 'repaired', fs + ':0') == 'nothing to do: rank is not damaged'
    assert said(cluster, 2, 'mds', 'repaired', 'nofs:0') == 'Error ENOENT: Invalid filesystem'
