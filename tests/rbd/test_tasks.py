"""Work on images that the server does by itself: `ceph rbd task`, schedules of the trash; and figures by image."""
import json
import subprocess

from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import end_group, wait_until


def task_list(cluster):
    return json.loads(cluster.ceph('rbd', 'task', 'list').out)


def done(cluster, task):
    """The task is over, and progress shows it as complete."""
    wait_until(lambda: all(t['id'] != task['id'] for t in task_list(cluster)), 60, 0.3, 'task %s to end' % task['message'])

    def shown():
        past = json.loads(cluster.ceph('progress', 'json').out)['completed']
        return [e for e in past if e['id'] == task['id']]
    [event] = wait_until(shown, 30, 0.3, 'progress of %s' % task['message'])
    assert event['message'] == task['message'] and event['refs']['origin'] == 'rbd_support', event


def add(cluster, *args):
    return json.loads(cluster.ceph('rbd', 'task', 'add', *args).out)


def test_a_clone_is_flattened(cluster, images):
    data = pattern(9 * MIB)
    parent = images.load(data)
    cluster.rbd('snap', 'create', images.spec(parent, 's'))
    cluster.rbd('snap', 'protect', images.spec(parent, 's'))
    clone = unique('clone')
    cluster.rbd('clone', images.spec(parent, 's'), images.spec(clone))
    task = add(cluster, 'flatten', images.spec(clone))
    assert task['message'] == 'Flattening image ' + images.spec(clone)
    assert task['refs'] == {'action': 'flatten', 'pool_name': images.pool, 'pool_namespace': '', 'image_name': clone,
                            'image_id': images.info(clone)['id']}
    done(cluster, task)
    assert 'parent' not in images.info(clone)
    assert images.read(clone) == data
    cluster.rbd('snap', 'unprotect', images.spec(parent, 's'))


def test_images_are_removed_and_so_is_the_trash(cluster, images):
    gone, trashed = images.load(pattern(9 * MIB)), images.load(pattern(5 * MIB))
    prefix = images.info(gone)['block_name_prefix']
    ident = images.info(trashed)['id']
    cluster.rbd('trash', 'mv', images.spec(trashed))
    first = add(cluster, 'remove', images.spec(gone))
    second = add(cluster, 'trash', 'remove', '%s/%s' % (images.pool, ident))
    assert second['sequence'] > first['sequence']
    done(cluster, first)
    done(cluster, second)
    assert gone not in cluster.rbd('ls', images.pool).out.split()
    assert cluster.rbd_json('trash', 'ls', images.pool) == []
    left = cluster.rados(images.pool, 'ls').out.split()
    assert not [o for o in left if o.startswith(prefix) or ident in o], left


def test_what_cannot_be_done_is_refused_at_once(cluster, images):
    name = images.create(MIB)
    cluster.rbd('snap', 'create', images.spec(name, 's'))
    for args, code, text in [
        (['flatten', images.spec('nope')], 2, 'Image %s does not exist' % images.spec('nope')),
        (['flatten', 'nopool/nope'], 2, "error opening pool 'nopool'"),
        (['flatten', images.spec(name)], 2, 'Image %s does not have a parent' % images.spec(name)),
        (['remove', images.spec(name)], 16, 'Image %s has snapshots' % images.spec(name)),
        (['trash', 'remove', images.pool + '/123'], 2, 'error retrieving image from trash'),
    ]:
        r = cluster.ceph('rbd', 'task', 'add', *args, check=None)
        assert r.returncode == code and text in r.err, (args, r)
    r = cluster.ceph('rbd', 'task', 'cancel', 'nope', check=None)
    assert r.returncode == 2 and 'No such task nope' in r.err, r
    assert task_list(cluster) == []


