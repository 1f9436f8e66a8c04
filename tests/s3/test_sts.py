"""Roles and AssumeRole, as boto3 uses them: what a session may do, what it may not, and tokens that are not what they should be."""
import json
import urllib.error
import urllib.request

import boto3
import pytest
import requests
from botocore.config import Config

from skeptest.actions import BUCKETS, OBJECTS, denied
from skeptest.cluster import unique
from skeptest.s3 import User, admin, refused


def trust(*users):
    arns = ['arn:aws:iam:::user/' + u.name for u in users]
    return json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Allow', 'Principal': {'AWS': arns}, 'Action': 'sts:AssumeRole'}]})


def rights(action, resource, effect='Allow'):
    return json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': effect, 'Action': action, 'Resource': resource}]})


def client(gateway, service, user=None, credentials=None, **config):
    if credentials:
        keys = {'aws_access_key_id': credentials['AccessKeyId'], 'aws_secret_access_key': credentials['SecretAccessKey'],
                'aws_session_token': credentials['SessionToken']}
    else:
        keys = {'aws_access_key_id': user.access, 'aws_secret_access_key': user.secret}
    if service == 's3':
        config.setdefault('signature_version', 's3v4')
    config = Config(retries={'max_attempts': 0}, s3={'addressing_style': 'path'}, **config)
    return boto3.client(service, endpoint_url=gateway.url, region_name='us-east-1', config=config, **keys)


@pytest.fixture(scope='module')
def bob(cluster, gateway):
    return User(cluster, unique('bob'))


@pytest.fixture(scope='module')
def eve(cluster, gateway):
    return User(cluster, unique('eve'))


class Role:
    """Of the shared user, who has the buckets; bob may take it."""

    def __init__(self, cluster, gateway, user, bob):
        self.cluster, self.gateway, self.name = cluster, gateway, unique('role')
        self.arn = 'arn:aws:iam:::role/' + self.name
        self.sts = client(gateway, 'sts', bob)
        self.made = admin(cluster, 'role', 'create', '--role-name', self.name, '--uid', user.name,
                          '--assume-role-policy-doc', trust(bob))

    def allow(self, action, resource, name='p'):
        admin_quiet(self.cluster, 'role-policy', 'put', '--role-name', self.name, '--policy-name', name,
                    '--policy-doc', rights(action, resource))

    def take(self, **more):
        return self.sts.assume_role(RoleArn=self.arn, RoleSessionName='tests', **more)['Credentials']

    def s3(self, **more):
        return client(self.gateway, 's3', credentials=self.take(**more))


def admin_quiet(cluster, *words):
    assert admin(cluster, *words) is None


@pytest.fixture
def role(cluster, gateway, user, bob):
    return Role(cluster, gateway, user, bob)


def test_a_session_has_the_rights_of_its_role_alone(role, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'1')
    taken = role.sts.assume_role(RoleArn=role.arn, RoleSessionName='tests', DurationSeconds=900)
    assert taken['AssumedRoleUser']['Arn'] == 'arn:aws:sts:::assumed-role/%s/tests' % role.name
    assert taken['AssumedRoleUser']['AssumedRoleId'] == role.made['RoleId'] + ':tests'
    held = client(role.gateway, 's3', credentials=taken['Credentials'])
    for call, args in [(held.get_object, {'Bucket': bucket, 'Key': 'k'}), (held.put_object, {'Bucket': bucket, 'Key': 'k'}),
                       (held.list_objects_v2, {'Bucket': bucket}), (held.list_buckets, {}), (held.get_bucket_policy, {'Bucket': bucket}),
                       (held.create_bucket, {'Bucket': unique('b')})]:
        refused('AccessDenied', call, **args)
    # What is changed counts for the session that is there.
    role.allow('s3:GetObject', 'arn:aws:s3:::%s/*' % bucket)
    assert held.get_object(Bucket=bucket, Key='k')['Body'].read() == b'1'
    refused('AccessDenied', held.put_object, Bucket=bucket, Key='k')
    errors = held.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'k'}]})['Errors']
    assert [e['Code'] for e in errors] == ['AccessDenied']
    role.allow('s3:GetObject', 'arn:aws:s3:::%s/other' % bucket)
    refused('AccessDenied', held.get_object, Bucket=bucket, Key='k')
    admin_quiet(role.cluster, 'role', 'delete', '--role-name', role.name)
    refused('InvalidToken', held.list_objects_v2, Bucket=bucket)


