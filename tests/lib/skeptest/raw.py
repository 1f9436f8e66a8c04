"""A client made by hand: sessions with monitors, managers and OSDs that say and send whatever a test wants.

    server = Server(skep)                                # where everybody listens, what pools there are
    who = server.entity('client.x', mon='allow r', osd='allow rw pool=p')       # a new user and its key
    mon = server.mon(who)                                # authenticated: `who` has a global id and tickets now
    mon.command({'prefix': 'osd pool ls'})               # (code, status, output)
    mon.pool_op(0x21, pool_id)                           # (code, epoch, data)
    mgr = server.mgr(who); mgr.command({...}); mgr.tell({...})
    osd = server.osd(who, 0)                             # with its ticket; the connection alone
    box = server.pool('p')                               # which PG, which primary
    box.do(who, b'oid', [put('WRITEFULL', 0, b'x')], W)  # a reply as osdclient.parse_reply gives it
    box.send(...); conn.recv(timeout)                    # without waiting

What can be told otherwise than true, each by a keyword of `Server.mon`, `mgr` and `osd`: `ident` (address, nonce, gid,
cookie of CLIENT_IDENT), `hello` (entity type), `ticket` (a `cephx.Ticket`, say `.altered(blob=flipped(t.blob, 77))`),
`claim` (global id), `old` (the ticket shown for a claimed id), `mode` (wire.CRC, wire.SECURE; secure is the fast one for
long messages), `source` (own address). Operations, their flags and payloads are those of tests/tools/osdclient.py.

Errors: `Refused` (its errno), `wire.Closed`, `osdclient.Silent`. Nothing here retries, sends again or follows a map.
"""
import itertools
import json
import os
import struct
import time

import osdclient
from osdclient import FEATURES, NOSNAP, WRITE, Reader, Silent, addr, object_hash, parse_notify, parse_reply, st, u32, u64
from skeptest import cephx, wire
from skeptest.wire import AUTH, CLIENT, CRC, MGR, MON, OSD, Closed, Wire

PAXOS = struct.pack('<QhQ', 0, -1, 0)
SUBSCRIBE, OSD_MAP, OSD_OP, OSD_OPREPLY, WATCH_NOTIFY, POOLOP = 15, 41, 42, 43, 44, 49
MON_COMMAND, COMMAND, COMMAND_REPLY, MGR_COMMAND, MAUTH = 50, 97, 98, 0x709, 17
PEER = 0x5345                                      # between OSDs of Skep, and nobody else
_tids = itertools.count(1)                         # of operations: a global id's come once, on whatever session


class Refused(PermissionError):
    """Authentication was refused; `errno` is positive."""

    def __init__(self, result):
        super().__init__(-result, 'authentication refused: %d' % result)


def refused(segment):
    return Refused(Reader(segment).get('Ii')[1])


class Session:
    """One authenticated connection on which messages pass."""

    def __init__(self, w, ident_reply):
        self.w, self.seq, self.inseq, self.tids, self.server_ident = w, 0, 0, itertools.count(1), ident_reply
        self.late = []                             # messages that came while another was waited for

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.w.close()

    def encode(self, typ, front, data=b'', middle=b'', version=1, compat=1, tid=0):
        self.seq += 1
        header = struct.pack('<QQHHHIHQBHH', self.seq, tid, typ, 63, version, 0, 0, self.inseq, 3, compat, 0)
        return self.w.encode(wire.MESSAGE, header, front, middle, data)

    def send(self, *args, **kw):
        self.w.raw(self.encode(*args, **kw))

    def recv(self, timeout=wire.ANSWER_S):
        """The next message: dict(type, tid, front, data)."""
        return self.late.pop(0) if self.late else self._next(time.monotonic() + timeout)

    def _next(self, until):
        while True:
            tag, segs = self.w.recv_frame(until)
            if tag == wire.MESSAGE:
                self.inseq, tid, typ = struct.unpack_from('<QQH', segs[0])
                return dict(type=typ, tid=tid, front=segs[1], data=segs[3])
            if tag == wire.KEEPALIVE2:
                self.w.frame(wire.KEEPALIVE2_ACK, segs[0])

    def wait(self, match, timeout=wire.ANSWER_S):
        """The next message for which `match` holds; the others stay for `recv`."""
        until = time.monotonic() + timeout
        for i, m in enumerate(self.late):
            if match(m):
                return self.late.pop(i)
        while True:
            m = self._next(until)
            if match(m):
                return m
            self.late.append(m)

    def ask(self, typ, front, answer, data=b'', timeout=wire.ANSWER_S, **kw):
        tid = next(self.tids)
        self.send(typ, front, data, tid=tid, **kw)
        return self.wait(lambda m: m['type'] == answer and m['tid'] == tid, timeout)

    def serves(self, timeout=wire.ANSWER_S):
        """Does the server still answer on this session?"""
        try:
            self.w.frame(wire.KEEPALIVE2, struct.pack('<II', 1, 1))
            until = time.monotonic() + timeout
            while True:
                tag, segs = self.w.recv_frame(until)
                if tag == wire.KEEPALIVE2_ACK:
                    return True
                if tag == wire.MESSAGE:
                    _, tid, typ = struct.unpack_from('<QQH', segs[0])
                    self.late.append(dict(type=typ, tid=tid, front=segs[1], data=segs[3]))
        except (Closed, Silent):
            return False

    def tell(self, command, data=b'', fsid=bytes(16), timeout=wire.ANSWER_S):
        """MCommand, as `ceph tell` sends it: (code, status, output)."""
        m = self.ask(COMMAND, fsid + u32(1) + st(json.dumps(command)), COMMAND_REPLY, data, timeout)
        r = Reader(m['front'])
        return r.get('i'), r.st().decode(errors='replace'), m['data']


