"""Bytes that no client sends, before authentication: the connection ends, memory stays bounded, everyone
else is served on.
"""
import os
import random
import socket
import struct

import pytest

pytestmark = pytest.mark.own

BANNER = b'ceph v2\n' + struct.pack('<H', 16) + struct.pack('<QQ', 1, 1)


def ports(skep):
    """Every TCP port that the process listens on."""
    inodes = set()
    for fd in os.listdir('/proc/%d/fd' % skep.proc.pid):
        try:
            target = os.readlink('/proc/%d/fd/%s' % (skep.proc.pid, fd))
        except OSError:
            continue
        if target.startswith('socket:'):
            inodes.add(target[8:-1])
    found = set()
    for table in ('/proc/net/tcp', '/proc/net/tcp6'):
        with open(table) as f:
            for line in f.readlines()[1:]:
                w = line.split()
                if w[3] == '0A' and w[9] in inodes:
                    found.add(int(w[1].split(':')[1], 16))
    return sorted(found)


def throw(port, data, wait=5):
    """Sends bytes; true if the server closed the connection within `wait` seconds."""
    with socket.create_connection(('127.0.0.1', port), timeout=wait) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            while s.recv(65536):
                pass
            return True
        except socket.timeout:
            return False
        except OSError:                                # reset, or closed before we had said everything
            return True


def frame(tag, length, crc=0):
    """A preamble of messenger v2 in crc mode: one segment of this announced length."""
    body = struct.pack('<BB', tag, 1) + struct.pack('<IH', length, 8) + bytes(18) + bytes(2)
    return body + struct.pack('<I', crc)


CASES = {
    'nothing': b'',
    'an HTTP request': b'GET / HTTP/1.1\r\nHost: x\r\n\r\n',
    'a banner of messenger v1': b'ceph v027' + bytes(200),
    'half a banner': BANNER[:11],
    'a banner with a huge payload length': b'ceph v2\n' + struct.pack('<H', 65535) + bytes(70000),
    'a banner that needs unknown features': b'ceph v2\n' + struct.pack('<H', 16) + struct.pack('<QQ', 1, 1 << 63),
    'a frame with a wrong checksum': BANNER + frame(1, 64) + bytes(64),
    'a frame of 4 GiB': BANNER + frame(1, 0xffffffff),
    'an unknown tag': BANNER + frame(250, 8) + bytes(8),
    'zeroes': BANNER + bytes(100000),
}


@pytest.fixture(scope='module')
def victim(workdir):
    import shutil

    from skeptest.skep import Skep
    skep = Skep(workdir / 'victim').start()
    yield skep
    skep.kill()
    shutil.rmtree(skep.data, ignore_errors=True)


@pytest.mark.parametrize('case', CASES)
def test_connection_is_closed(victim, case):
    listening = ports(victim)
    assert len(listening) >= 2, listening                       # a monitor and OSDs
    for port in listening:
        assert throw(port, CASES[case]), 'port %d kept the connection' % port
    assert victim.alive, victim.log_tail()


def test_random_bytes_and_memory(victim):
    rng = random.Random(1)
    before = victim.rss_kib()
    for port in ports(victim):
        for _ in range(40):
            throw(port, BANNER + rng.randbytes(rng.randrange(1, 3000)))
    assert victim.alive, victim.log_tail()
    assert victim.rss_kib() - before < 30 * 1024, 'grew from %d to %d KiB' % (before, victim.rss_kib())
    assert 'panicked' not in victim.log.read_text(errors='replace')
    victim.ceph('-s')


def test_many_silent_connections_do_not_keep_others_out(victim):
    idle = [socket.create_connection(('127.0.0.1', port)) for port in ports(victim) for _ in range(50)]
    try:
        pool = victim.make_pool()
        victim.rados(pool, 'put', 'o', '-', stdin=b'x')
        assert victim.rados(pool, 'get', 'o', '-').out == 'x'
    finally:
        for s in idle:
            s.close()
