"""Buckets and objects as boto3 uses them: what is answered, and with which code."""
import datetime
import hashlib
import http.client
import io
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.s3 import User, admin, bytes_of, md5_of, refused

SIZES = [0, 1, 65536, (1 << 20) + 1, (4 << 20) - 1, 4 << 20, (9 << 20) + 7]


def test_buckets_have_owners(s3, gateway, cluster, user):
    name = unique('bucket')
    s3.create_bucket(Bucket=name)
    assert name in [b['Name'] for b in s3.list_buckets()['Buckets']]
    refused('BucketAlreadyOwnedByYou', s3.create_bucket, Bucket=name)
    s3.head_bucket(Bucket=name)
    assert not s3.get_bucket_location(Bucket=name).get('LocationConstraint')
    other = gateway.client(User(cluster, unique('user')))
    refused('BucketAlreadyExists', other.create_bucket, Bucket=name)
    refused('AccessDenied', other.list_objects_v2, Bucket=name)
    refused('AccessDenied', other.delete_bucket, Bucket=name)
    assert name not in [b['Name'] for b in other.list_buckets()['Buckets']]
    refused('AccessDenied', s3.list_objects_v2, Bucket=name, ExpectedBucketOwner='somebody')
    refused('NoSuchBucket', s3.list_objects_v2, Bucket=name + '-not')
    s3.put_object(Bucket=name, Key='k', Body=b'x')
    refused('BucketNotEmpty', s3.delete_bucket, Bucket=name)
    s3.delete_object(Bucket=name, Key='k')
    s3.delete_bucket(Bucket=name)
    refused('NoSuchBucket', s3.put_object, Bucket=name, Key='k', Body=b'x')
    refused('404', s3.head_bucket, Bucket=name)
    s3.create_bucket(Bucket=name)
    assert s3.list_objects_v2(Bucket=name)['KeyCount'] == 0


@pytest.mark.parametrize('size', SIZES)
def test_what_was_put_is_read_back(s3, bucket, size):
    data = bytes_of(size)
    put = s3.put_object(Bucket=bucket, Key='k', Body=data)
    assert put['ETag'] == '"%s"' % hashlib.md5(data).hexdigest()
    got = s3.get_object(Bucket=bucket, Key='k')
    assert got['Body'].read() == data
    assert (got['ContentLength'], got['ETag']) == (size, put['ETag'])
    head = s3.head_object(Bucket=bucket, Key='k')
    assert (head['ContentLength'], head['ETag'], head['LastModified']) == (size, put['ETag'], got['LastModified'])


def test_ranges(s3, bucket):
    data = bytes_of((9 << 20) + 7)
    s3.put_object(Bucket=bucket, Key='k', Body=data)
    for text, want in [('bytes=0-0', data[:1]), ('bytes=-5', data[-5:]), ('bytes=4194300-4194310', data[4194300:4194311]),
                       ('bytes=9437184-', data[9437184:]), ('bytes=1-99999999', data[1:])]:
        got = s3.get_object(Bucket=bucket, Key='k', Range=text)
        assert got['Body'].read() == want, text
        assert got['ResponseMetadata']['HTTPStatusCode'] == 206
        assert got['ContentRange'].endswith('/%d' % len(data))
    refused('InvalidRange', s3.get_object, Bucket=bucket, Key='k', Range='bytes=99999999-')


def test_what_is_said_of_an_object_stays(s3, bucket):
    said = {'ContentType': 'text/plain', 'CacheControl': 'max-age=5', 'ContentDisposition': 'attachment',
            'ContentEncoding': 'gzip', 'ContentLanguage': 'de'}
    when = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    s3.put_object(Bucket=bucket, Key='k', Body=b'x', Metadata={'a-b': 'c d'}, Tagging='t=1&u=%C3%A9', Expires=when, **said)
    head = s3.head_object(Bucket=bucket, Key='k')
    assert {k: head[k] for k in said} == said and head['Metadata'] == {'a-b': 'c d'}
    tags = s3.get_object_tagging(Bucket=bucket, Key='k')['TagSet']
    assert {t['Key']: t['Value'] for t in tags} == {'t': '1', 'u': 'é'}
    s3.put_object_tagging(Bucket=bucket, Key='k', Tagging={'TagSet': [{'Key': 'v', 'Value': '2'}]})
    assert s3.get_object(Bucket=bucket, Key='k')['TagCount'] == 1
    s3.delete_object_tagging(Bucket=bucket, Key='k')
    assert s3.get_object_tagging(Bucket=bucket, Key='k')['TagSet'] == []
    got = s3.get_object(Bucket=bucket, Key='k', ResponseContentType='a/b')
    assert got['ContentType'] == 'a/b'
    refused('MetadataTooLarge', s3.put_object, Bucket=bucket, Key='m', Body=b'', Metadata={'a': 'x' * 2100})


