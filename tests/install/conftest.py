"""What `dev/package` makes of the program under test."""
import pathlib

import pytest

from skeptest.run import run
from skeptest.skep import find_binary

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope='session')
def package(workdir):
    """The Debian package and the tarball."""
    out = workdir / 'package'
    run([REPOSITORY / 'dev/package', out], env={'SKEP_BIN': find_binary()}, timeout=300)
    [deb] = out.glob('*.deb')
    [tarball] = out.glob('*.tar.xz')
    return deb, tarball
