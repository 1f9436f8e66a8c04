"""Several hosts on one machine: network namespaces on one switch, each with its own address, etcd and Skep.

    hosts = Hosts(3, workdir)             # or the fixture `hosts`
    hosts.start_etcd()                    # one member in each; or hosts.start_etcd(apart=True): one of its own
    hosts[0].up(create=True); hosts[1].up(join=True)
    hosts[0].ceph('-s')                   # stock clients run on a host of their own, the client
    hosts[1].cut(); hosts[1].heal()       # its cable
    hosts[1].mute(); hosts[1].unmute()    # what it sends to the other hosts is lost; what they send arrives
    hosts.power_cut(); hosts.power_on()   # of all machines at once, etcd with them

Needs root. Everything is gone at the end, also after a failure: processes die with the test run, and namespaces carry
the pid of the run that made them, so that the next run removes those of one that was killed.
"""
import contextlib
import ctypes
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import Skep, find_binary

NET = '10.77.0.'
SWITCH, CLIENT = 'sw', 'cl'
_PREFIX = 'skt'
NOBODY = '02:00:00:00:00:01'                       # a hardware address that nobody has
CLONE_NEWNET = 0x40000000
GIVES_WITHIN_S = 4                                 # an OSD looks each second whether its host is short of space


def usable():
    """Why hosts cannot be made here, or None."""
    if os.geteuid() != 0:
        return 'needs root for network namespaces'
    for program in ('ip', 'etcd'):
        if not shutil.which(program):
            return '%s is missing' % program
    probe = subprocess.run(['unshare', '--net', 'true'], stderr=subprocess.DEVNULL)
    return None if probe.returncode == 0 else 'network namespaces are forbidden here'


def within(namespace, *command):
    """The command in that network namespace. Not by `ip netns exec`, which copies all mounts: a file system that others unmount then lives on."""
    return ['nsenter', '--net=' + network_of(namespace), *command]


def network_of(namespace):
    return '/run/netns/' + namespace


def remove_stale():
    """Namespaces of test runs that are no more."""
    for line in run(['ip', 'netns', 'list']).out.splitlines():
        name = line.split()[0]
        m = re.fullmatch(_PREFIX + r'(\d+)-\w+', name)
        if m and not os.path.exists('/proc/' + m.group(1)):
            run(['ip', 'netns', 'del', name], check=None)


class Etcd:
    """One member of an etcd cluster, on a host."""

    def __init__(self, host, data):
        self.host, self.data, self.proc = host, pathlib.Path(data), None
        self.log = self.data.with_name(self.data.name + '.log')

    @property
    def url(self):
        return 'http://%s:2379' % self.host.ip

    def member(self):
        return '%s=http://%s:2380' % (self.host.name, self.host.ip)

    def start(self, members):
        with open(self.log, 'ab') as log:
            self.proc = popen(self.host.argv([
                'etcd', '--name', self.host.name, '--data-dir', self.data,
                '--listen-client-urls', self.url, '--advertise-client-urls', self.url,
                '--listen-peer-urls', 'http://%s:2380' % self.host.ip,
                '--initial-advertise-peer-urls', 'http://%s:2380' % self.host.ip,
                '--initial-cluster', ','.join(members)]), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.members = members

    def kill(self):
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)

    def restart(self):
        self.kill()
        self.start(self.members)

    def signal(self, sig):
        os.kill(self.proc.pid, sig)


