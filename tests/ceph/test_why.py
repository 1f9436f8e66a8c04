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
    print(why(cluster, busy).out)
    writes = it['writes']
    assert writes['ops'] > 10 and writes['bytes'] >= 4096 * writes['ops'], it
    parts = [writes[p + '_seconds'] for p in ('queue', 'turn', 'durable')]
    # Nearly all of a write's time is the disk's.
    assert min(parts) >= 0 and parts[2] > parts[0], it
    assert sum(c['share'] for c in it['causes']) > 0.5, it
    assert it['causes'] == sorted(it['causes'], key=lambda c: -c['share'])
    assert all(o['seconds'] > 0.5 for o in it['osds']) and not it['silent'], it
    # Of its pool, and of its client by its number and address.
    everybody = told(cluster)['most']
    most = next(m['who'] for m in everybody if ' on %s/image ' % pool in m['who'])
    client, addr, place = most.split(' ')[0], most.split('(')[1].split(')')[0], most.split(' on ')[1]
    assert client.startswith('client.') and place.startswith(pool), most
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
        limits = wait_until(held, 30, 0.1, 'something to be held back')
        assert [h['limits']['iops_limit'] for h in limits] == [5] and limits[0]['times'] > 0, limits
        assert wait_until(lambda: 'Held back by a limit' in why(cluster, busy).out, 30, 0.1, 'the text')
    finally:
        cluster.ceph('qos', 'rm', 'image', busy)


def test_an_osd_goes_on_counting_as_long_as_it_is_asked(cluster, busy):
    def asked(osd):
        return json.loads(cluster.ceph('tell', 'osd.%d' % osd, 'dump_op_stages', '30').out)
    # Whichever leads a group of it.
    osds = [o['osd'] for o in told(cluster, busy)['osds']]
    first = {osd: asked(osd) for osd in osds}
    second = wait_until(lambda: [t for t in map(asked, osds) if sum(r['ops'] for r in t['rows'])], 30, 0.3, 'operations')[0]
    before = first[second['osd']]
    assert before['number'] == second['number'] and before['now'] < second['now'], (before, second)
    assert sum(r['ops'] for r in second['rows']) >= sum(r['ops'] for r in before['rows'])
