"""S3 as its clients use it: gateways (`skep s3 serve`) in front of a cluster, users, and boto3.

SKEP_TEST_BOTO3 names a folder with a boto3 of the day (dev/test installs it): Debian's is from before clients sent checksums
unasked."""
import base64
import functools
import json
import os
import secrets
import sys

from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import find_binary, free_port

if os.environ.get('SKEP_TEST_BOTO3'):
    sys.path.insert(0, os.environ['SKEP_TEST_BOTO3'])
import boto3                                                                    # noqa: E402
from botocore.config import Config                                              # noqa: E402
from botocore.exceptions import ClientError                                     # noqa: E402

READY_S = 90


def admin(cluster, *words):
    """A command of `skep s3`, its JSON parsed: of the program that serves, where that is another release's."""
    r = run([getattr(cluster, 'program', None) or find_binary(), 's3', *words, '-c', cluster.conf, '-f', 'json'])
    return json.loads(r.out)


class User:
    def __init__(self, cluster, name):
        key = admin(cluster, 'user', 'create', name)['keys'][0]
        self.name, self.access, self.secret = name, key['access_key'], key['secret_key']


class Server:
    """Where S3 is served."""

    def __init__(self, port, ca=None):
        """With a file of certificates to trust: by TLS."""
        self.port, self.url, self.ca = port, 'http%s://127.0.0.1:%d' % ('s' if ca else '', port), ca

    def client(self, user=None, **config):
        """Without a user: anonymous. No retries: a test sees each answer."""
        config = {'retries': {'max_attempts': 0}, 's3': {'addressing_style': 'path'}, 'read_timeout': 90, **config}
        if user is None:
            from botocore import UNSIGNED
            config['signature_version'] = UNSIGNED
        ca = getattr(self, 'ca', None)
        return boto3.client('s3', endpoint_url=self.url, region_name='us-east-1', config=Config(**config), verify=ca and str(ca),
                            aws_access_key_id=user and user.access, aws_secret_access_key=user and user.secret)


class Gateway(Server):
    """A process of ours in front of `cluster`."""

    def __init__(self, cluster, log, *options, ca=None, env=None):
        super().__init__(free_port(), ca)
        self.cluster, self.log, self.options, self.env, self.proc = cluster, log, options, env, None

    def start(self):
        with open(self.log, 'ab') as log:
            said_before = log.tell()
            self.proc = popen([find_binary(), 's3', 'serve', '-c', self.cluster.conf, '--listen',
                               '127.0.0.1:%d' % self.port, *self.options], self.env, stdout=log, stderr=log)

        def ready():
            with open(self.log, 'rb') as f:
                f.seek(said_before)
                said = f.read()
            assert self.proc.poll() is None, said.decode(errors='replace')
            return b'S3 at' in said
        wait_until(ready, READY_S, 0.05, 'the gateway to serve')
        return self

    def kill(self):
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)

    def stop(self):
        self.proc.terminate()
        return self.proc.wait(60)


def refused(code, call, *args, **kw):
    """The call is answered with this error code."""
    try:
        call(*args, **kw)
    except ClientError as e:
        assert e.response['Error']['Code'] == code, e
        return e.response
    raise AssertionError('not refused: %s %s' % (code, kw))


@functools.lru_cache
def bytes_of(n):
    return secrets.token_bytes(n)


def md5_of(data):
    import hashlib
    return base64.b64encode(hashlib.md5(data).digest()).decode()
