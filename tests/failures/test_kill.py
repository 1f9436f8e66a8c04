"""SIGKILL at any moment loses no acknowledged write.

Writers note each write when its answer comes; the server is killed under them and started again, and
clients that live on must finish by themselves. Then everything noted is read back by a new client.
A note is written only after the answer, so the check is one-sided as it must be: what is noted must be
there; what was in flight may be either old or new, never a mix.
"""
import json
import subprocess
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import unique
from skeptest.images import MIB
from skeptest.run import end_group, wait_until
from skeptest.writer import check_notes, content, start_writer

pytestmark = pytest.mark.own


def test_kill_loop_under_a_client_that_lives_on(own, tmp_path):
    skep = own().start()
    pool = skep.make_pool(pg_num=16)
    writer, notes = start_writer(skep, pool, tmp_path)
    try:
        for round_ in range(5):
            before = notes.stat().st_size
            wait_until(lambda: notes.stat().st_size > before, 40, what='acknowledged writes')
            time.sleep(0.3 + 0.37 * round_)
            skep.kill()
            skep.start()
        before = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > before, 40, what='the client to go on')
        assert writer.poll() is None, (tmp_path / 'errors').read_text()
    finally:
        end_group(writer)
        writer.wait(60)
    check_notes(skep, pool, notes)
    skep.restart()
    check_notes(skep, pool, notes)


def test_killed_together_with_its_client(own, tmp_path):
    """As when the machine stops: no client is left that could send anything again."""
    skep = own().start()
    pool = skep.make_pool(pg_num=16)
    for _ in range(3):
        writer, notes = start_writer(skep, pool, tmp_path)
        before = notes.stat().st_size
        wait_until(lambda: notes.stat().st_size > before + 2000, 40, what='acknowledged writes')
        skep.kill()
        end_group(writer)
        writer.wait(60)
        skep.start()
        check_notes(skep, pool, notes)
        notes.unlink()                         # the next writer counts from one again
        in_child(lambda: [connect(skep).open_ioctx(pool).write_full('slot-%d' % i, content(1)) for i in range(40)])


def test_kill_under_fio_with_verification(own, tmp_path):
    """fio writes an image with checksums while the server dies twice, verifies it, and a new process again."""
    skep = own().start()
    pool = skep.make_pool('rbd')
    conf = skep.with_conf(tmp_path / 'nocache.conf', ['rbd_cache = false'])
    name = unique('image')
    skep.rbd('create', '%s/%s' % (pool, name), '--size', '64M')
    argv = ['fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + pool, '--rbdname=' + name,
            '--rw=randwrite', '--bsrange=4k-64k', '--iodepth=16', '--size=64m', '--verify=crc32c', '--verify_fatal=1',
            '--randseed=3', '--verify_state_save=0', '--output-format=json']
    fio = conf.popen(*argv, '--rate=10m', stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for _ in range(2):
            time.sleep(2)
            assert fio.poll() is None, fio.stdout.read()
            skep.restart()
        out, _ = fio.communicate(timeout=120)
        assert fio.returncode == 0, out.decode()[-3000:]
    finally:
        end_group(fio)
    skep.restart()
    r = conf.run(*argv, '--verify_only', timeout=120)
    job = json.loads(r.out[r.out.index('{'):])['jobs'][0]
    assert job['error'] == 0 and job['read']['io_bytes'] == 64 * MIB, job


def test_state_of_rbd_survives(own, tmp_path):
    """Snapshots, clones, omap: the metadata of an acknowledged command is there after a kill."""
    skep = own().start()
    pool = skep.make_pool('rbd')
    (tmp_path / 'f').write_bytes(b'payload!' * (MIB // 2))
    skep.rbd('import', tmp_path / 'f', '%s/i' % pool)
    skep.restart()
    skep.rbd('snap', 'create', '%s/i@s' % pool)
    skep.restart()
    skep.rbd('snap', 'protect', '%s/i@s' % pool)
    skep.rbd('clone', '%s/i@s' % pool, '%s/c' % pool)
    skep.restart()
    assert [c['image'] for c in skep.rbd_json('children', '%s/i@s' % pool)] == ['c']
    skep.run('qemu-io', '-f', 'raw', '-c', 'write -P 5 0 1M', '-c', 'flush', 'rbd:%s/i:id=admin:conf=%s' % (pool, skep.conf))
    skep.restart()
    old = b'payload!' * (MIB // 2)
    assert skep.rbd('export', '%s/i@s' % pool, '-').out_bytes == old
    assert skep.rbd('export', '%s/c' % pool, '-').out_bytes == old
    assert skep.rbd('export', '%s/i' % pool, '-').out_bytes == b'\5' * MIB + old[MIB:]


def test_watch_returns_after_a_restart(own, tmp_path):
    """A client with a watch registers it again by itself, and is notified."""
    skep = own().start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'x')
    with open(tmp_path / 'out', 'wb') as out:
        w = skep.popen('stdbuf', '-oL', 'rados', '-p', pool, 'watch', 'o', stdin=subprocess.PIPE, stdout=out, stderr=out)
    try:
        wait_until(lambda: skep.rados(pool, 'listwatchers', 'o').out, what='the watch')
        skep.restart()
        wait_until(lambda: skep.rados(pool, 'listwatchers', 'o').out, 40, what='the watch to come back')
        skep.rados(pool, 'notify', 'o', 'hi')
        wait_until(lambda: b'NOTIFY' in (tmp_path / 'out').read_bytes(), 60, what='the notification')
    finally:
        end_group(w)
        w.wait(60)


def test_kill_during_start(own):
    """A start that is cut short, at first and later, leaves a directory that starts."""
    skep = own()
    from skeptest.run import popen
    for delay in (0.01, 0.03, 0.08, 0.2, 0.4):
        p = popen(skep.argv(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        end_group(p)
        p.wait(60)
    skep.start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'x')
