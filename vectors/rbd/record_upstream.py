#!/usr/bin/python3
"""Records cls_upstream_replay.json: what Debian 13's ceph_test_cls_* (18.2.7) found us wrong about, on a real Ceph.

usage: record_upstream.py REPLAY_CLASSES CEPH_CONF POOL > cls_upstream_replay.json
See recorder.py.
"""
from recorder import *

site = lambda state, mirror_uuid='': (env(u8(state) + s('') + utime() + u8(0)) if not mirror_uuid else
                                      env(s(mirror_uuid) + u8(state) + s('') + utime() + u8(0), 2, 1))
peer = lambda uuid, name, d, mu: env(s(uuid) + s(name) + s('client.x') + u64(-1) + u8(d) + s(mu) + utime(), 2, 1)
mimage = lambda g: env(s(g) + u8(1) + u8(0), 2, 1)

# ---- mirroring off: nobody can be a peer
o = 'rbd_mirroring'
call(o, 'rbd', 'mirror_peer_ping', s('sa') + s('mu') + u8(1), 'no object')
call(o, 'rbd', 'mirror_uuid_set', s('own'))
call(o, 'rbd', 'mirror_peer_ping', s('sa') + s('mu') + u8(1), 'off')
call(o, 'rbd', 'mirror_peer_add', peer('p1', 'sb', 0, 'mu1'), 'off')
omap(o)
call(o, 'rbd', 'mirror_mode_set', u32(1))
call(o, 'rbd', 'mirror_peer_ping', s('sa') + s('mu') + u8(1), 'on')

# ---- whom the summary asks
for i in (1, 2, 3):
    call(o, 'rbd', 'mirror_image_set', s('im%d' % i) + mimage('gl%d' % i))
watch(o)
for name, (here, there, other) in {'gl1': (1, 4, None), 'gl2': (4, 2, 1), 'gl3': (None, 4, 3)}.items():
    for state, uuid in ((here, ''), (there, 'mu2'), (other, 'mu7')):
        if state is not None:
            call(o, 'rbd', 'mirror_image_status_set', s(name) + site(state, uuid))
for note, peers in (('none', []), ('sends', [(0, 'mu2')]), ('receives', [(1, 'mu2')]), ('both', [(2, 'mu2')]),
                    ('one of each', [(0, 'mu2'), (1, 'mu7')]), ('another of each', [(1, 'mu2'), (0, 'mu7')]),
                    ('tells nothing', [(1, 'mu9')]), ('two that receive', [(1, 'mu2'), (1, 'mu7')]),
                    ('receives, both', [(1, 'mu2'), (2, 'mu7')]), ('both, receives', [(2, 'mu7'), (1, 'mu2')]),
                    ('both, sends', [(2, 'mu2'), (0, 'mu7')]), ('both, tells nothing', [(2, 'mu9')])):
    call(o, 'rbd', 'mirror_image_status_get_summary',
         seq(*[peer('p%d' % i, 's%d' % i, d, mu) for i, (d, mu) in enumerate(peers)]), note)

# ---- a format 1 header without its signature
for name, data in (('v1.zeros', bytes(4096)), ('v1.short', bytes(111)), ('v1.fixed', bytes(112)), ('v1.text', b'x' * 40 + bytes(72))):
    full(name, data)
    call(name, 'rbd', 'snap_list')
    call(name, 'rbd', 'snap_add', s('s1') + u64(1))
    call(name, 'rbd', 'snap_add', s('s3') + u64(3))
    call(name, 'rbd', 'snap_add', s('s2') + u64(2), 'stale')
    call(name, 'rbd', 'snap_list')
    read(name)
    call(name, 'rbd', 'snap_remove', s('s1'))
    read(name)

finish()