def test_conditions(s3, bucket):
    etag = s3.put_object(Bucket=bucket, Key='k', Body=b'1', IfNoneMatch='*')['ETag']
    refused('PreconditionFailed', s3.put_object, Bucket=bucket, Key='k', Body=b'2', IfNoneMatch='*')
    refused('PreconditionFailed', s3.put_object, Bucket=bucket, Key='k', Body=b'2', IfMatch='"0"')
    refused('NoSuchKey', s3.put_object, Bucket=bucket, Key='none', Body=b'2', IfMatch=etag)
    new = s3.put_object(Bucket=bucket, Key='k', Body=b'2', IfMatch=etag)['ETag']
    refused('PreconditionFailed', s3.get_object, Bucket=bucket, Key='k', IfMatch=etag)
    refused('304', s3.get_object, Bucket=bucket, Key='k', IfNoneMatch=new)
    changed = s3.head_object(Bucket=bucket, Key='k')['LastModified']
    refused('304', s3.get_object, Bucket=bucket, Key='k', IfModifiedSince=changed)
    before = changed - datetime.timedelta(seconds=2)
    refused('PreconditionFailed', s3.get_object, Bucket=bucket, Key='k', IfUnmodifiedSince=before)
    assert s3.get_object(Bucket=bucket, Key='k', IfMatch=new, IfModifiedSince=before)['Body'].read() == b'2'


def test_one_of_many_that_create_the_same_key_wins(s3, bucket):
    def put(n):
        try:
            s3.put_object(Bucket=bucket, Key='k', Body=b'%d' % n, IfNoneMatch='*')
            return n
        except s3.exceptions.ClientError as e:
            assert e.response['Error']['Code'] == 'PreconditionFailed', e
    with ThreadPoolExecutor(8) as pool:
        won = [n for n in pool.map(put, range(8)) if n is not None]
    assert len(won) == 1
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'%d' % won[0]


@pytest.mark.parametrize('algorithm', ['CRC32', 'CRC32C', 'CRC64NVME', 'SHA1', 'SHA256'])
def test_checksums(s3, bucket, algorithm):
    field = 'Checksum' + algorithm
    put = s3.put_object(Bucket=bucket, Key='k', Body=io.BytesIO(bytes_of(100000)), ChecksumAlgorithm=algorithm)
    got = s3.get_object(Bucket=bucket, Key='k', ChecksumMode='ENABLED')
    assert put[field] == got[field] and got['Body'].read() == bytes_of(100000)


def test_what_does_not_fit_its_checksum_is_not_taken(s3, bucket):
    refused('BadDigest', s3.put_object, Bucket=bucket, Key='k', Body=b'x', ContentMD5=md5_of(b'y'))
    refused('BadDigest', s3.put_object, Bucket=bucket, Key='k', Body=b'x', ChecksumCRC32='AAAAAA==')
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')


KEYS = ['a', 'a b', 'a+b', 'a//b', '/x', 'é/ü', '%41', 'x?y=z', 'tab\there', '汉字', '😀', 'q"\'&<>', '~', '..x', 'a\u2028b']


def test_any_name(s3, bucket):
    for n, key in enumerate(KEYS):
        s3.put_object(Bucket=bucket, Key=key, Body=b'%d' % n)
    for n, key in enumerate(KEYS):
        assert s3.get_object(Bucket=bucket, Key=key)['Body'].read() == b'%d' % n, key
    listed = [o['Key'] for o in s3.list_objects_v2(Bucket=bucket)['Contents']]
    assert listed == sorted(KEYS, key=str.encode)
    refused('KeyTooLongError', s3.put_object, Bucket=bucket, Key='x' * 1025, Body=b'')
    gone = s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': k} for k in KEYS + ['none']]})
    assert {d['Key'] for d in gone['Deleted']} == set(KEYS + ['none'])
    assert s3.list_objects_v2(Bucket=bucket)['KeyCount'] == 0


