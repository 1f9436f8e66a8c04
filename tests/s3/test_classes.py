"""Storage classes: data in the pool of the class that clients or lifecycles say, as boto3 puts and sees them."""
import json

import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary

DAY_S = 2
# Generous: other work is on the machine.
WITHIN_S = 120
COLD, ICE = unique('COLD').upper(), unique('ICE').upper()
POOLS = {COLD: unique('cold'), ICE: unique('ice')}


@pytest.fixture(scope='module')
def hasty(cluster, workdir, gateway):
    """A gateway with days of two seconds, and two classes."""
    for name, pool in POOLS.items():
        cluster.ceph('osd', 'pool', 'create', pool, '4')
        told = admin(cluster, 'placement', 'add', '--storage-class', name, '--data-pool', pool)
        assert told == {name: {'data_pool': pool, 'takes_new': True}}
    made = Gateway(cluster, workdir / 'classes.log', '--s3-gc-wait', '2', '--s3-lifecycle-day', str(DAY_S)).start()
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


@pytest.fixture(scope='module')
def h3(hasty, user):
    return hasty.client(user)


def held(cluster, name):
    return len(cluster.run('rados', '-p', POOLS[name], 'ls').out.split())


def put_rules(s3, bucket, *rules):
    rules = [{'ID': str(n), 'Status': 'Enabled', 'Filter': {'Prefix': ''}, **rule} for n, rule in enumerate(rules)]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={'Rules': rules})
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)['Rules'] == rules


def test_what_is_put_is_in_the_pool_of_its_class(h3, cluster, bucket):
    before, body = held(cluster, COLD), bytes_of(5 << 20)
    h3.put_object(Bucket=bucket, Key='a', Body=body, StorageClass=COLD)
    assert held(cluster, COLD) == before + 2
    h3.put_object(Bucket=bucket, Key='none', Body=b'', StorageClass=COLD)
    h3.put_object(Bucket=bucket, Key='std', Body=b'x', StorageClass='STANDARD')
    upload = h3.create_multipart_upload(Bucket=bucket, Key='parts', StorageClass=COLD)['UploadId']
    assert h3.list_multipart_uploads(Bucket=bucket)['Uploads'][0]['StorageClass'] == COLD
    parts = [{'PartNumber': n, 'ETag': h3.upload_part(Bucket=bucket, Key='parts', UploadId=upload, PartNumber=n, Body=body)['ETag']} for n in (1, 2)]
    assert h3.list_parts(Bucket=bucket, Key='parts', UploadId=upload)['StorageClass'] == COLD
    h3.complete_multipart_upload(Bucket=bucket, Key='parts', UploadId=upload, MultipartUpload={'Parts': parts})
    assert held(cluster, COLD) == before + 2 + 5
    listed = {o['Key']: o['StorageClass'] for o in h3.list_objects_v2(Bucket=bucket)['Contents']}
    assert listed == {'a': COLD, 'none': COLD, 'std': 'STANDARD', 'parts': COLD}
    assert {o['Key']: o['StorageClass'] for o in h3.list_object_versions(Bucket=bucket)['Versions']} == listed
    for key, name in listed.items():
        said = None if name == 'STANDARD' else name
        assert h3.head_object(Bucket=bucket, Key=key).get('StorageClass') == said
        assert h3.get_object(Bucket=bucket, Key=key).get('StorageClass') == said
    assert h3.get_object(Bucket=bucket, Key='parts')['Body'].read() == body * 2
    # A copy has the class that it is told, and not its source's.
    source = '%s/a' % bucket
    refused('InvalidRequest', h3.copy_object, Bucket=bucket, Key='a', CopySource=source)
    refused('InvalidRequest', h3.copy_object, Bucket=bucket, Key='a', CopySource=source, StorageClass=COLD)
    h3.copy_object(Bucket=bucket, Key='b', CopySource=source)
    assert 'StorageClass' not in h3.head_object(Bucket=bucket, Key='b')
    h3.copy_object(Bucket=bucket, Key='a', CopySource=source, StorageClass='STANDARD')
    assert 'StorageClass' not in h3.head_object(Bucket=bucket, Key='a')
    assert h3.get_object(Bucket=bucket, Key='a')['Body'].read() == body
    for key in ['none', 'parts']:
        h3.delete_object(Bucket=bucket, Key=key)
    wait_until(lambda: held(cluster, COLD) == before, WITHIN_S, 0.5, 'what was deleted to be collected in the pool of its class')


