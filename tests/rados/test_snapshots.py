"""Pool snapshots through `rados`: mksnap, lssnap, reading a snapshot, listsnaps, rollback, rmsnap."""
import os

import pytest


@pytest.fixture
def snap_pool(cluster):
    name = cluster.make_pool()                      # pool snapshots and librbd's own exclude each other
    yield name
    cluster.drop_pool(name)


def put(cluster, pool, oid, data):
    cluster.rados(pool, 'put', oid, '-', stdin=data)


def get(cluster, pool, oid):
    return cluster.rados(pool, 'get', oid, '-').out_bytes


def get_at(cluster, pool, oid, snap):
    first, data = cluster.rados(pool, '-s', snap, 'get', oid, '-').out_bytes.split(b'\n', 1)
    assert first.startswith(b'selected snap ') and first.endswith(b"'%s'" % snap.encode()), first
    return data


def test_snapshot_keeps_and_rollback_restores(cluster, snap_pool):
    p = snap_pool
    old, new = os.urandom(300000), os.urandom(100000)
    put(cluster, p, 'o', old)
    cluster.rados(p, 'setxattr', 'o', 'a', 'old')
    assert cluster.rados(p, 'mksnap', 's1').out == 'created pool %s snap s1\n' % p
    put(cluster, p, 'o', new)
    cluster.rados(p, 'setxattr', 'o', 'a', 'new')
    put(cluster, p, 'later', b'made after the snapshot')
    out = cluster.rados(p, 'lssnap').out
    assert out.splitlines()[-1] == '1 snaps' and '\ts1\t' in out, out

    assert get_at(cluster, p, 'o', 's1') == old
    assert get(cluster, p, 'o') == new
    assert cluster.rados(p, '-s', 's1', 'getxattr', 'o', 'a').out.endswith('old')
    cluster.rados(p, '-s', 's1', 'get', 'later', '-', check=1)
    rows = [line.split() for line in cluster.rados(p, 'listsnaps', 'o').out.splitlines()]
    assert rows[0] == ['o:'] and [r[0] for r in rows[2:]] == ['1', 'head'], rows
    assert rows[2][2] == '300000' and rows[3][2] == '100000', rows

    assert cluster.rados(p, 'rollback', 'o', 's1').out == 'rolled back pool %s to snapshot s1\n' % p
    assert get(cluster, p, 'o') == old
    assert cluster.rados(p, 'getxattr', 'o', 'a').out == 'old'
    assert cluster.rados(p, 'rmsnap', 's1').out == 'removed pool %s snap s1\n' % p
    assert cluster.rados(p, 'lssnap').out == '0 snaps\n'
    assert get(cluster, p, 'o') == old


def test_deleted_object_lives_on_in_its_snapshot(cluster, snap_pool):
    p = snap_pool
    put(cluster, p, 'o', b'before')
    cluster.rados(p, 'mksnap', 's')
    cluster.rados(p, 'rm', 'o')
    cluster.rados(p, 'get', 'o', '-', check=1)
    assert get_at(cluster, p, 'o', 's') == b'before'
    cluster.rados(p, 'rollback', 'o', 's')
    assert get(cluster, p, 'o') == b'before'


def test_several_snapshots_each_with_its_data(cluster, snap_pool):
    p = snap_pool
    for i in range(4):
        put(cluster, p, 'o', b'version %d' % i)
        cluster.rados(p, 'mksnap', 's%d' % i)
    put(cluster, p, 'o', b'head')
    cluster.rados(p, 'rmsnap', 's1')
    for i in (0, 2, 3):
        assert get_at(cluster, p, 'o', 's%d' % i) == b'version %d' % i
    cluster.rados(p, '-s', 's1', 'get', 'o', '-', check=1)


def test_errors(cluster, snap_pool):
    r = cluster.rados(snap_pool, 'rmsnap', 'none', check=1)
    assert 'error removing pool %s snapshot none: (2) No such file or directory' % snap_pool in r.err, r
    cluster.rados(snap_pool, 'mksnap', 'twice')
    cluster.rados(snap_pool, 'mksnap', 'twice', check='fails')
