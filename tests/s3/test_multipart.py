"""Uploads in parts."""
import hashlib
from concurrent.futures import ThreadPoolExecutor

from skeptest.s3 import bytes_of, refused

MIB = 1 << 20


def begin(s3, bucket, key='k', **kw):
    return s3.create_multipart_upload(Bucket=bucket, Key=key, **kw)['UploadId']


def put(s3, bucket, upload, number, data, key='k'):
    part = s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=number, Body=data)
    return {'PartNumber': number, 'ETag': part['ETag']}


def complete(s3, bucket, upload, parts, key='k', **kw):
    return s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={'Parts': parts}, **kw)


def test_an_object_of_parts(s3, bucket):
    datas = {1: bytes_of(5 * MIB), 2: bytes_of(5 * MIB + 1), 7: bytes_of(3)}
    upload = begin(s3, bucket, ContentType='a/b', Metadata={'m': '1'})
    with ThreadPoolExecutor(3) as pool:
        parts = list(pool.map(lambda n: put(s3, bucket, upload, n, datas[n]), sorted(datas)))
    refused('NoSuchKey', s3.get_object, Bucket=bucket, Key='k')
    listed = s3.list_parts(Bucket=bucket, Key='k', UploadId=upload, MaxParts=2)
    assert [p['PartNumber'] for p in listed['Parts']] == [1, 2] and listed['IsTruncated']
    rest = s3.list_parts(Bucket=bucket, Key='k', UploadId=upload, PartNumberMarker=listed['NextPartNumberMarker'])
    assert [(p['PartNumber'], p['Size']) for p in rest['Parts']] == [(7, 3)]
    assert [u['UploadId'] for u in s3.list_multipart_uploads(Bucket=bucket)['Uploads']] == [upload]
    done = complete(s3, bucket, upload, parts)
    whole = b''.join(datas.values())
    md5 = hashlib.md5(b''.join(hashlib.md5(d).digest() for d in datas.values())).hexdigest()
    assert done['ETag'] == '"%s-3"' % md5
    got = s3.get_object(Bucket=bucket, Key='k')
    assert got['Body'].read() == whole and (got['ContentType'], got['Metadata']) == ('a/b', {'m': '1'})
    ranged = s3.get_object(Bucket=bucket, Key='k', Range='bytes=5242870-10485770')['Body'].read()
    assert ranged == whole[5242870:10485771]
    second = s3.get_object(Bucket=bucket, Key='k', PartNumber=2)
    assert second['Body'].read() == datas[2] and second['PartsCount'] == 3
    assert 'Uploads' not in s3.list_multipart_uploads(Bucket=bucket)
    assert complete(s3, bucket, upload, parts)['ETag'] == done['ETag'], 'asked again'


def test_what_is_refused(s3, bucket):
    upload = begin(s3, bucket)
    small, big = put(s3, bucket, upload, 1, b'x'), put(s3, bucket, upload, 2, bytes_of(5 * MIB))
    refused('EntityTooSmall', complete, s3, bucket, upload, [small, big])
    refused('InvalidPartOrder', complete, s3, bucket, upload, [big, small])
    refused('InvalidPart', complete, s3, bucket, upload, [{'PartNumber': 3, 'ETag': small['ETag']}])
    refused('InvalidPart', complete, s3, bucket, upload, [{'PartNumber': 1, 'ETag': big['ETag']}])
    refused('InvalidArgument', put, s3, bucket, upload, 10001, b'x')
    s3.put_object(Bucket=bucket, Key='k', Body=b'there')
    refused('PreconditionFailed', complete, s3, bucket, upload, [small], IfNoneMatch='*')
    s3.abort_multipart_upload(Bucket=bucket, Key='k', UploadId=upload)
    refused('NoSuchUpload', put, s3, bucket, upload, 1, b'x')
    refused('NoSuchUpload', complete, s3, bucket, upload, [small])
    refused('NoSuchUpload', s3.abort_multipart_upload, Bucket=bucket, Key='k', UploadId=upload)
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'there'


def test_parts_copied_from_an_object(s3, bucket):
    data = bytes_of(11 * MIB)
    s3.put_object(Bucket=bucket, Key='from', Body=data)
    upload = begin(s3, bucket)

    def copy(number, span):
        done = s3.upload_part_copy(Bucket=bucket, Key='k', UploadId=upload, PartNumber=number, CopySourceRange=span,
                                   CopySource={'Bucket': bucket, 'Key': 'from'})
        return {'PartNumber': number, 'ETag': done['CopyPartResult']['ETag']}
    parts = [copy(1, 'bytes=0-5999999'), copy(2, 'bytes=6000000-%d' % (len(data) - 1))]
    complete(s3, bucket, upload, parts)
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == data


def test_many_parts(s3, bucket):
    """As many as boto3's transfer makes, at once; then listed over pages, and aborted."""
    upload = begin(s3, bucket)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: put(s3, bucket, upload, n, b'%d' % n), range(1, 121)))
    pages = s3.get_paginator('list_parts').paginate(Bucket=bucket, Key='k', UploadId=upload,
                                                   PaginationConfig={'PageSize': 50})
    assert [p['PartNumber'] for page in pages for p in page['Parts']] == list(range(1, 121))
    s3.abort_multipart_upload(Bucket=bucket, Key='k', UploadId=upload)


def test_uploads_are_listed_in_order(s3, bucket):
    uploads = sorted((key, begin(s3, bucket, key)) for key in ('a', 'a', 'b/c', 'é') for _ in range(2))
    listed = []
    for page in s3.get_paginator('list_multipart_uploads').paginate(Bucket=bucket, PaginationConfig={'PageSize': 3}):
        listed += [(u['Key'], u['UploadId']) for u in page['Uploads']]
    assert listed == uploads
    only = s3.list_multipart_uploads(Bucket=bucket, Prefix='b/')['Uploads']
    assert [u['Key'] for u in only] == ['b/c', 'b/c']
    s3.delete_bucket(Bucket=bucket)


def test_transfers_by_boto3(s3, bucket, tmp_path):
    """Its defaults: parts of 8 MiB with checksums, ten at a time."""
    there, back = tmp_path / 'there', tmp_path / 'back'
    there.write_bytes(bytes_of(19 * MIB + 3))
    s3.upload_file(str(there), bucket, 'k')
    s3.download_file(bucket, 'k', str(back))
    assert back.read_bytes() == there.read_bytes()
    assert s3.head_object(Bucket=bucket, Key='k')['ETag'].endswith('-3"')
