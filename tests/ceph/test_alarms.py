"""Health checks leave the cluster: as e-mails to an SMTP server, and as webhooks in Alertmanager's format."""
import base64
import email
import email.policy
import http.server
import json
import os
import re
import shutil
import signal
import socketserver
import ssl
import subprocess
import threading
import time

import pytest

from skeptest.cluster import unique
from skeptest.run import end_group, popen, wait_until
from skeptest.skep import Skep, free_port
from skeptest.tls import authority, certificate

pytestmark = pytest.mark.own
WITHIN_S = 60


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        if self.server.broken:
            self.send_error(500)
            return
        self.server.told.append((json.loads(body), self.headers, self.path))
        self.server.at.append(time.monotonic())
        self.send_response(200)
        self.send_header('Content-Length', '0')
        self.end_headers()

    def log_message(self, *args):
        pass


class Letters(socketserver.StreamRequestHandler):
    """As much of an SMTP server as a client needs that sends one mail."""

    def handle(self):
        self.say('220 mail.example ESMTP')
        letter = {'to': [], 'login': None, 'tls': False}
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == 'EHLO':
                offers = ['STARTTLS'] if self.server.later and not letter['tls'] else ['AUTH PLAIN']
                self.say('\r\n'.join(['250-mail.example', *('250-' + o for o in offers), '250 8BITMIME']))
            elif verb == 'STARTTLS':
                self.say('220 go on')
                self.connection = self.server.later.wrap_socket(self.connection, server_side=True)
                self.rfile, self.wfile = self.connection.makefile('rb'), self.connection.makefile('wb', 0)
                letter['tls'] = True
            elif verb == 'AUTH':
                letter['login'] = base64.b64decode(line.split()[2]).split(b'\0')[1:]
                self.say('235 in')
            elif verb == 'MAIL':
                letter['from'] = re.search('<(.*?)>', line)[1]
                self.say('250 ok')
            elif verb == 'RCPT':
                letter['to'].append(re.search('<(.*?)>', line)[1])
                self.say('250 ok')
            elif verb == 'DATA':
                self.say('354 go on')
                lines = []
                while (got := self.rfile.readline()) != b'.\r\n':
                    lines.append(got)
                letter['mail'] = email.message_from_bytes(b''.join(lines), policy=email.policy.default)
                self.server.told.append(letter)
                self.say('250 taken')
            elif verb == 'QUIT':
                self.say('221 bye')
                return
            else:
                self.say('250 ok')

    def say(self, text):
        self.wfile.write(text.encode() + b'\r\n')


