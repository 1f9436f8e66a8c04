"""Ceph's own tests of librados and of its object classes, from Debian 13's package ceph-test (18.2.7), unmodified.

They run in a Debian 13 of their own (skeptest.debian) against Skep, or against the cluster of SKEP_TEST_CONF, whose results
stand beside ours in docs/compatibility.md: `dev/compatibility` runs both. What is expected not to pass: expected.py.
"""
import json
import os
import pathlib

import pytest

from expected import PROGRAMS, SAMPLE, fails, left_out
from skeptest.cluster import external
from skeptest.debian import Root
from skeptest.gtest import run_cases, stdout_and_err

GOOD = ('passed', 'skipped')
# Nothing of these tests waits longer in silence (watches that time out: a minute).
SILENCE_S = 150


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


def write_results(program, version, cases, without):
    """For dev/compatibility: what each case came to."""
    folder = os.environ.get('SKEP_UPSTREAM_RESULTS')
    if folder:
        said = {'suite': program, 'version': version, 'left_out': without,
                'cases': {name: [c.outcome, fails(program, name) or ''] for name, c in cases.items()}}
        pathlib.Path(folder, program + '.json').write_text(json.dumps(said, indent=1, sort_keys=True))


def judge(program, cases):
    """Lines about each case that did not come out as expected."""
    for name, case in cases.items():
        why = fails(program, name)
        if case.outcome not in GOOD and not why:
            yield '%s %s\n%s' % (name, case.outcome, case.text)
        if case.outcome in GOOD and why:
            yield '%s passes, so it no longer belongs into expected.py (%s)' % (name, why)


def check(program, cluster, root, folder):
    conf_for(cluster, folder)
    kept = set(cluster.ceph('osd', 'pool', 'ls').out.split())
    without = left_out(program, real=bool(external()))

    def start(arguments):
        env = {'CEPH_CONF': '/mnt/ceph.conf'}
        return root.popen(['/usr/bin/' + program, *arguments], folder, env, **stdout_and_err())
    try:
        cases = run_cases(start, without=without, silence_s=SILENCE_S)
    finally:
        drop_pools(cluster, kept)
    write_results(program, root.version('ceph-test'), cases, without)
    assert cases, 'nothing ran'
    if not external():
        wrong = list(judge(program, cases))
        assert not wrong, '%d of %d cases:\n%s' % (len(wrong), len(cases), '\n'.join(wrong))


@pytest.mark.parametrize('program', SAMPLE)
def test_sample(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize('program', [p for p in PROGRAMS if p not in SAMPLE])
def test_rest(program, cluster, root, tmp_path):
    check(program, cluster, root, tmp_path)
