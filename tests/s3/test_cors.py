"""CORS: rules by boto3 and s3cmd, and what a browser would be told, on answers and on errors."""
import http.client

import pytest

from skeptest.cluster import unique
from skeptest.s3 import Gateway, User, refused

RULES = [{'ID': 'app', 'AllowedOrigins': ['https://*.app.example'], 'AllowedMethods': ['GET', 'PUT'], 'AllowedHeaders': ['Content-*', 'x-amz-date'],
          'ExposeHeaders': ['ETag', 'x-amz-meta-a'], 'MaxAgeSeconds': 600},
         {'AllowedOrigins': ['*'], 'AllowedMethods': ['HEAD', 'DELETE']}]


def ask(gateway, method, path, **headers):
    c = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=60)
    c.request(method, path, headers={k.replace('_', '-'): v for k, v in headers.items()})
    answer = c.getresponse()
    body = answer.read()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, body


@pytest.fixture
def ruled(s3, bucket):
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={'CORSRules': RULES})
    return bucket


def test_rules_are_kept(s3, gateway, cluster, user, ruled, workdir):
    assert s3.get_bucket_cors(Bucket=ruled)['CORSRules'] == RULES
    other = Gateway(cluster, workdir / 'cors.log').start()
    try:
        there = other.client(user)
        assert there.get_bucket_cors(Bucket=ruled)['CORSRules'] == RULES
        # What one gateway has remembered another changes.
        s3.put_bucket_cors(Bucket=ruled, CORSConfiguration={'CORSRules': RULES[1:]})
        assert there.get_bucket_cors(Bucket=ruled)['CORSRules'] == RULES[1:]
        there.delete_bucket_cors(Bucket=ruled)
        refused('NoSuchCORSConfiguration', s3.get_bucket_cors, Bucket=ruled)
    finally:
        assert other.stop() == 0
    s3.delete_bucket_cors(Bucket=ruled)
    s3.put_bucket_cors(Bucket=ruled, CORSConfiguration={'CORSRules': RULES})
    s3.put_bucket_acl(Bucket=ruled, ACL='public-read')
    assert s3.get_bucket_cors(Bucket=ruled)['CORSRules'] == RULES
    stranger = gateway.client(User(cluster, unique('user')))
    for call, more in [(stranger.get_bucket_cors, {}), (stranger.delete_bucket_cors, {}),
                       (stranger.put_bucket_cors, {'CORSConfiguration': {'CORSRules': RULES}})]:
        refused('AccessDenied', call, Bucket=ruled, **more)
    s3.delete_bucket(Bucket=ruled)
    s3.create_bucket(Bucket=ruled)
    refused('NoSuchCORSConfiguration', s3.get_bucket_cors, Bucket=ruled)


def test_rules_that_are_refused(s3, bucket):
    good = {'AllowedOrigins': ['*'], 'AllowedMethods': ['GET']}
    for bad in [{'AllowedMethods': ['PATCH']}, {'AllowedOrigins': ['*.*']}, {'ExposeHeaders': ['*']}, {'AllowedHeaders': ['a b']},
                {'MaxAgeSeconds': -1}, {'ID': 'i' * 256}, {'AllowedOrigins': ['o' * 65536]}]:
        refused('InvalidArgument', s3.put_bucket_cors, Bucket=bucket, CORSConfiguration={'CORSRules': [{**good, **bad}]})
    refused('InvalidArgument', s3.put_bucket_cors, Bucket=bucket, CORSConfiguration={'CORSRules': [good] * 101})
    refused('NoSuchCORSConfiguration', s3.get_bucket_cors, Bucket=bucket)
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={'CORSRules': [good] * 100})


def test_preflight(gateway, bucket, ruled):
    path = '/%s/k' % ruled

    def preflight(origin, method, headers=None, host='localhost', path=path):
        more = {'Access_Control_Request_Headers': headers} if headers else {}
        return ask(gateway, 'OPTIONS', path, Host=host, Origin=origin, Access_Control_Request_Method=method, **more)
    status, said, _ = preflight('https://a.app.example', 'PUT', 'content-type, X-Amz-Date')
    assert status == 200 and said['access-control-allow-origin'] == 'https://a.app.example', said
    assert said['access-control-allow-credentials'] == 'true' and said['access-control-allow-methods'] == 'GET, PUT'
    assert said['access-control-allow-headers'] == 'content-type, x-amz-date'
    assert said['access-control-expose-headers'] == 'ETag, x-amz-meta-a' and said['access-control-max-age'] == '600'
    assert 'Origin' in said['vary']
    assert preflight('https://a.app.example', 'PUT', host=ruled + '.s3.test', path='/k')[0] == 200
    status, said, _ = preflight('http://any', 'DELETE')
    assert status == 200 and said['access-control-allow-origin'] == '*' and 'access-control-allow-credentials' not in said
    for origin, method, headers in [('https://a.app.example', 'PUT', 'x-other'), ('http://a.app.example', 'PUT', None),
                                    ('http://any', 'DELETE', 'x'), ('https://a.app.example', 'POST', None)]:
        status, said, body = preflight(origin, method, headers)
        assert status == 403 and b'not allowed' in body and 'access-control-allow-origin' not in said, (origin, body)
    assert preflight('http://any', 'PATCH')[0] == 400
    assert ask(gateway, 'OPTIONS', path, Access_Control_Request_Method='GET')[0] == 400
    assert preflight('http://any', 'GET', path='/%s/k' % unique('none'))[0] == 404


def test_a_bucket_without_rules(s3, gateway, bucket):
    path = '/%s/k' % bucket
    s3.put_object(Bucket=bucket, Key='k', Body=b'x', ACL='public-read')
    status, _, body = ask(gateway, 'OPTIONS', path, Origin='http://a', Access_Control_Request_Method='GET')
    assert status == 403 and b'not enabled' in body
    status, said, _ = ask(gateway, 'GET', path, Origin='http://a')
    assert status == 200 and not [h for h in said if h.startswith('access-control')]


def test_answers_and_errors_are_for_the_page(s3, gateway, ruled):
    s3.put_object(Bucket=ruled, Key='k', Body=b'x', ACL='public-read')
    mine = 'https://a.app.example'
    for path, status in [('k', 200), ('none', 403), ('k?X-Amz-Signature=no', None)]:
        got, said, _ = ask(gateway, 'GET', '/%s/%s' % (ruled, path), Origin=mine)
        assert got == status or (status is None and got >= 400)
        assert said['access-control-allow-origin'] == mine and 'ETag' in said['access-control-expose-headers'], (path, said)
        assert 'Origin' in said['vary']
    got, said, _ = ask(gateway, 'PUT', '/%s/new' % ruled, Origin=mine, Content_Length='0')
    assert got == 403 and said['access-control-allow-origin'] == mine
    for headers in [{'Origin': 'https://other.example'}, {}]:
        got, said, _ = ask(gateway, 'GET', '/%s/k' % ruled, **headers)
        assert got == 200 and 'access-control-allow-origin' not in said, said
        # A cache must not give a page the answer that another got.
        assert not headers or 'Origin' in said['vary'], said
