#!/usr/bin/python3
"""Records cls_classes_replay.json: calls of the classes that neither RBD nor librados' own tests use, on a real Ceph.

usage: record_classes.py REPLAY_CLASSES CEPH_CONF POOL > cls_classes_replay.json
See recorder.py. A call that makes ids from the object's version has the version in `serial`.
"""
import re

from recorder import *

METHODS = {
    'cmpomap': ('cmp_vals', 'cmp_set_vals', 'cmp_rm_keys'),
    'log': ('add', 'list', 'trim', 'info'),
    'timeindex': ('add', 'list', 'trim'),
}


def state(oid):
    omap(oid)
    header(oid)


def rows(oid):
    rc, d = rad.omap(oid.encode())
    return set(d) if rc == 0 else set()


# ---- every method with no input, on a missing object and on an empty one
for cls, methods in METHODS.items():
    for m in methods:
        for oid in ('missing.%s.%s' % (cls, m), 'empty.%s.%s' % (cls, m)):
            if oid.startswith('empty'):
                make(oid)
            call(oid, cls, m)
            call(oid, cls, m, env(b''))
            state(oid)

# ---- cmpomap
cmp = lambda mode, op, vals, default=None: env(u8(mode) + u8(op) + seq(*[s(k) + s(v) for k, v in vals]) + opt(None if default is None else s(default)))
rm = lambda mode, op, vals: env(u8(mode) + u8(op) + seq(*[s(k) + s(v) for k, v in vals]))
FIVE = u64(5)
for m, form in (('cmp_vals', cmp), ('cmp_set_vals', cmp), ('cmp_rm_keys', rm)):
    o = 'cmpomap.' + m
    call(o, 'cmpomap', m, form(1, 1, []), 'no object, no keys')
    call(o, 'cmpomap', m, form(1, 1, [(b'a', b'1')]), 'no object')
    omap(o)
    make(o)
    for mode in (0, 1, 2, 3):
        for op in range(0, 8):
            for key, stored, given in ((b'same', FIVE, FIVE), (b'less', FIVE, u64(256)), (b'more', FIVE, u64(4))):
                omap_set(o, key, stored)
                call(o, 'cmpomap', m, form(mode, op, [(key, given)]), 'mode %d, op %d, %s' % (mode, op, key.decode()))
            if mode in (1, 2) and op in (1, 3, 5):
                omap(o)
    for name, stored, given in (('short stored', b'abc', FIVE), ('nothing stored', b'', u64(0)), ('nothing given', FIVE, b''),
                                ('short given', FIVE, b'abc'), ('nothing on both sides', b'', b''), ('long stored', FIVE + b'zz', FIVE),
                                ('long given', FIVE, FIVE + b'zz'), ('short on both sides', b'abc', b'abc')):
        omap_set(o, b'k', stored)
        call(o, 'cmpomap', m, form(2, 1, [(b'k', given)]), name)
        omap(o)
    for mode, op in ((1, 1), (1, 2), (2, 1), (2, 2), (9, 1), (1, 9)):
        call(o, 'cmpomap', m, form(mode, op, [(b'none', b'abc')]), 'no such key')
        call(o, 'cmpomap', m, form(mode, op, []), 'no keys')
    omap_set(o, b'a', b'1')
    omap_set(o, b'n', FIVE)
    call(o, 'cmpomap', m, form(1, 1, [(b'a', b'9'), (b'n', FIVE)]), 'the first one differs')
    omap(o)
    omap_set(o, b'n', FIVE)
    call(o, 'cmpomap', m, form(1, 1, [(b'n', FIVE), (b'a', b'9')]), 'the last one differs')
    omap(o)
    omap_set(o, b'n', FIVE)
    call(o, 'cmpomap', m, form(2, 1, [(b'a', u64(1)), (b'n', FIVE)]), 'one cannot be compared')
    omap(o)
    omap_set(o, b'n', FIVE)
    call(o, 'cmpomap', m, form(2, 1, [(b'a', u64(1)), (b'n', b'')]), 'one given cannot be compared')
    call(o, 'cmpomap', m, form(1, 1, [(b'a', b'9'), (b'a', b'1')]), 'twice, the last one holds')
    omap(o)
    omap_set(o, b'a', b'1')
    call(o, 'cmpomap', m, form(1, 1, [(b'a', b'1'), (b'a', b'9')]), 'twice, the first one holds')
    omap(o)
    call(o, 'cmpomap', m, form(1, 1, [(b'm%04d' % i, b'') for i in range(1001)]), 'more than clients ask for')
    if form is cmp:
        for default in (b'', b'1', FIVE, b'abc'):
            for mode in (1, 2):
                for given in (b'', b'1', FIVE, u64(0)):
                    call(o, 'cmpomap', m, cmp(mode, 1, [(b'd%d%d%d' % (mode, len(given), len(default)), given)], default), 'default')
        omap(o)
        call(o + '.new', 'cmpomap', m, cmp(1, 1, [(b'a', b'1')], b'1'), 'default, no object')
        omap(o + '.new')
    whole = form(2, 1, [(b'a', FIVE), (b'b', FIVE)])
    for n in (5, 6, 7, 8, 11, 12, 16, 24, len(whole) - 1):
        call(o, 'cmpomap', m, whole[:n], 'cut off')

