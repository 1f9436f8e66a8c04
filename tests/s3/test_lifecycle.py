"""Lifecycles, as boto3 and s3cmd set them: rules that are kept or refused, what answers say, and what goes when its time is over."""
import datetime
import email.utils
import json
import time

import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, refused

DAY_S = 2
PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
# Generous: other work is on the machine.
WITHIN_S = 120


@pytest.fixture(scope='module')
def hasty(cluster, workdir):
    """A gateway with days of two seconds, before the same cluster: it runs the lifecycles of all buckets of it, by its days."""
    made = Gateway(cluster, workdir / 'lifecycle.log', '--s3-split-at', '40', '--s3-gc-wait', '2', '--s3-lifecycle-day', str(DAY_S)).start()
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


@pytest.fixture(scope='module')
def h3(hasty, user):
    return hasty.client(user)


def rule(name, days=None, prefix='', **more):
    made = {'ID': name, 'Status': 'Enabled', 'Filter': {'Prefix': prefix}}
    return {**made, **({'Expiration': {'Days': days}} if days else {}), **more}


def put(s3, bucket, *rules):
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={'Rules': list(rules)})


def names(s3, bucket):
    return [o['Key'] for o in s3.list_objects_v2(Bucket=bucket).get('Contents', [])]


RULES = [rule('a', 30, 'logs/'), rule('b', None, 'tmp/', Expiration={'Date': PAST.replace(year=2099)}, Status='Disabled'),
         rule('c', 1, Filter={'Tag': {'Key': 'k', 'Value': 'v'}}),
         rule('d', 1, Filter={'And': {'Prefix': 'p', 'Tags': [{'Key': 'k', 'Value': 'v'}], 'ObjectSizeGreaterThan': 10, 'ObjectSizeLessThan': 99}}),
         rule('e', None, 'up/', AbortIncompleteMultipartUpload={'DaysAfterInitiation': 7})]


def test_rules_are_kept(s3, cluster, gateway, user, bucket, workdir):
    refused('NoSuchLifecycleConfiguration', s3.get_bucket_lifecycle_configuration, Bucket=bucket)
    put(s3, bucket, *RULES)
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={'CORSRules': [{'AllowedOrigins': ['*'], 'AllowedMethods': ['GET']}]})
    other = Gateway(cluster, workdir / 'kept.log').start()
    try:
        there = other.client(user)
        assert there.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'] == RULES
        there.delete_bucket_lifecycle(Bucket=bucket)
        refused('NoSuchLifecycleConfiguration', s3.get_bucket_lifecycle_configuration, Bucket=bucket)
    finally:
        assert other.stop() == 0
    assert s3.get_bucket_cors(Bucket=bucket)['CORSRules']
    # As before there were filters, and without an ID.
    put(s3, bucket, {'Status': 'Enabled', 'Prefix': 'x', 'Expiration': {'Days': 9}})
    got = s3.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'][0]
    assert got.pop('ID') and got == {'Status': 'Enabled', 'Prefix': 'x', 'Expiration': {'Days': 9}}


