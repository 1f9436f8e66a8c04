"""Object lock, as boto3 and rclone see it: what may not be removed, who may shorten it, and what nobody may."""
import datetime
import json
import time

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.s3 import User, admin, refused

UTC = datetime.timezone.utc


def later(seconds=3600):
    return (datetime.datetime.now(UTC) + datetime.timedelta(seconds=seconds)).replace(microsecond=0)


@pytest.fixture
def locked(s3):
    name = unique('bucket')
    s3.create_bucket(Bucket=name, ObjectLockEnabledForBucket=True)
    return name


def configuration(**retention):
    made = {'ObjectLockEnabled': 'Enabled'}
    return {**made, 'Rule': {'DefaultRetention': retention}} if retention else made


def put(s3, bucket, key='k', **more):
    return s3.put_object(Bucket=bucket, Key=key, Body=b'x', **more)['VersionId']


def retain(s3, bucket, version, mode, until, key='k', **more):
    s3.put_object_retention(Bucket=bucket, Key=key, VersionId=version, Retention={'Mode': mode, 'RetainUntilDate': until}, **more)


def test_configuration_of_a_bucket(s3, bucket, locked):
    assert s3.get_bucket_versioning(Bucket=locked)['Status'] == 'Enabled'
    assert s3.get_object_lock_configuration(Bucket=locked)['ObjectLockConfiguration'] == configuration()
    refused('InvalidBucketState', s3.put_bucket_versioning, Bucket=locked, VersioningConfiguration={'Status': 'Suspended'})
    assert s3.get_bucket_versioning(Bucket=locked)['Status'] == 'Enabled'
    for retention in [{'Mode': 'GOVERNANCE', 'Days': 36500}, {'Mode': 'COMPLIANCE', 'Years': 100}, {}]:
        s3.put_object_lock_configuration(Bucket=locked, ObjectLockConfiguration=configuration(**retention))
        assert s3.get_object_lock_configuration(Bucket=locked)['ObjectLockConfiguration'] == configuration(**retention)
    for code, bad in [('MalformedXML', configuration(Mode='GOVERNANCE')), ('MalformedXML', configuration(Mode='x', Days=1)),
                      ('MalformedXML', configuration(Mode='GOVERNANCE', Days=1, Years=1)), ('MalformedXML', {}),
                      ('InvalidArgument', configuration(Mode='GOVERNANCE', Days=0)),
                      ('InvalidArgument', configuration(Mode='GOVERNANCE', Days=36501)),
                      ('InvalidArgument', configuration(Mode='COMPLIANCE', Years=101))]:
        refused(code, s3.put_object_lock_configuration, Bucket=locked, ObjectLockConfiguration=bad)
    # A bucket that has no lock.
    refused('ObjectLockConfigurationNotFoundError', s3.get_object_lock_configuration, Bucket=bucket)
    refused('InvalidBucketState', s3.put_object_lock_configuration, Bucket=bucket, ObjectLockConfiguration=configuration())
    s3.put_object(Bucket=bucket, Key='k', Body=b'x')
    refused('InvalidRequest', s3.put_object, Bucket=bucket, Key='k', Body=b'y', ObjectLockLegalHoldStatus='ON')
    refused('InvalidRequest', s3.put_object, Bucket=bucket, Key='k', Body=b'y', ObjectLockMode='GOVERNANCE', ObjectLockRetainUntilDate=later())
    for call, more in [(s3.get_object_retention, {}), (s3.get_object_legal_hold, {}),
                       (s3.put_object_legal_hold, {'LegalHold': {'Status': 'ON'}}),
                       (s3.put_object_retention, {'Retention': {'Mode': 'GOVERNANCE', 'RetainUntilDate': later()}})]:
        refused('InvalidRequest', call, Bucket=bucket, Key='k', **more)
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'x'
    # It may get one once it has versions.
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=configuration())
    s3.put_object_legal_hold(Bucket=bucket, Key='k', LegalHold={'Status': 'ON'})
    refused('AccessDenied', s3.delete_object, Bucket=bucket, Key='k', VersionId='null')


