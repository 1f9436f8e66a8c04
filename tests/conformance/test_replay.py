"""The recorded conversations of Ceph 16.2.15 played against a cluster without authentication: object
classes (573 steps), every OSD operation (about 740 cases and the hostile ones), and the maps as
osdmaptool and crushtool read them. The programs are in tests/tools/; each ends with `N passed, M failed`.
"""
import pathlib
import re

import pytest

from skeptest.cluster import external, unique

TOOLS = pathlib.Path(__file__).resolve().parent.parent / 'tools'


def replay(cluster, tool, *args, least, timeout):
    r = cluster.run('/usr/bin/python3', TOOLS / tool, cluster.conf, *args, timeout=timeout, check=None)
    closing = re.search(r'(\d+) passed, (\d+) failed', r.out)
    assert closing, r
    passed, failed = map(int, closing.groups())
    assert failed == 0 and r.returncode == 0, '%d of %d failed:\n%s\n%s' % (
        failed, passed + failed, r.out[-12000:], r.err[-2000:])
    assert passed >= least, 'only %d cases ran' % passed


def test_classes(open_cluster):
    pool = open_cluster.make_pool()
    try:
        replay(open_cluster, 'replay-classes', '--pool', pool, least=573, timeout=120)
    finally:
        open_cluster.drop_pool(pool)


def test_osd(open_cluster):
    replay(open_cluster, 'replay-osd', least=740, timeout=400)


@pytest.mark.own
def test_osd_hostile(own):
    """What aborts a real OSD is refused here, and the process lives."""
    skep = own(auth='none').start()
    r = skep.run('/usr/bin/python3', TOOLS / 'replay-osd', skep.conf, '--hostile', '--group', 'hostile', timeout=120, check=None)
    assert skep.alive, skep.log_tail()
    assert re.search(r'[1-9]\d* passed, 0 failed', r.out), r


def test_maps(open_cluster):
    pool = open_cluster.make_pool(name=unique('maps'), pg_num=32)
    try:
        # The cluster answers for each of them; more would only compare osdmaptool with itself, a process for each name.
        replay(open_cluster, 'check-maps', '--names', '200', '--sample', '200', least=400, timeout=400)
    finally:
        open_cluster.drop_pool(pool)


def test_the_tools_are_what_they_say(open_cluster):
    """A conformance run that cannot fail proves nothing: the tools refuse a cluster that is not there."""
    assert external() or open_cluster.alive
    r = open_cluster.run('/usr/bin/python3', TOOLS / 'replay-classes', '/nonexistent.conf', '--pool', 'p', check=None,
                         timeout=60)
    assert r.returncode != 0, r
