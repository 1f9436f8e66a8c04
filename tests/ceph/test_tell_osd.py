"""`ceph tell osd.N ...`: what the stock program asks of one OSD, in the forms of 16.2.15."""
import json

import pytest

from skeptest.api import connect, in_child
from skeptest.run import wait_until


def tell(cluster, *words, osd=0):
    return json.loads(cluster.ceph('tell', 'osd.%d' % osd, *words).out)


def refused(cluster, *words, osd=0):
    got = cluster.ceph('tell', 'osd.%d' % osd, *words, check='fails')
    return got.returncode, got.err


@pytest.fixture
def busy(cluster, pool):
    """A pool in which every OSD has had writes and reads."""
    for i in range(24):
        cluster.rados(pool, 'put', 'op-%d' % i, '-', stdin=b'x' * 5000)
        cluster.rados(pool, 'get', 'op-%d' % i, '/dev/null')
    return pool


def test_operations_in_flight(cluster):
    for words in (['ops'], ['dump_ops_in_flight'], ['ops', '127.0.0.1']):
        got = tell(cluster, *words)
        assert got['num_ops'] == len(got['ops'])
    assert tell(cluster, 'dump_blocked_ops') == {'ops': [], 'complaint_time': 30, 'num_blocked_ops': 0}


def test_slowest_operations_of_the_past(cluster, busy):
    def of_pool():
        ops = [o for n in range(3) for o in tell(cluster, 'dump_historic_ops', osd=n)['ops']]
        return ops
    got = tell(cluster, 'dump_historic_ops')
    assert (got['size'], got['duration']) == (20, 600) and len(got['ops']) <= 20
    ops = of_pool()
    assert ops, 'nothing is kept'
    for op in ops:
        events = [e['event'] for e in op['type_data']['events']]
        assert events[0] == 'initiated' and events[-1] == 'done', op
        assert op['type_data']['client_info']['client'].startswith('client.')
        assert op['duration'] >= 0 and op['age'] >= op['duration'] and 'osd_op(' in op['description']
        stamps = [e['time'] for e in op['type_data']['events']]
        assert stamps == sorted(stamps), op
    assert any('WRITEFULL' in o['description'] and
               [e['event'] for e in o['type_data']['events']] ==
               ['initiated', 'reached_pg', 'started', 'commit_sent', 'done'] for o in ops), ops
    took = [o['duration'] for o in tell(cluster, 'dump_historic_ops_by_duration')['ops']]
    assert took == sorted(took, reverse=True)
    assert tell(cluster, 'dump_historic_slow_ops') == {'num to keep': 20, 'threshold to keep': 10, 'Ops': []}
    assert tell(cluster, 'dump_historic_ops', '10.1.2.3')['ops'] == []


def test_history_goes_by_its_options(cluster, busy):
    try:
        cluster.ceph('tell', 'osd.*', 'injectargs', '--osd_op_history_size=2', '--osd-op-history-slow-op-threshold', '0')
        for n in range(3):
            got = tell(cluster, 'dump_historic_ops', osd=n)
            assert got['size'] == 2 and len(got['ops']) <= 2
        cluster.rados(busy, 'put', 'slow', '-', stdin=b'x')
        slow = [o for n in range(3) for o in tell(cluster, 'dump_historic_slow_ops', osd=n)['Ops']]
        assert any(' slow ' in o['description'] for o in slow), slow
    finally:
        for name in ('osd_op_history_size', 'osd_op_history_slow_op_threshold'):
            cluster.ceph('tell', 'osd.*', 'config', 'unset', name)
    assert tell(cluster, 'dump_historic_ops')['size'] == 20


