"""Grafana boards and alert rules over `/metrics`, by a real Prometheus: those that Ceph publishes, and ours in monitoring/.

Each query of each board must be one that Prometheus takes, and give at least one series while the cluster works; what cannot is
named in ABSENT with its reason, and must not give one: the list is the truth both ways.
"""
import json
import math
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import threading

import pytest
import yaml

from skeptest import boards
from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted
from skeptest.run import end_group, popen, wait_until
from skeptest.s3 import Server, admin
from skeptest.skep import Skep, free_port

pytestmark = pytest.mark.own

MONITORING = pathlib.Path(__file__).parents[2] / 'monitoring'
OWN_BOARDS, OWN_RULES = sorted(MONITORING.glob('*.json')), MONITORING / 'skep.rules.yml'

# What names in an expression make it one that nothing here can answer.
ABSENT = {
    r'ceph_data_sync_': 'zones of radosgw: gateways here have none',
    r'haproxy_': 'the proxy in front of gateways has an exporter of its own',
    r'ceph_bluefs_|ceph_bluestore_onode_': 'parts of BlueStore that this store does not have',
}
# An OSD is of one size: of these queries exactly one has it.
SIZES = re.compile(r'^count\(ceph_osd_stat_bytes\{[^}]*\} (<|>=)')
# What the panel wants to be absent is absent.
FOR_ABSENCE = re.compile(r'^absent\(')


def reason(expr):
    if FOR_ABSENCE.search(expr):
        return None
    for names, why in ABSENT.items():
        if re.search(names, expr):
            return why
    if 'ceph_disk_occupation' in expr and not disk():
        return 'the folder of the test is on no disk of this machine'
    if 'ceph_disk_occupation' in expr and 'node_disk' in expr and re.match('loop|ram|fd', disk()):
        return 'the node exporter leaves out the disk under the test'
    if 'device!="lo"' in expr and os.listdir('/sys/class/net') == ['lo']:
        return 'this machine has no network'
    return None


def disk():
    """The disk under the folders that tests use, as the kernel calls it; None where there is none."""
    dev = os.stat(os.environ.get('SKEP_TEST_DIR') or tempfile.gettempdir()).st_dev
    place = pathlib.Path('/sys/dev/block/%d:%d' % (os.major(dev), os.minor(dev)))
    found = [p.name for p in (place.resolve(), place.resolve().parent) if (p / 'queue').is_dir()]
    return found[0] if place.exists() and found else None


class Watched:
    def __init__(self, skep, prometheus, pool, image):
        self.skep, self.prometheus, self.pool, self.image = skep, prometheus, pool, image
        any_of = '.*'
        # The interval holds some scrapes, also of a machine that has much to do.
        self.values = {'__rate_interval': '40s', 'interval': '40s', 'job': 'ceph', 'cluster': any_of, 'osd': 'osd.*',
                       'pool': pool, 'pool_name': pool, 'image': image, 'topk': '15', 'ceph_hosts': socket.gethostname(),
                       'osd_hosts': any_of, 'mon_hosts': any_of, 'mds_hosts': any_of, 'rgw_hosts': any_of,
                       'mds_servers': any_of, 'rgw_servers': any_of, 'code': any_of, 'job_haproxy': any_of,
                       'ingress_service': any_of, 'datasource': 'x'}

    def holds(self, expr):
        """Whether it gives series now; a rate of ours that is no number is none. The machine's disks may be idle."""
        values = self.prometheus.values(boards.filled(expr, self.values))
        return bool(values) and ('node_' in expr or any(math.isfinite(v) for v in values))


@pytest.fixture(scope='module')
def rules(workdir):
    """Copies of the rules that wait for seconds where they would wait for minutes: nothing else is changed."""
    out = []
    for path in (boards.ceph_rules(), OWN_RULES):
        copy = workdir / unique('rules')
        copy.write_text(re.sub(r'^(\s+for:).*$', r'\1 2s', path.read_text(), flags=re.M))
        out.append(copy)
    return out


