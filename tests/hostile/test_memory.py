"""Memory that clients with few rights could take: messages left unfinished, answers left unread, notifications left
unacknowledged, handshakes left before their end. The server stays small, and a stock client beside it goes on. Point 15 of the
issue "Found under fire".
"""
import contextlib
import os
import shutil
import threading

import pytest

from osdclient import WATCHOP, R, W, ext, op, st, u32, u64, watch
from skeptest import wire
from skeptest.cluster import unique
from skeptest.raw import Closed, Server
from skeptest.run import wait_until
from skeptest.skep import Skep
from skeptest.wire import CRC

pytestmark = [pytest.mark.own, pytest.mark.cephx]
MIB = 1 << 20


@pytest.fixture(scope='module')
def skep(workdir):
    skep = Skep(workdir / unique('memory'), osds=1).start()
    yield skep
    alive, said = skep.alive, skep.log_tail(60)
    skep.kill()
    shutil.rmtree(skep.data, ignore_errors=True)
    assert alive, 'the server ended:\n' + said


@pytest.fixture(scope='module')
def server(skep):
    return Server(skep)


@pytest.fixture(scope='module')
def mine(skep):
    return skep.make_pool(pg_num=4)


@pytest.fixture(scope='module')
def reader(server, mine):
    return server.login(server.entity('client.' + unique('reader'), mon='allow r', osd='allow r'))


def peak_mib(skep):
    with open('/proc/%d/status' % skep.proc.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmHWM:')) / 1024


@contextlib.contextmanager
def grows_at_most(skep, mib):
    with open('/proc/%d/clear_refs' % skep.proc.pid, 'w') as f:
        f.write('5')                               # the peak is counted anew
    before = peak_mib(skep)
    yield
    grown = peak_mib(skep) - before
    assert grown < mib, 'the server took %d MiB more' % grown


def works(skep, pool, times=3):
    """A stock client beside it writes and reads back."""
    for size in [4096, MIB, 6 * MIB] * times:
        data, name = os.urandom(size), unique('beside')
        skep.rados(pool, 'put', name, '-', stdin=data, timeout=60)
        assert skep.rados(pool, 'get', name, '-', timeout=60).out_bytes == data


class Sender(threading.Thread):
    """Sends a message of 100 MiB up to its last byte, as far as it is taken."""

    def __init__(self, session):
        super().__init__(daemon=True)
        self.session, self.sent, self.over = session, 0, False
        self.start()

    def run(self):
        w = self.session.w
        try:
            w.raw(wire.preamble(wire.MESSAGE, (41, 100, 0, 100 * MIB)))
            left = 100 * MIB
            w.s.settimeout(120)
            while left:
                n = w.s.send(bytes(min(left, 256 << 10)))
                self.sent, left = self.sent + n, left - n
            w.s.recv(1)
        except OSError:
            pass
        self.over = True


def test_unfinished_messages_have_one_bound(skep, server, mine, reader):
    """10 connections of a reader took 1.35 GiB."""
    with grows_at_most(skep, 350):
        senders = [Sender(server.osd(reader, 0, mode=CRC)) for _ in range(10)]
        wait_until(lambda: sum(s.sent for s in senders) > 40 * MIB, 30, 0.05, 'the attack to begin')
        works(skep, mine)
        wait_until(lambda: any(s.over for s in senders), 60, 0.1, 'one that stalls to be disconnected')
    for s in senders:
        s.session.close()
        s.join(10)
    works(skep, mine, 1)


def test_answers_that_nobody_reads_have_one_bound(skep, server, mine, reader):
    """4 connections pinned 650 MiB."""
    name = unique('large').encode()
    skep.rados(mine, 'put', name.decode(), '-', stdin=os.urandom(4 * MIB))
    box = server.pool(mine)
    with grows_at_most(skep, 250):
        slow = [server.osd(reader, 0, mode=CRC, receive_buffer=4096) for _ in range(4)]
        for osd in slow:
            for _ in range(60):
                box.send(osd, name, [ext('READ', 0, 4 * MIB)], R)
        works(skep, mine)
    for osd in slow:
        osd.close()
    with server.osd(reader, 0, mode=wire.SECURE) as osd:
        tids = [box.send(osd, name, [ext('READ', 0, 4 * MIB)], R) for _ in range(20)]
        for tid in tids:
            assert len(box.reply(osd, tid, 60)['outs'][0]) == 4 * MIB, 'one that reads gets all'


def test_notifications_have_one_bound(skep, server, mine):
    """20 messages held 1.2 GiB, for as long as their sender said: 2^32 s."""
    who = server.login(server.entity('client.' + unique('notifier'), mon='allow r', osd='allow rwx pool=' + mine))
    name = unique('watched').encode()
    skep.rados(mine, 'put', name.decode(), '-', stdin=b'x')
    box = server.pool(mine)

    def notify(osd, size, cookie):
        data = u32(1) + u32(0xffffffff) + st(bytes(size))
        tid = box.send(osd, name, [op('NOTIFY', u64(cookie) + bytes(20), data)], R)
        return box.reply(osd, tid, 60)['result']
    with server.osd(who, 0) as silent, grows_at_most(skep, 350):
        assert box.do(who, name, [watch(WATCHOP, 7)], W, osd=silent)['result'] == 0
        with server.osd(who, 0, mode=wire.SECURE) as osd:
            results = [notify(osd, 60 * MIB, n) for n in range(20)]
            assert set(results) == {-7}, results
            results = [notify(osd, MIB, n) for n in range(20)]
            assert 0 in results and -16 in results, results
            works(skep, mine, 1)


def test_handshakes_have_a_bound(skep, server, mine):
    """Each connection could say 256 KiB before anybody knew who it was, and all of it was kept."""
    kept, request = [], None
    with grows_at_most(skep, 45):
        for _ in range(600):
            w = wire.Wire(*server.mon_addr[:2])
            kept.append(w)
            try:
                w.banner()
                w.hello(wire.CLIENT, server.mon_addr)
                request = request or w.encode(wire.AUTH_REQUEST, u32(2) + u32(1) + u32(CRC) + st(bytes([99]) + bytes(15000)))
                for _ in range(8):
                    w.raw(request)
                    w.want(wire.AUTH_BAD_METHOD)
            except (Closed, ConnectionError):
                continue
            assert False, 'it may say all that it wants'
        works(skep, mine, 1)
    for w in kept:
        w.close()
