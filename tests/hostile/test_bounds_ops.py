"""Short messages that cost much: each once kept an OSD busy beyond its lease, or took gigabytes. They are refused, the OSD stays
up, and a client beside the attacker is served on (docs/protocol/osd.md, Limits).
"""
import json
import struct
import threading

import pytest
import rados

from osdclient import KNOWN_REDIR, READ, W, call, ext, hobject, op, put, st, u32, u64
from skeptest.cluster import unique
from skeptest.raw import Server

pytestmark = [pytest.mark.own, pytest.mark.cephx]
R = READ | KNOWN_REDIR
MIB = 1 << 20
E2BIG, EFBIG, EMSGSIZE = -7, -27, -90


@pytest.fixture(scope='module')
def hostile(cluster):
    """A pool, a reader's and a writer's session factory."""
    pool = cluster.make_copies(3, pg_num=4)
    server = Server(cluster)
    reader = server.entity(unique('client.reader'), mon='allow r', osd='allow r pool=%s' % pool)
    writer = server.entity(unique('client.writer'), mon='allow r', osd='allow rw pool=%s' % pool)
    for who in (reader, writer):
        server.login(who)
    yield cluster, server, server.pool(pool), reader, writer
    cluster.drop_pool(pool)


@pytest.fixture
def io(hostile):
    cluster, _, box, _, _ = hostile
    client = rados.Rados(conffile=cluster.conf, name='client.admin')
    client.connect()
    yield client.open_ioctx(box.name)
    client.shutdown()


class Beside:
    """A well-behaved client beside an attack: it writes all the time; nothing fails, and no OSD is marked down meanwhile."""

    def __init__(self, cluster, pool):
        self.cluster, self.pool, self.ended, self.failed, self.count = cluster, pool, threading.Event(), None, 0

    def ups(self):
        return {o['osd']: (o['up'], o['up_from']) for o in self.cluster.ask('osd', 'dump')['osds']}

    def __enter__(self):
        self.before = self.ups()
        self.thread = threading.Thread(target=self.write)
        self.thread.start()
        return self

    def write(self):
        try:
            client = rados.Rados(conffile=self.cluster.conf, name='client.admin')
            client.connect()
            io = client.open_ioctx(self.pool)
            while not self.ended.is_set():
                io.write_full('well-behaved-%d' % (self.count % 16), b'x' * 4096)
                self.count += 1
            client.shutdown()
        except Exception as e:                     # whatever it is, the test has failed
            self.failed = e

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join(60)
        if kind is None:
            assert self.failed is None, self.failed
            assert self.count > 0
            assert self.ups() == self.before, 'an OSD was marked down'


def checksum():
    return op('CHECKSUM', struct.pack('<QQIB', 0, 0, 0, 2), u32(0))


def write_same(length, data):
    return op('WRITESAME', struct.pack('<QQQ', 0, length, len(data)), data)


def large(io, name, mib):
    for at in range(0, mib, 8):
        io.write(name, bytes(8 * MIB), at * MIB)


def test_a_readers_key_does_not_stop_an_osd(hostile, io):
    cluster, server, box, reader, _ = hostile
    large(io, 'large', 64)
    many = [checksum()] * 300
    listing = op('PGNLS', struct.pack('<QI', 1024, 0), hobject(box.id))
    with Beside(cluster, box.name):
        assert box.do(reader, b'large', many, R)['result'] == E2BIG
        assert box.do(reader, b'large', [ext('READ', 0, 0)] * 300, R)['result'] == E2BIG
        assert box.do(reader, b'large', [ext('SPARSE_READ', 0, 64 * MIB)] * 300, R)['result'] == E2BIG
        assert box.do(reader, b'', [listing] * 1000, R, ps=0)['result'] == E2BIG
        # Many at once, and not waited for.
        osd = server.osd(reader, box.place(b'large')[2])
        tids = [box.send(osd, b'large', many, R) for _ in range(100)]
        assert {box.reply(osd, tid)['result'] for tid in tids} == {E2BIG}
        osd.close()



def test_short_writes_do_not_become_gigabytes(hostile):
    cluster, _, box, _, writer = hostile
    with Beside(cluster, box.name):
        assert box.do(writer, b'same', [write_same(128 * MIB, b'z')] * 4, W)['result'] == EMSGSIZE
        assert box.do(writer, b'same', [put('APPEND', 0, b'x')] * 3000, W)['result'] == E2BIG
        assert box.do(writer, b'same', [write_same(32 * MIB, b'z')], W)['result'] == 0


def test_half_a_million_rows_are_not_one_write(hostile):
    cluster, _, box, _, writer = hostile
    rows = u32(500_000) + b''.join(st('%08d' % n) + st(b'v') for n in range(500_000))
    osd = hostile[1].osd(writer, box.place(b'rows')[2], mode=2)
    with Beside(cluster, box.name):
        assert box.do(writer, b'rows', [op('OMAPSETVALS', data=rows)], W, osd=osd)['result'] == E2BIG
        some = u32(32_768) + b''.join(st('%08d' % n) + st(b'v') for n in range(32_768))
        assert box.do(writer, b'rows', [op('OMAPSETVALS', data=some)], W, osd=osd)['result'] == 0
    osd.close()


def test_large_xattrs_are_refused(hostile, io):
    cluster, _, box, _, _ = hostile
    with Beside(cluster, box.name):
        for n in range(8):
            with pytest.raises(rados.Error) as e:
                io.set_xattr('poison', 'a%d' % n, bytes(12 * MIB))
            assert e.value.errno == -EFBIG
        io.set_xattr('poison', 'a', bytes(128 << 10))
        assert io.get_xattr('poison', 'a') == bytes(128 << 10)


def test_class_methods_are_charged_too(hostile):
    """A header with many settings, listed again and again by one message."""
    cluster, server, box, _, _ = hostile
    user = server.login(server.entity(unique('client.rbd'), mon='profile rbd', osd='profile rbd pool=%s' % box.name))
    settings = u32(5000) + b''.join(st('metadata_%05d' % n) + st(b'v' * 100) for n in range(5000))
    listing = call('rbd', 'metadata_list', st('') + u64(5000))
    with Beside(cluster, box.name):
        assert box.do(user, b'rbd_header.1', [op('OMAPSETVALS', data=settings)], W)['result'] == 0
        assert box.do(user, b'rbd_header.1', [listing] * 2, R)['result'] == 0
        assert box.do(user, b'rbd_header.1', [listing] * 1000, R)['result'] == E2BIG


def test_what_stock_clients_send_is_served(hostile, io):
    """The largest object in one read, and many rows, written and listed as clients do."""
    cluster, _, box, _, _ = hostile
    large(io, 'whole', 128)
    assert len(io.read('whole', 128 * MIB)) == 128 * MIB
    for part in range(0, 100_000, 20_000):
        with rados.WriteOpCtx() as w:
            keys = tuple('%08d' % n for n in range(part, part + 20_000))
            io.set_omap(w, keys, (b'v',) * len(keys))
            io.operate_write_op(w, 'map')
    listed = cluster.rados(box.name, 'listomapkeys', 'map', timeout=120).out.split()
    assert len(listed) == 100_000
    tell = cluster.ceph('tell', 'osd.0', 'config', 'get', 'osd_max_attr_size').out
    assert json.loads(tell) == {'osd_max_attr_size': str(128 << 10)}
