"""What gateways count of operations and buckets: by /metrics of one that runs by itself, and by a node's `perf dump` and /metrics."""
import json
import re
import socket
import urllib.error
import urllib.request

import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary, free_port

LINE = re.compile(r'^(ceph_\w+)\{(.*)\} (\S+)$')


def scraped(port, path='/metrics'):
    with urllib.request.urlopen('http://127.0.0.1:%d%s' % (port, path), timeout=60) as answer:
        return answer.read().decode()


class Figures:
    """One scrape: (name, labels) -> value."""

    def __init__(self, port):
        self.all = {}
        for line in scraped(port).splitlines():
            if m := LINE.match(line):
                self.all[m[1], frozenset(re.findall(r'(\w+)="([^"]*)"', m[2]))] = float(m[3])

    def get(self, name, **labels):
        [value] = [v for (n, of), v in self.all.items() if n == name and of >= set(labels.items())] or [0]
        return value

    def labels(self, name, label):
        return {dict(of)[label] for n, of in self.all if n == name}


@pytest.fixture(scope='module')
def watched(cluster, tmp_path_factory):
    made = Gateway(cluster, tmp_path_factory.mktemp('metrics') / 's3.log', '--metrics', '127.0.0.1:%d' % free_port(), '--metrics-name', 'gate')
    made.metrics = int(made.options[1].split(':')[1])
    yield made.start()
    assert made.stop() == 0
    assert 'panicked' not in made.log.read_text()


@pytest.fixture(scope='module')
def client(cluster, watched):
    return watched.client(User(cluster, unique('watched')))


def test_requests_are_counted_under_cephs_names(watched, client):
    name, body = unique('room'), bytes_of(300000)
    before = Figures(watched.metrics)
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key='k', Body=body)
    assert client.get_object(Bucket=name, Key='k')['Body'].read() == body
    assert client.get_object(Bucket=name, Key='k', Range='bytes=0-99')['Body'].read() == body[:100]
    refused('NoSuchKey', client.get_object, Bucket=name, Key='none')
    upload = client.create_multipart_upload(Bucket=name, Key='m')['UploadId']
    client.upload_part(Bucket=name, Key='m', UploadId=upload, PartNumber=1, Body=body)
    client.abort_multipart_upload(Bucket=name, Key='m', UploadId=upload)
    # Whoever reads a body to its end may ask before its end is counted.
    wait_until(lambda: Figures(watched.metrics).get('ceph_rgw_get_b') - before.get('ceph_rgw_get_b') >= 300100, 30, 0.1, 'the bytes')
    after = Figures(watched.metrics)

    def grew(figure, **labels):
        return after.get(figure, **labels) - before.get(figure, **labels)
    assert grew('ceph_rgw_req', instance_id='gate') == 8
    assert grew('ceph_rgw_failed_req') == 1
    assert (grew('ceph_rgw_get'), grew('ceph_rgw_put')) == (2, 2)
    # What is around the chunks of a body does not count.
    assert (grew('ceph_rgw_get_b'), grew('ceph_rgw_put_b')) == (300100, 600000)
    for lat in ('get', 'put'):
        assert grew('ceph_rgw_%s_initial_lat_count' % lat) == grew('ceph_rgw_' + lat)
        assert 0 < grew('ceph_rgw_%s_initial_lat_sum' % lat) < 300
    assert after.get('ceph_rgw_qlen') == 0 and after.get('ceph_rgw_qactive') >= 0
    [labels] = [dict(of) for n, of in after.all if n == 'ceph_rgw_metadata']
    assert labels.pop('ceph_version').startswith('ceph version ')
    assert labels == {'ceph_daemon': 'rgw.gate', 'instance_id': 'gate', 'hostname': socket.gethostname()}

    def operation(figure, name):
        return grew('ceph_skep_s3_operation_' + figure, operation=name)
    assert [operation('req', op) for op in ('CreateBucket', 'PutObject', 'GetObject', 'UploadPart', 'CreateMultipartUpload')] == [1, 1, 3, 1, 1]
    assert operation('failed_req', 'GetObject') == 1 and operation('server_errors', 'GetObject') == 0
    assert operation('in_bytes', 'PutObject') >= 300000 and operation('out_bytes', 'GetObject') >= 300100
    assert operation('latency_count', 'UploadPart') == 1 and operation('latency_sum', 'UploadPart') > 0
    assert grew('ceph_skep_s3_bucket_req', bucket=name) == 8
    assert grew('ceph_skep_s3_bucket_out_bytes', bucket=name) >= 300100


