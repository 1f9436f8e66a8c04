"""Notifications of buckets: what an endpoint is told, also where it fails, is slow, or the gateway is killed. And access logs."""
import http.server
import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, refused
from skeptest.skep import find_binary, free_port

CREATED = ['s3:ObjectCreated:*']
ALL = CREATED + ['s3:ObjectRemoved:*', 's3:ObjectTagging:*']


class Endpoint:
    """Takes events; below /slow it waits until it is let go."""

    def __init__(self):
        self.records, self.let_go = [], threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['Content-Length']))
                if self.path.startswith('/slow'):
                    outer.let_go.wait(60)
                assert self.headers['Content-Type'] == 'application/json'
                for record in json.loads(body)['Records']:
                    outer.records.append((self.path, record))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = 'http://127.0.0.1:%d' % self.server.server_port

    def keys(self, path):
        return [urllib.parse.unquote_plus(r['s3']['object']['key']) for p, r in list(self.records) if p == path]

    def record(self, path, key, name):
        """The event of this key, when it comes."""
        def found():
            return [r for p, r in list(self.records)
                    if p == path and r['eventName'] == name and urllib.parse.unquote_plus(r['s3']['object']['key']) == key]
        wait_until(found, 30, 0.05, '%s of %s' % (name, key))
        return found()[0]


@pytest.fixture(scope='module')
def endpoint():
    made = Endpoint()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope='module')
def telling(cluster, workdir):
    """A gateway that may send events to this machine."""
    metrics = '127.0.0.1:%d' % free_port()
    made = Gateway(cluster, workdir / 's3-notify.log', '--s3-gc-wait', '2', '--s3-notify-host', '127.0.0.1',
                   '--s3-access-log-every', '1', '--metrics', metrics).start()
    made.metrics = 'http://%s/metrics' % metrics
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


@pytest.fixture(scope='module')
def owner(cluster, telling):
    return User(cluster, unique('teller'))


def topics(gateway, user):
    return boto3.client('sns', endpoint_url=gateway.url, region_name='us-east-1', config=Config(retries={'max_attempts': 0}),
                        aws_access_key_id=user.access, aws_secret_access_key=user.secret)


def make(gateway, user, url, events=ALL, rules=(), **attributes):
    """A bucket whose changes are told there; its name, and the topic's ARN."""
    arn = topics(gateway, user).create_topic(Name=unique('topic'), Attributes={'push-endpoint': url, **attributes})['TopicArn']
    s3, name = gateway.client(user), unique('told')
    s3.create_bucket(Bucket=name)
    one = {'Id': 'mine', 'TopicArn': arn, 'Events': events}
    if rules:
        one['Filter'] = {'Key': {'FilterRules': [{'Name': n, 'Value': v} for n, v in rules]}}
    s3.put_bucket_notification_configuration(Bucket=name, NotificationConfiguration={'TopicConfigurations': [one]})
    return name, arn


