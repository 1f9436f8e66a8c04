#!/usr/bin/python3
"""Records cls_extra_replay.json: calls of object classes that the other recordings lack, made on a real Ceph.

usage: record_extra.py REPLAY_CLASSES CEPH_CONF POOL METHODS > cls_extra_replay.json
METHODS is a JSON map of class names to method names; the rest: see recorder.py.
"""
from recorder import *

# ---- encodings
user_ns = env(u32(0))
group_ns = env(u32(1) + u64(3) + s('g1') + s('gs1'))
trash_ns = env(u32(2) + s('old') + u32(0))
mirror_ns = lambda state, *peers: env(u32(3) + u8(state) + u8(0) + seq(*map(s, sorted(peers))) + s('') + u64(NOSNAP) + u64(0) + u32(0))
parent = lambda pool=3, ns='', img='par', snap=11: env(u64(pool) + s(ns) + s(img) + u64(snap))
child = lambda pool=3, img='kid', ns='': env(u64(pool) + s(img) + s(ns), 2)
migration = lambda kind, state=1, spec='': env(u8(kind) + u64(5) + s('') + s('dst') + s('dstid') + u32(0) + u64(7) + u8(0) + u8(0) + u8(state) + s('d') + u8(0) + s(spec), 3, 3 if spec else 1)
trash = lambda name='n', state=0: env(u8(0) + s(name) + utime(100) + utime(200) + u8(state), 2)
gimage = lambda img='im', pool=3: env(s(img) + u64(pool))
gstatus = lambda img, pool, st: env(gimage(img, pool) + u8(st))
gsnap = lambda i, n, st=0: env(s(i) + s(n) + u8(st) + u32(0))
group = lambda pool=3, g='g': env(u64(pool) + s(g))
peer = lambda uuid, site, client='client.x', d=2, mu='': env(s(uuid) + s(site) + s(client) + u64(-1) + u8(d) + s(mu) + utime(), 2)
mimage = lambda g, st=1, mode=0: env(s(g) + u8(st) + u8(mode), 2)
site = lambda st, desc='', mu=None: env((b'' if mu is None else s(mu)) + u8(st) + s(desc) + utime() + u8(1), 1 if mu is None else 2)
imap = lambda inst, data='d': env(s(inst) + utime(5) + s(data))
lockin = lambda name='l', t=1, ck='ck', tag='', desc='', dur=(0, 0), fl=0: env(s(name) + u8(t) + s(ck) + s(tag) + s(desc) + utime(*dur) + u8(fl))
claim = lambda name='l', t=1, ck='ck', tag='', more=b'': env(s(name) + u8(t) + s(ck) + s(tag) + more)
ref = lambda tag, implicit=0: env(s(tag) + u8(implicit))
ver = lambda n, tag: env(u64(n) + s(tag))
conds = lambda *cs: env(ver(0, '') + seq(*[env(ver(n, t) + u32(c)) for n, t, c in cs]))
position = lambda *ps: env(seq(*[env(u64(o) + u64(t) + u64(e)) for o, t, e in ps]))
bits = lambda n, data: u32(14) + env(u64(n)) + bytes.fromhex(data) + u32(0)
create = lambda feat=0x3d, size=1 << 24, order=22: u64(size) + u8(order) + u64(feat) + s('pre')

# ---- every method with no input, on a missing object and on an empty one
METHODS = json.load(open(sys.argv[4]))
for cls, methods in METHODS.items():
    for m in methods:
        if (cls, m) in (('hello', 'bad_reader'), ('hello', 'bad_writer')):
            continue
        call('missing.' + cls + '.' + m, cls, m, b'', 'no input, no object')
        if m in ('mirror_image_status_get_summary',):
            pass
        make('empty.' + cls + '.' + m)
        call('empty.' + cls + '.' + m, cls, m, b'', 'no input, empty object', volatile=(cls, m) == ('version', 'inc'))
        omap('empty.' + cls + '.' + m)
        read('empty.' + cls + '.' + m)