def test_what_is_made_is_the_owners_of_the_role(role, s3, user):
    role.allow(['s3:*'], '*')
    held, name = role.s3(), unique('made')
    held.create_bucket(Bucket=name)
    held.put_object(Bucket=name, Key='k', Body=b'1')
    assert name in [b['Name'] for b in held.list_buckets()['Buckets']]
    assert s3.get_object(Bucket=name, Key='k')['Body'].read() == b'1'
    # Policies of buckets are the owner's own.
    refused('AccessDenied', held.delete_bucket_policy, Bucket=name)
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Deny', 'Principal': {'AWS': 'arn:aws:sts:::assumed-role/%s/tests' % role.name}, 'Action': 's3:GetObject',
         'Resource': 'arn:aws:s3:::%s/*' % name}]}))
    refused('AccessDenied', held.get_object, Bucket=name, Key='k')
    assert s3.get_object(Bucket=name, Key='k')['Body'].read() == b'1'
    # What the owner of the role is denied by name, its sessions are.
    s3.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Deny', 'Principal': {'AWS': 'arn:aws:iam:::user/' + user.name}, 'Action': 's3:PutObject',
         'Resource': 'arn:aws:s3:::%s/*' % name}]}))
    refused('AccessDenied', held.put_object, Bucket=name, Key='k')
    assert held.get_object(Bucket=name, Key='k')['Body'].read() == b'1'


def test_one_action_is_one_action(role, gateway, user, s3, bucket, bob):
    admin(role.cluster, 'caps', 'add', '--uid', user.name, '--caps', 'roles=*')
    iam, held, empty = client(gateway, 'iam', user), role.s3(), unique('empty')
    s3.create_bucket(Bucket=empty)
    s3.put_bucket_policy(Bucket=empty, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Allow', 'Principal': {'AWS': 'arn:aws:iam:::user/' + bob.name}, 'Action': 's3:GetObject',
         'Resource': 'arn:aws:s3:::%s/*' % empty}]}))
    for key in ['k', 't', 'gone']:
        s3.put_object(Bucket=bucket, Key=key, Body=b'x', Tagging='a=b')
    upload = s3.create_multipart_upload(Bucket=bucket, Key='u')['UploadId']
    calls = [(action, call, (bucket, upload)) for action, of in OBJECTS.items() for call in of]
    calls += [(action, call, (empty,)) for action, of in BUCKETS.items() for call in of]
    for action in [*OBJECTS, *BUCKETS]:
        iam.put_role_policy(RoleName=role.name, PolicyName='p', PolicyDocument=rights(action, '*'))
        for of, call, args in calls:
            if of != action:
                denied(call, held, *args)
        refused('AccessDenied', held.list_buckets)
        refused('AccessDenied', held.create_bucket, Bucket=unique('b'))
        for of, call, args in calls:
            if of == action:
                call(held, *args)
    refused('NoSuchBucket', s3.list_objects_v2, Bucket=empty)


def test_a_bucket_is_made_with_what_may_be_set(role, s3):
    role.allow('s3:CreateBucket', '*')
    held, name = role.s3(), unique('made')
    for more in ({'ACL': 'public-read'}, {'ObjectLockEnabledForBucket': True}):
        refused('AccessDenied', held.create_bucket, Bucket=name, **more)
        refused('NoSuchBucket', s3.list_objects_v2, Bucket=name)
    role.allow(['s3:CreateBucket', 's3:PutBucketObjectLockConfiguration'], '*')
    refused('AccessDenied', held.create_bucket, Bucket=name, ObjectLockEnabledForBucket=True)
    held.create_bucket(Bucket=name, ACL='private')
    role.allow(['s3:CreateBucket', 's3:PutBucketAcl', 's3:PutBucketObjectLockConfiguration', 's3:PutBucketVersioning'], '*')
    public, locked = unique('public'), unique('locked')
    held.create_bucket(Bucket=public, ACL='public-read')
    held.create_bucket(Bucket=locked, ObjectLockEnabledForBucket=True)
    assert len(s3.get_bucket_acl(Bucket=public)['Grants']) == 2
    assert s3.get_bucket_versioning(Bucket=locked)['Status'] == 'Enabled'