# ---- log
entry = lambda sec, ns, name='n', data='d', id='', section='s': env(s(section) + s(name) + utime(sec, ns) + s(data) + s(id), 2)
listing = lambda f=(0, 0), marker='', t=(0, 0), n=10: env(utime(*f) + s(marker) + utime(*t) + u32(n & 0xffffffff))
trim2 = lambda f=(0, 0), t=(0, 0), fm='', tm='': env(utime(*f) + utime(*t) + s(fm) + s(tm), 2)


def log_add(oid, data, note=''):
    before = rows(oid)
    call(oid, 'log', 'add', data, note)
    step = steps[-1]
    for key in rows(oid) - before:
        found = re.search(rb'^1_\d{10}\.\d{6}_(\d+)\.\d+$', key)
        if found:
            step['serial'] = int(found.group(1))
    state(oid)


entries = lambda *e, mono=1: env(seq(*e) + u8(mono), 2)
o = 'log.one'
log_add(o, entries(), 'nothing')
call(o, 'log', 'info', env(b''))
call(o, 'log', 'list', listing())
log_add(o, entries(entry(100, 5000)))
log_add(o, entries(entry(100, 5999, 'n2'), entry(100, 6000, 'n3'), entry(50, 0, 'older')))
log_add(o, entries(entry(40, 7, 'older'), mono=0), 'not monotonic')
log_add(o, entries(entry(40, 0, id='zz'), mono=0), 'an id behind all')
log_add(o, entries(entry(100, 5000, id='1_a'), mono=1), 'an id')
log_add(o, entries(entry(60, 7, id='1_00000000123.000456_x')), 'an id, older')
log_add(o, entries(entry(40, 0, id='zz', data='again')), 'an id again')
log_add(o, env(seq(env(s('s') + s('v1') + utime(200) + s('data'))) + u8(1), 2), 'first version of an entry')
log_add(o, env(seq(entry(150, 0))), 'first version of the input')
log_add(o, env(seq(entry(1, 1)), 2), 'second version without its field')
log_add(o, env(u32(5), 2), 'fewer than said')
log_add(o, env(u32(0xffffffff), 2), 'fewer than said')
log_add(o, entries(entry(2**32 - 1, 999999999)), 'the end of time')
call(o, 'log', 'info', env(b''))
call(o, 'log', 'list', listing(n=0))
omap_set(o, b'1_00000000100.bad', b'xx')
omap_set(o, b'0', b'xx')
omap_set(o, b'2', b'xx')
call(o, 'log', 'list', listing(), 'with rows that are no entries')
o = 'log.list'
log_add(o, entries(*[entry(10 * i, 1000 * i) for i in range(1, 8)]))
for f, t in (((0, 0), (30, 3000)), ((10, 0), (30, 3000)), ((10, 0), (30, 4000)), ((10, 0), (30, 3999)), ((0, 0), (30, 4000)),
             ((10, 1000), (30, 4000)), ((10, 1999), (30, 4000)), ((10, 2000), (30, 4000)), ((10, 0), (10, 1000)),
             ((10, 1000), (10, 1000)), ((0, 1), (30, 3000)), ((80, 0), (30, 3000)), ((50, 0), (30, 3000)), ((0, 0), (0, 0)),
             ((0, 1), (0, 1)), ((75, 0), (85, 0))):
    for n in (10, 3, 1):
        call(o, 'log', 'list', listing(f, '', t, n), 'from %s to %s' % (f, t))
