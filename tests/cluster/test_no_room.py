"""Two copies of which both are needed (size 2, min_size 2), and one disk that is full: writes wait, the doctor says why and
for what, and what it says to do helps: deleting, and room.
"""
import os
import subprocess

import pytest

from skeptest.run import end_group, wait_until

pytestmark = pytest.mark.own

SMALL_DISK_MIB = 700


@pytest.fixture
def two(hosts):
    """Two hosts, the second one with a small disk of its own; etcd apart."""
    group = hosts(2)
    why = group[1].on_small_disk(SMALL_DISK_MIB)
    if why:
        pytest.skip('no loop device here: ' + why)
    group.start_etcd(apart=True)
    for host, first in zip(group, ({'create': True}, {'join': True})):
        host.up(options=['--osd-memory', '128M', '--osd-size', '512M'], **first)
    return group


def doctor(host):
    return host.cli('doctor', '--data', host.data).out


def says(host, *parts, timeout=40):
    try:
        return wait_until(lambda: (d := doctor(host)) and all(p in d for p in parts) and d, timeout, 0.3, 'the doctor to say %r' % (parts,))
    except AssertionError as e:
        raise AssertionError('%s\n%s' % (e, doctor(host)))


def needs_both(host):
    pool = host.make_copies(2, pg_num=8)
    host.ceph('osd', 'pool', 'set', pool, 'min_size', '2')
    return pool


def led_elsewhere(host, pool, osd):
    """Names of objects whose primary has room when that OSD, their other copy, has none: a primary without refuses."""
    led = {pg['pgid'] for pg in host.pgs() if pg['pgid'].startswith('%d.' % host.pool_number(pool)) and pg['acting_primary'] != osd}
    return [n for n in ('o%d' % i for i in range(60)) if host.ceph_json('osd', 'map', pool, n)['pgid'] in led][:12]


def osd_of(host):
    return next(n['children'][0] for n in host.ceph_json('osd', 'tree')['nodes'] if n['name'] == host.name)


def test_a_needed_copy_without_room(two, tmp_path):
    a, b = two
    pool = needs_both(a)
    number, small = a.pool_number(pool), osd_of(b)
    names = led_elsewhere(a, pool, small)
    block, source = os.urandom(2 << 20), tmp_path / 'block'
    source.write_bytes(block * 8)
    for name in names[:4]:
        a.rados(pool, 'put', name, '-', stdin=block)
    b.fill_disk()
    waiting = []
    try:
        for name in names[4:]:
            waiting.append(a.popen('rados', '-p', pool, 'put', name, source, stdin=-3, stdout=-3, stderr=subprocess.PIPE))
        out = says(a, 'writes wait: osd.%d on host %s has no room for the copy' % (small, b.name))
        line = next(l for l in out.splitlines() if 'writes wait: osd.' in l)
        assert line.startswith('BLOCKED  pg %d.' % number) and 'of pool ' + pool in line and ' free of ' in line, out
        assert 'fewer copies than min_size' in line and 'changes wait' in line, out
        assert 'delete data' in out and 'make room on host ' + b.name in out, out
        assert 'ceph osd pool set %s min_size 1' % pool in out, out
        # The clients' own operations say the same.
        assert 'has no room for it, and too few copies would be left' in says(a, 'osd_op('), out
        assert any(p.poll() is None for p in waiting), [p.stderr.read() for p in waiting]
        b.empty_disk()
        for proc in waiting:
            assert proc.wait(90) == 0, proc.stderr.read()
    finally:
        for proc in waiting:
            end_group(proc)
            proc.wait(60)
    wait_until(lambda: 'no room' not in doctor(a) and a.whole(pool), 60, 0.5, 'the doctor to be content')
    for name in names[4:]:
        assert a.rados(pool, 'get', name, '-', timeout=60).out_bytes == block * 8


def test_going_on_with_one_copy_as_the_doctor_says(two, tmp_path):
    a, b = two
    pool = needs_both(a)
    small = osd_of(b)
    names = led_elsewhere(a, pool, small)
    block, source = os.urandom(16 << 20), tmp_path / 'block'
    source.write_bytes(block)
    b.fill_disk()
    waiting = [a.popen('rados', '-p', pool, 'put', name, source, stdin=-3, stdout=-3, stderr=subprocess.PIPE) for name in names[:8]]
    try:
        says(a, 'writes wait: osd.%d on host %s has no room for the copy' % (small, b.name))
        a.ceph('osd', 'pool', 'set', pool, 'min_size', '1')
        out = says(a, 'has no room for its copy', 'one copy fewer until it has')
        assert 'writes wait: osd.' not in out, out
        for proc in waiting:
            assert proc.wait(60) == 0, proc.stderr.read()
        a.rados(pool, 'put', 'big', source, timeout=60)
    finally:
        for proc in waiting:
            end_group(proc)
            proc.wait(60)
        b.empty_disk()
    wait_until(lambda: a.whole(pool), 90, 0.5, 'both copies')
    wait_until(lambda: 'no room' not in doctor(a), 30, 0.5, 'the doctor to be content')
    for name in names[:8] + ['big']:
        assert a.rados(pool, 'get', name, '-', timeout=60).out_bytes == block
