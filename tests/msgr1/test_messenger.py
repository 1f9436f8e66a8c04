"""Messenger v1 itself: that these tests use it, who is refused, connections that are cut, fences, and the options of `skep up`."""
import os
import re
import socket
import subprocess

import pytest

from osdclient import WRITE, put
from skeptest.api import connect, in_child
from skeptest.cephx import flipped
from skeptest.cluster import unique
from skeptest.legacy import BAD_AUTHORIZER, BANNER, Legacy, Refused
from skeptest.load import Load
from skeptest.raw import OSD_OP, OSD_OPREPLY, Server
from skeptest.run import end_group, wait_until
from skeptest.wire import OSD, Closed



def ports_of(cluster):
    """Of messenger v1: the monitor's, the manager's, the OSDs'; and those of v2."""
    vectors = [m['public_addrs'] for m in cluster.ceph_json('mon', 'dump')['mons']]
    vectors += [cluster.ceph_json('mgr', 'dump')['active_addrs']]
    vectors += [o['public_addrs'] for o in cluster.ceph_json('osd', 'dump')['osds']]
    of = {'v1': set(), 'v2': set()}
    for a in (a for v in vectors for a in v['addrvec']):
        of[a['type']].add(int(a['addr'].rsplit(':', 1)[1]))
    return of['v1'], of['v2']


def peers():
    """Ports that this process has connections to."""
    mine = {os.readlink('/proc/self/fd/' + fd) for fd in os.listdir('/proc/self/fd') if os.path.islink('/proc/self/fd/' + fd)}
    with open('/proc/net/tcp') as f:
        rows = [line.split() for line in f][1:]
    return {int(r[2].split(':')[1], 16) for r in rows if 'socket:[%s]' % r[9] in mine and r[3] == '01'}


def use_all(cluster, pool, **conf):
    """Ports that a stock client has connections to after it has used monitor, manager and OSDs; a monitor's or an OSD's connection
    that was cut as idle or slow comes back with the next use."""
    # A child has its parent's connections, too.
    others = peers()
    handle = connect(cluster, **conf)
    seen = set()
    with handle.open_ioctx(pool) as io:
        def every_server():
            for i in range(40):
                io.write_full('object-%d' % i, b'x')
            assert handle.mgr_command('{"prefix": "pg stat"}', b'')[0] == 0
            seen.update(peers() - others)
            return len(seen) >= 5
        wait_until(every_server, 60, 1, 'connections to monitor, manager and three OSDs')
    return seen


def test_these_tests_speak_v1_and_nothing_else(cluster, pool):
    v1, v2 = ports_of(cluster)
    used = in_child(use_all, cluster, pool)
    assert len(v1) == 5 and used == v1, (used, v1, v2)


def test_v2_goes_first_where_nobody_says_otherwise(own):
    skep = own(msgr1_first=False).start()
    both = r'\[v2:127.0.0.1:%d/0,v1:127.0.0.1:%d/0\]' % (skep.port, skep.msgr1_port)
    assert re.search(r'mon_host = %s$' % both, open(skep.conf).read(), re.M)
    assert re.search(r'^0: %s mon.a$' % both, skep.ceph('mon', 'dump').out, re.M)
    assert re.search(r'mon_host = %s$' % both, skep.ceph('config', 'generate-minimal-conf').out, re.M)
    mon = skep.ceph_json('mon', 'dump')['mons'][0]
    # What OpenStack takes from here is dialled by v1.
    assert mon['addr'] == '127.0.0.1:%d/0' % skep.msgr1_port
    pool = skep.make_pool()
    v1, v2 = ports_of(skep)
    assert in_child(use_all, skep, pool) == v2 and len(v1) == 5
    # A stock client that has only the monitor's v1 address asks there where everybody is, and then takes the first of each.
    assert in_child(lambda: use_all(skep, pool, mon_host='v1:127.0.0.1:%d' % skep.msgr1_port)) == v2
    osds = skep.ceph('osd', 'dump').out
    assert re.search(r'^osd.0 up .* \[v2:127.0.0.1:\d+/(\d+),v1:127.0.0.1:\d+/\1\] v2:127.0.0.1:\d+/\1 exists,up', osds, re.M), osds


def test_v1_can_be_left_out_and_taken_back(own):
    skep = own(msgr1_first=False).start()
    skep.kill()
    skep.options = ['--msgr1-port', 'none']
    skep.start()
    assert skep.ceph_json('mon', 'dump')['mons'][0]['public_addrs']['addrvec'] == [
        {'type': 'v2', 'addr': '127.0.0.1:%d' % skep.port, 'nonce': 0}]
    assert not ports_of(skep)[0] and 'v1:' not in open(skep.conf).read()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(('127.0.0.1', skep.msgr1_port), 10)
    # What was said stays so.
    skep.kill()
    argv = [a for a in skep.argv() if a not in skep.options]
    skep.argv = lambda: argv
    skep.start()
    assert not ports_of(skep)[0]
    skep.kill()
    skep.argv = lambda: argv + ['--msgr1-port', skep.msgr1_port]
    skep.start()
    assert skep.msgr1_port in ports_of(skep)[0]


