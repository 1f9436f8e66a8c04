"""Rate limits of users and buckets."""
import pytest

from skeptest.cluster import unique
from skeptest.run import run, wait_until
from skeptest.s3 import User, admin, bytes_of
from skeptest.skep import find_binary

# As long as a gateway may not know of a new limit.
KNOWN_S = 60


@pytest.fixture
def rate(cluster):
    return lambda *words: admin(cluster, 'ratelimit', *words)


@pytest.fixture
def frank(cluster, gateway):
    return User(cluster, unique('frank'))


@pytest.fixture
def client(gateway, frank):
    return gateway.client(frank)


def slowed(call, *args, **kw):
    """Whether it is told to slow down."""
    try:
        call(*args, **kw)
        return False
    except Exception as e:
        answer = getattr(e, 'response', {})
        assert answer.get('ResponseMetadata', {}).get('HTTPStatusCode') == 503, e
        # A HEAD has no code.
        assert answer['Error']['Code'] in ('SlowDown', '503'), e
        return True


def test_operations_of_a_user(client, frank, s3, rate):
    name = unique('room')
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key='k', Body=b'x')
    set_to = rate('set', '--ratelimit-scope=user', '--uid', frank.name, '--max-write-ops', '1')
    assert set_to == {'user_ratelimit': {'max_read_ops': 0, 'max_write_ops': 1, 'max_read_bytes': 0, 'max_write_bytes': 0, 'enabled': False}}
    assert rate('enable', '--uid', frank.name)['user_ratelimit']['enabled']

    def puts():
        return slowed(client.put_object, Bucket=name, Key='k', Body=b'y')
    wait_until(puts, KNOWN_S, 0.05, 'the limit to be known')
    # Reads are another matter, and so are others.
    assert not slowed(client.get_object, Bucket=name, Key='k')
    s3.list_buckets()
    rate('disable', '--uid', frank.name)
    wait_until(lambda: not puts() and not puts(), KNOWN_S, 0.2, 'that it does not count any more')


def test_bytes_of_a_bucket(gateway, client, rate):
    name = unique('room')
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key='k', Body=bytes_of(200000), ACL='public-read')
    rate('set', '--ratelimit-scope=bucket', '--bucket', name, '--max-read-bytes', '1K')
    rate('enable', '--bucket', name)
    # Whoever reads it, without a key, too. One is let in with what is left, and those after it wait for what it took.
    wait_until(lambda: slowed(gateway.client().get_object, Bucket=name, Key='k'), KNOWN_S, 0.05, 'the limit to be known')
    assert slowed(client.head_object, Bucket=name, Key='k')
    assert not slowed(client.put_object, Bucket=name, Key='l', Body=b'x')


def test_what_is_wrong_is_said(cluster, frank):
    def said(*words):
        return run([find_binary(), 's3', 'ratelimit', *words, '-c', cluster.conf], check='fails').err
    assert 'no such user' in said('enable', '--uid', 'nobody')
    assert 'bucket does not exist' in said('get', '--bucket', unique('none'))
    assert 'scope' in said('get', '--ratelimit-scope=bucket', '--uid', frank.name)
    assert '--max-read-ops' in said('set', '--uid', frank.name)
