"""`ms_cluster_mode`: what OSDs of different hosts say to one another can be read on the wire, or not."""
import sys

import pytest

from skeptest.cluster import unique
from skeptest.hosts import SWITCH, within
from skeptest.run import popen

pytestmark = pytest.mark.own

# Counts the packets on a port of the switch that hold some words, until it is told to end.
TAP = """
import select, socket, sys
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
tap.bind((sys.argv[1], 0))
tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
what, seen = sys.argv[2].encode(), 0
print('listening', flush=True)
while True:
    ready = select.select([tap, sys.stdin], [], [])[0]
    if tap in ready:
        seen += what in tap.recv(1 << 17)
    elif ready:
        break
print(seen, flush=True)
"""


def in_clear(group, host, pool):
    """Writes an object of two copies that says one thing over and over, and counts the packets on another host's cable that say it."""
    what = unique('said-in-clear')
    argv = within(group.namespace(SWITCH), sys.executable, '-c', TAP, group[1].name, what)
    tap = popen(argv, stdin=-1, stdout=-1, text=True)
    try:
        assert tap.stdout.readline() == 'listening\n'
        host.rados(pool, 'put', unique('object'), '-', stdin=what.encode() * ((1 << 20) // len(what)))
        return int(tap.communicate('end\n', timeout=90)[0])
    finally:
        tap.kill()
        tap.wait(60)


def test_between_hosts(hosts):
    group = hosts(2)
    group.start_etcd(apart=True)
    group[0].up(create=True)
    group[1].up(join=True)
    host = group[0]
    pool = host.make_copies(2)
    # Clients have no choice: what is read then is what OSDs say.
    host.ceph('config', 'set', 'global', 'ms_service_mode', 'secure')
    assert in_clear(group, host, pool) > 0
    host.ceph('config', 'set', 'global', 'ms_cluster_mode', 'secure')
    for each in group:
        each.stop()
    for each in group:
        each.start()
    host.whole(pool)
    assert in_clear(group, host, pool) == 0
