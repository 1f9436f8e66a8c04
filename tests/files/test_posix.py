"""pjdfstest (the Rust port) on a mount by ceph-fuse: what POSIX says of calls that make, change and remove names.

CI runs the cases of calls that touch several names; `--all` all of them, beside each other.
"""
import concurrent.futures
import errno
import os
import pathlib
import re
import shutil
import tempfile

import pytest

from skeptest.crates import tool
from skeptest.gtest import Case
from skeptest.mounts import mounted
from skeptest.ownmounts import OwnMount
from skeptest.run import run
from skeptest.suites import judge, write_down

VERSION = '0.2.2'
RUN_S = 900
# Users of every Debian: neither is root, and they have no group in common.
CONFIG = '''[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["games", "games"]]
'''
SHORT = ['rename::', 'link::', 'rmdir::']
# In such parts that each takes about as long as another.
PARTS = [['rename::'], ['link::'], ['chmod::', 'chown::'], ['mk'], ['open::', 'posix_fallocate::', 'rmdir::', 'truncate::', 'utimensat::']]
END = re.compile(r'^([a-z_]+(?:::\w+)+) +(ok|FAILED|skipped)$', re.M)
OUTCOMES = {'ok': 'passed', 'FAILED': 'failed', 'skipped': 'skipped'}

# A ceph-mds of 16.2 fails them, too.
FAILS = (
    ('pjdfstest', 'utimensat::y2038', 'times are 32 bits of seconds in the messages'),
    ('pjdfstest', 'ftruncate::affected_create_flags_only', 'the client asks for write permission on what it has open'),
)


def cases_of(text):
    """Each case with what was said of it."""
    text = re.sub(r'\x1b\[[0-9;]*m', '', text)
    ends = list(END.finditer(text)) + [None]
    return {m[1]: Case(OUTCOMES[m[2]], text[m.end():after.start() if after else None].split('Backtrace:')[0])
            for m, after in zip(ends, ends[1:])}


@pytest.fixture(scope='module')
def open_mount(cluster, fs):
    """One to which a way leads that all users may go."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='skep-posix-'))
    path.chmod(0o755)
    with mounted(cluster, path / 'mount', fs=fs) as m:
        yield m
    shutil.rmtree(path)


def run_cases(mount, tmp_path, patterns):
    binary, config = tool('pjdfstest', VERSION), tmp_path / 'pjdfstest.toml'
    config.write_text(CONFIG)
    r = run([binary, '-c', config, '-p', mount.path, '-s', '/dev/shm', *patterns], timeout=RUN_S, check=None)
    assert 'Summary:' in r.out, r
    return cases_of(r.out)


@pytest.mark.parametrize('parts', [[SHORT], pytest.param(PARTS, marks=pytest.mark.long)], ids=['short', 'whole'])
def test_pjdfstest(open_mount, tmp_path, parts):
    tool('pjdfstest', VERSION)
    cases = {}
    with concurrent.futures.ThreadPoolExecutor(len(parts)) as pool:
        folders = [tmp_path / str(i) for i in range(len(parts))]
        [f.mkdir() for f in folders]
        for part in pool.map(lambda p: run_cases(open_mount, *p), zip(folders, parts)):
            cases.update(part)
    assert len(cases) >= 180 if parts == [SHORT] else len(cases) == 398, len(cases)
    write_down('pjdfstest', VERSION, cases, FAILS)
    judge('pjdfstest', cases, FAILS)


@pytest.mark.long
def test_pjdfstest_on_our_own_mount(tmp_path):
    """`skep mount` in place of ceph-fuse."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='skep-posix-'))
    path.chmod(0o755)
    mount = OwnMount(path / 'mount', data=path / 'data', options=['--allow-other'])
    try:
        cases = run_cases(mount.start(), tmp_path, [])
        assert mount.stop() == 0, mount.said()
    finally:
        mount.end()
        shutil.rmtree(path)
    assert len(cases) == 398
    judge('pjdfstest', cases, FAILS[:1])


def as_user(uid, gid, call):
    """What a call comes to for another user: 0, or its errno."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)
            call()
            os._exit(0)
        except OSError as e:
            os._exit(e.errno)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_groups_are_inherited_and_sticky_directories_kept(open_mount):
    d = open_mount / 'groups'
    d.mkdir()
    os.chown(d, 0, 60)
    os.chmod(d, 0o2777)
    assert as_user(65534, 65534, lambda: (d / 'sub').mkdir()) == 0
    assert as_user(65534, 65534, lambda: (d / 'sub/f').write_text('x')) == 0
    for name in ('sub', 'sub/f'):
        assert (d / name).stat().st_gid == 60
    assert (d / 'sub').stat().st_mode & 0o2000 and not (d / 'sub/f').stat().st_mode & 0o2000
    os.chmod(d, 0o1777)
    assert as_user(5, 60, lambda: os.rename(d / 'sub', d / 'mine')) in (errno.EPERM, errno.EACCES)
    assert as_user(5, 60, lambda: (d / 'sub/f').write_text('y')) == errno.EACCES
    assert as_user(65534, 65534, lambda: os.rename(d / 'sub', d / 'his')) == 0
