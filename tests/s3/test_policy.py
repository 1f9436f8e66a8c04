"""Policies of buckets and blocks of public access, as boto3 and s3cmd use them: for users, for anybody, and against owners."""
import json

import pytest

from skeptest.actions import BUCKETS, OBJECTS, denied
from skeptest.cluster import unique
from skeptest.run import run
from skeptest.s3 import Gateway, User, refused


@pytest.fixture(scope='module')
def bob(cluster, gateway):
    return User(cluster, unique('bob'))


@pytest.fixture(scope='module')
def other(gateway, bob):
    return gateway.client(bob)


@pytest.fixture(scope='module')
def anybody(gateway):
    return gateway.client()


def arn(user):
    return {'AWS': 'arn:aws:iam:::user/' + user.name}


def statement(bucket, action, principal='*', path='/*', effect='Allow', **condition):
    made = {'Effect': effect, 'Principal': principal, 'Action': action, 'Resource': 'arn:aws:s3:::' + bucket + path}
    return {**made, 'Condition': condition} if condition else made


def put(s3, bucket, *statements, **more):
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': list(statements)}), **more)


def test_a_policy_is_kept(s3, other, cluster, user, bucket, workdir):
    refused('NoSuchBucketPolicy', s3.get_bucket_policy, Bucket=bucket)
    refused('NoSuchBucketPolicy', s3.get_bucket_policy_status, Bucket=bucket)
    put(s3, bucket, statement(bucket, 's3:GetObject'))
    s3.put_object(Bucket=bucket, Key='k', Body=b'x')
    gateway = Gateway(cluster, workdir / 'policy.log').start()
    try:
        there = gateway.client(user)
        assert json.loads(there.get_bucket_policy(Bucket=bucket)['Policy'])['Statement'][0]['Action'] == 's3:GetObject'
        assert there.get_bucket_policy_status(Bucket=bucket)['PolicyStatus']['IsPublic']
        assert gateway.client().get_object(Bucket=bucket, Key='k')['Body'].read() == b'x'
        there.delete_bucket_policy(Bucket=bucket)
        # What the first gateway remembers is of before.
        refused('NoSuchBucketPolicy', s3.get_bucket_policy, Bucket=bucket)
        refused('AccessDenied', other.get_object, Bucket=bucket, Key='k')
    finally:
        assert gateway.stop() == 0
    put(s3, bucket, statement(bucket, '*'))
    s3.delete_object(Bucket=bucket, Key='k')
    s3.delete_bucket(Bucket=bucket)
    s3.create_bucket(Bucket=bucket)
    refused('NoSuchBucketPolicy', s3.get_bucket_policy, Bucket=bucket)


def test_policies_that_are_refused(s3, bucket, bob):
    for bad in [statement(bucket, 's3:GetObject', StringEquals={'s3:unknown': 'x'}), statement(bucket, 's3:GetObject', Matches={'s3:prefix': 'x'}),
                statement(bucket, 's3:Nothing'), statement('other', 's3:GetObject'), statement(bucket, 's3:ListBucket'),
                statement(bucket, 's3:GetObject', {'AWS': 'arn:aws:iam:::user/' + unique('nobody')}), {}]:
        refused('MalformedPolicy', put, s3, bucket, bad)
    refused('MalformedPolicy', s3.put_bucket_policy, Bucket=bucket, Policy='{')
    refused('MalformedPolicy', s3.put_bucket_policy, Bucket=bucket, Policy=json.dumps(
        {'Statement': statement(bucket, 's3:GetObject', arn(bob)), 'Id': 'x' * (20 << 10)}))
    refused('NoSuchBucketPolicy', s3.get_bucket_policy, Bucket=bucket)
    put(s3, bucket, statement(bucket, 's3:GetObject', arn(bob)))


