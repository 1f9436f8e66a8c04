"""The Debian package in a fresh Debian 12 whose systemd runs (systemd-nspawn): installed, started, killed, upgraded, removed."""
import os
import shutil

import pytest

from skeptest.cluster import Cluster
from skeptest.debian import Machine, Root
from skeptest.run import run, wait_until
from skeptest.skep import find_binary, free_port

PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'adduser', 'man-db']


def test_what_is_in_the_package(package, tmp_path):
    deb, tarball = package
    run(['dpkg-deb', '-x', deb, tmp_path / 'deb'])
    inside = {str(p.relative_to(tmp_path / 'deb')) for p in (tmp_path / 'deb').rglob('*') if p.is_file()}
    assert {'usr/bin/skep', 'lib/systemd/system/skep.service', 'etc/skep/skep.toml', 'usr/share/man/man1/skep-up.1.gz',
            'usr/share/bash-completion/completions/skep', 'usr/share/doc/skep/copyright',
            'usr/share/skep/monitoring/skep.rules.yml'} <= inside
    fields = run(['dpkg-deb', '-f', deb, 'Depends', 'Version']).out
    assert 'libc6' in fields and run([find_binary(), '--version']).out.split()[1] in fields
    run(['tar', '-C', tmp_path, '-xf', tarball])
    assert {str(p.relative_to(tmp_path / 'skep')) for p in (tmp_path / 'skep').rglob('*') if p.is_file()} == inside
    # Each option of the example is one, with a value that it takes.
    example = (tmp_path / 'deb/etc/skep/skep.toml').read_text()
    options = [line[1:] for line in example.splitlines() if line.startswith('#') and ' = ' in line and not line.startswith('# ')]
    assert len(options) > 5
    known = run([find_binary(), 'up', '--help']).out.split()
    for option in options:
        assert '--' + option.split(' = ')[0] in known, option
    if shutil.which('systemd-analyze'):
        unit = tmp_path / 'deb/lib/systemd/system/skep.service'
        unit.write_text(unit.read_text().replace('/usr/bin/skep', str(tmp_path / 'deb/usr/bin/skep')))
        said = run(['systemd-analyze', 'verify', '--man=no', unit], check=None)
        ours = [line for line in (said.out + said.err).splitlines() if 'skep' in line]
        assert not ours, ours


@pytest.fixture
def machine(workdir):
    if not shutil.which('systemd-nspawn'):
        pytest.skip('needs systemd-nspawn')
    machine = Machine(Root('bookworm', PACKAGES), workdir / 'machine')
    machine.boot()
    yield machine
    machine.end()
    shutil.rmtree(machine.root, ignore_errors=True)


@pytest.mark.long
def test_a_package_is_installed_serves_and_is_removed(machine, package):
    deb, _ = package
    shutil.copy(deb, machine.root / 'skep.deb')
    said = machine.run('dpkg', '-i', '/skep.deb').out
    assert 'systemctl enable --now skep' in said, said
    # Nothing serves that nobody asked for.
    assert machine.systemctl('is-active', 'skep', check=3).out.strip() == 'inactive'
    assert not list((machine.root / 'var/lib/skep').iterdir())
    machine.run('man', '-l', '/usr/share/man/man1/skep-up.1.gz')

    port = free_port()
    config = machine.root / 'etc/skep/skep.toml'
    config.write_text('osds = 3\nmon-port = %d\nmsgr1-port = %d\nmetrics-port = 0\nosd-size = "1G"\n' % (port, free_port()))
    started = machine.systemctl('enable', '--now', 'skep', timeout=180, check=None)
    assert started.returncode == 0, machine.run('journalctl', '-n', '40', '--no-pager', '-u', 'skep').out
    assert machine.shown('ActiveState') == 'active' and machine.shown('StatusText') == 'serving /var/lib/skep'
    pid = int(machine.shown('MainPID'))
    who = machine.run('stat', '-c', '%U', '/proc/%d' % pid).out.strip()
    assert who == 'skep'
    score = machine.run('systemd-analyze', 'security', '--no-pager', 'skep', check=None).out.splitlines()[-1]
    assert float(score.split(':')[1].split()[0]) < 2.5, score

    # Clients of the host, by the conf and the key that it wrote.
    conf = (machine.root / 'var/lib/skep/ceph.conf').read_text()
    ours = machine.root.with_name('machine.conf')
    ours.write_text(conf.replace('/var/lib/skep', str(machine.root / 'var/lib/skep')))
    cluster = Cluster(ours)
    wait_until(lambda: len(cluster.ceph_json('osd', 'tree')['nodes']) > 3, 60, 0.5, 'the OSDs')
    cluster.ceph('osd', 'pool', 'create', 'p', '8')
    data = os.urandom(3 << 20)
    source = machine.root.with_name('object')
    source.write_bytes(data)
    cluster.rados('p', 'put', 'kept', source)

    # Killed: it is started again by systemd, and serves what it had.
    machine.systemctl('kill', '-s', 'KILL', '--kill-who=main', 'skep')
    again = lambda: machine.shown('MainPID') not in ('0', str(pid)) and machine.shown('ActiveState') == 'active'
    wait_until(again, 120, 0.5, 'the service to be started again')
    cluster.rados('p', 'get', 'kept', source)
    assert source.read_bytes() == data

    # A later version: what serves goes on until somebody restarts it.
    pid = machine.shown('MainPID')
    said = machine.run('dpkg', '-i', '/skep.deb').out
    assert 'systemctl restart skep' in said and machine.shown('MainPID') == pid
    machine.systemctl('restart', 'skep', timeout=180)
    assert 'osds = 3' in config.read_text()
    cluster.rados('p', 'get', 'kept', source)
    assert source.read_bytes() == data

    # Removed, and purged: the data stay.
    machine.run('dpkg', '-r', 'skep', timeout=180)
    assert not (machine.root / 'usr/bin/skep').exists() and config.exists()
    machine.run('sh', '-c', '! grep -qsx skep /proc/[0-9]*/comm')
    said = machine.run('dpkg', '-P', 'skep').out
    assert 'stay' in said and not config.exists()
    assert (machine.root / 'var/lib/skep/ceph.conf').exists()
