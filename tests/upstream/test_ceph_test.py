"""Ceph's own tests of librados and of its object classes, from Debian 13's package ceph-test (18.2.7), unmodified.

They run in a Debian 13 of their own (skeptest.debian) against Skep, or against the cluster of SKEP_TEST_CONF, whose results
stand beside ours in docs/compatibility.md: `dev/compatibility` runs both. What is expected not to pass: expected.py.
"""
import pathlib

import pytest

from expected import FAILS, FLAKY, LEFT_OUT, PROGRAMS, REAL_LEFT_OUT, SAMPLE
from skeptest.cluster import external
from skeptest.debian import Root
from skeptest.gtest import run_cases, stdout_and_err
from skeptest.suites import judge, patterns, write_down

# Nothing of these tests waits longer in silence (watches that time out: a minute).
SILENCE_S = 150
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


def check(program, cluster, root, folder):
    conf_for(cluster, folder)
    kept = set(cluster.ceph('osd', 'pool', 'ls').out.split())
    without = patterns(REAL_LEFT_OUT if external() else LEFT_OUT, program)

    def start(arguments):
        env = {'CEPH_CONF': '/mnt/ceph.conf', 'RBD_FEATURES': RBD_FEATURES}
        return root.popen(['/usr/bin/' + program, *arguments], folder, env, **stdout_and_err())
    try:
        cases = run_cases(start, without=without, silence_s=SILENCE_S)
    finally:
        drop_pools(cluster, kept)
    write_down(program, root.version('ceph-test'), cases, FAILS + FLAKY, without)
    if not external():
        judge(program, cases, FAILS, FLAKY)


@pytest.mark.parametrize('program', SAMPLE)
def test_sample(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize('program', [p for p in PROGRAMS if p not in SAMPLE])
def test_rest(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path)
