"""How much somebody may have: every byte and every step is charged before it is done. Points 12, 13 and 15 of the issue
"Found under fire".

A stock client works beside each attack (`neighbour`). It must not wait long, no OSD may go down, and the server's memory
may not grow by what the attacker sends or asks for. The attacks are large enough that a server without the bound misses
the generous limits here by far.
"""
import struct
import time

import pytest

from osdclient import FAILOK, HOBJ_MIN, KNOWN_REDIR, READ, W, Silent, ext, op, put, st, strmap, u32, u64, watch, xattr
from skeptest import wire
from skeptest.raw import OSD_OP, Closed
from skeptest.wire import CRC, SECURE

R = READ | KNOWN_REDIR
MIB = 1 << 20
# Of one process with three OSDs, a monitor and a manager: one answer of 128 MiB is there twice for a moment, as it was read and as it
# is sent.
GROWN_MAX_MIB = 400
LONG_S = 30


def pour(session, data, seconds=6):
    """Sends as much as the server takes; stops where it takes no more for a while."""
    session.w.s.settimeout(1.0)
    until, at = time.monotonic() + seconds, 0
    while at < len(data) and time.monotonic() < until:
        try:
            at += session.w.s.send(data[at:at + MIB])
        except (TimeoutError, OSError):
            break
    return at


def quietly(f):
    """What an attacker does not care about: that he is cut off."""
    try:
        return f()
    except (Closed, Silent, OSError):
        return None


@pytest.fixture(scope='module')
def tenant(server, mine):
    from skeptest.cluster import unique
    return server.login(server.entity('client.' + unique('tenant'), mon='allow r', osd='allow rw pool=%s namespace=x' % mine))


@pytest.fixture(scope='module')
def reader(server, mine):
    from skeptest.cluster import unique
    return server.login(server.entity('client.' + unique('reader'), mon='allow r', osd='allow r', mgr='allow r'))


@pytest.fixture(scope='module')
def large(server, admin, mine):
    """An object of 16 MiB."""
    box = server.pool(mine)
    with server.osd(admin, box.place(b'large')[2], mode=SECURE) as osd:
        for n in range(4):
            assert box.do(admin, b'large', [put('WRITE', n * 4 * MIB, bytes(4 * MIB))], W, osd=osd)['result'] == 0
    return b'large'


def attack(box, who, oid, ops, flags, count=1, timeout=LONG_S, ns=b''):
    """One message, that often; the results, as far as there are any."""
    with box.server.osd(who, box.place(oid, ns)[2], mode=SECURE, timeout=timeout) as osd:
        def one():
            tids = [box.send(osd, oid, ops, flags, ns=ns) for _ in range(count)]
            return [box.reply(osd, tid, timeout) for tid in tids]
        return quietly(one) or []


# -- one object
def test_large_xattrs_end_no_osd(server, tenant, neighbour, mine):
    """Eight of them ended a cluster for good."""
    box = server.pool(mine)
    refused = 0
    for n in range(8):
        got = attack(box, tenant, b'poisoned', [xattr('SETXATTR', b'x%d' % n, bytes(12 * MIB))], W, ns=b'x')
        refused += bool(got) and got[0]['result'] < 0
    neighbour.check()
    assert refused == 8, '%d of 8 refused' % refused
    fine = box.do(tenant, b'poisoned', [xattr('SETXATTR', b'fine', bytes(60 << 10))], W, ns=b'x')
    assert fine['result'] == 0, fine


def test_many_xattrs_end_no_osd(server, tenant, neighbour, mine):
    box = server.pool(mine)
    for part in range(8):
        ops = [xattr('SETXATTR', b'%d-%d' % (part, n), bytes(60 << 10)) for n in range(128)]
        attack(box, tenant, b'many', ops, W, ns=b'x')
    neighbour.check()
    held = box.do(tenant, b'many', [op('GETXATTRS')], R, ns=b'x', timeout=LONG_S)
    assert sum(map(len, held['outs'])) < 8 * MIB, 'the object holds %d bytes of xattrs' % sum(map(len, held['outs']))


def test_many_rows_in_one_message_do_not_stall_others(server, tenant, neighbour, mine):
    box = server.pool(mine)
    rows = u32(500_000) + b''.join(struct.pack('<I8sI4s', 8, b'%08d' % n, 4, b'row!') for n in range(500_000))
    assert box.do(tenant, b'rows', [put('WRITEFULL', 0, b'x')], W, ns=b'x')['result'] == 0
    attack(box, tenant, b'rows', [op('OMAPSETVALS', data=rows)], W, ns=b'x', count=4)
    neighbour.check()
    assert neighbour.grown_mib() < GROWN_MAX_MIB


