"""What somebody may: second objects, namespaces, fences, snapshots, the words of OSDs. Points 3, 5, 7 and 11 of the issue
"Found under fire"; each beside what the same client must be able to do."""
import json
import struct

import pytest

from osdclient import KNOWN_REDIR, NOSNAP, READ, W, ext, hobject, oloc, op, put, st, u8, u32, u64, watch, xattr
from skeptest.raw import PEER, Closed, Refused, Silent
from skeptest.run import wait_until
from skeptest.wire import MON, OSD

R = READ | KNOWN_REDIR
EPERM, EACCES, EINVAL, EBLOCKLISTED = -1, -13, -22, -108
SOON_S = 60


def refuses(code):
    """Refused for want of rights, or because the door does not know such a command."""
    return code in (EPERM, EACCES, EINVAL)


# -- objects
def copy_from(pool, oid, ns=b'', snap=NOSNAP, code='COPY_FROM', extra=b''):
    return op(code, struct.pack('<QQBI', snap, 0, 0, 0), st(oid) + oloc(pool.id, ns=ns) + extra)


@pytest.mark.parametrize('code', ['COPY_FROM', 'COPY_FROM2'])
def test_nobody_copies_what_he_may_not_read(server, user, admin, mine, theirs, code):
    ours, other = server.pool(mine), server.pool(theirs)
    secret = [put('WRITEFULL', 0, b'secret'), xattr('SETXATTR', b'key', b'secret')]
    assert other.do(admin, b'secret', secret, W)['result'] == 0
    assert ours.do(admin, b'secret', secret, W, ns=b'y')['result'] == 0
    assert ours.do(admin, b'own', secret, W, ns=b'x')['result'] == 0
    who = server.login(user(mon='allow r', osd='allow rw pool=%s namespace=x' % mine))
    extra = struct.pack('<IQ', 0, 0) if code == 'COPY_FROM2' else b''
    for n, (pool, ns) in enumerate([(other, b''), (ours, b'y')]):
        oid = b'loot-%s-%d' % (code.encode(), n)
        got = ours.do(who, oid, [copy_from(pool, b'secret', ns, code=code, extra=extra)], W, ns=b'x')
        read = ours.do(who, oid, [ext('READ', 0, 100)], R, ns=b'x')
        assert read['outs'] != [b'secret'] and got['result'] == EPERM, (pool.name, ns, got)
    own = ours.do(who, b'copy-' + code.encode(), [copy_from(ours, b'own', b'x', code=code, extra=extra)], W, ns=b'x')
    assert own['result'] == 0, own


def test_a_copy_goes_nowhere_where_he_may_not_write(server, user, admin, mine, theirs):
    ours, other = server.pool(mine), server.pool(theirs)
    assert ours.do(admin, b'own', [put('WRITEFULL', 0, b'x')], W)['result'] == 0
    who = server.login(user(mon='allow r', osd='allow r pool=%s' % mine))
    for pool in (ours, other):
        assert pool.do(who, b'there', [copy_from(ours, b'own')], W)['result'] == EPERM


OTHER_DOORS = [('a namespace in the locator', dict(ns=b'y')), ('no namespace', dict(ns=b'')),
               ('a namespace and a key', dict(ns=b'y', key=b'x')), ('an odd namespace', dict(ns=b'x\0y'))]


@pytest.mark.parametrize('way,kw', OTHER_DOORS, ids=[w for w, _ in OTHER_DOORS])
def test_a_tenant_stays_in_its_namespace(server, user, admin, mine, way, kw):
    box = server.pool(mine)
    assert box.do(admin, b'there', [put('WRITEFULL', 0, b'secret')], W, **kw)['result'] == 0
    who = server.login(user(mon='allow r', osd='allow rwx pool=%s namespace=x' % mine))
    tries = {
        'read': ([ext('READ', 0, 10)], R), 'stat': ([op('STAT')], R), 'sparse': ([ext('SPARSE_READ', 0, 10)], R),
        'xattrs': ([op('GETXATTRS')], R), 'omap': ([op('OMAPGETVALS', data=st('') + u64(9) + st(''))], R),
        'watchers': ([op('LIST_WATCHERS')], R), 'snaps': ([op('LIST_SNAPS')], R), 'checksum':
        ([op('CHECKSUM', struct.pack('<QQIB', 0, 4, 0, 2), u32(-1))], R), 'copy get': ([op('COPY_GET', data=bytes(64))], R),
        'notify': ([op('NOTIFY', struct.pack('<QQB', 1, 0, 0), u32(1) + u32(3) + st('hi'))], R),
        'notify ack': ([op('NOTIFY_ACK', data=u64(1) + u64(1) + st(''))], R),
        'write': ([put('WRITEFULL', 0, b'evil')], W), 'delete': ([op('DELETE')], W), 'watch': ([watch(3, 1)], W),
        'no flags': ([put('WRITEFULL', 0, b'evil')], KNOWN_REDIR), 'as a read': ([op('DELETE')], R),
        'nothing': ([], R), 'rollback': ([op('ROLLBACK', struct.pack('<Q', 1))], W)}
    let_in = {}
    for name, (ops, flags) in tries.items():
        reply = box.do(who, b'there', ops, flags, **kw)
        if reply['result'] >= 0 and (reply['ops'] or name != 'nothing'):
            let_in[name] = (reply['result'], reply['outs'])
    assert not let_in, let_in
    assert box.do(admin, b'there', [ext('READ', 0, 10)], R, **kw)['outs'] == [b'secret']
    assert box.do(who, b'there', [put('WRITEFULL', 0, b'mine')], W, ns=b'x')['result'] == 0