# ---- plausible inputs on a missing object and on an empty one
NAMEID = s('n1') + s('id1')
INPUTS = {
    'rbd': {
        'create': create(), 'get_features': u64(NOSNAP), 'set_features': u64(0) + u64(0x4), 'get_size': u64(NOSNAP),
        'set_size': u64(5), 'set_stripe_unit_count': u64(4096) + u64(2), 'get_flags': u64(NOSNAP),
        'set_flags': u64(1) + u64(1), 'op_features_set': u64(1) + u64(1), 'metadata_set': seq(s('a') + s('1')),
        'metadata_get': s('a'), 'metadata_list': s('') + u64(0), 'metadata_remove': s('a'),
        'snapshot_add': s('s') + u64(4) + user_ns, 'snapshot_get': u64(4), 'get_snapshot_name': u64(4),
        'get_snapshot_timestamp': u64(4), 'snapshot_rename': u64(4) + s('t'), 'snapshot_remove': u64(4),
        'snapshot_trash_add': u64(4), 'get_protection_status': u64(4), 'set_protection_status': u64(4) + u8(1),
        'snapshot_set_limit': u64(3), 'parent_overlap_get': u64(NOSNAP), 'parent_attach': parent() + u64(10),
        'get_parent': u64(NOSNAP), 'set_parent': u64(3) + s('par') + u64(5) + u64(77), 'child_attach': u64(4) + child(),
        'child_detach': u64(4) + child(), 'children_list': u64(4), 'set_id': s('abc'), 'dir_get_id': s('n1'),
        'dir_get_name': s('id1'), 'dir_list': s('') + u64(10), 'dir_add_image': NAMEID, 'dir_remove_image': NAMEID,
        'dir_rename_image': s('n1') + s('n2') + s('id1'), 'dir_state_assert': u8(0), 'dir_state_set': u8(1),
        'add_child': u64(3) + s('par') + u64(4) + s('kid'), 'remove_child': u64(3) + s('par') + u64(4) + s('kid'),
        'get_children': u64(3) + s('par') + u64(4), 'object_map_save': bits(5, '1540'),
        'object_map_resize': u64(5) + u8(1), 'object_map_update': u64(0) + u64(1) + u8(1) + u8(0),
        'object_map_snap_remove': bits(5, '1540'), 'migration_set': migration(1), 'migration_set_state': u8(2) + s('x'),
        'image_group_add': group(), 'image_group_remove': group(), 'group_dir_add': NAMEID, 'group_dir_remove': NAMEID,
        'group_dir_rename': s('n1') + s('n2') + s('id1'), 'group_dir_list': s('') + u64(10),
        'group_image_set': gstatus('im', 3, 1), 'group_image_remove': gimage(), 'group_image_list': gimage('', -1) + u64(10),
        'group_snap_set': gsnap('i', 'n'), 'group_snap_remove': s('i'), 'group_snap_get_by_id': s('i'),
        'group_snap_list': gsnap('', '') + u64(10), 'trash_add': s('id1') + trash(), 'trash_remove': s('id1'),
        'trash_get': s('id1'), 'trash_list': s('') + u64(10), 'trash_state_set': s('id1') + u8(2) + u8(0),
        'namespace_add': s('ns'), 'namespace_remove': s('ns'), 'namespace_list': s('') + u64(10),
        'mirror_uuid_set': s('uu'), 'mirror_mode_set': u32(1), 'mirror_peer_add': peer('p1', 'sb'),
        'mirror_peer_remove': s('p1'), 'mirror_peer_set_client': s('p1') + s('c'), 'mirror_peer_set_cluster': s('p1') + s('c'),
        'mirror_peer_set_direction': s('p1') + u8(1), 'mirror_image_list': s('') + u64(10), 'mirror_image_get': s('im'),
        'mirror_image_get_image_id': s('gl'), 'mirror_image_set': s('im') + mimage('gl'), 'mirror_image_remove': s('im'),
        'mirror_image_status_set': s('gl') + site(4, 'd'), 'mirror_image_status_get': s('gl'),
        'mirror_image_status_list': s('') + u64(10), 'mirror_image_status_get_summary': u32(0),
        'mirror_image_status_remove': s('gl'), 'mirror_image_instance_get': s('gl'),
        'mirror_image_instance_list': s('') + u64(10), 'mirror_instances_add': s('1'), 'mirror_instances_remove': s('1'),
        'mirror_image_map_list': s('') + u64(10), 'mirror_image_map_update': s('gl') + imap('1'),
        'mirror_image_map_remove': s('gl'), 'mirror_image_snapshot_unlink_peer': u64(4) + s('p'),
        'mirror_image_snapshot_set_copy_progress': u64(4) + u8(1) + u64(7), 'copyup': b'', 'sparse_copyup': u32(0) + s(''),
        'sparsify': u64(4096) + u8(0), 'assert_snapc_seq': u64(3) + u8(1), 'snap_add': s('s') + u64(4),
        'snap_remove': s('s'), 'snap_rename': u64(4) + s('t'),
    },
    'journal': {
        'create': u8(24) + u8(4) + u64(-1), 'set_minimum_set': u64(1), 'set_active_set': u64(1), 'get_client': s('a'),
        'client_register': s('a') + s('d'), 'client_update_data': s('a') + s('d'), 'client_update_state': s('a') + u8(1),
        'client_unregister': s('a'), 'client_commit': s('a') + position((1, 1, 1)), 'client_list': s('') + u64(5),
        'get_tag': u64(0), 'tag_create': u64(0) + u64(2**64 - 1) + s('t'), 'tag_list': u64(0) + u64(5) + s('a') + u8(0),
        'guard_append': u64(0), 'append': u64(0) + s('data'),
    },
    'refcount': {'get': ref('a'), 'put': ref('a'), 'set': env(seq(s('a'))), 'read': env(u8(0))},
    'lock': {'lock': lockin(), 'unlock': env(s('l') + s('ck')), 'break_lock': env(s('l') + u8(8) + u64(1) + s('ck')),
             'get_info': env(s('l')), 'assert_locked': claim(), 'set_cookie': claim(more=s('nk'))},
    'version': {'set': ver(3, 'x'), 'inc_conds': conds((0, '', 1)), 'check_conds': conds((0, '', 1))},
}
for cls, inputs in INPUTS.items():
    for m, data in inputs.items():
        for kind in ('missing2.', 'empty2.'):
            oid = kind + cls + '.' + m
            if kind == 'empty2.':
                make(oid)
            call(oid, cls, m, data, kind[:-2] + ' object', volatile=True)
            omap(oid)

# ---- locks
o = 'locks'
call(o, 'lock', 'lock', lockin(t=3, dur=(1, 0)), 'ephemeral for a second')
setxattr(o, 'other', b'v')
call(o, 'lock', 'get_info', env(s('l')), volatile=True)
wait(2)
call(o, 'lock', 'get_info', env(s('l')), 'after its end')
call(o, 'lock', 'assert_locked', claim(t=3), 'ended')
call(o, 'lock', 'unlock', env(s('l') + s('ck')))
call(o, 'lock', 'list_locks')
call(o, 'lock', 'lock', lockin(ck='two'), 'locked anew')
xattrs(o)
call(o, 'lock', 'lock', lockin(ck='two', fl=4), 'unknown flag')
call(o, 'lock', 'lock', lockin(ck='two', t=2, fl=1), 'renewed as shared')
call(o, 'lock', 'lock', lockin(ck='three', t=2))
call(o, 'lock', 'lock', lockin(ck='three', t=1, fl=1), 'renewed as exclusive beside another')
call(o, 'lock', 'lock', lockin(ck='two', t=2, tag='x', fl=1), 'renewed with another tag')
call(o, 'lock', 'set_cookie', claim(t=0, ck='two', more=s('nk')))
call(o, 'lock', 'set_cookie', claim(t=2, ck='two', more=s('three')))
call(o, 'lock', 'set_cookie', claim(t=2, ck='two', more=s('two')), 'to the same cookie')
call(o, 'lock', 'set_cookie', claim(t=2, ck='two', more=s('')), 'to an empty cookie')
call(o, 'lock', 'get_info', env(s('l')), volatile=True)
call(o, 'lock', 'unlock', env(s('nolock') + s('two')))
call(o, 'lock', 'lock', lockin(name='m', dur=(0xffffffff, 999999999)), 'the end of time')
call(o, 'lock', 'get_info', env(s('m')), 'the end of time', volatile=True)
setxattr(o, 'lock.bad', b'\x01\x02')
call(o, 'lock', 'get_info', env(s('bad')), 'not a lock')
call(o, 'lock', 'lock', lockin(name='bad'), 'not a lock')
call(o, 'lock', 'assert_locked', claim(name='bad'), 'not a lock')
call(o, 'lock', 'unlock', env(s('bad') + s('two')), 'not a lock')
call(o, 'lock', 'list_locks')
call(o, 'lock', 'get_info', env(s('l'), 2, 1) + b'tail', volatile=True, note='newer struct, more bytes')
call(o, 'lock', 'get_info', env(s('l'), 2, 2), 'struct too new')