def test_what_no_session_does(role, gateway, s3, bucket):
    role.allow('s3:*', '*')
    credentials = role.take()
    held = client(gateway, 's3', credentials=credentials)
    refused('AccessDenied', held.put_bucket_logging, Bucket=bucket,
            BucketLoggingStatus={'LoggingEnabled': {'TargetBucket': bucket, 'TargetPrefix': 'l/'}})
    refused('AccessDenied', client(gateway, 'sns', credentials=credentials).create_topic, Name=unique('topic'))
    form = held.generate_presigned_post(bucket, 'k')
    answer = requests.post('%s/%s' % (gateway.url, bucket), data=form['fields'], files={'file': ('f', b'1')}, timeout=90)
    assert answer.status_code == 501 and '<Code>NotImplemented</Code>' in answer.text, answer.text
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')


def test_a_policy_of_a_session_narrows(role, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'1')
    role.allow('s3:GetObject', 'arn:aws:s3:::%s/*' % bucket)
    wide = role.s3(Policy=rights('s3:*', '*'))
    assert wide.get_object(Bucket=bucket, Key='k')['Body'].read() == b'1'
    refused('AccessDenied', wide.put_object, Bucket=bucket, Key='k')
    narrow = role.s3(Policy=rights('s3:GetObject', 'arn:aws:s3:::%s/x' % bucket))
    refused('AccessDenied', narrow.get_object, Bucket=bucket, Key='k')
    refused('MalformedPolicyDocument', role.take, Policy='{}')
    refused('PackedPolicyTooLarge', role.take, Policy=' ' * 2048 + '{}')


def test_buckets_of_others_name_the_role(role, gateway, eve):
    hers, name = client(gateway, 's3', eve), unique('hers')
    hers.create_bucket(Bucket=name)
    hers.put_object(Bucket=name, Key='k', Body=b'1')
    role.allow('s3:GetObject', '*')
    held = role.s3()
    refused('AccessDenied', held.get_object, Bucket=name, Key='k')
    for principal in [{'AWS': role.arn}, {'AWS': 'arn:aws:sts:::assumed-role/%s/tests' % role.name}, '*']:
        hers.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
            {'Effect': 'Allow', 'Principal': principal, 'Action': 's3:*', 'Resource': ['arn:aws:s3:::%s' % name, 'arn:aws:s3:::%s/*' % name]}]}))
        assert held.get_object(Bucket=name, Key='k')['Body'].read() == b'1'
        refused('AccessDenied', held.put_object, Bucket=name, Key='k')
        refused('AccessDenied', held.list_objects_v2, Bucket=name)


def test_who_takes_a_role(role, gateway, user, eve, bucket):
    for other in (eve, user):
        refused('AccessDenied', client(gateway, 'sts', other).assume_role, RoleArn=role.arn, RoleSessionName='tests')
    refused('AccessDenied', role.sts.assume_role, RoleArn=role.arn + 'x', RoleSessionName='tests')
    refused('ValidationError', role.take, DurationSeconds=7200)
    refused('ValidationError', role.sts.assume_role, RoleArn='arn:aws:iam:::user/' + user.name, RoleSessionName='tests')
    refused('NotImplemented', role.sts.get_federation_token, Name='x' * 3)
    credentials = role.take()
    # Sessions take no roles.
    chained = client(gateway, 'sts', credentials=credentials)
    refused('AccessDenied', chained.assume_role, RoleArn=role.arn, RoleSessionName='tests')
    admin(role.cluster, 'role', 'modify', '--role-name', role.name, '--assume-role-policy-doc', trust(eve),
          '--max-session-duration', '7200')
    refused('AccessDenied', role.take)
    client(gateway, 'sts', eve).assume_role(RoleArn=role.arn, RoleSessionName='tests', DurationSeconds=7200)


def test_tokens_that_are_not_what_they_should_be(role, gateway, user, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'1')
    role.allow('s3:GetObject', '*')
    one, other = role.take(), role.take()

    def code(expected, **changed):
        refused(expected, client(gateway, 's3', credentials={**one, **changed}).get_object, Bucket=bucket, Key='k')
    token = one['SessionToken']
    code('InvalidToken', SessionToken=other['SessionToken'])
    code('InvalidToken', SessionToken=token[:-8])
    code('InvalidToken', SessionToken='x')
    code('SignatureDoesNotMatch', SecretAccessKey=other['SecretAccessKey'])
    code('SignatureDoesNotMatch', AccessKeyId=other['AccessKeyId'])
    code('AccessDenied', SessionToken=None)
    code('InvalidToken', AccessKeyId=user.access, SecretAccessKey=user.secret)


