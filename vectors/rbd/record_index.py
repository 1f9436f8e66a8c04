#!/usr/bin/python3
"""Records cls_index_replay.json: corners of the classes rgw, rgw_gc, user and fifo, on a real Ceph.

usage: record_index.py REPLAY_CLASSES CEPH_CONF POOL > cls_index_replay.json
See recorder.py. What stock programs ask in everyday use is in cls_gateway_replay.json.
"""
from recorder import *

u16 = lambda v: struct.pack('<H', v)
key = lambda name, instance='': env(s(name) + s(instance))
packed = lambda v: u8(v) if 0 <= v < 128 else b'\x88' + u64(v)
version = lambda pool, epoch: env(packed(pool) + packed(epoch))


def meta(size=4, category=0, mtime=utime(), owner=''):
    return env(u8(category) + u64(size) + mtime + s('') + s(owner) + s('') * 2 + u64(size) + s('') * 2 + u8(0), 7, 3)


def rgw(o, method, data=b'', note=''):
    call(o, 'rgw', method, data, note, volatile=True)
    if 'list' not in method and not method.startswith(('bucket_read', 'bi_get', 'obj_check', 'lc_get', 'gc_', 'reshard_get', 'get_', 'guard_', 'user_usage_log_read')):
        serial(o, rad.omap(o.encode())[1])


def prepare(o, k, op=0, tag='t', log=0):
    rgw(o, 'bucket_prepare_op', env(u8(op) + s(tag) + s('') + u8(log) + k + u16(0) + u32(0), 7, 5))


def complete(o, k, op=0, ver=1, tag='t', of=None, pool=7, gone=(), log=0):
    rgw(o, 'bucket_complete_op', env(u8(op) + u64(ver) + (of or meta()) + s(tag) + s('') + seq(*gone) + version(pool, ver) + u8(log) + k
                                     + u16(0) + u32(0), 9, 7))


def change(o, k, op=0, tag='t', **more):
    prepare(o, k, op, tag)
    complete(o, k, op, tag=tag, **more)


def link(o, k, marker=0, tag='t', of=None, epoch=0, log=0, head='o', since=utime(), precise=1):
    rgw(o, 'bucket_link_olh', env(k + s(head) + u8(marker) + s(tag) + (of or meta()) + u64(epoch) + u8(log) + u16(0) + u64(0) + since
                                  + u8(precise) + u32(0), 5, 1))


def unlink(o, k, tag='ut', epoch=0, log=0, head='o'):
    rgw(o, 'bucket_unlink_instance', env(k + s(tag) + u64(epoch) + u8(log) + u16(0) + s(head) + u32(0), 3, 1))


def head(o, method, k, epoch=0, tag='o'):
    rgw(o, method, env(k + u64(epoch) + s(tag)))


def listing(o, start=None, n=100, prefix='', versions=0, delimiter=''):
    rgw(o, 'bucket_list', env(u32(n) + s(prefix) + (start or key('')) + u8(versions) + s(delimiter), 6, 4))


def state(o):
    omap(o)
    header(o)


def index(o):
    rgw(o, 'bucket_init_index')
    return o


MARKER = meta(0, 0, owner='me')

# ---- versions: linked, unlinked, in and out of order
o = index('v1')
change(o, key('a', 'v1'), ver=5)
link(o, key('a', 'v1'))
state(o)
change(o, key('a', 'v2'), ver=6)
link(o, key('a', 'v2'), tag='t2')
state(o)
change(o, key('a', 'v0'), ver=7)
link(o, key('a', 'v0'), tag='t0', epoch=2)
state(o)
link(o, key('a', 'v9'), 1, tag='t9', head='other', of=MARKER)
link(o, key('a', 'v9'), 1, tag='t9', of=MARKER)
state(o)
for k, epoch, tag in ((key('a'), 0, 'o'), (key('a'), 3, 'o'), (key('a'), 99, 'o'), (key('a'), 2**64 - 1, 'o'), (key('a'), 0, 'bad'), (key('no'), 0, 'o')):
    head(o, 'bucket_read_olh_log', k, epoch, tag)
