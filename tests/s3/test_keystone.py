"""Users of Keystone at the gateway: tokens for Swift, by python-swiftclient with version 3 of its authentication, and keys of EC2 for S3, by boto3."""
import concurrent.futures
import time

import pytest
import requests
import swiftclient
from botocore.exceptions import ClientError

from skeptest.cluster import unique
from skeptest.keystone import Ec2, Played, settings
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary

CACHE_S = 3
# Generous: other work is on the machine.
WITHIN_S = 60


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    return tmp_path_factory.mktemp('keystone')


@pytest.fixture(scope='module')
def both(cluster, place):
    """A gateway, and the Keystone that it asks."""
    made = Gateway(cluster, place / 's3.log', '--s3-swift', '--s3-gc-wait', '2')
    keystone = Played(place, made.url).start()
    for project in 'demo', 'other', 'third':
        keystone.project(project)
    keystone.user('ann', 'secret', demo=['reader', 'member'])
    keystone.user('ben', 'secret', other=['Member'], demo=['reader'])
    keystone.user('eve', 'secret', third=['reseller'])
    made.options += ('--s3-keystone', settings(place, keystone, ec2='true', cache_seconds=CACHE_S, admin_roles='reseller'))
    yield made.start(), keystone
    assert made.stop() == 0, made.log.read_text()[-4000:]
    keystone.stop()
    log = made.log.read_text()
    assert 'panicked' not in log and 'pass=word' not in log, log[-4000:]


@pytest.fixture
def gateway(both):
    return both[0]


@pytest.fixture
def keystone(both):
    return both[1]


def connection(keystone, user, project):
    return swiftclient.Connection(keystone.url + '/v3', user, 'secret', auth_version='3', retries=0, cacert=keystone.ca,
                                  os_options={'project_name': project, 'user_domain_name': 'Default', 'project_domain_name': 'Default'})


def ask(gateway, keystone, method, path, token, project='demo', **headers):
    url = '%s/swift/v1/AUTH_%s%s' % (gateway.url, keystone.project(project), path)
    headers = {k.replace('_', '-'): v for k, v in headers.items()} | ({'X-Auth-Token': token} if token else {})
    return requests.request(method, url, headers=headers, timeout=60)


def test_swift(cluster, gateway, keystone):
    swift, room = connection(keystone, 'ann', 'demo'), unique('room')
    swift.put_container(room)
    body = bytes_of(1000000)
    swift.put_object(room, 'o', contents=body)
    assert swift.get_object(room, 'o')[1] == body
    made = admin(cluster, 'user', 'info', keystone.project('demo'))
    assert made['display_name'] == 'demo' and made['keys'] == [] and room in made['buckets']
    token, before = keystone.token('ann', 'demo'), keystone.count('/v3/auth/tokens')
    for _ in range(30):
        assert ask(gateway, keystone, 'HEAD', '/%s/o' % room, token).status_code == 200
    assert keystone.count('/v3/auth/tokens') - before < 20, 'what was heard is remembered'
    for bad, status in (('gAAAAno-token', 401), ('AUTH_tkAAAA', 401), (None, 401), (keystone.token('ben', 'demo'), 403)):
        answer = ask(gateway, keystone, 'HEAD', '/%s/o' % room, bad)
        assert answer.status_code == status, (bad, answer.status_code)
    # One of the gateway's own is never asked about elsewhere, whatever it is.
    before = keystone.count('')
    for _ in range(3):
        assert ask(gateway, keystone, 'HEAD', '', 'AUTH_tk' + 'A' * 80).status_code == 401
    assert keystone.count('') == before


def test_many_at_once_are_one_question(gateway, keystone):
    token, before = keystone.token('ann', 'demo'), keystone.count('/v3/auth/tokens')
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: ask(gateway, keystone, 'HEAD', '', token).status_code, range(20)))
    assert set(answers) <= {200, 204}
    # One, and a second and a log-in where the machine is so slow that the first answer was old.
    assert keystone.count('/v3/auth/tokens') - before <= 4


def test_projects_are_told_apart(gateway, keystone):
    ann, ben, room = connection(keystone, 'ann', 'demo'), connection(keystone, 'ben', 'other'), unique('room')
    ann.put_container(room)
    ann.put_object(room, 'o', contents=b'data')
    token = keystone.token('ben', 'other')
    assert ben.get_account()[1] == []
    assert ask(gateway, keystone, 'GET', '/%s/o' % room, token).status_code == 403
    ann.post_container(room, {'X-Container-Read': '%s:%s' % (keystone.project('other'), keystone.users['ben']['id'])})
    assert ask(gateway, keystone, 'GET', '/%s/o' % room, token).content == b'data'
    assert ask(gateway, keystone, 'PUT', '/%s/p' % room, token, Content_Length='0').status_code == 403
    # A role of administrators: as the owner of the account that is named, and of no account that is not there.
    token = keystone.token('eve', 'third')
    assert ask(gateway, keystone, 'PUT', '/%s/p' % room, token, Content_Length='0').status_code == 201
    assert ask(gateway, keystone, 'GET', '', token, 'service').status_code == 404


