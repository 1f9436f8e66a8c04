"""A stock radosgw 16.2 on Skep, unmodified, with stock radosgw-admin: what it keeps in object classes is kept (docs/operating/objects.md)."""
import pytest

from skeptest.cluster import external
from skeptest.radosgw import GatewayUser, Radosgw
from skeptest.run import wait_until
from skeptest.s3 import refused

pytestmark = pytest.mark.long
LATER_S = 120


@pytest.fixture(scope='module')
def gateway(request, tmp_path_factory):
    cluster = request.getfixturevalue('cluster')
    gateway = Radosgw(cluster, tmp_path_factory.mktemp('radosgw'))
    pools = set(cluster.ceph('osd', 'pool', 'ls').out.split())
    yield gateway.start()
    gateway.kill()
    if not external():
        for pool in set(cluster.ceph('osd', 'pool', 'ls').out.split()) - pools:
            cluster.drop_pool(pool)


@pytest.fixture(scope='module')
def user(gateway):
    return GatewayUser(gateway, 'gwuser')


@pytest.fixture
def s3(gateway, user):
    return gateway.client(user)


def counted(gateway, bucket, want):
    """Radosgw answers a client before the index has taken all that it will."""
    usage = lambda: gateway.admin('bucket', 'stats', '--bucket', bucket)['usage']
    got = lambda: {category: sums['num_objects'] for category, sums in usage().items() if category in want}
    wait_until(lambda: got() == want, LATER_S, 1, f'{bucket} to have {want}')


def is_sound(gateway, bucket):
    check = gateway.admin('bucket', 'check', '--bucket', bucket)['check_result']
    usage = lambda which: check[which]['usage'].get('rgw.main')
    return usage('existing_header') == usage('calculated_header')


def names(s3, bucket, **how):
    answer = s3.list_objects_v2(Bucket=bucket, **how)
    return [o['Key'] for o in answer.get('Contents', [])]


def test_objects(gateway, s3):
    s3.create_bucket(Bucket='plain')
    for n in range(12):
        s3.put_object(Bucket='plain', Key='o%02d' % n, Body=b'x' * n * 100)
    for n in range(6):
        s3.put_object(Bucket='plain', Key='dir/%d/%d' % (n % 3, n), Body=b'y')
    assert s3.get_object(Bucket='plain', Key='o11')['Body'].read() == b'x' * 1100
    assert names(s3, 'plain', Prefix='o', MaxKeys=3, StartAfter='o03') == ['o04', 'o05', 'o06']
    answer = s3.list_objects_v2(Bucket='plain', Delimiter='/')
    assert [p['Prefix'] for p in answer['CommonPrefixes']] == ['dir/'] and len(answer['Contents']) == 12
    answer = s3.list_objects_v2(Bucket='plain', Delimiter='/', Prefix='dir/')
    assert [p['Prefix'] for p in answer['CommonPrefixes']] == ['dir/0/', 'dir/1/', 'dir/2/']
    pages = [page.get('Contents', []) for page in s3.get_paginator('list_objects_v2').paginate(Bucket='plain', PaginationConfig={'PageSize': 4})]
    assert sum(map(len, pages)) == 18 and len(pages) >= 5
    s3.delete_object(Bucket='plain', Key='o02')
    refused('NoSuchKey', s3.get_object, Bucket='plain', Key='o02')
    s3.delete_objects(Bucket='plain', Delete={'Objects': [{'Key': 'o03'}, {'Key': 'never'}]})
    left = [n for n in range(12) if n not in (2, 3)]
    counted(gateway, 'plain', {'rgw.main': len(left) + 6})
    usage = gateway.admin('bucket', 'stats', '--bucket', 'plain')['usage']['rgw.main']
    assert usage['size'] == sum(left) * 100 + 6
    refused('BucketNotEmpty', s3.delete_bucket, Bucket='plain')
    s3.create_bucket(Bucket='gone')
    s3.delete_bucket(Bucket='gone')
    assert [b['Name'] for b in s3.list_buckets()['Buckets']] == ['plain']


