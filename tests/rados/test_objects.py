"""The `rados` tool on single objects: data, attributes, omap, names; with the exit status and message
that Ceph 16.2 gives for what is not there."""
import hashlib
import json
import os

import pytest

from skeptest.cluster import unique


def sha(data):
    return hashlib.sha256(data).hexdigest()


def put(cluster, pool, oid, data, *args):
    cluster.rados(pool, *args, 'put', oid, '-', stdin=data)


def get(cluster, pool, oid, *args):
    return cluster.rados(pool, *args, 'get', oid, '-').out_bytes


def check_error(result, message):
    assert result.returncode == 1, result
    assert message in result.err, result


@pytest.mark.parametrize('size', [0, 1, 4095, 4096, 65537, 4 << 20, (9 << 20) + 13])
def test_put_get(cluster, pool, oid, size):
    data = os.urandom(size)
    put(cluster, pool, oid, data)
    assert sha(get(cluster, pool, oid)) == sha(data)
    assert 'size %d' % size in cluster.rados(pool, 'stat', oid).out


def test_put_replaces_whole_object(cluster, pool, oid):
    put(cluster, pool, oid, b'x' * 100000)
    put(cluster, pool, oid, b'short')
    assert get(cluster, pool, oid) == b'short'


def test_put_at_offset_and_append_and_truncate(cluster, pool, oid):
    put(cluster, pool, oid, b'abcdef\n')
    put(cluster, pool, oid, b'hello\n', '--offset', '3')
    assert get(cluster, pool, oid) == b'abchello\n'
    cluster.rados(pool, 'append', oid, '-', stdin=b'tail')
    assert get(cluster, pool, oid) == b'abchello\ntail'
    cluster.rados(pool, 'truncate', oid, '4')
    assert get(cluster, pool, oid) == b'abch'
    cluster.rados(pool, 'truncate', oid, '10000')
    assert get(cluster, pool, oid) == b'abch' + bytes(9996)


def test_stat_names_pool_object_time_and_size(cluster, pool, oid):
    put(cluster, pool, oid, b'12345')
    out = cluster.rados(pool, 'stat', oid).out
    assert out.startswith('%s/%s mtime 2' % (pool, oid)) and out.endswith(', size 5\n'), out


def test_missing_object(cluster, pool):
    for args, message in [
        (('stat', 'none'), ' error stat-ing %s/none: (2) No such file or directory' % pool),
        (('get', 'none', '-'), 'error getting %s/none: (2) No such file or directory' % pool),
        (('rm', 'none'), 'error removing %s>none: (2) No such file or directory' % pool),
        (('getxattr', 'none', 'a'), 'error getting xattr %s/none/a: (2) No such file or directory' % pool),
    ]:
        check_error(cluster.rados(pool, *args, check=None), message)


def test_missing_pool(cluster):
    check_error(cluster.rados('no-such-pool', 'ls', check=None),
                'error opening pool no-such-pool: (2) No such file or directory')


def test_rm(cluster, pool, oid):
    put(cluster, pool, oid, b'x')
    cluster.rados(pool, 'rm', oid)
    check_error(cluster.rados(pool, 'stat', oid, check=None), 'No such file')
    assert oid not in cluster.rados(pool, 'ls').out.split()


def test_create_is_exclusive(cluster, pool, oid):
    cluster.rados(pool, 'create', oid)
    check_error(cluster.rados(pool, 'create', oid, check=None), '(17) File exists')
    cluster.rados(pool, 'touch', oid)


def test_xattrs(cluster, pool, oid):
    put(cluster, pool, oid, b'x')
    binary = bytes(range(256)) * 8
    cluster.rados(pool, 'setxattr', oid, 'plain', 'value')
    cluster.rados(pool, 'setxattr', oid, 'binary', stdin=binary)
    assert cluster.rados(pool, 'getxattr', oid, 'plain').out == 'value'
    assert cluster.rados(pool, 'getxattr', oid, 'binary').out_bytes == binary
    assert cluster.rados(pool, 'listxattr', oid).out.split() == ['binary', 'plain']
    cluster.rados(pool, 'rmxattr', oid, 'plain')
    assert cluster.rados(pool, 'listxattr', oid).out.split() == ['binary']
    check_error(cluster.rados(pool, 'getxattr', oid, 'plain', check=None), '(61) No data available')


def test_omap(cluster, pool, oid):
    for key, value in [('k2', 'two'), ('k1', 'one'), ('k10', 'ten')]:
        cluster.rados(pool, 'setomapval', oid, key, value)
    assert cluster.rados(pool, 'listomapkeys', oid).out.split() == ['k1', 'k10', 'k2']
    out = cluster.rados(pool, 'listomapvals', oid).out
    assert out.startswith('k1\nvalue (3 bytes) :\n00000000  6f 6e 65'), out
    assert out.count('value (3 bytes)') == 3
    assert '74 77 6f' in cluster.rados(pool, 'getomapval', oid, 'k2').out
    cluster.rados(pool, 'setomapval', oid, 'k2', stdin=b'\x00\xff')
    out = cluster.rados(pool, 'getomapval', oid, 'k2').out
    assert out.startswith('value (2 bytes) :\n00000000  00 ff'), out
    cluster.rados(pool, 'rmomapkey', oid, 'k1')
    r = cluster.rados(pool, 'getomapval', oid, 'k1', check=1)
    assert r.out == 'No such key: %s/%s/k1\n' % (pool, oid)
    cluster.rados(pool, 'setomapheader', oid, 'head')
    assert '68 65 61 64' in cluster.rados(pool, 'getomapheader', oid).out
    cluster.rados(pool, 'clearomap', oid)
    assert cluster.rados(pool, 'listomapkeys', oid).out == ''


