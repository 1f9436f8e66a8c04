"""`skep store check`, `dump` and `bench`: what stock clients wrote is verified, damage is found and named, the data
comes back byte for byte from a server that has ended, and nothing of its files is changed.
"""
import base64
import hashlib
import json
import os
import signal
import subprocess

import pytest

from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

LOG_END = (64 << 10) + (64 << 20)                       # of a store made with the default options
DATA = b''.join(hashlib.sha256(b'%d' % n).digest() for n in range(100_000))[:3_000_001]


def digest(osd):
    """Of both files; the names as well, so that a new file shows."""
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(osd.iterdir())}


def store(*args, **kw):
    return run([find_binary(), 'store', *args], **kw)


def said(result, *words):
    """One clear sentence on standard error with all of these words."""
    lines = result.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith('skep: ') and 'panicked' not in lines[0], result
    assert all(str(w) in lines[0] for w in words), result


@pytest.fixture
def filled(own, tmp_path):
    """A server with one OSD, and in it: `big` of DATA with a snapshot of what it was before, an object in a
    namespace, one with attributes and omap, one that was removed and has a snapshot."""
    skep = own(osds=1, auth='none').start()
    pool = skep.make_pool()
    file = tmp_path / 'data'
    file.write_bytes(b'before' * 1000)
    skep.rados(pool, 'put', 'big', file)
    skep.rados(pool, 'put', 'gone', file)
    skep.rados(pool, 'mksnap', 'then')
    file.write_bytes(DATA)
    skep.rados(pool, 'put', 'big', file)
    skep.rados(pool, 'rm', 'gone')
    skep.rados(pool, '-N', 'space', 'put', '../a/b', file)
    skep.rados(pool, 'setxattr', 'big', 'colour', 'blue')
    skep.rados(pool, 'setomapval', 'index', 'key', 'value')
    skep.number = skep.ceph_json('osd', 'pool', 'stats', pool)[0]['pool_id']
    skep.osd = skep.data / 'osd.0'
    return skep


def check_json(osd, status):
    return json.loads(store('check', osd, '-f', 'json', check=status).out)


def flip(osd, content):
    """One bit in the middle of where `content` lies in the data file, behind its log."""
    block = osd / 'block'
    at = block.read_bytes().find(content, LOG_END)
    assert at > 0, 'the content is in the data file'
    at += len(content) // 2
    with open(block, 'r+b') as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(at)
        f.write(bytes([byte ^ 4]))


@pytest.mark.parametrize('end', ['stop', 'kill'])
def test_a_check_finds_a_store_clean_and_leaves_it_alone(filled, end):
    getattr(filled, end)()
    before = digest(filled.osd)
    out = store('check', filled.osd).out
    assert out.splitlines()[-1] == 'clean' and 'osd.0 of cluster' in out, out
    r = check_json(filled.osd, 0)
    assert r['clean'] and r['complete'] and r['problems'] == [] and r['problem_count'] == 0, r
    # big, its clone, the clone and the memory of what was removed, the one in the namespace, the one with omap
    assert r['objects'] == 6 and r['omap_keys'] == 1 and r['pgs'] == 8, r
    assert r['bytes'] == 2 * len(DATA) + 2 * 6000 and r['log_entries'] >= 7, r
    assert digest(filled.osd) == before
    filled.start()                                             # and it is served as before


def test_a_flipped_bit_is_found_and_named(filled, tmp_path):
    filled.stop()
    flip(filled.osd, b'before' * 600)                          # in the clones: the heads are whole
    flip(filled.osd, DATA[5 * 4096:6 * 4096])                  # in one of the two objects of DATA
    before = digest(filled.osd)
    r = check_json(filled.osd, 1)
    assert not r['clean'] and r['problem_count'] == len(r['problems']) == 2, r
    bad = sorted(r['problems'])
    assert all(p.endswith('bad block at byte 0') or p.endswith('bad block at byte 20480') for p in bad), bad
    plain = store('check', filled.osd, check=1).out
    assert all(p in plain for p in bad) and plain.splitlines()[-1] == 'DAMAGED: 2 problems', plain

    damaged = next(p for p in bad if p.endswith('20480'))
    which = ['-N', 'space', '../a/b'] if 'space' in damaged else ['big']
    other = ['big'] if 'space' in damaged else ['-N', 'space', '../a/b']
    out = tmp_path / 'out'
    store('dump', filled.osd, 'get', *other, '-o', out)        # its neighbours are not concerned
    assert out.read_bytes() == DATA
    out.unlink()
    r = store('dump', filled.osd, 'get', *which, '-o', out, check=1)
    assert 'bad block at byte 20480' in r.err and '--skip-damaged' in r.err and not out.exists(), r
    r = store('dump', filled.osd, 'get', *which, '-o', out, '--skip-damaged', check=1)
    assert 'zeros at byte 20480' in r.err, r
    assert out.read_bytes() == DATA[:20480] + bytes(4096) + DATA[24576:]

    to = tmp_path / 'export'
    r = store('dump', filled.osd, 'export', to, '--pool', filled.number, check=1)
    assert 'left out' in r.err and len(list(to.iterdir())) == 2, (r, list(to.iterdir()))
    assert digest(filled.osd) == before


