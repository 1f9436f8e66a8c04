"""A panic in any thread ends its role and nothing else; the role is started again, and no acknowledged write is lost.

The server is started with SKEP_TEST_PANICS=1, so that its admin socket takes `skep test panic`: the next thread of a
role that comes by a point panics there (docs/internals/supervision.md has the points). A writer notes each write
when its answer comes (`skeptest.writer`), and must get on by itself; everything noted is read back.
"""
import json
import os
import re
import shutil
import subprocess

import pytest

from skeptest.run import end_group, wait_until
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own

# The helper's work comes with checkpoints and growth, which take their time.
PATIENCE_S = 60


@pytest.fixture
def panicking(own, monkeypatch):
    """Makes servers that panic where they are asked to."""
    monkeypatch.setenv('SKEP_TEST_PANICS', '1')
    return own


def panic(skep, role, point):
    """Asks for a panic, and waits until the role serves again after it."""
    before = skep.roles()[role]['restarts']
    assert skep.admin('skep test panic', role=role, point=point) == {'asked': {'role': role, 'point': point}}

    def is_back():
        assert skep.alive, skep.log_tail(80)
        now = skep.roles()[role]
        return now['restarts'] > before and now['state'] == 'serving' and now
    now = wait_until(is_back, PATIENCE_S, 0.1, '%s to be back after a panic at %s' % (role, point))
    assert 'panicked: a test asked for a panic at the point "%s"' % point in now['last_failure'], now


def others_are_well(skep, fallen):
    return all(r['restarts'] == 0 for name, r in skep.roles().items() if name not in fallen)


def has_backtrace(skep, role, point):
    """The log has the panic, and frames that lead to it (written beside what goes on)."""
    def frames():
        log = skep.log.read_text(errors='replace')
        said = re.search(r'%s: thread \S+ panicked: [^\n]*"%s"' % (re.escape(role), point), log)
        assert said, log[-3000:]
        found = re.findall(r'%s: +\d+: +(\S+)' % re.escape(role), log[said.end():])
        return len(found) > 5 and any('panic_if_wanted' in f for f in found)
    return wait_until(frames, 60, 0.1, 'the backtrace of %s at %s' % (role, point))


def test_each_thread_of_an_osd_under_a_client_that_lives_on(panicking, tmp_path):
    skep = panicking(options=['--disk-io', 'plain']).start()
    pool = skep.make_copies(size=3)
    writer, notes = start_writer(skep, pool, tmp_path)

    def goes_on():
        before = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > before, PATIENCE_S, what='the client to go on')
    try:
        goes_on()
        for n, point in enumerate(['loop', 'net', 'pulse', 'commit', 'data', 'helper']):
            role = 'osd.%d' % (n % 2)
            panic(skep, role, point)
            assert has_backtrace(skep, role, point)
            goes_on()
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    assert others_are_well(skep, ['osd.0', 'osd.1']), skep.roles()
    wait_until(lambda: skep.whole(pool), PATIENCE_S, 0.3, 'all copies to be there')
    check_notes(skep, pool, notes)
    said = skep.ceph('log', 'last', '100').out
    assert 'osd.0 failed and is started again: thread osd.0 panicked' in said, said
    # From a cold cache, where a read is done by a thread: on whichever OSD it happens, the reader gets all. Small writes may be in memory
    # again, from the log.
    large = tmp_path / 'large'
    large.write_bytes(os.urandom(4 << 20))
    for n in range(8):
        skep.rados(pool, 'put', 'large-%d' % n, large)
    skep.restart()
    for role in ('osd.0', 'osd.1', 'osd.2'):
        skep.admin('skep test panic', role=role, point='read')
        check_notes(skep, pool, notes)
        for n in range(8):
            assert skep.rados(pool, 'get', 'large-%d' % n, '-').out_bytes == large.read_bytes()
    failed = [r['last_failure'] for r in skep.roles().values() if r['last_failure']]
    assert failed and all('"read"' in why for why in failed), skep.roles()
    assert skep.stop() == 0, skep.log_tail(80)


def test_all_osds_at_once_and_the_monitor(panicking, tmp_path):
    skep = panicking().start()
    pool = skep.make_copies(size=2)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        for role in ('osd.0', 'osd.1', 'osd.2', 'mon.a'):
            panic(skep, role, 'loop')
        panic(skep, 'mon.a', 'net')
        before = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > before, PATIENCE_S, what='the client to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    # The new monitor says where its manager is now.
    assert skep.ceph_json('status')['osdmap']['num_up_osds'] == 3
    skep.ceph('osd', 'pool', 'stats')
    check_notes(skep, pool, notes)
    assert skep.stop() == 0, skep.log_tail(80)


@pytest.mark.parametrize('point', ['follow', 'audit', 'admin'])
def test_a_panic_of_the_nodes_own_threads_ends_it(panicking, tmp_path, point):
    """Nothing of the process can go on without them: it stops in order, and says so by its status."""
    skep = panicking().start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'kept')
    skep.admin('skep test panic', role='node', point=point)
    client = None
    if point == 'admin':
        with pytest.raises((OSError, ValueError)):
            skep.roles()
    else:
        # A change for the follower, and a line for the audit file. Its answer may never come.
        client = skep.popen('ceph', 'osd', 'set', 'noout', stdin=subprocess.DEVNULL)
    try:
        assert skep.proc.wait(40) == 1, skep.log_tail(80)
    finally:
        if client:
            end_group(client)
            client.wait(60)
    assert 'the node itself cannot go on: thread' in skep.log_tail(5), skep.log_tail(80)
    assert has_backtrace(skep, 'node', point)
    skep.start()
    assert skep.rados(pool, 'get', 'o', '-').out == 'kept'


def test_one_osd_less_serves_and_none_ends_the_process(panicking):
    """An OSD whose disk is gone is tried again; when no OSD is left the process ends, and not as if all were well."""
    skep = panicking(osds=2).start()
    pool = skep.make_pool()

    def lose(osd):
        shutil.move(skep.data / osd, skep.data.with_name(skep.data.name + '-lost-' + osd))
        skep.admin('skep test panic', role=osd, point='loop')
    lose('osd.0')
    wait_until(lambda: skep.roles()['osd.0']['restarts'] >= 2, PATIENCE_S, 0.2, 'attempts to start it')
    assert skep.alive and skep.roles()['osd.1']['state'] == 'serving', skep.log_tail(80)
    skep.ceph('osd', 'pool', 'set', pool, 'min_size', '1', check=None)
    lose('osd.1')
    assert skep.proc.wait(120) == 1, skep.log_tail(80)
    said = skep.log_tail(5)
    assert 'nothing is left to serve: the OSDs of this machine cannot be started any more' in said, said


def test_nobody_else_can_ask_for_a_panic(own):
    skep = own().start()
    assert 'error' in skep.admin('skep test panic', role='osd.0', point='loop')
    status = json.loads(skep.cli('status', '--data', skep.data, '--format', 'json').out)
    assert {r['state'] for r in status['roles'].values()} == {'serving'}, status['roles']
