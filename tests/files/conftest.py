"""File systems on the shared server, and mounts of them."""
import pytest

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted


@pytest.fixture(scope='module')
def fs(cluster):
    """A file system of the shared server: the same for all tests of a module."""
    name = unique('fs')
    make_volume(cluster, name)
    yield name
    cluster.ceph('fs', 'volume', 'rm', name, '--yes-i-really-mean-it')


@pytest.fixture(scope='module')
def mount(cluster, fs, tmp_path_factory):
    with mounted(cluster, tmp_path_factory.mktemp('mount') / 'a', fs=fs) as m:
        yield m


@pytest.fixture(scope='module')
def second(cluster, fs, tmp_path_factory):
    with mounted(cluster, tmp_path_factory.mktemp('mount') / 'b', fs=fs) as m:
        yield m


@pytest.fixture
def dirs(mount, second):
    """A new directory, as both mounts see it."""
    name = unique('d')
    (mount / name).mkdir()
    return mount / name, second / name
