"""etcd that encrypts and asks who one is: by user and password, by certificate; and each mistake in that, refused in words
before anything is made.
"""
import subprocess
import time

import pytest

from skeptest.hosts import Etcd
from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own
PREFIX = 'shop'


@pytest.fixture
def pki(tmp_path):
    """Two authorities; of the first one a certificate for etcd on 10.77.0.1, and one for the client `skep`."""
    def openssl(*args):
        run(['openssl', *args], cwd=tmp_path)

    def authority(name):
        openssl('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=' + name, '-keyout', name + '.key',
                '-out', name + '.pem')

    def signed(name, extra):
        (tmp_path / 'ext').write_text(extra)
        openssl('req', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=' + name, '-keyout', name + '.key', '-out', name + '.csr')
        openssl('x509', '-req', '-in', name + '.csr', '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial', '-days', '2',
                '-extfile', 'ext', '-out', name + '.pem')
    authority('ca')
    authority('other')
    signed('server', 'subjectAltName=IP:10.77.0.1\nextendedKeyUsage=serverAuth,clientAuth\n')
    signed('skep', 'extendedKeyUsage=clientAuth\n')
    return tmp_path


class SecureEtcd(Etcd):
    """One member on a host, over TLS; with `ask_certificate` it wants the client's too."""

    def __init__(self, host, data, pki, ask_certificate):
        super().__init__(host, data)
        self.pki, self.ask = pki, ask_certificate

    @property
    def url(self):
        return 'https://%s:2379' % self.host.ip

    def start(self, members=None):
        ask = ['--client-cert-auth', '--trusted-ca-file', self.pki / 'ca.pem'] * self.ask
        with open(self.log, 'ab') as log:
            self.proc = popen(self.host.argv([
                'etcd', '--name', 'one', '--data-dir', self.data, '--cert-file', self.pki / 'server.pem',
                '--key-file', self.pki / 'server.key', *ask, '--listen-client-urls', self.url, '--advertise-client-urls', self.url,
                '--listen-peer-urls', 'http://127.0.0.1:2380', '--initial-advertise-peer-urls', 'http://127.0.0.1:2380',
                '--initial-cluster', 'one=http://127.0.0.1:2380']), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.members = members
        wait_until(lambda: self.ctl('endpoint', 'health', check=None).returncode == 0, 30, 0.2, 'etcd')

    def ctl(self, *args, user='root:root', **kw):
        who = ['--user', user] if getattr(self, 'auth', False) else []
        cert = ['--cert', self.pki / 'skep.pem', '--key', self.pki / 'skep.key'] * self.ask
        return run(self.host.argv(['etcdctl', '--endpoints', self.url, '--cacert', self.pki / 'ca.pem', *cert, *who, *args]),
                   env={'ETCDCTL_API': '3'}, **kw)

    def ask_users(self):
        """From now on only root, and `skep` below the prefix."""
        for args in (('user', 'add', 'root:root'), ('role', 'add', 'root'), ('user', 'grant-role', 'root', 'root'), ('role', 'add', 'skep'),
                     ('role', 'grant-permission', 'skep', 'readwrite', PREFIX + '/', '--prefix=true'),
                     ('user', 'add', 'skep:secret'), ('user', 'grant-role', 'skep', 'skep'), ('auth', 'enable')):
            self.ctl(*args)
        self.auth = True


@pytest.fixture
def etcd(hosts, pki):
    made = []

    def make(ask_certificate=False):
        group = hosts(2)
        group.etcd_urls = []
        etcd = SecureEtcd(group[0], group[0].data.with_name('secure-etcd'), pki, ask_certificate)
        made.append(etcd)
        etcd.start()
        return group, etcd
    yield make
    for e in made:
        e.kill()


def works(*hosts):
    pool = hosts[0].make_copies(2, pg_num=8)
    for n, host in enumerate(hosts):
        host.rados(pool, 'put', 'o%d' % n, '-', stdin=b'%d' % n * 1000)
        assert host.rados(pool, 'get', 'o%d' % n, '-').out_bytes == b'%d' % n * 1000


def test_user_and_password_over_tls(etcd, pki, tmp_path):
    group, etcd = etcd()
    a, b = group
    etcd.ask_users()
    password = tmp_path / 'password'
    password.write_text('secret\n')
    (tmp_path / 'wrong').write_text('guess\n')
    base = ['--etcd', etcd.url, '--etcd-prefix', PREFIX]
    ca, user = ['--etcd-cacert', pki / 'ca.pem'], ['--etcd-user', 'skep:%s' % password]

    def refused(why, *options):
        """At once, in words, and nothing was made."""
        command = [find_binary(), 'up', '--data', a.data, '--bind', a.ip, '--host', 'h1', '--create', *options]
        r = run(['timeout', '30', *a.argv(command)], check='fails')
        assert r.returncode != 124 and why in r.err and not (a.data / 'skep.toml').exists(), (why, r.returncode, r.err)

    def secret(file):
        return ['--etcd-user', 'skep:%s' % file]
    refused('needs the certificate of its authority', *base, *user)
    refused('nothing', *base, *user, '--etcd-cacert', tmp_path / 'nothing')
    refused('no trusted connection', *base, *user, '--etcd-cacert', pki / 'other.pem')
    refused('ertificate', *base, *user, '--etcd-cacert', password)
    refused('asks for a user and a password', *base, *ca)
    refused('invalid user ID or password', *base, *ca, *secret(tmp_path / 'wrong'))
    refused('nothing', *base, *ca, *secret(tmp_path / 'nothing'))
    refused('NAME:FILE', *base, *ca, '--etcd-user', 'skep')
    refused('denies its user the keys', '--etcd', etcd.url, '--etcd-prefix', 'elsewhere', *ca, *user)
    a.up(create=True, options=[*base, *ca, *user])
    conf = tmp_path / 'skep.toml'
    conf.write_text('etcd = ["%s"]\netcd-prefix = "%s"\netcd-cacert = "%s"\netcd-user = "skep"\netcd-password-file = "%s"\n'
                    'bind = "%s"\nhost = "h2"\njoin = true\nosds = 1\n' % (etcd.url, PREFIX, pki / 'ca.pem', password, b.ip))
    plain = b.argv
    b.argv = lambda command=None: plain(command or [find_binary(), 'up', '--data', b.data, '--config', conf])
    b.start(60)
    works(a, b)
    assert password.read_text().strip() not in (a.data / 'skep.toml').read_text()
    # The password changes under way: all wait, and go on when the file has it, too.
    etcd.ctl('user', 'passwd', 'skep', '--interactive=false', stdin=b'changed\n')
    password.write_text('changed')
    a.ceph('osd', 'set', 'noout', timeout=60)
    wait_until(lambda: all(o['up'] for o in a.ceph_json('osd', 'dump')['osds']), 30, 0.3, 'all OSDs to be up')
    works(a, b)
    # The other way round: nobody serves for long without a lease, and all come back.
    etcd.ctl('user', 'passwd', 'skep', '--interactive=false', stdin=b'again\n')
    time.sleep(4)
    password.write_text('again')
    a.ceph('osd', 'unset', 'noout', timeout=60)
    wait_until(lambda: all(o['up'] for o in a.ceph_json('osd', 'dump')['osds']), 30, 0.3, 'all OSDs to be up again')
    works(a, b)
    assert a.alive and b.alive


def test_certificates_of_clients(etcd, pki):
    group, etcd = etcd(ask_certificate=True)
    a, b = group
    base = ['--etcd', etcd.url, '--etcd-cacert', pki / 'ca.pem']
    both = pki / 'both.pem'
    both.write_text((pki / 'skep.pem').read_text() + (pki / 'skep.key').read_text())
    a.up(create=True, options=[*base, '--etcd-cert', both])
    # As it was said before.
    b.up(join=True, options=[*base, '--etcd-cert', pki / 'skep.pem', '--etcd-key', pki / 'skep.key'])
    works(a, b)
    # A later start needs no words: it remembers where the files are.
    a.stop()
    a.first, a.options = [], []
    a.start(60)
    works(b, a)
