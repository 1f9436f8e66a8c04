"""Names of a directory that several change: clients trust each of them for a while, ask no second time, and nobody trusts what another has changed."""
import contextlib
import os
import random
import threading
import time

import cephfs
import pytest

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted, wait_active

# Calls of mounts of their own take some of them; a name that is asked for takes one each time.
FEW = 30
NAMES = 60


@pytest.fixture(scope='module')
def requests(cluster, fs):
    """How many requests clients have sent so far."""
    return lambda: cluster.ceph_json('tell', 'mds.%s:0' % fs, 'perf', 'dump')['mds']['request']


@contextlib.contextmanager
def library(cluster, fs):
    c = cephfs.LibCephFS(conffile=str(cluster.conf))
    c.conf_set('client_mount_timeout', '60')
    c.mount(filesystem_name=fs.encode())
    try:
        yield c
    finally:
        c.shutdown()


@pytest.fixture
def two(cluster, fs):
    with library(cluster, fs) as a, library(cluster, fs) as b:
        yield a, b


def ino(c, path):
    """None: there is no such name."""
    try:
        return c.stat(path).st_ino
    except cephfs.ObjectNotFound:
        return None


def contest(a, b, d):
    """What the second knows of the directory is taken back, again and again."""
    for i in range(4):
        a.mkdir('%s/first%d' % (d, i), 0o755)
        # A name that is not there brings it nothing: libcephfs does not ask for more than that.
        assert ino(b, '%s/first%d' % (d, i)) is not None


def leases(cluster, fs):
    return sum(s['num_leases'] for s in cluster.ceph_json('tell', 'mds.%s:0' % fs, 'session', 'ls'))


def test_a_second_look_asks_nobody_while_another_makes_names(cluster, fs, two, requests):
    a, b = two
    d = '/' + unique('d')
    a.mkdir(d, 0o755)
    contest(a, b, d)
    for i in range(NAMES):
        a.mkdir('%s/n%d' % (d, i), 0o755)
    first = [ino(b, '%s/n%d' % (d, i)) for i in range(NAMES)]
    assert None not in first and leases(cluster, fs) >= NAMES
    before = requests()
    a.mkdir(d + '/more', 0o755)
    for _ in range(3):
        assert [ino(b, '%s/n%d' % (d, i)) for i in range(NAMES)] == first
    assert requests() - before < FEW
    # What is changed is known at once.
    a.rmdir(d + '/n7')
    a.rename(d + '/n8', d + '/n9')
    now = [ino(b, '%s/n%d' % (d, i)) for i in range(NAMES)]
    assert now == first[:7] + [None, None, first[8]] + first[10:]


def test_leases_can_be_switched_off(cluster, fs, two, requests):
    a, b = two
    d = '/' + unique('d')
    a.mkdir(d, 0o755)
    cluster.ceph('tell', 'mds.%s:0' % fs, 'config', 'set', 'mds_name_leases', 'false')
    try:
        contest(a, b, d)
        for i in range(NAMES):
            a.mkdir('%s/n%d' % (d, i), 0o755)
        for _ in range(2):
            before = requests()
            a.mkdir(d + '/' + unique('more'), 0o755)
            assert None not in [ino(b, '%s/n%d' % (d, i)) for i in range(NAMES)]
            assert requests() - before >= NAMES
    finally:
        cluster.ceph('tell', 'mds.%s:0' % fs, 'config', 'set', 'mds_name_leases', 'true')


def test_what_any_of_three_changes_all_see(cluster, fs, two, mount):
    a, b = two
    d = unique('d')
    a.mkdir('/' + d, 0o755)
    contest(a, b, '/' + d)
    seed = unique('seed')
    dice = random.Random(seed)
    names = ['n%d' % i for i in range(6)]
    model, end, turns = {}, time.monotonic() + 8, 0

    def by_library(c):
        return {name: ino(c, '/%s/%s' % (d, name)) for name in names}

    def by_mount():
        found = {}
        for name in names:
            try:
                found[name] = os.stat(mount / d / name).st_ino
            except FileNotFoundError:
                found[name] = None
        return found

    while time.monotonic() < end or turns < 50:
        turns += 1
        name, new = dice.sample(names, 2)
        path, to = '/%s/%s' % (d, name), '/%s/%s' % (d, new)
        who = dice.choice([a, b, None])
        if model.get(name) is None:
            os.mkdir(mount / d / name) if who is None else who.mkdir(path, 0o755)
            model[name] = ino(who or a, path)
        elif dice.random() < 0.5:
            os.rmdir(mount / d / name) if who is None else who.rmdir(path)
            model[name] = None
        else:
            os.rename(mount / d / name, mount / d / new) if who is None else who.rename(path, to)
            model[name], model[new] = None, model[name]
        want = {n: model.get(n) for n in names}
        for shown in (by_library(a), by_library(b), by_mount()):
            assert shown == want, '%s, turn %d' % (seed, turns)


def test_who_looks_while_another_changes_sees_what_is_there(two):
    a, b = two
    d = '/' + unique('d')
    a.mkdir(d, 0o755)
    contest(a, b, d)
    name = d + '/flips'
    # It is there when an odd number of changes were made.
    state = {'begun': 0, 'done': 0, 'ends': False, 'wrong': None}
    looks = []

    def change():
        while not state['ends']:
            state['begun'] += 1
            (a.mkdir(name, 0o755) if state['begun'] % 2 else a.rmdir(name))
            state['done'] = state['begun']
            threading.Event().wait(0.002)

    def look():
        while not state['ends']:
            done = state['done']
            there = ino(b, name) is not None
            may = {n % 2 == 1 for n in range(done, state['begun'] + 1)}
            looks.append(len(may))
            if there not in may:
                state['wrong'] = state['wrong'] or (done, state['begun'], there)
                return

    threads = [threading.Thread(target=work) for work in (change, look)]
    [t.start() for t in threads]
    threading.Event().wait(6)
    state['ends'] = True
    [t.join(60) for t in threads]
    assert not any(t.is_alive() for t in threads)
    assert state['wrong'] is None and state['done'] > 20
    assert looks.count(1) > 20, 'of so many it was known what they had to show'


@pytest.mark.own
def test_a_name_that_was_trusted_before_a_restart_is_taken_back_after_it(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    with library(skep, 'fs') as a, library(skep, 'fs') as b, mounted(skep, tmp_path / 'm', fs='fs') as m:
        a.mkdir('/d', 0o755)
        contest(a, b, '/d')
        for i in range(20):
            a.mkdir('/d/s%d' % i, 0o755)
            a.mkdir('/d/s%d/sub' % i, 0o755)
        # Directories that are in use stay with a client over its reconnect.
        held = [b.opendir('/d/s%d' % i) for i in range(20)]
        before = [ino(b, '/d/s%d' % i) for i in range(20)]
        assert [os.stat(m / 'd' / ('s%d' % i)).st_ino for i in range(20)] == before
        skep.restart()
        wait_active(skep, 'fs')
        for i in range(20):
            a.rename('/d/s%d' % i, '/d/t%d' % i)
            a.mkdir('/d/s%d' % i, 0o755)
            now = ino(a, '/d/s%d' % i)
            assert now != before[i]
            assert ino(b, '/d/s%d' % i) == now and os.stat(m / 'd' / ('s%d' % i)).st_ino == now
            assert ino(b, '/d/t%d' % i) == before[i]
        [b.closedir(h) for h in held]