class MonSession(Session):
    fsid = bytes(16)

    def command(self, command, data=b'', timeout=wire.ANSWER_S):
        text = command if isinstance(command, str) else json.dumps(command)
        m = self.ask(MON_COMMAND, PAXOS + self.fsid + u32(1) + st(text), MON_COMMAND + 1, data, timeout)
        r = Reader(m['front'])
        r.raw(18)
        return r.get('i'), r.st().decode(errors='replace'), m['data']

    def pool_op(self, op, pool=0, name='', snapid=0, timeout=wire.ANSWER_S):
        front = PAXOS + self.fsid + struct.pack('<IIQQ', pool, op, 0, snapid) + st(name) + struct.pack('<Bh', 0, -1)
        m = self.ask(POOLOP, front, POOLOP - 1, version=4, compat=2, timeout=timeout)
        r = Reader(m['front'])
        r.raw(34)
        code, epoch = r.get('iI')
        return code, epoch, r.st() if r.get('B') else b''

    def new_snap(self, pool):
        code, _, data = self.pool_op(0x21, pool)
        if code:
            raise PermissionError(-code, 'no snapshot id')
        return struct.unpack('<Q', data)[0]

    def subscribe(self, **topics):
        """topic=(start, flags); `_` in a name stands for `.`, `__` for `-`."""
        body = u32(len(topics))
        for name, (start, flags) in sorted(topics.items()):
            body += st(name.replace('__', '-').replace('_', '.')) + struct.pack('<QB', start, flags)
        self.send(SUBSCRIBE, body + st('hostile'), version=3)

    def renew(self, who, services):
        """MAuth for further tickets, as clients do after 3/4 of their lifetime."""
        m = self.ask(MAUTH, PAXOS + u32(2) + st(who.renewal(services)) + u32(0), MAUTH + 1)
        r = Reader(m['front'])
        r.get('I')
        result = r.get('i')
        if result:
            raise Refused(result)
        r.get('Q')
        who.renewed(r.st())


class MgrSession(Session):
    def command(self, command, data=b'', timeout=wire.ANSWER_S):
        m = self.ask(MGR_COMMAND, bytes(16) + u32(1) + st(json.dumps(command)), MGR_COMMAND + 1, data, timeout)
        r = Reader(m['front'])
        return r.get('i'), r.st().decode(errors='replace'), m['data']


def to_monitor(w, who, mode, claim, old, wrong, services):
    """Authenticates to a monitor; gives the session key and the connection secret."""
    who.gid = who.gid if claim is None else claim
    w.frame(wire.AUTH_REQUEST, u32(2) + u32(1) + u32(mode) + st(who.ask()))
    reply = step(w, wire.AUTH_REPLY_MORE)
    w.frame(wire.AUTH_REQUEST_MORE, st(who.answer(Reader(reply).st(), old, services, wrong)))
    r = Reader(step(w, wire.AUTH_DONE))
    gid, got = r.get('QI')
    return who.granted(gid, r.st())


def to_service(w, who, mode, ticket, gid):
    nonce = int.from_bytes(os.urandom(8), 'little')
    w.frame(wire.AUTH_REQUEST, u32(2) + u32(1) + u32(mode) + st(who.authorizer(ticket, nonce, gid=gid)))
    challenge = cephx.challenge_in(Reader(step(w, wire.AUTH_REPLY_MORE)).st(), ticket)
    w.frame(wire.AUTH_REQUEST_MORE, st(who.authorizer(ticket, nonce, challenge, gid=gid)))
    r = Reader(step(w, wire.AUTH_DONE))
    r.get('QI')
    return ticket.key, cephx.secret_in(r.st(), ticket)


