"""TCP connections between clients and the metadata server break in the midst of work. A client resumes its session: nothing hangs, nothing
is lost, and nothing is done twice. (A 16.2 client whose session is gone hangs until it is mounted again.)"""
import os
import random
import threading

import cephfs
import pytest

from skeptest.cluster import unique
from skeptest.cuts import cut, mds_port
from skeptest.mounts import mounted
from skeptest.work import Work

CUTS = [12, pytest.param(150, marks=pytest.mark.long)]


def cut_often(work, cuts, client, server, port):
    """In turns from either side; sometimes again before the client is back."""
    luck, did = random.Random(7), 0
    while did < cuts:
        work.goes_on(luck.randrange(1, 4))
        threading.Event().wait(luck.random() / 20)
        did += cut(*((client, port) if luck.random() < 0.5 or server is None else (server, port, True)))
    work.goes_on(5)


def pids(cluster):
    return cluster.proc.pid if getattr(cluster, 'proc', None) else None


@pytest.mark.parametrize('cuts', CUTS)
def test_a_mount_goes_on(cluster, fs, tmp_path, cuts):
    name = unique('cuts')
    # As stock: a session that is gone is not reconnected.
    with mounted(cluster, tmp_path / 'a', fs=fs, options=['--client_reconnect_stale', 'false']) as a:
        (a / name).mkdir()

        def step(i):
            d, f, g = (a / name / (k + str(i)) for k in 'dfg')
            d.mkdir()
            with open(f, 'xb') as file:
                file.write(b'%d' % i * 1000)
                file.flush()
                os.fsync(file.fileno())
            os.link(f, d / 'link')
            os.rename(f, g)
            os.unlink(d / 'link')
            os.setxattr(g, 'user.i', b'%d' % i, os.XATTR_CREATE)
        work = Work(step)
        try:
            cut_often(work, cuts, a.proc.pid, pids(cluster), mds_port(cluster, fs))
        finally:
            work.end()
    with mounted(cluster, tmp_path / 'b', fs=fs) as b:
        for i in range(work.done):
            g = b / name / ('g%d' % i)
            assert g.read_bytes() == b'%d' % i * 1000
            assert os.stat(g).st_nlink == 1 and os.getxattr(g, 'user.i') == b'%d' % i
        assert len(os.listdir(b / name)) == 2 * work.done


def client(cluster, fs):
    c = cephfs.LibCephFS(conffile=str(cluster.conf))
    c.conf_set('client_mount_timeout', '60')
    c.mount(filesystem_name=fs)
    return c


@pytest.mark.parametrize('cuts', CUTS)
def test_libcephfs_goes_on(cluster, fs, cuts):
    name = '/' + unique('cuts')
    c = client(cluster, fs)
    c.mkdir(name, 0o755)

    def step(i):
        f, g = ('%s/%s%d' % (name, k, i) for k in 'fg')
        fd = c.open(f, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        c.write(fd, b'%d' % i * 1000, 0)
        c.fsync(fd, 0)
        c.close(fd)
        c.rename(f, g)
        c.chmod(g, 0o600)
    work = Work(step)
    try:
        cut_often(work, cuts, os.getpid(), pids(cluster), mds_port(cluster, fs))
    finally:
        work.end()
    c.unmount()
    other = client(cluster, fs)
    for i in range(work.done):
        fd = other.open('%s/g%d' % (name, i), 'r', 0)
        assert other.read(fd, 0, 1 << 20) == b'%d' % i * 1000
        other.close(fd)
    with other.opendir(name) as d:
        assert len([e for e in iter(d.readdir, None) if e.d_name[:1] != b'.']) == work.done
    other.unmount()
    other.shutdown()
    c.shutdown()
