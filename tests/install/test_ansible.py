"""The Ansible role in a Debian whose systemd runs: installed, again without a change, with other settings, upgraded, removed."""
import json
import pathlib
import re
import shutil

import pytest
import yaml

from skeptest.debian import Machine, Root
from skeptest.run import run
from skeptest.skep import find_binary, free_port

ROLE = pathlib.Path(__file__).resolve().parents[2] / 'packaging/ansible'
PACKAGES = ['systemd', 'systemd-sysv', 'dbus', 'adduser', 'xz-utils', 'iproute2']
LATER = ['ansible-core', 'python3-apt']
PLAY_S = 400


@pytest.fixture(scope='module')
def machine(workdir):
    if not shutil.which('systemd-nspawn'):
        pytest.skip('needs systemd-nspawn')
    machine = Machine(Root('bookworm', PACKAGES, LATER), workdir / 'ansible')
    shutil.copytree(ROLE, machine.root / 'ansible')
    machine.boot()
    yield machine
    machine.end()
    shutil.rmtree(machine.root, ignore_errors=True)


@pytest.fixture(scope='module')
def play(machine):
    options = {'osds': 3, 'osd-size': '1G', 'mon-port': free_port(), 'msgr1-port': free_port(), 'metrics-port': 0}

    def play(book, more=None, check=0, **variables):
        """Plays it on the machine itself; how many tasks changed something."""
        host = {'ansible_connection': 'local', 'ansible_become': False, 'skep_bind': '127.0.0.1', 'skep_options': {**options, **(more or {})}, **variables}
        (machine.root / 'inventory.json').write_text(json.dumps({'skep': {'hosts': {'here': host}}}))
        r = machine.run('ansible-playbook', '-i', '/inventory.json', '/ansible/' + book, '-e', 'skep_hosts=skep', timeout=PLAY_S, check=check)
        return int(re.search(r'^here .*changed=(\d+)', r.out, re.M)[1]) if check == 0 else r
    return play


@pytest.mark.long
def test_the_role_installs_changes_upgrades_and_removes(machine, play, package):
    deb, tarball = package
    shutil.copy(deb, machine.root / 'skep.deb')
    shutil.copy(tarball, machine.root / 'skep.tar.xz')
    for book in ('site.yml', 'remove.yml'):
        machine.run('ansible-playbook', '--syntax-check', '-e', 'skep_hosts=skep', '/ansible/' + book)
    # What cannot be is refused before anything is touched.
    r = play('site.yml', check='fails')
    assert 'One of skep_package and skep_tarball' in r.out and not (machine.root / 'usr/bin/skep').exists(), r
    r = play('site.yml', {'sods': 3}, skep_package='/skep.deb', check='fails')
    assert 'no option of `skep up`' in r.out + r.err and machine.shown('ActiveState') == 'inactive', r

    assert play('site.yml', skep_package='/skep.deb') > 0
    assert machine.shown('ActiveState') == 'active'
    pid = machine.shown('MainPID')
    assert play('site.yml', skep_package='/skep.deb') == 0 and machine.shown('MainPID') == pid

    # Other settings: a restart, and the cluster is whole behind it.
    assert play('site.yml', {'osd-memory': '320M'}, skep_package='/skep.deb') > 0
    again = machine.shown('MainPID')
    assert again not in ('0', pid)
    assert machine.run('skep', 'status', '--whole', '--data', '/var/lib/skep').out == 'whole\n'

    # Settings that were written, and not put into force: an earlier run was cut off.
    machine.run('sh', '-c', 'sleep 1.1; touch /etc/skep/skep.toml')
    assert play('site.yml', {'osd-memory': '320M'}, skep_package='/skep.deb') == 1
    assert machine.shown('MainPID') != again
    again = machine.shown('MainPID')

    # A program that was replaced by hand, or by a run that was cut off: what runs is from before.
    machine.run('sh', '-c', 'cp /usr/bin/skep /usr/bin/skep.new && mv /usr/bin/skep.new /usr/bin/skep')
    assert play('site.yml', {'osd-memory': '320M'}, skep_package='/skep.deb') == 1
    assert machine.shown('MainPID') != again

    # Removed: what is stored stays, and is served again by what a tarball brings.
    fsid = json.loads(machine.run('skep', 'status', '-f', 'json', '--data', '/var/lib/skep').out)['fsid']
    play('remove.yml')
    assert not (machine.root / 'usr/bin/skep').exists() and (machine.root / 'var/lib/skep/ceph.conf').exists()
    assert play('remove.yml') == 0
    assert play('site.yml', skep_tarball='/skep.tar.xz') > 0
    assert play('site.yml', skep_tarball='/skep.tar.xz') == 0
    assert json.loads(machine.run('skep', 'status', '-f', 'json', '--data', '/var/lib/skep').out)['fsid'] == fsid
    # A host's copies are deleted only where somebody says what becomes of the cluster.
    r = play('remove.yml', skep_remove_data=True, check='fails')
    assert 'skep_destroy_cluster' in r.out and machine.shown('ActiveState') == 'active', r
    play('remove.yml', skep_remove_data=True, skep_destroy_cluster=True)
    assert not (machine.root / 'var/lib/skep').exists() and not (machine.root / 'usr/bin/skep').exists()
    machine.run('sh', '-c', '! grep -qsx skep /proc/[0-9]*/comm')


def test_each_name_of_the_example_is_one():
    """The inventory's variables are the role's, and its options are the program's."""
    defaults = yaml.safe_load((ROLE / 'roles/skep/defaults/main.yml').read_text())
    example = yaml.safe_load((ROLE / 'inventory.example.yml').read_text())['skep']
    named = set(example['vars']) | {name for host in example['hosts'].values() for name in host}
    assert named <= set(defaults), named - set(defaults)
    known = run([find_binary(), 'up', '--help']).out.split()
    for option in example['vars']['skep_options']:
        assert '--' + option in known, option