def test_each_action_is_allowed_and_denied(s3, other, bob, bucket):
    for key in ['k', 't', 'gone']:
        s3.put_object(Bucket=bucket, Key=key, Body=b'x', Tagging='a=b')
    upload = s3.create_multipart_upload(Bucket=bucket, Key='u')['UploadId']
    for action, calls in OBJECTS.items():
        # Another action, or another key, is not enough.
        put(s3, bucket, statement(bucket, [a for a in OBJECTS if a != action], arn(bob)), statement(bucket, action, arn(bob), '/z*'))
        for call in calls:
            denied(call, other, bucket, upload)
        put(s3, bucket, statement(bucket, action, arn(bob)))
        for call in calls:
            call(other, bucket, upload)
    upload = s3.create_multipart_upload(Bucket=bucket, Key='u')['UploadId']
    for action, calls in OBJECTS.items():
        put(s3, bucket, statement(bucket, 's3:*', effect='Deny'))
        for call in calls:
            denied(call, s3, bucket, upload)
        put(s3, bucket, statement(bucket, [a for a in OBJECTS if a != action], effect='Deny'))
        for call in calls:
            call(s3, bucket, upload)


def test_each_action_on_buckets(s3, other, bob, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={'CORSRules': [{'AllowedOrigins': ['*'], 'AllowedMethods': ['GET']}]})
    s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration={'BlockPublicAcls': True})
    for action, calls in BUCKETS.items():
        put(s3, bucket, statement(bucket, [a for a in BUCKETS if a != action], arn(bob), ''))
        for call in calls:
            denied(call, other, bucket)
        put(s3, bucket, statement(bucket, action, effect='Deny', path=''))
        for call in calls:
            denied(call, s3, bucket)
        put(s3, bucket, statement(bucket, action, arn(bob), ''))
        for call in calls:
            call(other, bucket)
    refused('NoSuchBucket', s3.list_objects_v2, Bucket=bucket)


def test_the_owner_may_always_change_the_policy(s3, other, bob, bucket):
    put(s3, bucket, statement(bucket, '*', path='*', effect='Deny'))
    denied(s3.list_objects_v2, Bucket=bucket)
    denied(s3.put_object, Bucket=bucket, Key='k', Body=b'')
    s3.get_bucket_policy(Bucket=bucket)
    put(s3, bucket, statement(bucket, '*', path='*', effect='Deny'), statement(bucket, '*', arn(bob), path='*'))
    for call in (other.get_bucket_policy, other.delete_bucket_policy):
        denied(call, Bucket=bucket)
    s3.delete_bucket_policy(Bucket=bucket)
    s3.list_objects_v2(Bucket=bucket)
    # Nor can anybody else, whatever they were given.
    put(s3, bucket, statement(bucket, '*', arn(bob), path='*'))
    other.list_objects_v2(Bucket=bucket)
    denied(put, other, bucket, statement(bucket, '*', arn(bob), path='*'))


def test_anybody(s3, anybody, bucket):
    denied(anybody.put_object, Bucket=bucket, Key='k', Body=b'x')
    put(s3, bucket, statement(bucket, ['s3:GetObject', 's3:PutObject', 's3:DeleteObject'], path='/open/*'))
    anybody.put_object(Bucket=bucket, Key='open/k', Body=b'x')
    assert anybody.get_object(Bucket=bucket, Key='open/k')['Body'].read() == b'x'
    denied(anybody.put_object, Bucket=bucket, Key='other', Body=b'x')
    # Who may not list does not hear what there is.
    denied(anybody.get_object, Bucket=bucket, Key='open/none')
    denied(anybody.put_object, Bucket=bucket, Key='open/p', Body=b'x', ACL='public-read')
    denied(anybody.put_object, Bucket=bucket, Key='open/p', Body=b'x', Tagging='a=b')
    for call in (anybody.list_objects_v2, anybody.get_bucket_policy, anybody.delete_bucket_policy, anybody.delete_bucket):
        denied(call, Bucket=bucket)
    s3.put_object(Bucket=bucket, Key='mine', Body=b'x')
    done = anybody.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'open/k'}, {'Key': 'mine'}]})
    assert [d['Key'] for d in done['Deleted']] == ['open/k']
    assert [(e['Key'], e['Code']) for e in done['Errors']] == [('mine', 'AccessDenied')]
    s3.delete_bucket_policy(Bucket=bucket)
    denied(anybody.put_object, Bucket=bucket, Key='open/k', Body=b'x')