def test_bench(cluster):
    got = tell(cluster, 'bench', '1048576', '4096')
    assert (got['bytes_written'], got['blocksize']) == (1048576, 4096)
    assert got['elapsed_sec'] > 0
    assert got['bytes_per_sec'] == pytest.approx(1048576 / got['elapsed_sec'])
    assert got['iops'] == pytest.approx(256 / got['elapsed_sec'])
    assert tell(cluster, 'bench', '8388608', '65536', '4194304', '10')['bytes_written'] == 8388608
    used = cluster.ceph_json('df')['stats']['total_used_raw_bytes']
    assert used < 1 << 40
    code, err = refused(cluster, 'bench', '1073741824', '4096')
    assert code == 22 and "'count' values greater than 12288000 for a block size of 4 KiB, assuming 100 IOPS" in err
    code, err = refused(cluster, 'bench', '4096', '134217728')
    assert code == 22 and "block 'size' values are capped at 64 MiB" in err
    assert refused(cluster, 'bench', '-5', '4096')[0] == 22


def test_options_of_one_osd(cluster):
    assert tell(cluster, 'config', 'get', 'osd_max_scrubs') == {'osd_max_scrubs': '1'}
    try:
        assert tell(cluster, 'config', 'set', 'osd_max_scrubs', '3') == {'success': "osd_max_scrubs = '3' "}
        assert tell(cluster, 'config', 'get', 'osd_max_scrubs') == {'osd_max_scrubs': '3'}
        assert tell(cluster, 'config', 'get', 'osd_max_scrubs', osd=1) == {'osd_max_scrubs': '1'}
        assert tell(cluster, 'config', 'diff')['diff']['osd_max_scrubs'] == {
            'default': '1', 'override': '3', 'final': '3'}
        assert list(tell(cluster, 'config', 'diff', 'get', 'osd_max_scrubs')['diff']) == ['osd_max_scrubs']
        got = cluster.ceph('tell', 'osd.0', 'injectargs', '--osd-max-scrubs', '2')
        assert "osd_max_scrubs = '2'" in got.err and json.loads(got.out) == {}
    finally:
        got = cluster.ceph('tell', 'osd.0', 'config', 'unset', 'osd_max_scrubs')
    assert "osd_max_scrubs = '1'" in got.err
    assert tell(cluster, 'config', 'get', 'osd_max_scrubs') == {'osd_max_scrubs': '1'}
    # What nothing here goes by is taken, and said to be so.
    got = cluster.ceph('tell', 'osd.0', 'injectargs', '--osd_max_backfills=4')
    assert 'not observed' in got.err
    cluster.ceph('tell', 'osd.0', 'config', 'unset', 'osd_max_backfills')
    for words, code, why in [
            (['config', 'set', 'nonesuch', '3'], 2, "error setting 'nonesuch' to '3': (2) No such file or directory"),
            (['config', 'set', 'osd_max_scrubs', 'abc'], 22, '(22) Invalid argument'),
            (['config', 'unset', 'nonesuch'], 22, "error unsetting 'nonesuch'"),
            (['config', 'get', 'nonesuch'], 2, "error getting 'nonesuch'"),
            (['injectargs', '--nonesuch', '3'], 22, 'failed to parse arguments: --nonesuch,3'),
            (['injectargs', '--osd_max_scrubs', 'abc'], 22, 'Parse error setting osd_max_scrubs'),
            (['injectargs', '--ms_cluster_mode=crc'], 1, 'may not be modified at runtime')]:
        got = refused(cluster, *words)
        assert got[0] == code and why in got[1], (words, got)


def test_counters_begin_anew(cluster, busy):
    before = [tell(cluster, 'perf', 'dump', 'osd', 'op', osd=n)['osd']['op'] for n in range(3)]
    assert max(before) > 0
    n = before.index(max(before))
    assert tell(cluster, 'perf', 'reset', 'osd', osd=n) == {'success': 'perf reset osd'}
    assert tell(cluster, 'perf', 'dump', 'osd', 'op', osd=n)['osd']['op'] < before[n]
    assert tell(cluster, 'perf', 'reset', 'nonesuch', osd=n) == {'error': 'Not find: nonesuch'}
    assert tell(cluster, 'perf', 'reset', 'all', osd=n) == {'success': 'perf reset all'}


