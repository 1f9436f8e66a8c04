"""go-ceph, the library under ceph-csi, Rook and many operators: its own tests of rados, rbd and cephfs, unmodified.

The version is pinned by go-ceph/go.mod and go.sum; the tests are built once, against Debian's libraries, and kept
under SKEP_CACHE. Needs a Go that is new enough for it.
"""
import os
import re
import shutil

import pytest

from skeptest.cluster import external
from skeptest.debian import cache
from skeptest.gtest import Case
from skeptest.mounts import make_volume
from skeptest.run import run
from skeptest.suites import judge, write_down

VERSION = 'v0.36.0'
MODULE = 'github.com/ceph/go-ceph'
HERE = os.path.dirname(__file__)
BUILD_S, RUN_S = 1800, 1500
END = re.compile(r'^ *--- (PASS|FAIL|SKIP): (\S+) ')
OUTCOMES = {'PASS': 'passed', 'FAIL': 'failed', 'SKIP': 'skipped'}

# Nothing fails that passes with the real one.
FAILS = ()
# Pass or not by chance, on a real Ceph as well.
FLAKY = (
    ('go-ceph/rados', '*/TestPGCommand', 'it asks a PG that the pool made a moment ago may not have yet'),
)


def go():
    return shutil.which('go') or shutil.which('go', path='/usr/local/go/bin')


def built(package):
    """The compiled tests of a package."""
    program = go()
    if not program:
        pytest.skip('no Go toolchain here')
    folder = cache() / ('go-ceph-' + VERSION)
    binary = folder / (package.replace('/', '-') + '.test')
    if not binary.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in ('go.mod', 'go.sum'):
            shutil.copy(os.path.join(HERE, 'go-ceph', name), folder)
        env = {'GOFLAGS': '-mod=mod', 'GOTOOLCHAIN': 'local'}
        # Debian's libraries are of release pacific; the tests of cephfs do not compile without what go-ceph calls a preview.
        tags = 'pacific,ceph_preview' if package == 'cephfs' else 'pacific'
        run([program, 'test', '-c', '-tags', tags, '-o', binary, MODULE + '/' + package],
            env=env, cwd=folder, timeout=BUILD_S)
    return binary


def cases_of(text):
    """Each test that has no tests inside, with what was said since the one before it ended."""
    cases, said = {}, []
    for line in text.splitlines():
        end = END.match(line)
        if end:
            cases[end.group(2)] = OUTCOMES[end.group(1)]
    inner = {name.rsplit('/', 1)[0] for name in cases if '/' in name}
    for name in cases:
        around = [m.start() for m in re.finditer(re.escape(name), text)][:1]
        said = text[around[0]:around[0] + 2000] if around and cases[name] == 'failed' else ''
        cases[name] = Case(cases[name], said)
    return {n: c for n, c in cases.items() if n not in inner}


@pytest.mark.long
@pytest.mark.parametrize('package', ['rados', 'rbd', 'rbd/admin'])
def test_go_ceph(package, cluster, tmp_path):
    binary = built(package)
    # It makes dozens of pools, each with the default's number of PGs.
    cluster.ceph('config', 'set', 'global', 'mon_max_pg_per_osd', 5000)
    env = {**cluster.env(), 'CEPH_VERSION': 'pacific'}
    try:
        r = run([binary, '-test.v', '-test.timeout', '%ds' % RUN_S], env=env, cwd=tmp_path, timeout=RUN_S + 60, check=None)
    finally:
        cluster.ceph('config', 'rm', 'global', 'mon_max_pg_per_osd')
    cases = cases_of(r.out)
    suite = 'go-ceph/' + package
    write_down(suite, VERSION, cases, FAILS + FLAKY)
    assert 'panic: test timed out' not in r.out, r.out[-3000:]
    if not external():
        judge(suite, cases, FAILS, FLAKY)


@pytest.mark.long
@pytest.mark.own
def test_go_ceph_cephfs(own, tmp_path):
    """On a server of its own, since they mount whichever file system is the first."""
    binary, skep = built('cephfs'), own(auth='none').start()
    for name in ('cephfs', 'second'):
        make_volume(skep, name)
    server = next(iter(skep.ceph_json('fs', 'get', 'cephfs')['mdsmap']['info'].values()))['name']
    env = {**skep.env(), 'CEPH_VERSION': 'pacific', 'GO_CEPH_TEST_MDS_NAME': server, 'GO_CEPH_TEST_ALT_FS_NAME': 'second'}
    r = run([binary, '-test.v', '-test.timeout', '%ds' % RUN_S], env=env, cwd=tmp_path, timeout=RUN_S + 60, check=None)
    cases = cases_of(r.out)
    write_down('go-ceph/cephfs', VERSION, cases, FAILS + FLAKY)
    assert 'panic: ' not in r.out, r.out[-6000:]
    judge('go-ceph/cephfs', cases, FAILS, FLAKY)