def test_a_class_that_is_not_there_is_refused(h3, hasty, cluster, bucket):
    for call, more in [(h3.put_object, {'Body': b'x'}), (h3.create_multipart_upload, {}), (h3.copy_object, {'CopySource': '%s/k' % bucket})]:
        for name in ['GLACIER', COLD.lower(), 'REDUCED_REDUNDANCY']:
            refused('InvalidStorageClass', call, Bucket=bucket, Key='k', StorageClass=name, **more)
    for bad in [{'Transitions': [{'Days': 1, 'StorageClass': 'GLACIER'}]},
                {'NoncurrentVersionTransitions': [{'NoncurrentDays': 1, 'StorageClass': 'GLACIER'}]}]:
        refused('InvalidStorageClass', put_rules, h3, bucket, bad)
    skep = [find_binary(), 's3', 'placement']
    conf = ['-c', cluster.conf]
    for bad, why in [((COLD, POOLS[ICE]), 'another class'), (('GLACIER', unique('no')), 'no pool'), (('STANDARD', POOLS[ICE]), 'named'),
                     (('GLACIER', 's3.meta'), 'use of its own')]:
        said = run([*skep, 'add', '--storage-class', bad[0], '--data-pool', bad[1], *conf], check='fails')
        assert why in said.err, said
    # A policy may let users put into some alone.
    bob = User(cluster, unique('bob'))
    h3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [{
        'Effect': 'Allow', 'Principal': {'AWS': 'arn:aws:iam:::user/' + bob.name}, 'Action': 's3:PutObject',
        'Resource': 'arn:aws:s3:::%s/*' % bucket, 'Condition': {'StringEquals': {'s3:x-amz-storage-class': COLD}}}]}))
    other = hasty.client(bob)
    refused('AccessDenied', other.put_object, Bucket=bucket, Key='k', Body=b'x')
    refused('AccessDenied', other.put_object, Bucket=bucket, Key='k', Body=b'x', StorageClass=ICE)
    other.put_object(Bucket=bucket, Key='k', Body=b'x', StorageClass=COLD)


def test_a_form_says_a_class(h3, bucket):
    import requests
    form = h3.generate_presigned_post(bucket, 'k', Fields={'x-amz-storage-class': COLD}, Conditions=[{'x-amz-storage-class': COLD}])
    answer = requests.post(form['url'], data=form['fields'], files={'file': b'hello'}, timeout=60)
    assert answer.status_code == 204, answer.text
    assert h3.head_object(Bucket=bucket, Key='k')['StorageClass'] == COLD


def test_lifecycles_move_what_is_due(h3, cluster, bucket):
    h3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    body = bytes_of(5 << 20)
    first = h3.put_object(Bucket=bucket, Key='t/1', Body=b'old')['VersionId']
    h3.put_object(Bucket=bucket, Key='t/1', Body=body, Metadata={'a': 'b'}, Tagging='k=v')
    h3.put_object(Bucket=bucket, Key='u/1', Body=b'stays')
    was = h3.head_object(Bucket=bucket, Key='t/1')
    put_rules(h3, bucket, {'Filter': {'Prefix': 't/'}, 'Transitions': [{'Days': 1, 'StorageClass': COLD}, {'Days': 4, 'StorageClass': ICE}],
                           'NoncurrentVersionTransitions': [{'NoncurrentDays': 0, 'StorageClass': ICE}]})

    def class_of(key, **more):
        return h3.head_object(Bucket=bucket, Key=key, **more).get('StorageClass')
    wait_until(lambda: (class_of('t/1'), class_of('t/1', VersionId=first)) == (ICE, ICE), WITHIN_S, 0.2, 'objects to be moved')
    now = h3.get_object(Bucket=bucket, Key='t/1')
    assert now['Body'].read() == body and class_of('u/1') is None
    same = ['LastModified', 'ETag', 'VersionId', 'Metadata', 'ContentLength']
    assert [now[k] for k in same] == [was[k] for k in same] and now['TagCount'] == 1
    assert h3.get_object(Bucket=bucket, Key='t/1', VersionId=first)['Body'].read() == b'old'
    listed = {(v['Key'], v['StorageClass']) for v in h3.list_object_versions(Bucket=bucket)['Versions']}
    assert listed == {('t/1', ICE), ('u/1', 'STANDARD')}
    # A class that takes nothing new is read as before.
    admin(cluster, 'placement', 'rm', '--storage-class', ICE)
    try:
        assert h3.get_object(Bucket=bucket, Key='t/1')['Body'].read() == body

        def is_refused():
            try:
                h3.put_object(Bucket=bucket, Key='x', Body=b'x', StorageClass=ICE)
            except h3.exceptions.ClientError as e:
                return e.response['Error']['Code'] == 'InvalidStorageClass'
            return False
        wait_until(is_refused, 30, 0.5, 'all gateways to hear of it')
    finally:
        admin(cluster, 'placement', 'add', '--storage-class', ICE, '--data-pool', POOLS[ICE])
    assert admin(cluster, 'check', bucket)['problems'] == []