def test_listings_over_split_indexes(s3, bucket, gateway, user):
    """120 keys in shards of at most 40, split while they are written and listed."""
    keys = sorted('%s/%03d' % (d, n) for d in ('a', 'b', 'c') for n in range(40))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: s3.put_object(Bucket=bucket, Key=k, Body=k.encode()), keys))

    def pages(**kw):
        for page in s3.get_paginator('list_objects_v2').paginate(Bucket=bucket, **kw):
            yield from [o['Key'] for o in page.get('Contents', [])] + [p['Prefix'] for p in page.get('CommonPrefixes', [])]
    assert list(pages()) == keys
    assert list(pages(PaginationConfig={'PageSize': 7})) == keys
    assert list(pages(Delimiter='/', PaginationConfig={'PageSize': 1})) == ['a/', 'b/', 'c/']
    assert list(pages(Prefix='b/', Delimiter='/')) == keys[40:80]
    assert list(pages(Prefix='b/', StartAfter='b/010')) == keys[51:80]
    v1 = [o['Key'] for p in s3.get_paginator('list_objects').paginate(Bucket=bucket, PaginationConfig={'PageSize': 33})
          for o in p['Contents']]
    assert v1 == keys
    versions = s3.list_object_versions(Bucket=bucket, Prefix='a/')['Versions']
    assert [v['Key'] for v in versions] == keys[:40] and {v['VersionId'] for v in versions} == {'null'}

    def shards():
        out = gateway.cluster.run('rados', '-p', 's3.meta', 'ls').out.split()
        return len([o for o in out if o.startswith('index.') and o.count('.') == 2])
    wait_until(lambda: shards() > 2, 90, 0.5, 'the index to be split')
    assert list(pages()) == keys


def test_copies(s3, bucket):
    data = bytes_of((9 << 20) + 7)
    s3.put_object(Bucket=bucket, Key='a', Body=data, ContentType='a/b', Metadata={'m': '1'}, Tagging='t=1')
    done = s3.copy_object(Bucket=bucket, Key='é c', CopySource={'Bucket': bucket, 'Key': 'a'})
    got = s3.get_object(Bucket=bucket, Key='é c')
    assert got['Body'].read() == data and got['ETag'] == done['CopyObjectResult']['ETag']
    assert (got['ContentType'], got['Metadata'], got['TagCount']) == ('a/b', {'m': '1'}, 1)
    refused('InvalidRequest', s3.copy_object, Bucket=bucket, Key='a', CopySource={'Bucket': bucket, 'Key': 'a'})
    s3.copy_object(Bucket=bucket, Key='a', CopySource={'Bucket': bucket, 'Key': 'a'}, MetadataDirective='REPLACE',
                   ContentType='c/d', Metadata={'n': '2'})
    got = s3.get_object(Bucket=bucket, Key='a')
    assert got['Body'].read() == data and (got['ContentType'], got['Metadata']) == ('c/d', {'n': '2'})
    refused('NoSuchKey', s3.copy_object, Bucket=bucket, Key='x', CopySource={'Bucket': bucket, 'Key': 'none'})
    refused('PreconditionFailed', s3.copy_object, Bucket=bucket, Key='x', CopySource={'Bucket': bucket, 'Key': 'a'},
            CopySourceIfMatch='"0"')
    refused('AccessDenied', s3.copy_object, Bucket=bucket, Key='x', CopySource={'Bucket': bucket, 'Key': 'a'},
            ExpectedSourceBucketOwner='somebody')


def test_what_is_public(s3, bucket, gateway, cluster):
    anybody, other = gateway.client(), gateway.client(User(cluster, unique('user')))
    s3.put_object(Bucket=bucket, Key='open', Body=b'1', ACL='public-read')
    s3.put_object(Bucket=bucket, Key='shut', Body=b'2')
    for who in (anybody, other):
        assert who.get_object(Bucket=bucket, Key='open')['Body'].read() == b'1'
        refused('AccessDenied', who.get_object, Bucket=bucket, Key='shut')
        refused('AccessDenied', who.get_object, Bucket=bucket, Key='none')
        refused('AccessDenied', who.list_objects_v2, Bucket=bucket)
        refused('AccessDenied', who.put_object, Bucket=bucket, Key='x', Body=b'')
        refused('AccessDenied', who.delete_object, Bucket=bucket, Key='open')
    s3.put_bucket_acl(Bucket=bucket, ACL='public-read')
    assert len(s3.get_bucket_acl(Bucket=bucket)['Grants']) == 2
    assert anybody.list_objects_v2(Bucket=bucket)['KeyCount'] == 2
    refused('NoSuchKey', anybody.get_object, Bucket=bucket, Key='none')
    s3.put_object_acl(Bucket=bucket, Key='open', ACL='private')
    refused('AccessDenied', anybody.get_object, Bucket=bucket, Key='open')
    refused('NotImplemented', s3.put_bucket_acl, Bucket=bucket, ACL='public-read-write')
    refused('AccessDenied', anybody.list_buckets)