def test_events_are_told_as_aws_has_them(telling, owner, endpoint):
    s3 = telling.client(owner)
    bucket, arn = make(telling, owner, endpoint.url + '/one', rules=[('prefix', 'a/'), ('suffix', '.x')], OpaqueData='mine & all')
    got = s3.get_bucket_notification_configuration(Bucket=bucket)['TopicConfigurations']
    assert got == [{'Id': 'mine', 'TopicArn': arn, 'Events': ALL, 'Filter': {'Key': {'FilterRules': [
        {'Name': 'prefix', 'Value': 'a/'}, {'Name': 'suffix', 'Value': '.x'}]}}}]
    key = 'a/b ü+.x'
    for other in ('b/1.x', 'a/1.y'):
        s3.put_object(Bucket=bucket, Key=other, Body=b'x')
    etag = s3.put_object(Bucket=bucket, Key=key, Body=b'12345')['ETag']
    put = endpoint.record('/one', key, 'ObjectCreated:Put')
    assert put['eventSource'] == 'aws:s3' and put['eventVersion'] == '2.1' and put['opaqueData'] == 'mine & all'
    assert put['userIdentity'] == {'principalId': owner.name} and put['requestParameters'] == {'sourceIPAddress': '127.0.0.1'}
    told = put['s3']
    assert told['configurationId'] == 'mine' and told['bucket']['arn'] == 'arn:aws:s3:::' + bucket
    assert told['bucket']['name'] == bucket and told['bucket']['ownerIdentity'] == {'principalId': owner.name}
    assert told['object']['size'] == 5 and '"%s"' % told['object']['eTag'] == etag
    s3.put_object_tagging(Bucket=bucket, Key=key, Tagging={'TagSet': [{'Key': 'k', 'Value': 'v'}]})
    s3.copy_object(Bucket=bucket, Key='a/copy.x', CopySource={'Bucket': bucket, 'Key': key})
    upload = s3.create_multipart_upload(Bucket=bucket, Key='a/parts.x')['UploadId']
    part = s3.upload_part(Bucket=bucket, Key='a/parts.x', UploadId=upload, PartNumber=1, Body=b'part')['ETag']
    s3.complete_multipart_upload(Bucket=bucket, Key='a/parts.x', UploadId=upload,
                                 MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': part}]})
    s3.delete_objects(Bucket=bucket, Delete={'Objects': [{'Key': 'a/copy.x'}, {'Key': 'a/never.x'}]})
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    version = s3.put_object(Bucket=bucket, Key='a/v.x', Body=b'')['VersionId']
    marker = s3.delete_object(Bucket=bucket, Key='a/v.x')['VersionId']
    s3.delete_object(Bucket=bucket, Key='a/v.x', VersionId=version)
    assert endpoint.record('/one', key, 'ObjectTagging:Put')['eventVersion'] == '2.3'
    endpoint.record('/one', 'a/copy.x', 'ObjectCreated:Copy')
    endpoint.record('/one', 'a/parts.x', 'ObjectCreated:CompleteMultipartUpload')
    endpoint.record('/one', 'a/copy.x', 'ObjectRemoved:Delete')
    objects = [endpoint.record('/one', 'a/v.x', name)['s3']['object'] for name in
               ('ObjectCreated:Put', 'ObjectRemoved:DeleteMarkerCreated', 'ObjectRemoved:Delete')]
    assert [o['versionId'] for o in objects] == [version, marker, version]
    order = [o['sequencer'] for o in objects]
    assert order == sorted(order) and len(set(order)) == 3
    assert not {'b/1.x', 'a/1.y', 'a/never.x'} & set(endpoint.keys('/one'))


def test_what_is_not_built_is_refused(telling, owner, endpoint, cluster):
    sns, s3 = topics(telling, owner), telling.client(owner)
    bucket, arn = make(telling, owner, endpoint.url + '/refusals')
    for bad in ('http://127.0.0.2:9/', 'http://169.254.169.254/', 'amqp://127.0.0.1/', 'kafka://127.0.0.1/', ''):
        refused('InvalidParameter', sns.create_topic, Name='bad', Attributes={'push-endpoint': bad})
    refused('NotImplemented', sns.create_topic, Name='bad', Attributes={'push-endpoint': endpoint.url, 'verify-ssl': 'false'})
    refused('NotImplemented', sns.create_topic, Name='bad', Attributes={'push-endpoint': endpoint.url, 'cloudevents': 'true'})
    refused('InvalidAction', sns.subscribe, TopicArn=arn, Protocol='http', Endpoint=endpoint.url)
    assert arn in [t['TopicArn'] for t in sns.list_topics()['Topics']]
    shown = sns.get_topic_attributes(TopicArn=arn)['Attributes']
    assert shown['push-endpoint'] == endpoint.url + '/refusals' and shown['EventsDroppedFull'] == '0'
    other = User(cluster, unique('other'))
    assert topics(telling, other).list_topics()['Topics'] == []
    refused('NotFound', topics(telling, other).get_topic_attributes, TopicArn=arn)

    def put(**one):
        config = {'TopicConfigurations': [{'TopicArn': arn, 'Events': CREATED, **one}]}
        s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration=config)
    refused('InvalidArgument', put, TopicArn=arn + 'x')
    refused('NotImplemented', put, Events=['s3:ObjectRestore:*'])
    refused('InvalidArgument', put, Events=['s3:Nothing'])
    refused('NotImplemented', s3.put_bucket_notification_configuration, Bucket=bucket, NotificationConfiguration={
        'QueueConfigurations': [{'QueueArn': 'arn:aws:sqs:us-east-1:a:q', 'Events': CREATED}]})
    # A signature of another secret, and a form that was changed on its way.
    false = User.__new__(User)
    false.access, false.secret = owner.access, 'x' * 40
    refused('SignatureDoesNotMatch', topics(telling, false).list_topics)
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    assert 'TopicConfigurations' not in s3.get_bucket_notification_configuration(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key='silent', Body=b'')
    sns.delete_topic(TopicArn=arn)
    refused('NotFound', sns.get_topic_attributes, TopicArn=arn)
    assert endpoint.keys('/refusals') == []


