"""Encryption with keys that clients bring (SSE-C): boto3 by TLS."""
import base64
import hashlib
import os

import pytest

from skeptest.cluster import unique
from skeptest.run import run
from skeptest.s3 import Gateway, admin, bytes_of, refused
from skeptest.skep import find_binary
from skeptest.tls import self_signed

PART = 5 << 20


@pytest.fixture(scope='module')
def sealing(cluster, tmp_path_factory):
    place = tmp_path_factory.mktemp('sse')
    crt, key = self_signed(place, 'a')
    made = Gateway(cluster, place / 's3.log', '--s3-cert', crt, '--s3-key', key, ca=crt, env={'SKEP_LOG': 'info,s3=trace,s3s=trace'})
    yield made.start()
    assert made.stop() == 0
    assert 'panicked' not in made.log.read_text()


@pytest.fixture
def client(sealing, user):
    return sealing.client(user)


def customer(key, of=''):
    """boto3 encodes the key, and adds its MD5."""
    return {of + 'SSECustomerAlgorithm': 'AES256', of + 'SSECustomerKey': key}


@pytest.fixture
def key():
    return os.urandom(32)


def test_what_was_put_with_a_key_is_read_with_it_alone(client, bucket, key):
    body = bytes_of((4 << 20) + 300000)
    put = client.put_object(Bucket=bucket, Key='k', Body=body, Metadata={'a': 'b'}, **customer(key))
    md5 = base64.b64encode(hashlib.md5(key).digest()).decode()
    assert (put['SSECustomerAlgorithm'], put['SSECustomerKeyMD5']) == ('AES256', md5)
    assert put['ETag'].strip('"') != hashlib.md5(body).hexdigest()
    got = client.get_object(Bucket=bucket, Key='k', **customer(key))
    assert got['Body'].read() == body and got['SSECustomerKeyMD5'] == md5 and got['ETag'] == put['ETag']
    for first, last in ((0, 0), (65535, 65536), (1000, 200000), ((4 << 20) - 1, 4 << 20), (len(body) - 1, len(body) - 1)):
        part = client.get_object(Bucket=bucket, Key='k', Range='bytes=%d-%d' % (first, last), **customer(key))
        assert part['Body'].read() == body[first:last + 1], (first, last)
    head = client.head_object(Bucket=bucket, Key='k', **customer(key))
    assert (head['ContentLength'], head['Metadata'], head['SSECustomerAlgorithm']) == (len(body), {'a': 'b'}, 'AES256')
    assert client.list_objects_v2(Bucket=bucket)['Contents'][0]['Size'] == len(body)
    # Without the key, and with another one.
    refused('InvalidRequest', client.get_object, Bucket=bucket, Key='k')
    refused('400', client.head_object, Bucket=bucket, Key='k')
    refused('AccessDenied', client.get_object, Bucket=bucket, Key='k', **customer(os.urandom(32)))
    refused('403', client.head_object, Bucket=bucket, Key='k', **customer(os.urandom(32)))
    # An ETag tells nobody anything who has no key.
    refused('InvalidRequest', client.get_object, Bucket=bucket, Key='k', IfNoneMatch=put['ETag'])
    client.put_object(Bucket=bucket, Key='plain', Body=b'x')
    refused('InvalidRequest', client.get_object, Bucket=bucket, Key='plain', **customer(key))
    client.put_object(Bucket=bucket, Key='empty', Body=b'', **customer(key))
    assert client.get_object(Bucket=bucket, Key='empty', **customer(key))['Body'].read() == b''
    refused('InvalidRequest', client.get_object, Bucket=bucket, Key='empty')


def test_uploads_in_parts(client, bucket, key):
    upload = client.create_multipart_upload(Bucket=bucket, Key='m', **customer(key))
    assert upload['SSECustomerAlgorithm'] == 'AES256'
    of = {'Bucket': bucket, 'Key': 'm', 'UploadId': upload['UploadId']}
    body = [bytes_of(PART), bytes_of(PART), b'end']
    refused('InvalidRequest', client.upload_part, PartNumber=1, Body=b'x', **of)
    refused('InvalidRequest', client.upload_part, PartNumber=1, Body=b'x', **of, **customer(os.urandom(32)))
    client.put_object(Bucket=bucket, Key='plain', Body=body[0])
    tags = [client.upload_part_copy(PartNumber=1, CopySource={'Bucket': bucket, 'Key': 'plain'}, **of, **customer(key))['CopyPartResult']['ETag']]
    # Again, with the same key and the same number.
    client.upload_part(PartNumber=2, Body=bytes_of(PART + 1), **of, **customer(key))
    tags += [client.upload_part(PartNumber=n, Body=body[n - 1], **of, **customer(key))['ETag'] for n in (2, 3)]
    parts = [{'PartNumber': n + 1, 'ETag': tag} for n, tag in enumerate(tags)]
    client.complete_multipart_upload(**of, MultipartUpload={'Parts': parts})
    whole = b''.join(body)
    assert client.get_object(Bucket=bucket, Key='m', **customer(key))['Body'].read() == whole
    for first, last in ((PART - 5, PART + 5), (2 * PART - 1, 2 * PART + 2)):
        part = client.get_object(Bucket=bucket, Key='m', Range='bytes=%d-%d' % (first, last), **customer(key))
        assert part['Body'].read() == whole[first:last + 1]
    two = client.get_object(Bucket=bucket, Key='m', PartNumber=3, **customer(key))
    assert two['Body'].read() == b'end' and two['PartsCount'] == 3
    refused('InvalidRequest', client.get_object, Bucket=bucket, Key='m')
    plain = client.create_multipart_upload(Bucket=bucket, Key='p')['UploadId']
    refused('InvalidRequest', client.upload_part, Bucket=bucket, Key='p', UploadId=plain, PartNumber=1, Body=b'x', **customer(key))


