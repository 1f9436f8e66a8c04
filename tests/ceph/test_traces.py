"""Operations as OpenTelemetry traces (`skep up --trace-to`), taken by a small collector; and collectors that are slow or away."""
import http.server
import json
import re
import threading
import time
import urllib.request

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.skep import free_port

pytestmark = [pytest.mark.own, pytest.mark.cephx]
WITHIN_S = 60


class Take(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        time.sleep(self.server.holds)
        if not self.server.refuses:
            self.server.told.append((self.path, self.headers['Content-Type'], json.loads(body)))
        self.send_response(503 if self.server.refuses else 200)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *args):
        pass


class Collector:
    def __init__(self, port=0):
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', port), Take)
        self.server.daemon_threads = True
        self.server.told, self.server.holds, self.server.refuses = [], 0, False
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()

    def traces(self):
        """Spans by trace; each with the attributes of its resource as `resource`."""
        found = {}
        for _, _, body in list(self.server.told):
            for resource in body['resourceSpans']:
                of = attributes(resource['resource'])
                for scope in resource['scopeSpans']:
                    for span in scope['spans']:
                        found.setdefault(span['traceId'], []).append({**span, 'resource': of})
        return found

    def of(self, name):
        """The traces of operations on an object of this name: the whole, and its stages in their order."""
        found = []
        for spans in self.traces().values():
            whole = [s for s in spans if 'parentSpanId' not in s]
            assert len(whole) == 1, spans
            if attributes(whole[0])['ceph.object'] == name:
                found.append((whole[0], [s for s in spans if 'parentSpanId' in s]))
        return found


def attributes(of):
    return {a['key']: next(iter(a['value'].values())) for a in of['attributes']}


def figure(port, name):
    page = urllib.request.urlopen('http://127.0.0.1:%d/metrics' % port, timeout=30).read().decode()
    return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith('ceph_%s{' % name))


def all_are_slow(skep):
    """From when the OSDs have heard of it each operation is slow enough to be told."""
    skep.ceph('config', 'set', 'osd', 'osd_op_history_slow_op_threshold', '0')


def served(own, to):
    port = free_port()
    skep = own(options=['--trace-to', to, '--metrics-port', port]).start()
    return skep, port


def test_operations_are_told_with_their_stages(own):
    collector = Collector()
    try:
        skep, port = served(own, 'http://127.0.0.1:%d' % collector.port)
        pool = skep.make_copies()
        all_are_slow(skep)

        def one_of_it():
            name = unique('object')
            skep.rados(pool, 'put', name, '/etc/hostname')
            return name

        def told(name):
            end = time.monotonic() + 5
            while time.monotonic() < end:
                writes = [t for t in collector.of(name) if attributes(t[0])['ceph.op.kind'] == 'write']
                if writes:
                    return writes
                time.sleep(0.1)
            return None
        # Which needs the OSDs to have heard of the option.
        name = wait_until(lambda: next((n for n in [one_of_it()] if told(n)), None), WITHIN_S, 0.1, 'a trace')
        whole, stages = told(name)[0]
        before, now = time.time() - 120, time.time() + 1
        begin, end = int(whole['startTimeUnixNano']), int(whole['endTimeUnixNano'])
        assert before * 1e9 < begin < end < now * 1e9, whole
        assert re.fullmatch('[0-9a-f]{32}', whole['traceId']) and re.fullmatch('[0-9a-f]{16}', whole['spanId']) and whole['kind'] == 2
        said = attributes(whole)
        assert said['ceph.pool.name'] == pool and said['ceph.pool.id'] == str(skep.pool_number(pool)), said
        assert said['ceph.client'].startswith('client.') and said['ceph.op'] in ('writefull', 'write', 'create'), said
        assert said['ceph.result'] == '0' and int(said['ceph.op.bytes']) > 0 and 'ceph.image.id' not in said, said
        assert whole['resource']['service.name'] == 'skep' and whole['resource']['service.instance.id'] == 'osd.' + said['ceph.osd']
        # The stages lie within it, one behind the other, and are its children.
        assert [s['name'] for s in stages][:2] == ['queue', 'group'] and stages[2]['name'] in ('disk', 'peer'), stages
        at = begin
        for span in stages:
            assert span['parentSpanId'] == whole['spanId'] and int(span['startTimeUnixNano']) == at, stages
            at = int(span['endTimeUnixNano'])
        assert at == end and len({s['spanId'] for s in [whole, *stages]}) == 4
        if stages[2]['name'] == 'peer':
            assert attributes(stages[2])['skep.waited_for'] == 'osd.' + attributes(stages[2])['skep.peer']
        assert {(p, kind) for p, kind, _ in collector.server.told} == {('/v1/traces', 'application/json')}
        # One that fails.
        skep.rados(pool, 'get', 'none-such', '/dev/null', check=None)
        failed = wait_until(lambda: collector.of('none-such'), WITHIN_S, 0.2, 'the one that fails')
        assert failed[0][0]['status']['code'] == 2 and attributes(failed[0][0])['ceph.result'] == '-2', failed
        wait_until(lambda: figure(port, 'traces_exported') > 0, WITHIN_S, 0.3, 'the figures')
        assert figure(port, 'osd_traces') >= figure(port, 'traces_exported')
    finally:
        collector.end()


def test_a_collector_that_is_away_or_refuses_harms_nobody(own):
    port_of_it = free_port()
    skep, port = served(own, 'http://127.0.0.1:%d/v1/traces' % port_of_it)
    pool = skep.make_copies()
    all_are_slow(skep)

    def busy(seconds):
        return skep.rados(pool, 'bench', seconds, 'write', '-b', '4096', '-t', '16', '--no-cleanup').out

    def lost():
        busy(1)
        return figure(port, 'traces_failed')
    wait_until(lost, WITHIN_S, 0.1, 'traces to be lost')
    assert skep.log.read_text().count('the collector of traces takes nothing') == 1
    collector = Collector(port_of_it)
    try:
        # It takes its time, and refuses: what comes meanwhile is dropped at the queue, and clients hear nothing of it.
        collector.server.holds, collector.server.refuses = 3, True

        def dropped():
            assert 'Total writes made' in busy(1)
            return figure(port, 'osd_traces_dropped')
        wait_until(dropped, WITHIN_S, 0.1, 'traces to be dropped')
        collector.server.holds, collector.server.refuses = 0, False
        wait_until(lambda: 'takes them again' in skep.log.read_text(), WITHIN_S, 0.3, 'it to take them again')
        assert skep.log.read_text().count('the collector of traces takes nothing') == 1
    finally:
        collector.end()
    assert skep.stop() == 0


def test_urls_that_cannot_be_are_refused(own):
    skep = own(options=['--trace-to', 'grpc://127.0.0.1:4317'])
    said = skep.cli(*skep.argv()[1:], check=None)
    assert said.returncode == 1 and '--trace-to: not a URL' in said.err, said
    assert not skep.data.exists(), 'nothing is left behind'
