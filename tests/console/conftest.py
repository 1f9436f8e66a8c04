"""One server with a console for the run, its administrator and somebody who may only read."""
import pytest

from skeptest.console import Browser, entity, key_of, ready
from skeptest.skep import free_port


@pytest.fixture(scope='session')
def served(serve):
    """The cluster, with `url` of its console."""
    port = free_port()
    for skep in serve('console', options=['--console', '--console-listen', '127.0.0.1:%d' % port, '--metrics-port', '0']):
        skep.url = ready('http://127.0.0.1:%d' % port)
        yield skep


@pytest.fixture(scope='session')
def admin_key(served):
    return key_of(served, 'client.admin')


@pytest.fixture
def admin(served, admin_key):
    browser = Browser(served.url)
    browser.login('client.admin', admin_key)
    yield browser
    browser.post('/logout', 303, csrf=browser.token)


@pytest.fixture(scope='session')
def reader_key(served):
    return entity(served, 'client.reader', mon='allow r', osd='allow r', mgr='allow r')


@pytest.fixture
def reader(served, reader_key):
    browser = Browser(served.url)
    browser.login('client.reader', reader_key)
    yield browser
    browser.post('/logout', 303, csrf=browser.token)


@pytest.fixture(scope='session')
def images(served):
    """A pool for images."""
    name = served.make_pool('rbd')
    return name
