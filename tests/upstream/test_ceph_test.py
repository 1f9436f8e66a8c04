"""Ceph's own tests of librados and of its object classes, from Debian 13's package ceph-test (18.2.7), unmodified.

They run in a Debian 13 of their own (skeptest.debian) against Skep, or against the cluster of SKEP_TEST_CONF, whose results
stand beside ours in docs/compatibility.md: `dev/compatibility` runs both. What is expected not to pass: expected.py.
"""
import pathlib

import pytest

from expected import FAILS, FLAKY, LEFT_OUT, LIBRBD, PIECES, PROGRAMS, REAL_LEFT_OUT, SAMPLE
from skeptest.cluster import external
from skeptest.debian import Root
from skeptest.gtest import run_cases, stdout_and_err
from skeptest.suites import judge, patterns, write_down

# Nothing of these tests waits longer in silence (watches that time out: a minute).
SILENCE_S = 150
# But those of librbd's that encrypt whole images: minutes where the host is busy.
SILENCE_LIBRBD_S = 600
# Nor do those that fill an index row by row: two minutes on a real Ceph.
LONGER = {'ceph_test_cls_rgw': 1200, 'ceph_test_cls_rgw_stats': 1200}
# Of the images that librbd's tests make: layering, exclusive lock, object map, fast diff, deep flatten. Without it: format 1.
RBD_FEATURES = '61'


@pytest.fixture(scope='module')
def root():
    return Root('trixie', ['ceph-test', 'ceph-common'])


def conf_for(cluster, folder):
    """A folder with a conf and a keyring that do not name where they lie: the program sees it as /mnt."""
    text = pathlib.Path(cluster.conf).read_text()
    lines = [line for line in text.splitlines() if not line.strip().startswith('keyring')]
    folder.joinpath('ceph.conf').write_text('\n'.join([*lines, '[client]', 'keyring = /mnt/keyring', '']))
    keyring = cluster.option('keyring').replace('$cluster', 'ceph').replace('$name', 'client.admin')
    folder.joinpath('keyring').write_bytes(pathlib.Path(keyring).read_bytes())
    return folder


def drop_pools(cluster, kept):
    """What a case that crashed left behind would count against the next one's number of PGs."""
    for pool in set(cluster.ceph('osd', 'pool', 'ls').out.split()) - kept:
        cluster.drop_pool(pool)


def check(suite, cluster, root, folder, only='*', but=(), silence_s=SILENCE_S):
    program = suite.split('/')[0]
    conf_for(cluster, folder)
    kept = set(cluster.ceph('osd', 'pool', 'ls').out.split())
    without = patterns(REAL_LEFT_OUT if external() else LEFT_OUT, suite)

    def start(arguments):
        env = {'CEPH_CONF': '/mnt/ceph.conf', 'RBD_FEATURES': RBD_FEATURES}
        return root.popen(['/usr/bin/' + program, *arguments], folder, env, **stdout_and_err())
    try:
        cases = run_cases(start, only=only, without=[*without, *but], silence_s=silence_s)
    finally:
        drop_pools(cluster, kept)
    write_down(suite, root.version('ceph-test'), cases, FAILS + FLAKY, without)
    if not external():
        judge(suite, cases, FAILS, FLAKY)


@pytest.mark.parametrize('program', SAMPLE)
def test_sample(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize('program', [p for p in PROGRAMS if p not in SAMPLE])
def test_rest(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path, silence_s=LONGER.get(program, SILENCE_S))


@pytest.fixture
def many_pools(cluster):
    """A pool for every few cases: small ones, and more than the limit of PGs for each OSD takes."""
    options = {'osd_pool_default_pg_num': '8', 'mon_max_pg_per_osd': '5000'}
    for name, value in options.items():
        cluster.ceph('config', 'set', 'global', name, value)
    yield
    for name in options:
        cluster.ceph('config', 'rm', 'global', name)


@pytest.mark.long
@pytest.mark.parametrize('piece', [*PIECES, 'rest'])
def test_librbd(piece, cluster, root, tmp_path, many_pools):
    # The encrypting cases are taken out of the suites that they belong to; the rest is what no piece names.
    named = [p for only in PIECES.values() for p in only.split(':')]
    but = {'rest': named, 'luks': []}.get(piece, PIECES['luks'].split(':'))
    check(LIBRBD + '/' + piece, cluster, root, tmp_path, PIECES.get(piece, '*'), but, SILENCE_LIBRBD_S)
