"""Swift as its clients use it: python-swiftclient and the command `swift`, on the objects that boto3 sees."""
import http.client
import json
import os
import subprocess
import time
import urllib.parse

import pytest
import requests
import swiftclient
from swiftclient.utils import generate_temp_url

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary


class Swift:
    """A subuser at a gateway."""

    def __init__(self, gateway, cluster, user, name='swift', access='full'):
        made = admin(cluster, 'subuser', 'create', '--uid', user.name, '--subuser', name, '--access', access)
        self.id, self.key, self.user = made['swift_keys'][0]['user'], made['swift_keys'][0]['secret_key'], user
        self.auth = gateway.url + '/auth/v1.0'
        self.url, self.token = swiftclient.get_auth(self.auth, self.id, self.key)

    def connection(self):
        return swiftclient.Connection(self.auth, self.id, self.key, retries=0)

    def ask(self, method, path='', token=None, **headers):
        """Without a client: below the account, with this subuser's token, or with none (False)."""
        headers = {k.replace('_', '-'): v for k, v in headers.items()} | ({} if token is False else {'X-Auth-Token': token or self.token})
        return requests.request(method, self.url + path, headers=headers, timeout=60)

    def command(self, *words, cwd, check=True):
        env = {**os.environ, 'ST_AUTH': self.auth, 'ST_USER': self.id, 'ST_KEY': self.key}
        r = subprocess.run(['swift', *words], env=env, cwd=cwd, capture_output=True, text=True, timeout=120)
        assert not check or r.returncode == 0, (words, r.stdout, r.stderr)
        return r


@pytest.fixture(scope='module')
def gateway(cluster, tmp_path_factory):
    made = Gateway(cluster, tmp_path_factory.mktemp('swift') / 's3.log', '--s3-swift', '--s3-split-at', '40', '--s3-gc-wait', '2')
    yield made.start()
    assert made.stop() == 0
    assert 'panicked' not in made.log.read_text()


@pytest.fixture(scope='module')
def alice(cluster, gateway):
    return Swift(gateway, cluster, User(cluster, unique('alice')))


@pytest.fixture(scope='module')
def bob(cluster, gateway):
    return Swift(gateway, cluster, User(cluster, unique('bob')))


@pytest.fixture
def container(alice):
    name = unique('room')
    assert alice.ask('PUT', '/' + name).status_code == 201
    return name


def status(code, call, *args, **kw):
    with pytest.raises(swiftclient.ClientException) as e:
        call(*args, **kw)
    assert e.value.http_status == code, e.value
    return e.value


def test_the_same_objects_by_both(gateway, alice, container):
    swift, s3, body = alice.connection(), gateway.client(alice.user), bytes_of(3000000)
    etag = swift.put_object(container, 'a b/é', contents=body, content_type='text/x', headers={'X-Object-Meta-Colour': 'blue'})
    got = s3.get_object(Bucket=container, Key='a b/é')
    assert got['Body'].read() == body and got['ETag'] == '"%s"' % etag and got['ContentType'] == 'text/x'
    assert got['Metadata'] == {'colour': 'blue'}
    s3.put_object(Bucket=container, Key='by-s3', Body=b'there', Metadata={'size': 'small'})
    headers, data = swift.get_object(container, 'by-s3')
    assert data == b'there' and headers['x-object-meta-size'] == 'small' and headers['etag'] == got_md5(b'there')
    headers, data = swift.get_object(container, 'a b/é', headers={'Range': 'bytes=5-9'})
    assert data == body[5:10] and headers['content-range'] == 'bytes 5-9/3000000'
    headers, rows = swift.get_container(container)
    assert [(r['name'], r['bytes']) for r in rows] == [('a b/é', 3000000), ('by-s3', 5)]
    assert headers['x-container-object-count'] == '2' and headers['x-container-bytes-used'] == '3000005'
    assert [c['Name'] for c in s3.list_buckets()['Buckets']] == [c['name'] for c in swift.get_account()[1]]
    swift.delete_object(container, 'a b/é')
    refused('NoSuchKey', s3.get_object, Bucket=container, Key='a b/é')
    status(404, swift.delete_object, container, 'a b/é')
    status(409, swift.delete_container, container)
    s3.delete_object(Bucket=container, Key='by-s3')
    swift.delete_container(container)
    refused('404', s3.head_bucket, Bucket=container)


