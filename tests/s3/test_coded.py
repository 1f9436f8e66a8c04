"""Objects whose data lie in erasure-coded pools: in the gateways' own data pool, and in that of a storage class."""
import pytest

from skeptest.cluster import unique
from skeptest.coded import make_coded, one_osd_less
from skeptest.run import wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of

pytestmark = pytest.mark.own

MIB = 1 << 20


@pytest.fixture(scope='module', params=[True, False], ids=['overwrites', 'no-overwrites'])
def coded(request, serve, workdir):
    """A gateway, a client, and the cluster: its pool `s3.data` is coded, and so is the one of a class."""
    for skep in serve(unique('coded')):
        make_coded(skep, 2, 1, overwrites=request.param, app=None, name='s3.data')
        cold = make_coded(skep, 2, 1, overwrites=request.param, app=None)
        admin(skep, 'placement', 'add', '--storage-class', 'COLD', '--data-pool', cold)
        gateway = Gateway(skep, workdir / (cold + '.log'), '--s3-gc-wait', '2').start()
        yield skep, cold, gateway.client(User(skep, 'alice'))
        assert gateway.stop() == 0, gateway.log.read_text()[-4000:]
        assert 'panicked' not in gateway.log.read_text(), gateway.log.read_text()[-4000:]


def test_objects_come_back_from_coded_pools(coded):
    skep, cold, s3 = coded
    bucket = unique('bucket')
    s3.create_bucket(Bucket=bucket)
    bodies = {'n%d' % size: bytes_of(size) for size in [0, 1, 4095, 8192, 8193, 4 * MIB + 1, 9 * MIB + 321]}
    for key, body in bodies.items():
        s3.put_object(Bucket=bucket, Key=key, Body=body)
        s3.put_object(Bucket=bucket, Key='cold/' + key, Body=body, StorageClass='COLD')
    parts = [bytes_of(5 * MIB + 17), bytes_of(5 * MIB), bytes_of(1001)]
    for key, storage in [('parts', 'STANDARD'), ('cold/parts', 'COLD')]:
        upload = s3.create_multipart_upload(Bucket=bucket, Key=key, StorageClass=storage)['UploadId']
        put = [{'PartNumber': n, 'ETag': s3.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=n, Body=part)['ETag']}
               for n, part in enumerate(parts, 1)]
        s3.complete_multipart_upload(Bucket=bucket, Key=key, UploadId=upload, MultipartUpload={'Parts': put})
    bodies['parts'] = b''.join(parts)
    s3.copy_object(Bucket=bucket, Key='copy', CopySource=bucket + '/cold/parts')
    bodies['copy'] = bodies['parts']

    def all_is_there():
        for key, body in bodies.items():
            for name in [key] if key == 'copy' else [key, 'cold/' + key]:
                assert s3.get_object(Bucket=bucket, Key=name)['Body'].read() == body, name
    all_is_there()
    part = s3.get_object(Bucket=bucket, Key='cold/parts', Range='bytes=5242890-5243000')['Body'].read()
    assert part == bodies['parts'][5242890:5243001]
    # Any two of three shards are enough.
    with one_osd_less(skep, 1):
        all_is_there()
    s3.put_object(Bucket=bucket, Key='n1', Body=b'anew')
    assert s3.get_object(Bucket=bucket, Key='n1')['Body'].read() == b'anew'
    assert admin(skep, 'check', bucket)['problems'] == []
    for o in s3.list_objects_v2(Bucket=bucket)['Contents']:
        s3.delete_object(Bucket=bucket, Key=o['Key'])
    for pool in ['s3.data', cold]:
        wait_until(lambda: not skep.rados(pool, 'ls').out.split(), 120, 0.5, 'what was deleted to leave ' + pool)
