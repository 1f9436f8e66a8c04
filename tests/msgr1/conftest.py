"""Servers that announce messenger v1 first: what stock clients do in this folder, they do by v1 alone."""
import functools

import pytest


@pytest.fixture(scope='session')
def cluster(serve):
    yield from serve('msgr1', msgr1_first=True)


@pytest.fixture
def own(own):
    return functools.partial(own, msgr1_first=True)


def pytest_collection_modifyitems(items):
    for item in items:
        if '/msgr1/' in str(item.path):
            item.add_marker(pytest.mark.own)