class Host(Skep):
    """A host, and the Skep on it. Its tools (`ceph`, `rados`, ...) run on the client's host."""

    def __init__(self, hosts, number, workdir):
        self.hosts, self.name, self.ip = hosts, 'h%d' % number, NET + str(number)
        self.netns = hosts.namespace(self.name)
        self.etcd = Etcd(self, workdir / (self.name + '-etcd'))
        super().__init__(workdir / self.name, osds=1)
        self.port = 3300
        self.first, self.disk = [], None

    def argv(self, command=None):
        """A command on this host; without one: Skep's own."""
        if command is None:
            osds = ['--osds', self.osds] if self.osds else []
            command = [self.program or find_binary(), 'up', '--data', self.data, *osds, '--bind', self.ip, '--host', self.name,
                       '--allow-pool-delete', *self.etcd_options(), *self.first, *self.options]
        return within(self.netns, *command)

    def etcd_options(self):
        return ['--etcd', ','.join(self.hosts.etcd_urls)] if self.hosts.etcd_urls else []

    def up(self, create=False, join=False, osds=1, options=(), timeout=60):
        """Starts Skep and returns when it serves."""
        self.first = ['--create'] * create + ['--join'] * join
        self.osds, self.options = osds, list(options)
        return self.start(timeout)

    def refused(self, *options, first=(), name=None, ip=None):
        """Starts Skep, which must end by itself; what it said."""
        return run(self.argv([find_binary(), 'up', '--data', self.data, '--bind', ip or self.ip,
                              '--host', name or self.name, *self.etcd_options(), *first, *options]),
                   check='fails', timeout=60).err

    # -- stock clients
    def run(self, *argv, **kw):
        if argv[0] == 'ceph':
            return super().run(*argv, network=network_of(self.hosts.namespace(CLIENT)), **kw)
        return super().run(*self.hosts.on_client(argv), **kw)

    def popen(self, *argv, **kw):
        return super().popen(*self.hosts.on_client(argv), **kw)

    def enter(self):
        """Puts this (child) process on the client's host."""
        self.hosts.enter_client()

    def on_small_disk(self, mib):
        """Before its first start: its data lies on a disk of its own of that size. Why that cannot be, or None."""
        disk = self.data.with_name(self.data.name + '-disk')
        disk.mkdir()
        image = disk.with_suffix('.img')
        run(['truncate', '-s', '%dM' % mib, image])
        run(['/sbin/mke2fs', '-q', '-F', '-t', 'ext4', '-m', '0', image])
        mounted = run(['mount', '-o', 'loop', image, disk], check=None)
        if mounted.returncode:
            return mounted.err.strip()
        self.disk, self.data = disk, disk / 'data'
        self.conf = str(self.data / 'ceph.conf')

    # -- trouble
    def fill_disk(self):
        """Another program takes all the space of its small disk, and then what the OSD gives back to a host without room (it
        holds some ahead of its data): from here on it takes nothing that grows. Else it had room for what a test writes."""
        def nothing_free():
            found = os.statvfs(self.disk)
            free = found.f_bavail * found.f_frsize - (1 << 20)
            if free > 8 << 20:                             # less comes and goes with what clients write
                last[0] = time.monotonic()
            if free > 0:
                with contextlib.suppress(OSError):         # the OSD was faster
                    os.posix_fallocate(other.fileno(), os.fstat(other.fileno()).st_size, free)
            return time.monotonic() - last[0] >= GIVES_WITHIN_S

        last = [time.monotonic()]
        with open(self.disk / 'other', 'wb') as other:
            wait_until(nothing_free, every=0.5, what='a full disk')

    def empty_disk(self):
        (self.disk / 'other').unlink()

    def mute(self, on=True):
        """What it sends to other hosts gets lost on the way, what they send arrives. The client hears it."""
        self.lose(*(other.ip for other in self.hosts if other is not self), on=on)

    def unmute(self):
        self.mute(False)

    def lose(self, *ips, on=True):
        """What it sends to these addresses gets lost on the way; everybody else hears it."""
        for ip in ips:
            what = ['replace', ip, 'lladdr', NOBODY, 'nud', 'permanent'] if on else ['del', ip]
            run(['ip', '-n', self.netns, 'neigh', *what, 'dev', 'eth0'])

    def cut(self):
        """Pulls its cable: nothing gets in or out."""
        self.hosts.switch('ip', 'link', 'set', self.name, 'down')

    def heal(self):
        self.hosts.switch('ip', 'link', 'set', self.name, 'up')

    def isolate(self, on=True):
        """Among the isolated hosts nobody reaches another; all others, and the client, reach all."""
        self.hosts.switch('ip', 'link', 'set', self.name, 'type', 'bridge_slave', 'isolated', 'on' if on else 'off')

    def pause(self):
        os.kill(self.proc.pid, signal.SIGSTOP)

    def resume(self):
        os.kill(self.proc.pid, signal.SIGCONT)


