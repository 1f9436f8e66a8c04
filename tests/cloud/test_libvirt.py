"""libvirt's storage pool of type rbd, and a machine with a disk of it, by `virsh`: Debian's libvirt, unmodified.

The daemon is the test's own: its folders are mounted over the host's in a mount namespace, its socket is in the test's folder.
"""
import hashlib
import os
import pathlib
import random
import re
import shutil
import uuid

import pytest

from skeptest.cluster import unique
from skeptest.gtest import Case
from skeptest.run import end_group, popen, run, wait_until
from skeptest.suites import write_down
from skeptest.vm import BOOTS_S, Guest

pytestmark = pytest.mark.long
FOLDERS = {'etc': '/etc/libvirt', 'lib': '/var/lib/libvirt', 'run': '/run/libvirt', 'cache': '/var/cache/libvirt', 'log': '/var/log/libvirt'}
MIB = 1 << 20
QEMU_CONF = '''user = "root"
group = "root"
security_driver = "none"
remember_owner = 0
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
'''
POOL = '''<pool type='rbd'><name>{name}</name><source><name>{pool}</name><host name='127.0.0.1' port='{port}'/>
<auth type='ceph' username='{user}'><secret uuid='{secret}'/></auth></source></pool>'''
DOMAIN = '''<domain type='qemu'><name>guest</name><memory unit='MiB'>96</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='pc'>hvm</type><kernel>{kernel}</kernel><initrd>{initrd}</initrd>
<cmdline>console=ttyS0 quiet panic=-1</cmdline></os><cpu mode='maximum'/><features><acpi/></features>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>
<disk type='network' device='disk'><driver name='qemu' type='raw' cache='none'/>
<auth username='{user}'><secret type='ceph' uuid='{secret}'/></auth>
<source protocol='rbd' name='{pool}/{image}'><host name='127.0.0.1' port='{port}'/></source>
<target dev='vda' bus='virtio'/></disk>
<serial type='file'><source path='{serial}'/><target port='0'/></serial><memballoon model='none'/></devices></domain>'''


class Libvirt:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        for name in FOLDERS:
            (self.folder / name).mkdir()
        (self.folder / 'etc' / 'qemu.conf').write_text(QEMU_CONF)
        conf = self.folder / 'libvirtd.conf'
        conf.write_text('unix_sock_dir = "%s"\nauth_unix_rw = "none"\nlog_outputs = "2:file:%s"\n' % (self.folder, self.folder / 'said'))
        mounts = ''.join('mkdir -p %s; mount --bind %s %s; ' % (there, self.folder / name, there) for name, there in FOLDERS.items())
        line = 'set -e; %s exec libvirtd -f %s -p %s' % (mounts, conf, self.folder / 'pid')
        with open(self.folder / 'out', 'wb') as out:
            self.proc = popen(['unshare', '-m', 'sh', '-c', line], stdout=out, stderr=out)
        socket = self.folder / 'libvirt-sock'
        wait_until(lambda: socket.exists() and self.virsh('version', check=None).returncode == 0, 90, 0.3,
                   lambda: 'libvirtd to answer: %s' % (self.folder / 'out').read_text())

    def virsh(self, *args, timeout=120, **kw):
        return run(['virsh', '-q', '-c', 'qemu:///system?socket=%s' % (self.folder / 'libvirt-sock'), *args], timeout=timeout, **kw)

    def xml(self, verb, text, *more, **kw):
        path = self.folder / unique('xml')
        path.write_text(text)
        return self.virsh(verb, *more[:1], path, *more[1:], **kw) if verb.startswith('vol') else self.virsh(verb, path, *more, **kw)

    def end(self):
        end_group(self.proc)
        self.proc.wait(30)


@pytest.fixture(scope='module')
def libvirt(tmp_path_factory):
    if not shutil.which('libvirtd') or not pathlib.Path('/usr/lib/x86_64-linux-gnu/libvirt/storage-backend').exists():
        pytest.skip('needs libvirt-daemon-system and libvirt-daemon-driver-storage-rbd')
    if os.geteuid() != 0:
        pytest.skip('needs root')
    # A socket's path is short.
    folder = pathlib.Path('/tmp', unique('libvirt-%d' % os.getpid()))
    folder.mkdir(mode=0o700)
    daemon = None
    try:
        daemon = Libvirt(folder)
        yield daemon
    finally:
        if daemon:
            daemon.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope='module')