# ---- refcount
o = 'refs'
full(o, b'x')
call(o, 'refcount', 'get', ref('a', 1), 'implicit reference stays')
call(o, 'refcount', 'read', env(u8(0)))
call(o, 'refcount', 'put', ref('q'), 'takes the wildcard')
call(o, 'refcount', 'read', env(u8(0)))
xattrs(o)
call(o, 'refcount', 'put', ref('q'), 'retired')
call(o, 'refcount', 'get', ref('q'), 'again')
call(o, 'refcount', 'read', env(u8(0)))
call(o, 'refcount', 'put', ref('q'))
call(o, 'refcount', 'read', env(u8(0)))
xattrs(o)
call(o, 'refcount', 'set', env(seq(s('k'), s('j'), s('k'))))
xattrs(o)
call(o, 'refcount', 'put', ref('k'))
call(o, 'refcount', 'put', ref('k'))
call(o, 'refcount', 'put', ref('j'))
call(o, 'refcount', 'read', env(u8(1)))
full(o, b'x')
setxattr(o, 'refcount', b'\x01')
call(o, 'refcount', 'read', env(u8(0)), 'garbage')
call(o, 'refcount', 'put', ref('a'), 'garbage')

# ---- version
o = 'vers'
call(o, 'version', 'set', ver(5, 'tag'))
for n, t, c in ((5, 'tag', 0), (5, 'tag', 1), (5, 'x', 1), (4, 'tag', 2), (5, 'tag', 2), (5, '', 3), (6, '', 3), (6, '', 4), (5, '', 4), (5, '', 5), (4, '', 5), (0, 'tag', 6), (0, 'x', 6), (0, 'tag', 7), (0, 'x', 7), (5, 'tag', 8)):
    call(o, 'version', 'check_conds', conds((n, t, c)))
call(o, 'version', 'check_conds', conds((5, 'tag', 1), (9, '', 2)), 'two conditions')
call(o, 'version', 'inc_conds', conds((5, 'tag', 1), (4, '', 2)))
call(o, 'version', 'read')
setxattr(o, 'ceph.objclass.version', b'\x01')
call(o, 'version', 'read', note='garbage')
call(o, 'version', 'inc', conds(), 'garbage')

# ---- numops
o = 'nums'
for i, n in enumerate(('5', ' 5', '5 ', '0x10', '1e400', '', '5abc', 'inf', 'nan', '+5', '.5', '-3', '1e-7', '12345678901', '0.1', '1e300', '1e')):
    call(o, 'numops', 'add', s('k%02d' % i) + s(n), n)
    call(o, 'numops', 'mul', s('k%02d' % i) + s('3'), 'times three')
omap_set(o, b'bad', b'abc')
call(o, 'numops', 'add', s('bad') + s('1'))
omap_set(o, b'sp', b' 7 ')
call(o, 'numops', 'add', s('sp') + s('1'))
omap_set(o, b'mix', b'7x')
call(o, 'numops', 'add', s('mix') + s('1'))
omap_set(o, b'void', b'')
call(o, 'numops', 'add', s('void') + s('1'))
call(o, 'numops', 'mul', s('new') + s('2'))
omap(o)

# ---- journal
o = 'journal.x'
call(o, 'journal', 'create', u8(24) + u8(2) + u64(7))
call(o, 'journal', 'client_register', s('') + s('self'))
call(o, 'journal', 'client_register', s('a') + s('A'))
call(o, 'journal', 'client_register', s('b') + s('B'))
for t, c in ((0, -1), (1, 0), (2, -1), (3, 1), (4, 0)):
    call(o, 'journal', 'tag_create', u64(t) + u64(c) + s('t%d' % t))
call(o, 'journal', 'client_commit', s('') + position((0, 3, 1), (1, 1, 9)))
call(o, 'journal', 'client_commit', s('a') + position((0, 4, 1)))
call(o, 'journal', 'client_register', s('c') + s('C'), 'b has committed nothing')
call(o, 'journal', 'get_client', s('c'))
call(o, 'journal', 'client_unregister', s('c'))
call(o, 'journal', 'client_update_state', s('b') + u8(1))
call(o, 'journal', 'client_register', s('c') + s('C'), 'b is disconnected')
call(o, 'journal', 'get_client', s('c'))
call(o, 'journal', 'client_unregister', s('c'))
call(o, 'journal', 'client_commit', s('b') + position((0, 2, 5), (1, 2, 1)))
call(o, 'journal', 'client_register', s('c') + s('C'))
call(o, 'journal', 'get_client', s('c'))
for who in ('', 'a', 'b'):
    for start, most, cl in ((0, 10, None), (0, 1, None), (0, 2, None), (1, 10, None), (2, 2, None), (0, 10, u64(0)), (0, 1, u64(0)), (0, 10, u64(1)), (9, 10, None)):
        call(o, 'journal', 'tag_list', u64(start) + u64(most) + s(who) + opt(cl))