head(o, 'bucket_trim_olh_log', key('a'), 2)
state(o)
for k, tag in ((key('a', 'v9'), 'o'), (key('a', 'v0'), 'o'), (key('a', 'no'), 'o'), (key('a', 'v2'), 'bad'), (key('a', 'v2'), 'o'), (key('a', 'v1'), 'o')):
    unlink(o, k, head=tag)
    state(o)
for tag in ('bad', 'o', 'o'):
    rgw(o, 'bucket_clear_olh', env(key('a') + s(tag)))
    state(o)
head(o, 'bucket_trim_olh_log', key('a'), 100)
# ---- objects of before there were versions
o = index('v2')
change(o, key('a'))
link(o, key('a'))
state(o)
change(o, key('a'), ver=9)
link(o, key('a'), tag='again')
state(o)
unlink(o, key('a'))
state(o)
o = index('v3')
change(o, key('a'))
link(o, key('a', 'd1'), 1, of=MARKER)
state(o)
change(o, key('a'), ver=9)
link(o, key('a'), tag='t3')
state(o)
change(o, key('a'), op=1, ver=12)
state(o)
prepare(o, key('e'), 0, 'y')
change(o, key('e', 'v'))
link(o, key('e', 'v'))
link(o, key('f', 'v'))
state(o)
change(o, key('b'))
unlink(o, key('b'))
change(o, key('c', 'v1'))
unlink(o, key('c', 'v1'))
state(o)
# ---- markers without an instance
o = index('v4')
change(o, key('a'))
link(o, key('a'))
link(o, key('a'), 1, tag='nd', of=MARKER)
state(o)
unlink(o, key('a'))
state(o)
o = index('v5')
change(o, key('a'))
link(o, key('a'), 1, tag='nd', of=MARKER)
state(o)
change(o, key('a'), op=1, ver=20)
link(o, key('a'), 1, tag='nd2', of=MARKER)
state(o)
change(o, key('a'), ver=30)
link(o, key('a'), tag='put')
state(o)
change(o, key('b', 'v1'))
link(o, key('b', 'v1'))
link(o, key('b'), 1, tag='nd', of=MARKER)
link(o, key('c'), 1, tag='nd', of=MARKER)
state(o)
rgw(o, 'bi_get', env(key('a') + u8(2)))
rgw(o, 'bi_get', env(key('b', 'v1') + u8(2)))
rgw(o, 'bi_get', env(key('a') + u8(3)))
rgw(o, 'bi_get', env(key('a') + u8(1)))
rgw(o, 'bi_get', env(key('zz') + u8(1)))
# ---- epochs that are asked for
o = index('v6')
for name in ('m', 'k', 'z'):
    change(o, key('a', name))
    link(o, key('a', name), epoch=5)
    state(o)
unlink(o, key('a', 'z'), epoch=3)
unlink(o, key('a', 'm'), epoch=20)
state(o)
for epoch in (1, 14, 15, 16, 17, 255, 256, 4095, 4096, 65535, 65536, 2**32 - 1, 2**32, 2**63):
    change(o, key('n%d' % epoch, 'i'))
    link(o, key('n%d' % epoch, 'i'), epoch=epoch)
omap(o)
# ---- a time that must not be passed; versions that are written again; other tags
o = index('v7')
change(o, key('a', 'v1'), of=meta(mtime=utime(100, 7)))
link(o, key('a', 'v1'))
link(o, key('a', 'v1'), since=utime(100, 6), tag='no')
link(o, key('a', 'v1'), since=utime(100, 8), tag='yes')
link(o, key('a', 'v1'), since=utime(100, 8), tag='rough', precise=0)
state(o)
change(o, key('a', 'v1'), ver=9)
state(o)
unlink(o, key('a', 'v1'))
link(o, key('a', 'v1'), head='new', tag='relink')
state(o)
# ---- listings
o = index('l1')
change(o, key('a', 'v1'))
link(o, key('a', 'v1'))
link(o, key('a', 'v2'), 1)
for n in range(3):
    change(o, key('b%d' % n, 'v1'))
    link(o, key('b%d' % n, 'v1'))
