#!/usr/bin/python3
"""Records cls_fifo_replay.json: the parts of class fifo, and update_meta, on a real Ceph.

usage: record_fifo.py REPLAY_CLASSES CEPH_CONF POOL > cls_fifo_replay.json
See recorder.py. The magic number of a part is random: outputs and data that hold it are compared without it.
"""
from recorder import *

i64 = u64
ver = lambda instance, number: env(s(instance) + u64(number))
params = lambda part, entry, full: env(u64(part) + u64(entry) + u64(full))


def fifo(o, method, data=b'', note=''):
    # What tells a time is compared but for that.
    return call(o, 'fifo', method, data, note, volatile=method in ('part_list', 'get_part_info'))


def init(o, part=2000, entry=100, full=1900, tag='', note=''):
    return fifo('part.' + o, 'init_part', env(s(tag) + params(part, entry, full)), note)


def push(o, *entries, tag='', total=None, note=''):
    total = sum(map(len, entries)) if total is None else total
    return fifo('part.' + o, 'push_part', env(s(tag) + seq(*[s(e) for e in entries]) + u64(total)), note)


def returned(o, *entries):
    """How many were taken: only who asks for the values of a write's calls sees it. Not part of the recording."""
    data = env(s('') + seq(*[s(e) for e in entries]) + u64(sum(map(len, entries))))
    op, value = C.c_void_p(rad.l.rados_create_write_op()), C.c_int(99)
    rad.l.rados_write_op_exec(op, b'fifo', b'push_part', data, C.c_size_t(len(data)), C.byref(value))
    rc = rad.l.rados_write_op_operate2(op, rad.io, b'part.' + o.encode(), None, 512)
    rad.l.rados_release_write_op(op)
    print(o, len(entries), 'entries:', rc, value.value, file=sys.stderr)


def listing(o, ofs=0, most=100, tag=None, note=''):
    return fifo('part.' + o, 'part_list', env(opt(None if tag is None else s(tag)) + u64(ofs) + u32(most & 0xffffffff)), note)


def trim(o, ofs, exclusive=False, tag=None, note=''):
    return fifo('part.' + o, 'trim_part', env(opt(None if tag is None else s(tag)) + u64(ofs) + u8(exclusive)), note)


def info(o, note=''):
    return fifo('part.' + o, 'get_part_info', env(b''), note)


def entry(op, part, tag=''):
    return env(u32(op) + i64(part) + s(tag))


def update(o, version, tail=None, head=None, low=None, high=None, add=(), rm=(), note=''):
    numbers = b''.join(opt(None if n is None else u64(n)) for n in (tail, head, low, high))
    return fifo(o, 'update_meta', env(version + numbers + seq(*add) + seq(*rm)), note)


