"""Options of the cluster that gateways act upon, by the names that Ceph has for them: the gateway of a node follows them, one by itself
reads them when it starts, and what its command line says counts more."""
import base64
import http.client
import json
import os

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, Server, User, admin, bytes_of, refused
from skeptest.skep import find_binary, free_port

pytestmark = pytest.mark.own
OPTIONS = {'rgw_dns_name': 's3.test, eu.s3.test', 'rgw_dns_s3website_name': 'web.test', 'rgw_enable_apis': 's3,swift',
           'rgw_swift_url': 'https://swift.test', 'rgw_crypt_require_ssl': 'false', 'rgw_enable_usage_log': 'true', 'rgw_gc_obj_min_wait': '1'}


def get(port, host, path='/', method='GET', **headers):
    """Status, headers and body; a gateway that begins anew takes nothing for a moment."""
    c = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
    try:
        c.request(method, path, headers={'Host': host, **{k.replace('_', '-'): v for k, v in headers.items()}})
        answer = c.getresponse()
        return answer.status, answer.headers, answer.read()
    except (OSError, http.client.HTTPException):
        return 0, {}, b''
    finally:
        c.close()


def set_all(skep, who, options):
    for name, value in options.items():
        r = skep.ceph('config', 'set', who, name, value)
        assert 'does nothing' not in r.out + r.err, r


def stripes(skep):
    return skep.run('rados', '-p', 's3.data', 'ls').out.split()


def usage(skep, user):
    """Operations of a user that were written down."""
    r = run([find_binary(), 's3', 'usage', 'show', '--uid', user.name, '-c', skep.conf, '-f', 'json'])
    return {c['category']: c['ops'] for s in json.loads(r.out)['summary'] for c in s['categories']}


def fill(s3, bucket):
    """What anybody may read, with a website."""
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key='k', Body=bytes_of(300000))
    allow = {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % bucket}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Statement': allow}))
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration={'IndexDocument': {'Suffix': 'k'}})


def puts(s3, **what):
    """Whether it puts an object: it may be refused, or the gateway begins anew."""
    try:
        s3.put_object(Bucket='bucket', **what)
        return True
    except (BotoCoreError, ClientError):
        return False


def served(port, bucket, body):
    return get(port, bucket + '.s3.test', '/k')[2] == body