for n in (0, 1, 6, 7, 8, 1001, -1, -2**31):
    call(o, 'log', 'list', listing(n=n), 'at most %d' % n)
for marker in ('0', '1', '1_', '1_0000000030', '1_0000000030.000003_zzz', 'zz'):
    call(o, 'log', 'list', listing(marker=marker), marker)
    call(o, 'log', 'list', listing((1, 0), marker, (50, 0)), marker + ', to 50')
    call(o, 'log', 'list', listing((0, 0), marker, (50, 0)), marker + ', from the beginning to 50')
for note, data in (('nothing', trim2()), ('to the ns before', trim2(t=(10, 999))), ('to the time', trim2(t=(10, 1000))), ('again', trim2(t=(10, 1000))),
                   ('one time', trim2((20, 2000), (20, 2000))), ('between', trim2((31, 0), (40, 4000))),
                   ('prefix of a marker', trim2(fm='1_0000000050.000005_', tm='1_0000000050.000005_')),
                   ('to marker before time', trim2((60, 0), (10, 0), tm='1_0000000060.000006_zzz')),
                   ('from behind to', trim2((90, 0), (70, 0))), ('from marker behind', trim2(fm='1_0000000070.000007_zz', tm='9')),
                   ('all', trim2(tm='9')), ('no more', trim2(tm='9'))):
    call(o, 'log', 'trim', data, note)
    state(o)
o = 'log.ids'
log_add(o, entries(*[entry(i, 0, id='1_%d' % i) for i in range(1, 8)]))
for note, data in (('to it', trim2(tm='1_1')), ('from one to one', trim2(fm='1_2', tm='1_3')), ('from it to it', trim2(fm='1_4', tm='1_4')),
                   ('not quite to it', trim2(fm='1_2', tm='1_')), ('first version', env(utime() + utime(9))), ('a short input', env(utime() + utime(9), 2))):
    call(o, 'log', 'trim', data, note)
    omap(o)
call('log.none', 'log', 'trim', trim2(tm='9'), 'no object')
omap('log.none')

# ---- timeindex
tentry = lambda sec, ns, ext, value: env(utime(sec, ns) + s(ext) + s(value))
tadd = lambda *e: env(seq(*e))
trim1 = lambda f=(0, 0), t=(0, 0), fm='', tm='': env(utime(*f) + utime(*t) + s(fm) + s(tm))
o = 'timeindex'
call(o, 'timeindex', 'add', tadd(), 'nothing')
omap(o)
call(o, 'timeindex', 'add', tadd(tentry(10, 1000, 'e', 'v1'), tentry(10, 1999, 'f', 'v2'), tentry(20, 2000, 'e', 'v3'), tentry(20, 2000, 'f', b'')))
state(o)
call(o, 'timeindex', 'add', tadd(tentry(10, 1000, 'e', 'v1 again')), 'again')
call(o, 'timeindex', 'add', tadd(tentry(2**32 - 1, 999999999, 'e', 'm'), tentry(30, 0, 'a_b.c', b'\1'), tentry(30, 0, 'twice', b'1'), tentry(30, 0, 'twice', b'2')))
call(o, 'timeindex', 'add', env(u32(0xffffffff)), 'fewer than said')
state(o)
for f, t in (((0, 0), (0, 0)), ((0, 0), (20, 2000)), ((10, 0), (20, 2000)), ((10, 0), (20, 3000)), ((20, 0), (10, 0)), ((10, 1000), (10, 1000)),
             ((10, 1000), (10, 2000)), ((20, 1999), (20, 0)), ((90, 0), (80, 0))):
    for n in (10, 3, 2, 1, 0, -1):
        call(o, 'timeindex', 'list', listing(f, '', t, n), 'from %s to %s' % (f, t))
