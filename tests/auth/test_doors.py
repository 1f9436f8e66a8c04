"""What documented capabilities open, by stock clients: ceph-csi's at the manager, fences, snapshots of tenants, deleting pools; and the
records that are kept of it. The whole table, command by command, is crates/mon/src/privileges.rs."""
import json
import stat

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.run import wait_until

pytestmark = pytest.mark.cephx

EACCES, EINVAL, ENOENT = -13, -22, -2


@pytest.fixture
def user(cluster, tmp_path):
    made = []

    def make(**caps):
        name = 'client.' + unique('user')
        path = tmp_path / name
        path.write_text(cluster.ceph('auth', 'get-or-create', name, *[w for pair in caps.items() for w in pair]).out)
        made.append(name)
        c = cluster.with_args('--name %s --keyring %s' % (name, path))
        c.entity, c.keyring = name, path
        return c
    yield make
    for name in made:
        cluster.ceph('auth', 'del', name)


def at_manager(cluster, who, commands):
    """What the manager says to these, by librados' mgr_command as ceph-csi calls it: code and status of each."""
    def body():
        handle = connect(cluster, name=who.entity, keyring=who.keyring)
        try:
            answers = (handle.mgr_command(json.dumps(c), b'', timeout=60) for c in commands)
            return [(code, status) for code, _, status in answers]
        finally:
            handle.shutdown()
    return in_child(body)


# The guide of ceph-csi, and the narrower form that Ceph recommends.
@pytest.mark.parametrize('mgr', ['allow rw', 'profile rbd pool=%s'])
def test_the_capabilities_of_ceph_csi(cluster, user, rbd_pool, mgr):
    mgr = mgr.replace('%s', rbd_pool)
    u = user(mon='profile rbd', osd='profile rbd pool=%s' % rbd_pool, mgr=mgr)
    task = {'prefix': 'rbd task add trash remove', 'image_id_spec': rbd_pool + '/1234'}
    flatten = {'prefix': 'rbd task add flatten', 'image_spec': rbd_pool + '/image'}
    for code, status in at_manager(cluster, u, [task, flatten]):
        assert code == ENOENT and 'RBD image not found' in status, status
    evil = [
        {'prefix': 'osd pool rm', 'pool': rbd_pool, 'pool2': rbd_pool, 'yes_i_really_really_mean_it': True},
        {'prefix': 'osd down', 'ids': ['0']},
        {'prefix': 'config set', 'who': 'global', 'name': 'osd_pool_default_size', 'value': '1'},
        {'prefix': 'config-key dump'},
        {'prefix': 'auth print-key', 'entity': 'client.admin'},
        {'prefix': 'auth get-or-create', 'entity': 'client.evil', 'caps': ['mon', 'allow *']},
        {'prefix': 'osd purge', 'id': 0, 'yes_i_really_mean_it': True},
    ]
    assert at_manager(cluster, u, evil) == [(EACCES, 'access denied')] * len(evil)
    assert rbd_pool in cluster.ceph('osd', 'pool', 'ls').out.split()
    image = '%s/%s' % (rbd_pool, unique('image'))
    u.rbd('create', image, '--size', '8M')
    u.rbd('snap', 'create', image + '@s')
    u.rbd('snap', 'rm', image + '@s')
    u.rbd('trash', 'mv', image)


def test_a_client_of_rbd_fences_single_clients_only(cluster, user):
    u = user(mon='profile rbd', osd='profile rbd')
    one = '10.99.1.2:0/%d' % 4711
    u.ceph('osd', 'blocklist', 'add', one)
    for words in (['range', 'add', '0.0.0.0/0'], ['add', '10.99.1.2'], ['add', '10.99.1.2:0/0'], ['add', '0.0.0.0:0/1'],
                  ['rm', one], ['clear']):
        assert 'EACCES' in u.ceph('osd', 'blocklist', *words, check=13).err
    assert one in cluster.ceph('osd', 'blocklist', 'ls').out
    cluster.ceph('osd', 'blocklist', 'rm', one)


def test_tenants_of_namespaces_keep_their_snapshots(cluster, user, rbd_pool):
    names = {ns: '%s/%s/image' % (rbd_pool, ns) for ns in (unique('x'), unique('y'))}
    for ns, image in names.items():
        cluster.rbd('namespace', 'create', '--pool', rbd_pool, '--namespace', ns)
        u = user(mon='profile rbd', osd='profile rbd pool=%s namespace=%s' % (rbd_pool, ns))
        u.rbd('create', image, '--size', '4M')
        u.rbd('snap', 'create', image + '@a')
        u.rbd('snap', 'create', image + '@b')
        u.rbd('snap', 'rm', image + '@a')
        names[ns] = (u, image)
    for u, image in names.values():
        assert [s['name'] for s in u.rbd_json('snap', 'ls', image)] == ['b']
    # Of those of others the administrator disposes.
    for u, image in names.values():
        cluster.rbd('snap', 'rm', image + '@b')
        cluster.rbd('rm', image)


@pytest.mark.own
def test_pools_are_deleted_only_where_it_was_allowed(own):
    skep = own(osds=1, allow_pool_delete=False).start()
    pool = skep.make_pool()
    words = ['osd', 'pool', 'rm', pool, pool, '--yes-i-really-really-mean-it']
    said = skep.ceph(*words, check=1).err
    assert 'Error EPERM: pool deletion is disabled; you must first set the mon_allow_pool_delete config option to true ' \
        'before you can destroy a pool' in said
    skep.ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'true')
    skep.ceph(*words)
    skep.ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'false')
    # The option of `skep up` at a later start.
    assert skep.stop() == 0
    skep.allow_pool_delete = True
    skep.start()
    skep.drop_pool(skep.make_pool())


@pytest.mark.own
def test_records_are_kept_in_a_file_of_their_own_and_in_the_cluster_log(own):
    skep = own(osds=1).start()
    pool, key = skep.make_pool(), unique('key')
    skep.ceph('config-key', 'set', key, 'the-secret-value')
    skep.ceph('auth', 'get-or-create', 'client.reader', 'mon', 'allow r')
    reader = skep.data.parent / unique('reader')
    reader.write_text(skep.ceph('auth', 'get', 'client.reader').out)
    u = skep.with_args('--name client.reader --keyring %s' % reader)
    assert 'EACCES' in u.ceph('osd', 'pool', 'set', pool, 'size', '1', check=13).err

    def told():
        return skep.ceph('log', 'last', '100', 'debug', 'audit').out
    wait_until(lambda: 'refused (-13)' in told() and '"auth get"' in told(), 60, 0.2, 'the audit to be told')
    lines = told().splitlines()
    for words in (['client.admin', '"osd pool create"', 'finished'], ['client.admin', key, '"***"'], ['[SEC]', 'client.reader', '"osd pool set"']):
        assert any(all(w in line for w in words) for line in lines), (words, lines)
    cluster = skep.ceph('log', 'last', '100', 'debug').out
    assert cluster and 'audit' not in cluster, cluster
    file = skep.data / 'audit.log'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    made = next(r for r in kept if r.get('what', {}).get('prefix') == 'osd pool create')
    assert (made['who'], made['outcome'], made['door']) == ('client.admin', 'done', 'mon') and made['from'].startswith('127.0.0.1:')
    assert 'the-secret-value' not in file.read_text() + told()
    # It goes on behind a restart.
    skep.restart()
    skep.drop_pool(pool)
    wait_until(lambda: 'osd pool delete' in file.read_text(), 60, 0.1, 'the file to go on')
    assert 'osd pool create' in file.read_text() and '"osd pool create"' in told()
