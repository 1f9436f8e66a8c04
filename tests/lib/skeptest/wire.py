"""Messenger 2.1, frame by frame, in crc and secure mode: what hand-made clients send that stock ones never would.

    w = Wire(ip, port)                 # connected; nothing is sent yet
    w.banner(); w.hello(CLIENT, target)
    w.frame(AUTH_REQUEST, payload)     # any tag, any segments, in any order
    tag, segs = w.recv_frame()
    w.secure(secret)                   # from here on AES-GCM, by a connection secret of 64 bytes
    w.raw(b'...')                      # and bytes that are no frame at all

Invariants: nothing is checked that a hostile peer may want to do wrong; every wait ends (`Silent`), and so does a
connection that the peer has closed (`Closed`). Sessions and messages are in `skeptest.raw`.
"""
import select
import socket
import struct
import time

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from osdclient import Silent, addr, crc32c, u8, u32

(HELLO, AUTH_REQUEST, AUTH_BAD_METHOD, AUTH_REPLY_MORE, AUTH_REQUEST_MORE, AUTH_DONE, AUTH_SIGNATURE, CLIENT_IDENT,
 SERVER_IDENT, MISSING_FEATURES, RECONNECT, SESSION_RESET, SESSION_RETRY, RETRY_GLOBAL, RECONNECT_OK, WAIT, MESSAGE,
 KEEPALIVE2, KEEPALIVE2_ACK, ACK) = range(1, 21)
MON, MDS, OSD, CLIENT, MGR, AUTH = 1, 2, 4, 8, 16, 32
CRC, SECURE = 1, 2
ANSWER_S = 30
INLINE = 48                                        # bytes of segment 0 that travel with a secure preamble


class Closed(ConnectionError):
    """The peer has closed the connection."""


def preamble(tag, lengths, alignments=(8, 8, 8, 4096), flags=0):
    """The first 32 bytes of a frame that announces segments of these lengths, whatever follows."""
    out = u8(tag) + u8(len(lengths))
    for i in range(4):
        out += struct.pack('<IH', lengths[i], alignments[i]) if i < len(lengths) else bytes(6)
    out += u8(flags) + u8(0)
    return out + u32(crc32c(out, 0))


class _Stream:
    """One direction of secure mode: a key, and a nonce that counts."""

    def __init__(self, key, nonce):
        self.aes, self.fixed, self.count = AESGCM(key), nonce[:4], struct.unpack('<Q', nonce[4:])[0]

    def nonce(self):
        n = self.fixed + struct.pack('<Q', self.count)
        self.count = (self.count + 1) % 2**64
        return n

    def seal(self, plain):
        return self.aes.encrypt(self.nonce(), plain, None)

    def open(self, sealed):
        try:
            return self.aes.decrypt(self.nonce(), sealed, None)
        except InvalidTag:
            raise ConnectionError('a frame that does not open')


def padded(b):
    return b + bytes(-len(b) % 16)


