"""TCP connections of other processes, cut at once: what either side had not read or sent is gone, as when the network breaks."""
import contextlib
import ctypes
import os
import pathlib

PIDFD_GETFD = 438
ESTABLISHED = '01'
_libc = ctypes.CDLL(None, use_errno=True)


def _inodes(pid, port, ours):
    """Sockets of open connections to this remote port, or by `ours` at this local one."""
    found = set()
    for name in ('tcp', 'tcp6'):
        with contextlib.suppress(FileNotFoundError):
            for line in pathlib.Path('/proc/%d/net/%s' % (pid, name)).read_text().splitlines()[1:]:
                f = line.split()
                if f[3] == ESTABLISHED and int(f[1 if ours else 2].split(':')[1], 16) == port:
                    found.add('socket:[%s]' % f[9])
    return found


def cut(pid, port, ours=False):
    """Aborts the connections of a process to that port, or by `ours` those that it took there. How many there were."""
    inodes, n = _inodes(pid, port, ours), 0
    pidfd = os.pidfd_open(pid)
    try:
        for fd in os.listdir('/proc/%d/fd' % pid):
            try:
                if os.readlink('/proc/%d/fd/%s' % (pid, fd)) not in inodes:
                    continue
            except FileNotFoundError:
                continue
            copy = _libc.syscall(PIDFD_GETFD, pidfd, int(fd), 0)
            if copy < 0:
                continue
            # A connect to nowhere (AF_UNSPEC) aborts a connection and drops what is queued.
            if _libc.connect(copy, ctypes.create_string_buffer(16), 16) == 0:
                n += 1
            os.close(copy)
    finally:
        os.close(pidfd)
    return n


def mds_port(cluster, fs):
    info = next(iter(cluster.ceph_json('fs', 'get', fs)['mdsmap']['info'].values()))
    return int(info['addrs']['addrvec'][0]['addr'].rsplit(':', 1)[1])
