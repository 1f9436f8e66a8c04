"""Forms of browsers: policies that boto3 signs (V4, V2), posted by requests, and whole ones by hand."""
import base64
import hashlib
import hmac
import http.client
import json

import pytest
import requests

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.s3 import admin, bytes_of, refused


def posted(gateway, bucket, form, body=b'the file', name='a b.txt', **more):
    """The answer; redirects are not followed."""
    return requests.post('%s/%s' % (gateway.url, bucket), data={**form['fields'], **more}, files={'file': (name, body)}, allow_redirects=False, timeout=90)


def signed_v2(user, document, key='k'):
    """Fields of a policy of one's own."""
    policy = base64.b64encode(json.dumps(document).encode())
    signature = base64.b64encode(hmac.new(user.secret.encode(), policy, hashlib.sha1).digest())
    return {'key': key, 'AWSAccessKeyId': user.access, 'policy': policy.decode(), 'signature': signature.decode()}


def code(answer):
    return answer.status_code, answer.text.split('<Code>')[1].split('</Code>')[0]


@pytest.mark.parametrize('signature', ['s3v4', 's3'])
def test_a_form_that_boto3_signs(gateway, user, s3, bucket, signature):
    client = gateway.client(user, signature_version=signature)
    form = client.generate_presigned_post(bucket, 'up/${filename}', Fields={'acl': 'private', 'x-amz-meta-a': 'b', 'Content-Type': 'x/y'},
                                          Conditions=[{'acl': 'private'}, {'x-amz-meta-a': 'b'}, ['starts-with', '$Content-Type', 'x/'], ['content-length-range', 3, 6 << 20]])
    for body in (b'the file', bytes_of((5 << 20) + 7)):
        answer = posted(gateway, bucket, form, body)
        assert (answer.status_code, answer.text) == (204, ''), answer.text
        got = client.get_object(Bucket=bucket, Key='up/a b.txt')
        assert got['Body'].read() == body and got['ETag'] == answer.headers['ETag']
        assert (got['ContentType'], got['Metadata']) == ('x/y', {'a': 'b'}) and answer.headers['Location'].endswith('/up/a%20b.txt')
    # What the form does not say, or says otherwise.
    assert code(posted(gateway, bucket, form, b'12')) == (400, 'EntityTooSmall')
    assert code(posted(gateway, bucket, form, bytes_of((6 << 20) + 1))) == (400, 'EntityTooLarge')
    for more in ({'acl': 'public-read'}, {'x-amz-meta-more': '1'}, {'key': 'other'}, {'Content-Type': 'z/y'}):
        assert code(posted(gateway, bucket, form, **more)) == (403, 'AccessDenied'), more
    other = unique('bucket')
    s3.create_bucket(Bucket=other)
    assert code(posted(gateway, other, form)) == (403, 'AccessDenied')
    changed = dict(form['fields'])
    document = json.loads(base64.b64decode(changed['policy']))
    document['conditions'].append({'x-amz-meta-more': '1'})
    changed['policy'] = base64.b64encode(json.dumps(document).encode()).decode()
    assert code(posted(gateway, bucket, {'fields': changed})) == (403, 'SignatureDoesNotMatch')
    # A policy that names no bucket would be good for each of the signer's.
    document = {'expiration': document['expiration'], 'conditions': [['starts-with', '$key', '']]}
    answer = posted(gateway, bucket, {'fields': signed_v2(user, document)})
    assert code(answer) == (403, 'AccessDenied') and 'bucket' in answer.text
    document['conditions'].append({'bucket': bucket})
    assert posted(gateway, bucket, {'fields': signed_v2(user, document)}).status_code == 204
    s3.delete_object(Bucket=bucket, Key='k')
    late = client.generate_presigned_post(bucket, 'k', ExpiresIn=-10)
    assert code(posted(gateway, bucket, late)) == (403, 'AccessDenied')
    assert [o['Key'] for o in s3.list_objects_v2(Bucket=bucket)['Contents']] == ['up/a b.txt']


def test_answers(gateway, s3, bucket):
    def form(**fields):
        return s3.generate_presigned_post(bucket, 'k&<', Fields=fields, Conditions=[{k: v} for k, v in fields.items()])
    answer = posted(gateway, bucket, form(success_action_status='201'))
    assert answer.status_code == 201 and '<Key>k&amp;&lt;</Key>' in answer.text and '<Bucket>%s</Bucket>' % bucket in answer.text
    assert posted(gateway, bucket, form(success_action_status='200')).status_code == 200
    assert posted(gateway, bucket, form(success_action_status='500')).status_code == 204
    answer = posted(gateway, bucket, form(success_action_redirect='http://pages.test/done?x=1'))
    etag = answer.headers['ETag'].strip('"')
    assert (answer.status_code, answer.headers['Location']) == (303, 'http://pages.test/done?x=1&bucket=%s&key=k%%26%%3C&etag=%%22%s%%22' % (bucket, etag))
    for nowhere in ('javascript:alert(1)', '//pages.test'):
        assert posted(gateway, bucket, form(success_action_redirect=nowhere)).status_code == 204
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={'Status': 'Enabled'})
    version = posted(gateway, bucket, form()).headers['x-amz-version-id']
    assert s3.get_object(Bucket=bucket, Key='k&<', VersionId=version)['Body'].read() == b'the file'
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={'CORSRules': [{'AllowedMethods': ['POST'], 'AllowedOrigins': ['http://a.test']}]})
    answer = requests.post('%s/%s' % (gateway.url, bucket), data=form()['fields'], files={'file': b'x'}, headers={'Origin': 'http://a.test'}, timeout=90)
    assert answer.headers['Access-Control-Allow-Origin'] == 'http://a.test'


