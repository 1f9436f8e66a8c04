"""Changes that are answered before they are durable: a mount brings them back to the next server, once; what fsync said is there without it."""
import itertools
import os
import threading

import pytest

from skeptest.mounts import Mount, make_volume, mounted, wait_active
from skeptest.ownmounts import OwnMount
from skeptest.run import wait_until
from skeptest.work import Work

pytestmark = pytest.mark.own
AGAIN = 'requests that clients had an answer for are carried out again'


@pytest.fixture
def served(own):
    skep = own().start()
    make_volume(skep, 'fs')
    return skep


class Names:
    """Files and directories that come, move and go, without an fsync. Each call fails if it is carried out twice, or if one before was not."""

    def __init__(self, top):
        self.top, self.left = top, {}
        top.mkdir()
        (top / 'links').mkdir()

    def step(self, i):
        d = self.top / ('d%d' % (i // 10))
        if i % 10 == 0:
            d.mkdir()
        os.close(os.open(d / ('f%d' % i), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 + i % 8))
        name = 'f%d' % i
        if i % 3 == 0:
            os.rename(d / name, d / ('g%d' % i))
            name = 'g%d' % i
        if i % 5 == 4:
            os.unlink(d / name)
            os.symlink('to%d' % i, d / name)
        if i % 7 == 6:
            os.unlink(d / name)
            return
        if i % 5 != 4:
            os.chmod(d / name, 0o640)
            os.link(d / name, d / ('l%d' % i))
            os.setxattr(d / name, 'user.i', b'%d' % i)
            where = d
            if i % 4 == 1:
                where = self.top / 'links'
                os.rename(d / ('l%d' % i), where / ('l%d' % i))
            self.left.setdefault(where.name, set()).add('l%d' % i)
        self.left.setdefault(d.name, set()).add(name)

    def compare(self, top):
        found = {d: set(os.listdir(top / d)) for d in os.listdir(top)}
        assert {d: n for d, n in found.items() if n} == self.left
        for d, names in found.items():
            assert int(os.getxattr(top / d, 'ceph.dir.entries')) == len(names)
            for name in names:
                path = top / d / name
                if not path.is_symlink():
                    assert (path.stat().st_mode & 0o777, path.stat().st_nlink) == (0o640, 2)
                    assert os.getxattr(path, 'user.i') == name[1:].encode()
        inodes = [os.lstat(top / d / n).st_ino for d, names in found.items() for n in names if n[0] != 'l']
        assert len(set(inodes)) == len(inodes)


@pytest.mark.parametrize('kills', [2, pytest.param(15, marks=pytest.mark.long)])
def test_changes_come_back_once(served, tmp_path, kills):
    skep = served
    with mounted(skep, tmp_path / 'a', fs='fs') as a, mounted(skep, tmp_path / 'b', fs='fs') as b:
        loads = [Names(a / 'a'), Names(b / 'b')]
        works = [Work(load.step) for load in loads]
        try:
            # Until there was something to bring back, too; a kill may find that all is durable.
            for n in itertools.count(1):
                for work in works:
                    work.goes_on(20)
                skep.restart()
                wait_active(skep, 'fs')
                if n >= kills and (AGAIN in skep.log.read_text(errors='replace') or n >= kills + 20):
                    break
            for work in works:
                work.goes_on(5)
        finally:
            for work in works:
                work.end()
        assert AGAIN in skep.log.read_text(errors='replace')
        for m in (b, a):
            loads[0].compare(m / 'a')
            loads[1].compare(m / 'b')


def test_changes_of_our_mount_come_back_once(served, tmp_path):
    skep = served
    ours = OwnMount(tmp_path / 'own', conf=skep.conf, name=['fs'])
    try:
        ours.start()
        load = Names(ours / 'o')
        work = Work(load.step)
        try:
            for n in itertools.count(1):
                work.goes_on(40)
                skep.restart()
                wait_active(skep, 'fs')
                if n >= 2 and (AGAIN in skep.log.read_text(errors='replace') or n >= 20):
                    break
            work.goes_on(5)
        finally:
            work.end()
        assert AGAIN in skep.log.read_text(errors='replace')
        assert ours.stop() == 0, ours.said()
        with mounted(skep, tmp_path / 'b', fs='fs') as b:
            load.compare(b / 'o')
    finally:
        ours.end()


def test_what_fsync_said_is_there_without_its_mount(served, tmp_path):
    """The mount is killed with the server: what was made and not synced may be there or not, and nothing is there twice or by half."""
    skep, synced, tried, told = served, [], [], []
    a = Mount(skep, tmp_path / 'a', fs='fs')
    try:
        (a / 'd').mkdir()

        def work():
            try:
                for i in itertools.count():
                    path = a / 'd' / ('f%d' % i)
                    tried.append(path.name)
                    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                    told.append(os.fstat(fd).st_ino)
                    if i % 4 == 0:
                        os.write(fd, b'%d' % i * 50)
                        os.fsync(fd)
                        synced.append(i)
                    os.close(fd)
            except OSError:
                pass        # the mount is gone
        worker = threading.Thread(target=work)
        worker.start()
        wait_until(lambda: len(synced) > 10, 120, 0.02, 'files')
        skep.kill()
    finally:
        a.kill()
    worker.join(60)
    assert not worker.is_alive()
    skep.start()
    # The mount is waited for.
    wait_active(skep, 'fs', timeout=180)
    with mounted(skep, tmp_path / 'b', fs='fs') as b:
        for i in synced:
            assert (b / 'd' / ('f%d' % i)).read_bytes() == b'%d' % i * 50
        names = os.listdir(b / 'd')
        assert set(names) <= set(tried) and len(set(names)) == len(names)
        inodes = {os.stat(b / 'd' / n).st_ino for n in names}
        (b / 'd' / 'new').write_bytes(b'')
        # Numbers of files that are not there were told, too, and something may have been written under them.
        assert os.stat(b / 'd' / 'new').st_ino > max([*told, *inodes])
        assert (b / 'd' / 'new').read_bytes() == b''
