"""Quotas of pools, and pools that an operator has fail: who is told what, and that it ends when its cause does."""
import json
import subprocess

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.run import end_group, wait_until

FULL_TRY, FULL_FORCE = 64, 128


@pytest.fixture
def name(cluster):
    name = cluster.make_pool(name=unique('quota'))
    yield name
    cluster.drop_pool(name)


def write_op(cluster, pool, oid, flags, **does):
    """One operation of python3-rados with flags: its errno, 0 if it is done."""
    def body():
        import rados
        handle = connect(cluster)
        try:
            with handle.open_ioctx(pool) as io, rados.WriteOpCtx() as op:
                for method, args in does.items():
                    getattr(op, method)(*args)
                try:
                    io.operate_write_op(op, oid, flags=flags)
                    return 0
                except rados.OSError as e:
                    return abs(e.errno)
        finally:
            handle.shutdown()
    return in_child(body)


def flags(cluster, name):
    return next(p['flags_names'].split(',') for p in cluster.ask('osd', 'dump')['pools'] if p['pool_name'] == name)


def checks(cluster, name):
    """Health checks that name the pool in their details: code to lines."""
    found = {}
    for code, check in cluster.ask('health', detail='detail')['checks'].items():
        lines = [d['message'] for d in check.get('detail', []) if "'%s'" % name in d['message']]
        if lines:
            found[code] = lines
    return found


def until(condition, what, seconds):
    wait_until(condition, timeout=seconds, what=what)


def set_quota(cluster, name, field, value):
    return cluster.ceph('osd', 'pool', 'set-quota', name, field, value).err.strip()


def test_a_pool_at_its_quota(cluster, name):
    assert set_quota(cluster, name, 'max_objects', '4') == 'set-quota max_objects = 4 for pool %s' % name
    for i in range(4):
        cluster.rados(name, 'put', 'o%d' % i, '-', stdin=b'x' * 1000)
    until(lambda: 'full_quota' in flags(cluster, name), 'the flag full_quota', 60)
    assert 'full' in flags(cluster, name)
    full = "pool '%s' is full (running out of quota)" % name
    until(lambda: checks(cluster, name).get('POOL_FULL') == [full], 'POOL_FULL', 30)
    doc = cluster.ceph_json('osd', 'pool', 'get-quota', name)
    assert (doc['quota_max_objects'], doc['current_num_objects'], doc['quota_max_bytes']) == (4, 4, 0), doc
    assert cluster.ceph('osd', 'pool', 'get-quota', name).out == (
        "quotas for pool '%s':\n  max objects: 4 objects  (current num objects: 4 objects)\n  max bytes  : N/A\n" % name)
    stats = next(p['stats'] for p in cluster.ceph_json('df', 'detail')['pools'] if p['name'] == name)
    assert (stats['quota_objects'], stats['quota_bytes']) == (4, 0)

    # Who asks is told; who does not waits until there is room.
    assert write_op(cluster, name, 'new', FULL_TRY, write_full=(b'x',)) == 122
    assert write_op(cluster, name, 'o0', FULL_TRY, write=(b'y', 0)) == 0, 'takes no more room'
    assert write_op(cluster, name, 'o0', FULL_TRY, set_xattr=('a', b'b')) == 0
    waits = cluster.popen('rados', '-p', name, 'put', 'late', '/dev/null')
    try:
        cluster.rados(name, 'stat', 'o0')
        assert waits.poll() is None
        cluster.rados(name, 'rm', 'o3', '--force-full')
        cluster.rados(name, 'rm', 'o2', '--force-full')
        assert waits.wait(60) == 0
    finally:
        end_group(waits)
    until(lambda: 'full' not in flags(cluster, name), 'room', 60)
    until(lambda: 'POOL_FULL' not in checks(cluster, name), 'the end of POOL_FULL', 30)
    assert sorted(cluster.rados(name, 'ls').out.split()) == ['late', 'o0', 'o1']
    log = cluster.ceph('log', 'last', '1000', 'info', 'cluster').out
    assert "pool '%s' is full (reached quota's max_objects: 4)" % name in log
    assert "pool '%s' no longer out of quota; removing NO_QUOTA flag" % name in log


def test_a_raised_quota_lets_an_image_go_on(cluster, name):
    cluster.ceph('osd', 'pool', 'application', 'enable', name, 'rbd', '--yes-i-really-mean-it')
    image = '%s/image' % name
    cluster.rbd('create', '--size', '64M', image)
    cluster.rbd('bench', '--io-type', 'write', '--io-size', '1M', '--io-total', '8M', image)
    assert set_quota(cluster, name, 'max_bytes', '4M') == 'set-quota max_bytes = 4194304 for pool %s' % name
    until(lambda: 'full_quota' in flags(cluster, name), 'the flag full_quota', 60)
    bench = cluster.popen('rbd', 'bench', '--io-type', 'write', '--io-size', '1M', '--io-total', '16M', image,
                          stdout=subprocess.DEVNULL)
    try:
        assert set_quota(cluster, name, 'max_bytes', '0') == 'set-quota max_bytes = 0 for pool %s' % name
        assert bench.wait(90) == 0
    finally:
        end_group(bench)
    assert 'full' not in flags(cluster, name)


def test_near_a_quota(cluster, name):
    options = {'mon_pool_quota_warn_threshold': '70', 'mon_pool_quota_crit_threshold': '90'}
    for option, value in options.items():
        cluster.ceph('config', 'set', 'global', option, value)
    try:
        set_quota(cluster, name, 'max_objects', '10')
        for count, code in ((8, 'POOL_NEAR_FULL'), (9, 'POOL_FULL')):
            for i in range(count):
                cluster.rados(name, 'put', 'o%d' % i, '-', stdin=b'x')
            line = "pool '%s' has %d objects (max 10)" % (name, count)
            until(lambda: checks(cluster, name).get(code) == [line], code, 60)
        assert 'full' not in flags(cluster, name)
    finally:
        for option in options:
            cluster.ceph('config', 'rm', 'global', option)


def test_a_pool_that_fails_by_order(cluster, name):
    """`eio` is a setting of Ceph 17, which 16.2 does not have."""
    cluster.rados(name, 'put', 'o', '-', stdin=b'kept')
    said = cluster.ceph('osd', 'pool', 'set', name, 'eio', 'true', check=None)
    if said.returncode:
        pytest.skip('this release has no setting eio')
    assert cluster.ceph_json('osd', 'pool', 'get', name, 'eio')['eio'] is True
    assert 'eio' in flags(cluster, name)
    for words in (['stat', 'o'], ['get', 'o', '-'], ['put', 'p', '-'], ['rm', 'o'], ['ls']):
        r = cluster.rados(name, *words, check=None, stdin=b'x')
        assert r.returncode and 'Input/output error' in r.err, (words, r)
    cluster.ceph('osd', 'pool', 'set', name, 'eio', 'false')
    assert cluster.rados(name, 'get', 'o', '-').out == 'kept'
    assert json.loads(cluster.ceph('osd', 'pool', 'get', name, 'eio', '-f', 'json').out)['eio'] is False
