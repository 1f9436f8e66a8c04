"""Random load through two mounts, the server (metadata server and OSDs are one process) killed under it: what is there is what a
model says."""
import os
import threading

import pytest

from skeptest.crates import tool
from skeptest.exerciser import Exerciser
from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import popen, run, wait_until
from skeptest.stress import Tree, consistent, race
from skeptest.work import Work

FSX = '0.3.2'
NO_PAGES = ['--fuse_disable_pagecache', 'true']
FSX_CONFIG = '''flen = 1000000
[opsize]
max = 100000
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
punch_hole = 3
copy_file_range = 1
'''


@pytest.fixture
def served(own):
    skep = own().start()
    make_volume(skep, 'fs')
    return skep


def killed(skep, work, kills, steps):
    """Kills the server in the middle of the work, and lets this go on in between."""
    try:
        for _ in range(kills):
            work.goes_on(steps)
            skep.restart()
            wait_active(skep, 'fs')
        work.goes_on(steps)
    finally:
        work.end()


def test_a_file_that_two_mounts_have_open(cluster, fs, tmp_path):
    with mounted(cluster, tmp_path / 'a', fs=fs, options=NO_PAGES) as a, mounted(cluster, tmp_path / 'b', fs=fs, options=NO_PAGES) as b:
        load = Exerciser([a / 'f', b / 'f'], 1)
        for _ in range(400):
            load.step()
        load.close()
        load.compare(b / 'f')
        layout = 'stripe_unit=65536 stripe_count=3 object_size=131072'
        (a / 'striped').touch()
        os.setxattr(a / 'striped', 'ceph.file.layout', layout.encode())
        load = Exerciser([a / 'striped', b / 'striped'], 2)
        for _ in range(200):
            load.step()
        load.close()
        load.compare(a / 'striped')


@pytest.mark.own
@pytest.mark.parametrize('kills', [2, pytest.param(20, marks=pytest.mark.long)])
def test_a_file_under_kills(served, tmp_path, kills):
    with mounted(served, tmp_path / 'a', fs='fs', options=NO_PAGES) as a, mounted(served, tmp_path / 'b', fs='fs', options=NO_PAGES) as b:
        load = Exerciser([a / 'f', b / 'f'], kills)
        killed(served, Work(load.step), kills, 40)
        load.close()
        load.compare(a / 'f')
        load.compare(b / 'f')


@pytest.mark.own
@pytest.mark.parametrize('kills', [2, pytest.param(20, marks=pytest.mark.long)])
def test_trees_under_kills(served, tmp_path, kills):
    """Each call comes to what it would have without a kill; then counts and recursive statistics are the true ones."""
    with mounted(served, tmp_path / 'a', fs='fs') as a, mounted(served, tmp_path / 'b', fs='fs') as b:
        trees = [Tree([m / ('t%d' % i) for m in order], 10 * kills + i) for i, order in enumerate([(a, b), (b, a)])]
        works = [Work(t.step) for t in trees]
        try:
            killed(served, works[0], kills, 60)
        finally:
            works[1].end()
        for i, tree in enumerate(trees):
            for m in (a, b):
                tree.compare(m / ('t%d' % i))
            top = a / ('t%d' % i)

            def sums():
                return tuple(int(os.getxattr(top, 'ceph.dir.' + n)) for n in ('rbytes', 'rfiles', 'rsubdirs'))
            wait_until(lambda: sums() == tree.sums(), 60, 0.5, 'sums of %s' % (tree.sums(),))


def test_names_for_which_two_mounts_race(cluster, fs, mount, second):
    """Whoever wins: links are counted right, both see the same, and nothing is left of what lost."""
    for m in (mount, second):
        (m / 'race').mkdir(exist_ok=True)
    failed = []

    def run_race(*args):
        try:
            race(*args)
        except Exception as e:
            failed.append(e)
    workers = [threading.Thread(target=run_race, args=(m / 'race', seed, 120)) for seed, m in enumerate([mount, second, mount, second])]
    [w.start() for w in workers]
    [w.join(300) for w in workers]
    assert not failed and not any(w.is_alive() for w in workers), failed
    assert consistent(mount / 'race') == consistent(second / 'race')
    data = {n: (mount / 'race' / n).read_bytes() for n in os.listdir(mount / 'race')}
    assert data == {n: (second / 'race' / n).read_bytes() for n in data}
    for n in data:
        os.unlink(second / 'race' / n)
    wait_until(lambda: int(os.getxattr(mount / 'race', 'ceph.dir.rfiles')) == 0, 60, 0.3, 'no files in the sums')


@pytest.mark.own
@pytest.mark.long
def test_fsx_under_kills(served, tmp_path):
    config = tmp_path / 'fsx.toml'
    config.write_text(FSX_CONFIG)
    with mounted(served, tmp_path / 'a', fs='fs') as a:
        fsx = popen([tool('fsx', FSX), '-q', '-N', '20000', '-S', '7', '-f', config, '-P', tmp_path, a / 'f'])
        kills = 0
        while fsx.poll() is None and kills < 25:
            try:
                fsx.wait(8)
            except Exception:
                served.restart()
                wait_active(served, 'fs')
                kills += 1
        assert fsx.wait(900) == 0, run(['sh', '-c', 'tail -50 %s/*.fsxlog' % tmp_path], check=None).out
        assert kills > 1