def test_a_listing_shows_a_tenant_its_own_names(server, user, admin, mine):
    box = server.pool(mine)
    for ns in (b'', b'x', b'y'):
        assert box.do(admin, b'listed-' + ns, [put('WRITEFULL', 0, b'x')], W, ns=ns)['result'] == 0
    who = server.login(user(mon='allow r', osd='allow rw pool=%s namespace=x' % mine))
    everything = b'\1'                              # the namespace that stands for all of them
    for ns in (b'', b'y', everything):
        for ps in box.primary:
            reply = box.do(who, b'', [op('PGNLS', struct.pack('<QI', 100, 0), hobject(-2**63, snap=0))], R, ps=ps, ns=ns, oloc_hash=ps)
            assert b'listed-' not in b''.join(reply['outs']) and b'there' not in b''.join(reply['outs']), (ns, reply)


# -- snapshots
def test_a_tenant_deletes_no_snapshot_of_another(server, user, skep):
    pool = skep.make_pool(pg_num=1)
    box = server.pool(pool)
    x = user(mon='allow r', osd='allow rwx pool=%s namespace=x' % pool)
    y = user(mon='allow r', osd='allow rwx pool=%s namespace=y' % pool)
    with server.mon(x) as mon_x, server.mon(y) as mon_y:
        old = b'before the snapshot'
        assert box.do(y, b'disk', [put('WRITEFULL', 0, old)], W, ns=b'y')['result'] == 0
        snap = mon_y.new_snap(box.id)
        assert box.do(y, b'disk', [put('WRITEFULL', 0, b'after it')], W, ns=b'y', seq=snap, snaps=[snap])['result'] == 0
        code, _, _ = mon_x.pool_op(0x22, box.id, snapid=snap)
        assert code in (EPERM, EACCES), 'tenant x has deleted a snapshot of tenant y: %d' % code
        assert box.do(y, b'disk', [ext('READ', 0, 100)], R, ns=b'y', snapid=snap)['outs'] == [old]
        own = mon_x.new_snap(box.id)
        assert mon_x.pool_op(0x22, box.id, snapid=own)[0] == 0
        assert mon_y.pool_op(0x22, box.id, snapid=snap)[0] == 0


# -- fences
def test_who_is_fenced_does_not_come_back_under_another_address(server, user, admin, mine):
    box = server.pool(mine)
    primary = box.place(b'fenced')[2]
    who = server.login(user(mon='allow r', osd='allow rwx pool=%s' % mine))
    tid_write = [put('WRITEFULL', 0, b'after the fence')]
    osd = server.osd(who, primary)
    assert box.do(who, b'fenced', [put('WRITEFULL', 0, b'before')], W, osd=osd)['result'] == 0
    server.admin('osd blocklist', blocklistop='add', addr='127.0.0.1:0/%d' % osd.said['nonce'])

    def shut_out(session):
        try:
            return box.do(who, b'fenced', tid_write, W, osd=session, timeout=5)['result'] == EBLOCKLISTED
        except (Closed, Silent):
            return True
    wait_until(lambda: shut_out(osd), SOON_S, what='the fenced session to end')
    osd.close()
    assert box.do(admin, b'fenced', [put('WRITEFULL', 0, b'the new owner')], W)['result'] == 0
    for ident, source in [(dict(nonce=osd.said['nonce'] + 1), None), (dict(ip='10.1.1.1'), None), (dict(port=77), None),
                          (None, '127.55.1.1'), (dict(nonce=osd.said['nonce']), None), (dict(ip='0.0.0.0', nonce=0), None)]:
        try:
            with server.osd(who, primary, ident=ident, source=source) as again:
                assert shut_out(again), 'came back as %s from %s' % (ident, source)
        except (Refused, ConnectionError):
            pass                                   # not even let in
    assert box.do(admin, b'fenced', [ext('READ', 0, 100)], R)['outs'] == [b'the new owner']
    fresh = server.login(who.alike(gid=0, tickets={}))      # a new process of the same user
    assert box.do(fresh, b'fenced', [ext('READ', 0, 1)], R)['result'] == 0


