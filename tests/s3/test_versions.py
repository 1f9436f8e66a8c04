"""Versions, as boto3, s3cmd and rclone see them: which there are, what each request does to them, who may, and what a kill leaves."""
import http.client
import json
import random
import threading
import time
import urllib.error
import urllib.request

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.exceptions import ClientError

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, md5_of, refused


def set_to(s3, bucket, status):
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': status})


@pytest.fixture
def versioned(s3, bucket):
    set_to(s3, bucket, 'Enabled')
    return bucket


def put(s3, bucket, key='k', body=b'x', **more):
    return s3.put_object(Bucket=bucket, Key=key, Body=body, **more)['VersionId']


def versions(s3, bucket, **more):
    """Key, id, whether it is a delete marker, whether it is the latest: by key, newest first; by pages."""
    all_of, pages = [], 0
    for page in s3.get_paginator('list_object_versions').paginate(Bucket=bucket, **more):
        here = [(v['Key'], v['LastModified'], v['VersionId'], False, v['IsLatest']) for v in page.get('Versions', [])]
        here += [(v['Key'], v['LastModified'], v['VersionId'], True, v['IsLatest']) for v in page.get('DeleteMarkers', [])]
        all_of += here
        pages += 1
    all_of.sort(key=lambda v: v[0])
    return [(key, version, marker, latest) for key, _, version, marker, latest in all_of]


def ids(s3, bucket, **more):
    return {(v[0], v[1]) for v in versions(s3, bucket, **more)}


def read(s3, bucket, key='k', version=None):
    return s3.get_object(Bucket=bucket, Key=key, **({'VersionId': version} if version else {}))['Body'].read()


def test_states_of_a_bucket(s3, bucket):
    assert 'Status' not in s3.get_bucket_versioning(Bucket=bucket)
    assert 'VersionId' not in s3.put_object(Bucket=bucket, Key='k', Body=b'x')
    for status in ['Enabled', 'Suspended', 'Enabled']:
        set_to(s3, bucket, status)
        assert s3.get_bucket_versioning(Bucket=bucket)['Status'] == status
    for bad in [{'Status': 'Off'}, {}]:
        refused('IllegalVersioningConfigurationException', s3.put_bucket_versioning, Bucket=bucket, VersioningConfiguration=bad)
    why = refused('NotImplemented', s3.put_bucket_versioning, Bucket=bucket, MFA='1 2', VersioningConfiguration={
        'Status': 'Enabled', 'MFADelete': 'Enabled'})
    assert 'MFA delete' in why['Error']['Message']
    assert s3.get_bucket_versioning(Bucket=bucket)['Status'] == 'Enabled'