if __name__ == '__main__':
    # ---- what is no part
    for o, make_it in (('none', False), ('empty', True)):
        if make_it:
            make('part.' + o)
        for m in ('init_part', 'push_part', 'part_list', 'trim_part', 'get_part_info', 'update_meta'):
            fifo('part.' + o, m, note='no input')
        push(o, 'a', note='no part')
        listing(o, note='no part')
        trim(o, 600, note='no part')
        info(o, 'no part')
    full('part.text', b'x' * 1000)
    push('text', 'a')
    listing('text')
    trim('text', 600)
    info('text')
    init('text')

    # ---- making one
    o = 'p'
    init(o)
    info(o)
    read('part.' + o)
    init(o, note='again, the same')
    init(o, part=3000, note='again, another size')
    init(o, entry=50, note='again, other entries')
    init(o, tag='t', note='again, a tag')
    init('odd', part=0, entry=0, full=0)
    info('odd')
    push('odd', 'a')
    info('odd')
    init('tagged', tag='t')
    info('tagged')
    push('tagged', 'a', note='no tag')
    push('tagged', 'a', tag='t')
    push('tagged', 'a', tag='u', note='another tag')
    listing('tagged')
    listing('tagged', tag='t')
    listing('tagged', tag='u')
    trim('tagged', 512, tag='u')
    trim('tagged', 512, tag='t')

    # ---- pushing
    push(o, note='nothing')
    push(o, 'first')
    info(o)
    read('part.' + o)
    push(o, 'second', 'third', '')
    push(o, 'x' * 100, note='as long as may be')
    push(o, 'x' * 101, note='longer')
    push(o, 'ok', 'x' * 101, note='the second is longer')
    push(o, 'a', 'b', total=1, note='another total')
    push(o, 'a', 'b', total=5000, note='a large total')
    info(o)
    listing(o)
    listing(o, most=2)
    listing(o, most=0)
    listing(o, most=-1)
    listing(o, most=1001)
    for at in (1, 511, 512, 513, 575, 639, 5000, 2 ** 63, 2 ** 64 - 1):
        listing(o, at, 2)

    # ---- which of the sizes counts
    for name, of in (('a', (10, 0, 900)), ('b', (2000, 0, 900)), ('c', (2000, 100, 0)), ('d', (10, 100, 900)), ('e', (50, 60, 900))):
        init(name, *of)
        push(name, 'x' * 20)
        push(name, 'x' * 60, note='three times as long')
        push(name, 'x' * 40, 'x' * 40)
        push(name, note='nothing')
        info(name)
    for name, of in (('f', (100, 0, 9000)), ('g', (600, 0, 9000))):
        init(name, *of)
        for size in (41, 42, 43, 99, 100, 101, 512, 542, 543, 599, 600, 601):
            push(name, 'x' * size)
        push(name, 'x' * 20, 'x' * 20, note='two')
        push(name, 'x' * 42, 'x' * 43, note='two')
        push(name, 'x' * 50, 'x' * 50, note='as long as the part')
        push(name, 'x' * 50, 'x' * 51, note='longer than the part')
        info(name)
    # ---- until it is full
    for i in range(30):
        out = push(o, 'y' * 90)
        if steps[-1]['rc'] < 0:
            break
    info(o)
    push(o, 'z', note='one that would fit')
    listing(o, 1000)
    push('two', 'a')
    init('two', part=1000, entry=300, full=600)
    push('two', *['v' * 30] * 3, note='some fit')
    push('two', *['w' * 30] * 3, note='none fits')
    info('two')
    listing('two')
    read('part.two')

    # ---- trimming
    trim(o, 0)
    info(o)
    trim(o, 512, exclusive=True, note='the first, but not it')
    listing(o, most=2)
    trim(o, 512)
    info(o)
    listing(o, most=2)
    listing(o, 512, 2, note='from what is gone')
    trim(o, 512, note='again')
    trim(o, 600, note='in the middle of one')
    info(o)
    trim(o, 5000, note='behind all')
    info(o)
    listing(o)
    push(o, 'after')
    trim(o, 5000, note='again')
    trim('two', 600, exclusive=True)
    info('two')
    listing('two')
    init('three', part=10000, entry=300, full=9000)
    push('three', *['entry %d' % i for i in range(20)])
    trim('three', 512 + 5 * 65, exclusive=True)
    info('three')
    listing('three')
    trim('three', 512 + 5 * 65 + 5, note='within the sixth')
    listing('three', most=3)
    trim('three', 10 ** 6)
    info('three')
    push('three', 'more')
    listing('three')
    info('three')
    read('part.three')

    # how many one listing gives, at most
    init('eight', part=1 << 20, entry=1000, full=1 << 19)
    for _ in range(12):
        push('eight', *['%d' % i for i in range(100)])
    n = len(steps)
    for most in (400, 1200, 10 ** 6):
        out = listing('eight', most=most)
        print(most, 'asked for,', struct.unpack('<I', out[10:14])[0], 'given', out[-2:].hex(), file=sys.stderr)
    del steps[n:]
    steps[:] = [step for step in steps if step['oid'] != 'part.eight']

    # ---- the description
    # ---- a full part goes with its last entry
    init('four', part=1000, entry=300, full=600)
    push('four', *['v' * 30] * 3)
    trim('four', 600, exclusive=True)
    info('four')
    trim('four', 600)
    info('four')
    init('four', note='once more')
    init('five', part=1000, entry=300, full=600)
    push('five', 'v' * 30)
    trim('five', 512)
    info('five')
    listing('five')
    full('six', b'')
    init('six')
    info('six')
    init('seven', part=1 << 20, entry=1000, full=1 << 19)
    push('seven', *['n'] * 20)
    returned('seven', 'a', 'b', 'c')
    returned('two', 'a')

    o = 'meta'
    fifo(o, 'create_meta', env(s('q') + opt(ver('i', 7)) + s('') * 2 + opt(s('q.prefix')) + u64(2000) + u64(100) + u8(0)))
    at = [7]

    def now():
        fifo(o, 'get_meta', env(u8(0)))

    def change(note='', **k):
        update(o, ver('i', at[0]), note=note, **k)
        if steps[-1]['rc'] == 0:
            fifo(o, 'get_meta', env(u8(1) + ver('i', at[0] + 1)), 'is it the next version')
            at[0] += steps[-1]['rc'] == 0
        now()

    now()
    update(o, ver('i', 6), tail=1, note='an old version')
    update(o, ver('j', 7), tail=1, note='another instance')
    change('nothing')
    change(tail=0, note='as it is')
    change(head=0, high=0, add=[entry(1, 0), entry(2, 0)])
    change(tail=3, head=5, low=4, high=2 ** 63)
    change(add=[entry(1, 0)], note='it is there')
    change(rm=[entry(9, 9)], note='it is not there')
    change(add=[entry(1, 0), entry(1, 4), entry(3, 4), entry(1, 2, 'tag')], note='one is there')
    change(add=[entry(1, 4, 'other')], note='it is there with another tag')
    change(rm=[entry(1, 0), entry(9, 9)], note='one is not there')
    change(rm=[entry(3, 4, 'x')], note='with another tag')
    change(add=[entry(1, 9)], rm=[entry(1, 9)])
    change(tail=1, note='backwards')
    change(low=9, high=3)
    update('part.none', ver('i', 12))
    update('part.empty', ver('i', 12))
    read(o)
    full('odd.meta', b'junk' * 9)
    update('odd.meta', ver('i', 1), tail=1)
    finish()