def test_uploads_in_parts(gateway, s3):
    s3.create_bucket(Bucket='parts')

    def upload(key):
        name = {'Bucket': 'parts', 'Key': key, 'UploadId': s3.create_multipart_upload(Bucket='parts', Key=key)['UploadId']}
        parts = [{'PartNumber': n, 'ETag': s3.upload_part(PartNumber=n, Body=b'%d' % n * 50000, **name)['ETag']} for n in (1, 2)]
        return name, parts
    name, parts = upload('whole')
    assert len(s3.list_parts(**name)['Parts']) == 2
    assert [u['Key'] for u in s3.list_multipart_uploads(Bucket='parts')['Uploads']] == ['whole']
    s3.complete_multipart_upload(MultipartUpload={'Parts': parts}, **name)
    assert s3.get_object(Bucket='parts', Key='whole')['Body'].read() == b'1' * 50000 + b'2' * 50000
    s3.copy_object(Bucket='parts', Key='copy', CopySource='parts/whole')
    name, _ = upload('given up')
    s3.abort_multipart_upload(**name)
    assert names(s3, 'parts') == ['copy', 'whole']
    counted(gateway, 'parts', {'rgw.main': 2, 'rgw.multimeta': 0})
    s3.delete_object(Bucket='parts', Key='whole')
    assert s3.get_object(Bucket='parts', Key='copy')['Body'].read()[-1:] == b'2'


def test_versions(gateway, s3):
    s3.create_bucket(Bucket='versions')
    s3.put_object(Bucket='versions', Key='before', Body=b'1')
    s3.put_bucket_versioning(Bucket='versions', VersioningConfiguration={'Status': 'Enabled'})
    s3.put_object(Bucket='versions', Key='before', Body=b'2')
    ids = [s3.put_object(Bucket='versions', Key='k', Body=b'v%d' % n)['VersionId'] for n in range(4)]
    s3.delete_object(Bucket='versions', Key='k')
    refused('NoSuchKey', s3.get_object, Bucket='versions', Key='k')
    answer = s3.list_object_versions(Bucket='versions')
    marker, = answer['DeleteMarkers']
    assert [v['VersionId'] for v in answer['Versions'] if v['Key'] == 'k'] == ids[::-1] and marker['IsLatest']
    assert [v['VersionId'] == 'null' for v in answer['Versions'] if v['Key'] == 'before'] == [False, True]
    read = lambda **which: s3.get_object(Bucket='versions', Key='k', **which)['Body'].read()
    assert read(VersionId=ids[1]) == b'v1'
    s3.delete_object(Bucket='versions', Key='k', VersionId=marker['VersionId'])
    assert read() == b'v3'
    s3.delete_object(Bucket='versions', Key='k', VersionId=ids[3])
    assert read() == b'v2'
    s3.delete_object(Bucket='versions', Key='k', VersionId=ids[0])
    s3.put_bucket_versioning(Bucket='versions', VersioningConfiguration={'Status': 'Suspended'})
    s3.put_object(Bucket='versions', Key='k', Body=b'null')
    assert read() == read(VersionId='null') == b'null'
    s3.delete_object(Bucket='versions', Key='k')
    assert names(s3, 'versions') == ['before']
    answer = s3.list_object_versions(Bucket='versions', Prefix='k')
    assert [v['VersionId'] for v in answer['Versions']] == [ids[2], ids[1]] and len(answer['DeleteMarkers']) == 1


