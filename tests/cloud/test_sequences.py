"""The command lines of Proxmox VE and OpenNebula, replayed: sequences/*.txt.

Lines of such a file: `== NAME` begins a part; `$ LINE` is run by bash and must go well (with pipefail), `! STATUS LINE` must end with that
status; `= JQ` has to be true of what the last line printed, `~ REGEX` to be found in it. Names in braces are filled in.
"""
import os
import pathlib
import random
import re

import pytest

from skeptest.cluster import unique
from skeptest.gtest import Case
from skeptest.run import run
from skeptest.suites import write_down

FOLDER = pathlib.Path(__file__).parent / 'sequences'
LIMIT_S = 120
MIB = 1 << 20


def parts(name):
    """Each with its lines."""
    out = {}
    for line in (FOLDER / (name + '.txt')).read_text().splitlines():
        if line.startswith('== '):
            out[line[3:]] = now = []
        elif line and not line.startswith('#'):
            now.append(line)
    assert len(out) > 5
    return out


def replay(lines, words, env):
    said = ''
    for line in lines:
        mark, rest = line.split(' ', 1)
        if mark in '$!':
            status, rest = (0, rest) if mark == '$' else rest.split(' ', 1)
            text = rest.format(**words)
            r = run(['bash', '-c', 'set -o pipefail; ' + text], env=env, timeout=LIMIT_S, check=None)
            assert r.returncode == int(status), '%s\n%r' % (text, r)
            said = r.out
        elif mark == '=':
            want = re.sub(r'\{pool\}', words['pool'], rest)
            r = run(['jq', '-e', want], stdin=said, check=None)
            assert r.returncode == 0, '%s is not true of what "%s" said:\n%s' % (want, text, said)
        else:
            assert mark == '~', line
            want = re.sub(r'\{pool\}', re.escape(words['pool']), rest)
            assert re.search(want, said, re.M), '%s is not in what "%s" said:\n%s' % (want, text, said)


@pytest.fixture
def words(cluster, tmp_path):
    """A pool, a user who may use that one alone, disks to write."""
    pool, user = cluster.make_pool('rbd'), unique('cloud')
    caps = ['mon', 'profile rbd', 'osd', 'profile rbd pool=' + pool, 'mgr', 'profile rbd pool=' + pool]
    keyring, keyfile = tmp_path / 'keyring', tmp_path / 'key'
    keyring.write_text(cluster.ceph('auth', 'get-or-create', 'client.' + user, *caps).out)
    keyfile.write_text(cluster.ceph('auth', 'get-key', 'client.' + user).out.strip())
    for name, seed in (('disk', 5), ('other', 6)):
        (tmp_path / name).write_bytes(random.Random(seed).randbytes(8 * MIB) + b'\0' * (56 * MIB))
    yield {'pool': pool, 'user': user, 'keyring': keyring, 'keyfile': keyfile, 'conf': cluster.conf, 'tmp': tmp_path,
           'disk': tmp_path / 'disk', 'other': tmp_path / 'other'}
    cluster.drop_pool(pool)


def play(cluster, name, version, words):
    """All parts, one after the other: each stands on what those before it left."""
    env = {**os.environ, **cluster.env(), 'PATH': os.environ['PATH'] + ':/sbin:/usr/sbin'}
    cases = {part: Case('failed', 'the one before it failed') for part in parts(name)}
    try:
        for part, lines in parts(name).items():
            try:
                replay(lines, words, env)
            except AssertionError as e:
                cases[part] = Case('failed', str(e))
                raise
            cases[part] = Case('passed', '')
    finally:
        write_down(name, version, cases)


def proxmox(words, namespace):
    who = '-c %(conf)s --auth_supported cephx -n client.%(user)s --keyring %(keyring)s' % words
    inside = '--namespace %s ' % namespace if namespace else ''
    path = '/'.join(p for p in (words['pool'], namespace) if p)
    opts = ':conf=%(conf)s:auth_supported=cephx:id=%(user)s:keyring=%(keyring)s' % words
    return {**words, 'who': who, 'path': path, 'opts': opts, 'qemu': 'rbd:' + path,
            'RBD': '/usr/bin/rbd -p %s %s%s' % (words['pool'], inside, who),
            'DEST': '/usr/bin/rbd --dest-pool %s %s%s' % (words['pool'], inside, who)}


def test_proxmox(cluster, words):
    play(cluster, 'proxmox', 'pve-storage 24367c07', proxmox(words, ''))


@pytest.mark.long
def test_proxmox_in_a_namespace(cluster, words):
    cluster.rbd('namespace', 'create', '%s/pve' % words['pool'])
    words = proxmox(words, 'pve')
    # `import` takes the namespace of the target.
    words['DEST'] = words['DEST'].replace('--namespace', '--dest-namespace')
    play(cluster, 'proxmox', 'pve-storage 24367c07', words)


@pytest.mark.long
def test_opennebula(cluster, words):
    words['RBD'] = 'rbd --id %(user)s --keyfile %(keyfile)s --conf %(conf)s' % words
    play(cluster, 'opennebula', 'one 05d147c5', words)