call(o, 'journal', 'client_list', s('') + u64(2))
call(o, 'journal', 'client_list', s('a') + u64(10))
call(o, 'journal', 'client_list', s('') + u64(0))
call(o, 'journal', 'tag_create', u64(5) + u64(0) + s('t5'))
omap(o)
call(o, 'journal', 'client_unregister', s('c'))
omap(o)
call(o, 'journal', 'client_update_state', s('') + u8(1))
call(o, 'journal', 'client_unregister', s('b'))
omap(o)
call(o, 'journal', 'set_active_set', u64(9))
call(o, 'journal', 'set_minimum_set', u64(9))
call(o, 'journal', 'set_active_set', u64(8), 'below the minimum')
call('jdata', 'journal', 'append', u64(0) + s('x'), 'soft max 0, missing object')
call('jdata2', 'journal', 'append', u64(4) + s(''), 'nothing to append')
read('jdata2')
call('jdata2', 'journal', 'guard_append', u64(0), 'empty object, soft max 0')

# ---- rbd: snapshots
o = 'rbd_header.s'
call(o, 'rbd', 'create', create(0x3f))
call(o, 'rbd', 'snapshot_add', s('one') + u64(1) + user_ns)
call(o, 'rbd', 'snapshot_add', s('one') + u64(2) + trash_ns)
call(o, 'rbd', 'snapshot_add', s('one') + u64(3) + env(u32(2) + s('other') + u32(1)), 'both in the trash')
call(o, 'rbd', 'snapshot_add', s('one') + u64(3) + mirror_ns(2, 'p1'))
call(o, 'rbd', 'snapshot_add', s('one') + u64(4) + mirror_ns(2, 'p1'), 'same mirror namespace')
call(o, 'rbd', 'snapshot_add', s('one') + u64(4) + mirror_ns(2, 'p2'), 'other mirror namespace')
call(o, 'rbd', 'snapshot_add', s('') + u64(5) + user_ns, 'empty name')
call(o, 'rbd', 'snapshot_add', s('e') + u64(5), 'equal to snap_seq, taken')
call(o, 'rbd', 'snapshot_rename', u64(1) + s('one'), 'to its own name')
call(o, 'rbd', 'snapshot_rename', u64(9) + s('one'), 'missing, and the name is taken')
call(o, 'rbd', 'snapshot_rename', u64(2) + s('one'), 'in the trash, and the name is taken')
call(o, 'rbd', 'snapshot_rename', u64(NOSNAP) + s('zz'))
call(o, 'rbd', 'snapshot_rename', u64(1) + s(''), 'to nothing')
call(o, 'rbd', 'snapshot_remove', u64(NOSNAP))
call(o, 'rbd', 'snapshot_trash_add', u64(NOSNAP))
call(o, 'rbd', 'snapshot_trash_add', u64(3), 'a mirror snapshot')
call(o, 'rbd', 'set_protection_status', u64(2) + u8(1), 'in the trash')
call(o, 'rbd', 'set_protection_status', u64(2) + u8(0))
call(o, 'rbd', 'set_protection_status', u64(NOSNAP) + u8(1))
call(o, 'rbd', 'set_flags', u64(3) + u64(1))
call(o, 'rbd', 'get_flags', u64(1))
call(o, 'rbd', 'snapshot_add', s('f') + u64(6))
call(o, 'rbd', 'get_flags', u64(6), 'taken from the image')
call(o, 'rbd', 'op_features_set', u64(3) + u64(3))
call(o, 'rbd', 'parent_attach', parent() + u64(4096))
call(o, 'rbd', 'snapshot_add', s('g') + u64(7))
omap(o)
call(o, 'rbd', 'get_parent', u64(7))
call(o, 'rbd', 'get_parent', u64(1), 'before it was a clone')
call(o, 'rbd', 'get_parent', u64(99))
call(o, 'rbd', 'parent_attach', parent() + u64(4096), 'the same again')
call(o, 'rbd', 'parent_attach', parent(img='') + u64(4096) + u8(1))
call(o, 'rbd', 'parent_attach', parent(snap=NOSNAP) + u64(4096))
call(o, 'rbd', 'child_attach', u64(1) + child())
call(o, 'rbd', 'child_attach', u64(6) + child())
call(o, 'rbd', 'child_attach', u64(NOSNAP) + child())
call(o, 'rbd', 'child_detach', u64(1) + child())
call(o, 'rbd', 'op_features_get')
call(o, 'rbd', 'child_detach', u64(1) + child(), 'not there')
call(o, 'rbd', 'child_detach', u64(9) + child(), 'no such snapshot')
call(o, 'rbd', 'snapshot_trash_add', u64(6), 'with a child')
call(o, 'rbd', 'children_list', u64(6))
call(o, 'rbd', 'child_detach', u64(6) + child())
call(o, 'rbd', 'op_features_get')
for i in (2, 3, 6, 4, 1, 5):
    call(o, 'rbd', 'snapshot_remove', u64(i))
    call(o, 'rbd', 'op_features_get')
call(o, 'rbd', 'set_size', u64(4095))
call(o, 'rbd', 'set_size', u64(0), 'to nothing')
call(o, 'rbd', 'parent_overlap_get', u64(NOSNAP))
call(o, 'rbd', 'parent_detach')
call(o, 'rbd', 'op_features_get')
call(o, 'rbd', 'parent_attach', parent() + u64(4096), 'image of size 0')
call(o, 'rbd', 'get_parent', u64(NOSNAP))
call(o, 'rbd', 'parent_attach', parent(img='zz') + u64(4096) + u8(1))
call(o, 'rbd', 'snapshot_remove', u64(7))
omap(o)

