"""Limits of operations and bytes per second, which the server enforces by the protocol's own flow control (docs/operating/qos.md):
what stock clients get, in numbers of operations, and that nothing of what they write is lost or out of order."""
import json
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.images import MIB, Images
from skeptest.run import end_group, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

SECONDS = 10


@pytest.fixture(scope='module')
def pool(cluster):
    name = cluster.make_copies(3, 'rbd', pg_num=32)
    cluster.run('rbd', 'pool', 'init', name, timeout=60)
    yield name
    cluster.drop_pool(name)


@pytest.fixture
def images(cluster, pool, tmp_path):
    return Images(cluster, pool, tmp_path)


@pytest.fixture
def limit(cluster):
    """Sets limits by the stock `ceph`; takes them away afterwards."""
    done = []

    def set_(what, who, *amounts):
        cluster.ceph('qos', 'set', what, who, *amounts)
        if (what, who) not in done:
            done.append((what, who))
    yield set_
    for what, who in done:
        cluster.ceph('qos', 'rm', what, who, check=None)


def states(cluster):
    def of(osd):
        r = cluster.ceph('tell', 'osd.%d' % osd, 'dump_qos', check=None)
        return r.returncode == 0 and json.loads(r.out)
    # One that was just said to be down is not asked until it is up again.
    return [wait_until(lambda: of(osd), 30, 0.3, 'osd.%d' % osd) for osd in range(3)]


def total(cluster, key):
    return sum(limit[key] for state in states(cluster) for limit in state['limits'])


def at_rest(cluster):
    wait_until(lambda: not any(s['records'] for s in states(cluster)), 30, 0.5, what='no records of clients that are gone')


def fio_argv(pool, image, *args):
    return ['fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + pool, '--rbdname=' + image,
            '--output-format=json', '--randseed=7', *args]


def fio(cluster, pool, image, *args, check=0, timeout=90):
    # Without librbd's cache, which takes on what it sends later, and its scheduler, which sends neighbours in one: fio counts what the
    # OSDs do.
    r = cluster.with_args('--rbd_cache=false --rbd_io_scheduler=none').run(*fio_argv(pool, image, *args), timeout=timeout, check=check)
    return json.loads(r.out[r.out.index('{'):])['jobs'][0]


def test_several_operations_on_one_object_keep_their_order(cluster, limit):
    """All of them are held by the client, and sent again in order: a read finds what was written just before it."""
    pool = cluster.make_copies(3, pg_num=8)
    limit('pool', pool, 'iops_limit=150')

    def body():
        handle = connect(cluster)
        io = handle.open_ioctx(pool)
        io.set_namespace('n')
        found, writes = {}, []
        began = time.monotonic()
        for i in range(200):
            writes.append(io.aio_write_full('o', b'%06d' % i))
            if i % 4 == 0:
                io.aio_read('o', 6, 0, lambda c, data, i=i: found.__setitem__(i, data))
        for w in writes:
            w.wait_for_complete_and_cb()
            assert w.get_return_value() == 0
        took = time.monotonic() - began
        deadline = time.monotonic() + 20
        while len(found) < 50 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert found == {i: b'%06d' % i for i in range(0, 200, 4)}
        assert io.read('o') == b'000199'
        tail = io.read('o', 3, 3)
        handle.shutdown()
        return took, tail
    took, tail = in_child(body)
    assert tail == b'199'
    # One object is on one OSD, which has its share of the pool's limit at most.
    assert took >= 0.9 * (250 - 20) / 150, took
    assert total(cluster, 'held_back') > 0 and total(cluster, 'not_held') == 0
    at_rest(cluster)
    cluster.drop_pool(pool)