def test_groups_by_hand(cluster, pool):
    cluster.rados(pool, 'put', 'one', '-', stdin=b'x')
    where = cluster.ceph_json('osd', 'map', pool, 'one')
    pgid, osd = where['pgid'], where['acting_primary']

    def stamp():
        return tell(cluster, 'pg', pgid, 'query', osd=osd)['info']['history']['last_deep_scrub_stamp']
    wait_until(lambda: 'clean' in tell(cluster, 'pg', pgid, 'query', osd=osd)['state'], 60, 0.2, 'a clean group')
    before = stamp()
    assert tell(cluster, 'deep_scrub', pgid, osd=osd)['deep'] is True
    wait_until(lambda: stamp() != before, 60, 0.2, 'the deep scrub')
    assert json.loads(cluster.ceph('tell', pgid, 'scrub').out)['deep'] is False
    got = tell(cluster, 'pg', pgid, 'list_unfound', osd=osd)
    assert (got['num_unfound'], got['objects'], got['more']) == (0, [], False)
    got = cluster.ceph('tell', 'osd.%d' % osd, 'pg', pgid, 'mark_unfound_lost', 'revert')
    assert 'pg has no unfound objects' in got.err
    code, err = refused(cluster, 'scrub', '999.0')
    assert code == 2 and "i don't have pgid 999.0" in err
    code, err = refused(cluster, 'scrub')
    assert code == 22 and 'no pgid specified' in err


def test_watchers(cluster, pool):
    def body():
        handle = connect(cluster)
        with handle.open_ioctx(pool) as io:
            io.write_full('watched', b'x')
            watch = io.watch('watched', lambda *args: None)
            found = []
            for osd in range(3):
                code, out, status = handle.osd_command(osd, json.dumps({'prefix': 'dump_watchers'}), b'')
                assert code == 0, status
                found += [w for w in json.loads(out) if w['object'] == 'watched']
            watch.close()
        me = handle.get_instance_id()
        handle.shutdown()
        return found, me
    found, me = in_child(body)
    assert [(w['entity_name'], w['timeout'], w['namespace']) for w in found] == [
        ({'type': 'client', 'num': me}, 30, '')]


def test_facts(cluster, pool):
    cluster.rados(pool, 'put', 'one', '-', stdin=b'x')
    pools = {p['poolnum'] for p in cluster.ceph_json('osd', 'lspools')}
    assert set(tell(cluster, 'get_mapped_pools')) <= pools and tell(cluster, 'get_mapped_pools')
    assert tell(cluster, 'cache', 'status')['store_bytes'] > 0
    assert tell(cluster, 'dump_scrub_reservations')['scrubs_remote'] == 0
    network = tell(cluster, 'dump_osd_network', '0')
    assert network['threshold'] == 0 and {e['to osd'] for e in network['entries']} <= {1, 2}
    assert cluster.ceph('tell', 'osd.0', 'get_latest_osdmap').out.strip() == ''
    assert cluster.ceph('tell', 'osd.0', '-f', 'json', 'version').out.strip() == \
        '{"version":"16.2.15","release":"pacific","release_type":"stable"}'
    cluster.ceph('tell', 'osd.0', 'cluster_log', 'error', 'told', 'by', pool)

    def logged():
        lines = cluster.ceph_json('log', 'last', '100')
        return [e for e in lines if e['message'] == 'told by ' + pool]
    entry = wait_until(logged, 30, 0.2, 'the line in the log')[0]
    assert entry['priority'] == '[ERR]' and entry['name'] == 'osd.0'


def test_what_it_refuses_it_says_why(cluster):
    for words, why in [(['heap', 'stats'], 'not using tcmalloc'), (['bluefs', 'stats'], 'no BlueStore'),
                       (['compact'], 'not here'), (['abort'], 'not here'),
                       (['getomap', 'p', 'o'], 'rados listomapvals')]:
        code, err = refused(cluster, *words)
        assert code == 95 and why in err, (words, err)
    assert tell(cluster, 'get_heap_property', 'x') == {'error': 'invalid property', 'success': False, 'value': 0}
