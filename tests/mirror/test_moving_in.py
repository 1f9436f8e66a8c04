"""Every command of docs/operating/moving-in.md, as it stands there: in one shell whose /etc/ceph is a real Ceph's, and one whose /etc/ceph is
Skep's (mount namespaces)."""
import os
import pathlib
import re
import signal

import pytest

from skeptest import peer
from skeptest.cluster import unique
from skeptest.run import run

pytestmark = [pytest.mark.own, pytest.mark.long]
DOC = pathlib.Path(__file__).parents[2] / 'docs' / 'operating' / 'moving-in.md'


class Shell:
    """A host's: /etc/ceph is a folder of its own."""

    def __init__(self, cluster, folder):
        self.cluster, self.etc = cluster, folder
        self.etc.mkdir()
        rows = {name: cluster.option(name) for name in ('fsid', 'mon_host')}
        rows['keyring'] = '/etc/ceph/$cluster.$name.keyring'
        rows['log_file'], rows['admin_socket'], rows['pid_file'] = '/etc/ceph/$name.log', '', '/etc/ceph/$name.pid'
        (self.etc / 'ceph.conf').write_text('[global]\n' + ''.join('%s = %s\n' % row for row in rows.items()))
        (self.etc / 'ceph.client.admin.keyring').write_text(cluster.ceph('auth', 'get', 'client.admin').out)

    def run(self, line):
        inside = 'mount --bind %s /etc/ceph && exec bash -c "$1"' % self.etc
        r = run(['unshare', '-m', 'bash', '-c', inside, 'bash', line], timeout=200, check=None)
        assert r.returncode == 0, '%s\n%r' % (line, r)
        return r.out

    def end(self):
        for path in self.etc.glob('*rbd-mirror*.pid'):
            try:
                os.kill(int(path.read_text()), signal.SIGKILL)
            except (ProcessLookupError, ValueError):
                pass


def test_as_written(own, workdir):
    peer.needed()
    if os.geteuid() != 0:
        pytest.skip('mount namespaces need root')
    os.makedirs('/etc/ceph', exist_ok=True)
    old, new = peer.RealCeph(workdir / unique('ceph')), own(osds=3)
    shells = {}
    try:
        old.start()
        new.start()
        shells = {'ceph': Shell(old, workdir / unique('etc')), 'skep': Shell(new, workdir / unique('etc'))}
        old.make_pool('rbd', name='vms')
        old.rbd('create', '--size', '64M', 'vms/vm1')
        write = ['bench', '--io-type', 'write', '--io-size', '16K', '--io-total', '4M', '--io-pattern', 'rand', 'vms/vm1']
        old.rbd(*write)
        lines = re.findall(r'^    (ceph|skep)# (.*)$', DOC.read_text(), re.M)
        assert len(lines) > 30
        for host, line in lines:
            said = shells[host].run(line)
            # What the text says of the moment.
            if line.startswith('rbd mirror image snapshot'):
                old.rbd(*write)
            elif line.startswith('rbd export'):
                assert re.match(r'[0-9a-f]{64} ', said)
            elif line.startswith('rbd mirror image promote'):
                there = new if host == 'skep' else old
                assert there.rbd_json('info', 'vms/vm1')['mirroring']['primary']
                if '--force' not in line:
                    export = 'rbd export --no-progress vms/vm1 - | sha256sum'
                    sums = [c.run('sh', '-c', export).out for c in (old, new)]
                    assert sums[0] == sums[1]
                    there.rbd(*write)
        assert 'vm1' in new.rbd_json('ls', 'vms') and 'vm1' not in old.rbd_json('ls', 'vms')
    finally:
        for shell in shells.values():
            shell.end()
        old.kill()
        new.kill()
