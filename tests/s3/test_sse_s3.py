"""Encryption with keys of the gateway (SSE-S3): by request, and by buckets' defaults."""
import base64
import hashlib
import os

import pytest

from skeptest.cluster import unique
from skeptest.run import run
from skeptest.s3 import Gateway, bytes_of, refused
from skeptest.skep import find_binary, free_port

PART = 5 << 20
AES = {'ServerSideEncryption': 'AES256'}


def line(name, key=None):
    return '%s %s\n' % (name, base64.b64encode(key or os.urandom(32)).decode())


@pytest.fixture(scope='module')
def keys(tmp_path_factory):
    file = tmp_path_factory.mktemp('keys') / 'keys'
    file.write_text('# the first one\n' + line('k2026'))
    return file


@pytest.fixture(scope='module')
def sealing(cluster, keys):
    made = Gateway(cluster, keys.with_name('s3.log'), '--s3-master-key', keys, '--s3-customer-keys-without-tls', env={'SKEP_LOG': 'info,s3=trace'})
    yield made.start()
    assert made.stop() == 0
    said = made.log.read_text()
    secrets = [text.split()[1] for text in keys.read_text().splitlines() if not text.startswith('#')]
    assert secrets and 'panicked' not in said and not any(secret in said for secret in secrets)


@pytest.fixture
def client(sealing, user):
    return sealing.client(user)


def stripes(cluster):
    return set(cluster.rados('s3.data', 'ls').out.split())


def default(algorithm='AES256', **more):
    return {'Rules': [{'ApplyServerSideEncryptionByDefault': {'SSEAlgorithm': algorithm, **more}}]}


def test_by_request(cluster, client, bucket, tmp_path):
    body, before = b'a secret of many words, ' * 10000, stripes(cluster)
    put = client.put_object(Bucket=bucket, Key='k', Body=body, **AES)
    assert put['ServerSideEncryption'] == 'AES256' and put['ETag'] == '"%s"' % hashlib.md5(body).hexdigest()
    [stripe] = stripes(cluster) - before
    cluster.rados('s3.data', 'get', stripe, tmp_path / 'stripe')
    assert b'secret' not in (tmp_path / 'stripe').read_bytes()
    got = client.get_object(Bucket=bucket, Key='k', Range='bytes=70000-140000')
    assert got['Body'].read() == body[70000:140001] and got['ServerSideEncryption'] == 'AES256'
    assert client.head_object(Bucket=bucket, Key='k')['ServerSideEncryption'] == 'AES256'
    client.copy_object(Bucket=bucket, Key='plain', CopySource={'Bucket': bucket, 'Key': 'k'})
    assert 'ServerSideEncryption' not in client.head_object(Bucket=bucket, Key='plain')
    copied = client.copy_object(Bucket=bucket, Key='c', CopySource={'Bucket': bucket, 'Key': 'plain'}, **AES)
    assert copied['ServerSideEncryption'] == 'AES256' and client.get_object(Bucket=bucket, Key='c')['Body'].read() == body
    with pytest.raises(Exception, match='InvalidRequest'):
        client.get_object(Bucket=bucket, Key='k', SSECustomerAlgorithm='AES256', SSECustomerKey=os.urandom(32))
    refused('NotImplemented', client.put_object, Bucket=bucket, Key='x', Body=b'', ServerSideEncryption='aws:kms')
    refused('InvalidEncryptionAlgorithmError', client.put_object, Bucket=bucket, Key='x', Body=b'', ServerSideEncryption='AES128')


def test_a_part_that_asks_for_what_its_upload_has_not(sealing, user, bucket):
    client = sealing.client(user)
    client.meta.events.register('before-sign.s3.UploadPart', lambda request, **_: request.headers.add_header('x-amz-server-side-encryption', 'AES256'))
    of = {'Bucket': bucket, 'Key': 'm', 'PartNumber': 1, 'Body': b'x'}
    refused('InvalidRequest', client.upload_part, UploadId=client.create_multipart_upload(Bucket=bucket, Key='m')['UploadId'], **of)
    upload = client.create_multipart_upload(Bucket=bucket, Key='m', **AES)['UploadId']
    assert client.upload_part(UploadId=upload, **of)['ServerSideEncryption'] == 'AES256'


