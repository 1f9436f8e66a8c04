"""Who somebody is: tickets with flipped bits, other people's ids, keys that were taken away. Points 1, 4, 6 and 9 of the
issue "Found under fire"."""
import time

import pytest

from osdclient import KNOWN_REDIR, READ, W, ext, put
from skeptest.cephx import NO_TICKET, flipped
from skeptest.raw import Closed, Refused, Silent
from skeptest.run import wait_until
from skeptest.wire import AUTH, MGR, OSD

R = READ | KNOWN_REDIR
SOON_S = 60                                        # for what shall hold within a second, on a machine that does other things


def places():
    """Addresses of this machine: an attacker has many, and a limit for one must not hide what the others find."""
    return ('127.77.%d.%d' % (i // 200, i % 200 + 1) for i in range(20000))


def tried(attempt):
    """What became of an attempt to get in: None if it was refused, in whatever way."""
    try:
        return attempt()
    except (Refused, Closed, PermissionError):
        return None


@pytest.mark.parametrize('service', [OSD, MGR])
def test_no_flipped_bit_of_a_ticket_is_accepted(server, user, service):
    """With AES-CBC alone, a bit of one block is a bit of the next: `allow_all` among them."""
    who = server.login(user(mon='allow r', osd='allow r', mgr='allow r'))
    t, door = who.tickets[service], {OSD: lambda **kw: server.osd(who, 0, **kw), MGR: lambda **kw: server.mgr(who, **kw)}[service]
    door().close()
    got_in = []
    for byte, source in zip(range(len(t.blob)), places()):
        session = tried(lambda: door(ticket=t.altered(blob=flipped(t.blob, byte * 8)), source=source))
        if session:
            session.close()
            got_in.append(byte)
    assert not got_in, 'accepted with a bit flipped in bytes %s of %d' % (got_in, len(t.blob))


def test_no_flipped_bit_makes_an_admin(server, user, theirs):
    """The attack itself: from the rights of nobody to `allow *`."""
    who = server.login(user(mon='allow r', osd='allow r pool=nothing'))
    t, box = who.tickets[OSD], server.pool(theirs)
    primary, won = box.place(b'o')[2], []
    for bit, source in zip(range(0, len(t.blob) * 8), places()):
        if bit % 8:                                # the lowest bit of each byte is enough for a truth value
            continue
        session = tried(lambda: server.osd(who, primary, ticket=t.altered(blob=flipped(t.blob, bit)), source=source))
        if session:
            with session:
                if box.do(who, b'o', [put('WRITEFULL', 0, b'mine now')], W, osd=session)['result'] == 0:
                    won.append(bit)
    assert not won, 'writes what it must not, with one of the bits %s flipped' % won


def test_no_flipped_bit_of_a_ticket_renews_others(server, user):
    who = server.login(user(mon='allow r', osd='allow r'))
    t, got, alike = who.tickets[AUTH], [], who.alike()
    mon = server.mon(who.alike(gid=0, tickets={}))
    for bit in range(len(t.blob) * 8):
        alike.tickets[AUTH] = t.altered(blob=flipped(t.blob, bit))
        try:
            mon.renew(alike, OSD)
            got.append(bit)
        except (Refused, PermissionError):
            pass
        except (Closed, Silent):
            mon.close()
            mon = server.mon(who.alike(gid=0, tickets={}))
    mon.close()
    assert not got, 'renewed by a ticket with one of the bits %s flipped' % got


def test_a_flipped_ticket_ends_no_server_and_a_true_one_still_works(server, user):
    who = server.login(user(mon='allow r', osd='allow r', mgr='allow r'))
    for blob in (b'', b'\0', bytes(16), bytes(4096), who.tickets[OSD].blob[:-1], who.tickets[OSD].blob + bytes(16),
                 who.tickets[MGR].blob, who.tickets[AUTH].blob):
        assert tried(lambda: server.osd(who, 0, ticket=who.tickets[OSD].altered(blob=blob))) is None, blob[:32]
    with server.osd(who, 0) as osd:
        assert osd.serves()


@pytest.mark.parametrize('shown', ['garbage', 'garbage of a known secret', 'a service ticket', 'no ticket', 'its own ticket'])
def test_nobody_claims_a_global_id_that_is_not_his(server, user, shown):
    """As CVE-2021-20288."""
    victim = server.login(user(mon='allow r', osd='allow rw'))
    thief = server.login(user(mon='allow r', osd='allow rw'))
    secret_id = thief.tickets[AUTH].secret_id
    old = {'garbage': NO_TICKET.altered(secret_id=77, blob=b'\x5a' * 128),
           'garbage of a known secret': NO_TICKET.altered(secret_id=secret_id, blob=b'\x5a' * 128),
           'no ticket': NO_TICKET, 'its own ticket': thief.tickets[AUTH],
           'a service ticket': thief.tickets[OSD]}[shown]
    alike = thief.alike()
    session = tried(lambda: server.mon(alike, claim=victim.gid, old=old))
    if session:
        session.close()
        assert alike.gid != victim.gid, 'has the id %d of another now' % victim.gid


def test_its_own_global_id_is_given_back(server, user):
    who = server.login(user(mon='allow r', osd='allow rw'))
    gid = who.gid
    server.login(who)
    assert who.gid == gid


def test_nobody_eats_anothers_write(server, user, mine):
    """Who sends under another's id and number has that one's write taken for a repetition: acknowledged, never done."""
    box = server.pool(mine)
    victim = server.login(user(mon='allow r', osd='allow rw'))
    thief = server.login(user(mon='allow r', osd='allow rw'))
    primary = box.place(b'target')[2]

    def claimed():
        alike = thief.alike()
        server.mon(alike, claim=victim.gid, old=NO_TICKET.altered(secret_id=77, blob=b'\x5a' * 128)).close()
        return server.osd(alike, primary)
    ways = {'a claimed id': claimed,
            'the id said in the ident': lambda: server.osd(thief, primary, ident={'gid': victim.gid}),
            'the id said of an OSD': lambda: server.osd(thief, primary, hello=OSD, ident={'gid': victim.gid}),
            'the id in the request': lambda: server.osd(thief, primary)}
    for n, (way, door) in enumerate(ways.items()):
        oid, tid = b'target', 10**9 + n
        try:
            session = door()
        except (Refused, Closed, ConnectionError):
            continue                               # not even let in
        with session:
            box.do(thief, oid, [put('WRITEFULL', 0, b'thief')], W, osd=session, tid=tid, gid=victim.gid)
        with server.osd(victim, primary) as osd:
            want = b'victim %d' % n
            assert box.do(victim, oid, [put('WRITEFULL', 0, want)], W, osd=osd, tid=tid, gid=victim.gid)['result'] == 0
            assert box.do(victim, oid, [ext('READ', 0, 100)], R, osd=osd)['outs'] == [want], 'never done: ' + way


def ended(session, does):
    """True once the session is closed, or what it does is refused."""
    try:
        return does() < 0
    except (Closed, Silent):
        return True
    except PermissionError:
        return True


def test_a_removed_key_is_worth_nothing_soon(server, user, skep, mine):
    """Sessions that are open, tickets, the AUTH ticket: all of them."""
    who = user(mon='allow *', osd='allow *', mgr='allow *')
    box = server.pool(mine)
    primary = box.place(b'removed')[2]
    mon = server.mon(who)
    old = who.alike()
    osd, mgr = server.osd(who, primary), server.mgr(who)
    assert mon.command({'prefix': 'osd pool ls'})[0] == 0
    skep.ceph('auth', 'rm', who.name)
    evil = {'prefix': 'auth get-or-create', 'entity': 'client.evil', 'caps': ['mon', 'allow *']}
    assert ended(mon, lambda: mon.command(evil)[0]), 'a removed client made itself a key'
    assert 'client.evil' not in skep.ceph('auth', 'ls').out
    wait_until(lambda: ended(osd, lambda: box.do(who, b'removed', [put('WRITEFULL', 0, b'x')], W, osd=osd)['result']), SOON_S,
               what='the session with the OSD to be worth nothing')
    wait_until(lambda: ended(mgr, lambda: mgr.command({'prefix': 'pg stat'})[0]), SOON_S,
               what='the session with the manager to be worth nothing')
    wait_until(lambda: tried(lambda: server.osd(old, primary).close() or True) is None, SOON_S, what='its tickets to be refused')
    assert tried(lambda: server.mgr(old)) is None
    assert tried(lambda: server.mon(old)) is None
    for session in (mon, osd, mgr):
        session.close()


def test_fewer_capabilities_count_soon_in_sessions_that_are_open(server, user, skep, mine):
    who = user(mon='allow *', osd='allow rw', mgr='allow *')
    box = server.pool(mine)
    primary = box.place(b'fewer')[2]
    mon = server.mon(who)
    old = who.alike()
    osd = server.osd(who, primary)
    assert box.do(who, b'fewer', [put('WRITEFULL', 0, b'x')], W, osd=osd)['result'] == 0
    skep.ceph('auth', 'caps', who.name, 'mon', 'allow r', 'osd', 'allow r')
    make = {'prefix': 'auth get-or-create', 'entity': 'client.evil2', 'caps': ['mon', 'allow *']}
    assert ended(mon, lambda: mon.command(make)[0]), 'rights that were taken away'

    def write(session):
        return box.do(who, b'fewer', [put('WRITEFULL', 0, b'y')], W, osd=session)['result']
    wait_until(lambda: ended(osd, lambda: write(osd)), SOON_S, what='the open session to lose the right to write')

    def with_old_ticket():
        session = tried(lambda: server.osd(old, primary))
        if session is None:
            return True
        with session:
            return ended(session, lambda: write(session))
    wait_until(with_old_ticket, SOON_S, what='the old ticket to lose the right to write')
    server.login(who)
    assert box.do(who, b'fewer', [ext('READ', 0, 1)], R)['result'] == 0
    for session in (mon, osd):
        session.close()


def test_wrong_keys_can_not_be_tried_by_the_hundred(server, user, skep):
    """A second's worth of wrong keys from one address; who has the right one gets in from elsewhere meanwhile."""
    who, seconds, most, source = user(mon='allow r'), 3, 120, '127.88.8.8'
    until, tries = time.monotonic() + seconds, 0
    while time.monotonic() < until and tries <= most:
        try:
            server.mon(who.alike(), wrong=1, source=source, timeout=max(0.1, until - time.monotonic())).close()
            raise AssertionError('a wrong key was accepted')
        except (Refused, Closed, Silent, OSError):
            tries += 1
        if tries % 10 == 0:
            server.mon(who.alike(), source='127.99.9.9').close()
    assert tries <= most, '%d wrong keys in %d s' % (tries, seconds)


def test_the_rotating_secrets_are_no_clients_business(server, user):
    """0x0400 asks for what seals everybody's tickets."""
    from osdclient import Reader, st, u32
    from skeptest.raw import MAUTH, PAXOS
    who = user(mon='allow *', osd='allow *')
    with server.mon(who) as mon:
        try:
            m = mon.ask(MAUTH, PAXOS + u32(2) + st(b'\x00\x04') + u32(0), MAUTH + 1)
        except Closed:
            return
        r = Reader(m['front'])
        r.get('I')
        assert r.get('i') < 0, 'given away'


