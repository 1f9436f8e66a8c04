"""Fixtures of the hostile suite: each file has a server of its own, so that what a test breaks is broken for that file only."""
import shutil

import pytest

from skeptest.cluster import unique
from skeptest.neighbour import Neighbour
from skeptest.raw import Server
from skeptest.skep import Skep


def pytest_collection_modifyitems(items):
    for item in items:
        if '/hostile/' in str(item.path):
            item.add_marker(pytest.mark.own)


@pytest.fixture(scope='module')
def skep(workdir):
    skep = Skep(workdir / unique('hostile'))
    skep.start()
    yield skep
    alive, said = skep.alive, skep.log_tail(80)
    panicked = 'panicked' in skep.log.read_text(errors='replace')
    skep.kill()
    shutil.rmtree(skep.data, ignore_errors=True)
    assert alive, 'the server ended:\n' + said
    assert not panicked, 'something panicked:\n' + said


@pytest.fixture(scope='module')
def server(skep):
    return Server(skep)


@pytest.fixture(scope='module')
def admin(server):
    return server.login(server.entity('client.admin'))


@pytest.fixture(scope='module')
def mine(skep):
    """The pool that the attacker may use."""
    return skep.make_pool(pg_num=4)


@pytest.fixture(scope='module')
def theirs(skep):
    """A pool in which the attacker has nothing to look for."""
    return skep.make_pool(pg_num=4)


@pytest.fixture
def user(server):
    """Makes users: a name of its own for each, with these capabilities."""
    def make(**caps):
        return server.entity('client.' + unique('user'), **caps)
    return make


@pytest.fixture
def neighbour(skep, theirs):
    """A stock client at work beside the attack: it must see no error and no long pause, and no OSD may go down."""
    with Neighbour(skep, theirs) as n:
        yield n
        n.check()
