"""File systems mounted by the stock ceph-fuse, and clients of libcephfs."""
import contextlib
import os
import pathlib
import subprocess

from skeptest.run import LIMIT_S, end_group, run, wait_until


class Mount:
    """One ceph-fuse in the foreground. `options` as on its command line."""

    def __init__(self, cluster, path, fs=None, options=()):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        self.log = self.path.with_name(self.path.name + '.log')
        argv = ['ceph-fuse', '-f', '-c', cluster.conf, '--client_mount_timeout', '60',
                '--client_reconnect_stale', 'true', '--log_file', self.log]
        if fs:
            argv += ['--client_fs', fs]
        self.proc = cluster.popen(*argv, *options, self.path, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        try:
            wait_until(self.is_mounted, 90, 0.05, 'a mount')
        except AssertionError:
            self.kill()
            raise

    def is_mounted(self):
        assert self.proc.poll() is None, 'ceph-fuse ended with %s: %s' % (self.proc.returncode, self.said())
        return os.path.ismount(self.path)

    def said(self):
        return self.log.read_text(errors='replace')[-3000:] if self.log.exists() else '(no log)'

    def unmount(self):
        run(['umount', self.path], timeout=LIMIT_S)
        wait_until(self.has_ended, what='ceph-fuse to end')
        assert self.proc.returncode == 0, self.said()

    def has_ended(self):
        """Whoever made a mount namespace meanwhile has a copy of the mount, and the kernel ends a file system with the last of them."""
        if self.proc.poll() is not None:
            return True
        for pid in others_that_see(self.path):
            run(['nsenter', '--mount=/proc/%s/ns/mnt' % pid, 'umount', '-l', self.path], check=None)
        return False

    def kill(self):
        """SIGKILL; what is left of the mount goes, too."""
        end_group(self.proc)
        self.proc.wait(60)
        run(['umount', '-l', self.path], check=None)

    def __truediv__(self, name):
        return self.path / name


def others_that_see(path):
    """A process of each other mount namespace in which `path` is a mount point."""
    seen, wanted = {os.stat('/proc/self/ns/mnt').st_ino}, ' %s ' % path
    for folder in pathlib.Path('/proc').glob('[0-9]*'):
        with contextlib.suppress(OSError):
            namespace = (folder / 'ns' / 'mnt').stat().st_ino
            if namespace not in seen:
                seen.add(namespace)
                if wanted in (folder / 'mountinfo').read_text():
                    yield folder.name


@contextlib.contextmanager
def mounted(cluster, path, **kw):
    mount = Mount(cluster, path, **kw)
    try:
        yield mount
        if mount.proc.poll() is None:
            mount.unmount()
    finally:
        if mount.proc.poll() is None:
            mount.kill()


def make_volume(cluster, name):
    cluster.ceph('fs', 'volume', 'create', name)
    wait_active(cluster, name)


def wait_active(cluster, name, timeout=90):
    def active():
        said = cluster.ceph_json('fs', 'get', name)['mdsmap']['info'].values()
        return any(i['state'] == 'up:active' for i in said)
    wait_until(active, timeout, 0.2, 'an active metadata server')