o = 'rbd_header.d'
call(o, 'rbd', 'create', create(0x1))
call(o, 'rbd', 'parent_attach', parent() + u64(4096))
call(o, 'rbd', 'op_features_set', u64(2) + u64(2))
call(o, 'rbd', 'snapshot_add', s('a') + u64(3))
call(o, 'rbd', 'snapshot_add', s('b') + u64(4) + trash_ns)
call(o, 'rbd', 'parent_detach')
call(o, 'rbd', 'op_features_get')
call(o, 'rbd', 'get_parent', u64(NOSNAP), 'only snapshots have it')
call(o, 'rbd', 'get_parent', u64(3))
call(o, 'rbd', 'parent_attach', parent() + u64(4096), 'the same after detaching')
call(o, 'rbd', 'parent_detach')
call(o, 'rbd', 'parent_attach', parent(img='no') + u64(4096), 'another after detaching')
call(o, 'rbd', 'snapshot_remove', u64(3))
call(o, 'rbd', 'op_features_get')
call(o, 'rbd', 'snapshot_remove', u64(4))
omap(o)

o = 'rbd_header.n'
call(o, 'rbd', 'create', create(0x0))
call(o, 'rbd', 'parent_overlap_get', u64(77), 'no layering, no snapshot')
call(o, 'rbd', 'get_parent', u64(77), 'no layering, no snapshot')
call(o, 'rbd', 'remove_parent')
call(o, 'rbd', 'set_parent', u64(3) + s('par') + u64(5) + u64(77))
call(o, 'rbd', 'create', create(order=200), 'exists')
o = 'rbd_header.o'
call(o, 'rbd', 'create', create(0x3, order=70), 'odd order')
call(o, 'rbd', 'get_size', u64(NOSNAP))
call(o, 'rbd', 'create', u64(1) + u8(22) + u64(0x100) + s('p'), 'exists, and bad features')
omap_set(o, b'size', b'\x01')
call(o, 'rbd', 'get_size', u64(NOSNAP), 'garbage in size')
call(o, 'rbd', 'set_size', u64(1), 'garbage in size')
omap_set(o, b'parent', b'\x01')
call(o, 'rbd', 'parent_get', note='garbage in parent')
omap_set(o, b'snapshot_0000000000000009', b'\x01')
call(o, 'rbd', 'snapshot_get', u64(9), 'garbage')
call(o, 'rbd', 'snapshot_add', s('x') + u64(10), 'garbage')
call(o, 'rbd', 'get_snapcontext')

# ---- metadata, directory
o = 'meta'
call(o, 'rbd', 'metadata_set', seq(s('') + s('void'), s('a') + s(''), s('b') + s('2')))
call(o, 'rbd', 'metadata_list', s('') + u64(0))
call(o, 'rbd', 'metadata_list', s('') + u64(1))
call(o, 'rbd', 'metadata_get', s(''))
call(o, 'rbd', 'metadata_get', s('a'))
call(o, 'rbd', 'metadata_remove', s(''))
call(o, 'rbd', 'metadata_set', u32(0), 'nothing to set')
call('meta2', 'rbd', 'metadata_set', u32(0), 'nothing to set, no object')
omap('meta2')
for i in range(70):
    call(o, 'rbd', 'metadata_set', seq(s('k%03d' % i) + s('v')))
call(o, 'rbd', 'metadata_list', s('') + u64(0), 'the default of 64')
call(o, 'rbd', 'metadata_list', s('k010') + u64(65))
o = 'dir'
call(o, 'rbd', 'dir_add_image', NAMEID)
call(o, 'rbd', 'dir_rename_image', s('n1') + s('n1') + s('id1'), 'to its own name')
call(o, 'rbd', 'dir_rename_image', s('n1') + s('') + s('id1'), 'to nothing')
call(o, 'rbd', 'dir_rename_image', s('n1') + s('n2') + s('nope'))
call(o, 'rbd', 'dir_list', s('') + u64(0))
call(o, 'rbd', 'dir_state_set', u8(0))
call(o, 'rbd', 'dir_remove_image', s('n1') + s('i.d'))
call(o, 'rbd', 'dir_remove_image', s('') + s(''))
call(o, 'rbd', 'dir_get_id', s(''))
call(o, 'rbd', 'group_dir_add', s('g') + s('i.d'), 'odd id')
call(o, 'rbd', 'group_dir_add', s('') + s('id'), 'no name')
omap(o)
full('idgarbage', b'\x09\x00')
call('idgarbage', 'rbd', 'get_id')
call('idgarbage', 'rbd', 'set_id', s('abc'))

# ---- object map
o = 'om'
call(o, 'rbd', 'object_map_resize', u64(0) + u8(0), 'no entries')
read(o)
call(o, 'rbd', 'object_map_load')
call(o, 'rbd', 'object_map_update', u64(0) + u64(1) + u8(1) + u8(0))
call(o, 'rbd', 'object_map_resize', u64(3) + u8(4), 'no such state')
read(o)
call(o, 'rbd', 'object_map_resize', u64(9) + u8(3))
read(o)
call(o, 'rbd', 'object_map_update', u64(0) + u64(2) + u8(7) + u8(0), 'no such state')
read(o)
call(o, 'rbd', 'object_map_update', u64(1) + u64(3) + u8(2) + opt(u8(2)), 'filter does not match')
call(o, 'rbd', 'object_map_update', u64(1) + u64(3) + u8(2) + opt(u8(1)))
read(o)
call(o, 'rbd', 'object_map_snap_remove', bits(12, 'aaaa55'), 'larger map')
read(o)
call(o, 'rbd', 'object_map_save', bits(3, '57'), 'unused bits set')
read(o)
call(o, 'rbd', 'object_map_load')
call(o, 'rbd', 'object_map_save', bits(3, '54') + b'more')
call(o, 'rbd', 'object_map_save', bits(3, '54')[:-4], 'no footer')
call(o, 'rbd', 'object_map_save', bits(30, '54'), 'too little data')
call(o, 'rbd', 'object_map_save', bits(3, '54')[:-4] + u32(12) + u32(0x31f33d3b) + u32(1) + u32(1), 'bad checksum')
call(o, 'rbd', 'object_map_snap_remove', bits(30, '54'), 'too little data')
good = rad.read(o.encode())[1]
full(o, good[:18] + b'\x55' + good[19:])
call(o, 'rbd', 'object_map_load', note='bad checksum')
call(o, 'rbd', 'object_map_update', u64(0) + u64(1) + u8(2) + u8(0), 'bad checksum')
call(o, 'rbd', 'object_map_resize', u64(9) + u8(0), 'bad checksum')
call(o, 'rbd', 'object_map_snap_add', note='bad checksum')
full(o, good[:10])
call(o, 'rbd', 'object_map_load', note='cut off')
call(o, 'rbd', 'object_map_update', u64(0) + u64(1) + u8(2) + u8(0), 'cut off')
o = 'om.big'
call(o, 'rbd', 'object_map_resize', u64(70000) + u8(0))
call(o, 'rbd', 'object_map_update', u64(16380) + u64(49160) + u8(1) + u8(0), 'three block borders')
call(o, 'rbd', 'object_map_update', u64(69999) + u64(70000) + u8(3) + u8(0), 'the last')
call(o, 'rbd', 'object_map_update', u64(16384) + u64(16385) + u8(2) + u8(0))
read(o)