def test_each_version_stays_until_it_is_removed(s3, versioned):
    bucket = versioned
    first, second = put(s3, bucket, body=b'1', Metadata={'n': '1'}), put(s3, bucket, body=b'22')
    assert first != second and 'null' not in (first, second)
    assert read(s3, bucket) == read(s3, bucket, version=second) == b'22' and read(s3, bucket, version=first) == b'1'
    head = s3.head_object(Bucket=bucket, Key='k', VersionId=first)
    assert head['Metadata'] == {'n': '1'} and head['VersionId'] == first and head['ContentLength'] == 1
    got = s3.get_object(Bucket=bucket, Key='k', VersionId=first, Range='bytes=0-0')
    assert got['Body'].read() == b'1' and got['VersionId'] == first
    marker = s3.delete_object(Bucket=bucket, Key='k')
    assert marker['DeleteMarker'] is True and marker['VersionId'] not in (first, second)
    assert versions(s3, bucket) == [('k', second, False, False), ('k', first, False, False), ('k', marker['VersionId'], True, True)]
    gone = refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')['ResponseMetadata']['HTTPHeaders']
    assert gone['x-amz-delete-marker'] == 'true' and gone['x-amz-version-id'] == marker['VersionId']
    gone = refused('404', s3.head_object, Bucket=bucket, Key='k')['ResponseMetadata']['HTTPHeaders']
    assert gone['x-amz-delete-marker'] == 'true'
    of_marker = refused('MethodNotAllowed', s3.get_object, Bucket=bucket, Key='k', VersionId=marker['VersionId'])
    assert of_marker['ResponseMetadata']['HTTPStatusCode'] == 405
    assert of_marker['ResponseMetadata']['HTTPHeaders']['allow'] == 'DELETE'
    assert of_marker['ResponseMetadata']['HTTPHeaders']['x-amz-delete-marker'] == 'true'
    refused('405', s3.head_object, Bucket=bucket, Key='k', VersionId=marker['VersionId'])
    assert 'Contents' not in s3.list_objects_v2(Bucket=bucket)
    # Without the marker it is back.
    undone = s3.delete_object(Bucket=bucket, Key='k', VersionId=marker['VersionId'])
    assert undone['DeleteMarker'] is True and undone['VersionId'] == marker['VersionId']
    assert read(s3, bucket) == b'22'
    s3.delete_object(Bucket=bucket, Key='k', VersionId=second)
    assert read(s3, bucket) == b'1' and versions(s3, bucket) == [('k', first, False, True)]
    refused('NoSuchVersion', s3.get_object, Bucket=bucket, Key='k', VersionId=second)
    refused('NoSuchVersion', s3.get_object, Bucket=bucket, Key='other', VersionId=first)
    refused('NoSuchVersion', s3.get_object, Bucket=bucket, Key='k', VersionId='null')
    for bad in ['abc', first.upper() + '0', first + '00']:
        refused('InvalidArgument', s3.get_object, Bucket=bucket, Key='k', VersionId=bad)
    assert s3.delete_object(Bucket=bucket, Key='k', VersionId=second)['VersionId'] == second
    refused('BucketNotEmpty', s3.delete_bucket, Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key='k', VersionId=first)
    # A marker of a key that never was is a version, too.
    only = s3.delete_object(Bucket=bucket, Key='never')['VersionId']
    refused('BucketNotEmpty', s3.delete_bucket, Bucket=bucket)
    s3.delete_object(Bucket=bucket, Key='never', VersionId=only)
    s3.delete_bucket(Bucket=bucket)


def test_the_version_null(s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'before')
    set_to(s3, bucket, 'Enabled')
    assert versions(s3, bucket) == [('k', 'null', False, True)]
    one = put(s3, bucket, body=b'one')
    assert read(s3, bucket, version='null') == b'before'
    set_to(s3, bucket, 'Suspended')
    assert put(s3, bucket, body=b'after') == 'null'
    assert put(s3, bucket, body=b'again') == 'null'
    assert versions(s3, bucket) == [('k', 'null', False, True), ('k', one, False, False)]
    assert read(s3, bucket, version='null') == b'again' and read(s3, bucket, version=one) == b'one'
    marker = s3.delete_object(Bucket=bucket, Key='k')
    assert marker['VersionId'] == 'null' and marker['DeleteMarker'] is True
    assert set(versions(s3, bucket)) == {('k', 'null', True, True), ('k', one, False, False)}
    set_to(s3, bucket, 'Enabled')
    two = put(s3, bucket, body=b'two')
    refused('MethodNotAllowed', s3.get_object, Bucket=bucket, Key='k', VersionId='null')
    s3.delete_object(Bucket=bucket, Key='k', VersionId='null')
    assert ids(s3, bucket) == {('k', one), ('k', two)}
    refused('NoSuchVersion', s3.get_object, Bucket=bucket, Key='k', VersionId='null')


def test_listings(s3, versioned):
    """By pages of every size, under prefixes; enough for several shards."""
    bucket, made = versioned, []
    for n in range(24):
        for _ in range(3):
            made.append(('d%d/%02d' % (n % 2, n), put(s3, bucket, 'd%d/%02d' % (n % 2, n))))
    made += [('top', put(s3, bucket, 'top')) for _ in range(5)]
    made.append(('d0/00', s3.delete_object(Bucket=bucket, Key='d0/00')['VersionId']))
    for size in [1, 4, 1000]:
        got = versions(s3, bucket, PaginationConfig={'PageSize': size})
        assert {v[:2] for v in got} == set(made) and len(got) == len(made), size
        assert [v[0] for v in got if v[3]] == sorted({key for key, _ in made}), size
    of_top = [v[1] for v in versions(s3, bucket, Prefix='top', PaginationConfig={'PageSize': 2})]
    assert of_top == [version for key, version in reversed(made) if key == 'top']
    page = s3.list_object_versions(Bucket=bucket, Delimiter='/', EncodingType='url')
    assert [p['Prefix'] for p in page['CommonPrefixes']] == ['d0/', 'd1/'] and [v['Key'] for v in page['Versions']] == ['top'] * 5
    page = s3.list_object_versions(Bucket=bucket, Delimiter='/', MaxKeys=3)
    assert page['IsTruncated'] and page['NextKeyMarker'] == 'top' and page['NextVersionIdMarker'] == of_top[0]
    rest = s3.list_object_versions(Bucket=bucket, Delimiter='/', KeyMarker='top', VersionIdMarker=of_top[0])
    assert [v['VersionId'] for v in rest['Versions']] == of_top[1:] and not any(v['IsLatest'] for v in rest['Versions'])
    assert 'Versions' not in s3.list_object_versions(Bucket=bucket, KeyMarker='top')
    refused('InvalidArgument', s3.list_object_versions, Bucket=bucket, VersionIdMarker=of_top[0])
    refused('InvalidArgument', s3.list_object_versions, Bucket=bucket, KeyMarker='top', VersionIdMarker='x')
    keys = [o['Key'] for o in s3.list_objects_v2(Bucket=bucket)['Contents']]
    assert keys == sorted({key for key, _ in made} - {'d0/00'})


