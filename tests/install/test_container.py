"""The OCI image that `dev/container` makes: what is in it, and that it runs as a runtime of containers runs it: in a root of its own, under its
own user, as the first process of its namespace."""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import tarfile
import zlib

import pytest

from skeptest.cluster import Cluster
from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import find_binary, free_port

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Mounts of its own, and nothing of our environment.
ENTER = '''set -e
root=$1; shift
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
exec env -i "$@"'''


class Image:
    """An image's archive, unpacked; every blob is what its digest says."""

    def __init__(self, archive, folder):
        self.folder = folder
        folder.mkdir()
        run(['tar', '-C', folder, '-xf', archive], timeout=120)
        self.seen = set()
        assert json.loads((folder / 'oci-layout').read_bytes()) == {'imageLayoutVersion': '1.0.0'}
        self.index = json.loads((folder / 'index.json').read_bytes())
        [self.entry] = self.index['manifests']
        self.manifest = self.json(self.entry)
        self.config = self.json(self.manifest['config'])
        [self.layer] = self.manifest['layers']

    def blob(self, told):
        kind, name = told['digest'].split(':')
        path = self.folder / 'blobs' / kind / name
        with open(path, 'rb') as f:
            assert kind == 'sha256' and hashlib.file_digest(f, kind).hexdigest() == name, told
        assert path.stat().st_size == told['size'], told
        self.seen.add(path)
        return path

    def json(self, told):
        return json.loads(self.blob(told).read_bytes())


@pytest.fixture(scope='module')
def archive(package, workdir):
    out = workdir / 'container'
    run([REPOSITORY / 'dev/container', out, package[1]], timeout=300, env={'SKEP_SOURCE_URL': 'https://git.example/skep'})
    [archive] = out.iterdir()
    return archive


@pytest.fixture(scope='module')
def image(archive, workdir):
    return Image(archive, workdir / 'image')


@pytest.mark.long
def test_the_image_is_one(image, archive):
    version = run([find_binary(), '--version']).out.split()[1]
    arch = run(['dpkg', '--print-architecture']).out.strip()
    assert archive.name == 'skep-%s-%s.oci.tar' % (version, arch)
    assert image.entry['mediaType'] == image.manifest['mediaType'] == 'application/vnd.oci.image.manifest.v1+json'
    assert image.entry['annotations']['org.opencontainers.image.ref.name'] == 'skep:' + version
    assert (image.config['os'], image.config['architecture']) == ('linux', arch)
    told = image.config['config']
    assert told['Entrypoint'] == ['/usr/bin/skep'] and told['Cmd'] == ['up'] and told['StopSignal'] == 'SIGTERM'
    assert told['User'] == '10001:10001' and told['Volumes'] == {'/var/lib/skep': {}} and '3300/tcp' in told['ExposedPorts']
    labels = {k.removeprefix('org.opencontainers.image.'): v for k, v in told['Labels'].items()}
    assert labels['version'] == version and labels['licenses'] == 'Apache-2.0' and labels['source'] == 'https://git.example/skep'

    plain, squeezed = hashlib.sha256(), zlib.decompressobj(wbits=31)
    with open(image.blob(image.layer), 'rb') as f:
        while part := f.read(1 << 20):
            plain.update(squeezed.decompress(part))
    plain.update(squeezed.flush())
    assert squeezed.eof and image.config['rootfs']['diff_ids'] == ['sha256:' + plain.hexdigest()]
    # Nothing lies beside what is named; and what `docker load` of before reads names the same.
    assert image.seen == set((image.folder / 'blobs/sha256').iterdir())
    [old] = json.loads((image.folder / 'manifest.json').read_bytes())
    assert old['RepoTags'] == ['skep:' + version]
    assert [old['Config'], *old['Layers']] == ['blobs/' + t['digest'].replace(':', '/') for t in (image.manifest['config'], image.layer)]


@pytest.mark.long
def test_there_is_nothing_in_it_that_is_not_needed(image):
    with tarfile.open(image.blob(image.layer)) as tar:
        found = {m.name: m for m in tar.getmembers()}
    names = list(found)
    assert names == sorted(names, key=lambda n: n.split('/')) and not any(n.startswith(('/', '.')) or '..' in n.split('/') for n in names)
    assert {'usr/bin/skep', 'etc/ssl/certs/ca-certificates.crt', 'etc/passwd', 'usr/share/doc/skep/copyright', 'usr/share/doc/libc6/copyright',
            'var/lib/dpkg/status.d/libc6'} <= set(names)
    programs = [n for n in names if n.startswith('usr/bin/') or n.startswith('usr/sbin/')]
    assert programs == ['usr/bin/skep']
    for name, member in found.items():
        data = name == 'var/lib/skep'
        assert (member.uid, member.gid) == ((10001, 10001) if data else (0, 0)), name
        assert member.mode & 0o6000 == 0 and (name == 'tmp' or member.issym() or member.mode & 0o022 == 0), name
    # Authorities are Debian's, not those that this machine trusts besides.
    given = b''.join(p.read_bytes() for p in sorted(pathlib.Path('/usr/share/ca-certificates/mozilla').glob('*.crt')))
    with tarfile.open(image.blob(image.layer)) as tar:
        kept = tar.extractfile('etc/ssl/certs/ca-certificates.crt').read()
    assert sorted(kept.splitlines()) == sorted(given.splitlines()) and kept.count(b'BEGIN CERTIFICATE') > 50