# ---- migration, groups, trash
o = 'rbd_header.m'
call(o, 'rbd', 'create', create(0x1))
call(o, 'rbd', 'migration_set', migration(0))
call(o, 'rbd', 'migration_set', migration(3))
call(o, 'rbd', 'migration_set_state', u8(2) + s('x'), 'not migrating')
call(o, 'rbd', 'migration_set', migration(2, spec='{}'))
call(o, 'rbd', 'migration_get')
call(o, 'rbd', 'migration_remove')
call(o, 'rbd', 'migration_get')
call(o, 'rbd', 'create', create(0x201), 'exists')
o = 'rbd_header.m2'
call(o, 'rbd', 'create', create(0x201), 'created as migrating')
call(o, 'rbd', 'migration_get')
call(o, 'rbd', 'migration_set_state', u8(2) + s('x'))
call(o, 'rbd', 'migration_set', migration(1))
call(o, 'rbd', 'migration_set', migration(2))
omap(o)
o = 'gh'
make(o)
for i, p in (('b', 3), ('a', 3), ('z', 1)):
    call(o, 'rbd', 'group_image_set', gstatus(i, p, 1))
call(o, 'rbd', 'group_image_list', gimage('', -1) + u64(2))
call(o, 'rbd', 'group_image_list', gimage('a', 3) + u64(5))
call(o, 'rbd', 'group_image_list', gimage('x', -1) + u64(5))
call(o, 'rbd', 'group_image_list', gimage('', -1) + u64(0))
call(o, 'rbd', 'group_snap_set', gsnap('i1', 'n1', 1), 'complete at once')
call(o, 'rbd', 'group_snap_set', gsnap('i1', 'n2', 1), 'renamed')
call(o, 'rbd', 'group_snap_set', gsnap('i2', 'n2', 1), 'name taken')
call(o, 'rbd', 'group_snap_set', gsnap('i2', 'n1', 0))
call(o, 'rbd', 'group_snap_list', gsnap('', '') + u64(1))
call(o, 'rbd', 'group_snap_list', gsnap('i1', 'whatever') + u64(5))
omap(o)
o = 'tr'
call(o, 'rbd', 'trash_add', s('id1') + env(u8(0) + s('v1') + utime(1) + utime(2)), 'version 1')
call(o, 'rbd', 'trash_get', s('id1'))
omap(o)
call(o, 'rbd', 'trash_state_set', s('id1') + u8(9) + u8(0))
omap_set(o, b'id_id2', b'\x01')
call(o, 'rbd', 'trash_get', s('id2'), 'garbage')
# trash_list over such a value aborts a real OSD.
call('nsp', 'rbd', 'namespace_add', s(''), 'no name')
call('nsp', 'rbd', 'namespace_list', s('') + u64(9))