def test_many_versions_of_one_key_lie_beside_others(s3, versioned, gateway):
    """A part of an index that cannot be split within a key goes on."""
    bucket = versioned
    for key in ['a', 'k', 'z']:
        put(s3, bucket, key)
    made = [put(s3, bucket, 'k', b'%d' % n) for n in range(130)]
    for key in ['a', 'k', 'z']:
        s3.put_object(Bucket=bucket, Key=key + key, Body=b'x')
    assert len(versions(s3, bucket, Prefix='k')) == 132
    assert read(s3, bucket, 'k') == b'129' and read(s3, bucket, 'k', made[3]) == b'3'
    assert [o['Key'] for o in s3.list_objects_v2(Bucket=bucket)['Contents']] == ['a', 'aa', 'k', 'kk', 'z', 'zz']


def test_copies_tags_acls_and_uploads(s3, versioned, gateway):
    bucket = versioned
    old = put(s3, bucket, body=b'old', Tagging='a=1')
    new = put(s3, bucket, body=b'new')
    source = {'Bucket': bucket, 'Key': 'k', 'VersionId': old}
    copied = s3.copy_object(Bucket=bucket, Key='copy', CopySource=source)
    assert copied['CopySourceVersionId'] == old and read(s3, bucket, 'copy', copied['VersionId']) == b'old'
    # An older version is copied onto its own key.
    back = s3.copy_object(Bucket=bucket, Key='k', CopySource=source)['VersionId']
    assert read(s3, bucket) == b'old' and {('k', old), ('k', new), ('k', back)} == ids(s3, bucket, Prefix='k')
    marker = s3.delete_object(Bucket=bucket, Key='gone')['VersionId']
    refused('InvalidRequest', s3.copy_object, Bucket=bucket, Key='x', CopySource={'Bucket': bucket, 'Key': 'gone', 'VersionId': marker})
    refused('NoSuchKey', s3.copy_object, Bucket=bucket, Key='x', CopySource={'Bucket': bucket, 'Key': 'gone'})
    # What is said of a version changes that version alone, and makes none.
    tags = s3.get_object_tagging(Bucket=bucket, Key='k', VersionId=old)
    assert tags['TagSet'] == [{'Key': 'a', 'Value': '1'}] and tags['VersionId'] == old
    set_ = s3.put_object_tagging(Bucket=bucket, Key='k', VersionId=new, Tagging={'TagSet': [{'Key': 'b', 'Value': '2'}]})
    assert set_['VersionId'] == new
    s3.delete_object_tagging(Bucket=bucket, Key='k', VersionId=old)
    assert [len(s3.get_object_tagging(Bucket=bucket, Key='k', VersionId=v)['TagSet']) for v in (old, new, back)] == [0, 1, 1]
    s3.put_object_acl(Bucket=bucket, Key='k', VersionId=old, ACL='public-read')
    assert [len(s3.get_object_acl(Bucket=bucket, Key='k', VersionId=v)['Grants']) for v in (old, new)] == [2, 1]
    nobody = gateway.client()
    assert read(nobody, bucket, version=old) == b'old'
    refused('AccessDenied', nobody.get_object, Bucket=bucket, Key='k', VersionId=new)
    refused('MethodNotAllowed', s3.get_object_tagging, Bucket=bucket, Key='gone', VersionId=marker)
    # Uploads in parts.
    upload = s3.create_multipart_upload(Bucket=bucket, Key='k')['UploadId']
    part = s3.upload_part_copy(Bucket=bucket, Key='k', UploadId=upload, PartNumber=1, CopySource=source)
    assert part['CopySourceVersionId'] == old
    done = s3.complete_multipart_upload(Bucket=bucket, Key='k', UploadId=upload, MultipartUpload={
        'Parts': [{'PartNumber': 1, 'ETag': part['CopyPartResult']['ETag']}]})
    assert done['VersionId'] not in (old, new, back) and read(s3, bucket, version=done['VersionId']) == b'old'
    assert len(versions(s3, bucket, Prefix='k')) == 4