def got_md5(data):
    import hashlib
    return hashlib.md5(data).hexdigest()


def test_listings(alice, container):
    swift = alice.connection()
    names = ['a', 'd/1', 'd/2', 'd/e/3', 'z<&>']
    for n in names:
        swift.put_object(container, n, contents=b'x')

    def listed(**kw):
        return [r.get('name') or r['subdir'] for r in swift.get_container(container, **kw)[1]]
    assert listed() == names and listed(limit=2) == names[:2] and listed(marker='d/1', end_marker='z') == ['d/2', 'd/e/3']
    assert listed(delimiter='/') == ['a', 'd/', 'z<&>'] and listed(prefix='d/', delimiter='/') == ['d/1', 'd/2', 'd/e/']
    assert listed(path='d') == ['d/1', 'd/2'] and listed(full_listing=True, limit=2) == names
    assert alice.ask('GET', '/%s?prefix=d/1' % container).text == 'd/1\n'
    xml = alice.ask('GET', '/%s?format=xml&marker=y' % container).text
    assert '<name>z&lt;&amp;&gt;</name>' in xml and '<bytes>1</bytes>' in xml
    assert alice.ask('GET', '/%s?prefix=none' % container).status_code == 204
    assert alice.ask('GET', '/%s?limit=10001' % container).status_code == 412
    many = ['n%03d' % n for n in range(60)]
    for n in many:
        swift.put_object(container, n, contents=b'')
    assert listed(prefix='n') == many, 'the index has been split'


def test_what_is_said_of_them(alice, container):
    swift = alice.connection()
    swift.post_account({'X-Account-Meta-Kind': 'test'})
    assert swift.head_account()['x-account-meta-kind'] == 'test'
    swift.post_account({'X-Remove-Account-Meta-Kind': 'x'})
    assert 'x-account-meta-kind' not in swift.head_account()
    swift.post_container(container, {'X-Container-Meta-Room': '7'})
    assert swift.head_container(container)['x-container-meta-room'] == '7'
    assert alice.ask('PUT', '/' + container, X_Container_Meta_Room='8').status_code == 202
    assert swift.head_container(container)['x-container-meta-room'] == '8'
    swift.put_object(container, 'o', contents=b'data', headers={'X-Object-Meta-A': '1', 'Content-Disposition': 'inline'})
    swift.post_object(container, 'o', {'X-Object-Meta-B': '2'})
    said = swift.head_object(container, 'o')
    assert said['x-object-meta-b'] == '2' and 'x-object-meta-a' not in said and said['content-length'] == '4'
    assert float(said['x-timestamp']) > 1e9 and said['x-trans-id'].startswith('tx')
    swift.copy_object(container, 'o', '/%s/copy' % container, {'X-Object-Meta-C': '3'})
    said = swift.head_object(container, 'copy')
    assert (said['x-object-meta-b'], said['x-object-meta-c']) == ('2', '3')
    swift.copy_object(container, 'o', '/%s/fresh' % container, {'X-Object-Meta-C': '3'}, fresh_metadata=True)
    assert 'x-object-meta-b' not in swift.head_object(container, 'fresh')
    assert alice.ask('PUT', '/%s/here' % container, X_Copy_From='%s/o' % container, Content_Length='0').status_code == 201
    assert swift.get_object(container, 'here')[1] == b'data'
    etag = got_md5(b'data')
    assert alice.ask('GET', '/%s/o' % container, If_None_Match=etag).status_code == 304
    assert alice.ask('GET', '/%s/o' % container, If_Match='other').status_code == 412
    assert alice.ask('GET', '/%s/o' % container, Range='bytes=9-').status_code == 416
    status(422, swift.put_object, container, 'bad', contents=b'x', etag=etag)
    status(404, swift.head_object, container, 'bad')
    assert alice.ask('PUT', '/%s/o' % container, If_None_Match='*', Content_Length='0').status_code == 412
    status(501, swift.put_object, container, 'x', contents=b'x', headers={'X-Symlink-Target': 'a/b'})
    capabilities = swift.get_capabilities()
    assert capabilities['slo']['max_manifest_segments'] == 1000 and 'sha256' in capabilities['tempurl']['allowed_digests']