def test_rules_that_are_refused(s3, bucket):
    put(s3, bucket, RULES[0])
    one = {'NoncurrentDays': 1}
    for code, bad in [
            ('InvalidStorageClass', rule('x', 2, Transitions=[{'Days': 1, 'StorageClass': 'GLACIER'}])),
            ('InvalidArgument', rule('x', 1, Transitions=[{'Days': 1, 'StorageClass': 'GLACIER'}])),
            ('MalformedXML', rule('x', 2, Transitions=[{'Days': 1, 'StorageClass': 'STANDARD'}])),
            ('InvalidArgument', rule('x', 1, NoncurrentVersionExpiration={'NoncurrentDays': 0})),
            ('InvalidArgument', rule('x', 1, NoncurrentVersionExpiration={**one, 'NewerNoncurrentVersions': 101})),
            ('MalformedXML', rule('x', 1, NoncurrentVersionExpiration={'NewerNoncurrentVersions': 1})),
            ('InvalidStorageClass', rule('x', 1, NoncurrentVersionTransitions=[{**one, 'StorageClass': 'GLACIER'}])),
            ('MalformedXML', rule('x', None, Expiration={'Days': 1, 'ExpiredObjectDeleteMarker': True})),
            ('InvalidRequest', rule('x', None, Expiration={'ExpiredObjectDeleteMarker': True}, Filter={'Tag': {'Key': 'k', 'Value': ''}})),
            ('MalformedXML', rule('x')), ('MalformedXML', rule('x', 1, Status='on')),
            ('MalformedXML', rule('x', None, Expiration={'Days': 1, 'Date': PAST})), ('MalformedXML', rule('x', 1, Prefix='p')),
            ('MalformedXML', {'Status': 'Enabled', 'Expiration': {'Days': 1}}),
            ('InvalidArgument', rule('x', -1)), ('InvalidArgument', rule('x', None, Expiration={'Date': PAST.replace(hour=3)})),
            ('InvalidArgument', rule('x' * 256, 1)),
            ('InvalidRequest', rule('x', None, AbortIncompleteMultipartUpload={'DaysAfterInitiation': 1}, Filter={'Tag': {'Key': 'k', 'Value': ''}}))]:
        refused(code, put, s3, bucket, bad)
    refused('InvalidArgument', put, s3, bucket, rule('x', 1), rule('x', 2))
    refused('MalformedXML', put, s3, bucket)
    refused('InvalidRequest', put, s3, bucket, *[rule('x%d' % n, 1, 'p' * 1000) for n in range(70)])
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'] == RULES[:1]


def test_who_may(s3, gateway, cluster, bucket):
    bob = User(cluster, unique('bob'))
    other = gateway.client(bob)
    put(s3, bucket, RULES[0])
    calls = [(other.get_bucket_lifecycle_configuration, {}), (other.delete_bucket_lifecycle, {}),
             (other.put_bucket_lifecycle_configuration, {'LifecycleConfiguration': {'Rules': RULES[:1]}})]
    for call, more in calls:
        refused('AccessDenied', call, Bucket=bucket, **more)

    def allow(action):
        s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [{
            'Effect': 'Allow', 'Principal': {'AWS': 'arn:aws:iam:::user/' + bob.name}, 'Action': action, 'Resource': 'arn:aws:s3:::' + bucket}]}))
    allow('s3:GetLifecycleConfiguration')
    assert calls[0][0](Bucket=bucket)['Rules'] == RULES[:1]
    for call, more in calls[1:]:
        refused('AccessDenied', call, Bucket=bucket, **more)
    allow('s3:PutLifecycleConfiguration')
    refused('AccessDenied', calls[0][0], Bucket=bucket)
    for call, more in calls[1:]:
        call(Bucket=bucket, **more)
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'] == RULES[:1]


def test_answers_say_when_an_object_expires(s3, bucket):
    put(s3, bucket, rule('a "b"', 30, 'logs/'), rule('soon', 1, Filter={'Tag': {'Key': 'k', 'Value': 'v'}}))

    def end(answer):
        date, name = answer['Expiration'].split(', rule-id=')
        at = email.utils.parsedate_to_datetime(date.split('"')[1]).timestamp()
        assert at % 86400 == 0
        return int(at - time.time()) // 86400, name

    def same(answer):
        # Midnight may have been meanwhile.
        (ahead, name), (before, wanted) = end(answer), days
        return name == wanted and abs(ahead - before) <= 1
    days = end(s3.put_object(Bucket=bucket, Key='logs/1', Body=b'x'))
    assert days[0] in (29, 30) and days[1] == '"a%20%22b%22"'
    for call in [s3.get_object, s3.head_object]:
        assert same(call(Bucket=bucket, Key='logs/1'))
    assert same(s3.copy_object(Bucket=bucket, Key='logs/2', CopySource='%s/logs/1' % bucket))
    upload = s3.create_multipart_upload(Bucket=bucket, Key='logs/3')['UploadId']
    part = s3.upload_part(Bucket=bucket, Key='logs/3', UploadId=upload, PartNumber=1, Body=b'x')['ETag']
    assert same(s3.complete_multipart_upload(Bucket=bucket, Key='logs/3', UploadId=upload, MultipartUpload={
        'Parts': [{'PartNumber': 1, 'ETag': part}]}))
    assert 'Expiration' not in s3.put_object(Bucket=bucket, Key='other', Body=b'x')
    s3.put_object_tagging(Bucket=bucket, Key='logs/1', Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}]})
    soon = end(s3.head_object(Bucket=bucket, Key='logs/1'))
    assert soon[0] in (0, 1, 2) and soon[1] == '"soon"'
    s3.delete_bucket_lifecycle(Bucket=bucket)
    assert 'Expiration' not in s3.head_object(Bucket=bucket, Key='logs/1')