def test_deleting_many_and_conditions(s3, versioned):
    bucket = versioned
    made = {key: [put(s3, bucket, key, b'%d' % n) for n in range(2)] for key in 'abc'}
    answer = s3.delete_objects(Bucket=bucket, Delete={'Objects': [
        {'Key': 'a'}, {'Key': 'b', 'VersionId': made['b'][0]}, {'Key': 'c', 'VersionId': 'nonsense'}, {'Key': 'new'}]})
    deleted = {d['Key']: d for d in answer['Deleted']}
    assert deleted['a']['DeleteMarker'] and deleted['new']['DeleteMarker'] and deleted['b']['VersionId'] == made['b'][0]
    assert 'DeleteMarker' not in deleted['b'] and [e['Code'] for e in answer['Errors']] == ['InvalidArgument']
    marker = deleted['a']['DeleteMarkerVersionId']
    answer = s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'a', 'VersionId': marker}]})['Deleted'][0]
    assert answer == {'Key': 'a', 'VersionId': marker, 'DeleteMarker': True, 'DeleteMarkerVersionId': marker}
    assert read(s3, bucket, 'a') == b'1' and read(s3, bucket, 'b') == b'1'
    # Many of one key, as who empties a bucket asks for them; and no marker for what can be no key.
    many = [put(s3, bucket, 'many') for _ in range(40)]
    answer = s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'many', 'VersionId': v} for v in many] + [{'Key': 'x' * 1025}]})
    assert len(answer['Deleted']) == 40 and [e['Code'] for e in answer['Errors']] == ['KeyTooLongError']
    assert ids(s3, bucket, Prefix='many') == set() and ids(s3, bucket, Prefix='xx') == set()
    # Conditions are about the current version: over a delete marker there is none.
    refused('PreconditionFailed', s3.put_object, Bucket=bucket, Key='a', Body=b'', IfNoneMatch='*')
    s3.delete_object(Bucket=bucket, Key='a')
    put(s3, bucket, 'a', b'2', IfNoneMatch='*')
    old = s3.head_object(Bucket=bucket, Key='a', VersionId=made['a'][0])['ETag']
    refused('PreconditionFailed', s3.put_object, Bucket=bucket, Key='a', Body=b'', IfMatch=old)
    refused('PreconditionFailed', s3.get_object, Bucket=bucket, Key='a', VersionId=made['a'][1], IfMatch=old)
    assert s3.get_object(Bucket=bucket, Key='a', VersionId=made['a'][0], IfMatch=old)['Body'].read() == b'0'


def test_a_long_put_ends_under_the_terms_of_its_end(gateway, s3, bucket):
    """Versioning, or a default retention, that comes while a body does."""
    locked = unique('bucket')
    s3.create_bucket(Bucket=locked, ObjectLockEnabledForBucket=True)
    s3.put_object(Bucket=bucket, Key='k', Body=b'old')

    def begin(name):
        url = s3.generate_presigned_url('put_object', Params={'Bucket': name, 'Key': 'k'}, HttpMethod='PUT')
        c = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=60)
        c.putrequest('PUT', url[len(gateway.url):])
        c.putheader('Content-Length', '3')
        c.endheaders()
        c.send(b'n')
        return c

    def end(c):
        c.send(b'ew')
        answer = c.getresponse()
        assert answer.status == 200, answer.read()
        return answer.headers['x-amz-version-id']
    begun = [begin(name) for name in (bucket, locked)]
    # For the gateway to look at the buckets; a test of less where that takes longer.
    time.sleep(0.5)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    s3.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration={
        'ObjectLockEnabled': 'Enabled', 'Rule': {'DefaultRetention': {'Mode': 'COMPLIANCE', 'Days': 1}}})
    # What was seen less than a second before is not looked at again.
    time.sleep(1.2)
    new, kept = [end(c) for c in begun]
    assert new not in (None, 'null') and read(s3, bucket) == b'new' and read(s3, bucket, version='null') == b'old'
    assert s3.get_object_retention(Bucket=locked, Key='k', VersionId=kept)['Retention']['Mode'] == 'COMPLIANCE'
    refused('AccessDenied', s3.delete_object, Bucket=locked, Key='k', VersionId=kept)