def test_a_network_is_where_packets_come_from(server, user, mine):
    box = server.pool(mine)
    primary = box.place(b'net')[2]
    away = server.login(user(mon='allow r', osd='allow rw pool=%s network 10.1.0.0/16' % mine))
    with server.osd(away, primary, ident=dict(ip='10.1.2.3')) as osd:
        assert box.do(away, b'net', [put('WRITEFULL', 0, b'x')], W, osd=osd)['result'] == EPERM
    near = server.login(user(mon='allow r', osd='allow rw pool=%s network 127.66.0.0/16' % mine))
    with server.osd(near, primary, source='127.66.1.1', ident=dict(ip='10.1.2.3')) as osd:
        assert box.do(near, b'net', [put('WRITEFULL', 0, b'x')], W, osd=osd)['result'] == 0
    with server.osd(near, primary) as osd:
        assert box.do(near, b'net', [put('WRITEFULL', 0, b'x')], W, osd=osd)['result'] == EPERM


RANGES = [dict(addr='0.0.0.0/0', range='range'), dict(addr='127.0.0.1/8', range='range'), dict(addr='0.0.0.0/0'),
          dict(addr='127.0.0.1'), dict(addr='127.0.0.1:0/0'), dict(addr='::/0', range='range'), dict(addr='127.0.0.1/32', range='range')]


@pytest.mark.parametrize('prefix,op_key', [('osd blocklist', 'blocklistop'), ('osd blacklist', 'blacklistop')])
def test_a_client_of_rbd_fences_single_clients_only(server, user, mine, prefix, op_key):
    who = user(mon='profile rbd', osd='profile rbd pool=%s' % mine)
    # The old command knows no ranges: what looks like one is an address with a nonce, a single client.
    ranges = RANGES if prefix == 'osd blocklist' else [a for a in RANGES if 'range' not in a]
    with server.mon(who) as mon:
        done = [a for a in ranges if not refuses(mon.command({'prefix': prefix, op_key: 'add', **a})[0])]
        fenced = [line for line in json.dumps(server.admin('osd dump')).split() if '/0' in line and 'range' in line]
        for a in done:
            server.admin(prefix, **{op_key: 'rm', **a})
        assert not done, 'fenced %s (%s)' % (done, fenced)
        assert mon.command({'prefix': prefix, op_key: 'add', 'addr': '10.2.3.4:0/99'})[0] == 0
        assert refuses(mon.command({'prefix': prefix, op_key: 'rm', 'addr': '10.2.3.4:0/99'})[0])


# -- the OSDs' own words
def fetch(oid, pool):
    return u8(4) + u64(1) + hobject(pool.id, pool.place(oid)[0], oid=oid)


@pytest.mark.parametrize('ident', [dict(), dict(hello=OSD, ident=dict(gid=0)), dict(hello=MON, ident=dict(gid=0))],
                         ids=['as a client', 'as an OSD', 'as a monitor'])
def test_nobody_but_an_osd_speaks_as_one(server, user, admin, theirs, ident):
    box = server.pool(theirs)
    assert box.do(admin, b'inner', [put('WRITEFULL', 0, b'secret')], W)['result'] == 0
    for who in (server.login(user(mon='allow r', osd='allow r pool=nothing')), server.login(user(mon='allow *', osd='allow *'))):
        try:
            osd = server.osd(who, box.place(b'inner')[2], **ident)
        except (Refused, ConnectionError):
            continue
        with osd:
            for front in (fetch(b'inner', box), u8(1) + u64(1) + u32(1), u8(3) + bytes(40)):
                try:
                    osd.send(PEER, front)
                    m = osd.wait(lambda m: m['type'] == PEER, 1)
                    raise AssertionError('%s was answered as an OSD: %r' % (who.name, m['data'][:80]))
                except (Closed, Silent):
                    pass


def test_commands_to_an_osd_are_for_those_who_may_everything(server, user, mine):
    who = server.login(user(mon='allow r', osd='allow rwx pool=%s' % mine))
    with server.osd(who, 0) as osd:
        for command in ({'prefix': 'dump_ops_in_flight'}, {'prefix': 'config show'}, {'prefix': 'injectargs'},
                        {'prefix': 'bench'}, {'prefix': 'dump_watchers'}):
            assert osd.tell(command, fsid=server.fsid)[0] < 0, command


