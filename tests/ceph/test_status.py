"""The `ceph` commands that look: each plain and as JSON, exit status 0, with the keys that scripts,
dashboards and other tools read."""
import re

import pytest

from skeptest.run import wait_until

# (command, keys that its JSON must have: 'a.b' nested, 'a[]' the first row of a list, '[]' of the document itself)
JSON = [
    ('status', ['fsid', 'health.status', 'health.checks', 'quorum_names', 'monmap.num_mons', 'osdmap.num_osds',
                'osdmap.num_up_osds', 'osdmap.num_in_osds', 'osdmap.epoch', 'pgmap.num_pgs', 'pgmap.num_pools',
                'pgmap.pgs_by_state', 'pgmap.bytes_total', 'pgmap.bytes_avail', 'pgmap.bytes_used', 'pgmap.data_bytes',
                'mgrmap.available', 'fsmap.epoch', 'servicemap.epoch']),
    ('health', ['status', 'checks']),
    ('health detail', ['status', 'checks', 'mutes']),
    ('df', ['stats.total_bytes', 'stats.total_avail_bytes', 'stats.total_used_raw_bytes', 'pools[].name', 'pools[].id',
            'pools[].stats.stored', 'pools[].stats.objects', 'pools[].stats.bytes_used', 'pools[].stats.max_avail',
            'pools[].stats.percent_used', 'stats_by_class']),
    ('df detail', ['pools[].stats.stored', 'pools[].stats.quota_bytes', 'pools[].stats.rd', 'pools[].stats.wr']),
    ('osd tree', ['nodes[].id', 'nodes[].name', 'nodes[].type', 'nodes[].children', 'stray']),
    ('osd df', ['nodes[].id', 'nodes[].name', 'nodes[].kb', 'nodes[].kb_used', 'nodes[].kb_avail', 'nodes[].utilization',
                'nodes[].pgs', 'nodes[].status', 'summary.total_kb', 'summary.average_utilization']),
    ('osd df tree', ['nodes[].id', 'summary.total_kb']),
    ('osd dump', ['epoch', 'fsid', 'flags', 'flags_set', 'pools[].pool', 'pools[].pool_name', 'pools[].pg_num', 'pools[].size',
                  'pools[].application_metadata', 'osds[].osd', 'osds[].uuid', 'osds[].up', 'osds[].in',
                  'osds[].public_addrs.addrvec', 'osds[].state', 'require_osd_release', 'full_ratio', 'nearfull_ratio',
                  'pg_temp', 'blocklist', 'max_osd', 'osd_xinfo', 'crush_version']),
    ('osd stat', ['epoch', 'num_osds', 'num_up_osds', 'num_in_osds']),
    ('osd ls', ['[]']),
    ('osd pool ls', ['[]']),
    ('osd pool ls detail', ['[].pool_id', '[].pool_name', '[].size', '[].min_size', '[].pg_num', '[].crush_rule',
                            '[].application_metadata', '[].flags_names', '[].type']),
    ('osd lspools', ['[].poolnum', '[].poolname']),
    ('osd pool stats', ['[].pool_name', '[].pool_id', '[].client_io_rate']),
    ('osd crush rule ls', ['[]']),
    ('osd crush rule dump', ['[].rule_id', '[].rule_name', '[].steps']),
    ('osd crush dump', ['devices[].id', 'types[].name', 'buckets[].items', 'rules[].rule_id', 'tunables.straw_calc_version']),
    ('osd getmaxosd', ['epoch', 'max_osd']),
    ('osd perf', []),
    ('osd find 0', ['osd', 'addrs.addrvec', 'osd_fsid', 'crush_location.host']),
    ('osd metadata 0', ['id', 'ceph_version', 'hostname', 'osd_objectstore', 'front_addr']),
    ('pg stat', ['pg_summary.num_pgs']),
    ('fsid', ['fsid']),
    ('versions', ['mon', 'mgr', 'osd', 'overall']),
    ('mon dump', ['epoch', 'fsid', 'min_mon_release', 'mons[].name', 'mons[].rank', 'mons[].public_addrs.addrvec',
                  'quorum', 'features.persistent']),
    ('mon stat', ['epoch', 'num_mons', 'leader', 'quorum']),
    ('quorum_status', ['quorum', 'quorum_names', 'quorum_leader_name', 'monmap.fsid', 'election_epoch']),
    ('config dump', []),
    ('config-key ls', []),
    ('mgr dump', ['epoch', 'active_name', 'available', 'active_addrs.addrvec']),
    ('mgr stat', ['available', 'active_name']),
    ('features', ['mon', 'osd', 'client']),
    ('fs ls', []),
    ('time-sync-status', ['timechecks']),
]