def test_retention_holds(s3, locked):
    bucket = locked
    refused('NoSuchKey', s3.get_object_retention, Bucket=bucket, Key='k')
    plain = put(s3, bucket)
    refused('NoSuchObjectLockConfiguration', s3.get_object_retention, Bucket=bucket, Key='k')
    assert s3.get_object_legal_hold(Bucket=bucket, Key='k')['LegalHold'] == {'Status': 'OFF'}
    until = later()
    governed = put(s3, bucket, ObjectLockMode='GOVERNANCE', ObjectLockRetainUntilDate=until)
    said = s3.head_object(Bucket=bucket, Key='k')
    assert said['ObjectLockMode'] == 'GOVERNANCE' and said['ObjectLockRetainUntilDate'] == until
    assert 'ObjectLockMode' not in s3.head_object(Bucket=bucket, Key='k', VersionId=plain)
    retain(s3, bucket, plain, 'COMPLIANCE', until)
    assert s3.get_object_retention(Bucket=bucket, Key='k', VersionId=plain)['Retention'] == {'Mode': 'COMPLIANCE', 'RetainUntilDate': until}
    for version in (plain, governed):
        refused('AccessDenied', s3.delete_object, Bucket=bucket, Key='k', VersionId=version)
        errors = s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'k', 'VersionId': version}]})['Errors']
        assert [e['Code'] for e in errors] == ['AccessDenied']
        retain(s3, bucket, version, s3.get_object_retention(Bucket=bucket, Key='k', VersionId=version)['Retention']['Mode'], later(7200))
        refused('AccessDenied', retain, s3, bucket, version, 'GOVERNANCE', later())
        refused('InvalidArgument', retain, s3, bucket, version, 'GOVERNANCE', later(-10))
        refused('AccessDenied', s3.put_object_retention, Bucket=bucket, Key='k', VersionId=version, Retention={})
    # A delete marker follows, and nothing is gone.
    marker = s3.delete_object(Bucket=bucket, Key='k')['VersionId']
    refused('MethodNotAllowed', retain, s3, bucket, marker, 'GOVERNANCE', later())
    s3.delete_object(Bucket=bucket, Key='k', VersionId=marker)
    # Nobody shortens compliance; governance is for who asks for it.
    bypass = {'BypassGovernanceRetention': True}
    refused('AccessDenied', s3.delete_object, Bucket=bucket, Key='k', VersionId=plain, **bypass)
    refused('AccessDenied', retain, s3, bucket, plain, 'COMPLIANCE', later(), **bypass)
    refused('AccessDenied', retain, s3, bucket, plain, 'GOVERNANCE', later(9000), **bypass)
    refused('AccessDenied', s3.put_object_retention, Bucket=bucket, Key='k', VersionId=plain, Retention={}, **bypass)
    retain(s3, bucket, governed, 'GOVERNANCE', later(), **bypass)
    s3.delete_object(Bucket=bucket, Key='k', VersionId=governed, **bypass)
    refused('BucketNotEmpty', s3.delete_bucket, Bucket=bucket)
    assert s3.get_object(Bucket=bucket, Key='k')['VersionId'] == plain


def test_a_retention_ends_and_a_hold_does_not(s3, locked):
    bucket = locked
    until = later(20)
    version = put(s3, bucket, ObjectLockMode='COMPLIANCE', ObjectLockRetainUntilDate=until, ObjectLockLegalHoldStatus='ON')
    assert s3.get_object(Bucket=bucket, Key='k')['ObjectLockLegalHoldStatus'] == 'ON'
    refused('AccessDenied', s3.delete_object, Bucket=bucket, Key='k', VersionId=version)
    wait_until(lambda: datetime.datetime.now(UTC) > until + datetime.timedelta(seconds=1), 60, 0.2, 'the retention to end')
    refused('AccessDenied', s3.delete_object, Bucket=bucket, Key='k', VersionId=version, BypassGovernanceRetention=True)
    s3.put_object_legal_hold(Bucket=bucket, Key='k', VersionId=version, LegalHold={'Status': 'OFF'})
    assert s3.get_object_legal_hold(Bucket=bucket, Key='k')['LegalHold'] == {'Status': 'OFF'}
    s3.delete_object(Bucket=bucket, Key='k', VersionId=version)
    s3.delete_bucket(Bucket=bucket)