def test_objects_that_end(cluster, alice, container, tmp_path):
    swift, far = alice.connection(), int(time.time()) + 100000
    for name, value in (('X-Delete-At', '1'), ('X-Delete-At', 'soon'), ('X-Delete-After', '0'), ('X-Delete-After', '1.5')):
        status(400, swift.put_object, container, 'x', contents=b'x', headers={name: value})
        assert alice.ask('COPY', '/%s/x' % container, Destination='%s/y' % container, **{name: value}).status_code in (400, 404)
    swift.put_object(container, 'far', contents=b'x', headers={'X-Delete-At': str(far)})
    swift.copy_object(container, 'far', '/%s/copy' % container)
    swift.copy_object(container, 'far', '/%s/kept' % container, {'X-Remove-Delete-At': 'x'})
    swift.copy_object(container, 'far', '/%s/later' % container, {'X-Delete-At': str(far + 1)})
    said = [swift.head_object(container, name).get('x-delete-at') for name in ('far', 'copy', 'kept', 'later')]
    assert said == [str(far), str(far), None, str(far + 1)] and swift.get_object(container, 'far')[0]['x-delete-at'] == str(far)
    swift.post_object(container, 'far', {'X-Object-Meta-A': '1'})
    assert 'x-delete-at' not in swift.head_object(container, 'far'), 'a POST says all that holds from then on'
    swift.put_object(container, 'brief', contents=b'x', headers={'X-Delete-After': '1'})
    wait_until(lambda: alice.ask('HEAD', '/%s/brief' % container).status_code == 404, 60, 0.2, 'an object to end')
    # Removed soon after, by whatever gateway: this one has days of 24 seconds.
    hasty = Gateway(cluster, tmp_path / 'hasty.log', '--s3-swift', '--s3-gc-wait', '2', '--s3-lifecycle-day', '24').start()
    try:
        swift.put_object(container, 'soon', contents=b'x', headers={'X-Delete-After': '2'})
        swift.put_object(container, 'saved', contents=b'x', headers={'X-Delete-After': '20'})
        swift.post_object(container, 'saved', {})
        swift.post_object(container, 'kept', {'X-Delete-After': '2'})
        # Of a static large object the list ends, as Swift has it: segments have times of their own, or stay.
        swift.put_object(container, 'seg', contents=b'segment')
        slo = json.dumps([{'path': '/%s/seg' % container}])
        swift.put_object(container, 'slo', contents=slo, query_string='multipart-manifest=put', headers={'X-Delete-After': '8'})
        assert 'x-delete-at' in swift.head_object(container, 'slo') and swift.get_object(container, 'slo')[1] == b'segment'
        assert 'x-delete-at' not in swift.head_object(container, 'seg')
        s3 = hasty.client(alice.user)
        left = lambda: {o['Key'] for o in s3.list_objects_v2(Bucket=container).get('Contents', [])}
        wait_until(lambda: not left() & {'soon', 'kept', 'brief', 'slo'}, 120, 0.5, 'what has ended to be removed')
        assert left() == {'far', 'copy', 'later', 'saved', 'seg'} and swift.get_object(container, 'seg')[1] == b'segment'
        for name in 'soon', 'kept', 'slo':
            status(404, swift.get_object, container, name)
            refused('NoSuchKey', s3.get_object, Bucket=container, Key=name)
    finally:
        assert hasty.stop() == 0