def look_up(doc, path):
    """Follows 'a.b[].c'; returns whether the key is there."""
    for part in path.split('.'):
        name = part.replace('[]', '')
        if name:
            if not isinstance(doc, dict) or name not in doc:
                return False
            doc = doc[name]
        if part.endswith('[]'):
            if not isinstance(doc, list) or not doc:
                return False
            doc = doc[0]
    return True


@pytest.mark.parametrize('command, keys', JSON, ids=[c for c, _ in JSON])
def test_json(cluster, pool, command, keys):
    doc = cluster.ceph_json(*command.split())
    missing = [k for k in keys if not look_up(doc, k)]
    assert not missing, 'no %s in %s' % (missing, str(doc)[:3000])


# (command, a pattern that its plain output must contain)
PLAIN = [
    ('-s', r'(?s)  cluster:\n    id:     [0-9a-f-]{36}\n    health: HEALTH_.*  services:\n    mon: 1 daemons, quorum '
           r'.*osd: 3 osds: 3 up \(.*3 in \(.*data:\n.*pools:   \d+ pools, \d+ pgs.*active\+clean'),
    ('health', r'^HEALTH_(OK|WARN)'),
    ('health detail', r'^HEALTH_(OK|WARN)'),
    ('df', r'(?s)--- RAW STORAGE ---\nCLASS +SIZE +AVAIL +USED +RAW USED +%RAW USED\n.*TOTAL.*--- POOLS ---\n'
           r'POOL +ID +PGS +STORED +OBJECTS +USED +%USED +MAX AVAIL'),
    ('osd tree', r'(?s)^ID +CLASS +WEIGHT +TYPE NAME +STATUS +REWEIGHT +PRI-AFF *\n-1 .*root default.*osd\.0 +up +1\.00000 +1\.00000'),
    ('osd df', r'(?s)^ID +CLASS +WEIGHT +REWEIGHT +SIZE +RAW USE .*AVAIL +%USE +VAR +PGS +STATUS *\n.*TOTAL.*MIN/MAX VAR: '),
    ('osd dump', r"(?s)^epoch \d+\nfsid [0-9a-f-]{36}\n.*\npool \d+ '.*replicated size \d.*\nmax_osd 3\nosd\.0 up   in  weight 1 "),
    ('osd pool ls detail', r"pool \d+ '.*' replicated size \d min_size \d crush_rule 0 object_hash rjenkins pg_num \d+ pgp_num \d+ "),
    ('osd stat', r'^3 osds: 3 up \(since .*\), 3 in \(since .*\); epoch: e\d+'),
    ('pg stat', r'^\d+ pgs: '),
    ('mon stat', r'^e\d+: 1 mons at \{'),
    ('mon dump', r'(?s)^epoch \d+\nfsid .*min_mon_release 16 \(pacific\)\n.*\n0: .*127\.0\.0\.1:\d+/0.* mon\.'),
    ('fsid', r'^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\n$'),
    ('versions', r'(?s)"mon": \{\n.*"overall": \{'),
    ('quorum_status', r'"quorum_names":'),
    ('osd ls', r'^0\n1\n2\n$'),
    ('config dump', r'^WHO +MASK +LEVEL +OPTION +VALUE +RO *\n'),
    ('osd pool stats', r'(?s)pool .* id \d+\n  '),
]


@pytest.mark.parametrize('command, expected', PLAIN, ids=[c for c, _ in PLAIN])
def test_plain(cluster, pool, command, expected):
    wait_until(lambda: cluster.whole(pool), 60, 0.1, 'pool %s to be whole' % pool)
    out = cluster.ceph(*command.split()).out
    assert re.search(expected, out), out