# ---- mirroring
o = 'rbd_mirroring'
call(o, 'rbd', 'mirror_uuid_set', s('own'))
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb'), 'disabled')
call(o, 'rbd', 'mirror_mode_set', u32(1))
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb', d=1), 'TX only')
call(o, 'rbd', 'mirror_peer_add', peer('', 'sb'))
call(o, 'rbd', 'mirror_peer_add', peer('p1', ''))
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb', '', 0), 'RX without client')
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb', d=9), 'odd direction')
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb', d=0, mu='mu1'))
call(o, 'rbd', 'mirror_peer_add', peer('p2', 'sc', d=0, mu='mu1'), 'mirror uuid taken')
call(o, 'rbd', 'mirror_peer_add', peer('p2', 'sc', d=0, mu='own'), 'own mirror uuid')
call(o, 'rbd', 'mirror_peer_remove', s('p2'))
call(o, 'rbd', 'mirror_peer_add', peer('p2', 'sc', d=0, mu='mu2'))
call(o, 'rbd', 'mirror_peer_set_cluster', s('p2') + s('sb'), 'taken')
call(o, 'rbd', 'mirror_peer_set_cluster', s('p2') + s('sc'), 'its own')
call(o, 'rbd', 'mirror_peer_set_cluster', s('p2') + s(''), 'nothing')
call(o, 'rbd', 'mirror_peer_set_cluster', s('p2') + s('sc'))
call(o, 'rbd', 'mirror_peer_set_client', s('p2') + s(''), 'nothing')
call(o, 'rbd', 'mirror_peer_set_direction', s('p2') + u8(7), 'odd')
call(o, 'rbd', 'mirror_peer_set_direction', s('p2') + u8(1))
call(o, 'rbd', 'mirror_peer_set_direction', s('p9') + u8(1))
call(o, 'rbd', 'mirror_peer_list')
call(o, 'rbd', 'mirror_peer_set_client', s('p2') + s('client.y'))
call(o, 'rbd', 'mirror_peer_set_direction', s('p2') + u8(1))
call(o, 'rbd', 'mirror_peer_list')
call(o, 'rbd', 'mirror_peer_ping', s('') + s('m') + u8(1))
call(o, 'rbd', 'mirror_peer_ping', s('sb') + s('') + u8(1))
call(o, 'rbd', 'mirror_peer_ping', s('sb') + s('own') + u8(1))
call(o, 'rbd', 'mirror_peer_ping', s('sb') + s('mu1') + u8(0), 'must be TX')
call(o, 'rbd', 'mirror_peer_ping', s('sb') + s('mu1') + u8(2), 'must be TX')
call(o, 'rbd', 'mirror_peer_ping', s('sb') + s('mu9') + u8(1), 'known site, new uuid')
call(o, 'rbd', 'mirror_peer_list', volatile=True)
call(o, 'rbd', 'mirror_peer_ping', s('sx') + s('mu2') + u8(1), 'known uuid')
call(o, 'rbd', 'mirror_peer_list', volatile=True)
call(o, 'rbd', 'mirror_peer_ping', s('new') + s('mu5') + u8(1), 'unknown')
call(o, 'rbd', 'mirror_image_set', s('im1') + mimage('gl1'))
call(o, 'rbd', 'mirror_image_set', s('im2') + mimage('gl2', 2))
call(o, 'rbd', 'mirror_image_set', s('im3') + mimage('gl1', 0), 'new, disabling, global id taken')
call(o, 'rbd', 'mirror_image_set', s('im3') + mimage(''), 'no global id')
call(o, 'rbd', 'mirror_image_set', s('') + mimage('gl9'), 'no id')
call(o, 'rbd', 'mirror_image_list', s('') + u64(9))
call(o, 'rbd', 'mirror_image_list', s('im1') + u64(9))
call(o, 'rbd', 'mirror_image_status_get', s('gl1'))
call(o, 'rbd', 'mirror_image_status_set', s('nope') + site(4, 'd'), 'unknown image')
call(o, 'rbd', 'mirror_image_status_set', s('gl2') + site(4, 'd'), 'disabled image')
call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(4, 'down'))
call(o, 'rbd', 'mirror_image_status_get', s('gl1'), 'does not watch', volatile=True)
call(o, 'rbd', 'mirror_image_instance_get', s('gl1'), 'does not watch')
call(o, 'rbd', 'mirror_image_instance_list', s('') + u64(9), 'does not watch')
call(o, 'rbd', 'mirror_image_status_get_summary', u32(0), 'does not watch')
call(o, 'rbd', 'mirror_image_status_remove_down')
call(o, 'rbd', 'mirror_image_status_get', s('gl1'), 'gone')
call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(4, 'here'))
call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(2, 'there', 'mu2'))
call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(3, 'else', 'mu7'))
omap(o)
cookie = watch(o)
call(o, 'rbd', 'mirror_image_status_get', s('gl1'), 'watches', volatile=True)
call(o, 'rbd', 'mirror_image_instance_get', s('gl1'), 'watches', volatile=True)
call(o, 'rbd', 'mirror_image_instance_list', s('') + u64(9), 'watches', volatile=True)
call(o, 'rbd', 'mirror_image_status_list', s('') + u64(9), volatile=True)
call(o, 'rbd', 'mirror_image_status_list', s('im1') + u64(9), volatile=True)
for ps in ((), (peer('p1', 'sb', d=0, mu='mu1'),), (peer('p2', 'sc', d=1, mu='mu2'),), (peer('p2', 'sc', d=2, mu='mu2'),), (peer('p2', 'sc', d=1, mu='mu3'),), (peer('p2', 'sc', d=1, mu='mu2'), peer('p7', 'sd', d=1, mu='mu7')), (peer('p2', 'sc', d=1, mu=''),)):
    call(o, 'rbd', 'mirror_image_status_get_summary', seq(*ps))
for st in (0, 1, 3, 4, 5, 6):
    call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(st, 'r', 'mu2'))
    for ps in ((peer('p2', 'sc', d=1, mu='mu2'),), (peer('p2', 'sc', d=2, mu='mu2'),), (peer('p2', 'sc', d=1, mu='mu2'), peer('p7', 'sd', d=1, mu='mu7'))):
        call(o, 'rbd', 'mirror_image_status_get_summary', seq(*ps))
for st in (0, 1, 6):
    call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(st, 'l'))
    call(o, 'rbd', 'mirror_image_status_get_summary', u32(0))
    call(o, 'rbd', 'mirror_image_status_get_summary', seq(peer('p2', 'sc', d=2, mu='mu2')))
call(o, 'rbd', 'mirror_image_status_remove_down', note='nobody is')
call(o, 'rbd', 'mirror_image_status_get', s('gl1'), volatile=True)
call(o, 'rbd', 'mirror_image_status_remove', s('gl1'))
call(o, 'rbd', 'mirror_image_status_get', s('gl1'), 'after remove', volatile=True)
call(o, 'rbd', 'mirror_image_map_update', s('gl1') + imap('7'))
call(o, 'rbd', 'mirror_image_map_list', s('') + u64(9))
call(o, 'rbd', 'mirror_image_list', s('') + u64(9), 'with a map')
call(o, 'rbd', 'mirror_image_map_list', s('gl1') + u64(9))
call(o, 'rbd', 'mirror_image_map_remove', s('gl1'))
call(o, 'rbd', 'mirror_image_set', s('im1') + mimage('gl1', 0))
call(o, 'rbd', 'mirror_image_status_set', s('gl1') + site(4, 'x', 'mu2'), 'disabling image')
call(o, 'rbd', 'mirror_image_remove', s('im1'))
omap(o)