def place(cluster, libvirt):
    """What the XML texts need: a pool, a user who may use that one alone, his key as a secret."""
    pool, user, secret = cluster.make_pool('rbd'), unique('virt'), str(uuid.uuid4())
    caps = ['mon', 'profile rbd', 'osd', 'profile rbd pool=' + pool, 'mgr', 'profile rbd pool=' + pool]
    cluster.ceph('auth', 'get-or-create', 'client.' + user, *caps)
    key = cluster.ceph('auth', 'get-key', 'client.' + user).out.strip()
    usage = "<usage type='ceph'><name>%s</name></usage>" % user
    libvirt.xml('secret-define', "<secret ephemeral='no' private='no'><uuid>%s</uuid>%s</secret>" % (secret, usage))
    libvirt.virsh('secret-set-value', secret, key)
    mon = cluster.ceph_json('mon', 'dump')['mons'][0]
    addrs = mon['public_addrs']['addrvec']
    port = addrs[0]['addr'].rsplit(':', 1)[1]
    yield {'pool': pool, 'user': user, 'secret': secret, 'port': port, 'name': unique('virt')}
    cluster.drop_pool(pool)


def data_of(cluster, spec):
    return cluster.run('rbd', 'export', '--no-progress', spec, '-', timeout=120).out_bytes


def test_pool_and_volumes(cluster, libvirt, place, tmp_path):
    cases = {}
    try:
        volumes(cluster, libvirt, place, tmp_path)
        cases['storage pool rbd'] = Case('passed', '')
    except BaseException as e:
        cases['storage pool rbd'] = Case('failed', str(e))
        raise
    finally:
        write_down('libvirt-storage', libvirt.virsh('--version').out.strip(), cases)


def volumes(cluster, libvirt, place, tmp_path):
    pool, name = place['pool'], place['name']
    virsh, spec = libvirt.virsh, lambda image: '%s/%s' % (pool, image)
    libvirt.xml('pool-define', POOL.format(**place))
    virsh('pool-start', name)
    virsh('pool-autostart', name)
    assert re.search(r'State:\s+running', virsh('pool-info', name).out)
    capacity = int(re.search(r"<capacity unit='bytes'>(\d+)", virsh('pool-dumpxml', name).out).group(1))
    assert capacity > 0
    # Made here, and by others.
    virsh('vol-create-as', name, 'v1', '64M')
    cluster.rbd('create', '--size', '32M', spec('other'))
    virsh('pool-refresh', name)
    assert set(re.findall(r'^\s*(\S+)\s+\S+/', virsh('vol-list', name).out, re.M)) == {'v1', 'other'}
    info = cluster.rbd_json('info', spec('v1'))
    assert info['size'] == 64 * MIB and 'layering' in info['features']
    shown = virsh('vol-dumpxml', 'v1', '--pool', name).out
    assert "<capacity unit='bytes'>%d<" % (64 * MIB) in shown and "<target>\n    <path>%s<" % spec('v1') in shown
    r = virsh('vol-create-as', name, 'v1', '1M', check=None)
    assert r.returncode and 'exist' in r.err, r
    # Copies by clones; the source's data stays theirs. (Upload is not there for pools of this type: data comes by rbd.)
    disk = random.Random(9).randbytes(6 * MIB) + b'\0' * (58 * MIB)
    (tmp_path / 'disk').write_bytes(disk)
    r = virsh('vol-upload', 'v1', tmp_path / 'disk', '--pool', name, check=None)
    assert r.returncode and 'not support' in r.err, r
    cluster.rbd('rm', '--no-progress', spec('v1'))
    cluster.rbd('import', '--no-progress', tmp_path / 'disk', spec('v1'))
    virsh('pool-refresh', name)
    virsh('vol-clone', 'v1', 'v2', '--pool', name)
    assert cluster.rbd_json('info', spec('v2'))['parent']['image'] == 'v1' and data_of(cluster, spec('v2')) == disk
    virsh('vol-resize', 'v2', '96M', '--pool', name)
    assert cluster.rbd_json('info', spec('v2'))['size'] == 96 * MIB
    # libvirt does not shrink volumes of this type.
    for flags in ([], ['--shrink']):
        assert virsh('vol-resize', 'v2', '64M', *flags, '--pool', name, check=None).returncode
    assert cluster.rbd_json('info', spec('v2'))['size'] == 96 * MIB
    virsh('vol-wipe', 'v1', '--pool', name, timeout=300)
    assert not any(data_of(cluster, spec('v1')))
    assert hashlib.sha256(data_of(cluster, spec('v2'))).digest() == hashlib.sha256(disk + b'\0' * (32 * MIB)).digest()
    # One with a clone stays.
    r = virsh('vol-delete', 'v1', '--pool', name, check=None)
    assert r.returncode, r
    virsh('vol-delete', 'v2', '--pool', name)
    virsh('vol-delete', 'v1', '--pool', name, '--delete-snapshots')
    virsh('vol-delete', 'other', '--pool', name)
    assert cluster.rbd_json('ls', pool) == []
    # A user with another key gets in nowhere, and a pool that is not there is said so.
    wrong = str(uuid.uuid4())
    libvirt.xml('secret-define', "<secret><uuid>%s</uuid><usage type='ceph'><name>wrong</name></usage></secret>" % wrong)
    virsh('secret-set-value', wrong, 'AQBSdFhcGI5hCBAA/w2h1l1XkFVgDVHSAbhCSg==')
    for change in ({'secret': wrong}, {'pool': 'not-there'}):
        libvirt.xml('pool-define', POOL.format(**{**place, 'name': 'bad', **change}))
        r = virsh('pool-start', 'bad', check=None)
        assert r.returncode, r
        virsh('pool-undefine', 'bad')
    virsh('pool-destroy', name)
    virsh('pool-undefine', name)