for name in ('c/1', 'c/2', 'd', '\u00e9'):
    change(o, key(name))
prepare(o, key('d2'), 0, 'y')
for how in (dict(), dict(versions=1), dict(versions=1, n=2), dict(delimiter='/'), dict(delimiter='/', n=4), dict(start=key('a', 'v2'), versions=1),
            dict(start=key('a', 'v2')), dict(start=key('a'), versions=1), dict(start=key('b1', 'no'), versions=1), dict(start=key('c/'), delimiter='/'),
            dict(start=key('c/1'), delimiter='/'), dict(prefix='c/', delimiter='/'), dict(prefix='b'), dict(prefix='b', start=key('z')), dict(prefix='zz'),
            dict(delimiter='b', n=2), dict(n=1), dict(n=0), dict(n=6), dict(n=7), dict(n=8), dict(n=9)):
    listing(o, **how)
for name, marker in (('', ''), ('', 'b1'), ('a', ''), ('b1', ''), ('zz', '')):
    for n in (2, 100):
        rgw(o, 'bi_list', env(u32(n) + s(name) + s(marker)))
# ---- changes in odd orders
o = index('c1')
prepare(o, key('a'), tag='')
complete(o, key('a'), tag='none')
complete(o, key('a'), tag='')
state(o)
change(o, key('a'), ver=9)
change(o, key('a'), ver=5, of=meta(99))
state(o)
prepare(o, key('a'), 1, 'x')
prepare(o, key('a'), 1, 'y')
complete(o, key('a'), 1, 10, tag='x', of=meta(77))
state(o)
complete(o, key('a'), 2, 11, tag='y')
state(o)
change(o, key('p1'), of=meta(10, 3))
change(o, key('p2'), of=meta(5000, 3))
change(o, key('whole'), of=meta(5010, 1), gone=(key('p1'), key('p2'), key('p3')))
state(o)
rgw(o, 'bucket_check_index')
rgw(o, 'bucket_update_stats', env(u8(0) + u32(1) + u8(1) + env(u64(1) + u64(2) + u64(3) + u64(4), 3, 2)))
rgw(o, 'bucket_update_stats', env(u8(1) + u32(1) + u8(4) + env(u64(1) + u64(2) + u64(3) + u64(4), 3, 2)))
state(o)
rgw(o, 'bucket_check_index')
rgw(o, 'bucket_rebuild_index')
rgw(o, 'bucket_init_index')
state(o)
# ---- resharding
entry = lambda name, bid, new='', tenant='': env(utime(5) + s(tenant) + s(name) + s(bid) + s(new) + u32(1) + u32(2))
for name in ('a', 'b', 'c'):
    rgw('re', 'reshard_add', env(entry(name, 'id' + name)))
rgw('re', 'reshard_list', env(u32(2) + s('')))
rgw('re', 'reshard_list', env(u32(2) + s(':b')))
rgw('re', 'reshard_get', env(entry('b', '')))
rgw('re', 'reshard_get', env(entry('no', '')))
for bucket, bid in (('no', ''), ('b', 'other'), ('b', 'idb'), ('c', '')):
    rgw('re', 'reshard_remove', env(s('') + s(bucket) + s(bid)))
    omap('re')
for method, data in (('get_bucket_resharding', env(b'')), ('guard_bucket_resharding', env(u32(2**32 - 2300))), ('set_bucket_resharding', env(env(u8(1) + s('new') + u32(3)))),
                     ('guard_bucket_resharding', env(u32(2**32 - 2300))), ('get_bucket_resharding', env(b'')), ('set_bucket_resharding', env(env(u8(2) + s('new') + u32(3)))),
                     ('guard_bucket_resharding', env(u32(2**32 - 2300))), ('clear_bucket_resharding', env(b''))):
    rgw('c1', method, data)
    header('c1')