def test_what_has_a_term_goes(h3, bucket, hasty):
    put(h3, bucket, rule('tmp', 1, 'tmp/'), rule('tag', 1, Filter={'And': {'Prefix': 'k', 'Tags': [{'Key': 't', 'Value': '1'}]}}),
        rule('large', 1, Filter={'And': {'Prefix': 'size', 'ObjectSizeGreaterThan': 100}}), rule('off', 1, 'off/', Status='Disabled'),
        rule('far', 20000, 'far/'), rule('up', None, 'up/', AbortIncompleteMultipartUpload={'DaysAfterInitiation': 1}))
    uploads = {key: h3.create_multipart_upload(Bucket=bucket, Key=key)['UploadId'] for key in ['up/1', 'kept']}
    for key, upload in uploads.items():
        h3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b'p' * 1000)
    # Enough for several shards.
    for n in range(60):
        h3.put_object(Bucket=bucket, Key='tmp/%02d' % n, Body=b'x' * n)
        h3.put_object(Bucket=bucket, Key='zz/%02d' % n, Body=b'x')
    for key, tags in [('k1', 't=1&u=2'), ('k2', 't=2'), ('k3', '')]:
        h3.put_object(Bucket=bucket, Key=key, Body=b'x', Tagging=tags)
    for key, size in [('size1', 100), ('size2', 101), ('off/1', 1), ('far/1', 1)]:
        h3.put_object(Bucket=bucket, Key=key, Body=b'x' * size)
    left = sorted(['k2', 'k3', 'size1', 'off/1', 'far/1', *('zz/%02d' % n for n in range(60))])
    wait_until(lambda: names(h3, bucket) == left, WITHIN_S, 0.5, 'objects to expire')

    def under_way():
        return [u['Key'] for u in h3.list_multipart_uploads(Bucket=bucket).get('Uploads', [])]
    wait_until(lambda: under_way() == ['kept'], WITHIN_S, 0.5, 'an upload to be aborted')
    refused('NoSuchKey', h3.get_object, Bucket=bucket, Key='tmp/01')
    # What is put afterwards has its own term.
    h3.put_object(Bucket=bucket, Key='tmp/late', Body=b'x')
    h3.put_object(Bucket=bucket, Key='zz/late', Body=b'x')
    wait_until(lambda: names(h3, bucket) == left + ['zz/late'], WITHIN_S, 0.5, 'a late object to expire')


def test_terms_of_versions(h3, bucket):
    """What expires gets a delete marker; what others have followed goes by itself; a marker goes when it is alone."""
    h3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    older = rule('older', None, NoncurrentVersionExpiration={'NoncurrentDays': 1, 'NewerNoncurrentVersions': 2})
    for n in range(30):
        for key in ['many', 'tmp/%02d' % n, 'kept/%02d' % n]:
            h3.put_object(Bucket=bucket, Key=key, Body=b'%d' % n)

    def counts():
        pages = list(h3.get_paginator('list_object_versions').paginate(Bucket=bucket))
        return [sum(len(p.get(what, [])) for p in pages) for what in ('Versions', 'DeleteMarkers')]
    put(h3, bucket, older, rule('tmp', 1, 'tmp/'))
    assert h3.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'][0] == older
    wait_until(lambda: counts() == [30 + 3 + 30, 30], WITHIN_S, 0.5, 'markers to come, and older versions to go')
    assert names(h3, bucket) == ['kept/%02d' % n for n in range(30)] + ['many']
    assert h3.get_object(Bucket=bucket, Key='many')['Body'].read() == b'29'
    put(h3, bucket, rule('all', None, NoncurrentVersionExpiration={'NoncurrentDays': 1}),
        rule('marker', None, Expiration={'ExpiredObjectDeleteMarker': True}))
    wait_until(lambda: counts() == [31, 0], WITHIN_S, 0.5, 'all but the current versions to go')
    assert names(h3, bucket) == ['kept/%02d' % n for n in range(30)] + ['many']


