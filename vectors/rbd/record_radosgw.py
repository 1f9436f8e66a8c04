#!/usr/bin/python3
"""Records cls_radosgw_replay.json: the class otp, as radosgw-admin calls it, on a real Ceph.

usage: record_radosgw.py REPLAY_CLASSES CEPH_CONF POOL > cls_radosgw_replay.json
See recorder.py. Codes are valid for a time: the steps are so long here (a month and more) that the whole recording lies in one of them.
"""
import base64
import hashlib
import hmac

from recorder import *

SEED = b'12345678901234567890'
STEP = 3000000


def pin(ahead=0, seed=SEED, step=STEP, offset=0):
    count = (int(time.time()) - offset) // step + ahead
    mac = hmac.new(seed, struct.pack('>Q', count), hashlib.sha1).digest()
    at = mac[-1] & 15
    return '%06d' % ((struct.unpack('>I', mac[at:at + 4])[0] & 0x7fffffff) % 1000000)


def info(name, seed=SEED.hex(), kind=1, binary=b'', offset=0, step=STEP, window=2, otp=2):
    return env(u8(otp) + s(name) + s(seed) + u8(kind) + s(binary) + u32(offset & 0xffffffff) + u32(step) + u32(window))


tokens = iter('t%015d' % i for i in range(1000))
otp = lambda o, m, data=b'', note='': call(o, 'otp', m, data, note, volatile=m in ('otp_get_result', 'get_current_time'))
put = lambda o, *infos, note='': otp(o, 'otp_set', env(seq(*infos)), note)
get = lambda o, *names, everything=0, note='': otp(o, 'otp_get', env(u8(everything) + seq(*[s(n) for n in names])), note)
rid = lambda o, *names, note='': otp(o, 'otp_remove', env(seq(*[s(n) for n in names])), note)


def check(o, name, code, note='', token=None, ask=True):
    token = next(tokens) if token is None else token
    data = env(s(name) + s(code) + s(token))
    otp(o, 'otp_check', data, note)
    if ask:
        otp(o, 'otp_get_result', data, note)


def state(o):
    omap(o)
    xattrs(o)
    header(o)
    read(o)


# ---- what is not there
for o, make_it in (('o.missing', False), ('o.empty', True)):
    if make_it:
        make(o)
    for m in ('otp_get', 'otp_check', 'otp_get_result', 'otp_remove', 'otp_set'):
        otp(o, m, note='no input')
    otp(o, 'get_current_time', env(b''))
    otp(o, 'get_current_time', note='no input')
    get(o)
    get(o, 'a')
    get(o, everything=1)
    check(o, 'a', '123456')
    rid(o, 'a')
    rid(o)
    put(o)
    omap(o)

# ---- seeds
o = 'o'
put(o, info('hex'))
state(o)
put(o, info('b32', seed=base64.b32encode(SEED).decode(), kind=2, window=5))
put(o, info('none', kind=0))
put(o, info('odd', seed='123', kind=1), note='half a byte')
put(o, info('nohex', seed='xyz!', kind=1), note='no hex')
put(o, info('no32', seed='1890!', kind=2), note='no base32')
put(o, info('lower', seed=base64.b32encode(SEED).decode().lower(), kind=2))
put(o, info('spaces', seed='GEZD GNBV GY3T QOJQ GEZD GNBV GY3T QOJQ', kind=2))
put(o, info('short', seed='GEZA', kind=2))
put(o, info('padded', seed='GEZA====', kind=2))
put(o, info('empty', seed=''))
put(o, info('kind9', kind=9), note='a kind that does not exist')
put(o, info('hotp', otp=1), note='another type')
put(o, info('type9', otp=9), note='another type')
put(o, info('bin', binary=b'what the client says'))
put(o, info('', ), note='no name')
put(o, info('two.a'), info('two.b'))
put(o, info('fine'), info('bad', seed='xyz', kind=1), note='one of two is bad')
put(o, info('twice'), info('twice', window=9))
put(o, info('step0', step=0, window=3))
put(o, info('upper', seed='AABBCCDDEEFF'))
state(o)
get(o, 'hex')
get(o, 'hex', 'nope', 'b32')
get(o, 'b32', 'hex', 'hex')
get(o, 'hex', everything=1)
get(o, everything=1)
get(o)

# ---- checks
o = 'c'
put(o, info('a'))
check(o, 'a', pin(5), 'too far ahead')
omap(o)
check(o, 'a', pin(), 'right')
omap(o)
check(o, 'a', pin(), 'once more')
check(o, 'a', pin(1), 'of after')
omap(o)
check(o, 'a', pin(2), 'the fifth')
check(o, 'a', pin(1), 'one too many')
check(o, 'a', pin(3), 'behind the window')
omap(o)
# 16.2 counts how far the last code lay from the present as if it had lain ahead.
o = 'back'
put(o, info('a'))
check(o, 'a', pin())
check(o, 'a', pin(-1), 'of before')
omap(o)
o = 'c'
for n in range(8):
    check(o, 'a', '11111%d' % n, 'wrong')