for marker in ('0', '1', '1_', '1_0000000010', '1_0000000010.000001_e', '1_0000000010.000001_ea', 'zz'):
    call(o, 'timeindex', 'list', listing((1, 0), marker), marker)
    call(o, 'timeindex', 'list', listing((1, 0), marker, (20, 0)), marker + ', to 20')
omap_set(o, b'0', b'x')
omap_set(o, b'1_0000000022.junk', b'x')
for note, data in (('nothing', trim1()), ('to the ns before', trim1(t=(10, 999))), ('to the time', trim1(t=(10, 1000))), ('again', trim1(t=(10, 1000))),
                   ('behind a marker', trim1(fm='1_0000000020.000002_e', tm='1_0000000020.000002_f')), ('from it to it', trim1(fm='1_0000000020.000002_e', tm='1_0000000020.000002_e')),
                   ('one time', trim1((20, 2000), (20, 2000))), ('prefix of a marker', trim1(tm='1_000000002')),
                   ('longer than a prefix', trim1(tm='1_0000000030.000000_a')), ('from behind to', trim1((50, 0), (40, 0))), ('all', trim1(tm='9')), ('no more', trim1(tm='9'))):
    call(o, 'timeindex', 'trim', data, note)
    omap(o)
call('timeindex.none', 'timeindex', 'trim', trim1(tm='9'), 'no object')
omap('timeindex.none')

call('timeindex.no_ext', 'timeindex', 'add', tadd(tentry(10, 1000, '', 'v1')))
omap('timeindex.no_ext')
call('timeindex.no_ext', 'timeindex', 'list', listing((1, 0)), 'no extension')

# ---- numops
o = 'numops'
make(o)
for text in (b'0x1.8p1', b'0x10', b'0x', b'0x.8', b'0x1.', b'0x.', b'0x1p', b'0x1p-2', b'-0X1.8P+1', b'0x1.8p1 ', b'infinity', b'INF', b'nan', b'nan(1_a)',
             b'nan(', b'nan(-)', b'nanx', b'1e', b'1e5', b'1.', b'.5', b'.', b' \t\n\v\f\r5', b'+5', b'+-5', b'-', b'5\0', b'5\0x', b'\0', b'0x123456789abcdef123456789',
             b'1e400', b'1e-400', b'0x1p99999', b'0x1p-1073', b'0x1p-99999999999999999999999', b'0x0p99999999999999999999999', b'1_0', b'0b1', b'1d5', b'\xc2\xa05', b'', b' ',
             b'0x1g', b'0xg', b'0x1.2.3', b'0x1p+', b'-0', b'0x1.fffffffffffff8p0', b'0x.00000000000000000000001p88'):
    for how in ('add', 'mul'):
        omap_set(o, b'k', b'1')
        call(o, 'numops', how, s('k') + s(text), text.decode('latin1'))
        omap(o)
for text in (b'0x1.8p1', b'0x', b'nan', b'x', b'', b'5\0x', b' '):
    omap_set(o, b'k', text)
    call(o, 'numops', 'add', s('k') + s('1'), 'to ' + text.decode('latin1'))
    omap(o)

finish()