def test_a_date_that_is_past(h3, bucket):
    for key in ['a/1', 'a/2', 'b/1']:
        h3.put_object(Bucket=bucket, Key=key, Body=b'x')
    put(h3, bucket, rule('then', None, 'a/', Expiration={'Date': PAST}))
    assert '01 Jan 2020' in h3.put_object(Bucket=bucket, Key='a/3', Body=b'x')['Expiration']
    wait_until(lambda: names(h3, bucket) == ['b/1'], WITHIN_S, 0.5, 'objects to expire')


def test_it_goes_on_after_a_kill(h3, bucket, cluster, user, workdir):
    """With a gateway that is killed while it removes, another goes on, and nothing else is gone."""
    for n in range(150):
        h3.put_object(Bucket=bucket, Key='%s/%03d' % ('tk'[n % 2], n), Body=b'x')
    made = Gateway(cluster, workdir / 'killed.log', '--s3-gc-wait', '2', '--s3-lifecycle-day', str(DAY_S)).start()
    try:
        put(h3, bucket, rule('t', 1, 't/'))
        wait_until(lambda: len(names(h3, bucket)) < 150, WITHIN_S, 0.01, 'the first to expire')
    finally:
        made.kill()
    # Whoever was killed may have the bucket for eight of those days.
    wait_until(lambda: names(h3, bucket) == ['k/%03d' % n for n in range(1, 150, 2)], WITHIN_S, 0.5, 'the rest to expire')


def test_s3cmd(hasty, h3, user, bucket, tmp_path):
    conf = tmp_path / 's3cfg'
    host = '127.0.0.1:%d' % hasty.port
    conf.write_text('[default]\naccess_key = %s\nsecret_key = %s\nhost_base = %s\nhost_bucket = %s\nuse_https = False\n'
                    'bucket_location = us-east-1\n' % (user.access, user.secret, host, host))

    def s3cmd(*args, **kw):
        return run(['s3cmd', '-c', conf, '--no-progress', *args], **kw)
    where = 's3://' + bucket
    for key in ['e/1', 'f/1', 'g/1']:
        h3.put_object(Bucket=bucket, Key=key, Body=b'x')
    s3cmd('expire', where, '--expiry-days=1', '--expiry-prefix=e/')
    assert 'e/' in s3cmd('info', where).out
    wait_until(lambda: names(h3, bucket) == ['f/1', 'g/1'], WITHIN_S, 0.5, 'what s3cmd expires')
    rules = tmp_path / 'rules.xml'
    rules.write_text('<?xml version="1.0" ?>\n<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">\n<Rule>\n<ID>f</ID>\n'
                     '<Prefix>f/</Prefix>\n<Status>Enabled</Status>\n<Expiration>\n<Days>1</Days>\n</Expiration>\n</Rule>\n</LifecycleConfiguration>\n')
    s3cmd('setlifecycle', rules, where)
    assert '<ID>f</ID>' in s3cmd('getlifecycle', where).out
    wait_until(lambda: names(h3, bucket) == ['g/1'], WITHIN_S, 0.5, 'what the file says')
    # What a reader would pass over, and so take for a rule of more than was meant.
    h3.put_object(Bucket=bucket, Key='f/2', Body=b'x')
    text = rules.read_text()
    assert text.count('f/') == text.count('>1<') == 1
    for bad in [text.replace('f/', '<![CDATA[f/]]>'), text.replace('>1<', '>1,000<'), text.replace('>1<', '>1e3<'),
                text.replace('<Prefix>f/</Prefix>', '<Filter>nothing/</Filter>'),
                text.replace('<Prefix>f/</Prefix>', '<Filter><ObjectSizeGreaterThan>500MB</ObjectSizeGreaterThan></Filter>')]:
        rules.write_text(bad)
        said = s3cmd('setlifecycle', rules, where, check='fails')
        assert 'MalformedXML' in said.out + said.err, (bad, said)
    assert '<Prefix>f/</Prefix>' in s3cmd('getlifecycle', where).out and 'g/1' in names(h3, bucket)
    s3cmd('dellifecycle', where)
    refused('NoSuchLifecycleConfiguration', h3.get_bucket_lifecycle_configuration, Bucket=bucket)
