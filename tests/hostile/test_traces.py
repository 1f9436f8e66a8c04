"""What others can read, and what is noted of whom: encryption that is demanded, files, log lines, the audit. Points 8, 9 and
10 of the issue "Found under fire"."""
import json
import os
import stat
import time

import pytest

from osdclient import W, Silent, put, st, u32
from skeptest import cephx
from skeptest.raw import SUBSCRIBE, Closed, Refused
from skeptest.run import wait_until
from skeptest.wire import CRC, SECURE



# -- encryption
@pytest.mark.parametrize('door', ['mon', 'mgr', 'osd'])
def test_encryption_can_be_demanded(server, skep, admin, door):
    """At once, or else from the next start on; never silently not at all."""
    options = ['ms_mon_service_mode', 'ms_service_mode']

    def opens(mode):
        try:
            s = server.osd(admin, 0, mode=mode) if door == 'osd' else getattr(server, door)(admin.alike(), mode=mode)
        except Refused as e:
            assert e.errno == 95, e
            return False
        with s:
            return s.serves()
    assert opens(CRC) and opens(SECURE)
    for option in options:
        skep.ceph('config', 'set', 'global', option, 'secure')
    try:
        if opens(CRC):
            skep.stop()
            skep.start()
            skep.wait_usable()
            server.refresh()
            server.login(admin)
        assert not opens(CRC), 'unencrypted all the same'
        assert opens(SECURE)
    finally:
        for option in options:
            skep.ceph('config', 'rm', 'global', option)
        if not opens(CRC):
            skep.stop()
            skep.start()
            skep.wait_usable()
            server.refresh()
            server.login(admin)
        assert opens(CRC)


# -- files
def test_files_are_for_their_owner_only(skep, server, admin, mine):
    box = server.pool(mine)
    assert box.do(admin, b'o', [put('WRITEFULL', 0, b'secret')], W)['result'] == 0
    open_ones = []
    for path in [skep.data, *skep.data.rglob('*')]:
        mode = path.lstat().st_mode
        if mode & 0o077 and not stat.S_ISLNK(mode):
            open_ones.append('%s %o' % (path.relative_to(skep.data), mode & 0o777))
    assert not open_ones, open_ones


# -- the log
FAKE = '\n2099-01-01T00:00:00Z  INFO everything is fine\x1b[2J\r\x07'


def fakes(skep):
    text = skep.log.read_bytes()
    return [line for line in text.split(b'\n') if line.startswith(b'2099-01-01') or b'\x1b[2J' in line or b'\x07' in line]


def test_log_lines_are_the_servers_own(server, skep, user, admin, mine):
    """Names, texts and numbers of clients come out escaped, wherever they show."""
    def quietly(f):
        try:
            return f()
        except (Refused, Closed, Silent, ConnectionError):
            return None
    key = os.urandom(16)
    quietly(lambda: server.mon(cephx.Entity('client.x' + FAKE, key)))
    who = server.login(user(mon='allow r', osd='allow rw pool=%s' % mine))
    box, name = server.pool(mine), b'object' + FAKE.encode()
    box.do(who, name, [put('WRITEFULL', 0, b'x')], W)
    box.do(who, b'o', [put('WRITEFULL', 0, b'x')], W, ns=b'space' + FAKE.encode())
    with server.mon(who.alike()) as mon:
        mon.command({'prefix': 'osd pool ls' + FAKE})
        mon.command({'prefix': 'osd pool get', 'pool': FAKE, 'var': 'size'})
        mon.command('{"prefix": "auth get", "entity": "client.y' + FAKE.replace('\n', '\\n'))
        mon.pool_op(1, 0, 'pool' + FAKE)
        mon.send(SUBSCRIBE, u32(1) + st('osdmap' + FAKE) + bytes(9) + st('host' + FAKE), version=3)
        mon.tell({'prefix': 'x' + FAKE}, fsid=server.fsid)
    with server.mon(admin.alike()) as mon:
        mon.command({'prefix': 'log', 'logtext': ['said' + FAKE]})
        mon.command({'prefix': 'auth get-or-create', 'entity': 'client.z' + FAKE, 'caps': ['mon', 'allow r']})
        mon.command({'prefix': 'auth get-or-create', 'entity': 'client.zz', 'caps': ['osd', 'allow rw pool=' + FAKE]})
    with server.osd(who, box.place(name)[2]) as osd:
        osd.tell({'prefix': 'x' + FAKE}, fsid=server.fsid)
        quietly(lambda: (osd.send(42, b'garbage' + FAKE.encode()), osd.recv(1)))
    assert not fakes(skep), fakes(skep)[:3]


