"""Who gets in, who does not, and what strangers can try."""
import re
import socket

import pytest

from skeptest.cluster import unique
from skeptest.console import Browser, entity, words
from skeptest.run import wait_until

pytestmark = [pytest.mark.own, pytest.mark.cephx]


def test_without_a_session_every_page_leads_to_the_login(served):
    browser = Browser(served.url)
    for path in ('/', '/osds', '/image?pool=a&image=b', '/nothing'):
        r = browser.session.get(served.url + path, allow_redirects=False)
        assert (r.status_code, r.headers['Location']) == (303, '/login')
        assert 'Log in' not in r.text and r.text == ''
    part = browser.session.get(served.url + '/', headers={'HX-Request': 'true'}, allow_redirects=False)
    assert (part.status_code, part.headers['HX-Redirect']) == (401, '/login')
    assert browser.post('/do', 303, act='flag-set', flag='noout').headers['Location'] == '/login'


def test_a_session_begins_and_ends(served, admin_key):
    browser = Browser(served.url)
    r = browser.login('client.admin', admin_key)
    cookie = r.headers['Set-Cookie']
    assert 'HttpOnly' in cookie and 'SameSite=Strict' in cookie and 'Path=/' in cookie
    assert 'client.admin may change things' in browser.read('/')
    kept = browser.session.cookies.copy()
    browser.post('/logout', 303, csrf=browser.token)
    browser.session.cookies = kept
    r = browser.session.get(served.url + '/', allow_redirects=False)
    assert r.headers['Location'] == '/login', 'the cookie is good for nothing after the logout'


def test_a_second_login_ends_the_first_session(served, admin_key):
    browser = Browser(served.url)
    browser.login('client.admin', admin_key)
    first = browser.session.cookies.copy()
    browser.login('client.admin', admin_key)
    assert 'may change things' in browser.read('/')
    browser.session.cookies = first
    assert browser.session.get(served.url + '/', allow_redirects=False).status_code == 303


def test_wrong_keys_names_and_capabilities(served, admin_key):
    other = entity(served, 'client.other', mon='allow r')
    blind = entity(served, 'client.blind', osd='allow *')
    browser = Browser(served.url, '127.0.0.3')
    for name, key in [('client.admin', other), ('client.nobody', admin_key), ('client.admin', ''), ('', admin_key),
                      ('client.admin', 'no key at all'), ('osd.0', admin_key)]:
        assert 'No entity of this name has this key' in words(browser.login(name, key, 403).text)
    assert 'may not read the cluster' in words(browser.login('client.blind', blind, 403).text)
    assert not browser.session.cookies
    browser.login('client.admin', admin_key)


def test_who_guesses_shuts_out_nobody(served, admin_key):
    """Wrong keys wait for their answer; a right one gets in at once, from the same address, too."""
    browser = Browser(served.url, '127.0.0.4')
    for _ in range(12):
        browser.login('client.admin', 'AAAA', 403)
    browser.login('client.admin', admin_key)
    Browser(served.url, '127.0.0.5').login('client.admin', admin_key)


def test_a_session_ends_with_its_key_and_with_its_right_to_read(served):
    name = 'client.' + unique('gone')
    browser = Browser(served.url)
    browser.login(name, entity(served, name, mon='allow rw'))
    assert 'may change things' in browser.read('/')
    served.ceph('auth', 'caps', name, 'mon', 'allow r')
    wait_until(lambda: 'reads only' in browser.read('/'), 60, 0.2, 'the capabilities to hold')
    served.ceph('auth', 'rm', name)

    def out():
        r = browser.session.get(served.url + '/', allow_redirects=False)
        return r.status_code == 303 and r.headers['Location'] == '/login'
    wait_until(out, 60, 0.2, 'the session to end with its key')


def test_grants_for_a_network_hold_where_the_browser_is(served):
    """The cluster sees the console's address alone: what a grant is for is looked at here."""
    for n, caps in enumerate([{'osd': 'allow rwx network 127.0.0.8/32'}, {'osd': 'allow r', 'mgr': 'allow r network 127.0.0.8/32'}]):
        name = 'client.' + unique('near')
        key = entity(served, name, mon='allow rw', **caps)
        far, near = Browser(served.url, '127.0.0.%d' % (20 + n)), Browser(served.url, '127.0.0.8')
        assert 'may not read the cluster' in words(far.login(name, key, 403).text)
        near.login(name, key)
        assert 'may change things' in near.read('/')
        far.session.cookies = near.session.cookies.copy()
        assert 'may not read the cluster' in words(far.get('/', 403).text)