def test_large_objects(gateway, alice, container, tmp_path):
    swift, segments, body = alice.connection(), unique('segments'), bytes_of(2500000)
    (tmp_path / 'file').write_bytes(body)
    alice.command('upload', container, 'file', '-S', '1000000', '--segment-container', segments, cwd=tmp_path)
    said = swift.head_object(container, 'file')
    assert said['content-length'] == '2500000' and segments in said['x-object-manifest']
    alice.command('upload', container, 'file', '--object-name', 'static', '-S', '1000000', '--use-slo', '--segment-container', segments, cwd=tmp_path)
    said = swift.head_object(container, 'static')
    assert said['content-length'] == '2500000' and said['x-static-large-object'] == 'True'
    for name in 'file', 'static':
        alice.command('download', container, name, '-o', name + '.got', cwd=tmp_path)
        assert (tmp_path / (name + '.got')).read_bytes() == body
        got = swift.get_object(container, name, headers={'Range': 'bytes=999998-1000001'})
        assert got[1] == body[999998:1000002]
    listed = json.loads(swift.get_object(container, 'static', query_string='multipart-manifest=get')[1])
    assert [s['bytes'] for s in listed] == [1000000, 1000000, 500000]
    swift.copy_object(container, 'static', '/%s/whole' % container)
    assert gateway.client(alice.user).get_object(Bucket=container, Key='whole')['Body'].read() == body
    # A segment that is another by now is not sent for the one that was listed.
    swift.put_object(*listed[0]['name'].strip('/').split('/', 1), contents=b'x' * 1000000)
    status(409, swift.get_object, container, 'static')
    wrong = [{'path': '/%s/none' % segments, 'size_bytes': 1}, {'path': listed[1]['name'], 'etag': 'x'}]
    e = status(400, swift.put_object, container, 'wrong', contents=json.dumps(wrong), query_string='multipart-manifest=put')
    assert '404' in str(e.http_response_content) and 'Etag Mismatch' in str(e.http_response_content)
    gone = json.loads(swift.delete_object(container, 'static', query_string='multipart-manifest=delete', headers={'Accept': 'application/json'}) or '{}')
    assert gone == {} or gone['Number Deleted'] == 4
    status(404, swift.head_object, *listed[1]['name'].strip('/').split('/', 1))
    r = requests.post(alice.url + '?bulk-delete', data='\n'.join(['%s/whole' % container, '%s/none' % container]).encode(), timeout=60,
                      headers={'X-Auth-Token': alice.token, 'Accept': 'application/json', 'Content-Type': 'text/plain'})
    assert (r.json()['Number Deleted'], r.json()['Number Not Found'], r.json()['Errors']) == (1, 1, [])
    alice.command('delete', container, 'file', cwd=tmp_path)
    alice.command('delete', container, cwd=tmp_path)
    assert 'Containers' in alice.command('stat', cwd=tmp_path).stdout


def test_rclone(alice, tmp_path):
    room, files = unique('rclone'), tmp_path / 'files'
    (files / 'd').mkdir(parents=True)
    (files / 'a b').write_bytes(bytes_of(100000))
    (files / 'd' / 'é').write_bytes(b'')
    env = {**os.environ, 'RCLONE_CONFIG_X_TYPE': 'swift', 'RCLONE_CONFIG_X_AUTH': alice.auth, 'RCLONE_CONFIG_X_USER': alice.id,
           'RCLONE_CONFIG_X_KEY': alice.key, 'RCLONE_CONFIG': str(tmp_path / 'none.conf'), 'RCLONE_RETRIES': '1'}
    for words in (['sync', str(files), 'x:' + room], ['check', '--download', str(files), 'x:' + room], ['copy', 'x:' + room, str(tmp_path / 'got')],
                  ['moveto', 'x:%s/a b' % room, 'x:%s/c' % room], ['purge', 'x:' + room]):
        run(['rclone', *words], env=env)
    assert (tmp_path / 'got' / 'a b').read_bytes() == bytes_of(100000) and (tmp_path / 'got' / 'd' / 'é').exists()


