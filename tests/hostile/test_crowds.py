"""Connections that do nothing, by the thousand: who has work still gets in. Point 16 of the issue "Found under fire"."""
import resource

import pytest

from osdclient import KNOWN_REDIR, READ, W, Silent, ext, put
from skeptest import wire
from skeptest.raw import Closed, Refused
from skeptest.wire import CRC

R = READ | KNOWN_REDIR
CROWD = 4300                                       # more than one port takes


@pytest.fixture(scope='module', autouse=True)
def descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < CROWD + 500:
        pytest.skip('not enough file descriptors: %d' % hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, CROWD + 500), hard))


def enter(make, most=CROWD, give_up=200):
    """As many as get in; ends where the door stays shut."""
    got, refused = [], 0
    for n in range(most):
        try:
            got.append(make(n))
            refused = 0
        except (Closed, Silent, Refused, OSError, ConnectionError):
            refused += 1
            if refused >= give_up:
                break
    return got


def from_one(_):
    return '127.21.0.1'


def from_many(n):
    return '127.21.%d.%d' % (n // 200, n % 200 + 1)


@pytest.mark.parametrize('door', ['mon', 'osd'])
@pytest.mark.parametrize('source', [from_one, from_many])
def test_silent_connections_shut_no_port(server, admin, mine, door, source):
    target = server.mon_addr if door == 'mon' else server.osd_addr[0]
    crowd = enter(lambda n: wire.Wire(*target[:2], source=source(n)))
    try:
        assert len(crowd) > 100, 'the attack did not begin: %d connections' % len(crowd)
        if door == 'mon':
            with server.mon(admin.alike()) as mon:
                assert mon.command({'prefix': 'osd pool ls'})[0] == 0
        else:
            with server.osd(admin, 0) as osd:
                assert osd.serves()
    finally:
        for w in crowd:
            w.close()


@pytest.mark.parametrize('door', ['mon', 'osd'])
def test_one_key_fills_no_port(server, user, admin, mine, door):
    """Authenticated, and then silent: limits go by who it is, too."""
    who = server.login(user(mon='allow r', osd='allow r'))

    def one(n):
        if door == 'osd':
            return server.osd(who, 0, mode=CRC, source=from_many(n))
        return server.mon(who.alike(gid=0, tickets={}), mode=CRC, source=from_many(n), services=0)
    crowd = enter(one, give_up=20)
    try:
        assert len(crowd) > 10, 'the attack did not begin: %d connections' % len(crowd)
        if door == 'mon':
            with server.mon(admin.alike()) as mon:
                assert mon.command({'prefix': 'osd pool ls'})[0] == 0
        else:
            with server.osd(admin, 0) as osd:
                assert osd.serves()
    finally:
        for s in crowd:
            s.close()


def test_a_client_is_served_after_the_crowd_has_gone(server, admin, mine):
    box = server.pool(mine)
    assert box.do(admin, b'after', [put('WRITEFULL', 0, b'x')], W)['result'] == 0
    assert box.do(admin, b'after', [ext('READ', 0, 1)], R)['outs'] == [b'x']