omap(o)
check(o, 'a', '', 'no code')
check(o, 'a', '12345', 'short')
check(o, 'a', '1234567', 'long')
check(o, 'a', pin()[:5], 'short')
check(o, 'a', 'abcdef', 'no digits')
check(o, 'a', '123456', 'no token', token='')
check(o, 'nope', '123456')
otp(o, 'otp_get_result', env(s('t%015d' % 3)), 'its token alone')
otp(o, 'otp_get_result', env(s('a') + s('') + s('other')), 'never asked')
omap(o)
put(o, info('a', window=4))
omap(o)
check(o, 'a', pin(), 'set anew')
rid(o, 'nope', 'a')
omap(o)
check(o, 'a', pin(), 'removed')

# ---- codes of other forms, each with attempts of its own
for n, (code, note) in enumerate((('', 'none'), ('12345', 'short'), ('1234567', 'long'), (pin()[:5], 'cut off'), (pin() + '0', 'one more'),
                                  ('abcdef', 'no digits'), (' ' + pin(), 'a space'))):
    o = 'form%d' % n
    put(o, info('a'))
    check(o, 'a', code, note)
for n, (seed, kind) in enumerate((('GEZB', 2), ('G', 2), ('GE', 2), ('GEZ', 2), ('GEZDG', 2), ('GEZDGN', 2), ('GEZDGNB', 2), ('GEZDGNBV', 2), ('GEZ-DGNBV', 2),
                                  ('GEZA=', 2), ('GE======', 2), ('=GEZA', 2), (' ', 2), ('G\nEZA', 2), ('31 32', 1), ('3G', 1), ('0x31', 1), ('31', 0), ('3', 0), ('GEZA', 0))):
    o = 'seed%d' % n
    put(o, info('a', seed=seed, kind=kind), note='seed %r %d' % (seed, kind))
    omap(o)
for n, otp_type in enumerate((0, 1, 9)):
    o = 'type%d' % n
    put(o, info('a', otp=otp_type))
    check(o, 'a', pin(), 'type %d' % otp_type)
o = 'none'
put(o, info('a', kind=0))
check(o, 'a', pin(), 'seed of no kind')
o = 'nobin'
put(o, info('a', seed='', kind=1))
check(o, 'a', pin(seed=b''), 'an empty seed')

# ---- attempts are forgotten
o = 'again'
put(o, info('a', step=4))
for n in range(6):
    check(o, 'a', 'wrong%d' % n, 'quickly')
omap(o)
wait(2)
check(o, 'a', 'wrong6', 'half a step later')
omap(o)
wait(3)
otp(o, 'otp_get_result', env(s('a') + s('') + s('t')), 'an unknown one after a step')
check(o, 'a', 'wrong7', 'a step later')
omap(o)
check(o, 'a', 'wrong8', 'and once more')
omap(o)
o = 'same'
put(o, info('a'))
check(o, 'a', 'wrong', token='one')
check(o, 'a', pin(), 'the same token', token='one')
omap(o)

# ---- what removals write
rid('r.missing', 'a')
omap('r.missing')
rid('r.none')
omap('r.none')
o = 'r'
put(o, info('a'), info('b'))
rid(o, 'b', 'b', 'c')
omap(o)

for w in (0, 1, 2, 3, 4, 5):
    for ahead in (-4, -3, -2, -1, 0, 1, 2, 3, 4):
        o = 'w%d.%d' % (w, ahead)
        put(o, info('a', window=w))
        check(o, 'a', pin(ahead))
for offset in (STEP, -STEP, STEP * 3):
    o = 'ofs%d' % offset
    put(o, info('a', offset=offset))
    check(o, 'a', pin(offset=offset), 'shifted so')
    check(o, 'a', pin(offset=-offset), 'shifted the other way')
    check(o, 'a', pin(), 'not shifted')
    omap(o)
# Steps of 0 seconds are not checked: 16.2's OSD ends by a division.

# ---- what does not decode
o = 'junk'
put(o, info('a'))
omap(o)
for key in ('otp/a', 'otp/b'):
    omap_set(o, key.encode(), b'junk')
get(o, 'a')
get(o, 'b')
get(o, everything=1)
check(o, 'a', pin())
check(o, 'b', pin(), 'not in the list')
put(o, info('a'), note='over what does not decode')
rid(o, 'a')
omap(o)
put(o, info('a'))
omap_set(o, b'header', b'junk')
get(o, 'a')
get(o, everything=1)
check(o, 'a', pin())
put(o, info('b'))
rid(o, 'a')
o = 'lost'
put(o, info('a'), info('b'))
omap_set(o, b'header', env(seq(s('a'), s('lost'))))
get(o, everything=1)
get(o, 'lost')
get(o, 'b')
check(o, 'b', pin(), 'a row that the list has not')
check(o, 'lost', pin(), 'in the list, and no row')

finish()
