"""What clients may do to a gateway: it answers or hangs up, keeps its memory, and goes on."""
import base64
import hashlib
import socket
import zlib

from skeptest.cluster import unique
from skeptest.s3 import Gateway, refused

from botocore.auth import SigV4Auth                                             # as skeptest.s3 finds it
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

MIB = 1 << 20


def said(gateway, data):
    """What it answers to these bytes until it hangs up, or the first of it."""
    with socket.create_connection(('127.0.0.1', gateway.port), 60) as c:
        try:
            c.sendall(data)
            return c.recv(65536)
        except (ConnectionResetError, BrokenPipeError):
            return b''


def test_what_is_no_request(gateway, s3, bucket):
    head = b'GET / HTTP/1.1\r\nHost: x\r\n'
    for data in (b'\x16\x03\x01' + bytes(300), b'GARBAGE\r\n\r\n', head + b'A: ' + b'x' * 300000 + b'\r\n\r\n',
                 head + b'Content-Length: -1\r\n\r\n', head + b'Content-Length: 1\r\nContent-Length: 2\r\n\r\n',
                 b'GET /%ff%fe HTTP/1.1\r\nHost: x\r\n\r\n', b'GET /' + b'../' * 400 + b' HTTP/1.1\r\nHost: x\r\n\r\n'):
        answer = said(gateway, data)
        assert answer == b'' or answer.startswith(b'HTTP/1.1 4'), (data[:80], answer)
    for auth in ('AWS4-HMAC-SHA256 Credential=', 'AWS4-HMAC-SHA256 Credential=a/b/c/s3/aws4_request, SignedHeaders=host, Signature=0',
                 'AWS :', 'Basic eDp5', 'AWS4-HMAC-SHA256 ' + 'x' * 5000):
        answer = said(gateway, head + b'Authorization: ' + auth.encode() + b'\r\n\r\n')
        assert answer.startswith(b'HTTP/1.1 4'), (auth[:60], answer)
    assert s3.list_objects_v2(Bucket=bucket)['KeyCount'] == 0


def test_lists_that_are_too_long(gateway, s3, bucket):
    s3.put_object(Bucket=bucket, Key='x', Body=b'')
    keys = [{'Key': 'x'}] * 1001
    refused('MalformedXML', s3.delete_objects, Bucket=bucket, Delete={'Objects': keys})
    url = s3.generate_presigned_url('delete_objects', Params={'Bucket': bucket, 'Delete': {'Objects': keys[:1]}},
                                    HttpMethod='POST')
    path = url[len(gateway.url):]
    head = 'POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: %d\r\n\r\n' % (path, gateway.port, 20 * MIB)
    # Refused by its length, before it comes.
    answer = said(gateway, head.encode())
    assert answer.startswith(b'HTTP/1.1 400') and b'MaxMessageLengthExceeded' in answer, answer
    answer = said(gateway, head.encode() + b'<Delete>' + b'<Object><Key>x</Key></Object>' * 300000)
    assert answer == b'' or answer.startswith(b'HTTP/1.1 4'), answer
    assert s3.list_objects_v2(Bucket=bucket)['KeyCount'] == 1, 'nothing was deleted'


def test_files_of_forms_are_not_taken_into_memory(cluster, user, workdir):
    """By nobody: answered at once. By somebody: put while it comes, and not at all when it is cut off."""
    own = Gateway(cluster, workdir / (unique('own') + '.log')).start()
    try:
        bucket = unique('bucket')
        client = own.client(user)
        client.create_bucket(Bucket=bucket)
        signed = client.generate_presigned_post(bucket, 'k')['fields']
        part = '--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        signed = ''.join(part % pair for pair in signed.items()).encode()
        field = b'--x\r\nContent-Disposition: form-data; name="key"\r\n\r\nk\r\n'
        file = b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        head = 'POST /%s HTTP/1.1\r\nHost: x\r\nContent-Type: Multipart/Form-Data; boundary=x\r\nContent-Length: %d\r\n\r\n'
        small = field + file + b'data\r\n--x--\r\n'
        answer = said(own, (head % (bucket, len(small))).encode() + small)
        assert answer.startswith(b'HTTP/1.1 403') and b'AccessDenied' in answer, answer
        before = hwm_mib(own)
        for fields in (field, signed):
            with socket.create_connection(('127.0.0.1', own.port), 60) as c:
                try:
                    c.sendall((head % (bucket, 1 << 30)).encode() + fields + file)
                    for _ in range(96):
                        c.sendall(bytes(MIB))
                except (ConnectionResetError, BrokenPipeError):
                    pass
        assert own.client(user).list_objects_v2(Bucket=bucket)['KeyCount'] == 0
        assert hwm_mib(own) < before + 48, (before, hwm_mib(own))
        assert own.stop() == 0
    finally:
        own.kill()