def test_temporary_keys_sign_by_v4_alone(cluster, gateway, role, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'secret')
    role.allow('s3:*', '*')
    cat = User(cluster, unique('cat'))
    own = client(gateway, 'sts', cat).get_session_token(DurationSeconds=900)['Credentials']
    for credentials in (role.take(), own):
        # With the token and without, of an object, and of a bucket, whose path boto3 signs with a slash.
        for of in (credentials, {**credentials, 'SessionToken': None}):
            v2 = client(gateway, 's3', credentials=of, signature_version='s3')
            answer = refused('AccessDenied', v2.get_object, Bucket=bucket, Key='k')
            assert 'version 4' in answer['Error']['Message'], answer
            refused('AccessDenied', v2.list_objects, Bucket=bucket)
            refused('AccessDenied', v2.put_object, Bucket=bucket, Key='k', Body=b'theirs')
            # A token in the query is not what V2 signs: which of both is said is the library's matter.
            answer = requests.get(v2.generate_presigned_url('get_object', {'Bucket': bucket, 'Key': 'k'}), timeout=60)
            assert answer.status_code == 403 and b'secret' not in answer.content, answer.text
            form = v2.generate_presigned_post(bucket, 'form')
            answer = requests.post(form['url'], data=form['fields'], files={'file': ('f', b'1')}, timeout=60)
            assert answer.status_code == 501 and '<Code>NotImplemented</Code>' in answer.text, answer.text
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'secret'
    assert [o['Key'] for o in s3.list_objects_v2(Bucket=bucket)['Contents']] == ['k']
    # The same keys by V4.
    client(gateway, 's3', credentials=own).list_buckets()
    assert role.s3().get_object(Bucket=bucket, Key='k')['Body'].read() == b'secret'


def test_presigned_urls_of_a_session(role, s3, bucket):
    s3.put_object(Bucket=bucket, Key='k', Body=b'1')
    role.allow('s3:GetObject', '*')
    url = role.s3(DurationSeconds=900).generate_presigned_url('get_object', {'Bucket': bucket, 'Key': 'k'}, 3600)
    assert urllib.request.urlopen(url, timeout=30).read() == b'1'
    bare = '&'.join(p for p in url.split('&') if not p.lower().startswith('x-amz-security-token'))
    assert bare != url
    def answered(status, code, url):
        with pytest.raises(urllib.error.HTTPError) as e:
            urllib.request.urlopen(url, timeout=30)
        text = e.value.read().decode()
        assert e.value.code == status and '<Code>%s</Code>' % code in text, text
    # The token is among what is signed.
    answered(403, 'SignatureDoesNotMatch', bare)
    answered(403, 'SignatureDoesNotMatch', url + '&x-amz-security-token=x')
    admin_quiet(role.cluster, 'role', 'delete', '--role-name', role.name)
    answered(400, 'InvalidToken', url)


