"""Capabilities enforced by monitor and OSDs: profile rbd, read-only, pools, namespaces, object prefixes,
class methods. Each case checks what is allowed beside what is refused."""
import pytest

from skeptest.cluster import unique

pytestmark = pytest.mark.cephx

EPERM = 'Operation not permitted'


@pytest.fixture(scope='module')
def other_pool(cluster):
    name = cluster.make_pool('rbd')
    yield name
    cluster.drop_pool(name)


@pytest.fixture
def user(cluster, tmp_path):
    """Makes a user with these capabilities; gives the cluster as that user sees it."""
    made = []

    def make(**caps):
        name = 'client.' + unique('user')
        args = [word for service, cap in caps.items() for word in (service, cap)]
        path = tmp_path / name
        path.write_text(cluster.ceph('auth', 'get-or-create', name, *args).out)
        made.append(name)
        c = cluster.with_args('--name %s --keyring %s' % (name, path))
        c.entity = name
        return c
    yield make
    for name in made:
        cluster.ceph('auth', 'del', name)


def put(c, pool, oid, *options, check=0):
    return c.rados(pool, *options, 'put', oid, '-', stdin=b'data', check=check)


def get(c, pool, oid, *options, check=0):
    return c.rados(pool, *options, 'get', oid, '-', check=check)


def denied(result):
    assert result.returncode != 0 and (EPERM in result.err or 'Permission denied' in result.err), result


def test_profile_rbd_on_one_pool(cluster, user, rbd_pool, other_pool):
    u = user(mon='profile rbd', osd='profile rbd pool=%s' % rbd_pool)
    image = '%s/%s' % (rbd_pool, unique('image'))
    u.rbd('create', image, '--size', '8M')
    u.rbd('bench', '--io-type', 'write', '--io-size', '4K', '--io-total', '256K', image)
    u.rbd('snap', 'create', image + '@s')
    u.rbd('snap', 'protect', image + '@s')
    u.rbd('clone', image + '@s', image + '-clone')
    assert 'clone' in u.rbd('children', image + '@s').out
    u.rbd('rm', image + '-clone')
    u.rbd('snap', 'unprotect', image + '@s')
    u.rbd('snap', 'rm', image + '@s')
    u.rbd('rm', image)
    denied(u.rbd('create', '%s/x' % other_pool, '--size', '8M', check=None))
    denied(put(u, other_pool, 'x', check=None))
    put(cluster, other_pool, 'plain')
    denied(get(u, other_pool, 'plain', check=None))


def test_profile_rbd_can_not_administrate(cluster, user):
    u = user(mon='profile rbd', osd='profile rbd')
    for words in (['osd', 'pool', 'create', unique('pool')], ['auth', 'ls'], ['config', 'set', 'client', 'rbd_cache', 'false'],
                  ['auth', 'get-or-create', 'client.evil', 'mon', 'allow *']):
        r = u.ceph(*words, check=13)
        assert 'EACCES' in r.err, r


def test_profile_rbd_read_only(cluster, user, rbd_pool):
    image = '%s/%s' % (rbd_pool, unique('image'))
    cluster.rbd('create', image, '--size', '4M')
    cluster.rbd('snap', 'create', image + '@s')
    u = user(mon='profile rbd', osd='profile rbd-read-only pool=%s' % rbd_pool)
    assert u.rbd_json('info', image)['size'] == 4 << 20
    assert u.rbd('export', image + '@s', '-').out_bytes == bytes(4 << 20)
    for words in (['resize', image, '--size', '8M'], ['snap', 'create', image + '@t'], ['create', image + 'x', '--size', '1M']):
        assert u.rbd(*words, check='fails', timeout=40)
    denied(put(u, rbd_pool, 'x', check=None))
    assert cluster.rbd_json('info', image)['size'] == 4 << 20


def test_allow_r(cluster, user, pool, oid):
    put(cluster, pool, oid)
    u = user(mon='allow r', osd='allow r')
    assert get(u, pool, oid).out == 'data'
    denied(put(u, pool, oid, check=None))
    denied(u.rados(pool, 'rm', oid, check=None))
    denied(u.rados(pool, 'setomapval', oid, 'k', 'v', check=None))
    assert u.ceph('osd', 'pool', 'ls').out
    r = u.ceph('osd', 'pool', 'create', unique('pool'), check=13)
    assert 'EACCES' in r.err, r


def test_pool_and_namespace(cluster, user, pool, other_pool, oid):
    u = user(mon='allow r', osd='allow rw pool=%s namespace=mine' % pool)
    put(u, pool, oid, '-N', 'mine')
    assert get(u, pool, oid, '-N', 'mine').out == 'data'
    for p, options in [(pool, ()), (pool, ('-N', 'other')), (other_pool, ('-N', 'mine'))]:
        denied(put(u, p, oid, *options, check=None))
        denied(get(u, p, oid, *options, check=None))


def test_object_prefix(cluster, user, pool):
    u = user(mon='allow r', osd='allow rw object_prefix mine_')
    put(u, pool, 'mine_o')
    denied(put(u, pool, 'other_o', check=None))


def test_class_methods_need_x(cluster, user, pool, oid):
    put(cluster, pool, oid)
    plain = user(mon='allow r', osd='allow rw')
    denied(plain.rados(pool, 'lock', 'get', oid, 'lk', check=None))
    named = user(mon='allow r', osd='allow rw, allow class lock')
    named.rados(pool, 'lock', 'get', oid + '-2', 'lk')
    full = user(mon='allow r', osd='allow rwx')
    full.rados(pool, 'lock', 'get', oid, 'lk')


def test_application_tag(cluster, user, pool, other_pool, oid):
    """`tag rbd *=*`: pools by their application, not their name."""
    u = user(mon='allow r', osd='allow rw tag rbd *=*')
    put(u, other_pool, oid)
    denied(put(u, pool, oid, check=None))


def test_no_osd_capability(cluster, user, pool, oid):
    put(cluster, pool, oid)
    u = user(mon='allow r')
    denied(get(u, pool, oid, check=None))
    denied(put(u, pool, oid, check=None))


def test_changed_capabilities_count_for_new_connections(cluster, user, pool, oid):
    u = user(mon='allow r', osd='allow rw')
    put(u, pool, oid)
    cluster.ceph('auth', 'caps', u.entity, 'mon', 'allow r', 'osd', 'allow r')
    denied(put(u, pool, oid, check=None))
    assert get(u, pool, oid).out == 'data'