def test_temporary_urls(gateway, alice, bob, container):
    swift = alice.connection()
    swift.post_account({'X-Account-Meta-Temp-URL-Key': 'of-account'})
    swift.post_container(container, {'X-Container-Meta-Temp-URL-Key-2': 'of-container'})
    swift.put_object(container, 'd/o', contents=b'shared')
    swift.put_object(container, 'other', contents=b'not shared')
    path = urllib.parse.unquote(urllib.parse.urlparse(alice.url).path)

    def url(name, key='of-account', method='GET', **kw):
        at = '%s/%s/%s' % (path.removeprefix('/swift'), container, name)
        return gateway.url + '/swift' + generate_temp_url(at, 600, key, method, **kw)
    for key in 'of-account', 'of-container':
        got = requests.get(url('d/o', key), timeout=60)
        assert got.content == b'shared' and 'filename="o"' in got.headers['content-disposition']
    whole = gateway.url + generate_temp_url('%s/%s/d/o' % (path, container), 600, 'of-account', 'GET', digest='sha512')
    assert requests.get(whole, timeout=60).content == b'shared', 'signed with all of the path'
    assert requests.get(url('d/o', iso8601=True), timeout=60).content == b'shared'
    prefixed = url('d/', prefix=True).replace('/d/?', '/d/o?')
    assert requests.get(prefixed, timeout=60).content == b'shared'
    assert requests.head(url('d/o'), timeout=60).status_code == 200
    assert requests.put(url('new', method='PUT'), data=b'by url', timeout=60).status_code == 201
    assert swift.get_object(container, 'new')[1] == b'by url'
    expired = gateway.url + generate_temp_url('%s/%s/d/o' % (path, container), int(time.time()) - 1, 'of-account', 'GET', absolute=True)
    for bad in (url('d/o', 'guess'), expired, url('d/o').replace('/d/o', '/other'), prefixed.replace('/d/o?', '/other?'),
                url('d/o', method='PUT'), url('d/o').replace(path, urllib.parse.urlparse(bob.url).path)):
        assert requests.get(bad, timeout=60).status_code == 401, bad
    assert requests.delete(url('d/o'), timeout=60).status_code == 401
    sneaky = requests.put(url('new', method='PUT'), headers={'X-Object-Manifest': '%s/other' % container}, data=b'', timeout=60)
    assert sneaky.status_code == 400
    assert requests.get(url('d/o').split('?')[0], timeout=60).status_code == 401


