"""A Debian of another release beside this one: a root folder made by debootstrap, kept under SKEP_CACHE.

Invariants: the folder is complete or absent (it is made beside and moved into place), two runs do not make it at
once, and nothing of a run stays in it: what runs there has a mount namespace of its own, with its own /tmp, /run,
/var/tmp and /var/lib/ceph, which the kernel takes down when the last process of it ends.
"""
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from skeptest.run import end_group, popen, run, wait_until

MIRROR = os.environ.get('SKEP_DEBIAN_MIRROR', 'http://deb.debian.org/debian')
MAKE_S = 1800

# Mounts, then the command, in a mount namespace: $1 the root, $2 the folder to show as /mnt.
ENTER = '''set -e
root=$1 shown=$2; shift 2
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
for d in tmp run var/tmp var/lib/ceph; do mount -t tmpfs tmpfs "$root/$d"; done
[ -z "$shown" ] || mount --bind "$shown" "$root/mnt"
exec chroot "$root" "$@"'''


def cache():
    """SKEP_CACHE, where dev/lib.sh keeps it."""
    home = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.environ.get('HOME', '/root'), '.cache')
    return pathlib.Path(os.environ.get('SKEP_CACHE') or os.path.join(home, 'skep'))


class Root:
    """The folder of one release with some packages; `later`: those that debootstrap cannot configure (daemons), by the root's own apt."""

    def __init__(self, suite, packages, later=()):
        if os.geteuid() != 0:
            raise unittest.SkipTest('a Debian root needs root to be made and entered')
        sign = hashlib.sha256(' '.join([suite, *sorted(packages), *sorted(later)]).encode()).hexdigest()[:12]
        self.path = cache() / 'roots' / ('%s-%s' % (suite, sign))
        self.suite, self.packages, self.later = suite, packages, later
        self._make()

    def _make(self):
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_suffix('.lock'), 'w') as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self.path.exists():
                return
            part = self.path.with_suffix('.part')
            shutil.rmtree(part, ignore_errors=True)
            run(['debootstrap', '--variant=minbase', *(['--include=' + ','.join(self.packages)] if self.packages else []),
                 self.suite, part, MIRROR], timeout=MAKE_S)
            if self.later:
                self._install(part)
            shutil.rmtree(part / 'var/cache/apt/archives', ignore_errors=True)
            part.rename(self.path)

    def _install(self, part):
        """Nothing is started: a daemon of the root's would be one of this machine's."""
        for name in ('resolv.conf', 'hosts'):
            shutil.copy(pathlib.Path('/etc') / name, part / 'etc' / name)
        policy = part / 'usr/sbin/policy-rc.d'
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
        (part / 'var/lib/ceph').mkdir(exist_ok=True)
        script = 'apt-get update -q && apt-get install -qy --no-install-recommends "$@" && apt-get clean'
        enter = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', ENTER, 'sh', part, '']
        run([*enter, 'sh', '-c', script, 'sh', *self.later], timeout=MAKE_S,
            env={'LC_ALL': 'C.UTF-8', 'DEBIAN_FRONTEND': 'noninteractive'})

    def version(self, package):
        r = run(['dpkg-query', '--admindir', self.path / 'var/lib/dpkg', '-W', '-f', '${Version}', package])
        return r.out.strip()

    def popen(self, argv, shown='', env=None, **kw):
        """Starts a command in there; `shown` is the folder of ours that it sees as /mnt."""
        enter = ['unshare', '--mount', '--propagation', 'private', 'sh', '-c', ENTER, 'sh', self.path, shown]
        return popen([*enter, *argv], env={'LC_ALL': 'C.UTF-8', **(env or {})}, **kw)


class Machine:
    """A Debian with systemd as its first process, on the host's network; a copy that goes with the test."""

    def __init__(self, root, folder):
        self.root = folder
        run(['cp', '-a', '--reflink=auto', root.path, folder], timeout=300)
        self.log = folder.with_suffix('.log')

    def boot(self):
        with open(self.log, 'ab') as log:
            self.nspawn = popen(['systemd-nspawn', '-q', '-D', self.root, '--register=no', '--keep-unit', '--console=read-only',
                                 '-b'], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.systemctl('is-system-running', check=None).out.strip() in ('running', 'degraded'), 120, 0.5,
                   lambda: 'systemd to be up:\n' + self.log.read_text(errors='replace')[-2000:])
        return self

    def _first(self):
        """The container's process 1."""
        children = pathlib.Path('/proc/%d/task/%d/children' % (self.nspawn.pid, self.nspawn.pid)).read_text().split()
        return children[0] if children else None

    def run(self, *argv, **kw):
        return run(['nsenter', '-t', self._first() or '0', '-a', '-r', '-w', *argv], env={'LC_ALL': 'C.UTF-8', 'PATH':
                   '/usr/sbin:/usr/bin:/sbin:/bin'}, **kw)

    def systemctl(self, *args, **kw):
        return self.run('systemctl', *args, **kw)

    def shown(self, name):
        return self.systemctl('show', '-P', name, 'skep').out.strip()

    def end(self):
        os.kill(self.nspawn.pid, signal.SIGTERM)
        try:
            self.nspawn.wait(60)
        except subprocess.TimeoutExpired:
            end_group(self.nspawn)
            self.nspawn.wait(60)