class Threaded(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        pass                                       # a handshake that fails is what some of the tests are about


def server_side(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


class Receiver:
    """A server on a port of its own, with TLS if it has a certificate, or by STARTTLS (`later`)."""

    def __init__(self, handler, tls=None, later=None):
        self.server = Threaded(('127.0.0.1', 0), handler)
        self.server.told, self.server.at, self.server.broken = [], [], False
        self.server.later = server_side(later) if later else None
        self.port = self.server.server_address[1]
        if tls:
            self.server.socket = server_side(tls).wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def told(self):
        return self.server.told

    def end(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def receiver():
    made = []

    def make(*args):
        made.append(Receiver(*args))
        return made[-1]
    yield make
    for r in made:
        r.end()


@pytest.fixture(scope='module')
def trusted(tmp_path_factory):
    """An authority that Skep trusts, and a certificate of its for localhost."""
    folder = tmp_path_factory.mktemp('trusted')
    made = authority(folder, 'alarms')
    return made, certificate(folder, made, 'localhost')


class Trusting(Skep):
    authority = None

    def argv(self):
        return ['env', 'SSL_CERT_FILE=%s' % self.authority, *super().argv()]


@pytest.fixture(scope='module')
def skep(workdir, trusted):
    s = Trusting(workdir / unique('alarms'), osds=1)
    s.authority = trusted[0][0]
    s.start()
    s.ceph('config', 'set', 'mgr', 'mgr/alerts/interval', '1')
    yield s
    s.kill()
    shutil.rmtree(s.data, ignore_errors=True)


@pytest.fixture(autouse=True)
def nobody_told(skep):
    yield
    if skep.alive:
        for name in ('webhook_url', 'smtp_host', 'smtp_port', 'smtp_ssl', 'smtp_user', 'smtp_password', 'repeat_interval'):
            skep.ceph('config', 'rm', 'mgr', 'mgr/alerts/' + name)
        for name in ('mail', 'webhook'):
            skep.ceph('config-key', 'rm', 'mgr/alerts/told/' + name)
        skep.ceph('osd', 'unset', 'noout')


def option(skep, name, value):
    r = skep.ceph('config', 'set', 'mgr', 'mgr/alerts/' + name, value)
    assert 'does nothing' not in r.err, 'an option that acts'


def mail_to(skep, port, **options):
    options = {'smtp_host': 'localhost', 'smtp_port': port, 'smtp_sender': 'skep@example.org',
               'smtp_destination': 'one@example.org, two@example.org', **options}
    for name, value in sorted(options.items(), key=lambda kv: kv[0] == 'smtp_host'):
        option(skep, name, value)


def alerts(told):
    return {a['labels']['alertname']: a for a in told[0]['alerts']}


def last_of(told, code, status):
    """The newest webhook, if it says this of the check."""
    found = told and alerts(told[-1]).get(code)
    return found if found and found['status'] == status else None


def test_a_webhook_hears_of_the_beginning_and_the_end(skep, receiver):
    hook = receiver(Hook)
    option(skep, 'webhook_url', 'http://me:secret@127.0.0.1:%d/hook?token=t' % hook.port)
    skep.ceph('osd', 'set', 'noout')
    began = wait_until(lambda: last_of(hook.told, 'OSDMAP_FLAGS', 'firing'), WITHIN_S, what='the alert to fire')
    body, headers, path = hook.told[-1]
    assert (body['version'], body['status'], path) == ('4', 'firing', '/hook?token=t')
    assert headers['Authorization'] == 'Basic ' + base64.b64encode(b'me:secret').decode()
    assert headers['Content-Type'] == 'application/json'
    assert began['labels']['severity'] == 'warning' and body['groupLabels']['cluster'] == skep.ceph('fsid').out.strip()
    assert 'noout' in began['annotations']['summary']
    skep.ceph('osd', 'unset', 'noout')
    ended = wait_until(lambda: last_of(hook.told, 'OSDMAP_FLAGS', 'resolved'), WITHIN_S, what='the alert to end')
    assert (ended['fingerprint'], ended['startsAt']) == (began['fingerprint'], began['startsAt'])
    assert ended['endsAt'] > ended['startsAt']


def test_a_mail_over_tls_says_what_changed(skep, receiver, trusted):
    letters = receiver(Letters, trusted[1])
    mail_to(skep, letters.port, smtp_user='alice', smtp_password='rabbit', smtp_from_name='Our cluster')
    skep.ceph('osd', 'set', 'noout')
    wait_until(lambda: any('OSDMAP_FLAGS' in x['mail']['Subject'] for x in letters.told), WITHIN_S, what='the mail')
    letter = letters.told[-1]
    assert letter['login'] == [b'alice', b'rabbit'] and letter['from'] == 'skep@example.org'
    assert letter['to'] == ['one@example.org', 'two@example.org']
    assert letter['mail']['From'] == 'Our cluster <skep@example.org>' and letter['mail']['Date']
    text = letter['mail'].get_content()
    assert '[WRN] OSDMAP_FLAGS: noout flag(s) set' in text and 'handbook' in text
    skep.ceph('osd', 'unset', 'noout')
    wait_until(lambda: 'ended: OSDMAP_FLAGS' in letters.told[-1]['mail']['Subject'], WITHIN_S, what='the mail of the end')


def test_a_password_goes_out_behind_starttls(skep, receiver, trusted):
    letters = receiver(Letters, None, trusted[1])
    mail_to(skep, letters.port, smtp_ssl='false', smtp_user='alice', smtp_password='rabbit')
    skep.ceph('alerts', 'send')
    wait_until(lambda: letters.told, WITHIN_S, what='the mail')
    assert letters.told[0]['tls'] and letters.told[0]['login'] == [b'alice', b'rabbit']


def test_a_receiver_that_fails_is_a_check_and_hears_all_when_it_is_back(skep, receiver):
    hook = receiver(Hook)
    hook.server.broken = True
    option(skep, 'webhook_url', 'http://me:secret@127.0.0.1:%d/' % hook.port)
    skep.ceph('osd', 'set', 'noout')
    checks = lambda: skep.ceph_json('health', 'detail')['checks']
    found = wait_until(lambda: checks().get('ALERTS_WEBHOOK_ERROR'), WITHIN_S, what='the check')
    said = json.dumps(found)
    assert '500' in said and 'secret' not in said
    hook.server.broken = False
    wait_until(lambda: last_of(hook.told, 'OSDMAP_FLAGS', 'firing'), WITHIN_S, what='the alert')
    wait_until(lambda: 'ALERTS_WEBHOOK_ERROR' not in checks(), WITHIN_S, what='the check to end')


def test_who_cannot_prove_who_it_is_gets_no_mail(skep, receiver, tmp_path):
    strangers = authority(tmp_path, 'strangers')
    letters = receiver(Letters, certificate(tmp_path, strangers, 'localhost'))
    mail_to(skep, letters.port)
    skep.ceph('osd', 'set', 'noout')
    found = wait_until(lambda: skep.ceph_json('health', 'detail')['checks'].get('ALERTS_SMTP_ERROR'), WITHIN_S, what='the check')
    assert 'certificate' in json.dumps(found).lower(), found
    assert letters.told == []


def test_a_password_is_not_sent_in_clear(skep, receiver):
    letters = receiver(Letters)
    mail_to(skep, letters.port, smtp_ssl='false', smtp_user='alice', smtp_password='rabbit')
    skep.ceph('osd', 'set', 'noout')
    wait_until(lambda: 'ALERTS_SMTP_ERROR' in skep.ceph_json('health')['checks'], WITHIN_S, what='the check')
    assert letters.told == []
    # Without a password it is a relay that anybody may use.
    option(skep, 'smtp_user', '')
    wait_until(lambda: letters.told, WITHIN_S, what='the mail')
    assert letters.told[0]['login'] is None


def test_it_is_said_again_when_asked_by_hand_and_by_time(skep, receiver):
    assert 'nobody is to be told' in skep.ceph('alerts', 'send', check='fails').err
    hook = receiver(Hook)
    option(skep, 'webhook_url', 'http://127.0.0.1:%d/' % hook.port)
    skep.ceph('osd', 'set', 'noout')
    wait_until(lambda: last_of(hook.told, 'OSDMAP_FLAGS', 'firing'), WITHIN_S, what='the alert')
    first = len(hook.told)
    skep.ceph('alerts', 'send')
    wait_until(lambda: len(hook.told) > first, WITHIN_S, what='what was asked for')
    # A restart says nothing twice: what was told lies in the cluster's state.
    count = len(hook.told)
    skep.stop()
    skep.start()
    option(skep, 'repeat_interval', '2')
    wait_until(lambda: len(hook.told) > count + 1, WITHIN_S, what='the same again')
    assert all(last_of([t], 'OSDMAP_FLAGS', 'firing') for t in hook.told[count:])
    assert len({alerts(t)['OSDMAP_FLAGS']['startsAt'] for t in hook.told}) == 1


def test_who_is_muted_is_not_told(skep, receiver):
    hook = receiver(Hook)
    skep.ceph('osd', 'set', 'noout')
    skep.ceph('health', 'mute', 'OSDMAP_FLAGS')
    option(skep, 'webhook_url', 'http://127.0.0.1:%d/' % hook.port)
    skep.ceph('alerts', 'send')
    wait_until(lambda: hook.told, WITHIN_S, what='how things stand')
    assert 'OSDMAP_FLAGS' not in alerts(hook.told[-1])
    skep.ceph('health', 'unmute', 'OSDMAP_FLAGS')
    wait_until(lambda: last_of(hook.told, 'OSDMAP_FLAGS', 'firing'), WITHIN_S, what='what is not muted any more')


@pytest.fixture
def etcd(tmp_path):
    url, peers = ('http://127.0.0.1:%d' % free_port() for _ in range(2))
    with open(tmp_path / 'etcd.log', 'wb') as log:
        proc = popen(['etcd', '--name', 'one', '--data-dir', tmp_path / 'etcd', '--listen-client-urls', url, '--advertise-client-urls', url,
                      '--listen-peer-urls', peers, '--initial-advertise-peer-urls', peers, '--initial-cluster', 'one=' + peers],
                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield url, proc
    end_group(proc)
    proc.wait(60)


def test_an_outage_of_the_cluster_state_is_told(etcd, receiver, workdir):
    url, proc = etcd
    hook = receiver(Hook)
    skep = Skep(workdir / unique('alarms-etcd'), osds=1, options=['--etcd', url, '--host', 'one', '--create', '--bind', '127.0.0.1'])
    try:
        skep.start()
        option(skep, 'interval', '1')
        option(skep, 'repeat_interval', '10')
        option(skep, 'webhook_url', 'http://127.0.0.1:%d/' % hook.port)
        skep.ceph('alerts', 'send')
        wait_until(lambda: hook.told, WITHIN_S, what='how things stand')
        os.killpg(proc.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: last_of(hook.told, 'CLUSTER_STATE_STALLED', 'firing'), 120, what='the outage to be told')
            # That could not be noted, and is known all the same: it is told again when its time has come, neither never nor at each turn.
            count = len(hook.told)
            wait_until(lambda: len(hook.told) >= count + 2, 120, what='the same twice more')
            at = hook.server.at[count - 1:]
            assert all(later - before > 8 for before, later in zip(at, at[1:])), at
        finally:
            os.killpg(proc.pid, signal.SIGCONT)
        wait_until(lambda: last_of(hook.told, 'CLUSTER_STATE_STALLED', 'resolved'), 120, what='its end')
        wait_until(lambda: 'CLUSTER_STATE_STALLED' not in skep.ceph('config-key', 'get', 'mgr/alerts/told/webhook').out, WITHIN_S,
                   what='what was told to be noted')
    finally:
        skep.kill()
        shutil.rmtree(skep.data, ignore_errors=True)