def test_numbers_agree_with_what_is_there(cluster):
    """Not constants: pools and objects appear in the figures."""
    before = cluster.ceph_json('status')
    name = cluster.make_pool(pg_num=8)
    try:
        after = cluster.ceph_json('status')
        assert after['osdmap']['epoch'] > before['osdmap']['epoch']
        cluster.rados(name, 'put', 'one', '-', stdin=b'x' * 100000)
        cluster.rados(name, 'put', 'two', '-', stdin=b'y' * 50000)

        def stats():
            row = next(p for p in cluster.ceph_json('df')['pools'] if p['name'] == name)['stats']
            return row['objects'] == 2 and row['stored'] >= 150000 and row
        assert wait_until(stats, 60, 0.5, 'the objects in ceph df')['bytes_used'] >= 150000
        wait_until(lambda: cluster.ceph_json('status')['pgmap']['num_pools'] == before['pgmap']['num_pools'] + 1, 60, 0.5,
                   'the pool in ceph -s')
    finally:
        cluster.drop_pool(name)
    assert name not in cluster.ceph('osd', 'pool', 'ls').out.split()


def test_df_says_what_is_allocated(cluster):
    """What the disks hold, all copies: not what clients stored times the copies. An object of 100 kB behind a hole of 1 MiB."""
    name = cluster.make_copies(size=2, pg_num=4)
    try:
        cluster.rados(name, 'put', 'one', '-', '--offset', 1 << 20, stdin=b'x' * 100000)
        for key in ('a', 'b', 'c'):
            cluster.rados(name, 'setomapval', 'rows', key, key * 1000)

        def stats():
            row = next(p for p in cluster.ceph_json('df', 'detail')['pools'] if p['name'] == name)['stats']
            return row['objects'] == 2 and row['omap_bytes_used'] >= 2 * 3003 and row
        row = wait_until(stats, 60, 0.5, 'the objects in ceph df')
        assert row['stored_data'] == (1 << 20) + 100000, row
        assert row['data_bytes_used'] == 2 * 25 * 4096, row
        assert row['omap_bytes_used'] == 2 * 3003 and row['stored_omap'] == 3003, row
        assert row['bytes_used'] == row['data_bytes_used'] + row['omap_bytes_used'], row
        assert row['stored'] == row['stored_data'] + row['stored_omap'], row
        line = next(li for li in cluster.ceph('df').out.splitlines() if li.startswith(name + ' '))
        assert re.search(r'\s2\s+206 KiB\s', line), line
    finally:
        cluster.drop_pool(name)


def test_an_osd_says_which_options_it_goes_by(cluster):
    """Fixed limits, and what the central configuration sets: also by the OSD's host and device class."""
    shown = cluster.ceph_json('tell', 'osd.0', 'config', 'show')
    assert shown['osd_max_object_size'] == str(128 << 20) and shown['osd_max_write_size'] == '90', shown
    assert cluster.ceph_json('tell', 'osd.0', 'config', 'get', 'osd_max_scrubs') == {'osd_max_scrubs': shown['osd_max_scrubs']}
    r = cluster.ceph('tell', 'osd.0', 'config', 'get', 'osd_op_queue', check=None)
    assert r.returncode == 2, r
    host = cluster.ceph_json('osd', 'metadata', '0')['hostname']
    option = 'osd_hung_disk_timeout'
    entries = [('osd.0', '11'), ('osd/host:' + host, '12'), ('osd/host:elsewhere', '13')]

    def told(osd, value):
        return cluster.ceph_json('tell', osd, 'config', 'get', option)[option] == value
    try:
        for who, value in entries:
            cluster.ceph('config', 'set', who, option, value)
        for osd in ('osd.0', 'osd.1'):
            wait_until(lambda: told(osd, '12'), 60, 0.2, osd + "'s option")
            assert cluster.ceph('config', 'get', osd, option).out == '12\n'
        cluster.ceph('config', 'rm', 'osd/host:' + host, option)
        wait_until(lambda: told('osd.0', '11'), 60, 0.2, "osd.0's option")
    finally:
        for who, _ in entries:
            cluster.ceph('config', 'rm', who, option)
    wait_until(lambda: told('osd.0', shown[option]), 60, 0.2, "the default of osd.0's option")