def test_a_port_that_is_taken_is_named_before_anything_is_written(own):
    skep = own()
    with socket.socket() as s:
        s.bind(('127.0.0.1', skep.msgr1_port))
        s.listen()
        r = skep.cli(*skep.argv()[1:], check='fails', timeout=60)
    assert '127.0.0.1:%d' % skep.msgr1_port in r.err and '--msgr1-port none' in r.err and '--msgr1-port PORT' in r.err, r
    assert not (skep.data / 'skep.toml').exists()
    skep.start()


def test_each_messenger_refuses_the_other(cluster):
    for port, banner in (cluster.msgr1_port, b'ceph v2\n' + bytes(18)), (cluster.port, BANNER + bytes(136)):
        with socket.create_connection(('127.0.0.1', port), 30) as s:
            s.sendall(banner)
            said = b''
            while got := s.recv(4096):
                said += got
            assert len(said) in (26, 9 + 2 * 136), said


def test_a_wrong_key_is_refused(cluster, tmp_path):
    keyring = tmp_path / 'keyring'
    cluster.run('ceph-authtool', '--create-keyring', keyring, '-n', 'client.admin', '--gen-key')

    def refused():
        import rados
        try:
            connect(cluster, keyring=keyring, client_mount_timeout=20)
        except rados.Error as e:
            return e.errno
    assert [in_child(refused) for _ in range(2)] == [13, 13]
    assert in_child(lambda: connect(cluster).get_fsid())


def test_where_clients_have_to_encrypt_none_comes_by_v1(own):
    skep = own().start()
    pool = skep.make_pool()
    skep.ceph('config', 'set', 'osd', 'ms_service_mode', 'secure')
    server = Server(skep)
    who = server.login(server.entity('client.admin'))
    with pytest.raises(Closed):
        Legacy(server.osd_legacy[0][:2], who)
    with server.osd(who, 0, mode=2):
        pass
    assert pool


# -- signatures

@pytest.fixture
def attacked(cluster, pool):
    server = Server(cluster)
    return server, server.pool(pool), server.login(server.entity('client.admin'))


def do(box, session, oid, ops, flags, tid, **kw):
    session.send(OSD_OP, box.front(oid, ops, flags), b''.join(o[3] for o in ops), version=8, compat=3, tid=tid, **kw)


def open_to(server, box, who, oid, **kw):
    return Legacy(server.osd_legacy[box.place(oid)[2]][:2], who, **kw)


def test_messages_are_signed_both_ways(attacked, oid):
    server, box, who = attacked
    oid = oid.encode()
    with open_to(server, box, who, oid) as s:
        do(box, s, oid, [put('WRITEFULL', 0, b'right')], WRITE, 1)
        m = s.recv()
        assert (m['type'], m['tid'], m['signed']) == (OSD_OPREPLY, 1, True)


@pytest.mark.parametrize('how', [dict(sign=False), dict(signature_of=lambda right: right ^ 1 << 63), dict(signature_of=lambda right: 0)],
                         ids=['none', 'one bit', 'zero'])
def test_a_message_without_the_right_signature_is_not_executed(cluster, pool, attacked, oid, how):
    server, box, who = attacked
    with open_to(server, box, who, oid.encode()) as s:
        do(box, s, oid.encode(), [put('WRITEFULL', 0, b'right')], WRITE, 1)
        s.recv()
        do(box, s, oid.encode(), [put('WRITEFULL', 0, b'wrong')], WRITE, 2, **how)
        with pytest.raises(Closed):
            s.recv()
    assert cluster.rados(pool, 'get', oid, '-').out == 'right'


def test_a_message_is_not_taken_twice(cluster, pool, attacked, oid):
    """Sent again as it was, signature and all: its sequence number is old."""
    server, box, who = attacked
    with open_to(server, box, who, oid.encode()) as s:
        for tid, n in (1, 0), (2, 0), (3, 2):
            s.seq = n
            do(box, s, oid.encode(), [put('WRITEFULL', 0, b'%d' % tid)], WRITE, tid)
        assert [s.recv()['tid'] for _ in range(2)] == [1, 3]


