"""What the recording scripts beside this share: encodings, and the steps that a real Ceph takes and that are noted.

Command line of each: REPLAY_CLASSES CEPH_CONF POOL ... > FILE. REPLAY_CLASSES is the developer tool of that name (its
librados bindings are used); the pool must be empty. The steps have the format of cls_rbd_replay.json, plus the ops
`setxattr` (name, value), `omap_set` (key, value), `xattr_dump`, `header_dump` (of the omap) and `watch` (this client
watches the object from here on).
"""
import ctypes as C
import importlib.machinery
import importlib.util
import json
import struct
import subprocess
import sys
import time

loader = importlib.machinery.SourceFileLoader('tool', sys.argv[1])
spec = importlib.util.spec_from_loader('tool', loader)
tool = importlib.util.module_from_spec(spec)
loader.exec_module(tool)

# ---- encodings
u8 = lambda v: struct.pack('<B', v)
u32 = lambda v: struct.pack('<I', v)
u64 = lambda v: struct.pack('<Q', v & (2**64 - 1))
s = lambda v: u32(len(v)) + (v if isinstance(v, bytes) else v.encode())
env = lambda body, v=1, c=1: u8(v) + u8(c) + u32(len(body)) + body
seq = lambda *items: u32(len(items)) + b''.join(items)
opt = lambda v: u8(0) if v is None else u8(1) + v
utime = lambda sec=0, ns=0: u32(sec) + u32(ns)
NOSNAP = 2**64 - 2

steps = []
rad = tool.Rados(sys.argv[2], 5)
rad.must(rad.open(sys.argv[3]), 'open pool')


def add(**k):
    steps.append(k)


def call(oid, cls, method, data=b'', note='', volatile=False):
    rc, out = rad.call(oid.encode(), cls, method, data)
    if rc == -110:
        sys.exit('no answer (a call that aborts the OSD?): %s %s.%s %s' % (oid, cls, method, note))
    add(oid=oid, op='call', cls=cls, method=method, **{'in': data.hex()}, rc=rc, out=out.hex(), volatile=volatile, note=note)
    return out


def omap(oid):
    rc, d = rad.omap(oid.encode())
    add(oid=oid, op='omap_dump', omap={k.hex(): v.hex() for k, v in sorted(d.items())} if rc == 0 else None)


def read(oid):
    rc, d = rad.read(oid.encode())
    add(oid=oid, op='read', data=d.hex() if rc == 0 else None, note='')


def make(oid):
    rad.must(rad.create(oid.encode())[0], 'create ' + oid)
    add(oid=oid, op='create', data='')


def full(oid, data):
    rad.write_full(oid.encode(), data)
    add(oid=oid, op='write_full', data=data.hex())


def setxattr(oid, name, value):
    rad.l.rados_setxattr(rad.io, oid.encode(), name.encode(), value, C.c_size_t(len(value)))
    add(oid=oid, op='setxattr', name=name, value=value.hex())


def omap_set(oid, key, value):
    op = C.c_void_p(rad.l.rados_create_write_op())
    ks = (C.c_char_p * 1)(key)
    vs = (C.c_char_p * 1)(value)
    kl, vl = (C.c_size_t * 1)(len(key)), (C.c_size_t * 1)(len(value))
    rad.l.rados_write_op_omap_set2(op, ks, vs, kl, vl, C.c_size_t(1))
    rad.must(rad.l.rados_write_op_operate(op, rad.io, oid.encode(), None, 0), 'omap_set')
    rad.l.rados_release_write_op(op)
    add(oid=oid, op='omap_set', key=key.hex(), value=value.hex())


def xattrs(oid):
    it, d = C.c_void_p(), {}
    r = rad.l.rados_getxattrs(rad.io, oid.encode(), C.byref(it))
    while r == 0:
        n, v, l = C.c_char_p(), C.c_void_p(), C.c_size_t()
        rad.l.rados_getxattrs_next(it, C.byref(n), C.byref(v), C.byref(l))
        if not n.value:
            break
        d[n.value.decode()] = C.string_at(v, l.value).hex()
    add(oid=oid, op='xattr_dump', xattr=d if r == 0 else None)


CALLBACK = C.CFUNCTYPE(None, C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint64, C.c_void_p, C.c_size_t)
ERRBACK = C.CFUNCTYPE(None, C.c_void_p, C.c_uint64, C.c_int)
keep = (CALLBACK(lambda *a: None), ERRBACK(lambda *a: None))


def watch(oid):
    cookie = C.c_uint64()
    rad.must(rad.l.rados_watch2(rad.io, oid.encode(), C.byref(cookie), keep[0], keep[1], None), 'watch')
    add(oid=oid, op='watch', data='')
    return cookie


def wait(sec):
    time.sleep(sec)
    add(oid='', op='wait', seconds=sec)


def header(oid):
    """librados has no call for it, the tool has."""
    done = subprocess.run(['rados', '-c', sys.argv[2], '-p', sys.argv[3], 'getomapheader', oid, '/dev/stdout'],
                          capture_output=True)
    add(oid=oid, op='header_dump', data=done.stdout.hex() if done.returncode == 0 else None)


logged = set()


def serial(oid, rows):
    """Notes in the last call what the id of an index's log entry that it made was made of."""
    for key in sorted(k for k in rows if k.startswith(b'\x800_')):
        if (oid, key) not in logged:
            steps[-1]['serial'], steps[-1]['nth'] = map(int, key.split(b'.')[1:])
        logged.add((oid, key))


def finish():
    """Writes everything to standard output."""
    json.dump({'caller': rad.gid, 'address': rad.address(), 'time': int(time.time()), 'steps': steps}, sys.stdout, indent=0)