def test_machine(cluster, libvirt, place, tmp_path):
    """A machine's disk: written, grown while it runs, and there after its end."""
    spec = place['pool'] + '/machine'
    cluster.rbd('create', '--size', '64M', spec)
    folder = tmp_path / 'guest'
    folder.mkdir()
    guest, serial = Guest(folder), tmp_path / 'serial'
    xml = DOMAIN.format(**place, image='machine', kernel=guest.kernel, initrd=guest.initrd, serial=serial)
    case = Case('failed', 'the guest did not get so far')
    try:
        libvirt.xml('define', xml)
        libvirt.virsh('start', 'guest', timeout=180)
        wrote = lambda: int((re.findall(r'wrote (\d+)\s', serial.read_text(errors='replace')) or [-1])[-1]) if serial.exists() else -1
        wait_until(lambda: wrote() >= 20, BOOTS_S, 0.3, lambda: 'the guest to write: %s' % (
            serial.read_text(errors='replace')[-500:] if serial.exists() else libvirt.virsh('list', '--all').out))
        assert re.search(r'Capacity:\s+%d' % (64 * MIB), libvirt.virsh('domblkinfo', 'guest', 'vda').out)
        libvirt.virsh('blockresize', 'guest', 'vda', '128M')
        assert cluster.rbd_json('info', spec)['size'] == 128 * MIB
        libvirt.virsh('suspend', 'guest')
        libvirt.virsh('resume', 'guest')
        before = wrote()
        wait_until(lambda: wrote() >= before + 20, 60, 0.3, 'the guest to go on')
        durable = wrote()
        libvirt.virsh('destroy', 'guest')
        data = data_of(cluster, spec)
        for n in range(durable):
            assert data[n * 4096:n * 4096 + 10] == b'%010d' % n, n
        case = Case('passed', '')
    finally:
        libvirt.virsh('destroy', 'guest', check=None)
        libvirt.virsh('undefine', 'guest', check=None)
        write_down('libvirt-machine', libvirt.virsh('--version').out.strip(), {'a machine with a disk of rbd': case})
