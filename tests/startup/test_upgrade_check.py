"""`skep upgrade check`: what it says of a store, running and stopped, and that it changes nothing."""
import base64
import hashlib
import json
import os
import re

import pytest

from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

WRITES = re.compile(r'O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|^\d+ +(unlink|rename|mkdir|rmdir|symlink|link|truncate|chmod|mknod)')


def check(data, *args, status=0, before=()):
    return run([*before, find_binary(), 'upgrade', 'check', '--data', data, *args], check=status)


def findings(data, **kw):
    return json.loads(check(data, '-f', 'json', **kw).out)


def tree(data):
    """Everything of a folder that a program could change."""
    found = {}
    for path in sorted(data.rglob('*')):
        about = path.lstat()
        text = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ''
        found[str(path)] = (about.st_mode, about.st_size, about.st_mtime_ns, about.st_ino, text)
    return found


def set_in_superblock(data, at, value):
    """A byte of both copies; the checksum is made right by the table of CRC-32C."""
    def crc32c(raw):
        crc = 0xffffffff
        for byte in raw:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
        return crc
    with open(data / 'osd.0' / 'block', 'r+b') as f:
        for copy in (0, 4096):
            f.seek(copy)
            block = bytearray(f.read(4096))
            block[at] = value
            block[4092:] = crc32c(block[:4092]).to_bytes(4, 'little')
            f.seek(copy)
            f.write(block)


def test_what_it_says_and_that_nothing_changes(own, tmp_path):
    skep = own(osds=2).start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'a', '-', stdin='a' * 5000)
    copies = [skep.data / ('osd.%d' % n) / 'cluster.copy' for n in range(2)]
    wait_until(lambda: all(c.exists() for c in copies), 90, what='copies of the state')
    # While it serves: nothing of it is opened for writing.
    trace = tmp_path / 'trace'
    tracer = ['strace', '-f', '-e', 'trace=%file', '-o', trace]
    traced = check(skep.data, '-f', 'json', status=None, before=tracer)
    if 'ptrace' not in traced.err:
        assert traced.returncode == 0, traced
        touched = [line for line in trace.read_text().splitlines() if str(skep.data.resolve()) in line]
        assert any('osd.0/block' in line for line in touched) and any('cluster.copy' in line for line in touched), touched
        assert not [line for line in touched if WRITES.search(line)], touched
    running = findings(skep.data)
    assert {f['name'] for f in running} == {'data directory', 'store of an OSD', 'copy of the cluster state', 'cluster state'}, running
    assert all(f['verdict'] == 'good' and f['way_back'] and not f['converts'] for f in running), running
    assert [f['place'] for f in running if f['name'] == 'cluster state'][0].endswith('/cluster.copy'), running
    # While it does not: the tree is the same afterwards, and the state's own file is read.
    assert skep.stop() == 0
    before = tree(skep.data)
    stopped = findings(skep.data)
    assert tree(skep.data) == before
    assert [f['place'] for f in stopped if f['name'] == 'cluster state'] == [str(skep.data.resolve() / 'cluster' / 'state.redb')], stopped
    assert 'file of the cluster state' in {f['name'] for f in stopped}, stopped
    plain = check(skep.data).out
    assert all(line.startswith('good ') and ': version ' in line for line in plain.splitlines()), plain
    # And it starts and has what it had.
    skep.start()
    assert skep.rados(pool, 'get', 'a', '-').out == 'a' * 5000


def test_what_is_newer_is_refused_by_name(own):
    skep = own(osds=1).start()
    assert skep.stop() == 0
    assert 'holds no skep store' in check(skep.data / 'osd.0', status=1).err
    for at, value, said in ((8, 2, 'reads up to 1'), (17, 1, 'feature bit 8')):
        kept = (skep.data / 'osd.0' / 'block').read_bytes()[:8192]
        set_in_superblock(skep.data, at, value)
        before = tree(skep.data)
        r = check(skep.data, status=1)
        assert said in r.out and 'cannot go on with 1 of these' in r.err, r
        assert tree(skep.data) == before
        with open(skep.data / 'osd.0' / 'block', 'r+b') as f:
            f.write(kept)
    # A start would not make a new store in the place of one that the cluster knows, and what nobody serves any more does not count.
    osd, away = skep.data / 'osd.0', skep.data / 'away'
    os.rename(osd, away)
    said = check(skep.data, status=1).out
    assert re.search(r'refused .*osd\.0: .*put it back', said), said
    os.rename(away, osd)
    (skep.data / 'osd.7').mkdir()
    (skep.data / 'osd.7' / 'block').write_bytes(b'?')
    assert 'osd.7' not in check(skep.data).out
    state = skep.data / 'cluster' / 'state.redb'
    whole = state.read_bytes()
    state.write_bytes(b'x' * len(whole))
    r = check(skep.data, status=1)
    assert 'refused  cluster state' in r.out and 'state.redb' in r.out, r
    state.write_bytes(whole)
    settings = skep.data / 'skep.toml'
    text = settings.read_text()
    settings.write_text(re.sub(r'(?m)^format = \d+', 'format = 99', text))
    r = check(skep.data, status=1)
    assert 'data directory' in r.out and 'version 99' in r.out and 'a newer Skep' in r.out, r
    settings.write_text(text)
    check(skep.data)
    skep.start()


def test_an_encrypted_osd_has_no_way_back(own, tmp_path):
    keys = tmp_path / 'keys'
    keys.write_text('first %s\n' % base64.b64encode(os.urandom(32)).decode())
    skep = own(osds=1, auth='none', options=['--osd-keys', str(keys)]).start()
    assert skep.stop() == 0
    r = check(skep.data, '--osd-keys', keys, '-f', 'json', status=1)
    assert 'seal of an encrypted OSD' in r.err and '--one-way' in r.err, r
    found = json.loads(r.out)
    assert [f['name'] for f in found if not f['way_back']] == ['seal of an encrypted OSD'] and {f['verdict'] for f in found} == {'good'}, found
    check(skep.data, '--osd-keys', keys, '--one-way')
    # Without its key a start would fail, whatever is accepted.
    assert 'refused' in check(skep.data, '--one-way', status=1).out