def test_a_slow_endpoint_and_one_that_fails_hold_nobody_up(telling, owner, endpoint):
    s3 = telling.client(owner)
    slow, _ = make(telling, owner, endpoint.url + '/slow')
    away, arn = make(telling, owner, 'http://127.0.0.1:9/away')
    quick, _ = make(telling, owner, endpoint.url + '/quick')
    for n in range(8):
        s3.put_object(Bucket=slow, Key='s%d' % n, Body=b'')
        s3.put_object(Bucket=away, Key='a%d' % n, Body=b'')
    s3.put_object(Bucket=quick, Key='q', Body=b'')
    endpoint.record('/quick', 'q', 'ObjectCreated:Put')
    endpoint.let_go.set()
    # What waits is told elsewhere when its owner says so.
    sns = topics(telling, owner)
    wait_until(lambda: sns.get_topic_attributes(TopicArn=arn)['Attributes']['EventsWaiting'] == '8', 30, 0.1, 'all to wait')
    sns.set_topic_attributes(TopicArn=arn, AttributeName='push-endpoint', AttributeValue=endpoint.url + '/back')
    wait_until(lambda: set(endpoint.keys('/back')) == {'a%d' % n for n in range(8)}, 90, 0.1, 'all to be told')
    wait_until(lambda: sns.get_topic_attributes(TopicArn=arn)['Attributes']['EventsWaiting'] == '0', 30, 0.1, 'none to wait')
    wait_until(lambda: set(endpoint.keys('/slow')) == {'s%d' % n for n in range(8)}, 60, 0.1, 'the slow one')


def test_what_a_killed_gateway_acknowledged_is_told(telling, owner, endpoint, cluster, workdir):
    first = Gateway(cluster, workdir / 's3-killed.log', '--s3-gc-wait', '2', '--s3-notify-host', '127.0.0.1').start()
    try:
        bucket, _ = make(first, owner, endpoint.url + '/killed')
        s3, done = first.client(owner), []

        def write(n):
            try:
                for i in range(200):
                    s3.put_object(Bucket=bucket, Key='k%d-%d' % (n, i), Body=b'x')
                    done.append('k%d-%d' % (n, i))
            except Exception:                                   # killed in between
                pass
        writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
        for writer in writers:
            writer.start()
        wait_until(lambda: len(done) > 60, 60, 0.01, 'some to be put')
        first.kill()
        for writer in writers:
            writer.join()
        there = {o['Key'] for o in telling.client(owner).list_objects_v2(Bucket=bucket)['Contents']}
        # The other gateway tells what this one left.
        wait_until(lambda: set(done) <= set(endpoint.keys('/killed')), 60, 0.1, 'what was acknowledged to be told')
        wait_until(lambda: there == set(endpoint.keys('/killed')), 30, 0.1, 'what is there to be told, and nothing else')
    finally:
        first.kill()


LINE = re.compile(r'^(\S+) (\S+) \[([^]]+)\] (\S+) (\S+) (\S+) (\S+) (\S+) "([^"]*)" (\d+) (\S+) (\S+) - (\d+) (\d+) "([^"]*)" "([^"]*)" (\S+)'
                  r' - (\S+) - (\S+) (\S+) - - -$')


