"""Placement groups out of turn: `pg force-recovery` and its kin, and `pg repeer` under clients that write."""
import json
import threading

import pytest

from skeptest import objects
from skeptest.run import wait_until

pytestmark = pytest.mark.own

OBJECTS = 40


@pytest.fixture
def skep(own):
    skep = own(osds=4, options=['--osd-memory', '64M']).start()
    skep.pool = skep.make_copies(3, pg_num=16)
    return skep


def write(skep, size):
    objects.put(skep, skep.pool, {'o%d' % n: b'%d' % n * size for n in range(OBJECTS)})


def states(skep):
    return {pg['pgid']: pg['state'] for pg in skep.pgs()}


def is_up(skep, osd):
    return next(o['up'] for o in skep.ask('osd', 'dump')['osds'] if o['osd'] == osd)


def ask(skep, prefix, **more):
    """Code, and what is said, of a command that may be refused."""
    script = 'import json,rados,sys\nc = rados.Rados(conffile=sys.argv[1]); c.connect(timeout=30)\n' \
             'r = c.mgr_command(sys.argv[2], b"")\nprint(json.dumps([r[0], r[2]]))'
    r = skep.run('/usr/bin/python3', '-c', script, skep.conf, json.dumps({'prefix': prefix, **more}))
    return json.loads(r.out)


def test_what_is_forced_says_so_until_it_is_whole(skep):
    write(skep, 10000)
    for flag in ('norecover', 'nobackfill', 'noup'):
        skep.ceph('osd', 'set', flag)
    skep.ceph('osd', 'down', '2')
    wait_until(lambda: not is_up(skep, 2), 60, what='osd.2 to be down')
    write(skep, 20000)
    skep.ceph('osd', 'unset', 'noup')
    wait_until(lambda: is_up(skep, 2), 60, what='osd.2 to be up')
    wait_until(lambda: any('recovery_wait' in s for s in states(skep).values()), 60, 0.5, 'groups that wait')
    waits = [pg for pg, s in states(skep).items() if 'recovery_wait' in s]
    clean = [pg for pg, s in states(skep).items() if s == 'active+clean']
    one = waits[0]

    code, said = ask(skep, 'pg force-recovery', pgid=[one])
    assert code == 0 and said.startswith('instructing pg(s) [%s] on osd.' % one) and said.endswith(' to force-recovery; \n'), said
    assert ask(skep, 'pg force-recovery', pgid=[one]) == [-22, 'pg %s recovery already forced; \n' % one]
    assert ask(skep, 'pg cancel-force-backfill', pgid=[one]) == [0, 'pg %s backfill not forced; \n' % one]
    assert ask(skep, 'pg force-recovery', pgid=['999.0', 'x']) == [-22, "pg 999.0 does not exist; invlaid pgid 'x'; \n"]
    for pg in clean[:1]:
        assert ask(skep, 'pg force-recovery', pgid=[pg]) == [0, "pg %s doesn't require recovery; \n" % pg]
    wait_until(lambda: 'forced_recovery' in states(skep)[one], 60, 0.5, 'the group to say so')
    assert [pg for pg, s in states(skep).items() if 'forced' in s] == [one]

    assert ask(skep, 'pg cancel-force-recovery', pgid=[one])[0] == 0
    wait_until(lambda: 'forced' not in states(skep)[one], 60, 0.5, 'the wish to be taken back')
    code, said = ask(skep, 'osd pool force-recovery', who=[skep.pool])
    assert code == 0 and said.count('instructing') >= 1, said
    wait_until(lambda: all('forced_recovery' in states(skep)[pg] for pg in waits), 60, 0.5, 'the pool to say so')

    for flag in ('norecover', 'nobackfill'):
        skep.ceph('osd', 'unset', flag)
    wait_until(lambda: all(s == 'active+clean' for s in states(skep).values()), 120, 0.5, 'all copies, and no wish left')
    wait_until(lambda: 'pg/forced' not in skep.ceph('config-key', 'ls').out, 60, 0.5, 'the wishes to be gone')
    written = {'o%d' % n: b'%d' % n * 20000 for n in range(OBJECTS)}
    assert objects.get(skep, skep.pool, written) == written


def figures(skep):
    return skep.ceph_json('pg', 'dump', 'pgs')['pg_stats']


def test_groups_peer_anew_while_clients_write(skep):
    failed, stop = [], threading.Event()

    def client():
        n = 0
        while not stop.is_set():
            r = skep.rados(skep.pool, 'put', 'w%d' % (n % 20), '-', stdin=b'%d' % n, check=None)
            if r.returncode:
                failed.append(r)
                return
            n += 1
    writer = threading.Thread(target=client)
    writer.start()
    try:
        before = {pg['pgid']: pg['mapping_epoch'] for pg in figures(skep)}
        for pg in before:
            skep.ceph('pg', 'repeer', pg)
        # A new term of each, which is served as the one before.
        wait_until(lambda: all(pg['mapping_epoch'] > before[pg['pgid']] and pg['state'] == 'active+clean' for pg in figures(skep)),
                   120, 0.5, 'new terms')
    finally:
        stop.set()
        writer.join(120)
    assert not failed and not writer.is_alive(), failed
    write(skep, 100)
    assert 'pg \'999.0\' does not exist' in skep.ceph('pg', 'repeer', '999.0', check=2).err
