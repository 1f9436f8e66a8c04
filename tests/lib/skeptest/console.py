"""The console as a browser without JavaScript uses it: pages, forms, cookies."""
import html
import re

import requests
from requests.adapters import HTTPAdapter

from skeptest.run import wait_until

WITHIN_S = 90


class _From(HTTPAdapter):
    """Connections from one of this machine's addresses: failed attempts are counted by address."""

    def __init__(self, address):
        self.address = address
        super().__init__()

    def init_poolmanager(self, *args, **kw):
        super().init_poolmanager(*args, source_address=(self.address, 0), **kw)


def key_of(cluster, entity):
    return cluster.ceph('auth', 'print-key', entity).out.strip()


def entity(cluster, name, **caps):
    """Makes an entity; its key."""
    words = [w for service, cap in caps.items() for w in (service, cap)]
    cluster.ceph('auth', 'get-or-create', name, *words)
    return key_of(cluster, name)


def words(page):
    """The text of a page, as one who reads it sees it."""
    text = re.sub(r'<(script|style|title)\b.*?</\1>', ' ', page, flags=re.S)
    return ' '.join(html.unescape(re.sub(r'<[^>]*>', ' ', text)).split())


class Browser:
    """Somebody in front of a console."""

    def __init__(self, url, source='127.0.0.1', verify=True):
        self.url, self.session = url, requests.Session()
        self.session.verify = verify
        self.session.trust_env = False
        self.session.mount(url, _From(source))

    def get(self, path='/', status=200, **query):
        r = self.session.get(self.url + path, params=query, timeout=WITHIN_S)
        assert r.status_code == status, '%s %s: %s' % (path, r.status_code, words(r.text)[:2000])
        return r

    def read(self, path='/', **query):
        return words(self.get(path, **query).text)

    def post(self, path, status, headers=None, **fields):
        r = self.session.post(self.url + path, data=fields, timeout=WITHIN_S, allow_redirects=False, headers=headers)
        assert r.status_code == status, '%s %s: %s' % (path, r.status_code, words(r.text)[:2000])
        return r

    def login(self, name, key, status=303):
        return self.post('/login', status, entity=name, key=key)

    @property
    def token(self):
        return re.search(r'name="csrf" value="([0-9a-f]+)"', self.get('/').text)[1]

    def act(self, act, status=303, sure='yes', **fields):
        """An act, as its form and the page after it send it."""
        fields = {k.replace('_', '-'): v for k, v in fields.items()}
        if sure:
            fields['sure'] = sure
        return self.post('/do', status, csrf=self.token, act=act, **fields)


def ready(url, **kw):
    """Waits until a console answers."""
    def up():
        try:
            return Browser(url, **kw).get('/login')
        except requests.ConnectionError:
            return False
    wait_until(up, WITHIN_S, 0.1, 'the console to answer')
    return url