def test_deletes_mean_what_is_written(gateway, user, s3, versioned):
    """What a reader of XML would pass over is no other key, nor all versions of one."""
    bucket = versioned
    made = {key: put(s3, bucket, key) for key in ('logs/', 'logs/x', 'x')}

    def ask(written):
        body = ('<Delete><Object>%s</Object></Delete>' % written).encode()
        request = AWSRequest(method='POST', url='%s/%s?delete' % (gateway.url, bucket), data=body,
                             headers={'Content-MD5': md5_of(body), 'Content-Type': 'application/xml'})
        S3SigV4Auth(Credentials(user.access, user.secret), 's3', 'us-east-1').add_auth(request)
        request = urllib.request.Request(request.url, body, dict(request.headers.items()), method='POST')
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.read().decode()
    for code, bad in [('MalformedXML', '<Key>logs/<![CDATA[x]]></Key>'), ('MalformedXML', '<Key><![CDATA[x]]></Key>'),
                      ('MalformedXML', '<Key>x</Key><Version>%s</Version>' % made['x']), ('MalformedXML', 'logs/<Key>x</Key>'),
                      ('InvalidArgument', '<Key></Key>'), ('InvalidArgument', '<Key/>'), ('KeyTooLongError', '<Key>%s</Key>' % ('x' * 1025)),
                      ('NotImplemented', '<Key>x</Key><Size>7</Size>')]:
        assert '<Code>%s</Code>' % code in ask(bad), (code, bad)
    assert ids(s3, bucket) == set(made.items())
    assert '<Deleted>' in ask('<Key>logs/<!-- all of it -->x</Key><VersionId>%s</VersionId>' % made['logs/x'])
    assert {key for key, _ in ids(s3, bucket)} == {'logs/', 'x'}


def test_an_expiry_is_said_of_what_is_asked_for_without_an_id(s3, versioned):
    """Versions that are not the current one have other terms."""
    bucket, old = versioned, put(s3, versioned)
    put(s3, bucket)
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={'Rules': [
        {'ID': 'r', 'Status': 'Enabled', 'Filter': {'Prefix': ''}, 'Expiration': {'Days': 3000}}]})
    for ask in (s3.head_object, s3.get_object):
        assert 'rule-id="r"' in ask(Bucket=bucket, Key='k')['Expiration']
        assert 'Expiration' not in ask(Bucket=bucket, Key='k', VersionId=old)