def test_headers_and_defaults_of_what_is_put(s3, locked):
    bucket = locked
    for code, more in [('InvalidArgument', {'ObjectLockMode': 'GOVERNANCE'}), ('InvalidArgument', {'ObjectLockRetainUntilDate': later()}),
                       ('InvalidArgument', {'ObjectLockMode': 'x', 'ObjectLockRetainUntilDate': later()}),
                       ('InvalidArgument', {'ObjectLockMode': 'GOVERNANCE', 'ObjectLockRetainUntilDate': later(-60)}),
                       ('InvalidArgument', {'ObjectLockLegalHoldStatus': 'maybe'})]:
        refused(code, s3.put_object, Bucket=bucket, Key='k', Body=b'x', **more)
        refused(code, s3.create_multipart_upload, Bucket=bucket, Key='k', **more)
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')
    s3.put_object_lock_configuration(Bucket=bucket, ObjectLockConfiguration=configuration(Mode='GOVERNANCE', Days=3))

    def lock(key):
        said = s3.head_object(Bucket=bucket, Key=key)
        return said['ObjectLockMode'], round((said['ObjectLockRetainUntilDate'] - said['LastModified']).total_seconds() / 86400)
    own = {'ObjectLockMode': 'COMPLIANCE', 'ObjectLockRetainUntilDate': later(5 * 86400)}
    put(s3, bucket, 'default'), put(s3, bucket, 'own', **own)
    assert (lock('default'), lock('own')) == (('GOVERNANCE', 3), ('COMPLIANCE', 5))
    # A copy has none of its source's.
    s3.copy_object(Bucket=bucket, Key='copy', CopySource={'Bucket': bucket, 'Key': 'own'})
    s3.copy_object(Bucket=bucket, Key='copy-own', CopySource={'Bucket': bucket, 'Key': 'default'}, ObjectLockLegalHoldStatus='ON', **own)
    assert (lock('copy'), lock('copy-own')) == (('GOVERNANCE', 3), ('COMPLIANCE', 5))
    assert s3.head_object(Bucket=bucket, Key='copy-own')['ObjectLockLegalHoldStatus'] == 'ON'
    for key, more in [('parts', {}), ('parts-own', own)]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, **more)['UploadId']
        part = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b'x')['ETag']
        s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': part}]})
    assert (lock('parts'), lock('parts-own')) == (('GOVERNANCE', 3), ('COMPLIANCE', 5))
    # Tags and ACLs are no matter of locks.
    s3.put_object_tagging(Bucket=bucket, Key='own', Tagging={'TagSet': [{'Key': 'a', 'Value': 'b'}]})
    assert lock('own') == ('COMPLIANCE', 5)