def test_iam_is_for_roles_of_ones_own(cluster, gateway, role, bob, eve):
    iam, name = client(gateway, 'iam', bob), unique('own')
    refused('AccessDenied', iam.list_roles)
    admin(cluster, 'caps', 'add', '--uid', bob.name, '--caps', 'roles=read')
    assert iam.list_roles()['Roles'] == []
    made = {'RoleName': name, 'AssumeRolePolicyDocument': trust(eve)}
    refused('AccessDenied', iam.create_role, **made)
    assert admin(cluster, 'caps', 'add', '--uid', bob.name, '--caps', 'roles=*')['caps'] == 'roles=*'
    refused('MalformedPolicyDocument', iam.create_role, **{**made, 'AssumeRolePolicyDocument': '{}'})
    created = iam.create_role(**made)['Role']
    assert created['AssumeRolePolicyDocument'] == json.loads(trust(eve))
    assert admin(cluster, 'role', 'get', '--role-name', name)['Owner'] == bob.name
    refused('EntityAlreadyExists', iam.create_role, **made)
    assert iam.get_role(RoleName=name)['Role']['Arn'] == created['Arn'] == 'arn:aws:iam:::role/' + name
    assert [r['RoleName'] for r in iam.list_roles()['Roles']] == [name]
    # Another's is not there for him.
    for call in (iam.get_role, iam.delete_role, iam.list_role_policies):
        refused('NoSuchEntity', call, RoleName=role.name)
    refused('NoSuchEntity', iam.put_role_policy, RoleName=role.name, PolicyName='p', PolicyDocument=rights('*', '*'))

    iam.put_role_policy(RoleName=name, PolicyName='p', PolicyDocument=rights('s3:*', '*'))
    assert iam.list_role_policies(RoleName=name)['PolicyNames'] == ['p']
    assert iam.get_role_policy(RoleName=name, PolicyName='p')['PolicyDocument'] == json.loads(rights('s3:*', '*'))
    credentials = client(gateway, 'sts', eve).assume_role(RoleArn=created['Arn'], RoleSessionName='tests')['Credentials']
    held, bucket = client(gateway, 's3', credentials=credentials), unique('bobs')
    held.create_bucket(Bucket=bucket)
    assert bucket in [b['Name'] for b in client(gateway, 's3', bob).list_buckets()['Buckets']]
    refused('AccessDenied', client(gateway, 'iam', credentials=credentials).list_roles)
    iam.update_role(RoleName=name, MaxSessionDuration=7200)
    assert iam.get_role(RoleName=name)['Role']['MaxSessionDuration'] == 7200
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust(bob))
    refused('AccessDenied', client(gateway, 'sts', eve).assume_role, RoleArn=created['Arn'], RoleSessionName='tests')
    refused('DeleteConflict', iam.delete_role, RoleName=name)
    iam.delete_role_policy(RoleName=name, PolicyName='p')
    refused('NoSuchEntity', iam.get_role_policy, RoleName=name, PolicyName='p')
    refused('AccessDenied', held.list_buckets)
    iam.delete_role(RoleName=name)
    refused('InvalidToken', held.list_buckets)
    refused('AccessDenied', iam.create_user, UserName='x')
    # Nobody else has the name from then on, and so what policies say of it; who had it has.
    admin(cluster, 'caps', 'add', '--uid', eve.name, '--caps', 'roles=*')
    hers = client(gateway, 'iam', eve)
    refused('EntityAlreadyExists', hers.create_role, **made)
    policy = json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Allow', 'Principal': {'AWS': created['Arn']}, 'Action': 's3:*', 'Resource': 'arn:aws:s3:::%s/*' % bucket}]})
    own = client(gateway, 's3', bob)
    refused('MalformedPolicy', own.put_bucket_policy, Bucket=bucket, Policy=policy)
    iam.create_role(**made)
    own.put_bucket_policy(Bucket=bucket, Policy=policy)
    iam.delete_role(RoleName=name)
    forced = admin(cluster, 'role', 'create', '--role-name', name, '--uid', eve.name, '--assume-role-policy-doc', trust(bob), '--force')
    assert forced['Owner'] == eve.name and [r['RoleName'] for r in hers.list_roles()['Roles']] == [name]


def test_who_asks(role, gateway, bob, eve):
    for user in (bob, eve):
        said = client(gateway, 'sts', user).get_caller_identity()
        assert (said['Arn'], said['UserId']) == ('arn:aws:iam:::user/' + user.name, user.name)
    said = client(gateway, 'sts', credentials=role.take()).get_caller_identity()
    assert said['Arn'] == 'arn:aws:sts:::assumed-role/%s/tests' % role.name and said['UserId'] == role.made['RoleId'] + ':tests'
    refused('SignatureDoesNotMatch', client(gateway, 'sts', Wrong(bob)).get_caller_identity)


class Wrong:
    def __init__(self, user):
        self.access, self.secret = user.access, 'x' * 40


def test_temporary_keys_of_a_user(cluster, gateway, role):
    ann, name = User(cluster, unique('ann')), unique('anns')
    sts = client(gateway, 'sts', ann)
    refused('ValidationError', sts.get_session_token, DurationSeconds=129601)
    credentials = sts.get_session_token(DurationSeconds=900)['Credentials']
    held = client(gateway, 's3', credentials=credentials)
    held.create_bucket(Bucket=name)
    held.put_object(Bucket=name, Key='k', Body=b'1')
    assert client(gateway, 's3', ann).get_object(Bucket=name, Key='k')['Body'].read() == b'1'
    # What is her own she does: also policies of buckets.
    held.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Deny', 'Principal': '*', 'Action': 's3:DeleteObject', 'Resource': 'arn:aws:s3:::%s/*' % name}]}))
    refused('AccessDenied', held.delete_object, Bucket=name, Key='k')
    refused('InvalidToken', client(gateway, 's3', credentials={**credentials, 'SessionToken': role.take()['SessionToken']}).list_buckets)
    refused('AccessDenied', client(gateway, 's3', credentials={**credentials, 'SessionToken': None}).list_buckets)
    chained = client(gateway, 'sts', credentials=credentials)
    assert chained.get_caller_identity()['UserId'] == ann.name
    refused('AccessDenied', chained.get_session_token)
    # Nor roles, though she may take this one with her own key: a role's session would outlive the key that ends these.
    admin(cluster, 'role', 'modify', '--role-name', role.name, '--assume-role-policy-doc', trust(ann))
    sts.assume_role(RoleArn=role.arn, RoleSessionName='tests')
    refused('AccessDenied', chained.assume_role, RoleArn=role.arn, RoleSessionName='tests')
    admin(cluster, 'caps', 'add', '--uid', ann.name, '--caps', 'users=*;roles=*')
    for call in ('list_users', 'list_roles', 'create_access_key'):
        refused('AccessDenied', getattr(client(gateway, 'iam', credentials=credentials), call))
    # They end with the key that they were asked for with, and while it is set aside.
    iam, second = client(gateway, 'iam', ann), admin(cluster, 'key', 'create', ann.name)['access_key']
    other = client(gateway, 's3', credentials=sts.get_session_token()['Credentials'])
    iam.update_access_key(AccessKeyId=second, Status='Inactive')
    assert other.list_buckets()['Buckets']
    admin_quiet(cluster, 'key', 'rm', ann.access)
    refused('InvalidToken', held.list_buckets)
    refused('InvalidToken', other.list_buckets)


def test_a_key_that_is_set_aside_is_good_for_nothing(cluster, gateway):
    dan, bucket = User(cluster, unique('dan')), unique('dans')
    admin(cluster, 'caps', 'add', '--uid', dan.name, '--caps', 'users=*')
    made = admin(cluster, 'key', 'create', dan.name)
    second = type('Key', (), {'access': made['access_key'], 'secret': made['secret_key']})
    iam, first = client(gateway, 'iam', dan), gateway.client(dan)
    first.create_bucket(Bucket=bucket)
    first.put_object(Bucket=bucket, Key='k', Body=b'1')
    signers = [gateway.client(second, signature_version=version) for version in ('s3v4', 's3')]
    # Signed while the key is good.
    urls = [s.generate_presigned_url('get_object', {'Bucket': bucket, 'Key': 'k'}) for s in signers]
    forms = [s.generate_presigned_post(bucket, 'form') for s in signers]

    def posted(form):
        return requests.post(form['url'], data=form['fields'], files={'file': ('f', b'1')}, timeout=60)

    def all_taken():
        for signer in signers:
            assert signer.get_object(Bucket=bucket, Key='k')['Body'].read() == b'1'
            signer.list_objects(Bucket=bucket)
        assert [requests.get(url, timeout=60).content for url in urls] == [b'1', b'1']
        assert [posted(form).status_code for form in forms] == [204, 204]
    all_taken()
    first.delete_object(Bucket=bucket, Key='form')
    iam.update_access_key(AccessKeyId=second.access, Status='Inactive')
    for signer in signers:
        refused('InvalidAccessKeyId', signer.get_object, Bucket=bucket, Key='k')
        refused('InvalidAccessKeyId', signer.list_objects, Bucket=bucket)
        refused('InvalidAccessKeyId', signer.put_object, Bucket=bucket, Key='k', Body=b'2')
    for answer in [requests.get(url, timeout=60) for url in urls] + [posted(form) for form in forms]:
        assert answer.status_code == 403 and '<Code>InvalidAccessKeyId</Code>' in answer.text, answer.text
    for service, call in [('sts', 'get_caller_identity'), ('iam', 'list_users'), ('sns', 'list_topics')]:
        refused('InvalidClientTokenId', getattr(client(gateway, service, second), call))
    assert [o['Key'] for o in first.list_objects_v2(Bucket=bucket)['Contents']] == ['k']
    iam.update_access_key(AccessKeyId=second.access, Status='Active')
    all_taken()


def test_iam_makes_users(cluster, gateway, eve):
    boss, name = User(cluster, unique('boss')), unique('made')
    iam = client(gateway, 'iam', boss)
    refused('AccessDenied', iam.list_users)
    refused('AccessDenied', iam.create_access_key, UserName=eve.name)
    admin(cluster, 'caps', 'add', '--uid', boss.name, '--caps', 'users=read')
    assert iam.get_user(UserName=eve.name)['User']['Arn'] == 'arn:aws:iam:::user/' + eve.name
    refused('AccessDenied', iam.create_user, UserName=name)
    refused('AccessDenied', iam.list_roles)
    assert admin(cluster, 'caps', 'add', '--uid', boss.name, '--caps', 'users=*')['caps'] == 'users=*'
    made = iam.create_user(UserName=name)['User']
    assert (made['UserName'], made['Path']) == (name, '/')
    refused('EntityAlreadyExists', iam.create_user, UserName=name)
    refused('ValidationError', iam.create_user, UserName='0123456789abcdef' * 2)
    pages = iam.get_paginator('list_users').paginate(PaginationConfig={'PageSize': 2})
    names = [u['UserName'] for page in pages for u in page['Users']]
    assert {name, boss.name, eve.name} <= set(names) and len(names) == len(set(names))
    assert iam.list_access_keys(UserName=name)['AccessKeyMetadata'] == []
    key = iam.create_access_key(UserName=name)['AccessKey']
    keys = {'AccessKeyId': key['AccessKeyId'], 'SecretAccessKey': key['SecretAccessKey'], 'SessionToken': None}
    own, bucket = client(gateway, 's3', credentials=keys), unique('bucket')
    own.create_bucket(Bucket=bucket)
    [listed] = iam.list_access_keys(UserName=name)['AccessKeyMetadata']
    assert (listed['AccessKeyId'], listed['Status']) == (key['AccessKeyId'], 'Active') and 'SecretAccessKey' not in listed
    # Set aside it is good for nothing, and then it is again.
    iam.update_access_key(UserName=name, AccessKeyId=key['AccessKeyId'], Status='Inactive')
    refused('InvalidAccessKeyId', own.list_buckets)
    assert iam.list_access_keys(UserName=name)['AccessKeyMetadata'][0]['Status'] == 'Inactive'
    assert admin(cluster, 'user', 'info', name)['keys'][0]['active'] is False
    iam.update_access_key(UserName=name, AccessKeyId=key['AccessKeyId'], Status='Active')
    assert [b['Name'] for b in own.list_buckets()['Buckets']] == [bucket]
    # A key is named with its own user.
    refused('NoSuchEntity', iam.delete_access_key, UserName=eve.name, AccessKeyId=key['AccessKeyId'])
    refused('NoSuchEntity', iam.update_access_key, UserName=boss.name, AccessKeyId=key['AccessKeyId'], Status='Inactive')
    refused('DeleteConflict', iam.delete_user, UserName=name)
    iam.delete_access_key(UserName=name, AccessKeyId=key['AccessKeyId'])
    refused('InvalidAccessKeyId', own.list_buckets)
    refused('DeleteConflict', iam.delete_user, UserName=name)
    key = iam.create_access_key(UserName=name)['AccessKey']
    keys = {'AccessKeyId': key['AccessKeyId'], 'SecretAccessKey': key['SecretAccessKey'], 'SessionToken': None}
    client(gateway, 's3', credentials=keys).delete_bucket(Bucket=bucket)
    iam.delete_access_key(UserName=name, AccessKeyId=key['AccessKeyId'])
    iam.delete_user(UserName=name)
    refused('NoSuchEntity', iam.get_user, UserName=name)
    refused('NoSuchEntity', iam.create_access_key, UserName=name)
    refused('NotImplemented', iam.put_user_policy, UserName=eve.name, PolicyName='p', PolicyDocument=rights('s3:*', '*'))
    secret = key['SecretAccessKey']
    assert secret not in gateway.log.read_text()
