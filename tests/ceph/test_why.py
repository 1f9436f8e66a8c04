"""`skep why`: where operations spend their time, asked of the OSDs, under stock clients."""
import json
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.run import end_group, wait_until
from skeptest.skep import find_binary


def why(cluster, *what, seconds=1, check=0):
    return cluster.run(find_binary(), 'why', *what, '--seconds', str(seconds), '--conf', cluster.conf, check=check)


def told(cluster, *what):
    return json.loads(why(cluster, *what, '-f', 'json').out)


@pytest.fixture(scope='module')
def pool(cluster):
    name = cluster.make_pool('rbd')
    yield name
    cluster.drop_pool(name)


@pytest.fixture
def busy(cluster, pool):
    """An image that is written to."""
    spec = '%s/%s' % (pool, unique('image'))
    cluster.rbd('create', spec, '--size', '64M')
    # It goes on until it is ended.
    bench = cluster.popen('rbd', 'bench', '--io-type', 'write', '--io-size', '4K', '--io-threads', '4', '--io-total', '1T', '--io-pattern', 'rand',
                          '--rbd_cache=false', spec, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: told(cluster, spec)['writes']['ops'], 60, 0.1, 'writes')
        yield spec
    finally:
        end_group(bench)


def test_an_image_that_is_written_to(cluster, busy, pool):
    it = told(cluster, busy)
    writes = it['writes']
    assert writes['ops'] > 10 and writes['bytes'] >= 4096 * writes['ops'], it
    parts = [writes[p + '_seconds'] for p in ('queue', 'turn', 'durable')]
    # Nearly all of a write's time is the disk's.
    assert min(parts) >= 0 and parts[2] > parts[0], it
    assert it['causes'] and sum(c['share'] for c in it['causes']) > 0.5, it
    assert it['causes'] == sorted(it['causes'], key=lambda c: -c['share'])
    assert all(o['seconds'] > 0.5 for o in it['osds']) and not it['silent'], it
    # Of its pool, and of its client by its number and address.
    most = told(cluster)['most'][0]['who']
    client, addr, place = most.split(' ')[0], most.split('(')[1].split(')')[0], most.split(' on ')[1]
    assert client.startswith('client.') and place.split('/')[0] == pool, most
    for what in (pool, client, addr.rsplit(':', 1)[0]):
        assert told(cluster, what)['writes']['ops'] > 10, what
    text = why(cluster, busy).out
    assert 'writes' in text and 'Where the time goes' in text and 'durable' in text, text


def test_what_is_at_rest_or_is_not_there(cluster, pool):
    spec = '%s/%s' % (pool, unique('image'))
    cluster.rbd('create', spec, '--size', '4M')
    assert 'No operation was answered meanwhile.' in why(cluster, spec).out
    assert told(cluster, 'client.1')['causes'] == []
    for what, text in [(pool + '/none', 'none'), ('none', 'none'), ('client.admin', 'sessions'), ('a/b/c/d', 'POOL')]:
        r = why(cluster, what, check=None)
        assert r.returncode == 1 and text in r.err, (what, r)


def test_what_a_limit_holds_back(cluster, busy):
    cluster.ceph('qos', 'set', 'image', busy, 'iops_limit=5')
    try:
        def held():
            return told(cluster, busy)['held_back']
        [limit] = wait_until(held, 30, 0.1, 'something to be held back')
        assert limit['limits']['iops_limit'] == 5 and limit['times'] > 0, limit
        assert wait_until(lambda: 'Held back by a limit' in why(cluster, busy).out, 30, 0.1, 'the text')
    finally:
        cluster.ceph('qos', 'rm', 'image', busy)


def test_the_question_ends_by_itself(cluster, busy):
    def asked(seconds):
        return json.loads(cluster.ceph('tell', 'osd.0', 'dump_op_stages', str(seconds)).out)
    first, second = asked(30), asked(30)
    assert first['number'] == second['number'] and first['rows'], first
    ops = [sum(r['ops'] for r in it['rows']) for it in (first, second)]
    assert ops[1] >= ops[0], (first, second)
