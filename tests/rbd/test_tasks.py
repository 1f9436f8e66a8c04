"""Work on images that the server does by itself: `ceph rbd task`, schedules of the trash; and figures by image."""
import json
import struct
import subprocess
import time

from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import end_group, wait_until


def task_list(cluster):
    return json.loads(cluster.ceph('rbd', 'task', 'list').out)


def done(cluster, task, outcome=''):
    """The task is over, and progress shows it as complete, or how it ended."""
    wait_until(lambda: all(t['id'] != task['id'] for t in task_list(cluster)), 60, 0.3, 'task %s to end' % task['message'])

    def shown():
        past = json.loads(cluster.ceph('progress', 'json').out)['completed']
        return [e for e in past if e['id'] == task['id']]
    [event] = wait_until(shown, 30, 0.3, 'progress of %s' % task['message'])
    assert event['message'] == task['message'] + outcome and event['refs']['origin'] == 'rbd_support', event


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


def called(cluster, pool, method, data):
    """The output of a method of the class rbd, on the pool's trash."""
    import rados
    with rados.Rados(conffile=str(cluster.conf), name='client.admin') as client, client.open_ioctx(pool) as io:
        return io.execute('rbd_trash', 'rbd', method, data)[1]


def text(s):
    return struct.pack('<I', len(s)) + s.encode()


NORMAL, REMOVING, RESTORING = 0, 2, 3
SOURCE_REMOVING = 3


def set_trash_state(cluster, pool, ident, new, expected):
    called(cluster, pool, 'trash_state_set', text(ident) + bytes([new, expected]))


def failed_once(cluster, task):
    def why():
        return [t['retry_message'] for t in task_list(cluster) if t['id'] == task['id'] and 'retry_message' in t]
    return wait_until(why, 60, 0.3, 'the task to fail')[0]


def test_an_image_that_is_being_restored_is_not_removed(cluster, images):
    data = pattern(5 * MIB)
    name = images.load(data)
    ident = images.info(name)['id']
    cluster.rbd('trash', 'mv', images.spec(name))
    # As far as a client comes that restores it.
    set_trash_state(cluster, images.pool, ident, RESTORING, NORMAL)
    task = add(cluster, 'trash', 'remove', '%s/%s' % (images.pool, ident))
    assert 'somebody restores it' in failed_once(cluster, task)
    cluster.ceph('rbd', 'task', 'cancel', task['id'])
    cluster.rbd('trash', 'restore', '%s/%s' % (images.pool, ident))
    assert images.read(name) == data


def test_an_image_that_cannot_be_removed_can_be_restored(cluster, images):
    data = pattern(5 * MIB)
    name = images.load(data)
    ident = images.info(name)['id']
    cluster.rbd('snap', 'create', images.spec(name, 's'))
    cluster.rbd('trash', 'mv', images.spec(name))
    task = add(cluster, 'trash', 'remove', '%s/%s' % (images.pool, ident))
    assert 'has snapshots' in failed_once(cluster, task)
    cluster.ceph('rbd', 'task', 'cancel', task['id'])
    cluster.rbd('trash', 'restore', '%s/%s' % (images.pool, ident))
    assert images.read(name) == data


def test_a_removal_that_was_cut_short_leaves_the_name_to_others(own):
    """Between the entry in the trash and the end of the name: a key that may not touch names comes as far as that."""
    skep = own(osds=1).start()
    skep.make_pool('rbd', name='rbd')
    skep.rbd('create', 'rbd/a', '--size', '8M')
    ident = json.loads(skep.rbd('info', 'rbd/a', '--format', 'json').out)['id']
    [manager] = [a['entity'] for a in skep.ceph_json('auth', 'ls')['auth_dump'] if a['entity'].startswith('mgr.')]
    may = ['allow rx'] + ['allow rwx object_prefix ' + p for p in ('rbd_trash', 'rbd_header.', 'rbd_object_map.')]
    skep.ceph('auth', 'caps', manager, 'mds', 'allow *', 'mon', 'allow profile mgr', 'osd', ', '.join(may))
    done(skep, add(skep, 'remove', 'rbd/a'), ' failed')
    # `rbd trash ls` leaves out what is being removed, `rbd ls` has it, and so the name twice here.
    in_trash = lambda: skep.rados('rbd', 'listomapkeys', 'rbd_trash').out.split()
    assert in_trash() == ['id_' + ident] and set(skep.rbd('ls', 'rbd').out.split()) == {'a'}
    skep.rbd('rm', '--no-progress', 'rbd/a')
    assert in_trash() == [] and skep.rbd('ls', 'rbd').out.split() == []
    assert not [o for o in skep.rados('rbd', 'ls').out.split() if ident in o or o.endswith('.a')]


