"""A monitor that alone is cut off from etcd sends its clients to the others; stock clients follow without an error.

Once with etcd on a host of its own, so that the monitor can ask the others how they are; once with a member on every host,
where one host reaches no other, but clients reach all: then it can ask nobody. And where it is the only host left, reads of
what was known last go on.
"""
import json
import re
import time

import pytest

from skeptest.run import end_group, wait_until

pytestmark = pytest.mark.own
NOTICED_S = 40                                     # 6 s behind, a question, and a slow machine

WATCHING = r'''
import rados, sys, time
c = rados.Rados(conffile=sys.argv[1]); c.connect(timeout=30)
io = c.open_ioctx(sys.argv[2])
while True:
    io.write_full('heart', b'beat')
    print(' '.join(c.list_pools()), flush=True)
    time.sleep(0.2)
'''


def writes(said):
    """Whether rados bench has said that it wrote for a second: number, operations under way, begun."""
    return re.search(rb'(?m)^ +[1-9]\d* +\d+ +[1-9]\d* ', said.read_bytes())


def conf_of(host, place, *first):
    """A conf whose mon_host names these hosts, in this order."""
    path = place / ('conf-' + '-'.join(h.name for h in first))
    text = open(host.conf).read().replace(host.option('mon_host'), ','.join('[v2:%s:3300/0]' % h.ip for h in first))
    path.write_text(text)
    return str(path)


def said(host, text):
    return text in host.log.read_text(errors='replace')


def pools(host, conf, **kw):
    return json.loads(host.run('ceph', '-c', conf, 'osd', 'pool', 'ls', '-f', 'json', **kw).out)


def up(group):
    group[0].up(create=True, options=['--osd-memory', '128M'])
    for host in group.list[1:]:
        host.up(join=True, options=['--osd-memory', '128M'])


def pools_if_let_in(host, conf):
    """Nothing where the monitors of the conf let nobody in."""
    r = host.run('ceph', '-c', conf, '--connect-timeout', '5', 'osd', 'pool', 'ls', '-f', 'json', check=None, timeout=30)
    return json.loads(r.out) if r.returncode == 0 else []


class Client:
    """A running python-rados client: writes, and prints the pools of its own map."""

    def __init__(self, host, conf, pool, out):
        self.out = out
        self.proc = host.popen('/usr/bin/python3', '-c', WATCHING, conf, pool, stdout=open(out, 'wb'),
                               stderr=open(str(out) + '.err', 'wb'))

    def sees(self, pool):
        assert self.proc.poll() is None, open(str(self.out) + '.err').read()
        lines = self.out.read_text().splitlines()
        return len(lines) > 1 and pool in lines[-2].split()

    def end(self):
        end_group(self.proc)
        self.proc.wait(60)


def with_clients(group, tmp_path, cut, heal, noticed):
    """What must hold however it is cut off."""
    a, b, _ = group
    pool = b.make_pool(pg_num=8)
    only_a, a_first = conf_of(b, tmp_path, a), conf_of(b, tmp_path, *group)
    # The map that this one gets names all, but its first session is with the one that will be cut off.
    client = Client(b, only_a, pool, tmp_path / 'client')
    bench = None
    try:
        wait_until(lambda: client.sees(pool), 30, 0.2, 'the client to begin')
        bench = b.popen('rados', '-c', only_a, '-p', pool, 'bench', '45', 'write', '-b', '4096', '-t', '4', '--no-cleanup',
                        stdout=open(tmp_path / 'bench', 'wb'), stderr=-2)
        wait_until(lambda: writes(tmp_path / 'bench'), 30, 0.1, 'rados bench to write')
        cut()
        began = time.monotonic()
        wait_until(lambda: said(a, noticed), NOTICED_S, 0.2, '"%s" in the log of the one that is cut off' % noticed)
        print('noticed after %.1f s' % (time.monotonic() - began))
        # Changes work within seconds, whoever is named first.
        for n in range(5):
            began = time.monotonic()
            b.run('ceph', '-c', a_first, 'osd', 'pool', 'create', 'made-%d' % n, '1', timeout=60)
            print('a change took %.1f s' % (time.monotonic() - began))
        assert 'made-4' in pools(b, a_first, timeout=60)
        assert b.run('ceph', '-c', a_first, '-s', timeout=60).out
        wait_until(lambda: client.sees('made-4'), 40, 0.2, 'the running client to see what was changed elsewhere')
        assert bench.poll() is None or bench.returncode == 0, (tmp_path / 'bench').read_text()
        assert 'is down, or cut off from the cluster state' in b.ceph('doctor', timeout=60).out
        heal()
        began = time.monotonic()
        try:
            wait_until(lambda: 'made-4' in pools_if_let_in(b, only_a), 60, 0.3, 'it to serve again, and to know what it missed')
        except AssertionError as e:
            raise AssertionError('%s\n%s' % (e, a.log_tail()))
        print('served again after %.1f s' % (time.monotonic() - began))
        assert bench.wait(120) == 0, (tmp_path / 'bench').read_text()
        before = client.out.stat().st_size
        wait_until(lambda: client.out.stat().st_size > before and client.proc.poll() is None, 30, 0.2, 'the client to write on')
        assert all(h.alive and 'panicked' not in h.log.read_text(errors='replace') for h in group)
    finally:
        client.end()
        if bench:
            end_group(bench)
            bench.wait(60)


def test_cut_off_from_etcd_alone(hosts, tmp_path):
    """It reaches the other monitors: one of them follows."""
    group = hosts(3)
    group.start_etcd(apart=True)
    up(group)
    etcd = group.extra.ip
    a = group[0]

    def cut():
        a.lose(etcd)

    def noticed_by_doctor():
        out = a.cli('doctor', '--data', a.data).out
        return 'its clients are sent there' in out

    def heal():
        assert noticed_by_doctor()
        # Nobody gets in by itself.
        r = group[1].run('ceph', '-c', conf_of(group[1], tmp_path, a), '--connect-timeout', '6', 'fsid', check=None, timeout=30)
        assert r.returncode != 0, r
        a.lose(etcd, on=False)
    with_clients(group, tmp_path, cut, heal, 'clients are sent there')


def test_cut_off_from_all_other_hosts(hosts, tmp_path):
    """It can ask nobody: its clients try the others first."""
    group = hosts(3)
    group.start_etcd()
    up(group)
    a, b, c = group

    def heal():
        a.lose(b.ip, c.ip, on=False)
    with_clients(group, tmp_path, lambda: a.lose(b.ip, c.ip), heal, 'clients are served after a pause')


def test_the_only_one_left_goes_on_with_what_was_known(hosts):
    """Two hosts of three are gone with their etcd: nothing can be changed, and everything known is told."""
    group = hosts(3)
    group.start_etcd()
    up(group)
    a = group[0]
    pool = a.make_pool(pg_num=8)
    for host in group.list[1:]:
        host.kill()
        host.etcd.kill()
    wait_until(lambda: said(a, 'clients are served after a pause'), NOTICED_S, 0.2, 'it to notice')
    for _ in range(3):
        assert pool in json.loads(a.ceph('osd', 'pool', 'ls', '-f', 'json', timeout=30).out)
    assert 'CLUSTER_STATE_STALLED' in a.ceph_json('health', timeout=30)['checks']
