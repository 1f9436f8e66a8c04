"""Websites of buckets: how boto3 sets them, and what a browser gets of them."""
import http.client
import json

import pytest

from skeptest.cluster import unique
from skeptest.s3 import Gateway, User, refused


@pytest.fixture(scope='module')
def web(cluster, workdir, gateway):
    made = Gateway(cluster, workdir / 'web.log', '--s3-domain', 's3.test', '--s3-website-domain', 'web.s3.test').start()
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


@pytest.fixture(scope='module')
def w3(web, user):
    return web.client(user)


@pytest.fixture
def site(w3):
    """A bucket that anybody may read and list."""
    name = unique('site')
    w3.create_bucket(Bucket=name)
    w3.put_bucket_policy(Bucket=name, Policy=json.dumps({'Version': '2012-10-17', 'Statement': [
        {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::%s/*' % name},
        {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:ListBucket', 'Resource': 'arn:aws:s3:::' + name}]}))
    for key in ['i.html', 'docs/i.html', 'error.html', 'a b/é.txt']:
        w3.put_object(Bucket=name, Key=key, Body=b'this is ' + key.encode(), ContentType='text/html')
    return name


def put(s3, bucket, **config):
    s3.put_bucket_website(Bucket=bucket, WebsiteConfiguration=config)


def get(web, bucket, path, method='GET', **headers):
    c = http.client.HTTPConnection('127.0.0.1', web.port, timeout=60)
    c.request(method, path, headers={'Host': bucket + '.web.s3.test', **headers})
    answer = c.getresponse()
    return answer.status, answer.read(), answer.headers


def test_an_object_sends_browsers_elsewhere(w3, site, web):
    put(w3, site, IndexDocument={'Suffix': 'i.html'})
    w3.put_object(Bucket=site, Key='old', Body=b'x', WebsiteRedirectLocation='/a%20b/')
    w3.copy_object(Bucket=site, Key='docs/i.html', CopySource={'Bucket': site, 'Key': 'old'}, WebsiteRedirectLocation='https://other.test/x')
    w3.copy_object(Bucket=site, Key='plain', CopySource={'Bucket': site, 'Key': 'old'})
    upload = w3.create_multipart_upload(Bucket=site, Key='parts', WebsiteRedirectLocation='http://other.test/')['UploadId']
    etag = w3.upload_part(Bucket=site, Key='parts', UploadId=upload, PartNumber=1, Body=b'x')['ETag']
    w3.complete_multipart_upload(Bucket=site, Key='parts', UploadId=upload, MultipartUpload={'Parts': [{'PartNumber': 1, 'ETag': etag}]})
    for path, to in (('old', '/a%20b/'), ('docs/', 'https://other.test/x'), ('parts', 'http://other.test/')):
        for method in 'GET', 'HEAD':
            status, body, headers = get(web, site, '/' + path, method)
            assert (status, body, headers['Location']) == (301, b'', to)
    assert get(web, site, '/plain')[:2] == (200, b'x')
    assert w3.head_object(Bucket=site, Key='old')['WebsiteRedirectLocation'] == '/a%20b/'
    got = w3.get_object(Bucket=site, Key='old')
    assert got['WebsiteRedirectLocation'] == '/a%20b/' and got['Body'].read() == b'x'
    refused('InvalidRedirectLocation', w3.put_object, Bucket=site, Key='bad', Body=b'x', WebsiteRedirectLocation='ftp://a')


def test_how_it_is_set(w3, site, web, cluster):
    refused('NoSuchWebsiteConfiguration', w3.get_bucket_website, Bucket=site)
    rules = [{'Condition': {'KeyPrefixEquals': 'old/'}, 'Redirect': {'ReplaceKeyPrefixWith': 'new/', 'HttpRedirectCode': '302'}},
             {'Condition': {'HttpErrorCodeReturnedEquals': '404'}, 'Redirect': {'HostName': 'other.test', 'Protocol': 'https', 'ReplaceKeyWith': 'x'}}]
    for config in [{'IndexDocument': {'Suffix': 'i.html'}, 'ErrorDocument': {'Key': 'error.html'}, 'RoutingRules': rules},
                   {'RedirectAllRequestsTo': {'HostName': 'other.test:8080', 'Protocol': 'https'}}]:
        put(w3, site, **config)
        got = w3.get_bucket_website(Bucket=site)
        assert {k: v for k, v in got.items() if k != 'ResponseMetadata'} == config
    index = {'IndexDocument': {'Suffix': 'i.html'}}
    for code, bad in [('InvalidArgument', {'IndexDocument': {'Suffix': 'a/b'}}), ('InvalidArgument', {'IndexDocument': {'Suffix': ''}}),
                      ('InvalidArgument', {}), ('MalformedXML', {**index, 'RedirectAllRequestsTo': {'HostName': 'a'}}),
                      ('InvalidArgument', {'RedirectAllRequestsTo': {'HostName': 'a/b'}}),
                      ('MalformedXML', {'RedirectAllRequestsTo': {'HostName': 'a', 'Protocol': 'ftp'}}),
                      ('InvalidArgument', {**index, 'RoutingRules': [{'Redirect': {'HttpRedirectCode': '200'}}]}),
                      ('MalformedXML', {**index, 'RoutingRules': [{'Redirect': {}}]}),
                      ('MalformedXML', {**index, 'RoutingRules': [{'Redirect': {'ReplaceKeyWith': 'a', 'ReplaceKeyPrefixWith': 'b'}}]}),
                      ('InvalidArgument', {**index, 'RoutingRules': [{'Redirect': {'HostName': 'a'}}] * 51})]:
        refused(code, put, w3, site, **bad)
    other = web.client(User(cluster, unique('bob')))
    refused('AccessDenied', put, other, site, **index)
    refused('AccessDenied', other.get_bucket_website, Bucket=site)
    refused('AccessDenied', other.delete_bucket_website, Bucket=site)
    w3.delete_bucket_website(Bucket=site)
    refused('NoSuchWebsiteConfiguration', w3.get_bucket_website, Bucket=site)


def test_what_a_browser_gets(w3, site, web):
    status, body, headers = get(web, site, '/')
    assert status == 404 and b'NoSuchWebsiteConfiguration' in body and headers['Content-Type'].startswith('text/html')
    assert get(web, unique('none'), '/')[0] == 404
    put(w3, site, IndexDocument={'Suffix': 'i.html'}, ErrorDocument={'Key': 'error.html'}, RoutingRules=[
        {'Condition': {'KeyPrefixEquals': 'old/'}, 'Redirect': {'ReplaceKeyPrefixWith': 'new dir/', 'HttpRedirectCode': '307'}},
        {'Condition': {'KeyPrefixEquals': 'lost/', 'HttpErrorCodeReturnedEquals': '404'}, 'Redirect': {'HostName': 'other.test', 'Protocol': 'https'}}])
    for path, key in [('/', 'i.html'), ('/?x=y', 'i.html'), ('/docs/', 'docs/i.html'), ('/i.html', 'i.html'), ('/a%20b/%C3%A9.txt', 'a b/é.txt')]:
        status, body, headers = get(web, site, path)
        assert (status, body, headers['Content-Type']) == (200, b'this is ' + key.encode(), 'text/html'), path
    assert get(web, site, '/i.html', Range='bytes=0-3')[:2] == (206, b'this')
    tag = get(web, site, '/')[2]['ETag']
    assert get(web, site, '/', **{'If-None-Match': tag})[:2] == (304, b'')
    status, body, headers = get(web, site, '/', method='HEAD')
    assert (status, body, headers['Content-Length']) == (200, b'', '14')
    # A folder without its slash; a rule; what is not there, with the page for it.
    status, _, headers = get(web, site, '/docs')
    assert (status, headers['Location']) == (302, '/docs/')
    status, _, headers = get(web, site, '/old/a?b')
    assert (status, headers['Location']) == (307, 'http://%s.web.s3.test/new%%20dir/a' % site)
    status, _, headers = get(web, site, '/lost/a')
    assert (status, headers['Location']) == (301, 'https://other.test/lost/a')
    assert get(web, site, '/nothing')[:2] == (404, b'this is error.html')
    assert get(web, site, '/nothing', Range='bytes=0-3')[:2] == (404, b'this is error.html')
    assert get(web, site, '/nothing', method='HEAD')[:2] == (404, b'')
    assert get(web, site, '/i.html', method='PUT')[0] == get(web, site, '/', method='POST')[0] == 405
    assert get(web, site, '/%zz')[0] == 400
    # It is no way round rights, whatever is brought along.
    w3.delete_bucket_policy(Bucket=site)
    url = w3.generate_presigned_url('get_object', Params={'Bucket': site, 'Key': 'i.html'})
    for path in ['/', '/nothing', '/i.html?' + url.split('?')[1]]:
        status, body, _ = get(web, site, path)
        assert status == 403 and b'AccessDenied' in body, path
    put(w3, site, RedirectAllRequestsTo={'HostName': 'other.test'})
    status, _, headers = get(web, site, '/a/b')
    assert (status, headers['Location']) == (301, 'http://other.test/a/b')
    # The name below which buckets are hosts goes on.
    c = http.client.HTTPConnection('127.0.0.1', web.port, timeout=60)
    c.request('GET', '/i.html', headers={'Host': site + '.s3.test'})
    assert c.getresponse().status == 403