def test_a_ticket_that_was_changed_is_refused(attacked, oid):
    server, box, who = attacked
    with open_to(server, box, who, oid.encode()):
        pass
    ticket = who.tickets[OSD]
    with pytest.raises((Refused, Closed)) as e:
        open_to(server, box, who, oid.encode(), ticket=ticket.altered(blob=flipped(ticket.blob, 200)))
    assert not isinstance(e.value, Refused) or e.value.tag == BAD_AUTHORIZER
    with pytest.raises((Refused, Closed)):
        open_to(server, box, who, oid.encode(), ticket=ticket.altered(key=bytes(16)))


# -- connections that end

def cut_often(cluster, tmp_path, one_of):
    """For clients that end their connections themselves, with one of so many sends and receives; and the log that says so."""
    log = tmp_path / 'client.log'
    lines = ['ms_inject_socket_failures = %d' % one_of, 'ms_initial_backoff = 0.01', 'ms_max_backoff = 0.1', 'log_file = %s' % log]
    return cluster.with_conf(tmp_path / 'cut.conf', lines), log


def cuts(log):
    return log.read_text(errors='replace').count('injecting socket failure') if log.exists() else 0


def test_connections_cut_under_load_lose_nothing(cluster, rbd_pool, tmp_path):
    conf, log = cut_often(cluster, tmp_path, 100)
    with Load(conf, rbd_pool, tmp_path) as load:
        pass
    load.host, load.conf = cluster, cluster.conf
    load.verify()
    assert cuts(log) > 20, cuts(log)


def test_a_watch_outlives_its_connections(cluster, pool, oid, tmp_path):
    """It is registered again on each new one, and notified."""
    # More often, and it gets no session at all: a handshake has many parts.
    conf, log = cut_often(cluster, tmp_path, 100)
    cluster.rados(pool, 'put', oid, '-', stdin=b'x')
    with open(tmp_path / 'out', 'wb') as out:
        watch = conf.popen('stdbuf', '-oL', 'rados', '-p', pool, 'watch', oid, stdin=subprocess.PIPE, stdout=out, stderr=out)

    def notified():
        cluster.rados(pool, 'notify', oid, 'hello', '3', check=None)
        return (tmp_path / 'out').read_text().count('NOTIFY cookie')
    try:
        wait_until(notified, 60, 0.05, 'a first notification')
        before = cuts(log)
        wait_until(lambda: notified() and cuts(log) > before, 90, 0.05, 'a connection to be cut')
        heard = notified()
        wait_until(lambda: notified() > heard, 60, 0.05, 'a notification after that')
    finally:
        end_group(watch)
        watch.wait(60)


# -- fences

def test_a_fenced_client_is_fenced_by_v1_too(cluster, pool, oid):
    def fenced():
        handle = connect(cluster)
        import rados
        with handle.open_ioctx(pool) as io:
            io.write_full(oid, b'before')
            # As watches and locks name it: of no messenger.
            mine = handle.get_addrs().split('/')
            assert mine[0] == '127.0.0.1:0', mine
            cluster.ceph('osd', 'blocklist', 'add', '/'.join(mine))
            try:
                io.write_full(oid, b'after')
            except rados.Error as e:
                return e.errno, '/'.join(mine)
        return 0, ''
    errno, addr = in_child(fenced)
    assert errno == 108, errno
    assert cluster.rados(pool, 'get', oid, '-').out == 'before'
    assert addr in cluster.ceph('osd', 'blocklist', 'ls').out
    cluster.ceph('osd', 'blocklist', 'rm', addr)


def test_who_breaks_a_lock_fences_its_holder(cluster, rbd_pool):
    """rbd takes the holder's address from its watch, and gives it to the monitor."""
    name = '%s/%s' % (rbd_pool, unique('image'))
    cluster.rbd('create', name, '--size', '8M', '--image-feature', 'exclusive-lock')
    holder = cluster.popen('rbd', 'bench', '--io-type', 'write', '--io-total', '1G', '--io-pattern', 'rand', name,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: cluster.rbd_json('lock', 'ls', name), 30, 0.2, 'the lock')
        lock = cluster.rbd_json('lock', 'ls', name)[0]
        cluster.rbd('lock', 'rm', name, lock['id'], lock['locker'])
        out, _ = holder.communicate(timeout=60)
        assert holder.returncode != 0, out
    finally:
        holder.kill()
        holder.wait(60)
    assert lock['address'] in cluster.ceph('osd', 'blocklist', 'ls').out
    cluster.ceph('osd', 'blocklist', 'rm', lock['address'])


def test_a_pool_without_authentication_speaks_v1(own):
    skep = own(auth='none').start()
    pool = skep.make_pool()
    v1, _ = ports_of(skep)
    assert in_child(use_all, skep, pool) == v1
