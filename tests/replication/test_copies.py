"""Pools of three copies on one machine with three OSDs, through stock clients.

Writers note each write when its answer comes, while OSDs are marked down, taken out and the process is killed;
everything noted is read back by a new client. An OSD that is held down with `noup` lives on without serving, and
comes back by its log when the flag goes.
"""
import json
import subprocess
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.images import MIB
from skeptest.run import end_group, wait_until
from skeptest.writer import check_notes, start_writer

pytestmark = pytest.mark.own


def make_pool(skep, size=3, min_size=2, app='rados', pg_num=8):
    pool = skep.make_pool(app, pg_num=pg_num)
    skep.ceph('osd', 'pool', 'set', pool, 'size', str(size), '--yes-i-really-mean-it')
    skep.ceph('osd', 'pool', 'set', pool, 'min_size', str(min_size))
    wait_until(lambda: skep.whole(pool), 40, every=0.5, what='a whole pool')
    return pool


def progress(notes, what, seconds=40):
    before = notes.stat().st_size
    wait_until(lambda: notes.stat().st_size > before, seconds, what=what)


def test_three_copies_are_three_copies(own):
    skep = own().start()
    pool = make_pool(skep)
    skep.rados(pool, 'put', 'o', '-', stdin=b'x' * 300000)
    assert skep.rados(pool, 'get', 'o', '-').out_bytes == b'x' * 300000
    where = skep.ceph_json('osd', 'map', pool, 'o')
    assert sorted(where['acting']) == [0, 1, 2] and where['acting'] == where['up']

    def stored():
        return [o['kb_used_data'] for o in skep.ask('osd', 'df', to='mgr')['nodes']]
    wait_until(lambda: min(stored()) >= 290, 60, every=0.5, what='the object on every OSD')