class ObjectLoad(threading.Thread):
    """Puts and gets an object again and again."""

    def __init__(self, skep, port):
        super().__init__(daemon=True)
        key = admin(skep, 'user', 'create', 'load')['keys'][0]
        self.client = Server(port).client(type('Load', (), {'access': key['access_key'], 'secret': key['secret_key']}))
        self.ended = threading.Event()

    def run(self):
        made = False
        while not self.ended.wait(0.3):
            try:
                made = made or self.client.create_bucket(Bucket='load')
                self.client.put_object(Bucket='load', Key='k', Body=b'x' * 10000)
                self.client.get_object(Bucket='load', Key='k')['Body'].read()
            except Exception:
                # It may not serve yet, or not any more.
                pass


@pytest.fixture(scope='module')
def watched(workdir, rules):
    """A cluster under load (writes and reads of an image whose pool compresses, and of an object), and what scrapes it."""
    port, s3_port = free_port(), free_port()
    skep = Skep(workdir / unique('watched'), options=['--metrics-port', port, '--s3', '--s3-listen', '127.0.0.1:%d' % s3_port])
    load = objects = None
    try:
        skep.start()
        objects = ObjectLoad(skep, s3_port)
        objects.start()
        pool = skep.make_pool('rbd', name='disks')
        skep.ceph('osd', 'pool', 'set', pool, 'compression_mode', 'force')
        make_volume(skep, 'files')
        skep.rbd('create', pool + '/one', '--size', '512M')
        bench = ('while :; do rbd bench --io-type readwrite --rw-mix-read 50 --io-size 64K --io-total 32M --io-threads 2 '
                 '--io-pattern rand --rbd-cache=false disks/one; sleep 0.2; done')
        with open(workdir / 'bench.log', 'wb') as log:
            load = popen(['sh', '-c', bench], env={'CEPH_CONF': skep.conf}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        with boards.Prometheus(workdir / unique('prometheus'), port, rules) as prometheus:
            yield Watched(skep, prometheus, pool, 'one')
    finally:
        if load:
            end_group(load)
            load.wait(60)
        if objects:
            objects.ended.set()
        skep.kill()
        shutil.rmtree(skep.data, ignore_errors=True)


def test_every_query_of_the_boards_holds(watched, record_property):
    ours = {b.name for b in OWN_BOARDS}
    asked = [(b.name, title, expr) for b in boards.ceph_boards() + OWN_BOARDS for title, expr in boards.queries(b)]
    assert len({name for name, _, _ in asked} - ours) > 10 and ours <= {name for name, _, _ in asked}
    sizes = [a for a in asked if SIZES.search(a[2])]
    without = [a for a in asked if a not in sizes and reason(a[2])]
    assert not [a for a in without if a[0] in ours], 'our own boards ask for what there is'
    waiting = [a for a in asked if a not in sizes and a not in without]
    held = len(waiting)

    def all_hold():
        waiting[:] = [a for a in waiting if not watched.holds(a[2])]
        return not waiting
    try:
        wait_until(all_hold, 150, 1, 'every query to give a series')
    except AssertionError as e:
        pytest.fail(str(e) + '\n%d of %d queries give no series:\n%s' % (len(waiting), held, '\n'.join(map(str, waiting))))
    assert [a for a in without if watched.holds(a[2])] == [], 'these do hold: take them off the list'
    of_size = [a for a in sizes if watched.holds(a[2])]
    assert len(of_size) == 1, of_size
    record_property('queries of boards', '%d of %d hold' % (held + len(of_size), len(asked)))


def test_rules_load_and_the_right_alert_fires(watched, rules):
    for path in (boards.ceph_rules(), OWN_RULES, *rules):
        assert 'SUCCESS' in boards.promtool('check', 'rules', path).out
    p, skep = watched.prometheus, watched.skep
    known = {r['name'] for r in p.rules()}
    assert {'CephOSDDown', 'CephOSDDownHigh', 'SkepOsdDown'} <= known and len(known) > 50
    wait_until(lambda: not p.alerts('CephOSDDown') and not p.alerts('SkepOsdDown'), 60, 0.5, 'all OSDs to be up')
    skep.ceph('osd', 'set', 'noup')
    skep.ceph('osd', 'down', 2)

    def fire(*names):
        return {a['labels']['alertname'] for a in p.alerts() if a['state'] == 'firing'} >= set(names)
    try:
        wait_until(lambda: fire('CephOSDDown', 'CephOSDDownHigh', 'SkepOsdDown'), 120, 0.5, 'the alerts of an OSD that is down')
        # What the rule says of it is made by queries of its own.
        [down] = p.alerts('CephOSDDown')
        assert 'osd.2 on %s' % socket.gethostname() in down['annotations']['description'], down
        [own] = p.alerts('SkepOsdDown')
        assert own['labels']['ceph_daemon'] == 'osd.2' and 'osd.2' in own['annotations']['description'], own
    finally:
        skep.ceph('osd', 'unset', 'noup')
    wait_until(lambda: not p.alerts('CephOSDDown') and not p.alerts('CephOSDDownHigh') and not p.alerts('SkepOsdDown'), 120, 0.5,
               'the alerts to end')


def test_every_figure_that_rules_ask_for_is_there(watched):
    p = watched.prometheus
    asked = {n for r in p.rules() if r['type'] == 'alerting' for n in re.findall(r'\bceph_[a-z_]+', r['query'])}
    # The one comes with the first check that is not well, the other is a label.
    asked -= {'ceph_health_detail', 'ceph_daemon'}
    assert len(asked) > 8
    wait_until(lambda: asked <= p.names(), 90, 1, 'the figures %s' % sorted(asked))


def test_a_metadata_server_counts_what_clients_ask(watched, tmp_path):
    p = watched.prometheus

    def figure(name):
        [value] = p.values('%s{ceph_daemon="mds.a"}' % name)
        return value
    before = {n: figure(n) for n in ('ceph_mds_server_handle_client_request', 'ceph_mds_inodes', 'ceph_objecter_op_w')}
    with mounted(watched.skep, tmp_path / 'files', fs='files') as mount:
        for n in range(30):
            (mount / ('d%d' % n)).mkdir()
        wait_until(lambda: figure('ceph_mds_server_handle_client_request') >= before['ceph_mds_server_handle_client_request'] + 30
                   and figure('ceph_mds_inodes') >= before['ceph_mds_inodes'] + 30
                   and figure('ceph_objecter_op_w') > before['ceph_objecter_op_w']
                   and figure('ceph_mds_sessions_session_count') == 1, 60, 0.5, 'the figures to move')
    assert {'name': 'files', 'fs_id': '1'}.items() <= p.query('ceph_fs_metadata')[0]['metric'].items()
    [daemon] = p.query('ceph_mds_metadata')
    assert daemon['metric']['ceph_daemon'] == 'mds.a' and daemon['metric']['rank'] == '0', daemon


# What each rule of ours is for: series, as promtool notes them, one value a minute.
FIRING = {
    'SkepNotScraped': {'up{job="ceph",instance="a"}': '0x20'},
    'SkepHealthError': {'ceph_health_status': '2x20'},
    'SkepMonitorDown': {'ceph_mon_quorum_status{ceph_daemon="mon.b"}': '0x20',
                        'ceph_mon_metadata{ceph_daemon="mon.b",hostname="h"}': '1x20'},
    'SkepOsdDown': {'ceph_osd_up{ceph_daemon="osd.1"}': '0x20', 'ceph_osd_metadata{ceph_daemon="osd.1",hostname="h"}': '1x20'},
    'SkepOsdNearlyFull': {'ceph_osd_stat_bytes_used{ceph_daemon="osd.1"}': '81x20',
                          'ceph_osd_stat_bytes{ceph_daemon="osd.1"}': '100x20'},
    'SkepPoolFullInFourDays': {'ceph_pool_stored{pool_id="1"}': '0+10x120', 'ceph_pool_max_avail{pool_id="1"}': '50000x120',
                               'ceph_pool_metadata{pool_id="1",name="disks"}': '1x120'},
    'SkepDataUnavailable': {'ceph_pg_total{pool_id="1"}': '8x20', 'ceph_pg_active{pool_id="1"}': '7x20'},
    'SkepObjectsUnfound': {'ceph_num_objects_unfound': '1x20'},
    'SkepDataInconsistent': {'ceph_pg_inconsistent{pool_id="1"}': '1x20'},
    'SkepSlowOps': {'ceph_daemon_health_metrics{type="SLOW_OPS",ceph_daemon="osd.1"}': '3x20'},
}
# The same figures of a cluster that is well.
WELL = {
    'up{job="ceph",instance="a"}': '1x120', 'ceph_health_status': '1x120', 'ceph_num_objects_unfound': '0x120',
    'ceph_mon_quorum_status{ceph_daemon="mon.b"}': '1x120', 'ceph_mon_metadata{ceph_daemon="mon.b",hostname="h"}': '1x120',
    'ceph_osd_up{ceph_daemon="osd.1"}': '1x120', 'ceph_osd_metadata{ceph_daemon="osd.1",hostname="h"}': '1x120',
    'ceph_osd_stat_bytes_used{ceph_daemon="osd.1"}': '79x120', 'ceph_osd_stat_bytes{ceph_daemon="osd.1"}': '100x120',
    'ceph_pool_stored{pool_id="1"}': '0+1x120', 'ceph_pool_max_avail{pool_id="1"}': '50000x120',
    'ceph_pool_metadata{pool_id="1",name="disks"}': '1x120', 'ceph_pg_total{pool_id="1"}': '8x120',
    'ceph_pg_active{pool_id="1"}': '8x120', 'ceph_pg_inconsistent{pool_id="1"}': '0x120',
    'ceph_daemon_health_metrics{type="SLOW_OPS",ceph_daemon="osd.1"}': '0x120',
}


def test_each_rule_of_ours_fires_for_what_it_is_for_and_not_else(tmp_path):
    rules = [r for g in yaml.safe_load(OWN_RULES.read_text())['groups'] for r in g['rules']]
    assert {r['alert'] for r in rules} == set(FIRING)
    assert all(r['annotations']['summary'] and r['annotations']['description'].endswith('.') for r in rules)

    def judged(series, minute):
        """An entry for each alert that fires then, as promtool counts those that were not expected."""
        given = [{'series': name, 'values': values} for name, values in series.items()]
        wanted = [{'eval_time': '%dm' % minute, 'alertname': r['alert'], 'exp_alerts': []} for r in rules]
        path = tmp_path / 'test.yml'
        path.write_text(json.dumps({'rule_files': [str(OWN_RULES)], 'evaluation_interval': '1m', 'tests': [
            {'interval': '1m', 'input_series': given, 'alert_rule_test': wanted}]}))
        said = boards.promtool('test', 'rules', path, check=None)
        text = said.out + said.err
        named = re.findall(r'alertname: (\w+)', text)
        assert bool(said.returncode) == bool(named), said
        fire = re.findall(r'Labels:\{alertname="(\w+)"', text)
        assert set(fire) == set(named), said
        return fire

    def by_two(series):
        """As two managers tell it, which both take themselves for the active one."""
        def of(name, instance):
            if 'instance=' in name:
                return name
            label = 'instance="%s"' % instance
            return name.replace('}', ',%s}' % label) if '{' in name else '%s{%s}' % (name, label)
        return {of(name, i): values for name, values in series.items() for i in 'ab'}
    for name, series in FIRING.items():
        minute = 119 if name == 'SkepPoolFullInFourDays' else 15
        assert judged(series, minute) == judged(by_two(series), minute) == [name]
    assert judged(WELL, 119) == judged(by_two(WELL), 119) == []