@pytest.mark.long
def test_a_node_follows_them(own, tmp_path):
    """Its gateway begins anew for it, each time after half a minute at least."""
    port, keys = free_port(), tmp_path / 'keys'
    keys.write_text('one %s\n' % base64.b64encode(os.urandom(32)).decode())
    keys.chmod(0o600)
    skep = own(osds=1, options=['--s3', '--s3-listen', '127.0.0.1:%d' % port, '--s3-master-key', keys, '--metrics-port', '0']).start()
    user = User(skep, 'alice')
    swift = admin(skep, 'subuser', 'create', '--uid', user.name, '--subuser', 'swift', '--access', 'full')['swift_keys'][0]
    log_in = {'x_auth_user': swift['user'], 'x_auth_key': swift['secret_key']}
    s3, sealed, body = Server(port).client(user), {'SSECustomerAlgorithm': 'AES256', 'SSECustomerKey': os.urandom(32)}, bytes_of(300000)
    wait_until(lambda: get(port, 'x')[0], 60, 0.1, 'S3 to be served')
    fill(s3, 'bucket')
    # As it is where nothing is set.
    assert get(port, 'bucket.s3.test', '/k')[0] >= 400 and get(port, 'bucket.web.test')[2] != body
    assert get(port, 'x', '/auth/v1.0', **log_in)[0] >= 400
    refused('InvalidArgument', s3.put_object, Bucket='bucket', Key='sealed', Body=b'x', **sealed)
    assert usage(skep, user) == {}
    preflight = {'method': 'OPTIONS', 'origin': 'https://a.test', 'access_control_request_method': 'GET'}
    assert get(port, 'x', '/bucket/k', **preflight)[0] == 403

    # What has become of its files meanwhile does not keep it from serving.
    keys.write_text('no key')
    set_all(skep, 'client.rgw', OPTIONS)
    wait_until(lambda: served(port, 'bucket', body) and get(port, 'bucket.web.test')[2] == body, 150, 0.2, 'names of hosts')
    wait_until(lambda: puts(s3, Key='by-master', Body=b'x', ServerSideEncryption='AES256'), 60, 0.2, 'a put with its own key')

    def swift_url():
        status, headers, _ = get(port, 'x', '/auth/v1.0', **log_in)
        return status and headers['X-Storage-Url']
    # A change that came in late has it begin anew once more.
    wait_until(lambda: (swift_url() or '').startswith('https://swift.test/swift/v1'), 120, 0.2, 'Swift')
    wait_until(lambda: get(port, 'bucket.eu.s3.test', '/k')[2] == body, 120, 0.2, 'the other name')

    wait_until(lambda: puts(s3, Key='sealed', Body=b'x', **sealed), 120, 0.2, 'keys of clients without TLS')
    log = skep.log.read_text()
    assert 'S3 begins anew: options of the cluster have changed' in log and 'left out' not in log
    # What is replaced stayed for 15 minutes before.
    for _ in range(6):
        wait_until(lambda: puts(s3, Key='k', Body=body), 60, 0.2, 'a put')
    # Those of `k`, `sealed` and `by-master`.
    wait_until(lambda: len(stripes(skep)) <= 4, 120, 0.5, 'what was replaced to be collected')
    wait_until(lambda: puts(s3, Key='k', Body=body), 60, 0.2, 'a put')

    # A value that cannot be meant is told at once, and keeps nobody from serving.
    skep.ceph('config', 'set', 'client.rgw', 'rgw_dns_name', '127.0.0.1, s3.test, eu.s3.test')
    wait_until(lambda: 'rgw_dns_name: ' in skep.log.read_text() and 'is left out' in skep.log.read_text(), 60, 0.2, 'the warning')
    typed = skep.ceph('config', 'set', 'client.s3', 'rgw_enable_apis', 'swfit', check=22)
    assert "'swfit' is not one of the APIs" in typed.out + typed.err
    # Its own section counts more. Swift alone: S3 is closed, websites are not.
    skep.ceph('config', 'set', 'client.s3', 'rgw_enable_apis', 'swift')
    wait_until(lambda: get(port, 'x', '/bucket/k')[0] == 405, 150, 0.2, 'S3 to be closed')
    assert get(port, 'x', '/bucket/k', **preflight)[0] == 405
    assert swift_url() and get(port, 'bucket.web.test')[2] == body and get(port, 'bucket.eu.s3.test', '/k')[0] == 405
    # What was asked before was written down when it began anew.
    assert usage(skep, user)['put_obj'] >= 1
    note = skep.ceph('config', 'set', 'osd', 'rgw_dns_name', 'x')
    assert 'does nothing for osd' in note.out + note.err
    assert 'panicked' not in skep.log.read_text()


def test_a_gateway_by_itself_reads_them_at_its_start(own, tmp_path):
    skep = own(osds=1).start()
    user, body = User(skep, 'bob'), bytes_of(300000)
    set_all(skep, 'client.rgw', {'rgw_dns_name': 's3.test', 'rgw_enable_apis': 's3,swift'})
    made = Gateway(skep, tmp_path / 's3.log').start()
    fill(made.client(user), 'bucket')
    assert served(made.port, 'bucket', body)
    assert get(made.port, 'x', '/info')[0] == 200, 'Swift'
    assert made.stop() == 0 and 'another place' not in made.log.read_text(), made.log.read_text()
    # The names of before are taken, with a warning, and count more.
    made = Gateway(skep, tmp_path / 'old.log', '--s3-domain', 'said.test', '--s3-gc-wait', '2').start()
    assert get(made.port, 'bucket.said.test', '/k')[2] == body and not served(made.port, 'bucket', body)
    assert made.stop() == 0
    said = made.log.read_text()
    for old, new in (('--s3-domain', 'rgw_dns_name'), ('--s3-gc-wait', 'rgw_gc_obj_min_wait')):
        assert any(old in line and new in line and 'WARN' in line for line in said.splitlines()), said
