"""`ceph pg getmap`: the figures of `ceph pg dump` in the form that Ceph's own programs read."""
import json
import re
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.debian import Root
from skeptest.pgmap import read
from skeptest.run import wait_until

# State bits that are common here.
ACTIVE, CLEAN = 2, 4


@pytest.fixture
def filled(cluster):
    """A new pool with objects, an omap and a clone: six in all."""
    pool = cluster.make_pool()
    for i in range(5):
        cluster.rados(pool, 'put', 'o%d' % i, '/etc/passwd')
    cluster.rados(pool, 'setomapval', 'o1', 'key', 'value')
    cluster.rados(pool, 'mksnap', unique('snap'))
    cluster.rados(pool, 'put', 'o2', '/etc/passwd')
    number = cluster.pool_number(pool)

    def told():
        groups = cluster.ask('pg', 'dump', to='mgr', dumpcontents=['pgs'])['pg_stats']
        mine = [g for g in groups if g['pgid'].startswith('%d.' % number)]
        return sum(g['stat_sum']['num_objects'] for g in mine) == 6

    wait_until(told, 90, what='the figures of six objects')
    yield number
    cluster.drop_pool(pool)


def of_one_version(cluster, file, look):
    """The map in a file and `pg dump`, of one version, until `look` finds no difference between them."""
    last = {}

    def try_it():
        r = cluster.ceph('pg', 'getmap', '-o', file)
        dump = cluster.ask('pg', 'dump', to='mgr')['pg_map']
        said = re.search(r'got pgmap version (\d+)$', r.err.strip())
        assert said, r
        if int(said.group(1)) != dump['version']:
            last['differs'] = 'version'
            return None
        last['differs'] = look(dump)
        return not last['differs']

    wait_until(try_it, 90, what=lambda: 'no difference: %s' % last)


def differences(have, dump, where):
    """Of what one has, what is otherwise in the other."""
    if isinstance(have, dict):
        return [d for k, v in have.items() for d in differences(v, dump[k], where + (k,))]
    return [] if have == dump else [(where, have, dump)]


def test_what_it_holds(cluster, filled, tmp_path):
    file = tmp_path / 'map'

    def look(dump):
        have, states = read(file.read_bytes())
        wrong = []
        for part, key in (('pgs', 'pgid'), ('osds', 'osd')):
            shown = {s[key]: s for s in dump[part[:-1] + '_stats']}
            if have[part].keys() != shown.keys():
                return [(part, list(have[part]), list(shown))]
            wrong += differences(have[part], shown, (part,))
        pools = {(s['poolid'], s['osd']): s for s in dump['pool_statfs']}
        if have['pools'].keys() != pools.keys():
            return [('pools', list(have['pools']), list(pools))]
        wrong += differences(have['pools'], pools, ('pools',))
        names = {s['pgid']: s['state'] for s in dump['pg_stats']}
        wrong += [(name, n) for name, n in states.items() if (n == ACTIVE | CLEAN) != (names[name] == 'active+clean')]
        assert any(s['stat_sum']['num_object_clones'] == 1 for name, s in have['pgs'].items() if name.startswith('%d.' % filled))
        return wrong

    of_one_version(cluster, file, look)


def test_as_json_it_is_the_same(cluster, tmp_path):
    """There is no other form of it. (16.2 puts a JSON object behind the blob then, of which nobody has any use.)"""
    cluster.ceph('pg', 'getmap', '-f', 'json', '-o', tmp_path / 'map')
    have, _ = read((tmp_path / 'map').read_bytes().removesuffix(b'{"pg_ready":true}'))
    assert have['osds']


@pytest.mark.long
def test_ceph_dencoder_reads_it(cluster, filled, tmp_path):
    """That of Debian 11: Debian 12 and 13 leave out the modules that theirs loads types from."""
    root = Root('bullseye', ['ceph-common'])
    file = tmp_path / 'map'

    def plain(text):
        """Times and large numbers, which the two write differently."""
        return re.sub(r'[T ](?=\d\d:)|\+0000$', ' ', str(text)).strip()

    def look(dump):
        p = root.popen(['ceph-dencoder', 'type', 'PGMap', 'import', '/mnt/map', 'decode', 'dump_json'], tmp_path,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = p.communicate(timeout=120)
        assert p.returncode == 0, err
        have = json.loads(out)
        wrong = []
        for part, keys in (('pg_stats', ('pgid',)), ('osd_stats', ('osd',)), ('pool_stats', ('poolid',))):
            mine = {tuple(s[k] for k in keys): s for s in have[part]}
            shown = {tuple(s[k] for k in keys): s for s in dump[part]}
            if mine.keys() != shown.keys():
                return [(part, list(mine), list(shown))]
            for key, s in mine.items():
                wrong += [(part, key, k, v, shown[key][k]) for k, v in s.items() if plain(v) != plain(shown[key][k])]
        return wrong[:5]

    of_one_version(cluster, file, look)
