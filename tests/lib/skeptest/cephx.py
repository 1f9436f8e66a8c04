"""cephx by hand: an entity's key, the tickets that it was given, and everything that it shows to others, each of which a
test may change before it is sent.

Layouts: docs/protocol/auth.md and what Ceph 16.2 sends. Keys of type 1 only (AES-128-CBC, the fixed IV of the protocol).
"""
import base64
import hashlib
import hmac
import os
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from osdclient import Reader, st, u8, u32, u64
from skeptest.wire import AUTH, CLIENT, MDS, MGR, MON, OSD

IV = b'cephsageyudagreg'
MAGIC = 0xff009cad8826aa55
KINDS = {'mon': MON, 'mds': MDS, 'osd': OSD, 'client': CLIENT, 'mgr': MGR}
MON_MODE, AUTHORIZER_MODE = 10, 1                  # first byte of an authentication payload


def encrypt(key, plain):
    n = 16 - len(plain) % 16
    e = Cipher(algorithms.AES(key), modes.CBC(IV)).encryptor()
    return e.update(plain + bytes([n]) * n) + e.finalize()


def decrypt(key, sealed):
    d = Cipher(algorithms.AES(key), modes.CBC(IV)).decryptor()
    plain = d.update(sealed) + d.finalize()
    return plain[:-min(plain[-1], 16)]


def seal(key, plain):
    return encrypt(key, u8(1) + u64(MAGIC) + plain)


def unseal(key, sealed):
    plain = decrypt(key, sealed)
    if struct.unpack_from('<Q', plain, 1)[0] != MAGIC:
        raise ValueError('sealed with another key')
    return Reader(plain[9:])


def proof(key, server_challenge, client_challenge):
    sealed = seal(key, u64(server_challenge) + u64(client_challenge))
    out = 0
    for word in struct.unpack('<4Q', (u32(len(sealed)) + sealed)[:32]):
        out ^= word
    return out


def sign(key, transcript):
    return hmac.new(key, transcript, hashlib.sha256).digest() if key else bytes(32)


def read_key(r):
    """A CryptoKey: type, creation time, secret."""
    kind, _, _ = r.get('HII')
    secret = r.raw(r.get('H'))
    if kind != 1 or len(secret) != 16:
        raise ValueError('a key of type %d' % kind)
    return secret


def key_of(text):
    """The secret in a keyring's base64 text."""
    return read_key(Reader(base64.b64decode(text)))


def flipped(b, bit):
    """These bytes with one bit the other way."""
    out = bytearray(b)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


class Ticket:
    """For one service: the session key, and the blob that only the service can open."""

    def __init__(self, service, key, secret_id=0, blob=b'', validity=0):
        self.service, self.key, self.secret_id, self.blob, self.validity = service, key, secret_id, blob, validity

    def encode(self):
        return u8(1) + u64(self.secret_id) + st(self.blob)

    def altered(self, **kw):
        return Ticket(**{**vars(self), **kw})


NO_TICKET = Ticket(AUTH, b'')


def read_tickets(r, principal, old=None):
    """The tickets of a reply, sealed for `principal`; `old` is the session key of a ticket that was shown."""
    r.get('B')
    out = {}
    for _ in range(r.get('I')):
        service, _ = r.get('IB')
        inner = unseal(principal, r.st())
        inner.get('B')
        key, (validity, _) = read_key(inner), inner.get('II')
        wrapped, blob = r.get('B'), r.st()
        if wrapped:
            blob = unseal(old, blob).st()
        b = Reader(blob)
        b.get('B')
        secret_id = b.get('Q')
        out[service] = Ticket(service, key, secret_id, b.st(), validity)
    return out


class Entity:
    """A name and its key, and what monitors have given it. `name` as in `client.admin`."""

    def __init__(self, name, secret, gid=0, tickets=()):
        self.kind, self.id = name.split('.', 1)
        self.name, self.secret, self.gid, self.tickets = name, secret, gid, dict(tickets)

    def encode(self):
        return u32(KINDS[self.kind]) + st(self.id)

    def alike(self, **kw):
        """The same entity in another session: shares nothing that changes."""
        other = Entity(self.name, self.secret, self.gid, self.tickets)
        vars(other).update(kw)
        return other

    # -- towards a monitor
    def ask(self):
        return u8(MON_MODE) + self.encode() + u64(self.gid)

    def answer(self, reply, old=None, services=MON | OSD | MGR | AUTH, tamper=None):
        """What answers a monitor's challenge. `old`: the ticket shown for the id that is claimed."""
        r = Reader(reply)
        r.get('B')
        challenge, mine = r.get('Q'), int.from_bytes(os.urandom(8), 'little')
        old = old or (self.tickets.get(AUTH, NO_TICKET) if self.gid else NO_TICKET)
        return (struct.pack('<HBQQ', 0x100, 3, mine, proof(self.secret, challenge, mine) ^ (tamper or 0)) + old.encode() +
                u32(services))

    def granted(self, gid, payload):
        """Takes AUTH_DONE of a monitor; gives (session key, connection secret)."""
        r = Reader(payload)
        _, result = r.get('Hi')
        if result:
            raise PermissionError(result)
        old = self.tickets.get(AUTH)
        got = read_tickets(r, self.secret, old.key if old else None)
        key, secret = got[AUTH].key, b''
        if r.left():
            secret = unseal(key, Reader(r.st()).st()).st()
            extra = r.st()
            if extra:
                got.update(read_tickets(Reader(extra), key))
        self.gid = gid
        self.tickets.update(got)
        return key, secret

    # -- towards every other service
    def authorizer(self, ticket, nonce, challenge=None, gid=None, service=None):
        body = struct.pack('<BQBQ', 2, nonce, challenge is not None, ((challenge or -1) + 1) % 2**64)
        return (u8(AUTHORIZER_MODE) + u64(self.gid if gid is None else gid) +
                u32(ticket.service if service is None else service) + ticket.encode() + st(seal(ticket.key, body)))

    def renewal(self, services, nonce=7):
        """The payload of MAuth that asks for further tickets."""
        return struct.pack('<H', 0x200) + self.authorizer(self.tickets[AUTH], nonce) + u8(1) + u32(services)

    def renewed(self, payload):
        r = Reader(payload)
        _, result = r.get('Hi')
        if result:
            raise PermissionError(result)
        self.tickets.update(read_tickets(r, self.tickets[AUTH].key))


def challenge_in(reply, ticket):
    r = unseal(ticket.key, reply)
    r.get('B')
    return r.get('Q')


def secret_in(payload, ticket):
    """The connection secret in a service's AUTH_DONE; empty in crc mode."""
    r = unseal(ticket.key, Reader(payload).st())
    r.get('BQ')
    return r.st() if r.left() else b''
