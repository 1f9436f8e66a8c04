#!/usr/bin/python3
"""Records cls_queues_replay.json: the classes queue, 2pc_queue and cas on a real Ceph.

usage: record_queues.py REPLAY_CLASSES CEPH_CONF POOL > cls_queues_replay.json
See recorder.py. Markers behind the tail are not sent: 16.2's OSD goes on reading for ever.
"""
from recorder import *

init = lambda size, urgent_max=0, urgent=b'': env(u64(size) + u64(urgent_max) + s(urgent))
entries = lambda *e: seq(*[s(x) for x in e])


def listing(o, cls, most, marker='', note=''):
    call(o, cls, ('2pc_' if cls == '2pc_queue' else '') + 'queue_list_entries', env(u64(most) + s(marker)), note)


# ---- queue: what is no queue
for o, make_it in (('q.missing', False), ('q.empty', True)):
    if make_it:
        make(o)
    for m in ('queue_get_capacity', 'queue_enqueue', 'queue_list_entries', 'queue_remove_entries', 'queue_init'):
        call(o, 'queue', m, note='no input')
    call(o, 'queue', 'queue_enqueue', env(entries('a')), 'no queue')
    call(o, 'queue', 'queue_remove_entries', env(s('0/1024')), 'no queue')

# ---- once round the ring
o = 'q'
call(o, 'queue', 'queue_init', init(100))
call(o, 'queue', 'queue_init', init(100), 'again')
call(o, 'queue', 'queue_get_capacity')
for i in range(5):
    call(o, 'queue', 'queue_enqueue', env(entries('%02d' % i + 'y' * 16)), 'two have no room' if i > 2 else '')
read(o)
listing(o, 'queue', 2)
listing(o, 'queue', 10, '0/1080')
listing(o, 'queue', 10, 'text')
listing(o, 'queue', 10, '0/5', 'in the head')
call(o, 'queue', 'queue_remove_entries', env(s('0/1080')))
listing(o, 'queue', 10)
call(o, 'queue', 'queue_enqueue', env(entries('z' * 42)), 'round the end')
call(o, 'queue', 'queue_enqueue', env(entries('z' * 6)))
call(o, 'queue', 'queue_enqueue', env(entries('z' * 6)), 'no room')
listing(o, 'queue', 10)
listing(o, 'queue', 1)
call(o, 'queue', 'queue_remove_entries', env(s('1/1060')))
listing(o, 'queue', 10)
call(o, 'queue', 'queue_remove_entries', env(s('0/5')), 'in the head')

# ---- full to the byte, then empty
o = 'q.full'
call(o, 'queue', 'queue_init', init(60, 50, b'urgent'))
call(o, 'queue', 'queue_enqueue', env(entries('a' * 10, 'b' * 30)))
listing(o, 'queue', 10)
read(o)

# ---- 2pc_queue
for o, make_it in (('t.missing', False), ('t.empty', True)):
    if make_it:
        make(o)
    for m in ('get_capacity', 'reserve', 'commit', 'abort', 'list_reservations', 'list_entries', 'remove_entries',
              'expire_reservations', 'init'):
        call(o, '2pc_queue', '2pc_queue_' + m, note='no input')
    call(o, '2pc_queue', '2pc_queue_reserve', env(u64(1) + u32(1)), 'no queue')
    call(o, '2pc_queue', '2pc_queue_abort', env(u32(1)), 'no queue')
o = 't'
two = lambda m, data=b'', note='': call(o, '2pc_queue', '2pc_queue_' + m, data, note)
two('init', init(400))
two('init', init(400), 'again')
two('get_capacity')
two('reserve', env(u64(10) + u32(1)))
two('reserve', env(u64(20) + u32(2)))
two('reserve', env(u64(0) + u32(2)), 'no bytes')
two('reserve', env(u64(20) + u32(0)), 'no entries')
two('commit', env(u32(1) + entries('x' * 11)), 'more than reserved')
two('commit', env(u32(1) + entries('xxxx', 'yyyy')), 'in more entries')
two('commit', env(u32(1) + entries('abcde')), 'committed before')
two('commit', env(u32(2) + entries('x' * 15, 'y' * 5)))
two('abort', env(u32(9)), 'never reserved')
two('reserve', env(u64(360) + u32(1)), 'no room')
two('list_reservations', note='none')
two('reserve', env(u64(10) + u32(1)))
two('abort', env(u32(3)))
two('list_reservations', note='none again')
listing(o, '2pc_queue', 10)
listing(o, '2pc_queue', 2)
two('remove_entries', env(s('0/1036')), 'in the head')
two('expire_reservations', env(utime(1)), 'none')

# ---- cas
source = lambda name: env(s('') + s(name) + u64(0) + u32(0) + u8(0) + s('') + u64(-2**63), 4, 3)
cas = lambda o, m, data=b'', note='': call(o, 'cas', 'chunk_' + m, data, note)
o = 'c'
for name, make_it in (('c.missing', False), ('c.empty', True)):
    if make_it:
        make(name)
    for m in ('create_or_get_ref', 'get_ref', 'put_ref'):
        cas(name, m, note='no input')
    cas(name, 'put_ref', env(source('foo1')))
cas('c.missing', 'get_ref', env(source('foo1')))
cas(o, 'create_or_get_ref', env(source('foo2') + u64(0) + s('data')))
cas(o, 'get_ref', env(source('foo1')))
xattrs(o)
cas(o, 'create_or_get_ref', env(source('foo1') + u64(1) + s('data')), 'the same')
cas(o, 'create_or_get_ref', env(source('foo1') + u64(1) + s('dbta')), 'other data')
cas(o, 'create_or_get_ref', env(source('foo1') + u64(0) + s('dbta')), 'other data, not looked at')
cas(o, 'put_ref', env(source('foo9')), 'no such reference')
xattrs(o)
for i in range(3):
    cas(o, 'put_ref', env(source('foo1')))
xattrs(o)
cas(o, 'put_ref', env(source('foo2')), 'the last')
read(o)
cas(o, 'put_ref', env(source('foo2')), 'no chunk')
full('c.plain', b'plain')
cas('c.plain', 'put_ref', env(source('foo1')), 'no references')
cas('c.plain', 'get_ref', env(source('foo1')))
xattrs('c.plain')

finish()
