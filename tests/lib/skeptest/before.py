"""The program of the release before: what upgrades begin with and downgrades end with.

SKEP_BIN_OLD names one. Else it is built, once for each commit, and kept in the cache: that of the last tag before what is checked out, or, as long as there is
none, of the commit that `dev/release-before` names.
"""
import fcntl
import os
import pathlib
import shutil

import pytest

from skeptest.run import run

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD_LIMIT_S = 5400


def git(*args, **kw):
    return run(['git', '-C', ROOT, *args], check=None, **kw)


def commit():
    """Of the release before; None: this is no repository, or one without history."""
    head = git('rev-parse', 'HEAD').out.strip()
    tags = git('tag', '--list', '--merged', 'HEAD', '--sort=-creatordate', '[v0-9]*').out.split()
    named = (ROOT / 'dev' / 'release-before').read_text().split()[:1]
    for name in [*tags, *named]:
        found = git('rev-parse', '--verify', '--quiet', name + '^{commit}').out.strip()
        if found and found != head and git('merge-base', '--is-ancestor', found, 'HEAD').returncode == 0:
            return found
    return None


def cache():
    """Where dev/lib.sh keeps what is built."""
    home = pathlib.Path(os.environ.get('HOME') or '/root')
    given = os.environ.get('SKEP_CACHE')
    return pathlib.Path(given) if given else pathlib.Path(os.environ.get('XDG_CACHE_HOME') or home / '.cache') / 'skep'


def build(of, place):
    """Compiles the commit in a folder of its own, and leaves the program alone there."""
    source, target = place / 'source', place / 'target'
    for left in (source, target):
        shutil.rmtree(left, ignore_errors=True)
    source.mkdir(parents=True)
    archive = run(['git', '-C', ROOT, 'archive', '--format=tar', of], timeout=300).out_bytes
    run(['tar', '-x', '-C', source], stdin=archive, timeout=300)
    run(['cargo', 'build', '--manifest-path', source / 'Cargo.toml', '--locked', '-p', 'skep', '--bin', 'skep'], timeout=BUILD_LIMIT_S,
        env={'CARGO_TARGET_DIR': str(target)}, cwd=source)
    shutil.copy2(target / 'debug' / 'skep', place / 'skep.new')
    os.replace(place / 'skep.new', place / 'skep')
    for left in (source, target):
        shutil.rmtree(left, ignore_errors=True)


def program():
    """Path of the old program. Where there can be none: who asked for the long tests hears of it, and others skip it."""
    given = os.environ.get('SKEP_BIN_OLD')
    if given:
        assert os.access(given, os.X_OK), 'SKEP_BIN_OLD is not a program: %s' % given
        return given
    of = commit()
    if of is None:
        missing = pytest.fail if os.environ.get('SKEP_TEST_LONG') else pytest.skip
        missing('the release before is not in this history (a shallow clone or an archive): fetch it whole, or name its program with SKEP_BIN_OLD')
    place = cache() / 'before' / of
    place.mkdir(parents=True, exist_ok=True)
    # Another process of a parallel run may be the first.
    with open(place / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.access(place / 'skep', os.X_OK):
            build(of, place)
    return str(place / 'skep')
