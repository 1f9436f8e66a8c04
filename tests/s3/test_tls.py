"""S3 by TLS: boto3 and s3cmd, certificates that change, files that do not fit."""
import http.client
import json
import shutil
import socket

import botocore.exceptions
import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, Server, admin, bytes_of, refused
from skeptest.skep import find_binary, free_port
from skeptest.tls import self_signed


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    return tmp_path_factory.mktemp('tls')


@pytest.fixture(scope='module')
def pairs(place):
    return self_signed(place, 'a'), self_signed(place, 'b')


@pytest.fixture(scope='module')
def safe(cluster, place, pairs):
    """A gateway with TLS, whose certificate trusts itself. `now` is what it reads."""
    now = place / 'now.crt', place / 'now.key'
    for file, to in zip(pairs[0], now):
        shutil.copy(file, to)
    made = Gateway(cluster, place / 's3.log', '--s3-cert', now[0], '--s3-key', now[1], ca=pairs[0][0]).start()
    made.now = now
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


def trusts(port, user, crt):
    try:
        Server(port, crt).client(user).list_buckets()
        return True
    except botocore.exceptions.SSLError:
        return False


@pytest.mark.parametrize('signature', ['s3v4', 's3'])
def test_boto3(safe, user, bucket, signature):
    assert 'S3 at https://' in safe.log.read_text()
    client, name, body = safe.client(user, signature_version=signature), bucket, bytes_of(5 << 20)
    client.put_object(Bucket=name, Key='k', Body=body)
    assert client.get_object(Bucket=name, Key='k', Range='bytes=5-9')['Body'].read() == body[5:10]
    upload = client.create_multipart_upload(Bucket=name, Key='m')['UploadId']
    parts = [{'PartNumber': n, 'ETag': client.upload_part(Bucket=name, Key='m', UploadId=upload, PartNumber=n, Body=body)['ETag']}
             for n in (1, 2)]
    client.complete_multipart_upload(Bucket=name, Key='m', UploadId=upload, MultipartUpload={'Parts': parts})
    assert client.get_object(Bucket=name, Key='m')['Body'].read() == 2 * body


def test_s3cmd(safe, user, pairs, tmp_path):
    conf, host, bucket = tmp_path / 's3cfg', '127.0.0.1:%d' % safe.port, 's3://' + unique('bucket')
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = True\nca_certs_file = %s\n'
                    'bucket_location = us-east-1\n' % (user.access, user.secret, host, host, pairs[0][0]))
    (tmp_path / 'f').write_bytes(bytes_of(70000))
    for words in [('mb', bucket), ('put', tmp_path / 'f', bucket + '/f'), ('get', bucket + '/f', tmp_path / 'g')]:
        run(['s3cmd', '-c', conf, '--no-progress', *words])
    assert (tmp_path / 'g').read_bytes() == bytes_of(70000)


def test_a_policy_sees_whether_it_was_used(safe, gateway, user, s3, bucket):
    by_tls = safe.client(user)
    deny = {'Effect': 'Deny', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % bucket,
            'Condition': {'Bool': {'aws:SecureTransport': 'false'}}}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [deny]}))
    s3.put_object(Bucket=bucket, Key='k', Body=b'x')
    refused('AccessDenied', s3.get_object, Bucket=bucket, Key='k')
    assert by_tls.get_object(Bucket=bucket, Key='k')['Body'].read() == b'x'


def test_certificates_that_change(safe, user, pairs):
    (a, a_key), (b, b_key) = pairs
    crt, key = safe.now
    assert trusts(safe.port, user, a) and not trusts(safe.port, user, b)
    before = safe.client(user)
    before.list_buckets()
    shutil.copy(b, crt)
    wait_until(lambda: 'stays in use' in safe.log.read_text(), 60, 0.1, 'the warning of half a pair')
    assert trusts(safe.port, user, a)
    shutil.copy(b_key, key)
    wait_until(lambda: trusts(safe.port, user, b), 60, 0.2, 'the other certificate')
    # A connection that is open goes on.
    before.list_buckets()
    shutil.copy(a, crt)
    shutil.copy(a_key, key)
    wait_until(lambda: trusts(safe.port, user, a), 60, 0.2, 'the first certificate')


def test_what_is_no_tls_gets_no_answer(safe, user):
    plain = http.client.HTTPConnection('127.0.0.1', safe.port, timeout=60)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        plain.request('GET', '/')
        plain.getresponse()
    with socket.create_connection(('127.0.0.1', safe.port), timeout=60) as silent:
        assert safe.client(user).list_buckets()
        # Nobody waits for a handshake that does not come.
        assert silent.recv(1) == b''


def test_files_that_do_not_fit_are_refused(cluster, pairs, tmp_path):
    (a, a_key), (_, b_key) = pairs

    def serve(*options):
        return run([find_binary(), 's3', 'serve', '-c', cluster.conf, '--listen', '127.0.0.1:%d' % free_port(), *options], check='fails').err
    assert 'no pair' in serve('--s3-cert', a, '--s3-key', b_key)
    assert 'no key in PEM' in serve('--s3-cert', a, '--s3-key', a)
    assert 'is not there' in serve('--s3-cert', tmp_path / 'none', '--s3-key', a_key)
    assert 'no key in PEM' in serve('--s3-cert', a) and '--s3-cert' in serve('--s3-key', a_key)


@pytest.mark.own
def test_a_node_serves_it(own, pairs, tmp_path):
    crt, key, port = tmp_path / 'now.crt', tmp_path / 'now.key', free_port()
    skep = own(options=['--s3', '--s3-listen', '127.0.0.1:%d' % port, '--s3-cert', crt, '--s3-key', key, '--metrics-port', '0']).start()
    wait_until(lambda: 'now.crt is not there' in skep.log.read_text(), 60, 0.1, 'the warning')
    shutil.copy(pairs[0][0], crt)
    loose = tmp_path / 'loose.key'
    shutil.copy(pairs[0][1], loose)
    loose.chmod(0o644)
    loose.rename(key)
    made = admin(skep, 'user', 'create', 'alice')['keys'][0]
    alice = type('Alice', (), {'access': made['access_key'], 'secret': made['secret_key']})

    def serves():
        try:
            return trusts(port, alice, pairs[0][0])
        except (botocore.exceptions.EndpointConnectionError, botocore.exceptions.ConnectionClosedError):
            return False
    wait_until(serves, 90, 0.2, 'S3 by TLS')
    assert 'others than its owner may open %s' % key in skep.log.read_text()
    assert skep.stop() == 0