def test_a_client_that_is_killed_leaves_nothing(cluster, images, limit):
    name = images.create(256 * MIB)
    limit('image', images.spec(name), 'iops_limit=30')
    job = cluster.popen(*fio_argv(images.pool, name, '--rw=randwrite', '--bs=4k', '--iodepth=64', '--size=256m'))
    try:
        wait_until(lambda: sum(s['objects_waiting'] for s in states(cluster)) > 30, 30, what='held objects')
    finally:
        job.kill()
        end_group(job)
    at_rest(cluster)


@pytest.fixture
def small_objects(cluster, images):
    """An image of 1024 objects, which all are there."""
    name = images.create(64 * MIB, '--object-size', '64K')
    fio(cluster, images.pool, name, '--rw=write', '--bs=64k', '--iodepth=16', '--size=64m')
    return name


@pytest.mark.parametrize('rw, limits, least, most', [
    ('randwrite', ['iops_limit=300'], 150, 315),
    pytest.param('randread', ['read_iops_limit=300', 'write_iops_limit=10'], 150, 315, marks=pytest.mark.long),
    pytest.param('randwrite', ['iops_limit=300', 'iops_burst=900', 'iops_burst_seconds=2'], 200, 435, marks=pytest.mark.long),
    # On one OSD at a time, which has its share: of these few groups perhaps a fifth.
    pytest.param('write', ['iops_limit=300'], 35, 315, marks=pytest.mark.long),
], ids=['random writes', 'random reads', 'burst', 'one object after the other'])
def test_what_an_image_gets_at_depth_32(cluster, images, small_objects, limit, record_property, rw, limits, least, most):
    name = small_objects
    if rw == 'write':
        name = images.create(64 * MIB)
    limit('image', images.spec(name), *limits)
    job = fio(cluster, images.pool, name, '--rw=' + rw, '--bs=4k', '--iodepth=32', '--size=64m', '--time_based',
              '--runtime=%d' % SECONDS)
    side = job['read' if rw == 'randread' else 'write']
    got = side['total_ios'] / (side['runtime'] / 1000)
    record_property('operations per second', '%.0f under %s' % (got, limits))
    assert least <= got <= most, got


def test_another_image_on_the_same_connection_is_not_slowed(cluster, images, limit, record_property):
    limited, free = images.create(512 * MIB), images.create(512 * MIB)

    def body(seconds=6):
        import rbd
        handle = connect(cluster)
        io = handle.open_ioctx(images.pool)
        counts, opened = {}, {n: rbd.Image(io, n) for n in (limited, free)}
        end = time.monotonic() + seconds
        running = []

        def go(name, at):
            def done(completion):
                counts[name] = counts.get(name, 0) + 1
                if time.monotonic() < end:
                    go(name, at + 1)
                else:
                    running.append(name)
            at %= 128
            opened[name].aio_write(b'x' * 4096, at * 4 * MIB, done)
        for name in opened:
            for i in range(16):
                go(name, i * 7)
        while len(running) < 32 and time.monotonic() < end + 60:
            time.sleep(0.05)
        for image in opened.values():
            image.close()
        io.close()
        handle.shutdown()
        return counts
    before = in_child(body)
    limit('image', images.spec(limited), 'iops_limit=60')
    after = in_child(body)
    record_property('operations', 'both free %s; one limited %s' % (sorted(before.values()), sorted(after.values())))
    assert after[limited] <= 6 * 60 * 1.15 + 16, after
    # On a machine with other work it need not have as many as before; as many as the limited one gets it has by far.
    assert after[free] >= 4 * after[limited], (before, after)


def test_a_limit_is_changed_and_removed_under_load(cluster, images, limit):
    name = images.create(512 * MIB)
    limit('image', images.spec(name), 'iops_limit=40')
    argv = ['--rw=randwrite', '--bs=4k', '--iodepth=32', '--size=512m', '--time_based', '--runtime=40']
    job = cluster.popen(*fio_argv(images.pool, name, *argv))

    def rate(seconds):
        before = sum(o['image'] for o in [{'image': total(cluster, 'ops')}])
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began >= seconds, seconds + 5, 0.2)
        return (total(cluster, 'ops') - before) / (time.monotonic() - began)
    try:
        wait_until(lambda: total(cluster, 'ops') > 60, 30, what='operations')
        slow = rate(4)
        limit('image', images.spec(name), 'iops_limit=200')
        fast = rate(4)
        assert slow <= 50 < fast <= 240, (slow, fast)
        cluster.ceph('qos', 'rm', 'image', images.spec(name))
        at_rest(cluster)
    finally:
        job.kill()
        end_group(job)


