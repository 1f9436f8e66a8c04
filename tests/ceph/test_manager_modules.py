"""What modules of Ceph's manager answer: crashes, devices, progress, and those that are refused in a sentence.

Texts and exit codes were compared with those of Ceph 16.2.15.
"""
import datetime
import json

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until

CRASH = {
    'timestamp': '2026-11-25T10:00:00.000000Z', 'process_name': 'ceph-osd', 'entity_name': 'osd.0',
    'ceph_version': '16.2.15', 'utsname_hostname': 'h', 'backtrace': ['(a()+0x1) [0x5]', 'b'],
}


@pytest.fixture
def crash(cluster, tmp_path):
    """The report of a crash that somebody posts (the daemon ceph-crash does); its id."""
    # Of now, so that it is recent.
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.%fZ')
    ident = '%s_%s' % (stamp, unique('crash'))
    path = tmp_path / 'report'
    path.write_text(json.dumps(dict(CRASH, crash_id=ident, timestamp=stamp)))
    cluster.ceph('crash', 'post', '-i', path)
    yield ident
    cluster.ceph('crash', 'rm', ident)


def test_a_crash_is_shown_until_somebody_has_looked_at_it(cluster, crash):
    assert any(line.split()[:3] == [crash, 'osd.0', '*'] for line in cluster.ceph('crash', 'ls').out.splitlines())
    info = json.loads(cluster.ceph('crash', 'info', crash).out)
    assert info['entity_name'] == 'osd.0' and info['backtrace'] == CRASH['backtrace']
    check = cluster.ceph_json('health', 'detail')['checks']['RECENT_CRASH']
    lines = [d['message'] for d in check['detail']]
    assert any(line.startswith('osd.0 crashed on host h at ') for line in lines), lines
    assert check['severity'] == 'HEALTH_WARN' and 'daemons have recently crashed' in check['summary']['message']
    cluster.ceph('crash', 'archive', crash)
    assert crash not in cluster.ceph('crash', 'ls-new').out
    assert crash in cluster.ceph('crash', 'ls').out
    left = cluster.ceph_json('health', 'detail')['checks'].get('RECENT_CRASH', {'detail': []})
    assert not any(crash.split('_')[0] in d['message'] for d in left['detail'])


def test_reports_without_sense_are_refused(cluster, tmp_path):
    path = tmp_path / 'report'
    for text in ['', '{', '[]', '{"crash_id": "x"}', json.dumps(dict(CRASH, crash_id='a b'))]:
        path.write_text(text)
        r = cluster.ceph('crash', 'post', '-i', path, check=None)
        assert r.returncode == 22 and 'malformed crash metadata' in r.err, (text, r)
    assert 'crash info: nope not found' in cluster.ceph('crash', 'info', 'nope').err


def test_there_are_no_devices_and_nobody_reads_them(cluster):
    assert cluster.ceph('device', 'ls').out.split() == 'DEVICE HOST:DEV DAEMONS WEAR LIFE EXPECTANCY'.split()
    assert cluster.ceph_json('device', 'ls') == []
    assert cluster.ceph_json('device', 'ls-by-daemon', 'osd.0') == []
    for args, code, text in [
        (['device', 'info', 'x'], 2, 'device x not found'),
        (['device', 'ls-by-daemon', 'osd.99'], 2, 'daemon osd.99 not found'),
        (['device', 'get-health-metrics', 'x'], 2, 'device x not found'),
        (['device', 'light', 'on', 'x'], 2, 'No orchestrator configured'),
        (['device', 'monitoring', 'on'], 95, 'no health metrics are read'),
        (['insights'], 95, "no module 'insights'"),
    ]:
        r = cluster.ceph(*args, check=None)
        assert r.returncode == code and text in r.err, (args, r)


def test_progress_can_be_cleared_and_switched_off(cluster):
    assert cluster.ceph('progress', 'off').err.strip() == 'progress disabled'
    try:
        assert json.loads(cluster.ceph('progress', 'json').out) == {'completed': [], 'events': []}
    finally:
        assert cluster.ceph('progress', 'on').err.strip() == 'progress enabled'
    cluster.ceph('progress', 'clear')
    wait_until(lambda: json.loads(cluster.ceph('progress', 'json').out)['completed'] == [], 30, 0.5, 'progress to be clear')


def test_osd_perf_query(cluster):
    said = cluster.ceph('osd', 'perf', 'query', 'add', 'rbd_image_id').out.strip()
    assert said.startswith('added query rbd_image_id with id '), said
    ident = said.split()[-1]
    assert 'WRITE OPS' in cluster.ceph('osd', 'perf', 'counters', 'get', ident).out
    cluster.ceph('osd', 'perf', 'query', 'remove', ident)
    r = cluster.ceph('osd', 'perf', 'counters', 'get', ident, check=None)
    assert r.returncode == 2 and 'unknown query id' in r.err, r
    r = cluster.ceph('osd', 'perf', 'query', 'add', 'client_id', check=None)
    assert r.returncode == 95 and 'rbd_image_id' in r.err, r