# -- one message
CHECKSUM = op('CHECKSUM', struct.pack('<QQIB', 0, 16 * MIB, 0, 2), u32(-1))
LISTING = op('OMAPGETVALS', data=st('') + u64(1024) + st(''))
STEPS = {
    'checksums': ([CHECKSUM] * 300, R),
    'reads': ([ext('READ', 0, 16 * MIB)] * 300, R),
    'sparse reads': ([ext('SPARSE_READ', 0, 16 * MIB)] * 300, R),
    'comparisons': ([put('CMPEXT', 0, bytes(64 << 10))] * 300, R),
    'omap': ([LISTING] * 3000, R),
    'stats': ([op('STAT')] * 20_000, R),
    'failures that are passed over': ([xattr('CMPXATTR', b'none', b'x', 1, 1, flags=FAILOK)] * 20_000, R),
}


@pytest.mark.parametrize('what', list(STEPS))
def test_one_message_of_a_reader_does_not_stall_others(server, admin, reader, neighbour, mine, large, what):
    box = server.pool(mine)
    if what == 'omap':
        rows = strmap({b'%05d' % n: bytes(4096) for n in range(1024)})
        assert box.do(admin, large, [op('OMAPSETVALS', data=rows)], W)['result'] in (0, -7)
    attack(box, reader, large, *STEPS[what], count=4)
    neighbour.check()
    assert neighbour.grown_mib() < GROWN_MAX_MIB


def test_listings_in_one_message_do_not_fill_memory(server, admin, reader, neighbour, skep):
    box = server.pool(skep.make_pool(pg_num=1))
    with server.osd(admin, box.primary[0], mode=SECURE) as osd:
        tids = [box.send(osd, b'%04d-' % n + b'n' * 1000, [op('CREATE', struct.pack('<I', 0))], W) for n in range(500)]
        assert {box.reply(osd, tid)['result'] for tid in tids} == {0}
    pgnls = op('PGNLS', struct.pack('<QI', 100_000, 0), HOBJ_MIN)

    def flood():
        with server.osd(reader, box.primary[0], mode=SECURE, timeout=LONG_S) as osd:
            tid = box.send(osd, b'', [pgnls] * 1000, R, ps=0, oloc_hash=0)
            return box.reply(osd, tid, LONG_S)
    quietly(flood)
    neighbour.check()
    assert neighbour.grown_mib() < GROWN_MAX_MIB


def test_a_few_bytes_do_not_become_a_gibibyte(server, tenant, neighbour, mine):
    """WRITESAME: 156 bytes for 1.3 GiB."""
    box = server.pool(mine)
    for n in range(2):
        same = op('WRITESAME', struct.pack('<QQQ', 0, 120 * MIB, 4), b'same')
        attack(box, tenant, b'same%d' % n, [same] * 4, W, ns=b'x')
    neighbour.check()
    assert neighbour.grown_mib() < GROWN_MAX_MIB


def test_failures_that_are_passed_over_do_not_undo_it_all_each_time(server, tenant, neighbour, mine):
    box = server.pool(mine)
    ops = [put('WRITE', 0, bytes(MIB))]
    for n in range(20_000):
        ops += [xattr('RMXATTR', b'none%d' % n, flags=FAILOK), op('ROLLBACK', struct.pack('<Q', 77), flags=FAILOK)]
    attack(box, tenant, b'failok', ops, W, ns=b'x')
    neighbour.check()


# -- what is not done yet
@pytest.mark.parametrize('door', ['mon', 'mgr', 'osd'])
def test_messages_that_never_end_take_no_memory(server, reader, neighbour, door):
    """A header that announces much, and much of it; then nothing."""
    body = bytes(88 * MIB)
    header = struct.pack('<QQHHHIHQBHH', 1, 1, OSD_OP, 63, 8, 0, 0, 0, 3, 3, 0)
    start = wire.preamble(wire.MESSAGE, [len(header), 100, 0, 90 * MIB]) + header + u32(wire.crc32c(header)) + bytes(100)
    sessions = []
    try:
        for _ in range(12):
            s = server.osd(reader, 0, mode=CRC) if door == 'osd' else getattr(server, door)(reader.alike(), mode=CRC)
            sessions.append(s)
            pour(s, start + body, 2)
        neighbour.check()
        assert neighbour.grown_mib() < GROWN_MAX_MIB
    finally:
        for s in sessions:
            s.close()


