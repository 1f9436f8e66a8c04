"""Keystone for tests: one that is played here, which checks what it is asked, and Debian's own, from its Python package, with a database in a file."""
import base64
import datetime
import hashlib
import hmac
import http.server
import json
import os
import secrets
import sqlite3
import ssl
import sys
import threading

import requests

from skeptest import tls
from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import free_port

SERVICE_PASSWORD = 'pass=word with "things"'


def settings(place, keystone, **more):
    """The file of `--s3-keystone`."""
    path = place / ('keystone-%s' % secrets.token_hex(4))
    said = {'url': keystone.url + '/v3', 'user': 'skep', 'password': SERVICE_PASSWORD, 'project': 'service', **more}
    if keystone.ca:
        said['ca'] = keystone.ca
    path.touch(0o600)
    path.write_text(''.join('%s = %s\n' % pair for pair in said.items()))
    return path


class Ec2:
    """A key of EC2, as `skeptest.s3.Server.client` takes users."""

    def __init__(self, access, secret):
        self.access, self.secret = access, secret


class Played:
    """Users, projects, tokens and keys in memory, served by HTTPS. `asked` has what it was asked."""

    def __init__(self, place, endpoint):
        """`place`: where its certificates go. `endpoint`: the gateway's URL, for the catalog."""
        authority = tls.authority(place, 'keystone')
        certificate, key = tls.certificate(place, authority, 'localhost')
        self.ca, self.endpoint, self.lock, self.port = str(authority[0]), endpoint, threading.RLock(), free_port()
        self.url = 'https://localhost:%d' % self.port
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.users, self.projects, self.tokens, self.credentials, self.asked, self.server = {}, {}, {}, {}, [], None
        self.project('service')
        self.user('skep', SERVICE_PASSWORD, service=['admin'])

    def project(self, name):
        return self.projects.setdefault(name, secrets.token_hex(16))

    def user(self, name, password, **roles):
        self.users[name] = {'id': secrets.token_hex(16), 'password': password, 'roles': roles, 'enabled': True}
        return self.users[name]['id']

    def ec2(self, user, project):
        made = Ec2(secrets.token_hex(16), secrets.token_hex(16))
        self.credentials[made.access] = (user, project, made.secret)
        return made

    def start(self):
        played = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def log_message(self, *_):
                pass

            def do_GET(self):
                self.answer('GET', None)

            def do_POST(self):
                self.answer('POST', json.loads(self.rfile.read(int(self.headers['Content-Length']))))

            def answer(self, method, body):
                with played.lock:
                    played.asked.append((method, self.path))
                    status, said, headers = played.answer(method, self.path.split('?')[0], self.headers, body)
                text = json.dumps(said).encode()
                self.send_response(status)
                for name, value in {**headers, 'Content-Type': 'application/json', 'Content-Length': str(len(text))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(('127.0.0.1', self.port), Handler)
        self.server.socket = self.context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def stop(self):
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None

    def token(self, user, project, seconds=3600):
        """One that a client would get by password."""
        with self.lock:
            return self.made(user, project, seconds)[0]

    def made(self, user, project, seconds=3600):
        token = 'gAAAAA' + secrets.token_urlsafe(120)
        ends = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        of = self.users[user]
        said = {'methods': ['password'], 'user': {'id': of['id'], 'name': user, 'domain': {'id': 'default', 'name': 'Default'}},
                'project': {'id': self.projects[project], 'name': project, 'domain': {'id': 'default', 'name': 'Default'}},
                'roles': [{'id': secrets.token_hex(16), 'name': role} for role in of['roles'].get(project, [])],
                'issued_at': '2020-01-01T00:00:00.000000Z', 'expires_at': ends.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
                'audit_ids': ['x'], 'catalog': [{'type': 'object-store', 'name': 'swift', 'id': 'x', 'endpoints': [
                    {'interface': 'public', 'region': 'RegionOne', 'region_id': 'RegionOne', 'id': 'y',
                     'url': '%s/swift/v1/AUTH_%s' % (self.endpoint, self.projects[project])}]}]}
        self.tokens[token] = said
        return token, said

    def count(self, path):
        return sum(1 for _, asked in list(self.asked) if asked.startswith(path))

    def good(self, token):
        said = self.tokens.get(token)
        ended = said and datetime.datetime.fromisoformat(said['expires_at'][:-1]) <= datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
        return None if ended else said

    def answer(self, method, path, headers, body):
        refused = lambda status: (status, {'error': {'code': status}}, {})
        if (method, path) == ('POST', '/v3/auth/tokens'):
            given = body['auth']['identity']['password']['user']
            scope = body['auth'].get('scope', {}).get('project', {})
            of = self.users.get(given['name'])
            assert given['domain'] in ({'name': 'Default'}, {'id': 'default'}) and scope['domain'] in ({'name': 'Default'}, {'id': 'default'})
            if not of or of['password'] != given['password'] or not of['enabled'] or scope['name'] not in of['roles']:
                return refused(401)
            token, said = self.made(given['name'], scope['name'])
            return 201, {'token': said}, {'X-Subject-Token': token}
        if path in ('/v3', '/v3/'):
            return 200, {'version': {'id': 'v3.14', 'status': 'stable', 'links': [{'rel': 'self', 'href': self.url + '/v3/'}]}}, {}
        own = self.good(headers.get('X-Auth-Token'))
        if not own:
            return refused(401)
        if 'admin' not in [role['name'] for role in own['roles']]:
            return refused(403)
        if (method, path) == ('GET', '/v3/auth/tokens'):
            said = self.good(headers.get('X-Subject-Token'))
            return (200, {'token': said}, {}) if said else refused(404)
        if (method, path) == ('POST', '/v3/s3tokens'):
            return self.s3_token(body['credentials'], refused)
        for access, (user, project, secret) in self.credentials.items():
            if (method, path) == ('GET', '/v3/credentials/' + hashlib.sha256(access.encode()).hexdigest()):
                blob = json.dumps({'access': access, 'secret': secret, 'trust_id': None})
                of = {'type': 'ec2', 'id': path.split('/')[-1], 'blob': blob, 'user_id': self.users[user]['id'], 'project_id': self.projects[project]}
                return 200, {'credential': of}, {}
        return refused(404)

    def s3_token(self, given, refused):
        """As Keystone checks a signature of version 4: over the text that it is given."""
        if given['access'] not in self.credentials:
            return refused(401)
        user, project, secret = self.credentials[given['access']]
        text = base64.urlsafe_b64decode(given['token'])
        algorithm, _, scope, _ = text.decode().split('\n')
        date, region, service, end = scope.split('/')
        key = b'AWS4' + secret.encode()
        for part in (date, region, service, end):
            key = hmac.new(key, part.encode(), hashlib.sha256).digest()
        right = hmac.new(key, text, hashlib.sha256).hexdigest()
        if algorithm != 'AWS4-HMAC-SHA256' or (service, end) != ('s3', 'aws4_request') or given['signature'] != right or not self.users[user]['enabled']:
            return refused(401)
        return 200, {'token': self.made(user, project)[1]}, {}


CONF = """[DEFAULT]
log_file = %(place)s/keystone.log
[database]
connection = sqlite:///%(place)s/keystone.db
[token]
provider = fernet
[fernet_tokens]
key_repository = %(place)s/fernet
[credential]
key_repository = %(place)s/credential
[cache]
enabled = false
"""
SERVE = """
import sys
from wsgiref.simple_server import make_server
port = int(sys.argv[1])
sys.argv = ['keystone']
from keystone.server.wsgi import initialize_public_application
make_server('127.0.0.1', port, initialize_public_application()).serve_forever()
"""


class Real:
    """Debian's Keystone (python3-keystone) as a process, in plain HTTP on loopback."""

    ca = None

    def __init__(self, place, endpoint):
        self.place, self.endpoint, self.port, self.proc = place, endpoint, free_port(), None
        self.url = 'http://127.0.0.1:%d' % self.port
        self.env = {'OS_KEYSTONE_CONFIG_DIR': str(place), 'OS_KEYSTONE_CONFIG_FILES': str(place / 'keystone.conf')}

    def manage(self, *words):
        code = 'import sys; from keystone.cmd.manage import main; sys.argv[0] = "keystone-manage"; main()'
        return run([sys.executable, '-c', code, '--config-file', self.place / 'keystone.conf', *words], timeout=180, env={**os.environ, **self.env})

    def start(self):
        for name in 'fernet', 'credential':
            (self.place / name).mkdir(mode=0o700)
        (self.place / 'keystone.conf').write_text(CONF % {'place': self.place})
        self.manage('db_sync')
        # Else a transaction that reads, and that it leaves open, keeps it from writing.
        database = sqlite3.connect(self.place / 'keystone.db')
        assert database.execute('PRAGMA journal_mode=WAL').fetchone() == ('wal',)
        database.close()
        me = ['--keystone-user', 'root', '--keystone-group', 'root']
        self.manage('fernet_setup', *me)
        self.manage('credential_setup', *me)
        self.manage('bootstrap', '--bootstrap-password', 'admin', '--bootstrap-region-id', 'RegionOne', '--bootstrap-public-url', self.url + '/v3')
        with open(self.place / 'server.log', 'wb') as log:
            self.proc = popen([sys.executable, '-c', SERVE, self.port], self.env, stdout=log, stderr=log)

        def ready():
            assert self.proc.poll() is None, (self.place / 'server.log').read_text()
            try:
                return requests.get(self.url + '/v3', timeout=10).status_code == 200
            except requests.ConnectionError:
                return False
        wait_until(ready, 120, 0.2, 'Keystone to serve')
        self.admin = self.token('admin', 'admin', 'admin')
        roles = {r['name']: r['id'] for r in self.ask('GET', '/roles')['roles']}
        self.roles, self.projects, self.users = roles, {}, {}
        service = self.ask('POST', '/services', {'service': {'type': 'object-store', 'name': 'swift'}})['service']['id']
        self.ask('POST', '/endpoints', {'endpoint': {'service_id': service, 'interface': 'public', 'region_id': 'RegionOne',
                                                     'url': self.endpoint + '/swift/v1/AUTH_%(project_id)s'}})
        self.user('skep', SERVICE_PASSWORD, service=['admin'])
        return self

    def stop(self):
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)
            self.proc = None

    def ask(self, method, path, body=None):
        r = requests.request(method, self.url + '/v3' + path, json=body, headers={'X-Auth-Token': self.admin}, timeout=60)
        assert r.ok, (method, path, r.status_code, r.text)
        return r.json() if r.text else None

    def project(self, name):
        if name not in self.projects:
            made = self.ask('POST', '/projects', {'project': {'name': name, 'domain_id': 'default'}})
            self.projects[name] = made['project']['id']
        return self.projects[name]

    def user(self, name, password, **roles):
        made = self.ask('POST', '/users', {'user': {'name': name, 'password': password, 'domain_id': 'default'}})
        self.users[name] = (made['user']['id'], password)
        for project, all_ in roles.items():
            for role in all_:
                self.ask('PUT', '/projects/%s/users/%s/roles/%s' % (self.project(project), made['user']['id'], self.roles[role]))
        return made['user']['id']

    def token(self, user, project, password=None):
        domain = {'id': 'default'}
        given = {'name': user, 'domain': domain, 'password': password or self.users[user][1]}
        body = {'auth': {'identity': {'methods': ['password'], 'password': {'user': given}}, 'scope': {'project': {'name': project, 'domain': domain}}}}
        r = requests.post(self.url + '/v3/auth/tokens', json=body, timeout=60)
        assert r.status_code == 201, r.text
        return r.headers['X-Subject-Token']

    def revoke(self, token):
        r = requests.delete(self.url + '/v3/auth/tokens', headers={'X-Auth-Token': self.admin, 'X-Subject-Token': token}, timeout=60)
        assert r.status_code == 204, r.text

    def ec2(self, user, project):
        made = self.ask('POST', '/users/%s/credentials/OS-EC2' % self.users[user][0], {'tenant_id': self.projects[project]})['credential']
        return Ec2(made['access'], made['secret'])

    def remove_ec2(self, user, key):
        self.ask('DELETE', '/users/%s/credentials/OS-EC2/%s' % (self.users[user][0], key.access))
