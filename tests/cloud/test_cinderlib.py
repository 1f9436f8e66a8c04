"""cinderlib's functional tests, unmodified: Cinder's RBD driver and os-brick (Debian's, release Zed) driven without Cinder's services.

cinderlib is of PyPI, the version that belongs to that release, in an environment kept under SKEP_CACHE that sees Debian's packages.
The kernel's rbd module is not needed: where os-brick maps an image, no-kernel-rbd/rbd puts a loop device over stock rbd-fuse in its place.
"""
import json
import os
import pathlib
import re
import shutil

import pytest

from skeptest.debian import cache
from skeptest.gtest import Case
from skeptest.run import run
from skeptest.suites import judge, write_down

VERSION = '5.0.0'
HERE = os.path.dirname(__file__)
RUN_S = 900
CASE = re.compile(r'^(test_\w+) \([\w.]+\) \.\.\. ', re.M)
FAILS = (
    ('cinderlib', 'test_extend_attached_on_ceph', "os-brick reads the size in /sys/devices/rbd, which the kernel's module alone makes"),
)
BRICK = '''
import sys
from os_brick.initiator import connector
name, host, port, key = sys.argv[1:]
there = {'name': name, 'hosts': [host], 'ports': [port], 'cluster_name': 'ceph', 'auth_enabled': True, 'auth_username': 'admin',
         'secret_type': 'ceph', 'secret_uuid': None, 'volume_id': '1', 'keyring': '[client.admin]\\n\\tkey = ' + key}
brick = connector.InitiatorConnector.factory('RBD', 'env', do_local_attach=False)
got = brick.connect_volume(there)
disk = got['path']
assert brick.check_valid_device(disk, run_as_root=False)
disk.write(b'skep' * 2048)
disk.flush()
disk.seek(4096)
assert disk.read(4) == b'skep'
assert brick.extend_volume(there) == 16 << 20
brick.disconnect_volume(there, got)
print('done')
'''


def python():
    """Of the environment, made where there is none."""
    for package in ('python3-cinder', 'python3-ddt'):
        if run(['dpkg-query', '-W', package], check=None).returncode:
            pytest.skip('needs the package ' + package)
    folder = cache() / ('cinderlib-' + VERSION)
    if not (folder / 'complete').exists():
        shutil.rmtree(folder, ignore_errors=True)
        run(['/usr/bin/python3', '-m', 'venv', '--system-site-packages', folder], timeout=120)
        run([folder / 'bin/pip', 'install', '-q', '--no-deps', '--disable-pip-version-check', 'cinderlib==' + VERSION], timeout=300)
        (folder / 'complete').touch()
    return folder / 'bin/python'


def cases_of(text):
    """What came of each test: drivers print between its name and the word that ends it."""
    head, _, tail = text.partition('\n======')
    starts = list(CASE.finditer(head))
    cases = {}
    for start, end in zip(starts, [m.start() for m in starts[1:]] + [len(head)]):
        said = re.search(r'(ok|FAIL|ERROR|skipped .*)\s*$', head[start.end():end].split('\n--------')[0], re.M)
        outcome = {'ok': 'passed', 's': 'skipped'}.get(said.group(1) if said and said.group(1) == 'ok' else said.group(1)[0] if said else '')
        at = tail.find(start.group(1))
        cases[start.group(1)] = Case(outcome or 'failed', '' if outcome else tail[at:at + 3000])
    return cases


@pytest.mark.long
def test_cinderlib(cluster, tmp_path):
    if os.geteuid() != 0 or not os.path.exists('/dev/fuse') or not os.path.exists('/dev/loop-control'):
        pytest.skip('needs root, FUSE and loop devices')
    program, pool = python(), cluster.make_pool('rbd')
    state = tmp_path / 'mapped'
    state.mkdir()
    keyring = tmp_path / 'keyring'
    keyring.write_text(cluster.ceph('auth', 'get', 'client.admin').out)
    backend = {'volume_backend_name': 'ceph', 'volume_driver': 'cinder.volume.drivers.rbd.RBDDriver', 'rbd_user': 'admin',
               'rbd_pool': pool, 'rbd_ceph_conf': str(cluster.conf), 'rbd_keyring_conf': str(keyring)}
    (tmp_path / 'backends.yaml').write_text(json.dumps({'backends': [backend]}))
    own = pathlib.Path(HERE, 'no-kernel-rbd')
    env = {**cluster.env(), 'PATH': '%s:%s' % (own, os.environ['PATH']), 'MAPPING_STATE': str(state), 'CEPH_CONF': str(cluster.conf),
           'CL_FTEST_CFG': str(tmp_path / 'backends.yaml'), 'CL_FTEST_ROOT_HELPER': 'env'}
    try:
        r = run([program, '-m', 'unittest', '-v', 'cinderlib.tests.functional.test_basic'], env=env, cwd=tmp_path, timeout=RUN_S,
                check=None)
    finally:
        run([own / 'rbd', 'unmap-all'], env=env, check=None)
    cases = cases_of(r.err)
    write_down('cinderlib', VERSION, cases, FAILS)
    assert re.search(r'^Ran 17 tests', r.err, re.M) and len(cases) == 17, r
    judge('cinderlib', cases, FAILS)
    assert cluster.rbd_json('ls', pool) == [] and cluster.rbd_json('trash', 'ls', pool) == []
    cluster.drop_pool(pool)


@pytest.mark.long
def test_os_brick_handle(cluster, rbd_pool, tmp_path):
    """os-brick's connector as Cinder's volume copies use it: an open image in place of a device, without the kernel."""
    python()
    keyring = cluster.ceph('auth', 'get-key', 'client.admin').out.strip()
    cluster.rbd('create', '--size', '16M', '%s/brick' % rbd_pool)
    mon = cluster.ceph_json('mon', 'dump')['mons'][0]
    host, port = next(a['addr'] for a in mon['public_addrs']['addrvec'] if a['type'] == 'v2').rsplit(':', 1)
    script = tmp_path / 'brick.py'
    script.write_text(BRICK)
    r = run(['/usr/bin/python3', script, rbd_pool + '/brick', host, port, keyring], env=cluster.env(), timeout=120)
    assert r.out.rstrip().endswith('done'), r
    data = cluster.run('rbd', 'export', '--no-progress', '%s/brick' % rbd_pool, '-').out_bytes
    assert data[:8192] == b'skep' * 2048 and not any(data[8192:])
    assert cluster.rbd_json('status', '%s/brick' % rbd_pool)['watchers'] == []
    cluster.rbd('rm', '--no-progress', '%s/brick' % rbd_pool)