def test_who_may(s3, gateway, cluster, locked):
    bucket, bob = locked, User(cluster, unique('bob'))
    other = gateway.client(bob)
    version = put(s3, bucket, ObjectLockMode='GOVERNANCE', ObjectLockRetainUntilDate=later())

    def allow(*actions, **more):
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [{
            'Effect': 'Allow', 'Principal': {'AWS': 'arn:aws:iam:::user/' + bob.name}, 'Action': action, **more,
            'Resource': 'arn:aws:s3:::%s%s' % (bucket, '' if 'Bucket' in action else '/*')} for action in actions]}))
    calls = {
        's3:GetBucketObjectLockConfiguration': lambda: other.get_object_lock_configuration(Bucket=bucket),
        's3:PutBucketObjectLockConfiguration': lambda: other.put_object_lock_configuration(
            Bucket=bucket, ObjectLockConfiguration=configuration()),
        's3:GetObjectRetention': lambda: other.get_object_retention(Bucket=bucket, Key='k'),
        's3:PutObjectRetention': lambda: retain(other, bucket, version, 'GOVERNANCE', later(9000)),
        's3:GetObjectLegalHold': lambda: other.get_object_legal_hold(Bucket=bucket, Key='k'),
        's3:PutObjectLegalHold': lambda: other.put_object_legal_hold(Bucket=bucket, Key='k', LegalHold={'Status': 'OFF'})}
    for action, call in calls.items():
        allow(*[a for a in calls if a != action])
        refused('AccessDenied', call)
        allow(action)
        call()
    # To put is not enough to put with a lock; to delete, and to ask for it, is not enough to bypass.
    allow('s3:PutObject')
    put(other, bucket, 'new')
    refused('AccessDenied', put, other, bucket, 'new', ObjectLockLegalHoldStatus='ON')
    refused('AccessDenied', put, other, bucket, 'new', ObjectLockMode='GOVERNANCE', ObjectLockRetainUntilDate=later())
    allow('s3:GetObject')
    assert 'ObjectLockMode' not in other.head_object(Bucket=bucket, Key='k')
    allow('s3:GetObject', 's3:GetObjectRetention')
    assert other.head_object(Bucket=bucket, Key='k')['ObjectLockMode'] == 'GOVERNANCE'
    # A condition sees which version it is, if one is named.
    by_id = {
        's3:GetObjectRetention': lambda **v: other.get_object_retention(Bucket=bucket, Key='k', **v),
        's3:PutObjectRetention': lambda **v: other.put_object_retention(
            Bucket=bucket, Key='k', Retention={'Mode': 'GOVERNANCE', 'RetainUntilDate': later(9900)}, **v),
        's3:GetObjectLegalHold': lambda **v: other.get_object_legal_hold(Bucket=bucket, Key='k', **v),
        's3:PutObjectLegalHold': lambda **v: other.put_object_legal_hold(Bucket=bucket, Key='k', LegalHold={'Status': 'OFF'}, **v)}
    for action, call in by_id.items():
        allow(action, Condition={'StringEquals': {'s3:VersionId': version}})
        call(VersionId=version)
        refused('AccessDenied', call)
    allow('s3:GetObjectVersion', 's3:GetObjectRetention', Condition={'StringEquals': {'s3:VersionId': version}})
    assert other.head_object(Bucket=bucket, Key='k', VersionId=version)['ObjectLockMode'] == 'GOVERNANCE'
    remove = {'Bucket': bucket, 'Key': 'k', 'VersionId': version, 'BypassGovernanceRetention': True}
    allow('s3:DeleteObjectVersion')
    refused('AccessDenied', other.delete_object, **remove)
    allow('s3:DeleteObjectVersion', 's3:BypassGovernanceRetention', Condition={'StringEquals': {'s3:VersionId': version}})
    other.delete_object(**remove)


def test_a_lifecycle_removes_nothing_that_is_locked(s3, locked, cluster, user, workdir):
    from skeptest.s3 import Gateway
    bucket = locked
    for n in range(3):
        put(s3, bucket, 'held', ObjectLockLegalHoldStatus='ON')
        put(s3, bucket, 'free')
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={'Rules': [
        {'ID': 'a', 'Status': 'Enabled', 'Filter': {'Prefix': ''}, 'Expiration': {'Days': 1}, 'NoncurrentVersionExpiration': {'NoncurrentDays': 1}}]})
    hasty = Gateway(cluster, workdir / (unique('hasty') + '.log'), '--s3-gc-wait', '2', '--s3-lifecycle-day', '2').start()

    def left():
        page = s3.list_object_versions(Bucket=bucket)
        return sorted(v['Key'] for v in page.get('Versions', [])), sorted(m['Key'] for m in page.get('DeleteMarkers', []))
    try:
        # The marker of what is gone goes, too; the other has something below.
        wait_until(lambda: left() == (['held'] * 3, ['held']), 120, 0.5, 'all to go but what is held')
        began = time.monotonic()
        wait_until(lambda: time.monotonic() > began + 5, 60, 0.5, 'two more days')
        assert left() == (['held'] * 3, ['held'])
    finally:
        assert hasty.stop() == 0
    assert admin(cluster, 'check', bucket)['problems'] == []
    refused('BucketNotEmpty', s3.delete_bucket, Bucket=bucket)