def test_the_same_folder_gives_the_same_image(tmp_path):
    root = tmp_path / 'root'
    (root / 'var/lib/skep').mkdir(parents=True)
    (root / 'usr/bin').mkdir(parents=True)
    (root / 'usr/bin/skep').write_bytes(os.urandom(100_000))
    (root / 'bin').symlink_to('usr/bin')

    def make(name, epoch):
        run([REPOSITORY / 'packaging/container/image.py', root, tmp_path / name, '--version', '1', '--arch', 'amd64'],
            env={'SOURCE_DATE_EPOCH': epoch})
        return (tmp_path / name).read_bytes()
    first = make('a.tar', '1700000000')
    os.utime(root / 'usr/bin/skep', (1, 1))
    assert make('b.tar', '1700000000') == first
    assert make('c.tar', '1700000001') != first
    image = Image(tmp_path / 'a.tar', tmp_path / 'image')
    assert image.config['created'] == '2023-11-14T22:13:20Z'
    with tarfile.open(image.blob(image.layer)) as tar:
        got = {m.name: (m.uid, m.linkname, m.mtime) for m in tar.getmembers()}
    assert got['var/lib/skep'][0] == 10001 and got['var/lib'][0] == 0 and got['bin'][1] == 'usr/bin'
    assert {m[2] for m in got.values()} == {1700000000}


class Container:
    """The image's command in its root. Its network is the host's, as docs/operating/install.md has it."""

    def __init__(self, image, root, options):
        told = image.config['config']
        self.log = root.with_name('%s-%d.log' % (root.name, free_port()))
        user = ['/usr/sbin/chroot', '--userspec=' + told['User'], '--groups=', root]
        argv = [*told['Env'], *user, *told['Entrypoint'], *told['Cmd'], *options]
        enter = ['unshare', '--pid', '--fork', '--kill-child', '--mount', '--propagation', 'private', 'sh', '-c', ENTER, 'sh', root]
        with open(self.log, 'ab') as log:
            self.proc = popen([*enter, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def said(self):
        return self.log.read_text(errors='replace')

    def until(self, said):
        def there():
            assert self.proc.poll() is None, 'it ended with %s:\n%s' % (self.proc.returncode, self.said()[-3000:])
            return said in self.said()
        wait_until(there, 90, 0.05, lambda: '%r in:\n%s' % (said, self.said()[-3000:]))

    def first(self):
        """The first process, as we see it."""
        [pid] = children(self.proc.pid)
        return pid

    def exec(self, *argv, **kw):
        """As `podman exec` does it."""
        return run(['nsenter', '-t', str(self.first()), '-p', '-m', '-r', '-w', '-S', '10001', '-G', '10001', *argv],
                   env={'SKEP_DATA': '/var/lib/skep'}, **kw)

    def end(self):
        """SIGTERM; the status that the runtime sees."""
        os.kill(self.first(), signal.SIGTERM)
        return self.proc.wait(60)

    def kill(self):
        end_group(self.proc)
        self.proc.wait(60)


def children(pid):
    return [int(c) for t in pathlib.Path('/proc/%d/task' % pid).iterdir() for c in (t / 'children').read_text().split()]


@pytest.fixture(scope='module')
def root(image, workdir):
    if os.geteuid() != 0:
        pytest.skip('needs root to enter another root')
    root = workdir / 'root'
    root.mkdir()
    run(['tar', '-C', root, '--numeric-owner', '-xpf', image.blob(image.layer)], timeout=120)
    return root


@pytest.mark.own
@pytest.mark.long
def test_it_serves_as_the_first_process_and_ends_when_told(image, root):
    options = ['--osds', '3', '--osd-size', '1G', '--mon-port', free_port(), '--msgr1-port', free_port(), '--metrics-port', '0']
    container = Container(image, root, options)
    try:
        container.until('\nready after')
        pid = container.first()
        assert pathlib.Path('/proc/%d/status' % pid).read_text().split('\nUid:\t')[1].split()[0] == '10001'
        status = json.loads(container.exec('/usr/bin/skep', 'status', '-f', 'json').out)
        assert status['pid'] == 1 and status['data'] == '/var/lib/skep'
        # As probes ask.
        assert container.exec('/usr/bin/skep', 'status', '--alive').out == 'alive\n'
        wait_until(lambda: container.exec('/usr/bin/skep', 'status', '--whole', check=None).out == 'whole\n', 60, 0.2, 'the cluster to be whole')

        # Clients outside of it.
        conf = (root / 'var/lib/skep/ceph.conf').read_text()
        ours = root.with_name('container.conf')
        ours.write_text(conf.replace('/var/lib/skep', str(root / 'var/lib/skep')))
        cluster = Cluster(ours)
        assert cluster.ceph_json('-s')['osdmap']['num_osds'] == 3
        cluster.make_pool('rbd', name='p')
        cluster.rbd('create', 'p/i', '--size', '1G')
        assert cluster.rbd('ls', 'p').out.split() == ['i']

        assert children(pid) == [], 'nobody waits for them'
        assert container.end() == 0, container.said()[-3000:]
        assert 'SIGTERM: stopping' in container.said()

        # The next container of the same volume has what was there.
        container = Container(image, root, options)
        container.until('\nready after')
        assert cluster.rbd('ls', 'p').out.split() == ['i']
        assert container.end() == 0
    finally:
        container.kill()


@pytest.mark.own
@pytest.mark.long
def test_a_start_that_waits_ends_when_told(image, root):
    """The kernel ends no first process by a signal that it has no handler for: such a container ran until it was killed."""
    etcd = 'http://127.0.0.1:%d' % free_port()
    container = Container(image, root, ['--data', '/tmp/other', '--etcd', etcd, '--create', '--bind', '127.0.0.1', '--metrics-port', '0'])
    try:
        container.until('etcd')
        assert container.end() == 128 + signal.SIGTERM
    finally:
        container.kill()
