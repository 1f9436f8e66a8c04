"""An OSD process in a memory cgroup: slow readers, many PGs and more connections than it has memory for. The kernel kills
nothing, a stock client beside them goes on, and what they held comes back when they leave.
"""
import contextlib
import json
import os
import pathlib
import resource
import shutil
import time

import pytest

from osdclient import R, Silent, ext
from skeptest.cluster import unique
from skeptest.neighbour import Neighbour
from skeptest.raw import Closed, Refused, Server
from skeptest.run import wait_until
from skeptest.skep import Skep
from skeptest.wire import CRC

pytestmark = [pytest.mark.own, pytest.mark.cephx]
MIB = 1 << 20
OSDS = 3
LIMIT = 300 * MIB                                  # 3 budgets, the program itself, the monitor; 153 MiB were taken
PGS = 1024
CROWD = 500
READS = 12                                         # of 4 MiB, asked for by each


class Cgroup:
    """A memory cgroup of its own, of whichever version the machine has."""

    def __init__(self, limit):
        name = 'skep-test-%d' % os.getpid()
        v1 = pathlib.Path('/sys/fs/cgroup/memory')
        self.v1 = v1.is_dir()
        here = {}
        for line in open('/proc/self/cgroup'):
            _, which, path = line.rstrip('\n').split(':', 2)
            here[which] = path.lstrip('/')
        root = v1 if self.v1 else pathlib.Path('/sys/fs/cgroup')
        self.home = root / here.get('memory' if self.v1 else '', '')
        if not self.home.is_dir():
            self.home = root
        self.dir = self.home / name
        try:
            self.dir.mkdir()
            (self.dir / ('memory.limit_in_bytes' if self.v1 else 'memory.max')).write_text(str(limit))
        except OSError as e:
            with contextlib.suppress(OSError):
                self.dir.rmdir()
            pytest.skip('no memory cgroup to be had: %s' % e)

    @contextlib.contextmanager
    def inside(self):
        """What is started here belongs to it."""
        (self.dir / 'cgroup.procs').write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self.home / 'cgroup.procs').write_text(str(os.getpid()))

    def kills(self):
        text = (self.dir / ('memory.oom_control' if self.v1 else 'memory.events')).read_text()
        return dict(line.split() for line in text.splitlines()).get('oom_kill', '0') != '0'

    def end(self):
        def gone():
            with contextlib.suppress(OSError):
                self.dir.rmdir()
            return not self.dir.exists()
        wait_until(gone, 60, 0.05, 'the cgroup to be empty')


@pytest.fixture(scope='module')
def cgroup():
    cgroup = Cgroup(LIMIT)
    yield cgroup
    cgroup.end()


@pytest.fixture(scope='module')
def skep(workdir, cgroup):
    skep = Skep(workdir / unique('cgroup'), osds=OSDS, options=['--osd-memory', '64M'])
    with cgroup.inside():
        skep.start()
    yield skep
    alive, said = skep.alive, skep.log_tail(60)
    skep.kill()
    shutil.rmtree(skep.data, ignore_errors=True)
    assert alive, 'the server ended:\n' + said


def peak(skep):
    with open('/proc/%d/status' % skep.proc.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmHWM:')) * 1024


def tell(skep, osd, *words):
    return json.loads(skep.ceph('tell', 'osd.%d' % osd, *words).out)


def crowd_of(server, who):
    """Connections to all OSDs in turn, until none gets in any more."""
    got, refused = [], 0
    for n in range(CROWD):
        try:
            got.append((n % OSDS, server.osd(who, n % OSDS, mode=CRC, receive_buffer=4096,
                                             source='127.31.%d.%d' % (n // 200, n % 200 + 1))))
        except (Closed, Silent, Refused, OSError):
            refused += 1
            if refused > 10:
                break
    return got


def ask_for_all(box, crowd, large):
    """Each asks for more than there is memory for, and takes nothing of it."""
    asked = 0
    for osd, session in crowd:
        names = [n for n in large if box.place(n)[2] == osd]
        with contextlib.suppress(Closed, OSError):
            for i in range(READS):
                box.send(session, names[i % len(names)], [ext('READ', 0, 4 * MIB)], R)
                asked += 1
    return asked


def test_slow_readers_many_pgs_and_a_crowd_in_a_cgroup(skep, cgroup):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))
    server = Server(skep)
    skep.ceph('config', 'set', 'global', 'mon_max_pg_per_osd', '2000')
    many, pool = skep.make_pool(pg_num=PGS), skep.make_pool(pg_num=32)
    reader = server.login(server.entity('client.' + unique('reader'), mon='allow r', osd='allow r'))
    box = server.pool(pool)
    some = [unique('large').encode() for _ in range(40 * OSDS)]
    large = [n for osd in range(OSDS) for n in [n for n in some if box.place(n)[2] == osd][:4]]
    assert len(large) == 4 * OSDS, 'an OSD has none of them'
    for name in large:
        skep.rados(pool, 'put', name.decode(), '-', stdin=os.urandom(4 * MIB))
    skep.rados(many, 'bench', '4', 'write', '-b', '4096', '-t', '64', '--no-cleanup', timeout=60)
    with Neighbour(skep, many) as neighbour:
        crowd = crowd_of(server, reader)
        try:
            assert len(crowd) > 60, 'the attack did not begin: %d connections' % len(crowd)
            assert len(crowd) < CROWD, 'connections had no bound'
            assert ask_for_all(box, crowd, large) > 300, 'the attack did not begin'
            time.sleep(3)
            assert skep.alive and not cgroup.kills()
            neighbour.check()
            for osd in range(OSDS):
                wait = tell(skep, osd, 'perf', 'dump')['throttle-osd_reply_bytes']['wait']
                assert wait > 0, 'no answer of osd.%d waited: its readers were not slow' % osd
                for name, a in tell(skep, osd, 'dump_mempools')['mempool']['by_pool'].items():
                    assert a['bytes'] <= a['bytes_max'] + 4 * MIB, (osd, name, a)
        finally:
            for _, session in crowd:
                session.close()

        def given_back():
            pools = [tell(skep, osd, 'dump_mempools')['mempool']['by_pool'] for osd in range(OSDS)]
            return all(p['osd_reply_bytes']['bytes'] < MIB and p['osd_client_bytes']['bytes'] < MIB for p in pools)
        wait_until(given_back, 60, 0.2, 'what they held to come back')
        neighbour.check()
    assert not cgroup.kills()
    print('peak %d MiB, %d connections' % (peak(skep) >> 20, len(crowd)))
    assert peak(skep) < LIMIT
    with server.osd(reader, box.place(large[0])[2]) as osd:
        tid = box.send(osd, large[0], [ext('READ', 0, 4 * MIB)], R)
        assert len(box.reply(osd, tid, 30)['outs'][0]) == 4 * MIB
