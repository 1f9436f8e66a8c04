"""ceph-csi's calls, by csi.py, as its documented user (docs/capabilities.md there). The driver itself and csi-sanity are not run: staging a
volume maps it with the kernel's rbd or nbd module, and a driver that cannot stage fails csi-sanity's node tests anywhere."""
import os
import re
import sys

from skeptest.cluster import unique
from skeptest.gtest import Case
from skeptest.run import run
from skeptest.suites import write_down

LIMIT_S = 400
CAPS = ['mon', 'profile rbd', 'mgr', 'allow rw', 'osd', 'profile rbd']


def test_csi(cluster, tmp_path):
    pool, user, keyring = cluster.make_pool('rbd'), unique('csi-rbd-provisioner'), tmp_path / 'keyring'
    keyring.write_text(cluster.ceph('auth', 'get-or-create', 'client.' + user, *CAPS).out)
    script = os.path.join(os.path.dirname(__file__), 'csi.py')
    r = run([sys.executable, script, cluster.conf, user, keyring, pool], env=cluster.env(), timeout=LIMIT_S, check=None)
    begun = re.findall(r'^part (.*)$', r.out, re.M)
    done = r.returncode == 0 and r.out.rstrip().endswith('done')
    cases = {name: Case('passed', '') for name in begun}
    if not done:
        cases[begun[-1] if begun else 'the beginning'] = Case('failed', r.err)
    write_down('ceph-csi calls', 'ceph-csi 3', cases)
    assert done and len(begun) == 10, r
    cluster.drop_pool(pool)