def test_who_has_no_key(gateway, s3, bucket):
    form = {'fields': {'key': 'anybody'}}
    assert code(posted(gateway, bucket, form)) == (403, 'AccessDenied')
    policy = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Principal': '*', 'Action': 's3:PutObject', 'Resource': 'arn:aws:s3:::%s/anybody' % bucket}]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    assert posted(gateway, bucket, form).status_code == 204
    assert code(posted(gateway, bucket, {'fields': {'key': 'else'}})) == (403, 'AccessDenied')
    # A policy that nobody signed is none.
    assert code(posted(gateway, bucket, {'fields': {'key': 'anybody', 'policy': 'e30='}})) == (403, 'AccessDenied')
    assert code(posted(gateway, unique('none'), form)) == (404, 'NoSuchBucket')
    signed = {'key': 'k', 'policy': 'e30=', 'AWSAccessKeyId': 'nobody', 'signature': 'AAAA'}
    assert code(posted(gateway, bucket, {'fields': signed})) == (403, 'InvalidAccessKeyId')


def raw(gateway, bucket, body, length=None, kind='multipart/form-data; boundary=XyZ', path=None):
    connection = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=90)
    try:
        connection.putrequest('POST', path or '/' + bucket)
        connection.putheader('Content-Type', kind)
        connection.putheader('Content-Length', str(len(body) if length is None else length))
        connection.endheaders()
        connection.send(body)
        if length is not None:
            connection.sock.shutdown(1)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def whole(form, file=b'the file', end=b'\r\n--XyZ--\r\n'):
    part = '--XyZ\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    fields = ''.join(part % pair for pair in form['fields'].items())
    return fields.encode() + b'--XyZ\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n' + file + end


def test_forms_that_are_wrong(gateway, s3, bucket):
    form = s3.generate_presigned_post(bucket, 'k')
    assert raw(gateway, bucket, whole(form))[0] == 204
    s3.delete_object(Bucket=bucket, Key='k')
    for body, kind in ((b'', 'x'), (b'junk', 'x'), (whole(form)[:200], 'x'), (whole(form).replace(b'name="file"', b'name="other"'), 'x'),
                       (whole({'fields': {**form['fields'], 'x-ignore-a': 'x' * 70000}}), 'x')):
        status, text = raw(gateway, bucket, body)
        assert status == 400 and 'MalformedPOSTRequest' in text, (body[:50], kind, text)
    assert raw(gateway, bucket, whole(form), kind='multipart/form-data')[0] == 400
    assert raw(gateway, bucket, whole(form), path='/%s/key' % bucket)[0] == 405
    assert raw(gateway, bucket, whole(form), path='/')[0] == 400
    # The file is cut off: by its form, and by its connection.
    assert raw(gateway, bucket, whole(form, end=b''))[0] == 400
    try:
        raw(gateway, bucket, whole(form, end=b''), length=10000)
    except (http.client.HTTPException, OSError):
        pass
    refused('404', s3.head_object, Bucket=bucket, Key='k')
    # A boundary that only begins like one is part of the file.
    file = b'\r\n--Xy\r\n-\r\n--XyY' * 1000
    assert raw(gateway, bucket, whole(form, file))[0] == 204
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == file
    for field in ('tagging', 'x-amz-object-lock-mode', 'x-amz-server-side-encryption-aws-kms-key-id'):
        more = s3.generate_presigned_post(bucket, 'k', Fields={field: 'x'}, Conditions=[{field: 'x'}])
        status, text = raw(gateway, bucket, whole(more))
        assert status == 501 and 'NotImplemented' in text, (field, text)


def test_a_quota_is_asked_before_the_file_comes(cluster, gateway, s3, bucket):
    admin(cluster, 'quota', 'set', '--bucket', bucket, '--max-size', '100K')
    admin(cluster, 'quota', 'enable', '--bucket', bucket)
    form = s3.generate_presigned_post(bucket, 'k')
    wait_until(lambda: posted(gateway, bucket, form, bytes_of(101 << 10)).status_code == 403, 60, 0.2, 'the quota to be known')
    connection = http.client.HTTPConnection('127.0.0.1', gateway.port, timeout=90)
    try:
        connection.putrequest('POST', '/' + bucket)
        connection.putheader('Content-Type', 'multipart/form-data; boundary=XyZ')
        connection.putheader('Content-Length', str(300 << 10))
        connection.endheaders()
        connection.send(whole(form, file=b'', end=b''))
        answer = connection.getresponse()
        assert answer.status == 403 and b'QuotaExceeded' in answer.read()
    finally:
        connection.close()
    # What fits is taken, whatever follows it.
    s3.delete_object(Bucket=bucket, Key='k')
    after = b'\r\n--XyZ\r\nContent-Disposition: form-data; name="more"\r\n\r\n%s\r\n--XyZ--\r\n'
    file = bytes_of(90 << 10)
    assert raw(gateway, bucket, whole(form, file, after % (b'x' * (60 << 10))))[0] == 204
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == file
    status, text = raw(gateway, bucket, whole(form, b'small', after % (b'x' * (70 << 10))))
    assert status == 400 and 'MalformedPOSTRequest' in text
    status, text = raw(gateway, bucket, whole({'fields': {**form['fields'], 'x-amz-decoded-content-length': '8'}}))
    assert status == 403, text


def test_a_bucket_as_a_host(gateway, s3, bucket):
    form = s3.generate_presigned_post(bucket, 'k')
    answer = requests.post(gateway.url + '/', data=form['fields'], files={'file': b'by host'}, headers={'Host': bucket + '.s3.test'}, timeout=90)
    assert answer.status_code == 204, answer.text
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'by host'