def step(w, tag):
    got, segs = w.recv_frame()
    if got == wire.AUTH_BAD_METHOD:
        raise refused(segs[0])
    if got != tag:
        raise ConnectionError('expected frame %d, got %d' % (tag, got))
    return segs[0]


def sign_and_name(w, target, key, secret, gid, ident):
    """The rest of a handshake: signatures, then CLIENT_IDENT with what `ident` says instead of the truth."""
    sent, received = w.transcript
    w.transcript = None
    if secret:
        w.secure(secret)
    w.frame(wire.AUTH_SIGNATURE, cephx.sign(key, received))
    if w.want(wire.AUTH_SIGNATURE) != cephx.sign(key, sent):
        raise ConnectionError('the server signed something else')
    say = dict(ip=w.s.getsockname()[0], port=0, nonce=int.from_bytes(os.urandom(4), 'little'), gid=gid, global_seq=1,
               features=FEATURES, flags=1, cookie=0)
    say.update(ident or {})
    addrs = say.get('addrs') or b'\2' + u32(1) + addr(say['ip'], say['port'], say['nonce'])
    w.frame(wire.CLIENT_IDENT, addrs + addr(*target) + struct.pack('<qQQQQQ', say['gid'], say['global_seq'], say['features'],
                                                                   0, say['flags'], say['cookie']))
    tag, segs = w.recv_frame()
    if tag != wire.SERVER_IDENT:
        raise ConnectionError('expected SERVER_IDENT, got frame %d' % tag)
    return say, segs[0]


def open_session(kind, target, who, service, mode=CRC, hello=CLIENT, ident=None, claim=None, old=None, ticket=None, wrong=None,
                 source=None, services=MON | OSD | MGR | AUTH, receive_buffer=None, timeout=wire.ANSWER_S):
    w = Wire(target[0], target[1], timeout, source, receive_buffer)
    try:
        w.banner()
        w.hello(hello, target)
        if service == MON:
            key, secret = to_monitor(w, who, mode, claim, old, wrong, services)
        else:
            key, secret = to_service(w, who, mode, ticket or who.tickets[service], claim)
        say, reply = sign_and_name(w, target, key, secret, who.gid, ident)
    except BaseException:
        w.close()
        raise
    session = kind(w, reply)
    session.target, session.said, session.key = target, say, key
    return session


class Pool:
    """A pool: which PG an object is in, and which OSD is asked for it. Sessions with OSDs are kept by client."""

    def __init__(self, server, name):
        self.server, self.name = server, name
        d = next(p for p in server.cluster.ask('osd', 'dump')['pools'] if p['pool_name'] == name)
        self.id, self.pg_num = d['pool'], d['pg_num']
        prefix = '%d.' % self.id
        self.primary = {int(pg['pgid'].split('.')[1], 16): pg['acting_primary'] for pg in server.cluster.pgs()
                        if pg['pgid'].startswith(prefix)}
        self.epoch = server.cluster.ask('osd', 'dump')['epoch']

    def pg(self, h):
        m = (1 << (self.pg_num - 1).bit_length()) - 1
        return h & m if h & m < self.pg_num else h & (m >> 1)

    def place(self, oid, ns=b'', key=b''):
        """(hash, PG's number, primary)"""
        h = object_hash(oid, key, ns)
        return h, self.pg(h), self.primary[self.pg(h)]

    def alike(self, oid, count, ns=b''):
        """Further object names in the PG of this one."""
        want, names = self.place(oid, ns)[1], ('%s-%d' % (oid.decode(), i) for i in itertools.count())
        return list(itertools.islice((n.encode() for n in names if self.place(n.encode(), ns)[1] == want), count))

    def front(self, oid, ops, flags, key=b'', ns=b'', ps=None, snapid=NOSNAP, seq=0, snaps=(), retry=0, mtime=None, gid=0,
              inc=0, hash_=None, oloc_hash=-1):
        """The front of MOSDOp. gid and inc are what the client says of itself in its request id."""
        if hash_ is None:
            hash_ = object_hash(oid, key, ns) if ps is None else ps
        ps = self.pg(hash_) if ps is None else ps
        now = time.time()
        mt = mtime if mtime is not None else (int(now), int(now % 1 * 1e9)) if flags & WRITE else (0, 0)
        f = osdclient.env(1, 1, struct.pack('<BQIi', 1, self.id, ps, -1) + struct.pack('<b', -1))
        f += struct.pack('<III', hash_, self.epoch, flags)
        f += osdclient.env(2, 2, struct.pack('<BqQi', CLIENT if gid else 0, gid, 0, inc)) + bytes(24)
        f += struct.pack('<III', inc, *mt)
        f += osdclient.oloc(self.id, key, ns, oloc_hash) + st(oid) + struct.pack('<H', len(ops))
        for code, op_flags, union, data in ops:
            f += struct.pack('<HI', code, op_flags) + union + u32(len(data))
        f += struct.pack('<QQI', snapid, seq, len(snaps)) + b''.join(u64(x) for x in snaps)
        return f + struct.pack('<iQ', retry, FEATURES)

    def send(self, osd, oid, ops, flags, tid=None, **kw):
        """Sends one MOSDOp on a session with an OSD; gives its tid."""
        tid = next(_tids) if tid is None else tid
        osd.send(OSD_OP, self.front(oid, ops, flags, **kw), b''.join(o[3] for o in ops), version=8, compat=3, tid=tid)
        return tid

    @staticmethod
    def reply(osd, tid, timeout=wire.ANSWER_S):
        return parse_reply(osd.wait(lambda m: m['type'] == OSD_OPREPLY and m['tid'] == tid, timeout))

    def do(self, who, oid, ops, flags, timeout=wire.ANSWER_S, osd=None, **kw):
        """One operation, on a session of its own unless `osd` is one; its reply."""
        if osd is not None:
            return self.reply(osd, self.send(osd, oid, ops, flags, **kw), timeout)
        ps = kw.get('ps')
        primary = self.place(oid, kw.get('ns', b''), kw.get('key', b''))[2] if ps is None else self.primary[ps]
        with self.server.osd(who, primary) as own:
            return self.reply(own, self.send(own, oid, ops, flags, **kw), timeout)