def test_refusals_do_not_fill_the_log(server, skep, user, mine):
    box = server.pool(mine)
    who = server.login(user(mon='allow r', osd='allow r pool=nothing'))
    before = skep.log.stat().st_size
    with server.osd(who, box.place(b'o')[2]) as osd:
        for n in range(20):
            tids = [box.send(osd, b'o', [put('WRITEFULL', 0, b'x')], W) for _ in range(100)]
            assert {box.reply(osd, tid)['result'] for tid in tids} == {-1}
    with server.mon(who) as mon:
        for n in range(200):
            mon.command({'prefix': 'auth ls'})
    for n in range(300):
        try:
            server.osd(who, 0, claim=1, source='127.9.%d.%d' % (n // 100, n % 100 + 1)).close()
        except (Refused, Closed, Silent):
            pass
    grown = skep.log.read_bytes()[before:].count(b'\n')
    assert grown < 300, '%d lines for 2,500 refusals' % grown


# -- the audit
def audit(skep):
    out = skep.ceph('log', 'last', '200', 'debug', 'audit').out
    return out


def test_the_audit_says_who_did_what(server, skep, user):
    secret, evil = 'the-secret-value-%d' % time.monotonic_ns(), user(mon='allow r')
    boss = user(mon='allow *')
    with server.mon(boss) as mon, server.mon(evil) as other:
        assert mon.command({'prefix': 'config-key set', 'key': 'audited/key', 'val': secret})[0] == 0
        assert mon.command({'prefix': 'auth get-or-create', 'entity': 'client.audited', 'caps': ['mon', 'allow r']})[0] == 0
        made = json.loads(mon.command({'prefix': 'auth get', 'entity': 'client.audited', 'format': 'json'})[2])[0]['key']
        assert mon.command({'prefix': 'auth print-key', 'entity': 'client.admin'})[0] == 0
        assert other.command({'prefix': 'auth get', 'entity': 'client.admin'})[0] < 0
    done = (('config-key set', boss), ('auth get-or-create', boss), ('auth print-key', boss), ('auth get', evil))

    # What changed nothing follows its answer within about a second, each by itself.
    def all_told():
        told = audit(skep)
        there = lambda word, who: any(word in line and who.name in line and '127.0.0.1' in line for line in told.splitlines())
        return told if all(there(word, who) for word, who in done) else None
    told = wait_until(all_told, 60, what='the audit to name %s' % [(word, who.name) for word, who in done])
    admin_key = skep.ceph('auth', 'print-key', 'client.admin').out.strip()
    for hidden in (secret, made, admin_key):
        assert hidden not in told
    own = [p for p in skep.data.rglob('*audit*') if p.is_file()]
    assert own, 'no log of its own'
    assert any(boss.name in p.read_text(errors='replace') for p in own)
    assert not any(secret in p.read_text(errors='replace') or made in p.read_text(errors='replace') for p in own)


def test_the_audit_can_not_be_washed_away_by_a_reader(server, skep, user):
    """What was noted stays readable while somebody without rights makes noise."""
    boss, noisy = user(mon='allow *'), user(mon='allow r')
    with server.mon(boss) as mon:
        assert mon.command({'prefix': 'config-key set', 'key': 'evidence', 'val': 'x'})[0] == 0
    with server.mon(noisy) as mon:
        for n in range(2000):
            mon.command({'prefix': 'auth get', 'entity': 'client.admin'})
    own = [p for p in skep.data.rglob('*audit*') if p.is_file()]
    text = audit(skep) + ''.join(p.read_text(errors='replace') for p in own)
    assert boss.name in text, 'the evidence is gone'


