"""A client that writes without end and notes each write when its answer comes; and the check of its notes.

A note is written only after the answer, so the check is one-sided as it must be: what is noted must be there; what was
in flight may be either old or new, never a mix.
"""
import os
import pathlib
import subprocess

from skeptest.api import connect, in_child

WRITER = r'''
"""Writes versions of numbered objects without end; prints a line per acknowledged write: object, version, when."""
import os, sys, time
sys.path.insert(0, sys.argv[1])
from skeptest.api import connect
from skeptest.cluster import Cluster
handle = connect(Cluster(sys.argv[2]))
io = handle.open_ioctx(sys.argv[3])
flight = {}
version = int(sys.argv[4])
out = sys.stdout
SIZES = [100, 4096, 4096, 9000, 65536, 300000]
while True:
    version += 1
    slot = (version * 7) % 40
    old = flight.pop(slot, None)
    if old:
        old[0].wait_for_complete()
        assert old[0].get_return_value() == 0, old[0].get_return_value()
        out.write('%d %d %.3f\n' % (slot, old[1], time.monotonic())); out.flush()
    data = (b'%010d' % version) * (SIZES[version % len(SIZES)] // 10)
    flight[slot] = (io.aio_write_full('slot-%d' % slot, data), version)
    if version % 40 == 0:
        time.sleep(float(sys.argv[5]))
'''
# Between rounds of all objects, which are under way together. Without end and without a pause the writer and its server take what processor
# there is for as long as the test waits for something else: only `dev/test --all` does that.
PAUSE_S = 0 if os.environ.get('SKEP_TEST_LONG') else 0.15
SIZES = [100, 4096, 4096, 9000, 65536, 300000]


def content(version):
    return (b'%010d' % version) * (SIZES[version % len(SIZES)] // 10)


def start_writer(skep, pool, tmp_path, version=0):
    """`version`: where it goes on, above all that were written before."""
    script, notes = tmp_path / 'writer.py', tmp_path / 'notes'
    script.write_text(WRITER)
    lib = str(pathlib.Path(__file__).parent.parent)
    with open(notes, 'ab') as f:
        proc = skep.popen('/usr/bin/python3', '-u', script, lib, skep.conf, pool, version, PAUSE_S, stdin=subprocess.DEVNULL, stdout=f,
                          stderr=open(tmp_path / 'errors', 'ab'))
    return proc, notes


def check_notes(skep, pool, notes):
    """Every slot holds its last acknowledged version or a later one, whole."""
    acknowledged = {}
    for line in notes.read_text().splitlines():
        slot, version = map(int, line.split()[:2])
        acknowledged[slot] = max(version, acknowledged.get(slot, 0))

    def read_all():
        skep.enter()
        handle = connect(skep)
        with handle.open_ioctx(pool) as io:
            return {slot: io.read('slot-%d' % slot, 1 << 20) for slot in acknowledged}
    wrong = []
    for slot, data in in_child(read_all).items():
        found = int(data[:10] or b'-1')
        if found < acknowledged[slot] or data != content(found):
            wrong.append((slot, acknowledged[slot], found, len(data)))
    assert not wrong, 'slot, acknowledged, found, length: %s' % wrong
    return sum(acknowledged.values())
