"""Debian's own Keystone before the gateway: that it is asked as it wants to be, and says what is read."""
import pytest
import requests
import swiftclient
from botocore.exceptions import ClientError

from skeptest.cluster import unique
from skeptest.keystone import Real, settings
from skeptest.run import wait_until
from skeptest.s3 import Gateway, admin, bytes_of, refused

pytestmark = pytest.mark.long
CACHE_S = 2
WITHIN_S = 60


@pytest.fixture(scope='module')
def both(cluster, tmp_path_factory):
    place = tmp_path_factory.mktemp('keystone')
    made = Gateway(cluster, place / 's3.log', '--s3-swift', '--s3-gc-wait', '2')
    keystone = Real(place, made.url)
    try:
        keystone.start()
        keystone.user('ann', 'secret', demo=['member'])
        keystone.user('ben', 'secret', demo=['reader'])
        made.options += ('--s3-keystone', settings(place, keystone, ec2='true', cache_seconds=CACHE_S))
        yield made.start(), keystone
        assert made.stop() == 0, made.log.read_text()[-4000:]
        assert 'panicked' not in made.log.read_text()
    finally:
        keystone.stop()


def status(gateway, token):
    return requests.get(gateway.url + '/swift/v1', headers={'X-Auth-Token': token}, timeout=60).status_code


def test_swift(cluster, both):
    gateway, keystone = both
    swift = swiftclient.Connection(keystone.url + '/v3', 'ann', 'secret', auth_version='3', retries=0,
                                   os_options={'project_name': 'demo', 'user_domain_name': 'Default', 'project_domain_name': 'Default'})
    room, body = unique('room'), bytes_of(100000)
    swift.put_container(room)
    swift.put_object(room, 'o', contents=body)
    assert swift.get_object(room, 'o')[1] == body
    made = admin(cluster, 'user', 'info', keystone.project('demo'))
    assert made['display_name'] == 'demo' and room in made['buckets']
    assert status(gateway, keystone.token('ben', 'demo')) == 403
    assert status(gateway, 'gAAAAno-token') == 401
    token = keystone.token('ann', 'demo')
    assert status(gateway, token) == 200
    keystone.revoke(token)
    wait_until(lambda: status(gateway, token) == 401, WITHIN_S, 0.3, 'the token to end')


def test_ec2(both):
    gateway, keystone = both
    key, bucket, body = keystone.ec2('ann', 'demo'), unique('bucket'), bytes_of(100000)
    s3 = gateway.client(key)
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key='o', Body=body)
    assert gateway.client(key, signature_version='s3').get_object(Bucket=bucket, Key='o')['Body'].read() == body
    assert s3.get_bucket_acl(Bucket=bucket)['Owner']['ID'] == keystone.project('demo')
    refused('AccessDenied', gateway.client(keystone.ec2('ben', 'demo')).list_buckets)
    keystone.remove_ec2('ann', key)
    wait_until(lambda: is_refused(s3), WITHIN_S, 0.3, 'the key to end')


def is_refused(s3):
    try:
        s3.list_buckets()
    except ClientError as e:
        return e.response['Error']['Code'] == 'InvalidAccessKeyId'
    return False