def test_tokens_end(gateway, keystone):
    token, short = keystone.token('ann', 'demo'), keystone.token('ann', 'demo', seconds=4)
    for one in token, short:
        assert ask(gateway, keystone, 'GET', '', one).status_code in (200, 204)
    del keystone.tokens[token]
    for one in token, short:
        wait_until(lambda one=one: ask(gateway, keystone, 'GET', '', one).status_code == 401, WITHIN_S, 0.3, 'the token to end')
    # The gateway's own, too, are forgotten: it logs in again.
    wait_until(lambda: forget(gateway, keystone), WITHIN_S, 1, 'the gateway to log in again')


def forget(gateway, keystone):
    with keystone.lock:
        for token in [t for t, said in keystone.tokens.items() if said['user']['name'] == 'skep']:
            del keystone.tokens[token]
    return ask(gateway, keystone, 'GET', '', keystone.token('ann', 'demo')).status_code in (200, 204)


def test_ec2(cluster, gateway, keystone):
    key, bucket = keystone.ec2('ann', 'demo'), unique('bucket')
    s3 = gateway.client(key)
    s3.create_bucket(Bucket=bucket)
    body = bytes_of(700000)
    s3.put_object(Bucket=bucket, Key='o', Body=body, ChecksumAlgorithm='CRC32')
    assert s3.get_object(Bucket=bucket, Key='o')['Body'].read() == body
    assert gateway.client(key, signature_version='s3').get_object(Bucket=bucket, Key='o')['Body'].read() == body
    for version in 's3v4', 's3':
        signer = gateway.client(key, signature_version=version)
        url = signer.generate_presigned_url('get_object', {'Bucket': bucket, 'Key': 'o'})
        assert requests.get(url, timeout=60).content == body
        form = signer.generate_presigned_post(bucket, 'form-' + version)
        assert requests.post(form['url'], data=form['fields'], files={'file': b'form'}, timeout=60).status_code == 204
    # The same account as by Swift.
    assert bucket in [c['name'] for c in connection(keystone, 'ann', 'demo').get_account()[1]]
    assert s3.get_bucket_acl(Bucket=bucket)['Owner']['ID'] == keystone.project('demo')
    refused('SignatureDoesNotMatch', gateway.client(Ec2(key.access, 'wrong')).list_buckets)
    refused('InvalidAccessKeyId', gateway.client(Ec2('f' * 32, 'x')).list_buckets)
    refused('AccessDenied', gateway.client(keystone.ec2('ben', 'demo')).list_buckets)
    # Nobody asks about keys of ours.
    local, before = User(cluster, unique('local')), keystone.count('/v3/credentials')
    gateway.client(local).list_buckets()
    assert keystone.count('/v3/credentials') == before
    del keystone.credentials[key.access]
    wait_until(lambda: code(s3.list_buckets) == 'InvalidAccessKeyId', WITHIN_S, 0.3, 'the key to end')


def code(call):
    try:
        call()
    except ClientError as e:
        return e.response['Error']['Code']
    return None


def test_nobody_answers(cluster, gateway, keystone):
    token, key, local = keystone.token('ann', 'demo'), keystone.ec2('ann', 'demo'), User(cluster, unique('local'))
    for user in key, local:
        gateway.client(user).list_buckets()
    assert ask(gateway, keystone, 'GET', '', token).status_code in (200, 204)
    keystone.stop()
    try:
        later = keystone.token('ann', 'demo')
        wait_until(lambda: ask(gateway, keystone, 'GET', '', later).status_code == 503, WITHIN_S, 0.3, 'that it is away to be seen')
        answer = ask(gateway, keystone, 'GET', '', later)
        assert answer.status_code == 503 and 'service of identity' in answer.text
        refused('ServiceUnavailable', gateway.client(keystone.ec2('ann', 'demo')).list_buckets)
        # What was heard before goes on, also after the time for which it is not asked again; and so do keys of the gateway's own.
        time.sleep(CACHE_S)
        assert ask(gateway, keystone, 'GET', '', token).status_code in (200, 204)
        for user in key, local:
            gateway.client(user).list_buckets()
    finally:
        keystone.start()
    wait_until(lambda: ask(gateway, keystone, 'GET', '', later).status_code in (200, 204), WITHIN_S, 0.3, 'that it is there again to be seen')


def test_files_that_are_refused(cluster, keystone, place):
    def said(path):
        argv = [find_binary(), 's3', 'serve', '-c', cluster.conf, '--listen', '127.0.0.1:0', '--s3-swift', '--s3-keystone', path]
        return run(argv, check='fails').err
    good = settings(place, keystone)
    good.chmod(0o640)
    assert 'others than its owner may open it (mode 640)' in said(good)
    good.chmod(0o600)
    good.write_text(good.read_text() + 'roles = x\n')
    assert 'line 6: the names are' in said(good) and 'pass=word' not in said(good)
    assert 'is not there' in said(place / 'none')
