"""OpenStack's own code (Debian's, release Zed), unmodified, as Glance and Nova call it: glance_rbd.py, nova_rbd.py.

Each runs in a process of its own: Nova's libraries replace parts of Python's as they are imported.
"""
import os
import sys

import pytest

from skeptest.gtest import Case
from skeptest.run import run
from skeptest.suites import write_down

HERE = os.path.dirname(__file__)
LIMIT_S = 300


def drive(cluster, suite, package, script, *args):
    version = run(['dpkg-query', '-W', '-f', '${Version}', package], check=None).out
    if not version:
        pytest.skip('needs the package ' + package)
    r = run([sys.executable, os.path.join(HERE, script), cluster.conf, *args], env=cluster.env(), timeout=LIMIT_S, check=None)
    done = r.returncode == 0 and r.out.rstrip().endswith('done')
    write_down(suite, version, {'all of it': Case('passed' if done else 'failed', r.err)})
    assert done, r


@pytest.mark.long
def test_glance_store(cluster, rbd_pool):
    drive(cluster, 'glance_store', 'python3-glance-store', 'glance_rbd.py', rbd_pool)


@pytest.mark.long
def test_nova_image_backend(cluster, rbd_pool, tmp_path):
    pool = cluster.make_pool('rbd')
    drive(cluster, 'nova-imagebackend', 'python3-nova', 'nova_rbd.py', rbd_pool, pool, tmp_path)
    cluster.drop_pool(pool)