def test_who_may_what(cluster, gateway, alice, bob, container):
    swift, other, s3 = alice.connection(), bob.connection(), gateway.client(bob.user)
    swift.put_object(container, 'o', contents=b'data')
    theirs = swiftclient.Connection(preauthurl=alice.url, preauthtoken=bob.token, retries=0)
    for call in (theirs.get_account, theirs.head_account, lambda: theirs.get_container(container), lambda: theirs.get_object(container, 'o'),
                 lambda: theirs.put_object(container, 'x', contents=b'x'), lambda: theirs.delete_object(container, 'o'),
                 lambda: theirs.put_container(unique('x')), lambda: theirs.post_container(container, {'X-Container-Read': '.r:*'}),
                 lambda: theirs.get_container(unique('none'))):
        status(403, call)
    assert bob.ask('GET', '/' + container).status_code == 404, 'it is in another account'
    # The same without the account in the path, and copies from there.
    bare = gateway.url + '/swift/v1/%s/o' % container
    assert requests.get(bare, headers={'X-Auth-Token': bob.token}, timeout=60).status_code == 403
    assert requests.get(bare, headers={'X-Auth-Token': alice.token}, timeout=60).content == b'data'
    mine = unique('mine')
    other.put_container(mine)
    r = bob.ask('PUT', '/%s/stolen' % mine, X_Copy_From='%s/o' % container, X_Copy_From_Account=alice.user.name, Content_Length='0')
    assert r.status_code == 403
    other.put_object(mine, 'dlo', contents=b'', headers={'X-Object-Manifest': container + '/o'})
    status(403, other.get_object, mine, 'dlo')
    slo = json.dumps([{'path': '/%s/o' % container}])
    assert '403' in str(status(400, other.put_object, mine, 'slo', contents=slo, query_string='multipart-manifest=put').http_response_content)
    assert alice.ask('GET', '/%s/o' % container, token=False).status_code == 401
    assert alice.ask('PUT', '/%s/x' % container, token=False, Content_Length='0').status_code == 401
    # What is granted holds for S3, too, and is no more.
    swift.post_container(container, {'X-Container-Read': bob.user.name, 'X-Container-Write': bob.id})
    assert theirs.get_object(container, 'o')[1] == b'data' and [r['name'] for r in theirs.get_container(container)[1]] == ['o']
    assert s3.get_object(Bucket=container, Key='o')['Body'].read() == b'data'
    theirs.put_object(container, 'bobs', contents=b'x')
    refused('AccessDenied', s3.put_object, Bucket=container, Key='x', Body=b'x')
    status(403, theirs.post_container, container, {'X-Container-Read': '.r:*'})
    status(403, theirs.delete_container, container)
    assert 'x-container-read' not in theirs.head_container(container) and swift.head_container(container)['x-container-read'] == bob.user.name
    swift.post_container(container, {'X-Container-Read': '.r:*'})
    anybody = gateway.client()
    assert alice.ask('GET', '/%s/o' % container, token=False).text == 'data' and anybody.get_object(Bucket=container, Key='o')['Body'].read() == b'data'
    assert alice.ask('GET', '/' + container, token=False).status_code == 401
    swift.post_container(container, {'X-Container-Read': '.r:*,.rlistings'})
    assert alice.ask('GET', '/' + container, token=False).text == 'bobs\no\n'
    # A policy denies, whatever ACLs grant; the block of public access holds for them.
    owner = gateway.client(alice.user)
    block = dict(BlockPublicAcls=True, IgnorePublicAcls=True, BlockPublicPolicy=False, RestrictPublicBuckets=False)
    owner.put_public_access_block(Bucket=container, PublicAccessBlockConfiguration=block)
    assert alice.ask('GET', '/%s/o' % container, token=False).status_code == 401
    status(403, swift.post_container, container, {'X-Container-Read': '.r:*'})
    swift.post_container(container, {'X-Container-Read': bob.user.name})
    deny = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Deny', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % container}]}
    owner.put_bucket_policy(Bucket=container, Policy=json.dumps(deny))
    status(403, theirs.get_object, container, 'o')
    status(403, swift.get_object, container, 'o')
    for bad in ('.r:example.com', '*:*'):
        status(400, swift.post_container, container, {'X-Container-Read': bad})
    status(400, swift.post_container, container, {'X-Container-Write': '.r:*'})


def test_what_a_policy_gives(gateway, alice, bob, container):
    swift, owner = alice.connection(), gateway.client(alice.user)
    theirs = swiftclient.Connection(preauthurl=alice.url, preauthtoken=bob.token, retries=0)
    for name in 'open/a', 'shut/b':
        swift.put_object(container, name, contents=b'x')
    allow = {'Effect': 'Allow', 'Principal': '*', 'Resource': 'arn:aws:s3:::' + container}
    below = {'StringEquals': {'s3:prefix': 'open/'}}
    policy = {'Version': '2012-10-17', 'Statement': [allow | {'Action': 's3:ListBucket', 'Condition': below}, allow | {'Action': 's3:PutBucketAcl'}]}
    owner.put_bucket_policy(Bucket=container, Policy=json.dumps(policy))
    # What is judged is what is listed.
    for query in 'prefix=open/', 'path=open', 'path=open/', 'path=open&prefix=shut/':
        assert alice.ask('GET', '/%s?%s' % (container, query), token=bob.token).text == 'open/a\n', query
    for query in '', 'path=', 'path=shut', 'path=shut&prefix=open/', 'path=&prefix=open/':
        assert alice.ask('GET', '/%s?%s' % (container, query), token=bob.token).status_code == 403, query
    # Access is given by the owner alone; other metadata by whom the policy lets.
    for name in 'X-Container-Meta-Temp-URL-Key', 'X-Remove-Container-Meta-Temp-URL-Key-2', 'X-Container-Read', 'X-Container-Write':
        status(403, theirs.post_container, container, {name: bob.user.name})
    theirs.post_container(container, {'X-Container-Meta-Room': '9'})
    assert swift.head_container(container)['x-container-meta-room'] == '9'