def test_who_may(s3, versioned, gateway, cluster):
    """What is asked of a version by its id is another action than the same of the current one."""
    bucket, bob = versioned, User(cluster, unique('bob'))
    other = gateway.client(bob)
    old, new = put(s3, bucket, body=b'1', Tagging='a=1'), put(s3, bucket, body=b'2')
    calls = {
        'GetObject': lambda v: other.get_object(Bucket=bucket, Key='k', **v),
        'GetObjectTagging': lambda v: other.get_object_tagging(Bucket=bucket, Key='k', **v),
        'PutObjectTagging': lambda v: other.put_object_tagging(Bucket=bucket, Key='k', Tagging={'TagSet': []}, **v),
        'DeleteObjectTagging': lambda v: other.delete_object_tagging(Bucket=bucket, Key='k', **v),
        'GetObjectAcl': lambda v: other.get_object_acl(Bucket=bucket, Key='k', **v),
        'PutObjectAcl': lambda v: other.put_object_acl(Bucket=bucket, Key='k', ACL='private', **v),
        'DeleteObject': lambda v: other.delete_object(Bucket=bucket, Key='k', **v)}

    def allow(action, **condition):
        statement = {'Effect': 'Allow', 'Principal': {'AWS': 'arn:aws:iam:::user/' + bob.name}, 'Action': action,
                     'Resource': 'arn:aws:s3:::%s%s' % (bucket, '' if 'Bucket' in action else '/*')}
        if condition:
            statement['Condition'] = {'StringEquals': condition}
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [statement]}))
    for name, call in calls.items():
        of_version = 's3:' + name.replace('Object', 'ObjectVersion')
        allow(of_version)
        refused('AccessDenied', call, {})
        call({'VersionId': old})
        allow('s3:' + name)
        refused('AccessDenied', call, {'VersionId': new})
        call({})
    allow('s3:GetObjectVersion', **{'s3:VersionId': new})
    other.get_object(Bucket=bucket, Key='k', VersionId=new)
    refused('AccessDenied', other.get_object, Bucket=bucket, Key='k', VersionId=old)
    refused('AccessDenied', other.put_bucket_versioning, Bucket=bucket, VersioningConfiguration={'Status': 'Suspended'})
    allow('s3:PutBucketVersioning')
    set_to(other, bucket, 'Suspended')
    refused('AccessDenied', other.list_object_versions, Bucket=bucket)
    allow('s3:ListBucketVersions')
    assert len(other.list_object_versions(Bucket=bucket)['Versions']) == 1
    refused('AccessDenied', other.list_objects_v2, Bucket=bucket)


def test_s3cmd_and_rclone(s3, gateway, user, versioned, tmp_path):
    bucket, host = versioned, '127.0.0.1:%d' % gateway.port
    conf = tmp_path / 's3cfg'
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n'
                    'bucket_location = us-east-1\n' % (user.access, user.secret, host, host))
    tree = tmp_path / 'tree'
    tree.mkdir()
    for n in range(3):
        (tree / str(n)).write_bytes(bytes_of(1000 + n))

    def s3cmd(*args, **kw):
        return run(['s3cmd', '-c', conf, '--no-progress', *args], **kw)
    s3cmd('sync', str(tree) + '/', 's3://%s/t/' % bucket)
    (tree / '1').write_bytes(b'changed')
    s3cmd('sync', str(tree) + '/', 's3://%s/t/' % bucket)
    s3cmd('del', 's3://%s/t/2' % bucket)
    assert len(s3cmd('ls', 's3://%s/t/' % bucket).out.splitlines()) == 2
    assert len(versions(s3, bucket)) == 5
    env = {'AWS_CA_BUNDLE': '', 'RCLONE_CONFIG': str(tmp_path / 'none'), 'RCLONE_CONFIG_S_TYPE': 's3', 'RCLONE_CONFIG_S_PROVIDER': 'Ceph',
           'RCLONE_CONFIG_S_ENDPOINT': gateway.url, 'RCLONE_CONFIG_S_ACCESS_KEY_ID': user.access,
           'RCLONE_CONFIG_S_SECRET_ACCESS_KEY': user.secret}

    def rclone(*args):
        return run(['rclone', *args], env=env)
    rclone('sync', tree, 's:%s/t' % bucket)
    rclone('check', tree, 's:%s/t' % bucket)
    # It sets times that s3cmd did not, by copies onto the same keys; a name with a time is of an older version.
    seen = rclone('lsf', '--s3-versions', 's:%s/t' % bucket).out.splitlines()
    assert {'0', '1', '2'} <= set(seen) and len(seen) == len([v for v in versions(s3, bucket) if not v[2]]), seen
    old = sorted(name for name in seen if name.startswith('1-v'))
    rclone('copy', '--s3-versions', 's:%s/t' % bucket, tmp_path / 'all')
    assert (tmp_path / 'all' / old[0]).read_bytes() == bytes_of(1001) and (tmp_path / 'all' / '1').read_bytes() == b'changed'
    (tree / '0').unlink()
    rclone('sync', tree, 's:%s/t' % bucket)
    assert len(s3.list_objects_v2(Bucket=bucket)['Contents']) == 2 and sum(v[2] for v in versions(s3, bucket)) == 2
    # With all versions.
    rclone('purge', 's:%s/t' % bucket)
    assert versions(s3, bucket) == []
    s3cmd('rb', 's3://' + bucket)


