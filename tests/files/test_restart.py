"""The server is killed at any moment: mounts go on, and nothing that was acknowledged is lost."""
import fcntl
import os
import threading

import pytest

from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import wait_until
from skeptest.work import Work

pytestmark = pytest.mark.own


@pytest.fixture
def served(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    return skep


@pytest.mark.parametrize('kills', [2, pytest.param(25, marks=pytest.mark.long)])
def test_a_kill_in_the_middle_of_writes_loses_nothing(served, tmp_path, kills):
    skep, made, failed = served, [], []
    ended = threading.Event()
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        def work():
            i = 0
            try:
                while not ended.is_set():
                    with open(a / ('f%d' % i), 'wb') as f:
                        f.write(b'%d' % i * 100)
                        f.flush()
                        os.fsync(f.fileno())
                    if i % 3 == 2:
                        os.rename(a / ('f%d' % i), a / ('g%d' % i))
                    made.append(i)
                    i += 1
            except OSError as e:
                failed.append(e)
        worker = threading.Thread(target=work)
        worker.start()
        for _ in range(kills):
            before = len(made)
            wait_until(lambda: len(made) > before + 10 or failed, 240, 0.05, 'writes')
            skep.restart()
            wait_active(skep, 'fs')
        before = len(made)
        wait_until(lambda: len(made) > before + 5 or failed, 240, 0.05, 'writes after the restart')
        ended.set()
        worker.join(60)
        assert not failed and not worker.is_alive()
    with mounted(skep, tmp_path / 'b', fs='fs') as b:
        for i in made:
            name = 'g%d' % i if i % 3 == 2 else 'f%d' % i
            assert (b / name).read_bytes() == b'%d' % i * 100
        assert len(os.listdir(b.path)) >= len(made)


def test_open_files_and_locks_survive(served, tmp_path):
    skep = served
    with mounted(skep, tmp_path / 'a', fs='fs') as a, mounted(skep, tmp_path / 'b', fs='fs') as b:
        with open(a / 'f', 'w+b', buffering=0) as f, open(b / 'f', 'r+b', buffering=0) as g:
            f.write(b'before')
            fcntl.flock(f, fcntl.LOCK_EX)
            skep.restart()
            wait_active(skep, 'fs')
            f.write(b' and after')
            assert (b / 'f').read_bytes() == b'before and after'
            with pytest.raises(BlockingIOError):
                fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(f, fcntl.LOCK_UN)
            fcntl.flock(g, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(b / 'f')
            skep.restart()
            wait_active(skep, 'fs')
            f.seek(0)
            assert f.read() == b'before and after'


def test_a_metadata_server_with_another_key_goes_on(served, tmp_path):
    """The key that it came with is taken away: it begins anew by itself, and what is open goes on."""
    skep = served

    def active():
        ranks = skep.ceph_json('fs', 'get', 'fs')['mdsmap']['info'].values()
        return {i['gid'] for i in ranks if i['state'] == 'up:active'}
    with mounted(skep, tmp_path / 'a', fs='fs') as a, open(a / 'f', 'w+b', buffering=0) as f:
        f.write(b'before')
        before = active()
        names = [e['entity'] for e in skep.ceph_json('auth', 'ls')['auth_dump'] if e['entity'].startswith('mds.')]
        assert before and names
        for name in names:
            skep.ceph('auth', 'get-or-create-pending', name)
            skep.ceph('auth', 'commit-pending', name)
        wait_until(lambda: active() - before, 90, 0.2, 'another run of it')
        f.write(b' and after')
        os.fsync(f.fileno())
        assert (a / 'f').read_bytes() == b'before and after'
        (a / 'g').write_bytes(b'new')


def test_ranks_that_are_failed_by_command_come_back(served, tmp_path):
    skep = served

    def gid():
        active = [i for i in skep.ceph_json('fs', 'get', 'fs')['mdsmap']['info'].values() if i['state'] == 'up:active']
        return active[0]['gid'] if active else None

    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        def step(i):
            with open(a / ('f%d' % i), 'xb') as f:
                f.write(b'%d' % i * 100)
                f.flush()
                os.fsync(f.fileno())
            os.rename(a / ('f%d' % i), a / ('g%d' % i))
        work = Work(step)
        try:
            for words in [('mds', 'fail', 'fs:0'), ('mds', 'fail', 'NAME'), ('fs', 'fail', 'fs')]:
                work.goes_on(10)
                before = wait_until(gid, 90, 0.2, 'who serves')
                info = next(iter(skep.ceph_json('fs', 'get', 'fs')['mdsmap']['info'].values()))
                skep.ceph(*[info['name'] if w == 'NAME' else w for w in words])
                if words[0] == 'fs':
                    skep.ceph('fs', 'set', 'fs', 'joinable', 'true')
                wait_until(lambda: gid() not in (None, before), 90, 0.2, 'another to serve')
            work.goes_on(5)
        finally:
            work.end()
    with mounted(skep, tmp_path / 'b', fs='fs') as b:
        for i in range(work.done):
            assert (b / ('g%d' % i)).read_bytes() == b'%d' % i * 100