class Hosts:
    """`n` hosts, a client and the switch between them."""

    def __init__(self, n, workdir):
        remove_stale()
        self.pid = os.getpid()                      # also for children, who only use what is here
        self.made, self.etcd_urls, self.members, self.extra = [], [], [], None
        self.list = []
        try:
            self._namespace(SWITCH)
            self.switch('ip', 'link', 'add', 'br0', 'type', 'bridge')
            self.switch('ip', 'link', 'set', 'br0', 'up')
            self._plug(CLIENT, 100)
            for i in range(1, n + 1):
                self._plug('h%d' % i, i)
                self.list.append(Host(self, i, workdir))
        except BaseException:
            self.close()
            raise
        self.workdir = workdir

    def __getitem__(self, i):
        return self.list[i]

    def __iter__(self):
        return iter(self.list)

    def namespace(self, name):
        return '%s%d-%s' % (_PREFIX, self.pid, name)

    def _namespace(self, name):
        run(['ip', 'netns', 'add', self.namespace(name)])
        self.made.append(name)
        run(['ip', '-n', self.namespace(name), 'link', 'set', 'lo', 'up'])

    def _plug(self, name, number):
        """A host's namespace, with a cable to the switch."""
        self._namespace(name)
        inside = self.namespace(name)
        self.switch('ip', 'link', 'add', name, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', inside)
        self.switch('ip', 'link', 'set', name, 'master', 'br0', 'up')
        run(['ip', '-n', inside, 'addr', 'add', '%s%d/24' % (NET, number), 'dev', 'eth0'])
        run(['ip', '-n', inside, 'link', 'set', 'eth0', 'up'])

    def switch(self, *argv):
        return run(within(self.namespace(SWITCH), *argv))

    def on_client(self, argv):
        return within(self.namespace(CLIENT), *argv)

    def enter_client(self):
        """Puts the calling process (a child made for that) on the client's host."""
        with open(network_of(self.namespace(CLIENT))) as f:
            if ctypes.CDLL(None, use_errno=True).setns(f.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), 'setns')

    # -- all at once
    def power_cut(self):
        """Every process of every machine ends now."""
        for host in self.list:
            host.asker.end()
        procs = [h.proc for h in self.list] + [m.proc for m in self.members]
        for proc in procs:
            end_group(proc)
        for proc in procs:
            proc.wait(60)

    def power_on(self, timeout=90):
        for member in self.members:
            member.restart()
        for host in self.list:
            host.launch()
        for host in self.list:
            host.wait_ready(timeout)

    # -- etcd
    def start_etcd(self, apart=False):
        """A member on each host, or a single one on a host of its own."""
        if apart:
            self._plug('e90', 90)
            self.extra = Host(self, 90, self.workdir)
            self.extra.name, self.extra.netns = 'e90', self.namespace('e90')
            self.members = [self.extra.etcd]
        else:
            self.members = [h.etcd for h in self.list]
        names = [m.member() for m in self.members]
        for m in self.members:
            m.start(names)
        self.etcd_urls = [m.url for m in self.members]
        wait_until(self.etcd_healthy, 30, 0.2, 'etcd')

    def etcdctl(self, *args, **kw):
        """etcd's own tool, on the client."""
        kw['env'] = {'ETCDCTL_API': '3'}
        return run(self.on_client(['etcdctl', '--endpoints', ','.join(self.etcd_urls), *args]), **kw)

    def etcd_healthy(self):
        return self.etcdctl('endpoint', 'health', check=None, timeout=60).returncode == 0

    def forget_etcd(self):
        """Ends etcd and removes what it stored."""
        for m in self.members:
            m.kill()
            shutil.rmtree(m.data, ignore_errors=True)

    def close(self):
        for host in self.list:
            host.kill()
        for member in self.members:
            member.kill()
        for host in self.list:
            if host.disk:
                run(['umount', '-l', host.disk], check=None)
        for name in reversed(self.made):
            run(['ip', 'netns', 'del', self.namespace(name)], check=None)
        self.made = []