def test_a_task_that_waits_survives_a_restart_and_can_be_cancelled(own):
    skep = own().start()
    skep.make_pool('rbd', name='rbd')
    skep.rbd('create', 'rbd/a', '--size', '64M')
    skep.rbd('create', 'rbd/b', '--size', '64M')
    # Somebody has it open: the task fails for now, and waits.
    watcher = skep.popen('rbd', 'watch', 'rbd/a', stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: 'watcher=' in skep.rbd('status', 'rbd/a').out, 30, 0.3, 'the watcher')
        task = add(skep, 'remove', 'rbd/a')
        wait_until(lambda: any('retry_message' in t for t in task_list(skep)), 60, 0.5, 'the task to fail')
        skep.stop()
        skep.start()
        [kept] = task_list(skep)
        assert (kept['id'], kept['refs']) == (task['id'], task['refs'])
        assert 'open' in kept['retry_message'], kept
        said = json.loads(skep.ceph('rbd', 'task', 'cancel', task['id']).out)
        assert said['canceled'] is True
        assert task_list(skep) == []
        assert 'a' in skep.rbd('ls', 'rbd').out.split()
    finally:
        end_group(watcher)


def test_the_trash_is_emptied_by_schedule(cluster, images):
    kept, gone = images.create(MIB), images.create(MIB)
    cluster.rbd('trash', 'mv', images.spec(kept), '--expires-at', 'tomorrow')
    cluster.rbd('trash', 'mv', images.spec(gone))
    cluster.rbd('trash', 'purge', 'schedule', 'add', '-p', images.pool, '1m')
    try:
        rows = cluster.rbd_json('trash', 'purge', 'schedule', 'ls', '-p', images.pool)
        assert [r['interval'] for r in rows] == ['1m'], rows

        def planned():
            rows = cluster.rbd_json('trash', 'purge', 'schedule', 'status', '-p', images.pool)
            return [r for r in rows if r['pool'] == images.pool] if rows else []
        wait_until(planned, 90, 1, 'the schedule to be followed')
        left = lambda: [r['name'] for r in cluster.rbd_json('trash', 'ls', images.pool)]
        wait_until(lambda: left() == [kept], 150, 1, 'the trash to be emptied')
    finally:
        cluster.rbd('trash', 'purge', 'schedule', 'rm', '-p', images.pool)
    assert cluster.rbd('trash', 'purge', 'schedule', 'ls', '-p', images.pool, check=2).out == ''
    for spec, interval in [('nopool/', '1d'), (images.pool + '/', '10x'), (images.pool, '1d')]:
        r = cluster.ceph('rbd', 'trash', 'purge', 'schedule', 'add', spec, interval, check=None)
        assert r.returncode == 22 and 'Invalid' in r.err, r


def test_figures_by_image_are_those_of_the_client(cluster, images):
    """What `rbd perf image counters` gained is what a client of known operations did; stats and iostat show its rate."""
    busy = images.create(16 * MIB)
    idle = images.create(MIB)

    def counters(name):
        answer = json.loads(cluster.ceph('rbd', 'perf', 'image', 'counters', images.pool).out)
        places = {k: v for k, v in answer['pool_descriptors'].items()}
        for row in answer['counters']:
            [(place, figures)] = row.items()
            pool, image = place.split('/')
            if (places[pool], image) == (images.pool, name):
                return dict(zip(answer['counter_descriptors'], figures))
        return None
    cluster.rbd('bench', '--io-type', 'write', '--io-size', '64K', '--io-threads', '4', '--io-total', '8M',
                '--rbd-cache=false', images.spec(busy))
    done = wait_until(lambda: (counters(busy) or {}).get('write_bytes', 0) >= 8 * MIB and counters(busy), 90, 0.5, 'the counters')
    assert (done['write_ops'], done['write_bytes']) == (128, 8 * MIB), done
    assert done['write_latency'] > 0 and counters(idle) is None
    load = cluster.popen('rbd', 'bench', '--io-type', 'write', '--io-size', '4K', '--io-total', '10G', '--rbd-cache=false',
                         images.spec(busy), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def rate():
            answer = json.loads(cluster.ceph('rbd', 'perf', 'image', 'stats', images.pool).out)
            return [f for row in answer['stats'] for name, f in row.items() if name.endswith('/' + busy) and f[0] > 0]
        [figures] = wait_until(rate, 60, 0.5, 'a rate')
        # The larger writes of before may be among the first.
        assert figures[2] / figures[0] > 4095 and figures[4] > 0, figures
        shown = cluster.run('timeout', '12', 'rbd', 'perf', 'image', 'iostat', images.pool, check=None, timeout=30)
        assert any(line.split()[:1] == [busy] for line in shown.out.splitlines()), shown
    finally:
        end_group(load)