def chunked_head(gateway, user, bucket, decoded, length, signed=False):
    """The head of a PUT of a body in chunks, with a checksum to follow where they are not signed; and its signature."""
    headers = {'Host': '127.0.0.1:%d' % gateway.port, 'x-amz-decoded-content-length': str(decoded)}
    headers['x-amz-content-sha256'] = 'STREAMING-AWS4-HMAC-SHA256-PAYLOAD' if signed else 'STREAMING-UNSIGNED-PAYLOAD-TRAILER'
    if not signed:
        headers['x-amz-trailer'] = 'x-amz-checksum-crc32'
    request = AWSRequest(method='PUT', url='%s/%s/k' % (gateway.url, bucket), headers=headers)
    SigV4Auth(Credentials(user.access, user.secret), 's3', 'us-east-1').add_auth(request)
    lines = ['PUT /%s/k HTTP/1.1' % bucket, *('%s: %s' % h for h in request.headers.items()), 'Content-Length: %d' % length]
    return '\r\n'.join(lines + ['', '']).encode()


def test_a_body_in_chunks_that_is_cut_at_a_border(gateway, s3, user, bucket):
    """What came is well formed, and less than was announced."""
    chunk, end = b'5\r\nhello\r\n', b'0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n'
    for decoded, body in ((10, chunk), (10, chunk + end), (5, chunk), (5, chunk + b'0\r\n\r\n'), (4, chunk + end)):
        answer = said(gateway, chunked_head(gateway, user, bucket, decoded, len(body)) + body)
        assert answer.startswith(b'HTTP/1.1 400') and b'IncompleteBody' in answer, (decoded, body, answer)
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')
    answer = said(gateway, chunked_head(gateway, user, bucket, 5, len(chunk + end)) + chunk + end)
    assert answer.startswith(b'HTTP/1.1 200'), answer
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'hello'


def test_a_chunk_is_never_held_whole(cluster, user, workdir):
    """96 MiB as one chunk, as clients send them that know the length; one that is signed cannot be looked at in pieces."""
    own = Gateway(cluster, workdir / (unique('own') + '.log')).start()
    try:
        s3, bucket, size = own.client(user), unique('bucket'), 96 * MIB
        s3.create_bucket(Bucket=bucket)
        s3.put_object(Bucket=bucket, Key='small', Body=b'x')
        before = hwm_mib(own)
        crc = 0
        for _ in range(96):
            crc = zlib.crc32(bytes(MIB), crc)
        begin = b'%x\r\n' % size
        end = b'\r\n0\r\nx-amz-checksum-crc32:%s\r\n\r\n' % base64.b64encode(crc.to_bytes(4, 'big'))
        with socket.create_connection(('127.0.0.1', own.port), 60) as c:
            c.sendall(chunked_head(own, user, bucket, size, len(begin) + size + len(end)) + begin)
            for _ in range(96):
                c.sendall(bytes(MIB))
            c.sendall(end)
            answer = c.recv(65536)
        assert answer.startswith(b'HTTP/1.1 200'), answer
        assert s3.head_object(Bucket=bucket, Key='k')['ContentLength'] == size
        assert hwm_mib(own) < before + 64, (before, hwm_mib(own))
        begin = b'%x;chunk-signature=%s\r\n' % (size, b'0' * 64)
        answer = said(own, chunked_head(own, user, bucket, size, len(begin) + size, signed=True) + begin + bytes(32 * MIB))
        assert answer == b'' or answer.startswith(b'HTTP/1.1 4'), answer
        assert hwm_mib(own) < before + 64, (before, hwm_mib(own))
        assert own.stop() == 0
    finally:
        own.kill()


class Zeros:
    """A body that is made while it is read."""

    def __init__(self, size):
        self.size, self.at = size, 0

    def read(self, n=-1):
        n = self.size - self.at if n is None or n < 0 else min(n, self.size - self.at)
        self.at += n
        return bytes(n)

    def tell(self):
        return self.at

    def seek(self, to, whence=0):
        self.at = to + (0, self.at, self.size)[whence]
        return self.at


def hwm_mib(gateway):
    with open('/proc/%d/status' % gateway.proc.pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith('VmHWM:')) / 1024


def test_an_object_is_never_held_whole(cluster, user, bucket, workdir):
    """96 MiB up and down through a gateway of its own."""
    size = 96 * MIB
    own = Gateway(cluster, workdir / (unique('own') + '.log')).start()
    try:
        s3 = own.client(user)
        s3.put_object(Bucket=bucket, Key='small', Body=b'x')
        before = hwm_mib(own)
        s3.put_object(Bucket=bucket, Key='k', Body=Zeros(size), ContentLength=size)
        got, md5, n = s3.get_object(Bucket=bucket, Key='k'), hashlib.md5(), 0
        for chunk in got['Body'].iter_chunks(MIB):
            md5.update(chunk)
            n += len(chunk)
        assert n == size and got['ETag'] == '"%s"' % md5.hexdigest()
        assert hwm_mib(own) < before + 64, (before, hwm_mib(own))
        assert own.stop() == 0
    finally:
        own.kill()