def test_copies_need_both_ends(s3, other, bob, bucket):
    target = unique('target')
    other.create_bucket(Bucket=target)
    s3.put_object(Bucket=bucket, Key='k', Body=b'x', Tagging='a=b')
    source = {'Bucket': bucket, 'Key': 'k'}
    denied(other.copy_object, Bucket=target, Key='k', CopySource=source)
    put(s3, bucket, statement(bucket, 's3:GetObject', arn(bob)))
    denied(other.copy_object, Bucket=target, Key='k', CopySource=source)
    other.copy_object(Bucket=target, Key='k', CopySource=source, TaggingDirective='REPLACE')
    upload = other.create_multipart_upload(Bucket=target, Key='m')['UploadId']
    part = {'Bucket': target, 'Key': 'm', 'UploadId': upload, 'PartNumber': 1, 'CopySource': source}
    other.upload_part_copy(**part)
    put(s3, bucket, statement(bucket, ['s3:GetObject', 's3:GetObjectTagging'], arn(bob)))
    other.copy_object(Bucket=target, Key='k', CopySource=source)
    assert other.get_object_tagging(Bucket=target, Key='k')['TagSet'] == [{'Key': 'a', 'Value': 'b'}]
    put(s3, bucket, statement(bucket, 's3:GetObject', effect='Deny'))
    denied(s3.copy_object, Bucket=bucket, Key='l', CopySource=source)
    denied(other.upload_part_copy, **part)


def test_conditions(s3, other, bob, gateway, bucket):
    def listed(client, **kw):
        return client.list_objects_v2(Bucket=bucket, **kw)['KeyCount']
    home = statement(bucket, 's3:ListBucket', arn(bob), '', StringLike={'s3:prefix': ['', 'home/${aws:username}/*']},
                     NumericLessThanEquals={'s3:max-keys': '10'})
    put(s3, bucket, home)
    listed(other, Prefix='home/%s/' % bob.name, MaxKeys=10)
    listed(other, Prefix='', MaxKeys=1)
    for more in [{'MaxKeys': 1}, {'Prefix': 'home/else/', 'MaxKeys': 1}, {'Prefix': '', 'MaxKeys': 11}, {'Prefix': ''}]:
        denied(listed, other, **more)
    for address, allowed in [('127.0.0.0/8', True), ('10.0.0.0/8', False)]:
        put(s3, bucket, statement(bucket, 's3:ListBucket', arn(bob), '', IpAddress={'aws:SourceIp': address}))
        listed(other) if allowed else denied(listed, other)
        put(s3, bucket, statement(bucket, 's3:ListBucket', '*', '', 'Deny', NotIpAddress={'aws:SourceIp': address}))
        listed(s3) if allowed else denied(listed, s3)
    put(s3, bucket, statement(bucket, 's3:*', '*', '*', 'Deny', Bool={'aws:SecureTransport': 'false'}))
    denied(listed, s3)
    for date, allowed in [('2020-01-01T00:00:00Z', True), ('2999-01-01T00:00:00Z', False)]:
        put(s3, bucket, statement(bucket, 's3:ListBucket', arn(bob), '', DateGreaterThan={'aws:CurrentTime': date}))
        listed(other) if allowed else denied(listed, other)
    # An ACL that is demanded is judged when an upload begins, and not again at its parts.
    acl = 'bucket-owner-full-control'
    put(s3, bucket, statement(bucket, 's3:PutObject', arn(bob)),
        statement(bucket, 's3:PutObject', '*', '/*', 'Deny', StringNotEquals={'s3:x-amz-acl': acl}))
    denied(other.put_object, Bucket=bucket, Key='k', Body=b'x')
    denied(other.create_multipart_upload, Bucket=bucket, Key='m')
    other.put_object(Bucket=bucket, Key='k', Body=b'x', ACL=acl)
    upload = other.create_multipart_upload(Bucket=bucket, Key='m', ACL=acl)['UploadId']
    etag = other.upload_part(Bucket=bucket, Key='m', UploadId=upload, PartNumber=1, Body=b'p')['ETag']
    other.complete_multipart_upload(Bucket=bucket, Key='m', UploadId=upload, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})
    assert s3.get_object(Bucket=bucket, Key='m')['Body'].read() == b'p'
    but = {'Effect': 'Deny', 'NotPrincipal': arn(bob), 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % bucket}
    put(s3, bucket, but, statement(bucket, 's3:GetObject'))
    other.get_object(Bucket=bucket, Key='k')
    denied(s3.get_object, Bucket=bucket, Key='k')