def test_bytes_of_large_writes(cluster, images, limit, record_property):
    name = images.create(512 * MIB)
    limit('image', images.spec(name), 'write_bps_limit=16M')
    job = fio(cluster, images.pool, name, '--rw=randwrite', '--bs=4m', '--iodepth=8', '--size=512m', '--time_based',
              '--runtime=%d' % SECONDS)['write']
    got = job['io_bytes'] / (job['runtime'] / 1000) / MIB
    record_property('MiB per second', '%.1f of 16' % got)
    assert 6 <= got <= 19, got
    at_rest(cluster)


def test_data_is_whole_under_limits_while_osds_go_down(cluster, images, limit):
    name = images.create(64 * MIB)
    limit('image', images.spec(name), 'iops_limit=600', 'bps_limit=40M')
    argv = fio_argv(images.pool, name, '--rw=randwrite', '--bsrange=4k-64k', '--iodepth=32', '--size=64m', '--verify=crc32c',
                    '--verify_fatal=1', '--verify_state_save=0')
    job = cluster.popen(*argv)
    try:
        wait_until(lambda: total(cluster, 'ops') > 100, 40, what='operations')
        for osd in (0, 1, 2):
            cluster.ceph('osd', 'down', osd)
            before = total(cluster, 'ops')
            wait_until(lambda: job.poll() is not None or total(cluster, 'ops') > before, 60, 0.3, what='operations after osd.%d' % osd)
        assert job.wait(120) == 0
    finally:
        job.kill()
        end_group(job)
    job = fio(cluster, images.pool, name, *argv[8:], '--verify_only')
    assert job['error'] == 0 and job['read']['io_bytes'] == 64 * MIB, job
    at_rest(cluster)


def test_what_is_wrong_is_said(cluster, images):
    r = cluster.ceph('qos', 'set', 'image', images.spec('nosuch'), 'iops_limit=5', check='fails')
    assert 'not found' in r.err, r
    name = unique('nopool')
    cluster.ceph('qos', 'set', 'pool', name, 'iops_limit=5', check='fails')


def test_our_own_commands(cluster, images):
    name = images.create(MIB)

    def skep(*args, check=0):
        return cluster.run(find_binary(), 'qos', *args, '--conf', cluster.conf, check=check)
    skep('set', 'image', images.spec(name), 'iops_limit=100', 'write_bps_limit=5M')
    row = {'what': 'image', 'who': images.spec(name), 'iops_limit': 100, 'write_bps_limit': 5 * MIB}
    mine = [r for r in json.loads(skep('ls', '-f', 'json').out) if r['who'] == images.spec(name)]
    assert len(mine) == 1 and row.items() <= mine[0].items() and mine[0]['data_pool'] == images.pool, mine
    shares = [[limit['share'] for limit in osd['limits'] if limit['limits'].get('name') == name] for osd in
              json.loads(skep('status', '-f', 'json').out)]
    assert len(shares) == 3 and abs(sum(s for one in shares for s in one) - 1) < 1e-6, shares
    said = skep('status').out
    assert said.count('image %s: ' % images.spec(name)) == 3, said
    cluster.rbd('rename', images.spec(name), images.spec(name + 'x'))
    cluster.rbd('rm', images.spec(name + 'x'))
    skep('rm', 'image', images.spec(name))              # by the name that it had
    assert images.spec(name) not in skep('ls').out
    skep('rm', 'image', images.spec(name), check='fails')


