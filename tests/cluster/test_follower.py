"""A standby follows the journal of the server (`allow_standby_replay`). The one that serves is killed while a mount writes; the follower
takes the rank over, and everything that was acknowledged is there."""
import os
import re
import time

import pytest

from skeptest.cluster import Cluster
from skeptest.hosts import CLIENT, within
from skeptest.mounts import make_volume, mounted
from skeptest.run import popen, wait_until
from skeptest.work import Work

pytestmark = pytest.mark.own
OPTIONS = ['--osd-memory', '128M', '--osd-size', '640M']
LOOKS_S = 1                                        # a follower reads on so often


class OnClient(Cluster):
    """The cluster seen from the client's host; what is mounted there is seen by everybody."""

    def __init__(self, hosts):
        super().__init__(hosts[0].conf)
        self.netns = hosts.namespace(CLIENT)

    def popen(self, *argv, **kw):
        return popen(within(self.netns, *argv), env=self.env(), **kw)


def in_state(host, state):
    """The daemon of the file system that is in this state; None while there is none."""
    info = host.ceph_json('fs', 'get', 'fs')['mdsmap']['info'].values()
    return next((i for i in info if i['state'] == state), None)


def standbys(host):
    return {s['gid']: s['name'] for s in host.ceph_json('fs', 'dump')['standbys']}


def test_the_follower_takes_over(hosts, tmp_path):
    pair = hosts(2)
    pair.start_etcd(apart=True)
    pair[0].up(create=True, options=OPTIONS)
    pair[1].up(join=True, options=OPTIONS)
    make_volume(pair[0], 'fs')
    wait_until(lambda: pair[0].ceph_json('-s')['fsmap']['up:standby'] == 1, what='a standby')

    # One that was failed comes back by itself, as another.
    (gid, name), = standbys(pair[0]).items()
    pair[0].ceph('mds', 'fail', str(gid))
    wait_until(lambda: list(standbys(pair[0]).values()) == [name], 60, 0.2, 'the failed standby, begun anew')
    assert gid not in standbys(pair[0])

    # On, off, on: without the knob it is a plain standby again.
    pair[0].ceph('fs', 'set', 'fs', 'allow_standby_replay', 'true')
    follower = wait_until(lambda: in_state(pair[0], 'up:standby-replay'), 60, 0.2, 'a follower')
    pair[0].ceph('fs', 'set', 'fs', 'allow_standby_replay', 'false')
    assert in_state(pair[0], 'up:standby-replay') is None
    assert follower['gid'] not in standbys(pair[0])
    wait_until(lambda: list(standbys(pair[0]).values()) == [follower['name']], 60, 0.2, 'the follower of before to wait, begun anew')
    pair[0].ceph('fs', 'set', 'fs', 'allow_standby_replay', 'true')
    follower = wait_until(lambda: in_state(pair[0], 'up:standby-replay'), 60, 0.2, 'a follower again')

    first = in_state(pair[0], 'up:active')
    victim = next(h for h in pair if h.name == first['name'])
    other = next(h for h in pair if h is not victim)
    assert follower['name'] == other.name and follower['rank'] == 0
    assert '1 up:standby-replay' in other.ceph('mds', 'stat').out
    rows = [line.split() for line in other.ceph('fs', 'status', 'fs').out.splitlines()]
    assert ['0-s', 'standby-replay', other.name] in [row[:3] for row in rows]
    assert 'MDS_INSUFFICIENT_STANDBY' not in other.ceph_json('health')['checks']

    with mounted(OnClient(pair), tmp_path / 'mount', fs='fs') as mount:
        # Some segments of the journal, of files that stay in it; the last one is read again by whoever takes over.
        for i in range(150):
            path = mount / ('large%d' % i)
            path.touch()
            os.setxattr(path, 'user.of-some-size', os.urandom(8192).hex().encode())
        time.sleep(3 * LOOKS_S)
        def step(i):
            with open(mount / ('f%d' % i), 'xb') as f:
                f.write(b'%d' % i * 100)
                f.flush()
                os.fsync(f.fileno())
            os.rename(mount / ('f%d' % i), mount / ('g%d' % i))
        work = Work(step)
        try:
            work.goes_on(50)
            victim.kill()
            # Until the death is noticed the map names the one before.
            taken = lambda: (in_state(other, 'up:active') or {}).get('gid') == follower['gid']
            wait_until(taken, 90, 0.2, 'the follower to serve')
            work.goes_on(10)
        finally:
            work.end()
        for i in range(work.done):
            assert (mount / ('g%d' % i)).read_bytes() == b'%d' % i * 100
    read = re.findall(r'mds\.%s: rank 0 of \'fs\': .* (\d+) bytes of them before' % other.name, other.log.read_text())
    assert read and int(read[-1]) > 1 << 20, 'what it had followed: %s' % read
    assert first['addrs']['addrvec'][0]['addr'] in other.ceph('osd', 'blocklist', 'ls').out
    assert in_state(other, 'up:standby-replay') is None
    victim.start(60)
    again = wait_until(lambda: in_state(other, 'up:standby-replay'), 60, 0.2, 'the one of before to follow')
    assert again['name'] == victim.name and again['gid'] != first['gid']