def test_rbd_on_three_copies(own, tmp_path):
    skep = own().start()
    pool = make_pool(skep, app='rbd')
    skep.rbd('create', '%s/i' % pool, '--size', '64M')
    skep.rbd('bench', '%s/i' % pool, '--io-type', 'write', '--io-size', '4K', '--io-total', '8M', '--io-pattern', 'rand')
    (tmp_path / 'f').write_bytes(b'payload!' * (MIB // 2))
    skep.rbd('import', tmp_path / 'f', '%s/j' % pool)
    skep.rbd('snap', 'create', '%s/j@s' % pool)
    skep.rbd('bench', '%s/j' % pool, '--io-type', 'write', '--io-size', '64K', '--io-total', '2M')
    for osd in (0, 1, 2):                       # every OSD in turn has to lead without the one before
        skep.ceph('osd', 'down', str(osd))
        assert skep.rbd('export', '%s/j@s' % pool, '-').out_bytes == b'payload!' * (MIB // 2)


def test_an_osd_marked_down_again_and_again_under_a_writer(own, tmp_path):
    skep = own().start()
    pool = make_pool(skep)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        for round_ in range(3):
            progress(notes, 'writes before round %d' % round_)
            skep.ceph('osd', 'down', str(round_))
            progress(notes, 'writes after osd.%d was marked down' % round_)
            wait_until(lambda: skep.ceph_json('osd', 'stat')['num_up_osds'] == 3, 30, 0.1, 'osd.%d to come back' % round_)
        wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')
        progress(notes, 'writes at the end')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)


def test_an_osd_that_was_away_catches_up_and_can_lead(own, tmp_path):
    """Writes go on with two of three; the third gets what it missed; then it is the others that go away."""
    skep = own().start()
    pool = make_pool(skep)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        progress(notes, 'writes')
        skep.ceph('osd', 'set', 'noup')
        skep.ceph('osd', 'down', '2')
        progress(notes, 'writes with two of three')
        fewer = lambda: any('undersized' in pg['state'] and 'active' in pg['state'] for pg in skep.pgs())
        wait_until(fewer, 30, 0.3, 'groups with two copies to say so')
        skep.ceph('osd', 'unset', 'noup')
        wait_until(lambda: skep.whole(pool), 60, every=0.5, what='osd.2 to catch up')
    finally:
        end_group(writer)
        writer.wait(60)
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', '0')               # what osd.1 leaves is on osd.2 as well
    check_notes(skep, pool, notes)
    skep.ceph('osd', 'unset', 'noup')


def test_too_few_copies_wait_and_go_on(own):
    skep = own().start()
    pool = make_pool(skep)
    skep.rados(pool, 'put', 'o', '-', stdin=b'before')
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', '0')
    skep.ceph('osd', 'down', '1')
    late = skep.popen('rados', '-p', pool, 'put', 'o', '-', stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                      stderr=subprocess.DEVNULL)
    try:
        late.stdin.write(b'after')
        late.stdin.close()
        time.sleep(3)
        assert late.poll() is None, 'one copy of two that are required took a write'
        skep.ceph('osd', 'unset', 'noup')
        assert late.wait(40) == 0
    finally:
        end_group(late)
    assert skep.rados(pool, 'get', 'o', '-').out_bytes == b'after'


def test_out_moves_the_copies_and_in_brings_them_back(own, tmp_path):
    skep = own(osds=4).start()
    pool = make_pool(skep)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        progress(notes, 'writes')
        skep.ceph('osd', 'out', '1')
        wait_until(lambda: skep.whole(pool) and not any(1 in pg['acting'] for pg in skep.pgs()), 90, every=0.5,
                   what='the data to leave osd.1')
        progress(notes, 'writes while osd.1 is out')
        skep.ceph('osd', 'in', '1')
        wait_until(lambda: skep.whole(pool) and any(1 in pg['acting'] for pg in skep.pgs()), 90, every=0.5,
                   what='the data to come back')
        progress(notes, 'writes at the end')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)


def test_kill_of_everything_under_a_writer(own, tmp_path):
    """Power cuts: all copies stop at the same moment, with writes that some have and others have not."""
    skep = own().start()
    pool = make_pool(skep)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        for round_ in range(4):
            progress(notes, 'acknowledged writes')
            time.sleep(0.2 + 0.31 * round_)
            skep.kill()
            skep.start()
        progress(notes, 'the client to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
        wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)
    for osd in (0, 1, 2):                       # and each copy alone is as good
        skep.ceph('osd', 'down', str(osd))
        check_notes(skep, pool, notes)


def test_fio_verifies_while_osds_go_down(own, tmp_path):
    skep = own().start()
    pool = make_pool(skep, app='rbd')
    conf = skep.with_conf(tmp_path / 'nocache.conf', ['rbd_cache = false'])
    name = unique('image')
    skep.rbd('create', '%s/%s' % (pool, name), '--size', '64M')
    argv = ['fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + pool, '--rbdname=' + name,
            '--rw=randwrite', '--bsrange=4k-64k', '--iodepth=16', '--size=64m', '--verify=crc32c', '--verify_fatal=1',
            '--randseed=3', '--verify_state_save=0', '--output-format=json']
    fio = conf.popen(*argv, '--rate=10m', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for osd in (0, 1, 2):
            time.sleep(1.5)
            skep.ceph('osd', 'down', str(osd))
        out, _ = fio.communicate(timeout=120)
        assert fio.returncode == 0, out.decode()[-3000:]
    finally:
        end_group(fio)
    r = conf.run(*argv, '--verify_only', timeout=120)
    job = json.loads(r.out[r.out.index('{'):])['jobs'][0]
    assert job['error'] == 0 and job['read']['io_bytes'] == 64 * MIB, job


def test_size_changes_add_and_remove_copies(own):
    skep = own().start()
    pool = make_pool(skep, size=1, min_size=1)
    in_child(lambda: [connect(skep).open_ioctx(pool).write_full('o-%d' % i, b'%d' % i * 1000) for i in range(100)])
    skep.ceph('osd', 'pool', 'set', pool, 'size', '3')
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='three copies')
    skep.ceph('osd', 'pool', 'set', pool, 'size', '2')
    wait_until(lambda: skep.whole(pool), 60, every=0.5, what='two copies')
    assert all(len(pg['acting']) == 2 for pg in skep.pgs())
    for osd in (0, 1, 2):
        skep.ceph('osd', 'down', str(osd))
        wait_until(lambda: skep.whole(pool), 60, every=0.5, what='a whole pool')
        got = in_child(lambda: [connect(skep).open_ioctx(pool).read('o-%d' % i) for i in range(100)])
        assert got == [b'%d' % i * 1000 for i in range(100)]
