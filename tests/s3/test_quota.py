"""Quotas of users and buckets, and what buckets are said to hold."""
import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary

PART = 5 << 20
# As long as a gateway may not know of a new quota, or of what others have put: docs/operating/objects.md.
KNOWN_S = 60


@pytest.fixture
def quota(cluster):
    return lambda *words: admin(cluster, 'quota', *words)


@pytest.fixture
def carol(cluster, gateway):
    return User(cluster, unique('carol'))


@pytest.fixture
def client(gateway, carol):
    return gateway.client(carol)


@pytest.fixture
def room(client):
    name = unique('room')
    client.create_bucket(Bucket=name)
    return name


def fills(client, bucket, body, most):
    """Puts until it is refused; how many there are then."""
    for n in range(most):
        try:
            client.put_object(Bucket=bucket, Key='fill-%d' % n, Body=body)
        except client.exceptions.ClientError as e:
            assert e.response['Error']['Code'] == 'QuotaExceeded' and e.response['ResponseMetadata']['HTTPStatusCode'] == 403, e
            return n
    raise AssertionError('never refused')


def takes(client, bucket, body=b'x', key='more'):
    try:
        client.put_object(Bucket=bucket, Key=key, Body=body)
        return True
    except client.exceptions.ClientError as e:
        assert e.response['Error']['Code'] == 'QuotaExceeded', e
        return False


def holds(cluster, bucket):
    usage = admin(cluster, 'bucket', 'stats', '--bucket', bucket)['usage']['rgw.main']
    return usage['size'], usage['num_objects']


def test_a_bucket_holds_so_much(cluster, client, room, quota):
    assert quota('set', '--bucket', room, '--max-size', '300K', '--max-objects', '-1')['max_size'] == 300 << 10
    # Not enabled: it does not count.
    client.put_object(Bucket=room, Key='large', Body=bytes_of(400 << 10))
    client.delete_object(Bucket=room, Key='large')
    assert quota('enable', '--bucket', room) == {'enabled': True, 'check_on_raw': False, 'max_size': 300 << 10, 'max_size_kb': 300,
                                                 'max_objects': -1}
    wait_until(lambda: not takes(client, room, bytes_of(301 << 10), 'large'), KNOWN_S, 0.2, 'the quota to be known')
    client.delete_object(Bucket=room, Key='large')
    wait_until(lambda: holds(cluster, room) == (0, 0), 60, 0.2, 'the count')
    wait_until(lambda: takes(client, room, bytes_of(100 << 10), 'a'), KNOWN_S, 0.2, 'room')
    assert fills(client, room, bytes_of(100 << 10), 4) == 2
    refused('QuotaExceeded', client.copy_object, Bucket=room, Key='copy', CopySource={'Bucket': room, 'Key': 'a'})
    upload = client.create_multipart_upload(Bucket=room, Key='m')['UploadId']
    refused('QuotaExceeded', client.upload_part, Bucket=room, Key='m', UploadId=upload, PartNumber=1, Body=bytes_of(1000))
    # What is small enough is taken, reading and deleting go on.
    client.get_object(Bucket=room, Key='a')
    client.delete_object(Bucket=room, Key='a')
    wait_until(lambda: takes(client, room, bytes_of(100 << 10), 'b'), KNOWN_S, 0.2, 'room after a deletion')
    quota('disable', '--bucket', room)
    wait_until(lambda: takes(client, room, bytes_of(300 << 10), 'c'), KNOWN_S, 0.2, 'that it does not count any more')


def test_what_is_refused_leaves_nothing(client, room, quota):
    quota('set', '--bucket', room, '--max-size', '100K')
    quota('enable', '--bucket', room)
    wait_until(lambda: not takes(client, room, bytes_of(101 << 10)), KNOWN_S, 0.2, 'the quota to be known')
    client.delete_object(Bucket=room, Key='more')
    assert 'Contents' not in client.list_objects_v2(Bucket=room)


def test_a_user_holds_so_much(cluster, gateway, client, carol, room, quota):
    other = unique('room')
    client.create_bucket(Bucket=other)
    quota('set', '--quota-scope=user', '--uid', carol.name, '--max-objects', '4')
    quota('enable', '--quota-scope=user', '--uid', carol.name)
    info = admin(cluster, 'user', 'info', carol.name)
    assert info['user_quota']['max_objects'] == 4 and info['user_quota']['enabled'] and not info['bucket_quota']['enabled']
    client.put_object(Bucket=other, Key='k', Body=b'')
    wait_until(lambda: holds(cluster, other) == (0, 1), 60, 0.2, 'the count')

    def full():
        for n in range(5):
            if not takes(client, room, b'', 'n%d' % n):
                return True
        return False
    wait_until(full, KNOWN_S, 0.2, 'the quota to be known')
    wait_until(lambda: not takes(client, other, b'', 'l'), KNOWN_S, 0.2, 'the other bucket to be full, too')
    with_key = User(cluster, unique('dave'))
    mine = gateway.client(with_key)
    bucket = unique('mine')
    mine.create_bucket(Bucket=bucket)
    assert takes(mine, bucket), 'nobody else is held by it'