def test_buckets_are_checked_and_resharded(gateway, s3):
    for bucket in ('plain', 'versions'):
        wait_until(lambda: is_sound(gateway, bucket), LATER_S, 1, f'the sums of {bucket} to be those of its entries')
    gateway.admin('bucket', 'check', '--bucket', 'plain', '--fix')
    before = s3.list_object_versions(Bucket='versions')
    gateway.admin('bucket', 'reshard', '--bucket', 'versions', '--num-shards', '3', '--yes-i-really-mean-it', parsed=False)
    after = s3.list_object_versions(Bucket='versions')
    seen = lambda answer: [(v['Key'], v['VersionId'], v['IsLatest']) for v in answer['Versions'] + answer['DeleteMarkers']]
    assert seen(before) == seen(after)
    assert gateway.admin('bucket', 'stats', '--bucket', 'versions')['num_shards'] == 3


def test_rubbish_is_collected(gateway, s3):
    s3.create_bucket(Bucket='rubbish')
    pool = 'default.rgw.buckets.data'
    # A head object alone is removed at once, what is behind it later.
    count = lambda: len(gateway.cluster.run('rados', '-c', gateway.cluster.conf, '-p', pool, 'ls').out.split())
    before = count()
    s3.put_object(Bucket='rubbish', Key='big', Body=b'z' * 90000)
    assert count() > before + 3
    s3.delete_object(Bucket='rubbish', Key='big')
    listed = gateway.admin('gc', 'list', '--include-all')
    assert any('rubbish' not in o['oid'] and '_shadow_' in o['oid'] for entry in listed for o in entry['objs'])
    gateway.admin('gc', 'process', '--include-all', parsed=False)
    assert gateway.admin('gc', 'list', '--include-all') == []
    assert count() <= before


def test_usage_quotas_and_lifecycle(gateway, s3, user):
    def used():
        return [c['category'] for e in gateway.admin('usage', 'show', '--uid', user.name)['entries'] for b in e['buckets'] for c in b['categories']]
    wait_until(lambda: {'put_obj', 'get_obj', 'create_bucket'} <= set(used()), LATER_S, 1, 'usage to be noted')
    gateway.admin('usage', 'trim', '--uid', user.name, parsed=False)
    stats = gateway.admin('user', 'stats', '--uid', user.name, '--sync-stats')['stats']
    buckets = gateway.admin('bucket', 'stats')
    assert stats['num_objects'] == sum(b['usage']['rgw.main']['num_objects'] for b in buckets if 'rgw.main' in b['usage'])
    rule = {'ID': 'r', 'Status': 'Enabled', 'Filter': {'Prefix': 'dir/'}, 'Expiration': {'Days': 1}}
    s3.put_bucket_lifecycle_configuration(Bucket='plain', LifecycleConfiguration={'Rules': [rule]})
    assert any(':plain:' in e['bucket'] for e in gateway.admin('lc', 'list'))


def test_a_killed_gateway_goes_on(gateway, s3):
    before = names(s3, 'plain')
    gateway.kill()
    gateway.start()
    assert names(s3, 'plain') == before
    s3.put_object(Bucket='plain', Key='after', Body=b'after')
    assert s3.get_object(Bucket='plain', Key='after')['Body'].read() == b'after'
    s3.delete_object(Bucket='plain', Key='after')


def test_a_user_is_removed_with_all(gateway, user):
    gateway.admin('user', 'rm', '--uid', user.name, '--purge-data', parsed=False)
    assert gateway.admin('bucket', 'list') == []


def test_quotas_are_refused_alike(gateway):
    """As tests/s3/test_quota.py wants it of ours: the same code, status and spelling."""
    user = GatewayUser(gateway, 'quotauser')
    for words in [('set', '--max-size', '1000'), ('enable',)]:
        gateway.admin('quota', words[0], '--quota-scope=user', '--uid', user.name, *words[1:], parsed=False)
    shown = gateway.admin('user', 'info', '--uid', user.name)
    assert set(shown['user_quota']) == {'enabled', 'check_on_raw', 'max_size', 'max_size_kb', 'max_objects'}
    client = gateway.client(user)
    client.create_bucket(Bucket='quotas')
    refusal = refused('QuotaExceeded', client.put_object, Bucket='quotas', Key='k', Body=bytes(5000))
    assert refusal['ResponseMetadata']['HTTPStatusCode'] == 403
