"""Buckets as hosts below the gateway's names: boto3 by V4, V2 and URLs, s3cmd and rclone."""
import http.client
import socket
import urllib.request

import pytest

from skeptest.cluster import unique
from skeptest.run import run
from skeptest.s3 import bytes_of


@pytest.fixture
def names(monkeypatch):
    """What ends in .test is this machine, as a DNS of the site would say."""
    real = socket.getaddrinfo

    def resolve(host, *args, **kw):
        name = host.decode() if isinstance(host, bytes) else host
        return real('127.0.0.1' if name and name.endswith('.test') else host, *args, **kw)
    monkeypatch.setattr(socket, 'getaddrinfo', resolve)


def virtual(gateway, user, domain, **config):
    class Named(type(gateway)):
        def __init__(self):
            self.url = 'http://%s:%d' % (domain, gateway.port)
    return Named().client(user, s3={'addressing_style': 'virtual'}, **config)


@pytest.mark.parametrize('domain', ['s3.test', 'eu.s3.test'])
@pytest.mark.parametrize('signature', ['s3v4', 's3'])
def test_a_bucket_is_a_host(gateway, user, s3, names, domain, signature):
    by_host = virtual(gateway, user, domain, signature_version=signature)
    seen = []
    by_host.meta.events.register('before-send.s3', lambda request, **_: seen.append(request.url))
    name = unique('bucket')
    by_host.create_bucket(Bucket=name)
    for key in ['k', 'a b/é+', name + '/k']:
        by_host.put_object(Bucket=name, Key=key, Body=key.encode())
        assert by_host.get_object(Bucket=name, Key=key)['Body'].read() == key.encode()
        assert s3.get_object(Bucket=name, Key=key)['Body'].read() == key.encode()
    assert all(u.startswith('http://%s.%s:%d/' % (name, domain, gateway.port)) for u in seen) and len(seen) == 7, seen
    assert len(by_host.list_objects(Bucket=name)['Contents']) == 3
    url = by_host.generate_presigned_url('get_object', Params={'Bucket': name, 'Key': 'a b/é+'})
    assert '//%s.%s' % (name, domain) in url
    assert urllib.request.urlopen(url, timeout=60).read() == 'a b/é+'.encode()
    assert name in [b['Name'] for b in by_host.list_buckets()['Buckets']]


def get(gateway, host, path):
    c = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=60)
    c.request('GET', path, headers={'Host': host})
    answer = c.getresponse()
    return answer.status, answer.read()


def test_other_hosts_have_the_bucket_in_the_path(gateway, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'of all', ACL='public-read')
    inside, below = '/%s/k' % bucket, bucket + '.s3.test'
    for host in ['s3.test', 'S3.test:80', 'eu.s3.test', 'localhost', bucket + '.other.test', '127.0.0.1', '[::1]:80']:
        assert get(gateway, host, inside) == (200, b'of all'), host
    for host in [below, below.upper() + ':7480', bucket + '.eu.s3.test']:
        assert get(gateway, host, '/k') == (200, b'of all'), host
        assert get(gateway, host, inside)[0] == 403, host
    assert b'InvalidBucketName' in get(gateway, bucket + 's3.test', '/k')[1]
    assert b'InvalidBucketName' in get(gateway, 'no_bucket.s3.test', '/k')[1]


def test_a_signature_is_of_one_bucket(gateway, user, s3, names, bucket):
    """The host is signed: the same request to another host is refused."""
    other = unique('bucket')
    s3.create_bucket(Bucket=other)
    for b in (bucket, other):
        s3.put_object(Bucket=b, Key='k', Body=b.encode())
    for signature in ['s3v4', 's3']:
        url = virtual(gateway, user, 's3.test', signature_version=signature).generate_presigned_url(
            'get_object', Params={'Bucket': bucket, 'Key': 'k'})
        path = url[url.index('/k?'):]
        assert get(gateway, '%s.s3.test:%d' % (bucket, gateway.port), path) == (200, bucket.encode())
        status, said = get(gateway, '%s.s3.test:%d' % (other, gateway.port), path)
        assert (status, b'SignatureDoesNotMatch' in said) == (403, True), said


def test_s3cmd_and_rclone_by_host(gateway, user, tmp_path):
    """Both ask a proxy, which the gateway is to them, so that nobody has to resolve names."""
    conf, name, data = tmp_path / 's3cfg', unique('bucket'), bytes_of((6 << 20) + 3)
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = s3.test\nhost_bucket = %%(bucket)s.s3.test\nuse_https = False\n'
                    'proxy_host = 127.0.0.1\nproxy_port = %d\nmultipart_chunk_size_mb = 5\nbucket_location = us-east-1\n'
                    % (user.access, user.secret, gateway.port))
    (tmp_path / 'f').write_bytes(data)
    s3cmd = ['s3cmd', '-c', conf, '--no-progress']
    run([*s3cmd, 'mb', 's3://' + name])
    said = run([*s3cmd, '-d', 'put', tmp_path / 'f', 's3://%s/d/f' % name])
    assert name + '.s3.test' in said.err
    run([*s3cmd, 'get', 's3://%s/d/f' % name, tmp_path / 'g'])
    assert (tmp_path / 'g').read_bytes() == data
    env = {'AWS_CA_BUNDLE': '', 'RCLONE_CONFIG': str(tmp_path / 'none'), 'RCLONE_CONFIG_S_TYPE': 's3', 'RCLONE_CONFIG_S_PROVIDER': 'Ceph',
           'RCLONE_CONFIG_S_ENDPOINT': 'http://s3.test', 'RCLONE_CONFIG_S_FORCE_PATH_STYLE': 'false',
           'RCLONE_CONFIG_S_ACCESS_KEY_ID': user.access, 'RCLONE_CONFIG_S_SECRET_ACCESS_KEY': user.secret, 'http_proxy': gateway.url,
           'RCLONE_S3_UPLOAD_CUTOFF': '5M', 'RCLONE_S3_CHUNK_SIZE': '5M'}
    run(['rclone', 'copy', tmp_path / 'f', 's:%s/e' % name], env=env)
    run(['rclone', 'check', tmp_path / 'f', 's:%s/e' % name, '--download'], env=env)