def test_keys_and_tokens(cluster, gateway, alice):
    def get(token):
        return alice.ask('GET', token=token).status_code
    user = User(cluster, unique('carol'))
    reader = Swift(gateway, cluster, user, 'reader', 'read')
    assert reader.ask('GET').status_code == 204 and reader.ask('PUT', '/' + unique('x')).status_code == 403
    writer = Swift(gateway, cluster, user, 'writer', 'readwrite')
    room = unique('room')
    assert writer.ask('PUT', '/' + room).status_code == 201
    assert writer.ask('POST', '/' + room, X_Container_Read='.r:*').status_code == 403
    assert writer.ask('POST', X_Account_Meta_Temp_URL_Key='x').status_code == 403
    assert reader.ask('DELETE', '/' + room).status_code == 403
    for name, key in ((reader.id, 'guess'), (reader.id, ''), (reader.id + 'x', reader.key), (user.name, reader.key), ('nobody:x', 'x'), (writer.id, reader.key)):
        with pytest.raises(swiftclient.ClientException) as e:
            swiftclient.get_auth(reader.auth, name, key)
        assert e.value.http_status == 401
    assert requests.get(reader.auth, timeout=60).status_code == 401
    body = reader.token[len('AUTH_tk'):]
    for forged in ('AUTH_tk', 'AUTH_tk' + body[::-1], reader.token[:-4] + 'AAAA', reader.token[:9] + 'B' + reader.token[10:], 'x' * 9000, alice.token + 'A'):
        assert reader.ask('GET', token=forged).status_code == 401, forged
    assert get(reader.token) == 403
    # A key that is made anew, and an access that is changed, end the tokens of before.
    changed = admin(cluster, 'key', 'create', '--key-type', 'swift', '--subuser', reader.id)['swift_keys'][0]['secret_key']
    assert reader.ask('GET').status_code == 401 and changed != reader.key
    token = swiftclient.get_auth(reader.auth, reader.id, changed)[1]
    admin(cluster, 'subuser', 'modify', '--subuser', reader.id, '--access', 'full')
    assert reader.ask('GET', token=token).status_code == 401
    run([find_binary(), 's3', 'key', 'rm', '--key-type', 'swift', '--subuser', reader.id, '-c', cluster.conf])
    status(401, swiftclient.get_auth, reader.auth, reader.id, changed)
    info = admin(cluster, 'user', 'info', user.name)
    assert [s['permissions'] for s in info['subusers']] == ['full', 'readwrite'] and [k['user'] for k in info['swift_keys']] == [writer.id]
    assert writer.ask('DELETE', '/' + room).status_code == 204
    run([find_binary(), 's3', 'user', 'rm', user.name, '-c', cluster.conf])
    assert writer.ask('GET').status_code == 401
    again = User(cluster, user.name)
    assert again.name == user.name and writer.ask('GET').status_code == 401
    status(401, swiftclient.get_auth, writer.auth, writer.id, writer.key)


