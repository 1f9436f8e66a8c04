"""`/metrics`: what Prometheus scrapes, by its own parser, under the names that Ceph's published boards ask for."""
import json
import socket
import urllib.error
import urllib.request

import pytest

from skeptest.images import MIB
from skeptest.run import wait_until
from skeptest.skep import free_port

pytestmark = pytest.mark.own

# What Ceph's boards and alert rules query (names only), as far as this store has the thing.
BOARDS = '''
ceph_health_status ceph_mon_quorum_status ceph_mon_metadata ceph_mgr_metadata ceph_mgr_status
ceph_osd_up ceph_osd_in ceph_osd_weight ceph_osd_metadata ceph_osd_stat_bytes ceph_osd_stat_bytes_used ceph_osd_numpg
ceph_osd_commit_latency_ms ceph_osd_apply_latency_ms ceph_osd_flag_noout ceph_osd_flag_noup
ceph_osd_op ceph_osd_op_r ceph_osd_op_w ceph_osd_op_rw ceph_osd_op_in_bytes ceph_osd_op_out_bytes
ceph_osd_op_r_out_bytes ceph_osd_op_w_in_bytes ceph_osd_op_rw_in_bytes ceph_osd_op_rw_out_bytes
ceph_osd_op_latency_sum ceph_osd_op_latency_count ceph_osd_op_r_latency_sum ceph_osd_op_r_latency_count
ceph_osd_op_w_latency_sum ceph_osd_op_w_latency_count ceph_osd_recovery_ops ceph_osd_recovery_bytes
ceph_bluestore_commit_lat_sum ceph_bluestore_commit_lat_count ceph_daemon_health_metrics
ceph_pool_metadata ceph_pool_stored ceph_pool_stored_raw ceph_pool_max_avail ceph_pool_percent_used ceph_pool_bytes_used
ceph_pool_objects ceph_pool_quota_bytes ceph_pool_quota_objects ceph_pool_rd ceph_pool_wr ceph_pool_rd_bytes ceph_pool_wr_bytes
ceph_pool_compress_bytes_used ceph_pool_compress_under_bytes
ceph_pg_total ceph_pg_active ceph_pg_clean ceph_pg_degraded ceph_pg_undersized ceph_pg_peering ceph_pg_down ceph_pg_inconsistent
ceph_pool_avail_raw ceph_pool_objects_repaired ceph_pool_recovering_objects_per_sec ceph_pool_num_bytes_recovered
ceph_healthcheck_slow_ops ceph_num_objects_degraded ceph_num_objects_misplaced ceph_num_objects_unfound
ceph_cluster_total_bytes ceph_cluster_total_used_bytes ceph_cluster_total_used_raw_bytes ceph_mon_num_sessions
ceph_rbd_read_ops ceph_rbd_write_ops ceph_rbd_read_bytes ceph_rbd_write_bytes
ceph_rbd_read_latency_sum ceph_rbd_read_latency_count ceph_rbd_write_latency_sum ceph_rbd_write_latency_count
'''.split()

# Nothing here is what these mean, so they are absent, not zero.
ABSENT = 'ceph_bluefs_wal_total_bytes ceph_bluestore_onode_hits'.split()


def get(port, path='/metrics', **kw):
    request = urllib.request.Request('http://127.0.0.1:%d%s' % (port, path), **kw)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.read().decode()


def scrape(port):
    """All samples by name: lists of labels and value. The parser refuses what Prometheus would."""
    from prometheus_client.parser import text_string_to_metric_families
    out, seen = {}, set()
    for family in text_string_to_metric_families(get(port)):
        assert family.name not in seen, 'twice: %s' % family.name
        seen.add(family.name)
        for s in family.samples:
            # The parser gives counters the suffix that OpenMetrics demands; Ceph's have none, nor have ours.
            name = s.name.removesuffix('_total') if family.type == 'counter' else s.name
            out.setdefault(name, []).append((s.labels, s.value))
    return out


def status_of(port, path='/metrics', **kw):
    with pytest.raises(urllib.error.HTTPError) as e:
        get(port, path, **kw)
    return e.value.code


