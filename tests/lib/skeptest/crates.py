"""Test programs of crates.io, each of one version and with its own lock file: built once and kept under SKEP_CACHE."""
import fcntl
import shutil

import pytest

from skeptest.debian import cache
from skeptest.run import run

BUILD_S = 1800


def tool(name, version):
    """The path of a program that a crate of its name installs."""
    cargo = shutil.which('cargo')
    if not cargo:
        pytest.skip('no cargo here')
    root = cache() / 'crates' / ('%s-%s' % (name, version))
    binary = root / 'bin' / name
    root.parent.mkdir(parents=True, exist_ok=True)
    with open(root.with_suffix('.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            target = root / 'target'
            run([cargo, 'install', '--quiet', '--locked', '--debug', '--root', root, '--target-dir', target,
                 '--version', '=' + version, name], timeout=BUILD_S, cwd='/', env={'CARGO_PROFILE_DEV_DEBUG': '0'})
            shutil.rmtree(target, ignore_errors=True)
    return binary