def test_dump_gives_back_what_was_written(filled, tmp_path):
    filled.kill()                                              # much of it is only in the log
    before = digest(filled.osd)
    pool = filled.number
    r = json.loads(store('dump', filled.osd, '-f', 'json').out)
    assert r['osd'] == 0 and len(r['pgs']) == 8 and sum(pg['objects'] for pg in r['pgs']) == 6, r
    p = r['pools'][0]
    assert (p['pool'], p['pg_num'], p['objects'], p['heads'], p['snapshots']) == (pool, 8, 6, 4, 2), p
    assert 'omap keys' in store('dump', filled.osd).out

    names = {(o['namespace'], o['name'], o['snap']): o for o in
             json.loads(store('dump', filled.osd, 'ls', '--pool', pool, '-f', 'json').out)}
    assert names[('space', '../a/b', None)]['size'] == len(DATA), names
    assert names[('', 'index', None)]['omap_keys'] == 1, names
    by_pg = [json.loads(store('dump', filled.osd, 'ls', '--pg', '%d.%x' % (pool, n), '-f', 'json').out)
             for n in range(8)]
    assert sum(map(len, by_pg)) == len(names) and [len(x) for x in by_pg] == [pg['objects'] for pg in r['pgs']]

    assert store('dump', filled.osd, 'get', 'big').out_bytes == DATA
    snap = next(s for (_, name, s) in names if name == 'big' and s)
    assert store('dump', filled.osd, 'get', 'big', '--snap', snap).out_bytes == b'before' * 1000
    attrs = json.loads(store('dump', filled.osd, 'attrs', 'big', '-f', 'json').out)
    assert {'kind': 'user', 'name': 'colour', 'value': 'blue'} in attrs, attrs
    assert json.loads(store('dump', filled.osd, 'omap', 'index', '-f', 'json').out) == [{'key': 'key', 'value': 'value'}]
    assert store('dump', filled.osd, 'omap', 'index').out == 'key  value\n'
    logs = [e for pg in r['pgs'] for e in json.loads(store('dump', filled.osd, 'log', pg['pg'], '-f', 'json').out)]
    assert {e['kind'] for e in logs} >= {'modify', 'delete'} and {e['name'] for e in logs} >= {'big', 'gone'}, logs

    to = tmp_path / 'export'
    store('dump', filled.osd, 'export', to, '--pool', pool)
    assert sorted(f.name for f in to.iterdir()) == ['big', 'index', 'space+%2E.%2Fa%2Fb']
    assert (to / 'space+%2E.%2Fa%2Fb').read_bytes() == DATA == (to / 'big').read_bytes()
    said(store('dump', filled.osd, 'export', to, '--pool', pool, check=2), 'not empty')
    said(store('dump', filled.osd, 'get', 'no-such', check=2), 'no object no-such')
    assert digest(filled.osd) == before


def test_a_reader_that_leaves_early_is_no_error(filled):
    filled.stop()
    p = subprocess.run('%s store dump %s log %d.0 | head -c 1; exit ${PIPESTATUS[0]}' %
                       (find_binary(), filled.osd, filled.number), shell=True, executable='/bin/bash',
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=90)
    assert p.returncode == 0 and b'panicked' not in p.stderr, p


def test_refusals(filled, tmp_path):
    for command in ('check', 'dump'):
        said(store(command, filled.osd, check=2), 'another process', 'pid %d' % filled.proc.pid)
        said(store(command, filled.data, check=2), 'not a store', filled.osd)
        said(store(command, tmp_path / 'missing', check=2), 'not a store')
    filled.ceph('-s')                                          # it goes on serving
    filled.stop()
    superblock = filled.osd / 'block'
    with open(superblock, 'r+b') as f:
        f.write(bytes(8192))
    said(store('check', filled.osd, check=2), 'no valid superblock')


