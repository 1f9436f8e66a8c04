"""Users who may do little: each is told so at once, as by 16.2.15, and what is allowed works."""
import json

import pytest

from skeptest.cluster import unique

pytestmark = pytest.mark.cephx

# Long before librados gives up by itself, which it does never here.
SOON_S = 20


@pytest.fixture
def user(cluster, tmp_path):
    """Makes a user with these capabilities; gives the cluster as that user sees it."""
    made = []

    def make(*caps):
        name = 'client.' + unique('few')
        path = tmp_path / name
        path.write_text(cluster.ceph('auth', 'get-or-create', name, *caps).out)
        made.append(name)
        return cluster.with_args('--name %s --keyring %s' % (name, path))
    yield make
    for name in made:
        cluster.ceph('auth', 'del', name)


@pytest.mark.parametrize('caps', [(), ('osd', 'allow r')], ids=['none', 'of OSDs only'])
def test_who_may_nothing_at_the_monitor_is_refused_at_once(user, caps):
    u = user(*caps)
    r = u.run('rados', 'lspools', check='fails', timeout=SOON_S)
    assert 'failed to fetch mon config' in r.err or 'ermission denied' in r.err, r
    r = u.ceph('-s', check=13, timeout=SOON_S)
    assert 'permission denied' in r.err, r
    r = u.ceph('tell', 'osd.0', 'version', check=13, timeout=SOON_S)
    assert 'permission denied' in r.err, r


def test_one_command_is_enough_to_be_told_what_commands_there_are(user):
    u = user('mon', 'allow command "quorum_status"')
    assert json.loads(u.ceph('quorum_status', timeout=SOON_S).out)['quorum']
    r = u.ceph('-s', check=13, timeout=SOON_S)
    assert 'EACCES' in r.err and 'access denied' in r.err, r
    r = u.ceph('osd', 'stat', check=13, timeout=SOON_S)
    assert 'EACCES' in r.err, r


def test_only_who_may_all_tells_a_daemon_something(cluster, user):
    mon = cluster.ceph_json('mon', 'dump')['mons'][0]['name']
    u = user('mon', 'allow r', 'osd', 'allow r')
    for daemon in ('mon.' + mon, 'osd.0'):
        r = u.ceph('tell', daemon, 'version', check=13, timeout=SOON_S)
        assert 'EACCES' in r.err, r
    assert 'mons' in u.ceph_json('mon', 'dump')
    u = user('mon', 'allow *', 'osd', 'allow *')
    for daemon in ('mon.' + mon, 'osd.0'):
        assert json.loads(u.ceph('tell', daemon, 'version', timeout=SOON_S).out)['release'] == 'pacific'