def test_access_logs_are_put_into_a_bucket_and_do_not_go_in_a_circle(telling, owner, cluster):
    s3, (bucket, target) = telling.client(owner), (unique('logged'), unique('target'))
    for name in (bucket, target):
        s3.create_bucket(Bucket=name)
    other = telling.client(User(cluster, unique('other')))
    foreign = unique('foreign')
    other.create_bucket(Bucket=foreign)

    def put(of, to, **more):
        s3.put_bucket_logging(Bucket=of, BucketLoggingStatus={
            'LoggingEnabled': {'TargetBucket': to, 'TargetPrefix': 'log/', **more}})
    for bad in (foreign, unique('never')):
        refused('InvalidTargetBucketForLogging', put, bucket, bad)
    refused('NotImplemented', put, bucket, target, TargetObjectKeyFormat={
        'PartitionedPrefix': {'PartitionDateSource': 'EventTime'}})
    put(bucket, target)
    assert s3.get_bucket_logging(Bucket=bucket)['LoggingEnabled'] == {'TargetBucket': target, 'TargetPrefix': 'log/'}
    s3.put_object(Bucket=bucket, Key='a b', Body=b'12345')
    s3.get_object(Bucket=bucket, Key='a b')['Body'].read()
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='never')
    refused('AccessDenied', other.get_object, Bucket=bucket, Key='a b')

    def lines():
        listed = s3.list_objects_v2(Bucket=target).get('Contents', [])
        assert all(re.fullmatch(r'log/\d{4}(-\d\d){5}-[0-9A-F]{16}', o['Key']) for o in listed), listed
        texts = [s3.get_object(Bucket=target, Key=o['Key'])['Body'].read().decode() for o in listed]
        return [LINE.match(line).groups() for text in texts for line in text.splitlines()]

    def found():
        return {(of[6], of[7], of[9], of[10], of[11], of[4]) for of in lines() if of[1] == bucket}
    want = {('REST.PUT.OBJECT', 'a%20b', '200', '-', '-', owner.name), ('REST.GET.OBJECT', 'a%20b', '200', '-', '5', owner.name)}
    wait_until(lambda: want <= found(), 30, 0.2, 'the log to have what was asked')
    refusals = {(of[9], of[10]) for of in lines() if of[7] in ('never', 'a%20b')}
    assert {('404', 'NoSuchKey'), ('403', 'AccessDenied')} <= refusals
    # A bucket that logs into itself has lines of what clients ask, and none of its log.
    put(target, target)
    lines()
    wait_until(lambda: any(of[1] == target for of in lines()), 30, 0.5, 'the log of the target')
    assert not [of for of in lines() if of[1] == target and of[6] == 'REST.PUT.OBJECT']
    for name in (bucket, target):
        s3.put_bucket_logging(Bucket=name, BucketLoggingStatus={})
    assert 'LoggingEnabled' not in s3.get_bucket_logging(Bucket=bucket)


def set_notifications(gateway, user, bucket, inner):
    """As a client does that knows radosgw's filters; the code of an error."""
    body = ('<NotificationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</NotificationConfiguration>' % inner).encode()
    request = AWSRequest(method='PUT', url='%s/%s?notification' % (gateway.url, bucket), data=body)
    S3SigV4Auth(Credentials(user.access, user.secret), 's3', 'us-east-1').add_auth(request)
    request = urllib.request.Request(request.url, body, dict(request.headers.items()), method='PUT')
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as e:
        return re.search('<Code>(.*)</Code>', e.read().decode())[1]


def shown_notifications(gateway, user, bucket):
    request = AWSRequest(method='GET', url='%s/%s?notification' % (gateway.url, bucket))
    S3SigV4Auth(Credentials(user.access, user.secret), 's3', 'us-east-1').add_auth(request)
    with urllib.request.urlopen(urllib.request.Request(request.url, headers=dict(request.headers.items())), timeout=60) as answer:
        return answer.read().decode()


def figures(gateway):
    with urllib.request.urlopen(gateway.metrics, timeout=60) as answer:
        found = re.findall(r'^ceph_(rgw_pubsub|skep_s3_events)_(\w+)\{.*\} (\S+)$', answer.read().decode(), re.M)
    return {name: float(value) for _, name, value in found}


