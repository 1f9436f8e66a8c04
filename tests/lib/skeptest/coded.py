"""Erasure-coded pools for tests: OSDs are the failure domain."""
import contextlib

from skeptest.cluster import unique
from skeptest.run import wait_until


def make_coded(cluster, k, m, overwrites=True, app='rados', pg_num=8, name=None):
    """Its name. Without `app` whoever uses it first says what it is for."""
    profile, pool = unique('profile'), name or unique('coded')
    cluster.ceph('osd', 'erasure-code-profile', 'set', profile, 'k=%d' % k, 'm=%d' % m, 'crush-failure-domain=osd')
    cluster.ceph('osd', 'pool', 'create', pool, pg_num, pg_num, 'erasure', profile)
    if overwrites:
        cluster.ceph('osd', 'pool', 'set', pool, 'allow_ec_overwrites', 'true')
    if app:
        cluster.ceph('osd', 'pool', 'application', 'enable', pool, app)
    wait_until(lambda: cluster.whole(pool), 60, every=0.5, what='a whole pool of %d + %d' % (k, m))
    return pool


@contextlib.contextmanager
def one_osd_less(cluster, osd):
    """That OSD is down, and stays so, until the end."""
    cluster.ceph('osd', 'set', 'noup')
    cluster.ceph('osd', 'down', osd)
    try:
        yield
    finally:
        cluster.ceph('osd', 'unset', 'noup')
        wait_until(cluster.whole, 90, every=0.5, what='all pools whole with osd.%d again' % osd)