def test_fsid_is_the_same_everywhere(cluster):
    fsid = cluster.ceph('fsid').out.strip()
    assert cluster.ceph_json('status')['fsid'] == cluster.ceph_json('mon', 'dump')['fsid'] == fsid
    assert cluster.ceph_json('osd', 'dump')['fsid'] == fsid == cluster.option('fsid')


def test_versions_name_16_2(cluster):
    doc = cluster.ceph_json('versions')
    assert sum(doc['osd'].values()) == 3 and sum(doc['mon'].values()) == 1, doc
    assert all('pacific' in name for name in doc['overall']), doc


def test_osd_map_of_an_object(cluster, pool):
    doc = cluster.ceph_json('osd', 'map', pool, 'obj')
    assert doc['pool'] == pool and doc['objname'] == 'obj' and doc['raw_pgid'].split('.')[1] == 'aabc5e21', doc
    assert doc['up'] == doc['acting'] and doc['up_primary'] == doc['up'][0] and set(doc['up']) <= {0, 1, 2}, doc
    out = cluster.ceph('osd', 'map', pool, 'obj').out
    assert re.fullmatch(r"osdmap e\d+ pool '%s' \(\d+\) object 'obj' -> pg \d+\.aabc5e21 \(\d+\.\w+\) -> up \(\[[\d,]+\], p\d\) "
                        r"acting \(\[[\d,]+\], p\d\)\n" % pool, out), out


def test_maps_are_read_by_ceph_s_own_tools(cluster, pool, tmp_path):
    r = cluster.ceph('osd', 'getmap', '-o', tmp_path / 'osdmap')
    assert re.search(r'got osdmap epoch \d+', r.err), r
    out = cluster.run('osdmaptool', tmp_path / 'osdmap', '--print').out
    assert "'%s'" % pool in out and 'max_osd 3' in out, out
    cluster.ceph('osd', 'getcrushmap', '-o', tmp_path / 'crush')
    text = cluster.run('crushtool', '-d', tmp_path / 'crush').out
    assert 'root default' in text and 'step choose' in text, text
    (tmp_path / 'text').write_text(text)
    cluster.run('crushtool', '-c', tmp_path / 'text', '-o', tmp_path / 'again')
    cluster.ceph('mon', 'getmap', '-o', tmp_path / 'monmap')
    out = cluster.run('monmaptool', '--print', tmp_path / 'monmap').out
    assert cluster.ceph('fsid').out.strip() in out, out


def test_tell_version(cluster):
    for who in ('osd.0', 'osd.2'):
        doc = cluster.ceph_json('tell', who, 'version')
        assert doc['version'].startswith('16.2') and doc['release'] == 'pacific', doc
    mon = cluster.ceph_json('mon', 'dump')['mons'][0]['name']
    assert cluster.ceph_json('tell', 'mon.' + mon, 'version')['release'] == 'pacific'
    out = cluster.ceph('tell', 'osd.*', 'version').out
    assert out.count('osd.') == 3, out
    r = cluster.ceph('tell', 'osd.99', 'version', check=None)
    assert r.returncode == 2 and 'ENOENT' in r.err, r


def test_a_manager_that_fails_alone_begins_anew(cluster):
    was = cluster.ceph_json('mgr', 'stat')
    assert was['available'] and was['num_standby'] == 0
    r = cluster.ceph('mgr', 'fail', 'zz')
    assert (r.out + r.err).strip() == "Daemon not found 'zz', already failed?"
    assert cluster.ceph_json('mgr', 'stat') == was
    cluster.ceph('mgr', 'fail')
    wait_until(lambda: cluster.ceph_json('mgr', 'stat')['available'], 60, what='the manager to be there again')
    now = cluster.ceph_json('mgr', 'stat')
    assert now['active_name'] == was['active_name'] and now['epoch'] >= was['epoch'] + 2, now
    # What the manager answers is answered.
    assert cluster.ceph_json('pg', 'stat')['pg_ready'] is True
