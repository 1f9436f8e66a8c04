"""Several hosts for one test: `hosts(3)`; see skeptest.hosts."""
import shutil

import pytest

from skeptest.cluster import unique
from skeptest.hosts import Hosts, usable


@pytest.fixture
def hosts(workdir):
    """Makes hosts; they, their processes and their data are gone after the test."""
    why = usable()
    if why:
        pytest.skip(why)
    made = []

    def make(n):
        place = workdir / unique('hosts')
        place.mkdir()
        made.append((Hosts(n, place), place))
        return made[-1][0]
    yield make
    for group, place in made:
        group.close()
        shutil.rmtree(place, ignore_errors=True)