def test_a_damaged_index_is_damage_and_no_panic(filled):
    filled.stop()
    index = filled.osd / 'index'
    clean = index.read_bytes()
    at = clean.find(b'keyvalue')
    places = [at + 4] + list(range(64, min(len(clean), 1 << 20), 70_001))
    assert at > 0
    for place in places:
        bad = bytearray(clean)
        bad[place:place + 16] = bytes(b ^ 0x55 for b in bad[place:place + 16])
        index.write_bytes(bad)
        r = store('check', filled.osd, check=None)
        assert r.returncode in (0, 1) and 'panicked' not in r.err, (place, r)
        assert place != at + 4 or r.returncode == 1, r
        for command in ([], ['ls'], ['omap', 'index']):
            r = store('dump', filled.osd, *command, check=None)
            assert r.returncode in (0, 1, 2) and (r.returncode == 0 or r.err.startswith('skep: ')), (place, r)


def test_bench(tmp_path):
    dir = tmp_path / 'bench'
    r = json.loads(store('bench', dir, '--size', '32M', '--time', '1', '--depth', '1,8', '--objects', '500',
                         '--memory', '64M', '-f', 'json').out)
    assert list(dir.iterdir()) == [], 'its own directory is gone'
    assert not r['interrupted'] and r['memory'] == 64 << 20, r
    by = {(m['name'], m['block_bytes'], m['depth']): m for m in r['results']}
    small, large = 4096, 4 << 20
    assert set(by) == {('write new', large, 4), ('write again', large, 4), ('read cold', large, 4),
                       ('create', small, 32)} | {(name, small, depth) for depth in (1, 8)
                                                 for name in ('overwrite', 'read cold', 'read warm')}, by
    for key, m in by.items():
        l = m['latency_us']
        assert m['operations'] > 0 and m['iops'] > 0 and m['memory_peak_bytes'] > 1 << 20, (key, m)
        assert 0 < l['p50'] <= l['p95'] <= l['p99'] <= l['max'], (key, m)
        assert m['cpu_us_per_operation'] >= 0, (key, m)
        # What is durable was written: each byte at least once. Reads write nothing.
        assert m['written_per_byte'] is None if 'read' in key[0] else m['written_per_byte'] >= 1, (key, m)
    assert by[('write new', large, 4)]['operations'] == 8 and by[('create', small, 32)]['operations'] == 500
    many = r['many']
    assert many['objects'] == many['listed'] == 500 and many['replay_seconds'] > 0 and many['open_seconds'] > 0, many


def test_bench_of_encrypted_data_leaves_nothing_either(tmp_path):
    dir, keys = tmp_path / 'bench', tmp_path / 'keys'
    keys.write_text('k1 %s\n' % base64.b64encode(bytes(range(32))).decode())
    keys.chmod(0o600)
    r = json.loads(store('bench', dir, '--size', '16M', '--time', '1', '--depth', '8', '--memory', '64M', '--only', 'overwrite',
                         '--keys', keys, '-f', 'json').out)
    assert list(dir.iterdir()) == [] and all(m['operations'] > 0 for m in r['results']), r


def test_bench_only_where_nothing_is(tmp_path):
    (tmp_path / 'mine').write_text('precious')
    said(store('bench', tmp_path, '--size', '8M', check=2), 'not empty', 'mine')
    assert [f.name for f in tmp_path.iterdir()] == ['mine']
    dir = tmp_path.parent / 'elsewhere'
    said(store('bench', dir, '--size', '1P', check=2), 'free')
    assert list(dir.iterdir()) == []


def test_bench_cleans_up_when_interrupted(tmp_path):
    argv = [find_binary(), 'store', 'bench', tmp_path, '--size', '16M', '--time', '60', '-f', 'json']
    p = popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: (tmp_path / 'skep-store-bench' / 'block').exists(), 60, what='the bench to begin')
    said(store('bench', tmp_path, '--size', '8M', check=2), 'another bench', p.pid)
    os.kill(p.pid, signal.SIGINT)
    out, err = p.communicate(timeout=90)
    assert p.returncode == 0 and json.loads(out)['interrupted'], (p.returncode, err)
    assert list(tmp_path.iterdir()) == []