def test_answers_that_nobody_reads_take_no_memory(server, reader, neighbour, mine, large):
    box = server.pool(mine)
    sessions = []
    try:
        for _ in range(6):
            osd = server.osd(reader, box.place(large)[2], mode=CRC, receive_buffer=4096)
            sessions.append(osd)
            quietly(lambda: [box.send(osd, large, [ext('READ', 0, 16 * MIB)] * 8, R) for _ in range(8)])
        neighbour.check()
        assert neighbour.grown_mib() < GROWN_MAX_MIB
    finally:
        for osd in sessions:
            osd.close()


def test_notifications_that_nobody_acknowledges_take_no_memory(server, tenant, neighbour, mine):
    box = server.pool(mine)
    primary = box.place(b'watched', b'x')[2]
    with server.osd(tenant, primary, mode=SECURE, receive_buffer=4096) as deaf, \
            server.osd(tenant, primary, mode=SECURE, timeout=5) as loud:
        assert box.do(tenant, b'watched', [put('WRITEFULL', 0, b'x'), watch(3, 9)], W, osd=deaf, ns=b'x')['result'] == 0
        payload = u32(1) + u32(0xffffffff) + st(bytes(24 * MIB))
        for _ in range(24):
            quietly(lambda: box.send(loud, b'watched', [op('NOTIFY', struct.pack('<QQB', 1, 0, 0), payload)], R, ns=b'x'))
        neighbour.check()
        assert neighbour.grown_mib() < GROWN_MAX_MIB


@pytest.mark.parametrize('door', ['mon', 'osd'])
def test_handshakes_without_end_take_no_memory(server, neighbour, door):
    """Whoever has no key yet may make the server remember next to nothing."""
    target, open_ones, tries = server.mon_addr if door == 'mon' else server.osd_addr[0], [], None
    try:
        for n in range(3900):
            w = wire.Wire(*target[:2], source='127.%d.3.%d' % (40 + n // 200, n % 200 + 1), timeout=1)
            open_ones.append(w)

            def talk():
                w.banner()
                w.hello(wire.CLIENT, target)
                w.transcript = None
                w.raw(tries)
            tries = tries or w.encode(wire.AUTH_REQUEST, u32(99) + u32(0) + st(bytes(16000))) * 7
            quietly(talk)
        neighbour.check()
        assert neighbour.grown_mib() < GROWN_MAX_MIB / 2
    finally:
        for w in open_ones:
            w.close()


# -- commands and maps
def test_a_command_of_many_megabytes_is_no_burden(server, reader, neighbour):
    with server.mon(reader.alike(), mode=SECURE, timeout=LONG_S) as mon:
        for text in ('{"prefix": "%s"}' % ('x' * (16 * MIB)), '[' * MIB, '{"prefix": "osd pool ls", "a": %s}' % ('[' * 200_000),
                     '{"prefix": "osd pool get", "pool": "%s", "var": "size"}' % ('p' * (8 * MIB))):
            quietly(lambda: mon.command(text, timeout=LONG_S))
    neighbour.check()
    assert neighbour.grown_mib() < GROWN_MAX_MIB


def test_maps_of_tomorrow_take_no_place_from_others(server, user, admin, neighbour, mine):
    """Operations may wait for a newer map; who says that he has one fills those places with his own only."""
    box = server.pool(mine)
    nobody = server.login(user(mon='allow r', osd='allow r pool=nothing'))
    primary, crowd, now = box.place(b'o')[2], [], box.epoch
    try:
        box.epoch = 2**31
        for _ in range(18):                        # each connection may have 256 messages under way
            osd = server.osd(nobody, primary)
            crowd.append(osd)
            quietly(lambda: [box.send(osd, b'o', [ext('READ', 0, 1)], R) for _ in range(256)])
        with server.osd(admin, primary) as true:   # its map is a little newer than the OSD's
            box.epoch = now + 1
            box.send(true, b'o', [ext('READ', 0, 1)], R)
            box.epoch = now
            assert true.serves(), 'closed for what another fills'
        neighbour.check()
    finally:
        box.epoch = now
        for osd in crowd:
            osd.close()