def test_signatures(s3, bucket, gateway, user, cluster):
    s3.put_object(Bucket=bucket, Key='k', Body=b'hello')
    url = s3.generate_presigned_url('get_object', Params={'Bucket': bucket, 'Key': 'k'})
    assert urllib.request.urlopen(url, timeout=60).read() == b'hello'
    with pytest.raises(urllib.error.HTTPError) as e:
        urllib.request.urlopen(url[:-1] + ('0' if url[-1] != '0' else '1'), timeout=60)
    assert e.value.code == 403 and b'SignatureDoesNotMatch' in e.value.read()
    wrong = type('Key', (), {'access': user.access, 'secret': 'x' * 40})
    refused('SignatureDoesNotMatch', gateway.client(wrong).list_buckets)
    unknown = type('Key', (), {'access': 'A' * 20, 'secret': user.secret})
    refused('InvalidAccessKeyId', gateway.client(unknown).list_buckets)
    v2 = gateway.client(user, signature_version='s3')
    assert v2.get_object(Bucket=bucket, Key='k')['Body'].read() == b'hello'
    # boto3 signs the path of a bucket with a slash at its end, and sends it without.
    name = unique('bucket')
    v2.create_bucket(Bucket=name)
    v2.head_bucket(Bucket=name)
    v2.put_bucket_versioning(Bucket=name, VersioningConfiguration={'Status': 'Enabled'})
    assert v2.get_bucket_versioning(Bucket=name)['Status'] == 'Enabled'
    assert v2.list_objects_v2(Bucket=bucket, Prefix='k')['KeyCount'] == len(v2.list_objects(Bucket=bucket, MaxKeys=9)['Contents']) == 1
    url = v2.generate_presigned_url('list_objects', Params={'Bucket': bucket, 'Prefix': 'k'})
    assert b'<Key>k</Key>' in urllib.request.urlopen(url, timeout=60).read()
    v2.delete_bucket(Bucket=name)
    refused('404', v2.head_bucket, Bucket=name)
    refused('SignatureDoesNotMatch', gateway.client(wrong, signature_version='s3').list_objects, Bucket=bucket)
    signed = gateway.client(user, s3={'addressing_style': 'path', 'payload_signing_enabled': True})
    signed.put_object(Bucket=bucket, Key='k', Body=bytes_of(1 << 20))
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == bytes_of(1 << 20)


def test_what_is_added_to_a_url_of_v2_is_refused(s3, bucket, gateway, user):
    """Another operation than the one that was signed, by a name that is not signed, or not if it is there twice."""
    s3.put_object(Bucket=bucket, Key='k', Body=b'secret')
    v2 = gateway.client(user, signature_version='s3')
    url = v2.generate_presigned_url('put_object', Params={'Bucket': bucket, 'Key': 'k'})
    everybody = '<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="Group">' \
                '<URI>http://acs.amazonaws.com/groups/global/AllUsers</URI></Grantee>'
    owner = s3.get_object_acl(Bucket=bucket, Key='k')['Owner']['ID']
    acl = '<AccessControlPolicy><Owner><ID>%s</ID></Owner><AccessControlList><Grant>%s<Permission>READ</Permission></Grant>' \
          '</AccessControlList></AccessControlPolicy>' % (owner, everybody)
    tags = '<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>'
    for added, body in [('acl&acl', acl), ('a%63l=&acl', acl), ('tagging&tagging', tags), ('publicAccessBlock', '')]:
        c = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=60)
        c.request('PUT', url[len(gateway.url):] + '&' + added, body=body)
        answer = c.getresponse()
        text = answer.read()
        assert answer.status == 403 and b'do not cover' in text, (added, answer.status, text)
    anybody = gateway.client()
    refused('AccessDenied', anybody.get_object, Bucket=bucket, Key='k')
    assert s3.get_object_tagging(Bucket=bucket, Key='k')['TagSet'] == []
    # As it was signed it does what it says.
    c = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=60)
    c.request('PUT', url[len(gateway.url):], body=b'new')
    assert c.getresponse().status == 200
    got = v2.get_object(Bucket=bucket, Key='k', ResponseContentType='a/b')
    assert got['ContentType'] == 'a/b' and got['Body'].read() == b'new'


