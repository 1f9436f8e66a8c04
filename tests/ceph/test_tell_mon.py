"""`ceph tell mon.X ...`: what the stock program asks of one monitor."""
import json

import pytest


@pytest.fixture
def mon(cluster):
    return 'mon.' + cluster.ceph_json('mon', 'dump')['mons'][0]['name']


def test_it_tells_of_itself(cluster, mon):
    def tell(*words):
        return json.loads(cluster.ceph('tell', mon, *words).out)
    assert tell('version') == {'version': '16.2.15', 'release': 'pacific', 'release_type': 'stable'}
    assert 'mon.' + tell('mon_status')['name'] == mon
    assert tell('quorum_status')['quorum'] == [0]
    sessions = tell('sessions')
    assert {'client.admin', 'osd.0'} & {s['entity_name'] for s in sessions}, sessions
    assert all(s['open'] and s['addrs']['addrvec'] for s in sessions)
    assert tell('perf', 'reset', 'all') == {'success': 'perf reset all'}
    assert tell('log', 'flush') == {}
    assert 'config set' in cluster.ceph('tell', mon, 'help').out
    for words, why in [(['heap', 'stats'], 'not using tcmalloc'), (['compact'], 'no store of its own'),
                       (['ops'], 'keeps no operations')]:
        r = cluster.ceph('tell', mon, *words, check=95)
        assert why in r.err, r


def test_options(cluster, mon):
    def get():
        return json.loads(cluster.ceph('tell', mon, 'config', 'get', 'mon_max_pg_per_osd').out)['mon_max_pg_per_osd']
    before = get()
    try:
        r = cluster.ceph('tell', mon, 'injectargs', '--mon_max_pg_per_osd=777')
        assert "mon_max_pg_per_osd = '777'" in r.err and 'for all monitors' in r.err, r
        assert get() == '777' and cluster.ceph('config', 'get', 'mon', 'mon_max_pg_per_osd').out.strip() == '777'
        r = cluster.ceph('tell', mon, 'config', 'set', 'mon_max_pg_per_osd', '778')
        assert json.loads(r.out)['success'].startswith("mon_max_pg_per_osd = '778' ")
        assert get() == '778'
        diff = json.loads(cluster.ceph('tell', mon, 'config', 'diff', 'get', 'mon_max_pg_per_osd').out)['diff']
        assert diff == {'mon_max_pg_per_osd': {'default': '250', 'mon': '778', 'final': '778'}}
    finally:
        cluster.ceph('tell', mon, 'config', 'unset', 'mon_max_pg_per_osd')
    if before != '250':
        cluster.ceph('config', 'set', 'mon', 'mon_max_pg_per_osd', before)
    assert get() == before
    # The cluster's own words mean what they meant.
    assert cluster.ceph('config', 'get', 'mon', 'mon_max_pg_per_osd').out.strip() == before
    r = cluster.ceph('tell', mon, 'config', 'set', 'nonesuch', '1', check=2)
    assert "error setting 'nonesuch' to '1': (2) No such file or directory" in r.err
    r = cluster.ceph('tell', mon, 'injectargs', '--nonesuch=1', check=22)
    assert 'failed to parse arguments' in r.err