def test_cp(cluster, pool, oid):
    data = os.urandom(70000)
    put(cluster, pool, oid, data)
    cluster.rados(pool, 'setxattr', oid, 'a', 'v')
    cluster.rados(pool, 'cp', oid, oid + '-copy')
    assert get(cluster, pool, oid + '-copy') == data
    assert cluster.rados(pool, 'getxattr', oid + '-copy', 'a').out == 'v'


def test_advisory_lock(cluster, pool, oid):
    cluster.rados(pool, 'lock', 'get', oid, 'lk', '--lock-cookie', 'c')
    info = json.loads(cluster.rados(pool, '--format', 'json', 'lock', 'info', oid, 'lk').out)
    assert (info['name'], info['type'], len(info['lockers'])) == ('lk', 'exclusive', 1), info
    assert info['lockers'][0]['cookie'] == 'c'
    cluster.rados(pool, 'lock', 'get', oid, 'lk', '--lock-cookie', 'other', check='fails')
    cluster.rados(pool, 'lock', 'break', oid, 'lk', info['lockers'][0]['name'], '--lock-cookie', 'c')
    info = json.loads(cluster.rados(pool, '--format', 'json', 'lock', 'info', oid, 'lk').out)
    assert info['lockers'] == []


def test_ls_sees_every_object_once(cluster):
    """More objects than one listing request returns, in pages over all PGs."""
    pool = cluster.make_pool()
    try:
        out = cluster.rados(pool, 'bench', '2', 'write', '-b', '64', '-t', '16', '--no-cleanup').out
        made = int(out.split('Total writes made:')[1].split()[0])
        assert made > 100, out
        names = cluster.rados(pool, 'ls').out.splitlines()
        assert len(names) == len(set(names)) == made + 1          # and the benchmark's own record
    finally:
        cluster.drop_pool(pool)


def test_namespaces_and_locators(cluster):
    pool = cluster.make_pool()
    try:
        put(cluster, pool, 'o', b'default')
        put(cluster, pool, 'o', b'in-ns', '-N', 'ns')
        put(cluster, pool, 'ol', b'located', '--object-locator', 'key')
        assert get(cluster, pool, 'o') == b'default'
        assert get(cluster, pool, 'o', '-N', 'ns') == b'in-ns'
        assert get(cluster, pool, 'ol', '--object-locator', 'key') == b'located'
        assert cluster.rados(pool, '-N', 'ns', 'ls').out == 'o\n'
        assert sorted(cluster.rados(pool, '--all', 'ls').out.splitlines()) == ['\to', '\tol\tkey', 'ns\to']
        listed = json.loads(cluster.rados(pool, '--format', 'json', 'ls').out)
        assert sorted((o['namespace'], o['name'], o.get('locator', '')) for o in listed) == [
            ('', 'o', ''), ('', 'ol', 'key')]
    finally:
        cluster.drop_pool(pool)


def test_odd_names(cluster, pool):
    for name in ['with space', 'with/slash', 'umlaut-ä', 'percent%00', 'under_score', 'dot.', '-dash', 'x' * 200]:
        name = unique(name)
        data = name.encode()
        cluster.rados(pool, 'put', '--', name, '-', stdin=data)
        assert cluster.rados(pool, 'get', '--', name, '-').out_bytes == data
        cluster.rados(pool, 'rm', '--', name)


def test_unknown_subcommand(cluster, pool):
    check_error(cluster.rados(pool, 'nosuch', check=None), 'unrecognized command nosuch')


def test_df_and_lspools(cluster, pool, oid):
    put(cluster, pool, oid, bytes(1 << 20))
    assert pool in cluster.run('rados', 'lspools').out.split()
    doc = json.loads(cluster.run('rados', 'df', '-f', 'json').out)
    row = next(p for p in doc['pools'] if p['name'] == pool)
    assert {'id', 'size_bytes', 'num_objects', 'read_ops', 'write_ops'} <= set(row), row
    assert doc['total_space'] > 0 and doc['total_avail'] > 0, doc
    text = cluster.run('rados', 'df').out
    assert text.startswith('POOL_NAME') and 'total_space' in text and pool in text, text


def test_export_import(cluster, tmp_path):
    pool, other = cluster.make_pool(), cluster.make_pool()
    try:
        data = os.urandom(5 << 20)
        put(cluster, pool, 'big', data)
        cluster.rados(pool, 'setxattr', 'big', 'a', 'v')
        cluster.rados(pool, 'setomapval', 'om', 'k', 'v')
        cluster.rados(pool, 'export', tmp_path / 'dump')
        cluster.rados(other, 'import', tmp_path / 'dump')
        assert get(cluster, other, 'big') == data
        assert cluster.rados(other, 'getxattr', 'big', 'a').out == 'v'
        assert cluster.rados(other, 'listomapkeys', 'om').out == 'k\n'
    finally:
        cluster.drop_pool(pool)
        cluster.drop_pool(other)