def writes_done(cluster):
    def of(osd):
        return json.loads(cluster.ceph('tell', 'osd.%d' % osd, 'perf', 'dump').out)['osd']['op_w']
    return sum(of(osd) for osd in range(3))


@pytest.mark.long
def test_who_has_a_reservation_goes_ahead_of_a_neighbour(cluster, images, limit):
    quiet, steady, noisy = images.create(64 * MIB), images.create(64 * MIB), images.create(256 * MIB)
    for name in (quiet, steady):
        limit('image', images.spec(name), 'iops_reserve=9000')
    row = [r for r in json.loads(cluster.ceph('qos', 'ls', '-f', 'json').out) if r['who'] == images.spec(quiet)]
    assert row[0]['iops_reserve'] == 9000, row

    def others(key):
        return sum(state['others'][key] for state in states(cluster))

    def runs(name, *args):
        # Until it is killed.
        return cluster.popen(*fio_argv(images.pool, name, '--rw=randwrite', *args, '--time_based', '--runtime=600'))

    def held_for_what_they_do():
        # Probes are in the first seconds of every ten, at all OSDs.
        began = time.time()
        parts = [state['others']['part'] for state in states(cluster)]
        return 3.5 < began % 10 and began // 10 == time.time() // 10 and min(parts) < 1
    before, done = others('held_back'), writes_done(cluster)
    jobs = [runs(noisy, '--bs=16k', '--iodepth=64', '--size=256m')]
    check = ['--verify=crc32c', '--verify_fatal=1', '--verify_state_save=0']
    argv = ['--rw=randwrite', '--bs=4k', '--iodepth=1', '--size=1m', '--randrepeat=1', *check]
    try:
        wait_until(lambda: writes_done(cluster) > done + 100, 30, what='the neighbour at work')
        jobs.append(runs(steady, '--bs=4k', '--iodepth=1', '--size=64m'))
        wait_until(held_for_what_they_do, 40, 0.2, what='a neighbour that is held')
        # It writes 256 blocks, and reads and compares them.
        job = fio(cluster, images.pool, quiet, *argv)
        assert job['error'] == 0 and job['write']['total_ios'] == 256, job
        assert others('ahead') >= 256 and others('held_back') > before, states(cluster)
        said = cluster.run(find_binary(), 'qos', 'status', '--conf', cluster.conf).out
        assert 'reservations: ' in said and ' ahead of others' in said, said
        end_job(jobs.pop())
        # A second after the last operation that went ahead nobody is held any more, whoever else is at work.
        wait_until(lambda: not any(s['others']['reserved_at_work'] or s['objects_waiting'] for s in states(cluster)), 20, 0.3,
                   what='the end of what was held')
        assert jobs[0].poll() is None, 'the neighbour goes on'
    finally:
        for job in jobs:
            end_job(job)
    at_rest(cluster)


def end_job(job):
    job.kill()
    end_group(job)


@pytest.mark.long
def test_a_server_that_is_killed_and_comes_back(own, tmp_path):
    """Nothing of what was held is known to the next life; the client sends it all again, and its limit goes on."""
    skep = own().start()
    pool = skep.make_pool('rbd')
    images = Images(skep, pool, tmp_path)
    name = images.create(32 * MIB)
    skep.ceph('qos', 'set', 'image', images.spec(name), 'iops_limit=400')
    argv = fio_argv(pool, name, '--rw=randwrite', '--bs=8k', '--iodepth=32', '--size=32m', '--verify=crc32c', '--verify_fatal=1',
                    '--verify_state_save=0')
    job = skep.popen(*argv)
    try:
        for _ in range(2):
            wait_until(lambda: total(skep, 'ops') > 300, 40, what='operations')
            skep.kill()
            skep.start()
        assert job.wait(120) == 0
    finally:
        job.kill()
        end_group(job)
    at_rest(skep)