def test_by_the_buckets_default(client, s3, bucket):
    refused('ServerSideEncryptionConfigurationNotFoundError', client.get_bucket_encryption, Bucket=bucket)
    client.put_object(Bucket=bucket, Key='before', Body=b'x')
    client.put_bucket_encryption(Bucket=bucket, ServerSideEncryptionConfiguration=default())
    [rule] = client.get_bucket_encryption(Bucket=bucket)['ServerSideEncryptionConfiguration']['Rules']
    assert rule['ApplyServerSideEncryptionByDefault'] == {'SSEAlgorithm': 'AES256'}
    assert client.put_object(Bucket=bucket, Key='k', Body=b'one')['ServerSideEncryption'] == 'AES256'
    assert 'ServerSideEncryption' not in client.head_object(Bucket=bucket, Key='before')
    upload = client.create_multipart_upload(Bucket=bucket, Key='m')
    assert upload['ServerSideEncryption'] == 'AES256'
    of = {'Bucket': bucket, 'Key': 'm', 'UploadId': upload['UploadId']}
    body = [bytes_of(PART), b'end']
    parts = [{'PartNumber': n, 'ETag': client.upload_part(PartNumber=n, Body=body[n - 1], **of)['ETag']} for n in (1, 2)]
    done = client.complete_multipart_upload(**of, MultipartUpload={'Parts': parts})
    assert done['ServerSideEncryption'] == 'AES256'
    assert client.get_object(Bucket=bucket, Key='m')['Body'].read() == b''.join(body)
    # A gateway without keys neither opens nor stores in the clear what is to be encrypted.
    refused('InternalError', s3.get_object, Bucket=bucket, Key='k')
    refused('NotImplemented', s3.put_object, Bucket=bucket, Key='k', Body=b'two')
    refused('NotImplemented', s3.put_bucket_encryption, Bucket=bucket, ServerSideEncryptionConfiguration=default())
    assert client.get_object(Bucket=bucket, Key='k')['Body'].read() == b'one'
    client.delete_bucket_encryption(Bucket=bucket)
    assert 'ServerSideEncryption' not in client.put_object(Bucket=bucket, Key='k', Body=b'three')
    refused('NotImplemented', client.put_bucket_encryption, Bucket=bucket, ServerSideEncryptionConfiguration=default('aws:kms', KMSMasterKeyID='a'))
    refused('InvalidArgument', client.put_bucket_encryption, Bucket=bucket, ServerSideEncryptionConfiguration=default(KMSMasterKeyID='a'))
    refused('MalformedXML', client.put_bucket_encryption, Bucket=bucket, ServerSideEncryptionConfiguration={'Rules': []})


def test_keys_are_changed(cluster, sealing, user, keys, bucket):
    sealing.client(user).put_object(Bucket=bucket, Key='old', Body=b'old', **AES)
    first = keys.read_text()
    keys.write_text(line('k2027') + first)
    assert sealing.stop() == 0
    client = sealing.start().client(user)
    client.put_object(Bucket=bucket, Key='new', Body=b'new', **AES)
    assert [client.get_object(Bucket=bucket, Key=k)['Body'].read() for k in ('old', 'new')] == [b'old', b'new']
    # Without the new one, and with another one of its name.
    for text in (first, line('k2027') + first):
        other = keys.with_name(unique('other'))
        other.write_text(text)
        without = Gateway(cluster, other.with_suffix('.log'), '--s3-master-key', other).start()
        assert without.client(user).get_object(Bucket=bucket, Key='old')['Body'].read() == b'old'
        refused('InternalError', without.client(user).get_object, Bucket=bucket, Key='new')
        assert without.stop() == 0 and 'k2027' in without.log.read_text()


def test_files_of_keys_that_cannot_be_used(cluster, tmp_path):
    file = tmp_path / 'keys'

    def said(text):
        if text is not None:
            file.write_text(text)
        return run([find_binary(), 's3', 'serve', '-c', cluster.conf, '--listen', '127.0.0.1:%d' % free_port(), '--s3-master-key', file],
                   check='fails').err
    assert 'is not there' in said(None)
    assert 'no key' in said('# none\n')
    assert '32 bytes' in said('a c2hvcnQ=\n') and 'c2hvcnQ' not in said('a c2hvcnQ=\n')
    assert 'twice' in said(line('a') + line('a'))
