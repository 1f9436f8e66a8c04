"""The hand-made client itself: what it says truly is accepted, so that a refusal elsewhere is one of what it changed."""
import pytest

from osdclient import KNOWN_REDIR, READ, W, ext, put
from skeptest import wire
from skeptest.cephx import flipped
from skeptest.raw import Refused, Server
from skeptest.wire import MGR, OSD

pytestmark = [pytest.mark.own, pytest.mark.cephx]
R = READ | KNOWN_REDIR


@pytest.fixture(scope='module')
def server(cluster):
    return Server(cluster)


@pytest.mark.parametrize('mode', [wire.CRC, wire.SECURE])
def test_a_true_client_is_served(server, pool, mode):
    who = server.entity('client.admin')
    with server.mon(who, mode=mode) as mon:
        code, _, out = mon.command({'prefix': 'osd pool ls'})
        assert code == 0 and pool in out.decode().split(), out
        mon.renew(who, OSD | MGR)
        assert mon.pool_op(0x21, 999)[0] == -2
    with server.mgr(who, mode=mode) as mgr:
        assert mgr.command({'prefix': 'pg stat'})[0] == 0
        assert mgr.tell({'prefix': 'version'})[0] == 0
    box = server.pool(pool)
    with server.osd(who, box.place(b'o')[2], mode=mode) as osd:
        assert osd.tell({'prefix': 'version'}, fsid=server.fsid)[0] == 0
        data = bytes(range(256)) * 64
        assert box.do(who, b'o', [put('WRITEFULL', 0, data)], W, osd=osd)['result'] == 0
        assert box.do(who, b'o', [ext('READ', 0, len(data))], R, osd=osd)['outs'] == [data]


def test_what_it_says_otherwise_is_refused(server):
    who = server.entity('client.admin')
    with pytest.raises(Refused):
        server.mon(who.alike(), wrong=1)
    server.login(who)
    t = who.tickets[OSD]
    with pytest.raises(Refused):
        server.osd(who, 0, ticket=t.altered(blob=flipped(t.blob, 9)))
    with pytest.raises(Refused):
        server.osd(who, 0, claim=who.gid + 1)
    with server.osd(who, 0) as osd:
        assert osd.serves()
