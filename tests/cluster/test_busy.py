"""Hosts that are busy with other things: silence of an OSD whose process lives and gets on is load, and nobody is marked down
for that; one that is killed or stopped is noticed all the same.
"""
import os
import subprocess
import time

import pytest

from skeptest.load import Load
from skeptest.run import end_group, popen, wait_until

pytestmark = pytest.mark.own

BUSY_LOOPS = 8 * (os.cpu_count() or 2)
LOAD_MIN = 8                                       # programs that could run now: the average would follow after a minute
BUSY_MAX_S = 240                                   # the loops end by then whatever happens
UNDER_LOAD_S = 25


@pytest.fixture
def busy():
    """Programs that take what they get of all processors, at the priority of everybody."""
    def running():
        with open('/proc/loadavg') as f:
            return int(f.read().split()[3].split('/')[0])
    loops = [popen(['timeout', BUSY_MAX_S, 'sh', '-c', 'while :; do :; done'], stdin=subprocess.DEVNULL) for _ in range(BUSY_LOOPS)]
    try:
        wait_until(lambda: running() >= LOAD_MIN, 60, 0.5, 'the load')
        yield
    finally:
        for loop in loops:
            end_group(loop)
            loop.wait(60)


@pytest.fixture
def three(hosts):
    group = hosts(3)
    group.start_etcd()
    options = ['--osd-memory', '128M', '--osd-size', '512M']
    group[0].up(create=True, options=options)
    for host in group.list[1:]:
        host.up(join=True, options=options)
    group.pool = group[0].make_copies(3, 'rbd', pg_num=16)
    for host in group:
        host.osd = next(n['children'][0] for n in group[0].ceph_json('osd', 'tree')['nodes'] if n['name'] == host.name)
    return group


def lives(group, timeout=60):
    """From which epoch on each OSD is up without a break: another one once it was marked down."""
    return {o['osd']: (o['up_from'], o['up']) for o in group[0].ceph_json('osd', 'dump', timeout=timeout)['osds']}


def test_nobody_is_marked_down_under_load_but_who_is_gone(three, request, workdir, record_property):
    group = three
    before = lives(group)
    request.getfixturevalue('busy')
    with Load(group[0], group.pool, workdir, 8, record_property) as fio:
        end = time.monotonic() + UNDER_LOAD_S
        while time.monotonic() < end:
            assert lives(group) == before, '\n'.join(h.log_tail(20) for h in group)
            time.sleep(1)
    fio.verify()
    assert lives(group) == before, '\n'.join(h.log_tail(20) for h in group)

    def noticed(host, what):
        began = time.monotonic()
        wait_until(lambda: not lives(group)[host.osd][1], 30, 0.1, 'osd.%d to be marked down' % host.osd)
        record_property('%s, marked down after' % what, '%.1f s' % (time.monotonic() - began))
    group[1].kill()
    noticed(group[1], 'killed under load')
    group[1].start(90)
    group[2].pause()
    try:
        noticed(group[2], 'stopped under load')
    finally:
        group[2].resume()
    wait_until(lambda: group[0].whole(), 90, 0.5, 'all copies')
