"""A real Prometheus beside Skep, and the queries of Grafana boards.

Ceph's published boards and rules, Prometheus and its node exporter are Debian's packages, fetched once and unpacked under
SKEP_CACHE: installed they would start daemons that listen to the world.
"""
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import urllib.error
import urllib.parse
import urllib.request

from skeptest.debian import cache
from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import free_port

FETCH_S = 300


def unpacked(package):
    """The folder with a Debian package's files."""
    root = cache() / 'packages'
    root.mkdir(parents=True, exist_ok=True)
    with open(root / (package + '.lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path, part = root / package, root / (package + '.part')
        if not path.exists():
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir()
            # As root apt would fetch as a user who may not write here.
            fetch = ['apt-get', '-o', 'APT::Sandbox::User=root', 'download', package]
            if run(fetch, timeout=FETCH_S, cwd=part, check=None).returncode:
                # Its lists may be old.
                run([*(['sudo', '-n'] if os.geteuid() else []), 'apt-get', 'update'], timeout=FETCH_S)
                run(fetch, timeout=FETCH_S, cwd=part)
            [deb] = part.glob('*.deb')
            run(['dpkg-deb', '-x', deb, part / 'x'], timeout=60)
            (part / 'x').rename(path)
            shutil.rmtree(part)
    return path


def ceph_boards():
    boards = unpacked('ceph-grafana-dashboards') / 'etc/grafana/dashboards/ceph-dashboard'
    return sorted(boards.glob('*.json'))


def ceph_rules():
    return unpacked('ceph-prometheus-alerts') / 'etc/prometheus/ceph/ceph_default_alerts.yml'


def promtool(*args, **kw):
    return run([unpacked('prometheus') / 'usr/bin/promtool', *args], timeout=60, **kw)


def queries(board):
    """(title of the panel, expression) of each target of a board, panels in rows and panels too."""
    found = []

    def walk(node, title):
        if isinstance(node, dict):
            title = node.get('title') or title
            found.extend((title, ' '.join(t['expr'].split())) for t in node.get('targets', []) if t.get('expr'))
            for child in node.values():
                walk(child, title)
        elif isinstance(node, list):
            for child in node:
                walk(child, title)
    walk(json.loads(pathlib.Path(board).read_text()), '')
    return found


def filled(expr, values):
    """The expression with Grafana's variables filled in; what is not a variable of the boards stays ($1 of label_replace)."""
    return re.sub(r'\$([A-Za-z_]+)|\$\{([A-Za-z_]+)\}', lambda m: values[m[1] or m[2]], expr)


class Prometheus:
    """Scrapes Skep as job `ceph`, once a second, and the node exporter of this machine under the machine's name."""

    def __init__(self, place, skep_port, rules=()):
        self.place = pathlib.Path(place)
        self.place.mkdir()
        self.port, self.node_port = free_port(), free_port()
        self.log = self.place / 'log'
        self.procs = []
        scrape = [
            {'job_name': 'ceph', 'honor_labels': True, 'static_configs': [{'targets': ['127.0.0.1:%d' % skep_port]}]},
            {'job_name': 'node', 'static_configs': [
                {'targets': ['127.0.0.1:%d' % self.node_port], 'labels': {'instance': socket.gethostname()}}]},
        ]
        config = {'global': {'scrape_interval': '1s', 'evaluation_interval': '1s'}, 'scrape_configs': scrape,
                  'rule_files': [str(r) for r in rules]}
        # JSON is YAML, too.
        (self.place / 'prometheus.yml').write_text(json.dumps(config))

    def __enter__(self):
        node = unpacked('prometheus-node-exporter') / 'usr/bin/prometheus-node-exporter'
        server = unpacked('prometheus') / 'usr/bin/prometheus'
        argvs = [
            [node, '--web.listen-address=127.0.0.1:%d' % self.node_port],
            [server, '--config.file=%s' % (self.place / 'prometheus.yml'), '--storage.tsdb.path=%s' % (self.place / 'data'),
             '--web.listen-address=127.0.0.1:%d' % self.port, '--storage.tsdb.retention.time=1h'],
        ]
        try:
            for argv in argvs:
                with open(self.log, 'ab') as log:
                    self.procs.append(popen(argv, stdout=log, stderr=log))
            wait_until(self._up, 120, 0.5, 'Prometheus to scrape')
        except BaseException as e:
            self.__exit__()
            if not isinstance(e, Exception):
                raise
            raise AssertionError('Prometheus:\n' + self.log.read_text(errors='replace')[-4000:]) from e
        return self

    def __exit__(self, *_):
        for proc in self.procs:
            end_group(proc)
            proc.wait(60)

    def _up(self):
        assert all(p.poll() is None for p in self.procs), 'ended'
        try:
            return {s['metric']['job'] for s in self.query('up == 1')} == {'ceph', 'node'}
        except OSError:
            return False

    def _get(self, path, **params):
        url = 'http://127.0.0.1:%d/api/v1/%s?%s' % (self.port, path, urllib.parse.urlencode(params))
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)['data']
        except urllib.error.HTTPError as e:
            raise AssertionError('%s: %s' % (params or path, e.read().decode(errors='replace')))

    def query(self, expr):
        """The series of an instant query. One that Prometheus refuses fails the test."""
        data = self._get('query', query=expr)
        if data['resultType'] == 'scalar':
            return [{'metric': {}, 'value': data['result']}]
        return data['result']

    def values(self, expr):
        return [float(s['value'][1]) for s in self.query(expr)]

    def names(self):
        return set(self._get('label/__name__/values'))

    def rules(self):
        return [r for g in self._get('rules')['groups'] for r in g['rules']]

    def alerts(self, name=None):
        return [a for a in self._get('alerts')['alerts'] if name in (None, a['labels']['alertname'])]
