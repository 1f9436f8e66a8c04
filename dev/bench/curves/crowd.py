"""Clients that are connected and do nothing: sessions with OSDs by messenger 2 and method none, opened by hand (a librados client
would bring a dozen threads for each)."""
import os
import pathlib
import resource
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
for library in ('tests/lib', 'tests/tools'):
    sys.path.insert(0, str(ROOT / library))

from osdclient import FEATURES, addr, st, u8, u32, u64                   # noqa: E402
from skeptest import wire                                                # noqa: E402

METHOD_NONE, AUTHORIZER = 1, 1
FIRST_GID = 1 << 40                            # of no client that the monitor knows


class Crowd:
    """Sessions, in turn with each of these OSDs."""

    def __init__(self, targets):
        self.targets, self.sessions = targets, []

    def grow(self, count):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, count + 500), hard), hard))
        while len(self.sessions) < count:
            n = len(self.sessions)
            self.sessions.append(session(self.targets[n % len(self.targets)], FIRST_GID + n))

    def alive(self):
        return sum(not s.closed(0) for s in self.sessions)

    def end(self):
        for s in self.sessions:
            s.close()
        self.sessions = []


def session(target, gid):
    w = wire.Wire(*target[:2])
    try:
        w.banner()
        w.hello(wire.CLIENT, target)
        name = u32(wire.CLIENT) + st(b'admin')
        w.frame(wire.AUTH_REQUEST, u32(METHOD_NONE) + u32(1) + u32(wire.CRC) + st(u8(AUTHORIZER) + name + u64(gid)))
        w.want(wire.AUTH_DONE)
        w.frame(wire.AUTH_SIGNATURE, bytes(32))
        w.want(wire.AUTH_SIGNATURE)
        mine = addr(w.s.getsockname()[0], 0, int.from_bytes(os.urandom(4), 'little'))
        w.frame(wire.CLIENT_IDENT, b'\2' + u32(1) + mine + addr(*target)
                + struct.pack('<qQQQQQ', gid, 1, FEATURES, 0, 1, 0))
        w.want(wire.SERVER_IDENT)
        w.transcript = None
    except BaseException:
        w.close()
        raise
    return w
