"""Fixtures of all whole-system tests.

`cluster` is one Skep with three OSDs and cephx for the whole run, or the cluster that SKEP_TEST_CONF
names. `open_cluster` is one without authentication (SKEP_TEST_CONF_NONE, or SKEP_TEST_CONF if that has
none). `own` makes further Skep processes for tests that kill them. All are ended with the run.
"""
import os
import pathlib
import shutil
import tempfile

import pytest

from skeptest.cluster import Cluster, external, unique
from skeptest.images import Images
from skeptest.skep import Skep

_memory = []                  # lines for the end of the run
_shared = []                  # servers that live as long as the run


@pytest.fixture(scope='session')
def workdir():
    """A folder for data directories: on a real file system, gone at the end."""
    path = pathlib.Path(tempfile.mkdtemp(prefix='skep-test-', dir=os.environ.get('SKEP_TEST_DIR')))
    yield path
    if os.environ.get('SKEP_TEST_KEEP'):
        print('kept:', path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _session_skep(path, **kw):
    skep = Skep(path, **kw).start()
    _memory.append('%s: %d KiB resident after its start' % (path.name, skep.rss_kib()))
    _shared.append(skep)
    yield skep
    _memory.append('%s: %d KiB resident at the end' % (path.name, skep.rss_kib()))
    _shared.remove(skep)
    assert skep.stop() == 0, 'no clean stop:\n' + skep.log_tail(80)
    assert 'panicked' not in skep.log.read_text(errors='replace'), skep.log_tail(80)


@pytest.fixture(autouse=True)
def server_lives_on():
    """A test in which a shared server ends by itself has failed; the next one gets it started again."""
    yield
    dead = [s for s in _shared if not s.alive]
    for skep in dead:
        said = skep.log_tail(60)
        skep.start()
        pytest.fail('the server ended during this test:\n' + said)


@pytest.fixture(scope='session')
def serve(workdir):
    """Begins a server that lives as long as the run, in a folder of this name: for fixtures of the whole run."""
    return lambda name, **kw: _session_skep(workdir / name, **kw)


@pytest.fixture(scope='session')
def cluster(workdir):
    ext = external()
    if ext:
        yield ext
    else:
        yield from _session_skep(workdir / 'main')


@pytest.fixture(scope='session')
def open_cluster(workdir):
    conf = os.environ.get('SKEP_TEST_CONF_NONE')
    if conf:
        yield Cluster(conf)
    elif external():
        if external().uses_cephx:
            pytest.skip('SKEP_TEST_CONF names a cluster with authentication')
        yield external()
    else:
        yield from _session_skep(workdir / 'open', auth='none')


@pytest.fixture
def own(workdir):
    """Makes Skep processes (not yet started) with directories of their own; ends them with the test."""
    made = []

    def make(**kw):
        made.append(Skep(workdir / unique('own'), **kw))
        return made[-1]
    yield make
    for skep in made:
        skep.kill()
        shutil.rmtree(skep.data, ignore_errors=True)


@pytest.fixture(scope='module')
def pool(cluster):
    name = cluster.make_pool()
    yield name
    cluster.drop_pool(name)


@pytest.fixture(scope='module')
def rbd_pool(cluster):
    name = cluster.make_pool('rbd')
    yield name
    cluster.drop_pool(name)


@pytest.fixture
def oid():
    return unique('object')


# Files that take longest, longest first: they begin first, so that none of them runs on alone when all else is done. What is missing here
# costs time and no more; `dev/test` ends with the longest tests.
LONGEST = (
    'cluster/test_hosts.py', 'cluster/test_faults.py', 'replication/test_merge.py', 'backup/test_backup.py', 'replication/test_scrub.py',
    'replication/test_flags.py', 'hostile/test_bounds.py', 'replication/test_copies.py', 'replication/test_evening.py',
    'rbd/test_tasks.py', 'rbd/test_migration_tasks.py', 'files/test_posix.py', 'conformance/test_replay.py', 'cluster/test_cut_off.py',
    'upstream/test_ceph_test.py', 'qemu/test_migration.py')


def how_soon(item):
    file = '/'.join(item.path.parts[-2:])
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items):
    items.sort(key=how_soon)
    ext = external()
    for item in items:
        if item.get_closest_marker('long') and not os.environ.get('SKEP_TEST_LONG'):
            item.add_marker(pytest.mark.skip(reason='long: dev/test --all runs it'))
        if ext and item.get_closest_marker('own'):
            item.add_marker(pytest.mark.skip(reason='needs a skep process of its own'))
        if ext and not ext.uses_cephx and item.get_closest_marker('cephx'):
            item.add_marker(pytest.mark.skip(reason='this cluster has no authentication'))


def pytest_sessionfinish(session):
    """A process of a parallel run hands its lines to the one that prints."""
    if hasattr(session.config, 'workeroutput'):
        session.config.workeroutput['memory'] = _memory


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    _memory.extend(getattr(node, 'workeroutput', {}).get('memory', []))


def pytest_terminal_summary(terminalreporter):
    reports = [r for outcome in ('passed', 'failed') for r in terminalreporter.stats.get(outcome, [])]
    noted = ['%s: %s: %s' % (r.nodeid.split('::')[-1], *p) for r in reports for p in r.user_properties]
    if noted:
        terminalreporter.section('noted by tests')
        for line in noted:
            terminalreporter.write_line(line)
    if _memory:
        terminalreporter.section('memory of the servers')
        for line in _memory:
            terminalreporter.write_line(line)


@pytest.fixture
def images(cluster, rbd_pool, tmp_path):
    return Images(cluster, rbd_pool, tmp_path)


def pytest_runtest_logreport(report):
    """Notes what no busy machine excuses (SKEP_TEST_HARD names the file): a server that ended or did not stop as it should, which a
    fixture's end says, and a worker of xdist that crashed."""
    hard = os.environ.get('SKEP_TEST_HARD')
    if hard and report.failed and report.when not in ('setup', 'call'):
        with open(hard, 'a') as f:
            f.write(report.nodeid + '\n')
