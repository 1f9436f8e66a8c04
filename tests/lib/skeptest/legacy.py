"""Messenger v1 by hand, towards an OSD: cephx by an authorizer, and messages with any signature.

    s = Legacy(server.legacy_osd(0), who)     # `who` has its tickets (Server.login)
    s.send(OSD_OP, front, data, version=8, compat=3, tid=1)                    # signed
    s.send(..., signature=lambda right: right ^ 1)                             # and not so
    m = s.recv()                              # dict(type, tid, front, data, signed)

Layouts: docs/protocol/ceph/01-messenger.md, 8.2. Errors: `Closed`, `Refused`.
"""
import socket
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from osdclient import FEATURES, crc32c
from skeptest.cephx import IV, challenge_in
from skeptest.wire import CLIENT, OSD, Closed

BANNER = b'ceph v027'
MSG, CLOSE = 7, 6
LEGACY_ADDR = 136
SEQ, BAD_AUTHORIZER, CHALLENGE = 13, 11, 16
LOSSY = 1
CEPHX = 2
COMPLETE, SIGNED = 1, 4


class Refused(PermissionError):
    """The answer to the connect; `tag` is what it was."""

    def __init__(self, tag):
        super().__init__('refused with tag %d' % tag)
        self.tag = tag


def signature(key, header_crc, crcs, lengths, seq):
    """Of a message: the XOR of the first four words of these numbers encrypted."""
    words = [header_crc]
    for crc, length in zip(crcs, lengths):
        words += [crc, length]
    plain = struct.pack('<8I', *words, seq & 0xffffffff)
    e = Cipher(algorithms.AES(key), modes.CBC(IV)).encryptor()
    out = 0
    for word in struct.unpack('<4Q', (e.update(plain + bytes([16]) * 16) + e.finalize())[:32]):
        out ^= word
    return out


class Legacy:
    """A session with an OSD as `who`; `ticket` and `nonce` may be other ones than its own."""

    def __init__(self, place, who, ticket=None, nonce=77, timeout=30):
        self.sock, self.seq = socket.create_connection(place, timeout), 0
        self.ticket = ticket or who.tickets[OSD]
        self.exactly(len(BANNER) + 2 * LEGACY_ADDR)
        mine = struct.pack('<II', 0, nonce) + bytes(128)
        self.sock.sendall(BANNER + mine)
        tag, payload = self._connect(who.authorizer(self.ticket, nonce))
        if tag == CHALLENGE:
            tag, payload = self._connect(who.authorizer(self.ticket, nonce, challenge_in(payload, self.ticket)))
        if tag != SEQ:
            raise Refused(tag)
        self.exactly(8)
        self.sock.sendall(bytes(8))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _connect(self, authorizer):
        head = struct.pack('<QIIIIIIB', FEATURES, CLIENT, 1, 0, 24, CEPHX, len(authorizer), LOSSY)
        self.sock.sendall(head + authorizer)
        reply = self.exactly(26)
        return reply[0], self.exactly(struct.unpack_from('<I', reply, 21)[0])

    def exactly(self, n):
        out = b''
        while len(out) < n:
            try:
                got = self.sock.recv(n - len(out))
            except ConnectionError as e:
                raise Closed(str(e))
            if not got:
                raise Closed('after %d of %d bytes' % (len(out), n))
            out += got
        return out

    def send(self, typ, front, data=b'', version=1, compat=1, tid=0, sign=True, signature_of=lambda right: right):
        self.seq += 1
        head = struct.pack('<QQHHHIIIHBqHH', self.seq, tid, typ, 63, version, len(front), 0, len(data), 0, CLIENT, 0, compat, 0)
        crc = crc32c(head, 0)
        crcs = [crc32c(front, 0), 0, crc32c(data, 0)]
        right = signature(self.ticket.key, crc, crcs, [len(front), 0, len(data)], self.seq)
        foot = struct.pack('<IIIQB', *crcs, signature_of(right) if sign else 0, COMPLETE | SIGNED * sign)
        self.sock.sendall(bytes([MSG]) + head + struct.pack('<I', crc) + front + data + foot)

    def recv(self):
        tag = self.exactly(1)[0]
        assert tag == MSG, tag
        head = self.exactly(53)
        seq, tid, typ, _, _, front, middle, data = struct.unpack_from('<QQHHHIII', head)
        body = [self.exactly(n) for n in (front, middle, data)]
        foot = self.exactly(21)
        crcs, sig, flags = struct.unpack_from('<III', foot), *struct.unpack_from('<QB', foot, 12)
        right = signature(self.ticket.key, struct.unpack_from('<I', head, 49)[0], crcs, (front, middle, data), seq)
        return dict(type=typ, tid=tid, front=body[0], data=body[2], signed=bool(flags & SIGNED) and sig == right)
