"""TLS beyond loopback: a certificate that is made, files that are named and change; and how the role starts."""
import shutil
import socket
import ssl

import pytest
import requests

from skeptest.console import Browser, entity, key_of, ready
from skeptest.run import wait_until
from skeptest.skep import free_port
from skeptest.tls import self_signed

pytestmark = [pytest.mark.own, pytest.mark.cephx]


def trusts(url, crt):
    try:
        return Browser(url, verify=str(crt)).get('/login').status_code == 200
    except requests.exceptions.SSLError:
        return False


def test_beyond_loopback_there_is_tls_alone(own):
    port = free_port()
    every = '[::]' if socket.has_dualstack_ipv6() else '0.0.0.0'
    skep = own(options=['--console', '--console-listen', '%s:%d' % (every, port), '--metrics-port', '0']).start()
    url, crt = 'https://127.0.0.1:%d' % port, skep.data / 'console.crt'
    wait_until(crt.exists, 60, 0.1, 'the certificate')
    assert (skep.data / 'console.key').stat().st_mode & 0o077 == 0
    ready(url, verify=str(crt))
    with pytest.raises(requests.ConnectionError):
        requests.get('http://127.0.0.1:%d/login' % port, timeout=60)
    browser = Browser(url, verify=str(crt))
    cookie = browser.login('client.admin', key_of(skep, 'client.admin')).headers['Set-Cookie']
    assert cookie.startswith('__Host-skep-console=') and 'Secure' in cookie
    browser.act('flag-set', flag='noscrub')
    assert 'noscrub' in skep.ceph_json('osd', 'dump')['flags']
    assert 'console' in skep.roles() or any(r.startswith('console.') for r in skep.roles())
    # To a socket of version 6 we come from ::ffff:127.0.0.1, which is 127.0.0.1.
    near = entity(skep, 'client.near', mon='allow r', osd='allow r network 127.0.0.1/32')
    Browser(url, verify=str(crt)).login('client.near', near)
    before = crt.read_bytes()
    assert skep.stop() == 0
    skep.start()
    ready(url, verify=str(crt))
    assert crt.read_bytes() == before, 'it is made once'


def test_certificates_that_change(own, tmp_path):
    (a, a_key), (b, b_key) = self_signed(tmp_path, 'a'), self_signed(tmp_path, 'b')
    crt, key, port = tmp_path / 'now.crt', tmp_path / 'now.key', free_port()
    skep = own(options=['--console', '--console-listen', '127.0.0.1:%d' % port, '--console-cert', crt, '--console-key', key,
                        '--metrics-port', '0']).start()
    url = 'https://127.0.0.1:%d' % port
    wait_until(lambda: 'now.crt is not there' in skep.log.read_text(), 60, 0.1, 'the warning')
    shutil.copy(a, crt)
    shutil.copy(a_key, key)
    ready(url, verify=str(a))
    assert not trusts(url, b)
    shutil.copy(b, crt)
    wait_until(lambda: 'stays in use' in skep.log.read_text(), 60, 0.1, 'the warning of half a pair')
    assert trusts(url, a)
    shutil.copy(b_key, key)
    wait_until(lambda: trusts(url, b), 60, 0.2, 'the other certificate')
    key.write_text('nonsense')
    wait_until(lambda: 'no key in PEM' in skep.log.read_text(), 60, 0.1, 'the warning')
    assert trusts(url, b)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.minimum_version = ssl.TLSVersion.TLSv1_3
    assert ssl.get_server_certificate(('127.0.0.1', port)).strip() == b.read_text().strip()


def test_a_port_that_is_taken_holds_up_nothing(own, served):
    port = served.url.rsplit(':', 1)[1]
    skep = own(options=['--console', '--console-listen', '127.0.0.1:' + port, '--metrics-port', '0']).start()
    wait_until(lambda: 'no console yet' in skep.log.read_text(), 60, 0.1, 'the warning')
    assert skep.ceph_json('status')['health']['status'].startswith('HEALTH_')
    assert skep.stop() == 0


def test_without_keys_there_is_no_console(own):
    skep = own(auth='none', options=['--console', '--metrics-port', '0'])
    r = skep.cli(*skep.argv()[1:], check='fails')
    assert 'with --auth none there are none' in r.err
    r = own(options=[]).cli('up', '--data', skep.data.with_name('x'), '--console-listen', '127.0.0.1:1', check='fails')
    assert '--console' in r.err
