"""Snapshots for mirroring by schedule, made by the server itself: as the stock `rbd` shows them, of what a stock rbd-mirror copies."""
import json
import time

import pytest

from skeptest.run import wait_until

LIMIT_S = 150


def primary(cluster, spec):
    """Ids of snapshots for mirroring, oldest first, with whether they are complete."""
    snaps = cluster.rbd_json('snap', 'ls', '--all', spec)
    mirror = [s for s in snaps if s['namespace']['type'] == 'mirror']
    assert all(s['namespace']['state'] == 'primary' and s['namespace']['mirror_peer_uuids'] for s in mirror)
    return {s['id']: s['namespace']['complete'] for s in mirror}


@pytest.fixture
def mirrored(cluster):
    """A pool with a peer that never comes, and an image in it that is mirrored by snapshots, one that is not."""
    pool = cluster.make_pool('rbd')
    cluster.rbd('mirror', 'pool', 'enable', pool, 'image')
    cluster.rbd('mirror', 'pool', 'peer', 'add', pool, 'client.x@elsewhere')
    for image in ('i', 'plain'):
        cluster.rbd('create', '--size', '16M', '%s/%s' % (pool, image))
    cluster.rbd('mirror', 'image', 'enable', pool + '/i', 'snapshot')
    yield pool
    cluster.rbd('mirror', 'image', 'disable', pool + '/i')
    cluster.drop_pool(pool)


def test_commands(cluster, mirrored):
    schedule = lambda verb, *more, **kw: cluster.rbd('mirror', 'snapshot', 'schedule', verb, *more, **kw)
    of_image = ['--pool', mirrored, '--image', 'i']
    for args, why in (
            (['--pool', mirrored, '--image', 'nope', '1m'], 'image nope does not exist'),
            (['--pool', mirrored, '--image', 'plain', '1m'], 'image plain is not in snapshot mirror mode'),
            ([*of_image, '1x'], 'Invalid interval (1x)')):
        r = schedule('add', *args, check=22)
        assert why in r.err, r
    schedule('add', *of_image, '2h')
    schedule('add', *of_image, '1h')
    schedule('add', *of_image, '1h')
    schedule('add', '--pool', mirrored, '1d', '14:00')
    rows = schedule('ls', '--pool', mirrored, '-R').out
    assert 'every 1d starting at 14:00:00' in rows and 'every 1h' in rows and 'every 2h' in rows, rows
    pool_id, image_id = next(p['pool_id'] for p in cluster.ceph_json('osd', 'pool', 'ls', 'detail') if p['pool_name'] == mirrored), cluster.rbd_json('info', mirrored + '/i')['id']
    listed = json.loads(cluster.ceph('rbd', 'mirror', 'snapshot', 'schedule', 'list', mirrored + '/i').out)
    assert listed == {'%d//%s' % (pool_id, image_id): {'name': mirrored + '/i', 'schedule': [
        {'interval': '1h', 'start_time': None}, {'interval': '2h', 'start_time': None}]}}, listed
    status = lambda: json.loads(cluster.ceph('rbd', 'mirror', 'snapshot', 'schedule', 'status', mirrored + '/').out)['scheduled_images']
    wait_until(lambda: [s['image'] for s in status()] == [mirrored + '/i'], 60, 0.5, lambda: 'the image to be scheduled: %s' % status())
    assert status()[0]['schedule_time'].endswith(':00:00')
    schedule('rm', *of_image, '1h')
    assert schedule('ls', *of_image).out == 'every 2h\n'
    schedule('rm', *of_image)
    schedule('rm', *of_image)
    schedule('rm', '--pool', mirrored)
    assert json.loads(cluster.ceph('rbd', 'mirror', 'snapshot', 'schedule', 'list', mirrored + '/').out) == {}


@pytest.mark.long
def test_snapshots_by_schedule(cluster, mirrored):
    """Each minute one, while a client has the image open; five are left, the oldest and the newest of them."""
    spec = mirrored + '/i'
    cluster.rbd('snap', 'create', spec + '@user')
    cluster.rbd('image-meta', 'set', spec, 'key', 'value')
    first = primary(cluster, spec)
    assert len(first) == 1
    cluster.rbd('mirror', 'snapshot', 'schedule', 'add', '--pool', mirrored, '--image', 'i', '1m')
    bench = cluster.popen('rbd', 'bench', '--io-type', 'write', '--io-size', '4K', '--io-threads', '1', '--io-total', '10G', spec)
    try:
        made, end = set(first), time.monotonic() + 9 * 60
        while len(made) < 8 and time.monotonic() < end:
            now = primary(cluster, spec)
            made |= set(now)
            # One that is being made is not complete, and one more may be there until the surplus is gone.
            assert len(now) <= 7 and bench.poll() is None
            time.sleep(2)
        assert len(made) >= 8, made
    finally:
        bench.kill()
        bench.wait(30)
    cluster.rbd('mirror', 'snapshot', 'schedule', 'rm', '--pool', mirrored, '--image', 'i')
    wait_until(lambda: len(primary(cluster, spec)) == 5 and all(primary(cluster, spec).values()), 90, 1, 'the surplus to be gone')
    left = primary(cluster, spec)
    assert min(left) == min(first) and max(left) == max(made)
    states = [o for o in cluster.rados(mirrored, 'ls').out.split() if o.startswith('rbd_mirror_snapshot.')]
    assert len(states) == 5, states