def test_what_people_move_to_the_trash_is_theirs(cluster, images):
    """A task `remove` that finds its image there removes only what its own earlier run has left."""
    name = images.load(pattern(5 * MIB))
    ident = images.info(name)['id']
    cluster.rbd('trash', 'mv', images.spec(name), '--expires-at', 'tomorrow')

    def waiting(ident, name):
        """A task that was added before that."""
        task = {'sequence': 1, 'id': unique('task'), 'message': 'Removing image ' + images.spec(name), 'failures': 0, 'why': None,
                'refs': {'action': 'remove', 'pool_name': images.pool, 'pool_namespace': '', 'image_name': name,
                         'image_id': ident}, 'pool_id': cluster.pool_number(images.pool), 'image_name': name, 'retry_at': 0}
        cluster.ceph('config-key', 'set', 'mgr/rbd_support/task/' + task['id'], json.dumps(task))
        return task
    in_trash = lambda: [r['id'] for r in cluster.rbd_json('trash', 'ls', '--all', images.pool)]
    done(cluster, waiting(ident, name), ' failed')
    assert in_trash() == [ident]
    # The same entry as a removal of its own that was cut short makes it, and marks it.
    entry = bytearray(called(cluster, images.pool, 'trash_get', text(ident)))
    entry[6] = SOURCE_REMOVING
    called(cluster, images.pool, 'trash_remove', text(ident))
    called(cluster, images.pool, 'trash_add', text(ident) + bytes(entry))
    set_trash_state(cluster, images.pool, ident, REMOVING, NORMAL)
    done(cluster, waiting(ident, name))
    assert in_trash() == []
    assert not [o for o in cluster.rados(images.pool, 'ls').out.split() if ident in o]


def test_a_manager_with_another_key_works_on(cluster, images):
    """The client of the manager's work came with a key that is taken away: another one comes with the new key."""
    done(cluster, add(cluster, 'remove', images.spec(images.create(MIB))))
    managers = [a['entity'] for a in cluster.ceph_json('auth', 'ls')['auth_dump'] if a['entity'].startswith('mgr.')]
    for manager in managers:
        assert '--yes-i-really-mean-it' in cluster.ceph('auth', 'rotate', manager, check=1).err
        cluster.ceph('auth', 'rotate', manager, '--yes-i-really-mean-it')
    done(cluster, add(cluster, 'remove', images.spec(images.create(MIB))))


def test_a_fenced_manager_works_on(cluster, images):
    """The clients of the manager's work are blocklisted, as by somebody who took their lock: others take their place."""
    def addresses():
        said = cluster.ceph_json('tell', 'mon.*', 'sessions')
        return {a['addr'].replace('v2:', '') + '/%d' % a['nonce'] for s in said if s['entity_name'].startswith('mgr.')
                for a in s['addrs']['addrvec']}
    first = add(cluster, 'remove', images.spec(images.create(MIB)))
    done(cluster, first)
    fenced = addresses()
    assert fenced
    for address in fenced:
        cluster.ceph('osd', 'blocklist', 'add', address)
    try:
        task = add(cluster, 'remove', images.spec(images.create(MIB)))
        done(cluster, task)
        # Those that are idle, of volumes for one, find out when they are used.
        assert fenced - addresses()
    finally:
        for address in fenced:
            cluster.ceph('osd', 'blocklist', 'rm', address)


def test_a_pool_that_does_not_answer_stops_no_other(cluster, images):
    """Its namespaces cannot be looked up; the schedules of others are followed, and tasks done."""
    silent, rule = unique('silent'), unique('rule')
    # One copy for each host, of which there is one.
    cluster.ceph('osd', 'crush', 'rule', 'create-replicated', rule, 'default', 'host')
    cluster.ceph('osd', 'pool', 'create', silent, '8', '8', 'replicated', rule, '--size', '3')
    cluster.ceph('osd', 'pool', 'application', 'enable', silent, 'rbd')
    number = cluster.pool_number(silent)
    inactive = lambda: all('active' not in p['state'] for p in cluster.pgs() if p['pgid'].startswith('%d.' % number))
    wait_until(inactive, 90, 0.3, 'a pool that does not answer')
    cluster.rbd('trash', 'purge', 'schedule', 'add', '1d')
    try:
        task = add(cluster, 'remove', images.spec(images.create(MIB)))
        done(cluster, task)
        planned = lambda: {r['pool'] for r in cluster.rbd_json('trash', 'purge', 'schedule', 'status') or []}
        wait_until(lambda: images.pool in planned(), 150, 1, 'the schedule to be followed')
        done(cluster, add(cluster, 'remove', images.spec(images.create(MIB))))
        assert silent not in planned()
    finally:
        cluster.rbd('trash', 'purge', 'schedule', 'rm')
        cluster.drop_pool(silent)
        cluster.ceph('osd', 'crush', 'rule', 'rm', rule)


def test_the_trash_is_emptied_by_schedule(cluster, images):
    kept, gone = images.create(MIB), images.create(MIB)
    cluster.rbd('trash', 'mv', images.spec(kept), '--expires-at', 'tomorrow')
    cluster.rbd('trash', 'mv', images.spec(gone))
    # It holds from now on: nothing is due before the next full minute.
    due = (time.time() // 60 + 1) * 60
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
        assert time.time() >= due
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