def notify_of(osd, timeout=wire.ANSWER_S):
    """The next watch message of a session."""
    return parse_notify(osd.wait(lambda m: m['type'] == WATCH_NOTIFY, timeout))


class Server:
    """A cluster of skeptest with cephx, as an attacker sees it who knows where everybody listens."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.fsid = bytes.fromhex(cluster.ceph('fsid').out.strip().replace('-', ''))
        first = cluster.option('mon_host').strip('[]').split(',')
        ip, port = next(h for h in first if h.startswith('v2:')).split('/')[0].removeprefix('v2:').rsplit(':', 1)
        self.mon_addr = (ip, int(port), 0)
        self._admin = None
        self.refresh()

    def refresh(self):
        """Reads the addresses again, after a restart."""
        def of(kind, vector):
            for a in (a for a in vector['addrvec'] if a['type'] == kind):
                ip, port = a['addr'].rsplit(':', 1)
                return ip, int(port), a['nonce']
        osds = {o['osd']: o['public_addrs'] for o in self.cluster.ask('osd', 'dump')['osds'] if o['up']}
        self.osd_addr = {osd: of('v2', addrs) for osd, addrs in osds.items()}
        self.osd_legacy = {osd: of('v1', addrs) for osd, addrs in osds.items()}
        self.mgr_addr = of('v2', self.cluster.ask('mgr', 'dump')['active_addrs'])

    def admin(self, prefix, **args):
        """A command of the administrator's, JSON parsed: on a session that lives on, for it is much cheaper than `ceph`."""
        if self._admin is None or not self._admin.serves():
            key = cephx.key_of(self.cluster.ceph('auth', 'print-key', 'client.admin').out.strip())
            self._admin = self.mon(cephx.Entity('client.admin', key))
        code, status, out = self._admin.command({'prefix': prefix, 'format': 'json', **args})
        if code:
            raise PermissionError(-code, '%s: %s' % (prefix, status))
        return json.loads(out) if out.strip() else None

    def entity(self, name, **caps):
        """The user of this name and its key; made with these capabilities, or found with those that it has."""
        words = [w for service, cap in caps.items() for w in (service, cap)]
        if words:
            self.admin('auth get-or-create', entity=name, caps=words)
        return cephx.Entity(name, cephx.key_of(self.admin('auth get', entity=name)[0]['key']))

    def mon(self, who, **kw):
        session = open_session(MonSession, self.mon_addr, who, MON, **kw)
        session.fsid = self.fsid
        return session

    def login(self, who, **kw):
        """Gets `who` its tickets, and keeps no session."""
        self.mon(who, **kw).close()
        return who

    def mgr(self, who, **kw):
        return open_session(MgrSession, self.mgr_addr, who, MGR, **kw)

    def osd(self, who, osd, **kw):
        return open_session(Session, self.osd_addr[osd], who, OSD, **kw)

    def pool(self, name):
        return Pool(self, name)


__all__ = ['Closed', 'Pool', 'Refused', 'Server', 'Session', 'Silent', 'notify_of']
