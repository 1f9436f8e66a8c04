"""One cluster on several hosts, its state in etcd: first starts, further machines, restarts, outages of etcd.

Pools have one copy here; what copies do when hosts fail is in `test_copies.py` once pools have more.
"""
import json
import threading

import pytest

from skeptest import objects
from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own


def up(hosts, n=3, **kw):
    """A cluster of `n` hosts."""
    group = hosts(n)
    group.start_etcd()
    group[0].up(create=True, **kw)
    for host in group.list[1:]:
        host.up(join=True, **kw)
    return group


def put(host, pool, names):
    objects.put(host, pool, {name: name.encode() * 100 for name in names})


def check(host, pool, names):
    assert objects.get(host, pool, names) == {name: name.encode() * 100 for name in names}


def conf_hosts(host):
    return host.option('mon_host')


class Writer(threading.Thread):
    """Writes objects through one client until it is told to stop; every write must succeed."""

    SCRIPT = r'''
import rados, sys
c = rados.Rados(conffile=sys.argv[1]); c.connect(timeout=30)
io = c.open_ioctx(sys.argv[2])
n = 0
while True:
    io.write_full('w%d' % n, b'%d' % n)
    print(n, flush=True)
    n += 1
'''

    def __init__(self, host, pool):
        super().__init__(daemon=True)
        self.host, self.pool, self.done = host, pool, -1
        self.proc = host.popen('/usr/bin/python3', '-c', self.SCRIPT, host.conf, pool, stdout=-1)
        self.start()

    def run(self):
        for line in self.proc.stdout:
            self.done = int(line)

    def goes_on(self, timeout=60):
        """Waits until more has been written than now."""
        target = self.done + 20
        wait_until(lambda: self.done >= target, timeout, 0.05, 'the client to write on')

    def stop(self):
        assert self.proc.poll() is None, 'the client ended by itself'
        self.proc.kill()
        self.proc.wait(60)
        self.join(60)
        io = self.host
        for n in (0, self.done // 2, self.done):
            assert io.rados(self.pool, 'get', 'w%d' % n, '-').out == str(n)


def test_three_machines_are_one_cluster(hosts):
    group = up(hosts, osds=2)
    a = group[0]
    tree = a.ceph_json('osd', 'tree')['nodes']
    homes = {n['name']: sorted(n['children']) for n in tree if n['type'] == 'host'}
    assert homes == {'h1': [0, 1], 'h2': [2, 3], 'h3': [4, 5]}
    assert all(n['status'] == 'up' for n in tree if n['type'] == 'osd')
    mons = a.ceph_json('mon', 'dump')['mons']
    assert [m['name'] for m in mons] == ['h1', 'h2', 'h3']
    # Every machine's ceph.conf has all of them, also those that came later.
    wanted = ','.join('[v2:%s:3300/0,v1:%s:6789/0]' % (h.ip, h.ip) for h in group)
    for host in group:
        wait_until(lambda: conf_hosts(host) == wanted, 60, what='%s in ceph.conf of %s' % (wanted, host.name))
    pool = a.make_pool(pg_num=32)
    names = ['o%d' % i for i in range(40)]
    put(a, pool, names)
    for host in group:
        check(host, pool, names)
    used = {a.ceph_json('osd', 'map', pool, n)['acting_primary'] for n in names}
    assert len(used) >= 4, used
    # A change made through one monitor is seen through another.
    group[1].ceph('config', 'set', 'global', 'osd_pool_default_pg_num', '16')
    for host in group:
        wait_until(lambda: '16' in host.ceph('config', 'get', 'mon', 'osd_pool_default_pg_num').out, 20,
                   what='the setting at %s' % host.name)
    # The manager's part goes from one to the next, and who lost it stands by again.
    for _ in range(2):
        was = a.ceph_json('mgr', 'dump')
        assert len(was['standbys']) == 2, was
        a.ceph('mgr', 'fail')
        now = a.ceph_json('mgr', 'dump')
        assert now['available'] and now['active_name'] in [s['name'] for s in was['standbys']], now
        for host in group:
            assert host.ceph_json('pg', 'stat')['pg_summary']['num_pgs'] >= 32
        wait_until(lambda: was['active_name'] in [s['name'] for s in a.ceph_json('mgr', 'dump')['standbys']], 60,
                   what='%s to stand by' % was['active_name'])


def test_later_starts_need_no_words_and_grow(hosts):
    group = up(hosts, n=2)
    a, b = group
    pool = a.make_pool()
    put(a, pool, ['x', 'y', 'z'])
    ids = {h.name: h.cli('status', '--data', h.data, '-f', 'json').out for h in group}
    assert all(json.loads(text)['running'] for text in ids.values())
    for host in group:
        assert host.stop() == 0
    for host in group:
        # The command line of the first start does no harm, nor does less of it.
        host.first = [] if host is a else host.first
        host.start()
    check(a, pool, ['x', 'y', 'z'])
    a.stop()
    a.osds = 3
    a.start()
    tree = a.ceph_json('osd', 'tree')['nodes']
    homes = {n['name']: sorted(n['children']) for n in tree if n['type'] == 'host'}
    assert homes == {'h1': [0, 2, 3], 'h2': [1]}


def test_mistakes_are_refused(hosts):
    group = hosts(3)
    group.start_etcd()
    a, b, c = group
    assert 'holds no cluster: --create makes one' in a.refused()
    assert 'no cluster that could be joined' in a.refused(first=['--join'])
    said = a.refused('--auth', 'none', first=['--create'])
    assert 'lets anybody in' in said
    assert not (a.data / 'skep.toml').exists()
    a.up(create=True)
    fsid = a.ceph('fsid').out.strip()
    assert fsid in b.refused(first=['--create']) and 'already' in b.refused(first=['--create'])
    assert '--join joins it' in b.refused()
    assert 'a machine named h1 already' in b.refused(name='h1', first=['--join'])
    c.up(join=True)
    c.stop()
    assert '--etcd-prefix was fixed at the first start: skep' in c.refused('--etcd-prefix', 'other')
    assert '--bind was fixed' in c.refused(ip='10.77.0.50')
    a.stop()
    # etcd loses everything: nothing is made anew over what the OSDs hold.
    group.forget_etcd()
    group.start_etcd()
    said = a.refused()
    assert 'holds no cluster, but this store belongs to cluster ' + fsid in said
    assert 'nothing is made anew' in a.refused(first=['--create'])
    # Somebody makes another cluster there.
    b2 = group[1]
    b2.data = b2.data.with_name('other')
    b2.conf = str(b2.data / 'ceph.conf')
    b2.up(create=True)
    said = a.refused()
    assert 'belongs to cluster' in said and fsid in said


def test_rolling_restart_with_clients_writing(hosts):
    group = up(hosts)
    pool = group[0].make_pool(pg_num=16)
    writer = Writer(group[0], pool)
    writer.goes_on()
    for host in group:
        assert host.stop() == 0
        host.start(60)
        writer.goes_on()
    for host in group:
        host.restart()                     # SIGKILL this time
        writer.goes_on()
    writer.stop()
    health = group[2].ceph_json('health')
    assert 'MON_DOWN' not in health['checks'] and 'OSD_DOWN' not in health['checks'], health


def test_etcds_minority_is_not_missed_and_its_majority_waited_for(hosts):
    group = up(hosts)
    a = group[0]
    pool = a.make_pool(pg_num=16)
    writer = Writer(a, pool)
    for host in group:
        host.etcd.kill()
        a.ceph('config', 'set', 'global', 'osd_pool_default_pg_num', '8')
        writer.goes_on()
        host.etcd.restart()
        wait_until(group.etcd_healthy, 30, 0.2, 'etcd')
    epoch = a.ceph_json('osd', 'dump')['epoch']
    group[0].etcd.kill()
    group[1].etcd.kill()
    waiting = a.popen('ceph', 'osd', 'set', 'noout', stdout=-3, stderr=-3)
    wait_until(lambda: any('waiting for etcd (http' in h.log_tail(400) for h in group), 60, 0.2, 'a line in the log')
    assert waiting.poll() is None
    group[0].etcd.restart()
    group[1].etcd.restart()
    assert waiting.wait(90) == 0
    assert a.ceph_json('osd', 'dump', timeout=60)['epoch'] > epoch
    writer.goes_on()
    writer.stop()
    assert all(h.alive for h in group)


def test_move_to_etcd(hosts):
    group = hosts(2)
    a, b = group
    a.up(osds=2)                           # no etcd yet: embedded
    pool = a.make_pool(pg_num=16)
    names = ['o%d' % i for i in range(20)]
    put(a, pool, names)
    fsid, dump = a.ceph('fsid').out, a.ceph_json('osd', 'dump')['pools']
    keys = a.ceph('auth', 'get-key', 'client.admin').out
    group.start_etcd(apart=True)
    move = [find_binary(), 'cluster', 'move-to-etcd', '--data', a.data, *a.etcd_options(), '--host', 'h1']
    assert 'in use' in run(a.argv(move), check='fails').err
    # Naming etcd does not move anything by itself.
    a.stop()
    assert 'move-to-etcd' in a.refused()
    said = run(a.argv(move)).out
    assert 'read back and compared' in said and fsid.strip() in said
    assert 'in etcd already' in run(a.argv(move), check='fails').err
    assert not (a.data / 'cluster' / 'state.redb').exists()
    a.start(60)
    assert a.ceph('fsid').out == fsid and a.ceph_json('osd', 'dump')['pools'] == dump
    assert a.ceph('auth', 'get-key', 'client.admin').out == keys
    check(a, pool, names)
    b.up(join=True)
    check(b, pool, names)
    homes = {n['name']: sorted(n['children']) for n in a.ceph_json('osd', 'tree')['nodes'] if n['type'] == 'host'}
    assert homes == {'h1': [0, 1], 'h2': [2]}


def test_rebuild_from_the_osds(hosts):
    group = up(hosts, n=2, osds=2)
    a, b = group
    pool = a.make_pool(pg_num=16)
    names = ['o%d' % i for i in range(20)]
    put(a, pool, names)
    fsid, key = a.ceph('fsid').out, a.ceph('auth', 'get-key', 'client.admin').out
    epoch = a.ceph_json('osd', 'dump')['epoch']
    rebuild = [find_binary(), 'cluster', 'rebuild', '--data', a.data, '--from', b.data]
    assert 'in use' in run(a.argv(rebuild), check='fails').err
    copies = [h.data / ('osd.%d' % i) / 'cluster.copy' for i, h in enumerate((a, a, b, b))]
    wait_until(lambda: all(pool.encode() in c.read_bytes() for c in copies), 30, what='the copies to know the pool')
    assert all(c.stat().st_mode & 0o777 == 0o600 for c in copies)
    for host in group:
        host.kill()
    assert 'nothing to rebuild' in run(a.argv(rebuild), check='fails').err
    group.forget_etcd()
    group.start_etcd()
    assert 'holds no cluster' in a.refused()
    copies[0].write_bytes(copies[0].read_bytes()[:-1] + b'?')
    copies[1].unlink()
    said = run(a.argv(rebuild)).out
    assert 'osd.0: damaged' in said and 'osd.1: no copy' in said and 'rebuilt from version' in said, said
    a.first = b.first = []
    a.start(60)
    b.start(60)
    assert a.ceph('fsid').out == fsid and a.ceph('auth', 'get-key', 'client.admin').out == key
    assert a.ceph_json('osd', 'dump')['epoch'] > epoch + 60
    check(b, pool, names)
    put(b, pool, ['new'])
    check(a, pool, ['new'])


def test_options_from_a_file(hosts, tmp_path):
    group = hosts(1)
    group.start_etcd()
    a = group[0]
    conf = tmp_path / 'skep.conf'
    conf.write_text('etcd = ["%s"]\nbind = "%s"\nhost = "h1"\nosds = 2\ncreate = true\n' % (group.etcd_urls[0], a.ip))
    plain = a.argv
    a.argv = lambda command=None: plain(command or [find_binary(), 'up', '--data', a.data, '--config', conf])
    a.start(60)
    assert len(a.ceph_json('osd', 'ls')) == 2
    conf.write_text('nonsense = 1\n')
    a.stop()
    assert '"nonsense" is no option of `skep up`' in run(a.argv(), check='fails').err