class Wire:
    """One connection, from the client's side."""

    def __init__(self, ip, port, timeout=ANSWER_S, source=None, receive_buffer=None):
        self.s = socket.socket()
        if receive_buffer:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        if source:
            self.s.bind((source, 0))
        self.s.settimeout(timeout)
        try:
            self.s.connect((ip, port))
        except OSError:
            self.s.close()
            raise
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout, self.buf = timeout, bytearray()
        self.ready = select.poll()                 # `select` knows no descriptor above 1023
        self.ready.register(self.s, select.POLLIN)
        self.transcript = [b'', b'']               # sent, received; None once the handshake has signed them
        self.tx = self.rx = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.s.close()

    # -- bytes
    def raw(self, data):
        if self.transcript:
            self.transcript[0] += data
        try:
            self.s.sendall(data)
        except socket.timeout:
            raise Silent()
        except (ConnectionError, OSError):
            raise Closed('while sending')

    def rd(self, n, until=None):
        until = time.monotonic() + self.timeout if until is None else until
        while len(self.buf) < n:
            if not self.ready.poll(max(0, until - time.monotonic()) * 1000):
                raise Silent()
            try:
                d = self.s.recv(1 << 20)
            except ConnectionError:
                d = b''
            if not d:
                raise Closed('by the peer')
            self.buf += d
        v = bytes(self.buf[:n])
        del self.buf[:n]
        if self.transcript:
            self.transcript[1] += v
        return v

    def closed(self, timeout=ANSWER_S):
        """True once the peer has closed, whatever it sends before; False if it has not within the time."""
        until = time.monotonic() + timeout
        while True:
            try:
                self.rd(len(self.buf) + 1, until)
            except Closed:
                return True
            except Silent:
                return False

    # -- frames
    def banner(self, supported=1, required=0):
        self.raw(b'ceph v2\n' + struct.pack('<HQQ', 16, supported, required))
        if self.rd(8) != b'ceph v2\n':
            raise ConnectionError('not a messenger v2 peer')
        self.rd(struct.unpack('<H', self.rd(2))[0])

    def hello(self, kind, target):
        self.frame(HELLO, u8(kind) + addr(*target))
        self.want(HELLO)

    def secure(self, secret):
        key, server, client = secret[:16], secret[16:28], secret[28:40]
        self.rx, self.tx = _Stream(key, server), _Stream(key, client)

    def encode(self, tag, *segs):
        """The bytes of one frame. In secure mode they are good for this place in the stream only."""
        segs = list(segs)
        while len(segs) > 1 and not segs[-1]:
            segs.pop()
        pre = preamble(tag, [len(s) for s in segs])
        if self.tx:
            first = padded(segs[0])
            out = [self.tx.seal(pre + first[:INLINE].ljust(INLINE, b'\0'))]
            if len(first) > INLINE:
                out.append(self.tx.seal(first[INLINE:]))
            if len(segs) > 1:
                out.append(self.tx.seal(b''.join(map(padded, segs[1:])) + b'\x0e' + bytes(15)))
            return b''.join(out)
        out = pre + segs[0] + (u32(crc32c(segs[0])) if segs[0] else b'')
        if len(segs) > 1:
            out += b''.join(segs[1:]) + b'\x0e' + b''.join(u32(crc32c(s)) for s in segs[1:]) + bytes(4 * (4 - len(segs)))
        return out

    def frame(self, tag, *segs):
        self.raw(self.encode(tag, *segs))

    def recv_frame(self, until=None):
        """(tag, four segments) of the next frame; its checksums are the server's own tests' concern."""
        if self.rx:
            block = self.rx.open(self.rd(96, until))
            pre, inline = block[:32], block[32:]
        else:
            pre = self.rd(32, until)
        n = pre[1]
        lens = [struct.unpack_from('<I', pre, 2 + 6 * i)[0] for i in range(n)]
        if not self.rx:
            segs = [self.rd(lens[0], until)]
            self.rd(4 if lens[0] else 0, until)
            if n > 1:
                segs += [self.rd(x, until) for x in lens[1:]]
                self.rd(13, until)
        else:
            wide = [x + -x % 16 for x in lens]
            first = inline + (self.rx.open(self.rd(wide[0] - INLINE + 16, until)) if wide[0] > INLINE else b'')
            segs = [first[:lens[0]]]
            if n > 1:
                rest, at = self.rx.open(self.rd(sum(wide[1:]) + 32, until)), 0
                for length, w in zip(lens[1:], wide[1:]):
                    segs.append(rest[at:at + length])
                    at += w
        return pre[0], segs + [b''] * (4 - n)

    def want(self, tag):
        got, segs = self.recv_frame()
        if got != tag:
            raise ConnectionError('expected frame %d, got %d (%s)' % (tag, got, segs[0].hex()))
        return segs[0]
