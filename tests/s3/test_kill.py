"""Gateways that are killed: what was acknowledged is there, nothing is there by half, and what is left is collected."""
import json
import re
import socket
import threading
import time
import urllib.request

import pytest
from botocore.exceptions import EndpointConnectionError

from skeptest.cluster import unique
from skeptest.run import wait_until
from skeptest.s3 import Gateway, Server, User, bytes_of
from skeptest.skep import free_port


class Writer(threading.Thread):
    """Puts and deletes keys of its own through any of the gateways, and knows what may be there."""

    def __init__(self, number, clients, bucket, end):
        super().__init__(daemon=True)
        self.number, self.clients, self.bucket, self.end = number, clients, bucket, end
        self.may, self.done, self.broken = {}, 0, 0

    def run(self):
        n = 0
        while not self.end.is_set():
            n += 1
            key = 'w%d-%d' % (self.number, n % 60)
            size = (5 << 20) + n if n % 20 == 0 else n
            data = None if n % 7 == 0 else b'%d ' % n + bytes(size)
            held = self.may.setdefault(key, {None})
            held.add(data)
            client = self.clients[n % len(self.clients)]
            try:
                if data is None:
                    client.delete_object(Bucket=self.bucket, Key=key)
                else:
                    client.put_object(Bucket=self.bucket, Key=key, Body=data)
                self.may[key] = {data}
                self.done += 1
            except Exception:                                   # killed in between: either may be so
                self.broken += 1


def check(client, bucket, may):
    """Everything is as somebody may have left it; the keys that are there."""
    listed = {o['Key'] for page in client.get_paginator('list_objects_v2').paginate(Bucket=bucket)
              for o in page.get('Contents', [])}
    for key, held in may.items():
        try:
            now = client.get_object(Bucket=bucket, Key=key)['Body'].read()
        except client.exceptions.NoSuchKey:
            now = None
        assert now in held, '%s: %s bytes, none of %s' % (
            key, now and len(now), [d and len(d) for d in held])
        assert (key in listed) == (now is not None), key
    return listed


def stripes(cluster):
    return cluster.run('rados', '-p', 's3.data', 'ls').out.split()


def test_gateways_killed_under_writers(cluster, gateway, user, workdir):
    """Two more gateways, one or the other killed every now and then while shards split."""
    others = [Gateway(cluster, workdir / (unique('killed') + '.log'), '--s3-split-at', '24', '--s3-gc-wait', '600').start()
              for _ in range(2)]
    try:
        bucket, end = unique('bucket'), threading.Event()
        steady = gateway.client(user)
        steady.create_bucket(Bucket=bucket)
        writers = [Writer(n, [g.client(user, connect_timeout=5) for g in others], bucket, end) for n in range(4)]
        [w.start() for w in writers]
        for n in range(6):
            done = sum(w.done for w in writers)
            wait_until(lambda: sum(w.done for w in writers) >= done + 40, 90, 0.02, 'writers to go on')
            others[n % 2].kill()
            others[n % 2].start()
        end.set()
        [w.join(180) for w in writers]
        assert not any(w.is_alive() for w in writers)
        may = {key: held for w in writers for key, held in w.may.items()}
        assert sum(w.broken for w in writers) > 0, 'no kill hit anything'
        check(steady, bucket, may)
        check(others[0].client(user), bucket, may)
    finally:
        [g.kill() for g in others]


def test_an_upload_of_a_gateway_that_is_gone_is_not_seen(cluster, gateway, user, workdir, bucket, s3):
    """Killed with a stripe written: the old object stays."""
    import socket
    other = Gateway(cluster, workdir / (unique('killed') + '.log'), '--s3-gc-wait', '2').start()
    s3.put_object(Bucket=bucket, Key='k', Body=b'old')
    before = set(stripes(cluster))
    url = other.client(user).generate_presigned_url('put_object', Params={'Bucket': bucket, 'Key': 'k'})
    with socket.create_connection(('127.0.0.1', other.port), 60) as c:
        head = 'PUT %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 9000000\r\n\r\n' % (url[len(other.url):], other.port)
        c.sendall(head.encode() + bytes(5 << 20))
        wait_until(lambda: set(stripes(cluster)) - before, 90, 0.2, 'the first stripe')
        other.kill()
    # What is written is named by an intent, so that it is collected when that has ended.
    record = workdir / unique('record')
    cluster.run('rados', '-p', 's3.meta', 'getomapval', 'buckets', 'b' + bucket, record)
    index = re.search(rb'[0-9a-f]{32}', record.read_bytes()).group().decode()
    rows = cluster.run('rados', '-p', 's3.meta', 'listomapkeys', 'index.%s.0' % index).out.split()
    left = set(stripes(cluster)) - before
    assert left and {'i' + o.split('.')[0] for o in left} <= set(rows), (left, rows)
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'old'
    s3.put_object(Bucket=bucket, Key='k', Body=b'new')
    assert s3.get_object(Bucket=bucket, Key='k')['Body'].read() == b'new'