# ---- no input, on a missing object and on an empty one
make('empty')
for o in ('missing', 'empty'):
    for method in ('bucket_set_tag_timeout', 'bucket_list', 'bucket_update_stats', 'bucket_prepare_op', 'bucket_complete_op', 'bucket_link_olh',
                   'bucket_unlink_instance', 'bucket_read_olh_log', 'bucket_trim_olh_log', 'bucket_clear_olh', 'bi_get', 'bi_put', 'bi_list', 'bi_log_list',
                   'bi_log_trim', 'obj_remove', 'obj_store_pg_ver', 'obj_check_attrs_prefix', 'obj_check_mtime', 'user_usage_log_add', 'user_usage_log_read',
                   'user_usage_log_trim', 'gc_set_entry', 'gc_defer_entry', 'gc_list', 'gc_remove', 'lc_get_entry', 'lc_set_entry', 'lc_rm_entry',
                   'lc_get_next_entry', 'lc_put_head', 'lc_list_entries', 'reshard_add', 'reshard_list', 'reshard_get', 'reshard_remove',
                   'set_bucket_resharding', 'clear_bucket_resharding', 'guard_bucket_resharding', 'get_bucket_resharding'):
        call(o, 'rgw', method, volatile=True, note='no input')
# ---- objects of data
for name in ('d1', 'd2'):
    full(name, b'data')
    setxattr(name, 'user.rgw.olh.x', b'1')
    setxattr(name, 'user.other', b'2')
for prefix in ('user.rgw.olh.', 'user.none', ''):
    for none in (0, 1):
        rgw('d1', 'obj_check_attrs_prefix', env(s(prefix) + u8(none)))
for relation in range(6):
    rgw('d1', 'obj_check_mtime', env(utime(5) + u8(relation) + u8(1), 2, 1))
    rgw('d1', 'obj_check_mtime', env(utime(2**32 - 1) + u8(relation) + u8(0), 2, 1))
rgw('d1', 'obj_remove', env(seq(s('user.rgw.olh.'))))
xattrs('d1')
read('d1')
rgw('d2', 'obj_remove', env(seq()))
read('d2')
rgw('d2', 'obj_remove', env(seq()))
# ---- user
usr = lambda method, data=b'', note='': call('user', 'user', method, data, note, volatile=True)
bucket = lambda name, marker='m': env(s(name) + s(marker) + s('id') + s('') * 4, 7, 3)


def owned(name, size=0, count=0, rounded=0, marker='m', created=utime(1000, 1)):
    return env(u32(0) + u64(size) + u32(1000) + u64(count) + bucket(name, marker) + u64(rounded) + u8(0) + created, 9, 5)


def users(entries, add, time):
    usr('set_buckets_info', env(seq(*entries) + u8(add) + time))
    state('user')


usr('get_header', env(b''))
users([owned('a', 5, 1, 4096)], 0, utime(10))
users([owned('a')], 1, utime(20))
users([owned('a', 5, 1, 4096, 'other', utime(2000, 2))], 0, utime(15))
users([owned('a', 7, 2, 8192, 'third', utime(3000, 3))], 1, utime(30))
users([owned('b'), owned('c')], 1, utime(31))
users([owned('b', 1, 1, 4096), owned('c', 2, 2, 8192), owned('d', 3, 3, 3)], 0, utime(32))
for marker, n, end in (('', 100, ''), ('', 2, ''), ('a', 1, ''), ('', 100, 'b'), ('', 0, ''), ('c', 5, '')):
    usr('list_buckets', env(s(marker) + u32(n) + s(end), 2, 1))