def test_copies(client, bucket, key):
    body, other = bytes_of(200000), os.urandom(32)
    client.put_object(Bucket=bucket, Key='k', Body=body, **customer(key))
    source = {'Bucket': bucket, 'Key': 'k'}
    refused('InvalidRequest', client.copy_object, Bucket=bucket, Key='c', CopySource=source)
    refused('AccessDenied', client.copy_object, Bucket=bucket, Key='c', CopySource=source, **customer(other, 'CopySource'))
    client.copy_object(Bucket=bucket, Key='plain', CopySource=source, **customer(key, 'CopySource'))
    assert client.get_object(Bucket=bucket, Key='plain')['Body'].read() == body
    copied = client.copy_object(Bucket=bucket, Key='c', CopySource=source, **customer(key, 'CopySource'), **customer(other))
    assert copied['SSECustomerAlgorithm'] == 'AES256'
    assert client.get_object(Bucket=bucket, Key='c', **customer(other))['Body'].read() == body
    refused('AccessDenied', client.get_object, Bucket=bucket, Key='c', **customer(key))
    # Onto itself, with another key.
    client.copy_object(Bucket=bucket, Key='k', CopySource=source, **customer(key, 'CopySource'), **customer(other))
    assert client.get_object(Bucket=bucket, Key='k', **customer(other))['Body'].read() == body


def test_versions(client, bucket, key):
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    ids = [client.put_object(Bucket=bucket, Key='k', Body=b'%d' % n, **(customer(key) if n else {}))['VersionId'] for n in range(3)]
    assert client.get_object(Bucket=bucket, Key='k', VersionId=ids[0])['Body'].read() == b'0'
    assert client.get_object(Bucket=bucket, Key='k', VersionId=ids[1], **customer(key))['Body'].read() == b'1'
    client.delete_object(Bucket=bucket, Key='k', VersionId=ids[2])
    assert client.get_object(Bucket=bucket, Key='k', **customer(key))['Body'].read() == b'1'


def test_what_is_not_whole_is_refused(sealing, gateway, client, user, bucket, key):
    with pytest.raises(Exception, match='InvalidArgument'):
        client.put_object(Bucket=bucket, Key='k', Body=b'x', **customer(b'short'))
    with pytest.raises(Exception, match='InvalidEncryptionAlgorithm'):
        client.put_object(Bucket=bucket, Key='k', Body=b'x', SSECustomerAlgorithm='AES128', SSECustomerKey=key)
    wrong, text = base64.b64encode(b'0' * 16).decode(), base64.b64encode(key).decode()
    with pytest.raises(Exception, match='InvalidArgument'):
        client.put_object(Bucket=bucket, Key='k', Body=b'x', SSECustomerKeyMD5=wrong, **customer(text))
    refused('NotImplemented', client.put_object, Bucket=bucket, Key='k', Body=b'x', ServerSideEncryption='aws:kms')
    assert 'Contents' not in client.list_objects_v2(Bucket=bucket)
    # In the clear a key is told to everybody on the way.
    refused('InvalidArgument', gateway.client(user).put_object, Bucket=bucket, Key='k', Body=b'x', **customer(key))


def stripes(cluster):
    return set(cluster.rados('s3.data', 'ls').out.split())


def test_keys_are_in_no_log_and_nothing_lies_in_the_clear(cluster, sealing, client, bucket, key, tmp_path):
    before = stripes(cluster)
    body = b'a secret of many words, ' * 10000
    client.put_object(Bucket=bucket, Key='k', Body=body, **customer(key))
    client.get_object(Bucket=bucket, Key='k', **customer(key))['Body'].read()
    # The library of S3 would log headers and what was signed, were it let.
    assert 'customer-key' not in sealing.log.read_text() and 'string_to_sign' not in sealing.log.read_text()
    assert base64.b64encode(key).decode() not in sealing.log.read_text()
    [stripe] = stripes(cluster) - before
    file = tmp_path / 'stripe'
    cluster.rados('s3.data', 'get', stripe, file)
    assert file.stat().st_size == len(body) + 16 * 4 and b'secret' not in file.read_bytes()


def test_what_was_changed_in_the_pool_is_not_handed_out(cluster, client, user, key, tmp_path):
    name = unique('harm')
    client.create_bucket(Bucket=name)
    before = stripes(cluster)
    client.put_object(Bucket=name, Key='k', Body=bytes_of(100000), **customer(key))
    [stripe] = stripes(cluster) - before
    file = tmp_path / 'stripe'
    cluster.rados('s3.data', 'get', stripe, file)
    data = bytearray(file.read_bytes())
    data[70000] ^= 1
    file.write_bytes(data)
    cluster.rados('s3.data', 'put', stripe, file)
    refused('InternalError', client.get_object, Bucket=name, Key='k', Range='bytes=66000-66001', **customer(key))
    client.get_object(Bucket=name, Key='k', Range='bytes=0-100', **customer(key))['Body'].read()
    assert admin(cluster, 'check', name)['problems'] == []
    file.write_bytes(data[:-1])
    cluster.rados('s3.data', 'put', stripe, file)
    assert 'too short' in run([find_binary(), 's3', 'check', name, '-c', cluster.conf], check='fails').out
    client.delete_object(Bucket=name, Key='k')
    client.delete_bucket(Bucket=name)
