"""One gateway for the run in front of the shared cluster, and a user."""
import pytest

from skeptest.cluster import unique
from skeptest.s3 import Gateway, User


@pytest.fixture(scope='session')
def gateway(cluster, workdir):
    made = Gateway(cluster, workdir / 's3.log', '--s3-split-at', '40', '--s3-gc-wait', '2',
                   '--s3-domain', 's3.test', '--s3-domain', 'eu.s3.test').start()
    yield made
    assert made.stop() == 0, made.log.read_text()[-4000:]
    assert 'panicked' not in made.log.read_text(), made.log.read_text()[-4000:]


@pytest.fixture(scope='session')
def user(cluster, gateway):
    return User(cluster, unique('user'))


@pytest.fixture(scope='session')
def s3(gateway, user):
    return gateway.client(user)


@pytest.fixture
def bucket(s3):
    name = unique('bucket')
    s3.create_bucket(Bucket=name)
    return name