# ---- data objects
call('cu', 'rbd', 'copyup', b'', 'nothing')
read('cu')
call('scu1', 'rbd', 'sparse_copyup', seq(u64(0) + u64(4), u64(2) + u64(4)) + s('aaaabbbb'), 'overlapping')
read('scu1')
call('scu2', 'rbd', 'sparse_copyup', seq(u64(7) + u64(0)) + s(''), 'empty extent')
read('scu2')
call('scu3', 'rbd', 'sparse_copyup', seq(u64(2**63) + u64(2)) + s('ab'), 'far away')
call('scu4', 'rbd', 'sparse_copyup', seq(u64(0) + u64(2)) + s('abcd'), 'more data than extents')
read('scu4')
call('scu5', 'rbd', 'sparse_copyup', seq(u64(0) + u64(2**64 - 1)) + s('ab'))
read('scu5')
# A block size of 0 aborts a real OSD.
blk = lambda *p: b''.join((b'\0' if c == '0' else c.encode()) * 4096 for c in p[0])
for i, (layout, size, empty) in enumerate((('a00b', 4096, 1), ('0a00', 4096, 0), ('aa', 4096, 0), ('aa0', 8192, 0), ('a0a0', 1000, 0), ('00', 4096, 0), ('00', 4096, 1), ('0a', 1 << 40, 0), ('', 4096, 0), ('', 4096, 1))):
    full('sp%d' % i, blk(layout) + (b'zz' if layout == 'a00b' else b''))
    call('sp%d' % i, 'rbd', 'sparsify', u64(size) + u8(empty), layout)
    read('sp%d' % i)

# ---- format 1
text = b'<<< Rados Block Device Image >>>\n'
def header1(text=text, sig=b'RBD\0', snaps=(), extra=b''):
    names = b''.join(n + b'\0' for n, _, _ in snaps)
    return (text.ljust(40, b'\0') + b'rb.0.1.abc'.ljust(24, b'\0') + sig + b'001.005\0' + bytes((22, 0, 0, 0)) + u64(1 << 24)
            + u64(max((i for _, i, _ in snaps), default=0)) + u32(len(snaps)) + u32(0) + u64(len(names))
            + b''.join(u64(i) + u64(z) for _, i, z in snaps) + names + extra)
o = 'f1.rbd'
full(o, header1())
call(o, 'rbd', 'snap_list')
call(o, 'rbd', 'snap_add', s('one') + u64(3))
call(o, 'rbd', 'snap_add', s('two') + u64(3), 'same id')
call(o, 'rbd', 'snap_add', s('one') + u64(4), 'same name')
call(o, 'rbd', 'snap_add', s('two') + u64(2), 'old id')
call(o, 'rbd', 'snap_add', s('two') + u64(4))
read(o)
call(o, 'rbd', 'snap_list')
call(o, 'rbd', 'snapshot_set_limit', u64(1))
call(o, 'rbd', 'snapshot_set_limit', u64(2))
call(o, 'rbd', 'snapshot_get_limit')
call(o, 'rbd', 'snap_add', s('three') + u64(5), 'limit')
call(o, 'rbd', 'snap_rename', u64(3) + s('two'), 'taken')
call(o, 'rbd', 'snap_rename', u64(3) + s('one'), 'its own')
call(o, 'rbd', 'snap_rename', u64(9) + s('zz'))
call(o, 'rbd', 'snap_rename', u64(4) + s('longer name'))
read(o)
call(o, 'rbd', 'snap_remove', s('nope'))
call(o, 'rbd', 'snap_remove', s('longer name'))
read(o)
call(o, 'rbd', 'snap_remove', s('one'))
read(o)
call(o, 'rbd', 'migration_get')
call(o, 'rbd', 'migration_set_state', u8(2) + s('x'))
call(o, 'rbd', 'migration_set', migration(2))
call(o, 'rbd', 'migration_set', migration(1))
call(o, 'rbd', 'migration_set', migration(1), 'again')
read(o)
call(o, 'rbd', 'migration_get')
call(o, 'rbd', 'snap_list', note='while it migrates')
call(o, 'rbd', 'migration_set_state', u8(2) + s('x'))
call(o, 'rbd', 'migration_remove')
read(o)
omap(o)
call(o, 'rbd', 'migration_get')
full('f1bad', b'x' * 112)
call('f1bad', 'rbd', 'snap_list', note='no header')
call('f1bad', 'rbd', 'migration_set', migration(1))
call('f1bad', 'rbd', 'migration_set_state', u8(2) + s('x'))
call('f1bad', 'rbd', 'migration_get')
call('f1bad', 'rbd', 'migration_remove')
full('f1cut', header1(snaps=((b'one', 3, 5),))[:120])
call('f1cut', 'rbd', 'snap_list', note='cut off')
full('f1tail', header1(snaps=((b'one', 3, 5),), extra=b'tail'))
call('f1tail', 'rbd', 'snap_add', s('two') + u64(4), 'bytes behind the names')
read('f1tail')

# ---- mirror snapshots
o = 'rbd_header.ms'
call(o, 'rbd', 'create', create(0x1))
call(o, 'rbd', 'snapshot_add', s('m') + u64(3) + mirror_ns(2, 'p1'))
call(o, 'rbd', 'snapshot_add', s('n') + u64(4) + mirror_ns(0, 'p1'))
for i in (3, 4):
    call(o, 'rbd', 'mirror_image_snapshot_set_copy_progress', u64(i) + u8(1) + u64(7))
    call(o, 'rbd', 'snapshot_get', u64(i), volatile=True)
    call(o, 'rbd', 'mirror_image_snapshot_unlink_peer', u64(i) + s('p1'), 'the last peer')
    call(o, 'rbd', 'snapshot_get', u64(i), volatile=True)
    call(o, 'rbd', 'mirror_image_snapshot_unlink_peer', u64(i) + s('p1'), 'again')
call(o, 'rbd', 'mirror_image_snapshot_unlink_peer', u64(9) + s('p1'))

# ---- hello
call('hi', 'hello', 'record_hello', b'x' * 101)
call('hi', 'hello', 'record_hello', b'x' * 100)
xattrs('hi')
call('hi', 'hello', 'turn_it_to_11', b'x')
call('hi', 'hello', 'turn_it_to_11')
xattrs('hi')
call('hi2', 'hello', 'writes_dont_return_data')
xattrs('hi2')
call('hi3', 'hello', 'write_return_data')
xattrs('hi3')

finish()
