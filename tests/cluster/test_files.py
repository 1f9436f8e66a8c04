"""A file system served by two hosts: one has its rank, the other waits. The one that serves is killed while a mount writes; the other
takes over, and everything that was acknowledged is there."""
import os
import threading

import pytest

from skeptest.cluster import Cluster
from skeptest.hosts import CLIENT, within
from skeptest.mounts import make_volume, mounted
from skeptest.run import popen, wait_until

pytestmark = pytest.mark.own
OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']


class OnClient(Cluster):
    """The cluster seen from the client's host; what is mounted there is seen by everybody."""

    def __init__(self, hosts):
        super().__init__(hosts[0].conf)
        self.netns = hosts.namespace(CLIENT)

    def popen(self, *argv, **kw):
        return popen(within(self.netns, *argv), env=self.env(), **kw)


def info(host, fs):
    return list(host.ceph_json('fs', 'get', fs)['mdsmap']['info'].values())


def serving(host, fs):
    """Who serves, as long as somebody does."""
    active = [i for i in info(host, fs) if i['state'] == 'up:active']
    return active[0] if active else None


def test_a_standby_takes_over(hosts, tmp_path):
    pair = hosts(2)
    pair.start_etcd(apart=True)
    pair[0].up(create=True, options=OPTIONS)
    pair[1].up(join=True, options=OPTIONS)
    make_volume(pair[0], 'fs')
    wait_until(lambda: pair[0].ceph_json('-s')['fsmap']['up:standby'] == 1, what='a standby')
    first = serving(pair[0], 'fs')
    victim = next(h for h in pair if h.name == first['name'])
    other = next(h for h in pair if h is not victim)

    made, failed, ended = [], [], threading.Event()
    with mounted(OnClient(pair), tmp_path / 'mount', fs='fs') as mount:
        def work():
            try:
                while not ended.is_set():
                    path = mount / ('f%d' % len(made))
                    with open(path, 'wb') as f:
                        f.write(b'%d' % len(made) * 100)
                        f.flush()
                        os.fsync(f.fileno())
                    made.append(path.name)
            except OSError as e:
                failed.append(e)
        worker = threading.Thread(target=work)
        worker.start()
        try:
            wait_until(lambda: len(made) > 10 or failed, 90, 0.05, 'writes')
            victim.kill()
            # Until the death is noticed the map names the one before.
            taken = lambda: next((i for i in info(other, 'fs') if i['state'] == 'up:active' and i['name'] == other.name), None)
            second = wait_until(taken, 90, 0.2, 'the standby to serve')
            before = len(made)
            wait_until(lambda: len(made) > before + 10 or failed, 120, 0.05, 'writes after the failover')
        finally:
            ended.set()
            worker.join(90)
        assert not failed and not worker.is_alive()
        assert second['name'] == other.name and second['gid'] != first['gid']
        assert second['incarnation'] > first['incarnation']
        for i, name in enumerate(made):
            assert (mount / name).read_bytes() == b'%d' % i * 100
    fenced = other.ceph('osd', 'blocklist', 'ls').out
    assert first['addrs']['addrvec'][0]['addr'] in fenced
    m = other.ceph_json('fs', 'get', 'fs')['mdsmap']
    assert 0 < m['last_failure_osd_epoch'] <= other.ceph_json('osd', 'dump')['epoch']
    assert 'MDS_INSUFFICIENT_STANDBY' in other.ceph_json('health')['checks']
    victim.start(60)
    wait_until(lambda: other.ceph_json('-s')['fsmap']['up:standby'] == 1, 60, 0.2, 'the standby of before')
