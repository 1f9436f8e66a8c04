"""`skep up --roles`: a host that is only a monitor, hosts that only have OSDs."""
import json

import pytest

pytestmark = pytest.mark.own


def status(host):
    return json.loads(host.cli('status', '--data', host.data, '--format', 'json').out)


def test_monitor_and_osds_apart(hosts):
    group = hosts(3)
    group.start_etcd()
    mon, one, two = group
    said = one.refused('--roles', 'osd', first=['--create'])
    assert 'needs a monitor' in said, said
    mon.up(create=True, osds=0, options=['--roles', 'mon'])
    for host in (one, two):
        host.up(join=True, options=['--roles', 'osd'])
    assert set(status(mon)['roles']) == {'mon.h1'} and status(mon)['mon']
    assert set(status(one)['roles']) == {'osd.0'} and status(one)['mon'] is None
    assert [m['name'] for m in mon.ceph_json('mon', 'dump')['mons']] == ['h1']
    pool = mon.make_copies(size=2)
    one.rados(pool, 'put', 'o', '-', stdin=b'kept')
    # It is remembered, and may change.
    two.kill()
    two.up()
    assert set(status(two)['roles']) == {'osd.1'}
    two.kill()
    two.up(options=['--roles', 'osd,mon'])
    assert set(status(two)['roles']) == {'osd.1', 'mon.h3'}
    mon.kill()
    assert one.rados(pool, 'get', 'o', '-').out == 'kept'
    for host in (one, two):
        assert host.stop() == 0, host.log_tail()


def test_choices_that_cannot_serve_are_refused(own):
    skep = own()
    for roles, why in (('mon', 'needs its monitor and its OSDs'), ('osd', 'needs its monitor and its OSDs'),
                       ('osd,mds', 'needs its monitor and its OSDs'), ('rgw', 'possible values: osd, mon')):
        r = skep.cli('up', '--data', skep.data, '--mon-port', skep.port, '--roles', roles, check='fails')
        assert why in r.err, r
    skep.options = ['--roles', 'mon,osd']
    skep.start()
    assert set(skep.roles()) == {'osd.0', 'osd.1', 'osd.2', 'mon.a'}