def test_public_access_is_blocked(s3, other, anybody, bob, bucket):
    def block(**flags):
        s3.put_public_access_block(Bucket=bucket, PublicAccessBlockConfiguration=flags)
    refused('NoSuchPublicAccessBlockConfiguration', s3.get_public_access_block, Bucket=bucket)
    s3.put_bucket_acl(Bucket=bucket, ACL='public-read')
    s3.put_object(Bucket=bucket, Key='k', Body=b'x', ACL='public-read')
    block(BlockPublicAcls=True)
    assert s3.get_public_access_block(Bucket=bucket)['PublicAccessBlockConfiguration'] == {
        'BlockPublicAcls': True, 'IgnorePublicAcls': False, 'BlockPublicPolicy': False, 'RestrictPublicBuckets': False}
    for call, more in [(s3.put_bucket_acl, {}), (s3.put_object_acl, {'Key': 'k'}), (s3.put_object, {'Key': 'l', 'Body': b''}),
                       (s3.create_multipart_upload, {'Key': 'm'}),
                       (s3.copy_object, {'Key': 'n', 'CopySource': {'Bucket': bucket, 'Key': 'k'}})]:
        refused('AccessDenied', call, Bucket=bucket, ACL='public-read', **more)
    s3.put_object(Bucket=bucket, Key='l', Body=b'', ACL='private')
    anybody.get_object(Bucket=bucket, Key='k')
    anybody.list_objects_v2(Bucket=bucket)
    block(IgnorePublicAcls=True)
    denied(anybody.get_object, Bucket=bucket, Key='k')
    denied(anybody.list_objects_v2, Bucket=bucket)
    public = statement(bucket, 's3:GetObject')
    block(BlockPublicPolicy=True)
    refused('AccessDenied', put, s3, bucket, public)
    put(s3, bucket, statement(bucket, 's3:GetObject', arn(bob)))
    assert not s3.get_bucket_policy_status(Bucket=bucket)['PolicyStatus']['IsPublic']
    block(IgnorePublicAcls=True)
    put(s3, bucket, public)
    anybody.get_object(Bucket=bucket, Key='k')
    block(RestrictPublicBuckets=True, IgnorePublicAcls=True)
    denied(anybody.get_object, Bucket=bucket, Key='k')
    denied(other.get_object, Bucket=bucket, Key='k')
    s3.get_object(Bucket=bucket, Key='k')
    s3.delete_public_access_block(Bucket=bucket)
    anybody.get_object(Bucket=bucket, Key='k')
    refused('NoSuchPublicAccessBlockConfiguration', s3.get_public_access_block, Bucket=bucket)


def test_s3cmd_sets_policies(gateway, user, s3, anybody, bucket, tmp_path):
    conf, policy, host = tmp_path / 's3cfg', tmp_path / 'policy', '127.0.0.1:%d' % gateway.port
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n'
                    % (user.access, user.secret, host, host))
    policy.write_text(json.dumps({'Version': '2012-10-17', 'Statement': [statement(bucket, 's3:GetObject')]}))
    s3.put_object(Bucket=bucket, Key='k', Body=b'x')
    s3cmd = ['s3cmd', '-c', conf]
    run([*s3cmd, 'setpolicy', policy, 's3://' + bucket])
    assert 's3:GetObject' in run([*s3cmd, 'info', 's3://' + bucket]).out
    anybody.get_object(Bucket=bucket, Key='k')
    run([*s3cmd, 'delpolicy', 's3://' + bucket])
    denied(anybody.get_object, Bucket=bucket, Key='k')