def test_filters_by_tags_and_metadata(cluster, telling, endpoint):
    owner, path = User(cluster, unique('teller')), '/' + unique('filtered')
    s3 = telling.client(owner)
    bucket, arn = make(telling, owner, endpoint.url + path)
    before = figures(telling)
    rule = '<FilterRule><Name>%s</Name><Value>%s</Value></FilterRule>'
    one = ('<TopicConfiguration><Id>f</Id><Topic>' + arn + '</Topic><Event>s3:ObjectCreated:*</Event><Event>s3:ObjectRemoved:*</Event>'
           '<Filter><S3Key>' + rule % ('prefix', 'a') + '</S3Key><S3Metadata>' + rule % ('x-amz-meta-kind', 'photo &amp; film') + '</S3Metadata>'
           '<S3Tags>' + rule % ('t', '1') + '</S3Tags></Filter></TopicConfiguration>')
    assert set_notifications(telling, owner, bucket, one) == ''
    shown = shown_notifications(telling, owner, bucket)
    for part in ('<S3Metadata>' + rule % ('x-amz-meta-kind', 'photo &amp; film'), '<S3Tags>' + rule % ('t', '1'), rule % ('prefix', 'a')):
        assert part in shown, shown
    # Who may not, and what is none, is refused as ever.
    stranger = User(cluster, unique('stranger'))
    assert set_notifications(telling, stranger, bucket, one) == 'AccessDenied'
    stranger.access = owner.access
    assert set_notifications(telling, stranger, bucket, one) == 'SignatureDoesNotMatch'
    assert set_notifications(telling, owner, bucket, one.replace('S3Tags', 'S3Other')) == 'MalformedXML'
    assert set_notifications(telling, owner, bucket, one.replace('<Name>t<', '<Name><')) == 'InvalidArgument'
    has = {'Metadata': {'kind': 'photo & film'}, 'Tagging': 't=1&u=2'}
    for key, more in [('a0', {}), ('a1', {**has, 'Tagging': 't=2'}), ('a2', {**has, 'Metadata': {}}), ('b', has), ('a3', has)]:
        s3.put_object(Bucket=bucket, Key=key, Body=b'x', **more)
    for key in ('a0', 'a1', 'a3'):
        s3.delete_object(Bucket=bucket, Key=key)
    endpoint.record(path, 'a3', 'ObjectCreated:Put')
    endpoint.record(path, 'a3', 'ObjectRemoved:Delete')
    wait_until(lambda: figures(telling)['push_ok'] - before['push_ok'] >= 2, 30, 0.2, 'the figures')
    assert set(endpoint.keys(path)) == {'a3'}
    after = figures(telling)
    # A gateway's figures have others' events in them, too: that none was lost is said by the topic.
    assert after['event_triggered'] - before['event_triggered'] >= 2 and after['event_lost'] >= before['event_lost']
    sns, counts = topics(telling, owner), ('EventsWaiting', 'EventsDroppedFull', 'EventsDroppedOld')

    def counted():
        shown = sns.get_topic_attributes(TopicArn=arn)['Attributes']
        return [shown[name] for name in counts]
    wait_until(lambda: counted() == ['0', '0', '0'], 30, 0.2, 'nothing to wait, and nothing to be dropped')
    assert after['push_pending'] >= 0 and {'waiting', 'queued', 'dropped_full', 'dropped_old', 'dropped_gone'} <= set(after)


def test_who_is_nobody_sets_no_filters(telling, owner, endpoint):
    """Such a document is read a second time, and only of who was let in: nobody is, whatever a bucket's policy lets anybody do."""
    bucket, arn = make(telling, owner, endpoint.url + '/nobody')
    s3 = telling.client(owner)
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:*', 'Resource': ['arn:aws:s3:::%s' % bucket, 'arn:aws:s3:::%s/*' % bucket]}]}))
    tags = '<S3Tags><FilterRule><Name>t</Name><Value>1</Value></FilterRule></S3Tags>'
    body = ('<NotificationConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><TopicConfiguration><Id>theirs</Id><Topic>%s</Topic>'
            '<Event>s3:ObjectCreated:*</Event><Filter>%s</Filter></TopicConfiguration></NotificationConfiguration>' % (arn, tags)).encode()

    def put(path):
        try:
            with urllib.request.urlopen(urllib.request.Request(telling.url + path, body, method='PUT'), timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return re.search('<Code>(.*)</Code>', e.read().decode())[1]
    before = s3.get_bucket_notification_configuration(Bucket=bucket)['TopicConfigurations']
    assert put('/%s?notification' % bucket) == 'AccessDenied'
    # The same words behind an object's name are an object, which anybody may put here; and it stays one.
    assert put('/%s/k?notification' % bucket) == 200
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == body
    assert s3.get_bucket_notification_configuration(Bucket=bucket)['TopicConfigurations'] == before
    assert 'theirs' not in shown_notifications(telling, owner, bucket)


def test_a_check_counts_what_waits(cluster, telling):
    owner = User(cluster, unique('teller'))
    bucket, arn = make(telling, owner, 'http://127.0.0.1:%d/' % free_port())
    s3 = telling.client(owner)
    for n in range(3):
        s3.put_object(Bucket=bucket, Key=str(n), Body=b'x')
    wait_until(lambda: figures(telling)['queued'] >= 3, 30, 0.2, 'events to wait')
    assert figures(telling)['push_failed'] >= 1
    # Others' tests break objects of theirs.
    report = json.loads(run([find_binary(), 's3', 'check', '-c', cluster.conf, '-f', 'json'], check=None).out)
    assert not [p for p in report['problems'] if p.startswith('topic ')] and report['counts']['events_waiting'] >= 3 and report['counts']['topics'] >= 1, report
    topics(telling, owner).delete_topic(TopicArn=arn)
