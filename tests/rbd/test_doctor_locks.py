"""Who holds an image's lock that others want, or that its dead holder left behind: `skep doctor`, with stock clients."""
import re
import signal
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.run import end_group, wait_until

pytestmark = pytest.mark.own

HOLD = r'''
import rados, rbd, sys, time
c = rados.Rados(conffile=sys.argv[1]); c.connect()
image = rbd.Image(c.open_ioctx(sys.argv[2]), sys.argv[3])
image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
image.write(b'mine', 0)
print('has it', flush=True)
time.sleep(600)
'''

WANT = r'''
import rados, rbd, sys
c = rados.Rados(conffile=sys.argv[1]); c.connect()
image = rbd.Image(c.open_ioctx(sys.argv[2]), sys.argv[3])
print('wants it', flush=True)
image.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
image.write(b'mine now', 0)
print('has it', flush=True)
'''


def python(skep, script, pool, image):
    return skep.popen('/usr/bin/python3', '-c', script, skep.conf, pool, image, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                      text=True)


def end(*procs):
    for proc in procs:
        end_group(proc)
        proc.wait(60)


@pytest.fixture
def held(own):
    """A Skep, its pool, an image, and a client that holds the image's exclusive lock."""
    skep = own(osds=1).start()
    pool, image = skep.make_pool('rbd'), unique('image')
    skep.rbd('create', '%s/%s' % (pool, image), '--size', '8M', '--image-feature', 'exclusive-lock')
    holder = python(skep, HOLD, pool, image)
    assert holder.stdout.readline() == 'has it\n', holder.stderr.read()
    yield skep, pool, image, holder
    end(holder)


def doctor(skep, *parts):
    """Its findings' lines once all of these are said."""
    def found():
        out = skep.cli('doctor', '--data', skep.data).out
        return out if all(p in out for p in parts) else None
    try:
        return wait_until(found, 75, 0.5, 'the doctor to say %r' % (parts,))
    except AssertionError as e:
        raise AssertionError('%s\n%s' % (e, skep.cli('doctor', '--data', skep.data).out))


def image_id(skep, pool, image):
    return skep.rbd_json('info', '%s/%s' % (pool, image))['id']


def the_lock(skep, pool, image):
    row, = skep.rbd_json('lock', 'ls', '%s/%s' % (pool, image))
    return row


def quiet(skep):
    wait_until(lambda: 'rbd_lock' not in skep.cli('doctor', '--data', skep.data).out, 30, 0.5, 'the doctor to be quiet')


def test_a_holder_that_was_killed(held):
    """Its watch ends, nobody waits: named until the next client takes the lock over."""
    skep, pool, image, holder = held
    lock, number = the_lock(skep, pool, image), image_id(skep, pool, image)
    assert 'rbd_lock' not in skep.cli('doctor', '--data', skep.data).out
    end(holder)
    out = doctor(skep, 'image %s in pool' % number, 'watches it no more')
    assert "'%s'" % pool in out and lock['locker'] in out and lock['address'] in out and lock['id'] in out, out
    assert 'RISK     image' in out and 'ceph osd blocklist add ' + lock['address'] in out, out
    # A moment later, seconds may be more.
    assert re.sub(r'\d+s\b', '_s', out) == re.sub(r'\d+s\b', '_s', skep.ceph('doctor').out)
    # What it says to do works: the image's name, and the lock's end.
    spec = '%s/%s' % (pool, image)
    named = skep.rbd('info', '--pool', pool, '--image-id', number).out
    assert image in named, named
    skep.ceph('osd', 'blocklist', 'add', lock['address'])
    doctor(skep, 'which is blocklisted and watches it no more')
    skep.rbd('lock', 'rm', spec, lock['id'], lock['locker'])
    quiet(skep)
    want = python(skep, WANT, pool, image)
    out, err = want.communicate(timeout=90)
    assert 'has it' in out, err


def test_a_holder_that_hangs_while_another_waits(held):
    skep, pool, image, holder = held
    lock, number = the_lock(skep, pool, image), image_id(skep, pool, image)
    holder.send_signal(signal.SIGSTOP)
    want = python(skep, WANT, pool, image)
    try:
        # The watcher that does not answer, or the lock that was refused: either names the client and its address.
        out = doctor(skep, lock['locker'], lock['address'])
        assert 'rbd_header.' + number in out and 'ceph osd blocklist add' in out, out
        skep.ceph('osd', 'blocklist', 'add', lock['address'])
        out, err = want.communicate(timeout=90)
        assert 'has it' in out, err
    finally:
        end(want)
    quiet(skep)


def test_a_lock_by_hand_that_another_was_refused(own):
    skep = own(osds=1).start()
    pool, image = skep.make_pool('rbd'), unique('image')
    spec = '%s/%s' % (pool, image)
    skep.rbd('create', spec, '--size', '8M', '--image-feature', 'layering')
    skep.rbd('lock', 'add', spec, 'mine')
    lock = the_lock(skep, pool, image)
    skep.rbd_fails(('lock', 'add', spec, 'other'), 16, 'lock is already held by someone else')
    out = doctor(skep, 'a lock that somebody took by hand', '(1 refusals of late)')
    assert 'BLOCKED  image' in out and lock['locker'] in out and lock['address'] in out, out
    said = re.search(r'rbd lock rm %s/IMAGE "mine" (client\.\d+)' % pool, out)
    assert said and said.group(1) == lock['locker'], out
    skep.rbd('lock', 'rm', spec, 'mine', said.group(1))
    quiet(skep)
    skep.rbd('lock', 'add', spec, 'other')
