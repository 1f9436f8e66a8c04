"""`rados bench` with its own verification, and cleanup."""
import json

import pytest


@pytest.fixture
def bench_pool(cluster):
    name = cluster.make_pool(pg_num=16)
    yield name
    cluster.drop_pool(name)


@pytest.mark.parametrize('size', [4096, 1 << 20])
def test_write_then_read_verified_then_cleanup(cluster, bench_pool, size):
    p = bench_pool
    out = cluster.rados(p, 'bench', '2', 'write', '-b', size, '-t', '8', '--no-cleanup').out
    assert 'Total writes made:' in out and 'Average IOPS:' in out, out
    made = int(out.split('Total writes made:')[1].split()[0])
    assert made > 0
    for mode in ('seq', 'rand'):
        out = cluster.rados(p, 'bench', '2', mode, '-t', '8').out       # compares what it reads with what it wrote
        assert int(out.split('Total reads made:')[1].split()[0]) > 0, out
    # the benchmark's own record object goes with its data
    assert cluster.rados(p, 'cleanup', timeout=60).out == 'Removed %d objects\n' % made
    assert cluster.rados(p, 'ls').out == ''


def test_json(cluster, bench_pool):
    out = cluster.rados(bench_pool, '--format', 'json', 'bench', '1', 'write', '-b', '4096').out
    out = '\n'.join(line for line in out.splitlines() if not line.startswith(('hints', 'Removed', 'Clean')))
    doc = json.loads(out.replace('Cleaning up (deleting benchmark objects)', ''))
    assert int(doc['total_writes_made']) > 0 and float(doc['average_iops']) > 0, doc