usr('get_header', env(b''))
usr('complete_stats_sync', env(utime(50)))
usr('complete_stats_sync', env(utime(40)))
header('user')
usr('remove_bucket', env(bucket('b')))
usr('remove_bucket', env(bucket('none')))
state('user')
usr('reset_user_stats', env(utime(60)))
header('user')
usr('reset_user_stats2', env(utime(70) + s('') + env(u64(0) * 3)))
header('user')
for method in ('get_header', 'list_buckets', 'remove_bucket', 'set_buckets_info', 'complete_stats_sync', 'reset_user_stats', 'reset_user_stats2'):
    usr(method, note='no input')
# ---- rgw_gc
gc = lambda o, method, data=b'', note='': call(o, 'rgw_gc', method, data, note, volatile=True)
chain = lambda tag: env(s(tag) + env(seq()) + utime())
queued = lambda marker='', n=100, due=0: env(s(marker) + u32(n) + u8(due), 2, 1)
for size, n in ((1000, 3), (1000, 3), (0, 1)):
    gc('gc%d' % size, 'rgw_gc_queue_init', env(u64(size) + u64(n)))
call('gc1000', 'queue', 'queue_get_capacity')
gc('gc1000', 'rgw_gc_queue_list_entries', queued())
for tag, after in (('a', 0), ('b', 0), ('c', 1000), ('d', 0)):
    gc('gc1000', 'rgw_gc_queue_enqueue', env(u32(after) + chain(tag)))
for how in (dict(), dict(due=1), dict(n=2), dict(n=3, due=1), dict(n=0), dict(marker='0/4135'), dict(marker='0/1'), dict(marker='x/y')):
    gc('gc1000', 'rgw_gc_queue_list_entries', queued(**how), note='due alone' if how.get('due') else '')
gc('gc1000', 'rgw_gc_queue_update_entry', env(u32(1000) + chain('b')))
gc('gc1000', 'rgw_gc_queue_list_entries', queued(due=1), note='due alone')
gc('gc1000', 'rgw_gc_queue_remove_entries', env(u64(1)))
gc('gc1000', 'rgw_gc_queue_list_entries', queued(due=1), note='due alone')
gc('gc1000', 'rgw_gc_queue_enqueue', env(u32(0) + chain('x' * 2000)))
for o in ('gcmissing', 'gc1000'):
    for method in ('rgw_gc_queue_init', 'rgw_gc_queue_enqueue', 'rgw_gc_queue_list_entries', 'rgw_gc_queue_remove_entries', 'rgw_gc_queue_update_entry'):
        gc(o, method, note='no input')
gc('gcmissing', 'rgw_gc_queue_enqueue', env(u32(0) + chain('a')))
# ---- fifo
fifo = lambda o, method, data=b'': call(o, 'fifo', method, data, volatile=True)


def create(o, name, instance=None, prefix=None, exclusive=0, part=4 << 20, entry=32768):
    ver = u8(0) if instance is None else u8(1) + env(s(instance) + u64(1))
    fifo(o, 'create_meta', env(s(name) + ver + s('') * 2 + opt(None if prefix is None else s(prefix)) + u64(part) + u64(entry) + u8(exclusive)))


create('f1', 'f1', 'instance', 'f1.prefix')
read('f1')
fifo('f1', 'get_meta', env(u8(0)))
fifo('f1', 'get_meta', env(u8(1) + env(s('instance') + u64(1))))
fifo('f1', 'get_meta', env(u8(1) + env(s('instance') + u64(2))))
create('f1', 'f1')
create('f1', 'f1', exclusive=1)
create('f1', 'other')
create('f1', 'f1', part=1 << 20)
create('f1', 'f1', prefix='pp')
create('f1', 'f1', 'other')
create('f2', '')
create('f3', 'f3', part=0)
create('f4', 'f4', entry=0)
create('f5', 'f5', part=100, entry=200)
fifo('f5', 'get_meta', env(u8(0)))
make('f6')
fifo('f6', 'get_meta', env(u8(0)))
create('f6', 'f6')
fifo('f1', 'get_meta')
fifo('f1', 'create_meta')

finish()
