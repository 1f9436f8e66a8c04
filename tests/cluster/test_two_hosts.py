"""Two hosts with an OSD each, two copies, etcd elsewhere: there is no third one whom a survivor could ask.

Killed: the survivor knows it by the end of the lifeline, and goes on at once. Every connection between both reset again and
again: that is no end, nobody is marked down. fio writes and verifies meanwhile (skeptest.load); its longest pause is noted, and not
judged. More kills than three: SKEP_KILLS.
"""
import os
import shutil
import threading
import time

import pytest

from skeptest.cluster import unique
from skeptest.hosts import Hosts, usable
from skeptest.load import Load
from skeptest.run import run, wait_until

pytestmark = pytest.mark.own

KILLS = int(os.environ.get('SKEP_KILLS', '3'))
OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']
RESETS_S = 4


@pytest.fixture(scope='module')
def pair(workdir):
    why = usable()
    if why:
        pytest.skip(why)
    place = workdir / unique('pair')
    place.mkdir()
    hosts = Hosts(2, place)
    try:
        hosts.start_etcd(apart=True)
        hosts[0].up(create=True, options=OPTIONS)
        hosts[1].up(join=True, options=OPTIONS)
        hosts.pool = hosts[0].make_copies(2, 'rbd', pg_num=16)
        hosts[0].ceph('osd', 'pool', 'set', hosts.pool, 'min_size', '1')
        nodes = hosts[0].ceph_json('osd', 'tree')['nodes']
        for host in hosts:
            host.osd = next(n['children'][0] for n in nodes if n['name'] == host.name)
        yield hosts
    finally:
        hosts.close()
        shutil.rmtree(place, ignore_errors=True)


def osds(pair):
    return {o['osd']: o for o in pair[0].ask('osd', 'dump')['osds']}


def whole(pair):
    wait_until(lambda: pair[0].whole(), 60, 0.2, 'all copies')


def sure(pair, host):
    """How often the log of a host says that another's OSD is gone."""
    return host.log.read_text(errors='replace').count('the process of osd.')


@pytest.mark.parametrize('n', range(KILLS))
def test_killed(pair, workdir, record_property, n):
    victim, other = pair[n % 2], pair[1 - n % 2]
    whole(pair)
    known = sure(pair, other)
    with Load(other, pair.pool, workdir, 4, record_property) as fio:
        victim.kill()
        wait_until(lambda: not osds(pair)[victim.osd]['up'], 45, 0.1, 'osd.%d to be marked down' % victim.osd)
        victim.start(60)
    assert sure(pair, other) > known, other.log_tail(60)
    whole(pair)
    fio.verify()
    assert all(h.alive and 'panicked' not in h.log.read_text(errors='replace') for h in pair)


class Resets(threading.Thread):
    """Has the kernels of both hosts reset all connections between them, again and again: what a firewall does that rejects."""

    def __init__(self, pair):
        super().__init__(daemon=True)
        self.pair, self.stop, self.rounds, self.hit = pair, threading.Event(), 0, 0

    def run(self):
        while not self.stop.wait(0.02):
            for host, other in (self.pair, list(self.pair)[::-1]):
                said = run(host.argv(['ss', '-H', '-t', '-K', 'dst', other.ip]), check=None).out
                self.hit += len(said.splitlines())
            self.rounds += 1


def test_reset(pair, workdir, record_property):
    """Both live, and each hears of nothing but resets: none is taken for a death."""
    whole(pair)
    ups = {o: info['up_from'] for o, info in osds(pair).items()}
    known = [sure(pair, h) for h in pair]
    with Load(pair[0], pair.pool, workdir, 8, record_property) as fio:
        resets = Resets(pair)
        resets.start()
        time.sleep(RESETS_S)
        resets.stop.set()
        resets.join(10)
    if resets.hit == 0:
        pytest.skip('this kernel does not let connections be reset from outside (CONFIG_INET_DIAG_DESTROY)')
    record_property('connections that were reset', resets.hit)
    assert [sure(pair, h) for h in pair] == known, pair[0].log_tail(60) + pair[1].log_tail(60)
    whole(pair)
    fio.verify()
    # Whoever was down in between had stepped down by itself: nobody was sure of anything.
    record_property('came up again', sum(info['up_from'] != ups[o] for o, info in osds(pair).items()))


def test_rejected(pair, workdir, record_property):
    """A firewall between both that answers everything with a reset."""
    if not shutil.which('iptables'):
        pytest.skip('iptables is missing')
    whole(pair)
    known = [sure(pair, h) for h in pair]

    def reject(what):
        for host, other in (pair, list(pair)[::-1]):
            run(host.argv(['iptables', what, 'INPUT', '-s', other.ip, '-p', 'tcp', '-j', 'REJECT', '--reject-with', 'tcp-reset']))
    with Load(pair[0], pair.pool, workdir, 8, record_property) as fio:
        reject('-A')
        try:
            time.sleep(RESETS_S)
        finally:
            reject('-D')
    assert [sure(pair, h) for h in pair] == known, pair[0].log_tail(60) + pair[1].log_tail(60)
    whole(pair)
    fio.verify()