def test_each_bucket_of_a_user_and_defaults(cluster, client, carol, room, quota):
    quota('set', '--quota-scope=bucket', '--uid', carol.name, '--max-objects', '1')
    quota('enable', '--quota-scope=bucket', '--uid', carol.name)
    wait_until(lambda: not (takes(client, room, b'', 'a') and takes(client, room, b'', 'b')), KNOWN_S, 0.2, 'the quota to be known')
    # A bucket's own goes first.
    quota('set', '--bucket', room, '--max-objects', '50')
    quota('enable', '--bucket', room)
    wait_until(lambda: takes(client, room, b'', 'c'), KNOWN_S, 0.2, 'the bucket\'s own quota')
    quota('set', '--quota-scope=bucket', '--default', '--max-objects', '7')
    assert quota('get', '--quota-scope=bucket', '--default')['max_objects'] == 7
    assert quota('get', '--quota-scope=bucket', '--uid', carol.name)['max_objects'] == 1
    erin = User(cluster, unique('erin'))
    assert quota('get', '--quota-scope=bucket', '--uid', erin.name)['max_objects'] == 7
    quota('set', '--quota-scope=bucket', '--default', '--max-objects', '-1')
    assert quota('get', '--quota-scope=bucket', '--uid', erin.name)['max_objects'] == -1


def test_counts(cluster, client, room):
    def counted(size, objects):
        wait_until(lambda: holds(cluster, room) == (size, objects), 60, 0.2, 'a count of %d, %d' % (size, objects))
    client.put_object(Bucket=room, Key='a', Body=bytes_of(1000))
    client.put_object(Bucket=room, Key='a', Body=bytes_of(10))
    counted(10, 1)
    upload = client.create_multipart_upload(Bucket=room, Key='m')['UploadId']
    part = [client.upload_part(Bucket=room, Key='m', UploadId=upload, PartNumber=n, Body=bytes_of(PART)) for n in (1, 2, 2, 3)]
    counted(10 + 3 * PART, 1)
    parts = [{'PartNumber': n, 'ETag': part[n]['ETag']} for n in (1, 2)]
    parts[0]['ETag'] = part[0]['ETag']
    client.complete_multipart_upload(Bucket=room, Key='m', UploadId=upload, MultipartUpload={'Parts': parts})
    counted(10 + 2 * PART, 2)
    upload = client.create_multipart_upload(Bucket=room, Key='n')['UploadId']
    client.upload_part(Bucket=room, Key='n', UploadId=upload, PartNumber=1, Body=bytes_of(100))
    client.abort_multipart_upload(Bucket=room, Key='n', UploadId=upload)
    counted(10 + 2 * PART, 2)
    client.put_bucket_versioning(Bucket=room, VersioningConfiguration={'Status': 'Enabled'})
    version = client.put_object(Bucket=room, Key='a', Body=bytes_of(5))['VersionId']
    marker = client.delete_object(Bucket=room, Key='a')['VersionId']
    counted(15 + 2 * PART, 4)
    client.delete_object(Bucket=room, Key='a', VersionId=marker)
    client.delete_object(Bucket=room, Key='a', VersionId=version)
    client.delete_objects(Bucket=room, Delete={'Objects': [{'Key': 'm'}]})
    counted(10 + 2 * PART, 3)
    stats = admin(cluster, 'bucket', 'stats')
    sizes = [b['usage']['rgw.main']['size'] for b in stats if b['usage']]
    assert sizes == sorted(sizes, reverse=True) and room in [b['bucket'] for b in stats]


def test_a_gateway_that_stops_writes_its_counts(cluster, workdir, carol, client, room):
    own = Gateway(cluster, workdir / unique('own.log')).start()
    own.client(carol).put_object(Bucket=room, Key='k', Body=bytes_of(77))
    assert own.stop() == 0
    assert holds(cluster, room) == (77, 1)


def test_what_is_wrong_is_said(cluster, carol):
    def said(*words):
        return run([find_binary(), 's3', 'quota', *words, '-c', cluster.conf], check='fails').err
    assert 'no such user' in said('set', '--quota-scope=user', '--uid', 'nobody', '--max-objects', '1')
    assert 'bucket does not exist' in said('enable', '--bucket', unique('none'))
    assert '--quota-scope' in said('set', '--uid', carol.name, '--max-objects', '1')
    assert '--uid' in said('set', '--quota-scope=user', '--max-objects', '1')
    assert '--max-size' in said('set', '--quota-scope=user', '--uid', carol.name)
    assert 'scope' in said('set', '--quota-scope=user', '--bucket', 'b', '--max-objects', '1')