def test_a_scrape_has_what_boards_ask_for_and_says_the_truth(own):
    port = free_port()
    skep = own(options=['--metrics-port', port]).start()
    pool = skep.make_pool('rbd', name='images')
    skep.rbd('create', 'images/a "b"', '--size', '64M')
    # One at a time: librbd joins neighbours that are under way together, which are one operation then (63 were seen).
    skep.rbd('bench', '--io-type', 'write', '--io-size', '64K', '--io-total', '4M', '--io-threads', '1', '--rbd-cache=false', 'images/a "b"')
    image = {'pool': pool, 'namespace': '', 'image': 'a "b"'}

    def written():
        rows = [v for labels, v in scrape(port).get('ceph_rbd_write_bytes', []) if labels == image]
        return rows and rows[0] >= 4 * MIB
    wait_until(written, 90, 1, 'the image to be seen')
    found = scrape(port)
    assert not [name for name in BOARDS if name not in found]
    assert not [name for name in ABSENT if name in found]
    [value] = [v for labels, v in found['ceph_rbd_write_ops'] if labels == image]
    assert value == 64
    number = str(skep.pool_number(pool))
    facts = {'pool_id': number, 'name': pool, 'type': 'replicated', 'compression_mode': 'none',
             'description': 'replica:%d' % skep.ceph_json('osd', 'pool', 'get', pool, 'size')['size']}
    assert (facts, 1.0) in found['ceph_pool_metadata']
    assert ({'ceph_daemon': 'osd.0'}, 1.0) in found['ceph_osd_up'] and len(found['ceph_osd_up']) == 3
    assert sum(v for labels, v in found['ceph_osd_op_w_in_bytes'] if labels['ceph_daemon'].startswith('osd.')) >= 4 * MIB
    assert found['ceph_mon_quorum_status'] == [({'ceph_daemon': 'mon.a'}, 1.0)]
    [(_, total)] = found['ceph_cluster_total_bytes']
    # The host's file system, which others fill, too.
    assert total == pytest.approx(skep.ceph_json('df')['stats']['total_bytes'], rel=0.2)
    skep.ceph('osd', 'set', 'noout')
    checks = json.loads(skep.ceph('health', 'detail', '-f', 'json').out)['checks']
    found = scrape(port)
    assert found['ceph_osd_flag_noout'] == [({}, 1.0)] and found['ceph_health_status'] == [({}, 1.0)]
    assert {labels['name'] for labels, _ in found['ceph_health_detail']} >= {'OSDMAP_FLAGS'} & set(checks)

    lines = get(port, '/metrics?format=influx').splitlines()
    assert {'ceph_osd_up,ceph_daemon=osd.%d value=1' % n for n in range(3)} <= set(lines)
    written_now = [line for line in lines if line.startswith('ceph_rbd_write_ops,pool=%s,image=a\\ "b" value=' % pool)]
    assert len(written_now) == 1 and float(written_now[0].rsplit('=', 1)[1]) >= 64, written_now
    assert get(port, '/metrics?collect[]=x').startswith('# TYPE'), 'other words of a query change nothing'

    assert (status_of(port, '/other'), status_of(port, data=b'x')) == (404, 405)
    # Who says nothing, or too much, holds up nobody.
    idle = [socket.create_connection(('127.0.0.1', port)) for _ in range(8)]
    with socket.create_connection(('127.0.0.1', port)) as loud:
        try:
            loud.sendall(b'GET /metrics HTTP/1.1\r\nx: ' + b'x' * (1 << 20))
            assert b' 200 ' not in loud.recv(100)
        except ConnectionError:
            pass
    assert 'ceph_osd_up' in get(port)
    for s in idle:
        s.close()


def test_no_metrics_where_none_are_wanted_and_a_taken_port_stops_nobody(own):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        skep = own(options=['--metrics-port', taken.getsockname()[1]], osds=1).start()
        assert 'no /metrics' in skep.log.read_text(errors='replace')
        assert skep.ceph('health').returncode == 0
