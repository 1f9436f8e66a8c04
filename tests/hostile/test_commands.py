"""Which commands somebody may give, at the doors of the monitor and of the manager. Point 2 of the issue "Found under fire".
What succeeds here when it must not breaks this file's cluster, and no other.
"""
import pytest

EPERM, EACCES, EINVAL = -1, -13, -22


def refuses(code):
    """Refused for want of rights, or because the door does not know such a command."""
    return code in (EPERM, EACCES, EINVAL)


@pytest.fixture(scope='module')
def victim_pool(skep, server):
    server.entity('client.victim', mon='allow *')
    return skep.make_pool(pg_num=1)


def commands(pool):
    return [
        ({'prefix': 'osd pool delete', 'pool': pool, 'pool2': pool, 'yes_i_really_really_mean_it': True}, 'rw'),
        ({'prefix': 'osd pool create', 'pool': 'evil', 'pg_num': 1}, 'rw'),
        ({'prefix': 'osd pool set', 'pool': pool, 'var': 'size', 'val': '1', 'yes_i_really_mean_it': True}, 'rw'),
        ({'prefix': 'osd down', 'ids': ['0']}, 'rw'),
        ({'prefix': 'osd out', 'ids': ['0']}, 'rw'),
        ({'prefix': 'osd set', 'key': 'noup'}, 'rw'),
        ({'prefix': 'osd blocklist', 'blocklistop': 'add', 'addr': '10.9.8.7:0/1'}, 'rw'),
        ({'prefix': 'config set', 'who': 'global', 'name': 'osd_pool_default_size', 'value': '2'}, 'rw'),
        ({'prefix': 'config-key set', 'key': 'evil', 'val': 'x'}, 'rw'),
        ({'prefix': 'config-key dump'}, 'r'),
        ({'prefix': 'config-key get', 'key': 'evil'}, 'r'),
        ({'prefix': 'auth get', 'entity': 'client.admin'}, '*'),
        ({'prefix': 'auth print-key', 'entity': 'client.admin'}, '*'),
        ({'prefix': 'auth ls'}, '*'),
        ({'prefix': 'auth get-or-create', 'entity': 'client.evil', 'caps': ['mon', 'allow *']}, '*'),
        ({'prefix': 'auth caps', 'entity': 'client.victim', 'caps': ['mon', 'allow r']}, '*'),
    ]


def test_a_reader_of_the_monitor_changes_nothing(server, user, victim_pool):
    who = user(mon='allow r', osd='allow *')
    with server.mon(who) as mon:
        done = [c['prefix'] for c, _ in commands(victim_pool) if not refuses(mon.command(c)[0])]
        assert not done, done
        assert mon.tell({'prefix': 'auth ls'}, fsid=server.fsid)[0] < 0
        assert mon.tell({'prefix': 'config-key dump'}, fsid=server.fsid)[0] < 0
        assert mon.pool_op(1, 0, 'evil')[0] in (EPERM, EACCES)
        assert mon.pool_op(2, server.pool(victim_pool).id, 'delete')[0] in (EPERM, EACCES)
        assert mon.pool_op(0x11, server.pool(victim_pool).id, 'snap')[0] in (EPERM, EACCES)


@pytest.mark.parametrize('caps', ['allow r', 'allow rw', 'allow *'])
@pytest.mark.parametrize('door', ['command', 'tell'])
def test_capabilities_of_the_manager_are_none_of_the_monitor(server, user, victim_pool, caps, door):
    who = server.login(user(mon='allow r', mgr=caps))
    before = server.admin('osd dump')
    done = []
    for command, _ in commands(victim_pool):
        with server.mgr(who) as mgr:
            code, status, out = getattr(mgr, door)(command)
            if not refuses(code):
                done.append((command['prefix'], code, status, out[:60]))
    assert not done, done
    after = server.admin('osd dump')
    assert [p['pool_name'] for p in after['pools']] == [p['pool_name'] for p in before['pools']]
    with server.mgr(who) as mgr:
        code, status, _ = mgr.command({'prefix': 'pg stat'})
        assert code == 0, status


def test_a_pool_is_not_deleted_before_it_is_allowed(server, skep, victim_pool, admin):
    """`mon_allow_pool_delete` is false until somebody sets it, at every door."""
    before = server.admin('config get', who='mon', key='mon_allow_pool_delete')
    skep.ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'false')
    try:
        with server.mon(admin.alike()) as mon:
            delete = {'prefix': 'osd pool delete', 'pool': victim_pool, 'pool2': victim_pool, 'yes_i_really_really_mean_it': True}
            assert mon.command(delete)[0] == EPERM
            assert mon.pool_op(2, server.pool(victim_pool).id, 'delete')[0] == EPERM
    finally:
        skep.ceph('config', 'set', 'mon', 'mon_allow_pool_delete', 'true' if before in (True, 'true') else 'false')