def test_limits_locks_and_names(cluster, gateway, alice, container):
    swift, owner = alice.connection(), gateway.client(alice.user)
    run([find_binary(), 's3', 'quota', 'set', '--bucket', container, '--max-size', '1000', '-c', cluster.conf])
    run([find_binary(), 's3', 'quota', 'enable', '--bucket', container, '-c', cluster.conf])
    big = alice.url + '/%s/big' % container
    wait_until(lambda: requests.put(big, data=b'x' * 2000, headers={'X-Auth-Token': alice.token}, timeout=60).status_code == 413, 30, 0.5, 'the quota')
    kept = unique('kept')
    owner.create_bucket(Bucket=kept, ObjectLockEnabledForBucket=True)
    swift.put_object(kept, 'o', contents=b'first')
    owner.put_object_legal_hold(Bucket=kept, Key='o', LegalHold={'Status': 'ON'})
    swift.put_object(kept, 'o', contents=b'second')
    status(409, swift.post_object, kept, 'o', {'X-Object-Meta-A': '1'})
    swift.delete_object(kept, 'o')
    status(404, swift.get_object, kept, 'o')
    versions = owner.list_object_versions(Bucket=kept)
    assert len(versions['Versions']) == 2 and len(versions['DeleteMarkers']) == 1
    for v in versions['Versions'] + versions['DeleteMarkers']:
        if v['IsLatest'] or v['VersionId'] != versions['Versions'][-1]['VersionId']:
            owner.delete_object(Bucket=kept, Key='o', VersionId=v['VersionId'])
    assert swift.get_object(kept, 'o')[1] == b'first'
    # Names are names: there are no folders to climb.
    for name in ('a/..c', '/a//b/', 'x?y#z%41'):
        swift.put_object(container, name, contents=b'')
        assert swift.head_object(container, name)['content-length'] == '0'
    host, root = urllib.parse.urlparse(alice.url).netloc, urllib.parse.urlparse(alice.url).path

    def raw(method, path):
        """As it is, and not as clients tidy it."""
        conn = http.client.HTTPConnection(host, timeout=60)
        conn.request(method, path, headers={'X-Auth-Token': alice.token, 'Content-Length': '0'})
        code = conn.getresponse().status
        conn.close()
        return code
    assert raw('PUT', '%s/%s/../../%s/climbed' % (root, container, kept)) == 201 and raw('GET', '%s/%s/../../../../etc/passwd' % (root, container)) == 404
    assert [r['name'] for r in swift.get_container(container, prefix='../')[1]] == ['../../%s/climbed' % kept]
    assert [r['name'] for r in swift.get_container(kept)[1]] == ['o']
    assert raw('PUT', root + '/../%s/x' % container) == 412 and raw('GET', '/swift/v1/../../info') == 412
    for bad in ('/%2e%2e', '/a%2Fb', '/%00', '/AUTH_x/y', '/' + 'x' * 256):
        assert alice.ask('PUT', bad, Content_Length='0').status_code == 412, bad
    loose = unique('Room_of') + ' é'
    swift.put_container(loose)
    swift.put_object(loose, 'o', contents=b'x')
    assert swift.get_object(loose, 'o')[1] == b'x'
    status(409, swiftclient.Connection(preauthurl=alice.url, preauthtoken=alice.token, retries=0).delete_container, loose)
    conn = http.client.HTTPConnection(host, timeout=60)
    conn.request('PUT', '%s/%s/o' % (root, container), iter([b'a', b'bc']), {'X-Auth-Token': alice.token, 'Transfer-Encoding': 'chunked'}, encode_chunked=True)
    assert conn.getresponse().status == 201 and swift.get_object(container, 'o')[1] == b'abc'
    conn.close()
    assert requests.post(alice.url + '/' + container, headers={'X-Auth-Token': alice.token}, files={'file': b'x'}, timeout=60).status_code == 501


def test_it_is_off_unless_asked_for(cluster, workdir):
    own = Gateway(cluster, workdir / unique('plain.log')).start()
    try:
        for path in ('/auth/v1.0', '/swift/v1/x', '/info'):
            assert b'NoSuchBucket' in requests.get(own.url + path, timeout=60).content, path
    finally:
        assert own.stop() == 0