@pytest.mark.own
def test_the_role_of_a_node(own):
    """`skep up --s3`: killed with all of the cluster, and stopped; what was put is there."""
    port = free_port()
    skep = own(osds=1, options=['--s3', '--s3-listen', '127.0.0.1:%d' % port, '--s3-gc-wait', '2', '--s3-domain', 's3.test']).start()
    assert 'skep s3 user create' in skep.log_tail()
    assert skep.roles()['s3.a']['state'] == 'serving', skep.roles()
    user = User(skep, 'alice')
    s3 = Server(port).client(user)
    s3.create_bucket(Bucket='bucket')
    s3.put_object(Bucket='bucket', Key='k', Body=bytes_of(5 << 20))
    allow = {'Effect': 'Allow', 'Principal': '*', 'Action': 's3:GetObject', 'Resource': 'arn:aws:s3:::bucket/k'}
    s3.put_bucket_policy(Bucket='bucket', Policy=json.dumps({'Statement': allow}))
    skep.restart()
    s3 = Server(port).client(user)
    assert s3.get_object(Bucket='bucket', Key='k')['Body'].read() == bytes_of(5 << 20)
    by_host = urllib.request.Request('http://127.0.0.1:%d/k' % port, headers={'Host': 'bucket.s3.test'})
    assert urllib.request.urlopen(by_host, timeout=60).read() == bytes_of(5 << 20)
    s3.put_object(Bucket='bucket', Key='k', Body=b'new')
    wait_until(lambda: len(stripes(skep)) == 1, 90, 0.5, 'the old one to be collected')
    # The key that it came with is taken away: it takes the new one by itself.
    skep.ceph('auth', 'get-or-create-pending', 'client.s3')
    skep.ceph('auth', 'commit-pending', 'client.s3')
    wait_until(lambda: 'client.s3 has another key' in skep.log.read_text(), 60, 0.1, 'S3 to begin anew')

    def served():
        try:
            return s3.get_object(Bucket='bucket', Key='k')['Body'].read() == b'new'
        except EndpointConnectionError:
            return False
    wait_until(served, 60, 0.3, 'S3 to be served')
    began = time.monotonic()
    assert skep.stop() == 0
    assert time.monotonic() - began < 60
    assert user.secret not in skep.log.read_text() and user.access not in skep.log.read_text()


@pytest.mark.own
def test_storage_does_not_wait_for_the_port_of_s3(own):
    """Somebody else has it: all else serves, at a restart, too; S3 comes when it is free."""
    port = free_port()
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(('127.0.0.1', port))
        taken.listen()
        skep = own(osds=1, options=['--s3', '--s3-listen', '127.0.0.1:%d' % port]).start()
        pool = skep.make_pool()
        skep.rados(pool, 'put', 'a', '-', stdin=b'data')
        skep.restart()
        assert skep.rados(pool, 'get', 'a', '-').out == 'data'
        assert 'S3 cannot listen on 127.0.0.1:%d' % port in skep.log.read_text(), skep.log_tail()
        user = User(skep, 'alice')
    s3 = Server(port).client(user)

    def served():
        try:
            return s3.list_buckets()['Buckets'] == []
        except EndpointConnectionError:
            return False
    wait_until(served, 90, 0.3, 'S3 to be served')
    assert skep.stop() == 0


@pytest.mark.own
def test_an_address_of_s3_that_is_not_there_keeps_nothing_from_serving(own):
    skep = own(osds=1, options=['--s3', '--s3-listen', '192.0.2.77:7480']).start()
    skep.make_pool()
    wait_until(lambda: 'S3 cannot listen on 192.0.2.77:7480' in skep.log.read_text(), 60, 0.1, 'the warning')
    assert skep.stop() == 0


@pytest.mark.own
def test_a_role_that_is_left_out_is_not_served(own):
    skep = own(osds=1, options=['--s3', '--roles', 'mon,osd'])
    said = skep.cli(*skep.argv()[1:], check='fails').err
    assert '--s3 needs the role s3' in said, said