def test_strangers_do_not_write_the_log(served):
    browser = Browser(served.url, '127.0.0.11')
    pasted, long = 'AQDZkV1lAAAAABAAyT8BXmVYpVUnHxxVnRnxVw==', 'client.' + 'long' * 2000
    for name, told in ((pasted, 'a name that is none'), (long, 'a name that is none'), ('client.stranger', 'client.stranger')):
        # Of refusals of all kinds one a second is written, once there were many.
        def is_told():
            before = served.log.stat().st_size
            browser.login(name, 'x', 403)
            return ('not let in as ' + told).encode() in served.log.read_bytes()[before:]
        wait_until(is_told, 120, 1, 'a line about ' + told)
    log = served.log.read_text(errors='replace')
    assert pasted not in log and 'longlong' not in log


def test_names_that_point_here_from_elsewhere(served, admin):
    for host in ('evil.example', 'evil.example:8443', 'localhost.evil.example', '10.0.0.1', ''):
        r = admin.session.get(served.url + '/', headers={'Host': host}, allow_redirects=False)
        assert r.status_code == 421 and 'csrf' not in r.text, host
    port = served.url.rsplit(':', 1)[1]
    r = admin.session.get(served.url + '/login', headers={'Host': 'localhost:' + port})
    assert r.status_code == 200


def test_forged_changes(served, admin):
    flags = lambda: served.ceph_json('osd', 'dump')['flags']       # noqa: E731
    form = {'act': 'flag-set', 'flag': 'noout', 'sure': 'yes'}
    token = admin.token
    for wrong in ('', token[:-1] + ('0' if token[-1] != '0' else '1'), token.upper() + 'x'):
        admin.post('/do', 403, csrf=wrong, **form)
    admin.post('/do', 403, **form)
    for headers in ({'Origin': 'http://evil.example'}, {'Origin': 'null'}, {'Sec-Fetch-Site': 'cross-site'}):
        admin.post('/do', 403, headers=headers, csrf=token, **form)
        admin.post('/login', 403, headers=headers, entity='client.admin', key='x')
    other = Browser(served.url)
    other.login('client.admin', served.ceph('auth', 'print-key', 'client.admin').out.strip())
    admin.post('/do', 403, csrf=other.token, **form)
    admin.post('/logout', 403, csrf='')
    assert 'noout' not in flags()
    # A change is never made by asking for a page.
    admin.get('/do', 404, csrf=token, **form)
    assert 'noout' not in flags()


def test_heads_of_answers(served, admin):
    for path in ('/', '/login', '/nothing', '/static/icon.svg'):
        r = admin.session.get(served.url + path)
        policy = r.headers['Content-Security-Policy']
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and 'unsafe' not in policy
        assert r.headers['X-Frame-Options'] == 'DENY' and r.headers['X-Content-Type-Options'] == 'nosniff'
        if not path.startswith('/static'):
            assert r.headers['Cache-Control'] == 'no-store'
    page = admin.get('/').text
    assert not re.search(r'\b(src|href)="(https?:)?//', page), 'nothing comes from elsewhere'
    assert not re.search(r'\bstyle=|<style|\bon[a-z]+=|<script(?! src=)', page), 'nothing in line'


def test_long_forms_and_strange_methods(served, admin):
    r = admin.session.post(served.url + '/do', data={'csrf': admin.token, 'act': 'x' * 40_000})
    assert r.status_code == 413
    assert admin.session.delete(served.url + '/').status_code == 405
    assert admin.session.get(served.url + '/' + 'x' * 20_000).status_code in (414, 431, 400)
    assert 'Health' in admin.read('/')


def test_connections_that_say_nothing_hold_up_nobody(served, admin):
    port = int(served.url.rsplit(':', 1)[1])
    idle = []
    try:
        for _ in range(140):        # more than there are places, and than one address may have
            idle.append(socket.create_connection(('127.0.0.1', port), source_address=('127.0.0.6', 0)))
        idle[0].sendall(b'POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\na')
        assert 'Health' in admin.read('/')
        served.admin('skep status')
    finally:
        for s in idle:
            s.close()
