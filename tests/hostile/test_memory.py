"""Memory that a reader could take of one OSD, beside a stock client whose large objects compete for the same: messages left
unfinished, answers left unread. What a neighbour with small ones sees, and other ways to take memory: test_bounds.py.
"""
import contextlib
import os
import shutil
import threading

import pytest

from osdclient import R, ext
from skeptest import wire
from skeptest.cluster import unique
from skeptest.raw import Server
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
        s.join(60)
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