class Changer(threading.Thread):
    """Puts, deletes and removes versions through any of the gateways. What was answered holds; what was not may, or may not."""

    def __init__(self, number, clients, bucket, end):
        super().__init__(daemon=True)
        self.number, self.clients, self.bucket, self.end = number, clients, bucket, end
        self.random = random.Random(number)
        self.there, self.gone, self.done, self.broken = {}, set(), 0, 0

    def change(self, client, key, n):
        what = self.random.randrange(6)
        if what < 4 or not self.there:
            data = b'%d %d ' % (self.number, n) + bytes(n % 700)
            version = client.put_object(Bucket=self.bucket, Key=key, Body=data)['VersionId']
            self.there[key, version] = data
        elif what == 4:
            self.there[key, client.delete_object(Bucket=self.bucket, Key=key)['VersionId']] = None
        else:
            of = self.random.choice(sorted(self.there))
            del self.there[of]
            client.delete_object(Bucket=self.bucket, Key=of[0], VersionId=of[1])
            self.gone.add(of)

    def run(self):
        n = 0
        while not self.end.is_set():
            n += 1
            try:
                # Half of the keys are others', too.
                key = '%s-%d' % (self.number if n % 2 else 'all', n % 11)
                self.change(self.clients[n % len(self.clients)], key, n)
                self.done += 1
            except Exception:                                   # killed in between
                self.broken += 1


def test_gateways_killed_under_writers_of_versions(cluster, gateway, user, workdir):
    others = [Gateway(cluster, workdir / (unique('killed') + '.log'), '--s3-split-at', '24', '--s3-gc-wait', '600').start()
              for _ in range(2)]
    try:
        bucket, end = unique('bucket'), threading.Event()
        steady = gateway.client(user)
        steady.create_bucket(Bucket=bucket)
        set_to(steady, bucket, 'Enabled')
        changers = [Changer(n, [g.client(user, connect_timeout=5) for g in others], bucket, end) for n in range(4)]
        [c.start() for c in changers]
        for n in range(6):
            done = sum(c.done for c in changers)
            wait_until(lambda: sum(c.done for c in changers) >= done + 40, 90, 0.02, 'changers to go on')
            others[n % 2].kill()
            others[n % 2].start()
        end.set()
        [c.join(180) for c in changers]
        assert not any(c.is_alive() for c in changers)
        assert sum(c.broken for c in changers) > 0, 'no kill hit anything'
        told = {(v[0], v[1]): v[2] for v in versions(steady, bucket)}
        for changer in changers:
            for of, data in changer.there.items():
                assert told[of] == (data is None), of
                if data is not None:
                    assert read(others[0].client(user), bucket, *of) == data, of
            assert not changer.gone & set(told)
        assert sum(latest for *_, latest in versions(steady, bucket)) == len({key for key, _ in told})
        counts = admin(cluster, 'check', bucket)
        assert counts['problems'] == [], counts
        # A split that was killed is gone on with by whoever collects, once it was left for a minute.
        wait_until(lambda: admin(cluster, 'check', bucket)['counts']['shards'] > 1, 240, 1, 'a split')
        assert counts['counts']['objects'] + counts['counts']['noncurrent'] + counts['counts']['delete_markers'] == len(told)
    finally:
        [g.kill() for g in others]


def test_a_check_finds_what_does_not_fit(cluster, s3, versioned, workdir):
    bucket = versioned
    lost = put(s3, bucket, 'lost', b'x')
    put(s3, bucket, 'k', b'1'), put(s3, bucket, 'k', b'2')
    assert admin(cluster, 'check', bucket)['counts']['noncurrent'] == 1
    before = set(cluster.run('rados', '-p', 's3.data', 'ls').out.split())
    s3.put_object(Bucket=bucket, Key='lost', Body=b'y')
    data = set(cluster.run('rados', '-p', 's3.data', 'ls').out.split()) - before
    assert len(data) == 1, data
    cluster.run('rados', '-p', 's3.data', 'rm', data.pop())
    said = cluster.cli('s3', 'check', bucket, '-c', cluster.conf, check='fails')
    assert 'is not there' in said.out and '1 problems' in said.err, said
    assert read(s3, bucket, 'lost', lost) == b'x'
    with pytest.raises(ClientError):
        s3.get_object(Bucket=bucket, Key='lost')
    s3.delete_object(Bucket=bucket, Key='lost', VersionId=s3.head_object(Bucket=bucket, Key='lost')['VersionId'])
    assert admin(cluster, 'check', bucket)['problems'] == []