def test_what_is_added_to_a_presigned_request_is_refused(s3, bucket, gateway, user):
    """A header of S3 that was not signed, by whoever has the URL: another's object to be copied, or an ACL."""
    s3.put_object(Bucket=bucket, Key='secret', Body=b'secret')
    s3 = gateway.client(user, signature_version='s3v4')
    url = s3.generate_presigned_url('put_object', Params={'Bucket': bucket, 'Key': 'k'})
    for headers in ({'x-amz-copy-source': '/%s/secret' % bucket}, {'x-amz-acl': 'public-read'}, {'X-Amz-Meta-A': 'b'}):
        request = urllib.request.Request(url, data=b'', method='PUT', headers=headers)
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(request, timeout=60)
        assert e.value.code == 403 and b'was not signed' in e.value.read(), headers
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')
    signed = s3.generate_presigned_url('put_object', Params={'Bucket': bucket, 'Key': 'k', 'ACL': 'public-read'})
    assert 'SignedHeaders=host%3Bx-amz-acl' in signed
    request = urllib.request.Request(signed, data=b'1', method='PUT', headers={'x-amz-acl': 'public-read'})
    assert urllib.request.urlopen(request, timeout=60).status == 200
    assert gateway.client().get_object(Bucket=bucket, Key='k')['Body'].read() == b'1'


def test_what_is_not_built_is_refused(s3, bucket):
    refused('NotImplemented', s3.put_object, Bucket=bucket, Key='k', Body=b'', ServerSideEncryption='AES256')
    refused('InvalidStorageClass', s3.put_object, Bucket=bucket, Key='k', Body=b'', StorageClass='GLACIER')


def test_users_and_keys(cluster, gateway):
    name = unique('user')
    user = User(cluster, name)
    assert name in admin(cluster, 'user', 'ls')
    second = admin(cluster, 'key', 'create', name)
    client = gateway.client(type('Key', (), {'access': second['access_key'], 'secret': second['secret_key']}))
    client.create_bucket(Bucket=name)
    info = admin(cluster, 'user', 'info', name)
    assert info['buckets'] == [name] and {k['access_key'] for k in info['keys']} == {user.access, second['access_key']}
    admin(cluster, 'key', 'rm', user.access)
    refused('InvalidAccessKeyId', gateway.client(user).list_buckets)
    from skeptest.run import run
    from skeptest.skep import find_binary
    skep = [find_binary(), 's3', 'user']
    assert 'has buckets' in run([*skep, 'rm', name, '-c', cluster.conf], check='fails').err
    assert 'exists' in run([*skep, 'create', name, '-c', cluster.conf], check='fails').err
    client.delete_bucket(Bucket=name)
    admin(cluster, 'user', 'rm', name)
    refused('InvalidAccessKeyId', client.list_buckets)
    assert 'no such user' in run([*skep, 'info', name, '-c', cluster.conf], check='fails').err


def test_an_upload_that_breaks_off_leaves_nothing(s3, bucket, gateway):
    s3.put_object(Bucket=bucket, Key='k', Body=b'old')
    url = s3.generate_presigned_url('put_object', Params={'Bucket': bucket, 'Key': 'k'})
    path = url[len(gateway.url):]
    before = set(gateway.cluster.run('rados', '-p', 's3.data', 'ls').out.split())
    with socket.create_connection(('127.0.0.1', gateway.port), 60) as c:
        head = 'PUT %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9000000\r\n\r\n' % (path, gateway.port)
        c.sendall(head.encode() + bytes(5 << 20))

        def written():
            now = set(gateway.cluster.run('rados', '-p', 's3.data', 'ls').out.split())
            return now - before
        wait_until(written, 90, 0.2, 'the first stripe')
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'old'
    wait_until(lambda: not written(), 90, 0.5, 'what was left to be collected')


def test_what_was_replaced_is_collected(s3, bucket, gateway):
    def data():
        return set(gateway.cluster.run('rados', '-p', 's3.data', 'ls').out.split())
    before = data()
    for _ in range(3):
        s3.put_object(Bucket=bucket, Key='k', Body=bytes_of(5 << 20))
    s3.put_object(Bucket=bucket, Key='other', Body=b'x')
    s3.delete_object(Bucket=bucket, Key='k')
    wait_until(lambda: len(data() - before) == 1, 90, 0.5, 'replaced and deleted objects to be collected')
    s3.delete_object(Bucket=bucket, Key='other')
    s3.delete_bucket(Bucket=bucket)
    wait_until(lambda: not data() - before, 90, 0.5, 'the last one')