def test_names_that_are_asked_for_in_vain_make_no_series(watched, client):
    series = len(Figures(watched.metrics).all)
    for n in range(30):
        refused('NoSuchBucket', client.list_objects_v2, Bucket='vain-%d' % n)
        for signed in ('Signature=x', 'AWSAccessKeyId=a&Signature=b&Expires=1'):
            with pytest.raises(urllib.error.HTTPError):
                urllib.request.urlopen('%s/vain-%d/%d?%s' % (watched.url, n, n, signed), timeout=60)
    after = Figures(watched.metrics)
    assert not any(b.startswith('vain') for b in after.labels('ceph_skep_s3_bucket_req', 'bucket'))
    # At most two operations that were not seen before.
    assert len(after.all) <= series + 2 * 8
    assert after.get('ceph_skep_s3_operation_failed_req', operation='(unknown)') >= 30


def test_who_goes_away_is_counted(watched, client):
    name = unique('room')
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key='k', Body=bytes_of(20 << 20), ACL='public-read')
    with socket.create_connection(('127.0.0.1', watched.port)) as s:
        s.sendall(('GET /%s/k HTTP/1.1\r\nHost: x\r\n\r\n' % name).encode())
        assert s.recv(1000).startswith(b'HTTP/1.1 200')
        assert Figures(watched.metrics).get('ceph_rgw_qactive') >= 1
    wait_until(lambda: Figures(watched.metrics).get('ceph_skep_s3_bucket_aborted', bucket=name) == 1, 60, 0.1, 'the client to be missed')
    wait_until(lambda: Figures(watched.metrics).get('ceph_rgw_qactive') == 0, 60, 0.1, 'the request to be over')
    assert Figures(watched.metrics).get('ceph_skep_s3_bucket_out_bytes', bucket=name) < 20 << 20


def test_an_address_that_is_taken_is_refused(cluster, watched):
    words = ['s3', 'serve', '-c', cluster.conf, '--listen', '127.0.0.1:%d' % free_port()]
    taken = '127.0.0.1:%d' % watched.metrics
    assert taken in run([find_binary(), *words, '--metrics', taken], check='fails').err
    assert '--metrics' in run([find_binary(), *words, '--metrics-name', 'x'], check='fails').err


@pytest.mark.own
def test_a_node_shows_its_gateway(own, tmp_path):
    port, metrics = free_port(), free_port()
    skep = own(options=['--s3', '--s3-listen', '127.0.0.1:%d' % port, '--metrics-port', metrics]).start()
    made = admin(skep, 'user', 'create', 'alice')['keys'][0]

    class Alice:
        access, secret = made['access_key'], made['secret_key']
    server = Gateway(skep, tmp_path / 'unused')
    server.url = 'http://127.0.0.1:%d' % port
    client = server.client(Alice)

    def serves():
        try:
            client.create_bucket(Bucket='photos')
            return True
        except Exception:
            return False
    wait_until(serves, 90, 0.3, 'S3')
    client.put_object(Bucket='photos', Key='k', Body=b'x' * 1000)

    def asked(*words):
        return json.loads(run(['ceph', 'daemon', skep.data / 'skep.asok', *words], env={'CEPH_CONF': skep.conf}).out)
    [(daemon, perf)] = [(d, p) for d, p in asked('perf', 'dump').items() if d.startswith('s3.')]
    assert perf['rgw']['put'] == 1 and perf['rgw']['put_initial_lat']['avgcount'] == 1
    assert perf['s3_operation.PutObject']['req'] == 1 and perf['s3_bucket.photos']['in_bytes'] >= 1000
    schema = asked('perf', 'schema')[daemon]
    assert schema['rgw']['put_initial_lat']['value_type'] == 'real-integer-pair' and schema['rgw']['put_b']['units'] == 'bytes'
    figures = Figures(metrics)
    assert figures.get('ceph_rgw_put', instance_id=daemon[3:]) == 1
    assert figures.labels('ceph_rgw_metadata', 'ceph_daemon') == {'rgw.' + daemon[3:]}
    assert 'ceph_rgw_put,instance_id=%s value=1' % daemon[3:] in scraped(metrics, '/metrics?format=influx')
    assert skep.stop() == 0
