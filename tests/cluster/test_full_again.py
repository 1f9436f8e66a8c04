"""One host's disk is filled by another program and emptied, again and again, while clients write and read: a pause, never an error,
for the others have room; and the copies are made up each time.
"""
import subprocess
import sys
import time

import pytest

from skeptest.load import Load
from skeptest.run import end_group, wait_until

pytestmark = pytest.mark.own

SMALL_DISK_MIB = 1024
OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']
ROUNDS = 3

MODEL = r'''
"""Writes, appends, removes and reads objects at random and keeps account; ends at the first error or wrong content, or when told to."""
import random, sys
sys.path.insert(0, sys.argv[1])
from skeptest.api import connect
from skeptest.cluster import Cluster
import rados
io = connect(Cluster(sys.argv[2])).open_ioctx(sys.argv[3])
dice, have, done = random.Random(7), {}, 0
print('begun', flush=True)
while not open(sys.argv[4]).read():
    name, step = 'm%d' % dice.randrange(60), dice.randrange(10)
    if step < 3:
        data = dice.randbytes(dice.choice([10, 5000, 70000, 300000]))
        io.write_full(name, data)
        have[name] = data
    elif step < 4 and name in have and len(have[name]) < 1 << 20:
        data = dice.randbytes(3000)
        io.append(name, data)
        have[name] += data
    elif step < 5 and name in have:
        io.remove_object(name)
        del have[name]
    else:
        try:
            found = io.read(name, 4 << 20)
        except rados.ObjectNotFound:
            found = None
        assert found == have.get(name), (name, found and len(found), name in have and len(have[name]))
    done += 1
print('done', done, flush=True)
'''


@pytest.fixture
def group(hosts):
    made = hosts(3)
    why = made[2].on_small_disk(SMALL_DISK_MIB)
    if why:
        pytest.skip('no loop device here: ' + why)
    made.start_etcd()
    made[0].up(create=True, options=OPTIONS)
    for host in made.list[1:]:
        host.up(join=True, options=OPTIONS)
    made.pool = made[0].make_copies(3, 'rbd', pg_num=16)
    return made


def test_no_client_hears_of_one_full_disk(group, workdir, tmp_path, record_property):
    script, stop, said = tmp_path / 'model.py', tmp_path / 'stop', tmp_path / 'said'
    script.write_text(MODEL)
    stop.write_text('')
    lib = next(p for p in sys.path if p.endswith('tests/lib'))
    with open(said, 'wb') as out:
        model = group[0].popen('/usr/bin/python3', '-u', script, lib, group[0].conf, group.pool, stop,
                               stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until(lambda: 'begun' in said.read_text(), 30, 0.1, 'the model to begin')
        slowest = 0
        for _ in range(ROUNDS):
            with Load(group[0], group.pool, workdir, 6, record_property) as fio:
                group[2].fill_disk()
                wait_until(lambda: any('degraded' in pg['state'] or 'undersized' in pg['state'] for pg in group[0].pgs()),
                           40, 0.2, 'a copy to be missed')
                # One of the others comes back at the same time: too few copies have room for the moment.
                group[1].kill()
                group[1].start(60)
                assert model.poll() is None, said.read_text()
                group[2].empty_disk()
            fio.verify()
            began = time.monotonic()
            wait_until(lambda: group[0].whole(), 60, 0.3, 'all copies')
            slowest = max(slowest, time.monotonic() - began)
            assert model.poll() is None, said.read_text()
        record_property('all copies again after', '%.1f s' % slowest)
        stop.write_text('now')
        assert model.wait(60) == 0, said.read_text()
    finally:
        end_group(model)
        model.wait(60)
    assert int(said.read_text().split('done')[1]) > 100
