"""The usage log: what gateways write down, as radosgw-admin shows it."""
import json
import time

import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import Gateway, User, admin, bytes_of, refused
from skeptest.skep import find_binary


@pytest.fixture(scope='module')
def logging(cluster, tmp_path_factory):
    made = Gateway(cluster, tmp_path_factory.mktemp('usage') / 's3.log', '--s3-usage-log')
    yield made.start()
    assert made.stop() == 0
    assert 'panicked' not in made.log.read_text()


def shown(cluster, *words):
    return admin(cluster, 'usage', 'show', *words)


def sums(cluster, user):
    """Sums by kind of operation."""
    [of] = shown(cluster, '--uid', user, '--show-log-entries=false')['summary'] or [{'categories': []}]
    return {c.pop('category'): c for c in of['categories']}


def settled(gateway):
    """What a gateway has is written when it stops."""
    assert gateway.stop() == 0
    return gateway.start()


def test_what_was_asked(cluster, logging):
    grace, heidi = User(cluster, unique('grace')), User(cluster, unique('heidi'))
    client, name, body = logging.client(grace), unique('room'), bytes_of(100000)
    client.create_bucket(Bucket=name)
    for n in range(3):
        client.put_object(Bucket=name, Key='k%d' % n, Body=body, ACL='public-read')
        assert client.get_object(Bucket=name, Key='k%d' % n)['Body'].read() == body
    refused('NoSuchKey', client.get_object, Bucket=name, Key='none')
    client.list_objects_v2(Bucket=name)
    client.list_buckets()
    refused('NoSuchBucket', client.list_objects_v2, Bucket=unique('none'))
    refused('NoSuchBucket', client.list_objects_v2, Bucket=unique('none'))
    # What others ask of a bucket is its owner's.
    logging.client(heidi).get_object(Bucket=name, Key='k0')['Body'].read()
    logging.client().get_object(Bucket=name, Key='k0')['Body'].read()
    refused('AccessDenied', logging.client(heidi).put_object, Bucket=name, Key='x', Body=b'x')
    settled(logging)
    kinds = sums(cluster, grace.name)
    assert {k: (v['ops'], v['successful_ops']) for k, v in kinds.items()} == {
        'create_bucket': (1, 1), 'put_obj': (4, 3), 'get_obj': (6, 5), 'list_bucket': (3, 1), 'list_buckets': (1, 1)}
    assert 300000 <= kinds['put_obj']['bytes_received'] <= 300001 and 500000 < kinds['get_obj']['bytes_sent'] < 510000
    [of] = shown(cluster, '--uid', grace.name, '--show-log-sum=false')['entries']
    assert of['user'] == grace.name
    by_bucket = {}
    for entry in of['buckets']:
        assert entry['epoch'] % 3600 == 0 and abs(time.time() - entry['epoch']) < 2 * 3600 and entry['owner'] == grace.name
        assert entry['time'] == time.strftime('%Y-%m-%dT%H:%M:%S.000000Z', time.gmtime(entry['epoch']))
        by_bucket.setdefault(entry['bucket'], set()).update(c['category'] for c in entry['categories'])
    assert by_bucket == {name: {'create_bucket', 'put_obj', 'get_obj', 'list_bucket'}, '': {'list_buckets'}, '-': {'list_bucket'}}
    assert sums(cluster, heidi.name) == {}
    only = shown(cluster, '--uid', grace.name, '--bucket', name, '--categories=get_obj', '--show-log-sum=false')
    assert [c['category'] for b in only['entries'][0]['buckets'] for c in b['categories']] == ['get_obj'] and set(only) == {'entries'}
    day = time.strftime('%Y-%m-%d', time.gmtime())
    assert shown(cluster, '--uid', grace.name, '--end-date', '2020-01-01')['entries'] == []
    assert shown(cluster, '--uid', grace.name, '--start-date', '2020-01-01')['entries'] != []
    text = run([find_binary(), 's3', 'usage', 'show', '--uid', grace.name, '-c', cluster.conf]).out
    assert day[:4] in text and 'get_obj' in text and 'RECEIVED' in text
    trimmed = [find_binary(), 's3', 'usage', 'trim', '-c', cluster.conf]
    run([*trimmed, '--uid', grace.name])
    assert sums(cluster, grace.name) == {}
    assert '--yes-i-really-mean-it' in run(trimmed, check='fails').err
    assert 'YYYY-MM-DD' in run([*trimmed, '--start-date', 'yesterday'], check='fails').err


def test_two_gateways_and_one_that_is_killed(cluster, workdir, logging):
    ivan = User(cluster, unique('ivan'))
    name, other = unique('room'), Gateway(cluster, workdir / unique('other.log'), '--s3-usage-log', '--s3-usage-keep', '7').start()
    logging.client(ivan).create_bucket(Bucket=name)
    for n in range(20):
        (other if n % 2 else logging).client(ivan).put_object(Bucket=name, Key='k', Body=b'x')
    wait_until(lambda: sums(cluster, ivan.name).get('put_obj', {}).get('ops') == 20, 90, 1, 'both to write')
    other.client(ivan).put_object(Bucket=name, Key='k', Body=b'x')
    other.kill()
    settled(logging)
    assert sums(cluster, ivan.name)['put_obj']['ops'] in (20, 21), 'at most what it had not written is lost'


def test_without_the_option_nothing_is_written(cluster, gateway):
    judy = User(cluster, unique('judy'))
    own = Gateway(cluster, gateway.log.with_name(unique('own.log'))).start()
    own.client(judy).create_bucket(Bucket=unique('room'))
    assert own.stop() == 0
    assert sums(cluster, judy.name) == {}


def test_trimming_everything(cluster, logging):
    kim = User(cluster, unique('kim'))
    logging.client(kim).list_buckets()
    settled(logging)
    assert sums(cluster, kim.name)['list_buckets']['ops'] == 1
    run([find_binary(), 's3', 'usage', 'trim', '--yes-i-really-mean-it', '-c', cluster.conf])
    assert shown(cluster) == {'entries': [], 'summary': []}
    assert json.dumps(shown(cluster, '--show-log-entries=false')) == '{"summary": []}'
