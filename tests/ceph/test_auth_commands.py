"""`ceph auth ...`: entities, keys and capabilities; plain, JSON and the errors of Ceph 16.2."""
import re

import pytest

from skeptest.cluster import unique


@pytest.fixture
def entity(cluster):
    name = 'client.' + unique('user')
    yield name
    cluster.ceph('auth', 'del', name, check=None)


def test_get_or_create_get_caps_del(cluster, entity):
    caps = ('mon', 'allow r', 'osd', 'allow rw pool=x')
    out = cluster.ceph('auth', 'get-or-create', entity, *caps).out
    key = re.fullmatch(r'\[%s\]\n\tkey = (\S{40})\n' % re.escape(entity), out).group(1)
    assert cluster.ceph('auth', 'get-or-create', entity, *caps).out == out
    r = cluster.ceph('auth', 'get-or-create', entity, 'mon', 'allow *', check=22)
    assert r.err.strip() == 'Error EINVAL: key for %s exists but cap mon does not match' % entity
    doc = cluster.ceph_json('auth', 'get', entity)
    assert doc == [{'entity': entity, 'key': key, 'caps': {'mon': 'allow r', 'osd': 'allow rw pool=x'}}]
    r = cluster.ceph('auth', 'get', entity)
    assert r.out.rstrip('\n') == '[%s]\n\tkey = %s\n\tcaps mon = "allow r"\n\tcaps osd = "allow rw pool=x"' % (entity, key)
    assert r.err.strip() == 'exported keyring for ' + entity
    assert cluster.ceph('auth', 'print-key', entity).out.strip() == key
    assert cluster.ceph('auth', 'get-key', entity).out.strip() == key
    assert cluster.ceph('auth', 'caps', entity, 'mon', 'allow r').err.strip() == 'updated caps for ' + entity
    assert cluster.ceph_json('auth', 'get', entity)[0]['caps'] == {'mon': 'allow r'}
    assert any(e['entity'] == entity for e in cluster.ceph_json('auth', 'ls')['auth_dump'])
    assert entity + '\n\tkey: %s\n\tcaps: [mon] allow r\n' % key in cluster.ceph('auth', 'ls').out
    assert cluster.ceph('auth', 'del', entity).err.strip() == 'updated'
    assert cluster.ceph('auth', 'del', entity).err.strip() == 'entity %s does not exist' % entity


def test_errors(cluster, entity):
    assert cluster.ceph('auth', 'get', 'client.none', check=2).err.strip() == \
        'Error ENOENT: failed to find client.none in keyring'
    assert cluster.ceph('auth', 'caps', 'client.none', 'mon', 'allow r', check=2).err.strip() == \
        "Error ENOENT: couldn't find entry client.none"
    cluster.ceph('auth', 'get-or-create', entity, 'mon', 'allow r')
    assert cluster.ceph('auth', 'caps', entity, 'mon', 'bogus', check=22).err.strip() == \
        "Error EINVAL: mon capability parse failed, stopped at 'bogus' of 'bogus'"


def test_import_and_export(cluster, entity, tmp_path):
    keyring = tmp_path / 'keyring'
    cluster.run('ceph-authtool', '--create-keyring', keyring, '--gen-key', '-n', entity, '--cap', 'mon', 'allow r')
    cluster.ceph('auth', 'import', '-i', keyring)
    assert cluster.ceph_json('auth', 'get', entity)[0]['caps'] == {'mon': 'allow r'}
    out = cluster.ceph('auth', 'get', entity, '-o', tmp_path / 'out')
    assert entity in (tmp_path / 'out').read_text(), out
