"""Connections under cephx in crc and in secure mode, to monitor and OSD; and what is refused before that.

A client that offers one mode only and is served has used that mode: the server cannot choose another.
"""
import os
import pathlib
import re
import socket
import threading

import pytest

from skeptest.cluster import unique
from skeptest.run import wait_until

pytestmark = pytest.mark.cephx

MODES = {
    'crc': '--ms_client_mode=crc --ms_mon_client_mode=crc',
    'secure': '--ms_client_mode=secure --ms_mon_client_mode=secure',
    'secure to the monitor only': '--ms_client_mode=crc --ms_mon_client_mode=secure',
    'secure to the OSD only': '--ms_client_mode=secure --ms_mon_client_mode=crc',
    'prefers secure': '--ms_client_mode=secure,crc --ms_mon_client_mode=secure,crc',
}


@pytest.mark.parametrize('mode', MODES)
def test_every_mode_carries_data(cluster, pool, rbd_pool, tmp_path, mode):
    c = cluster.with_args(MODES[mode])
    data, oid = os.urandom((5 << 20) + 77), unique('object')
    c.rados(pool, 'put', oid, '-', stdin=data)
    assert c.rados(pool, 'get', oid, '-').out_bytes == data
    assert c.ceph_json('status')['osdmap']['num_up_osds'] >= 1
    (tmp_path / 'f').write_bytes(data)
    name = '%s/%s' % (rbd_pool, unique('image'))
    c.rbd('import', tmp_path / 'f', name)
    assert c.rbd('export', name, '-').out_bytes == data
    assert cluster.rbd('export', name, '-').out_bytes == data


def test_default_mode_to_the_monitor_is_secure_capable(cluster):
    """Stock clients prefer secure to monitors by default; nothing to set."""
    assert cluster.ceph('fsid').out.strip()


def refused(cluster, *args):
    """Commands of a client that must not get in: non-zero, soon, and said to be about permission."""
    r = cluster.run('rados', '--rados_mon_op_timeout=20', '--client_mount_timeout=20', *args, 'lspools', timeout=60, check='fails')
    assert r.out == '', r
    assert re.search('handle_auth_bad_method|Permission denied|Operation not permitted|keyring|No such file', r.err), r


def keyring(cluster, path, entity, key=None):
    """A keyring file for an entity, with a given or a fresh (so: wrong) key."""
    args = ['--add-key', key] if key else ['--gen-key']
    cluster.run('ceph-authtool', '--create-keyring', path, '-n', entity, *args)
    return path


def test_wrong_key(cluster, tmp_path):
    refused(cluster, '--keyring', keyring(cluster, tmp_path / 'k', 'client.admin'))


def test_unknown_entity(cluster, tmp_path):
    refused(cluster, '--name', 'client.stranger', '--keyring', keyring(cluster, tmp_path / 'k', 'client.stranger'))


def test_key_of_another_entity(cluster, tmp_path):
    name = 'client.' + unique('user')
    cluster.ceph('auth', 'get-or-create', name, 'mon', 'allow r')
    key = cluster.ceph('auth', 'print-key', name).out.strip()
    try:
        refused(cluster, '--keyring', keyring(cluster, tmp_path / 'k', 'client.admin', key))
        ok = keyring(cluster, tmp_path / 'ok', name, key)
        cluster.run('rados', '--name', name, '--keyring', ok, 'lspools')
    finally:
        cluster.ceph('auth', 'del', name)
    refused(cluster, '--name', name, '--keyring', ok)


def test_client_that_wants_no_authentication(cluster):
    refused(cluster, '--auth_client_required=none')


def test_no_keyring(cluster, tmp_path):
    refused(cluster, '--keyring', tmp_path / 'nothing-here')


@pytest.mark.own
def test_key_files_are_private(cluster):
    assert cluster.conf.endswith('ceph.conf')
    secrets = [p for p in cluster.data.rglob('*') if p.is_file() and 'keyring' in p.name]
    assert secrets, list(cluster.data.iterdir())
    for path in secrets:
        assert path.stat().st_mode & 0o777 == 0o600, path


def in_clear(skep, pool, conf, size):
    """Writes an object of three copies that says one thing over and over, and counts the packets on the loopback that say it."""
    what = unique('said-in-clear').encode()
    try:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
    except PermissionError:
        pytest.skip('needs the right to listen to packets')
    seen, on = [0], True
    tap.bind(('lo', 0))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
    tap.settimeout(0.2)

    def listen():
        while on:
            try:
                seen[0] += what in tap.recv(1 << 17)
            except socket.timeout:
                pass
    thread = threading.Thread(target=listen)
    thread.start()
    try:
        data = what * (size // len(what))
        skep.with_args(conf).rados(pool, 'put', unique('object'), '-', stdin=data)
        skep.whole(pool)
    finally:
        on = False
        thread.join()
        tap.close()
    return seen[0]


@pytest.mark.own
def test_options_of_the_central_configuration_demand_encryption(own):
    """They were accepted, and nothing followed."""
    skep = own(osds=3).start()
    pool = skep.make_copies(3)
    only_crc = '--ms_client_mode=crc --ms_mon_client_mode=secure'
    assert in_clear(skep, pool, only_crc, 1 << 20) > 0, 'the test sees what is said'
    said = skep.ceph('config', 'set', 'global', 'ms_service_mode', 'secure')
    assert 'does nothing' not in said.err
    skep.with_args(only_crc + ' --rados_osd_op_timeout=5').rados(pool, 'ls', check='fails')
    skep.rados(pool, 'ls')
    # What OSDs of one process say to one another does not leave it; of several: tests/cluster/test_modes_between.py.
    assert in_clear(skep, pool, '', 1 << 20) == 0
    skep.ceph('config', 'set', 'mon', 'ms_mon_service_mode', 'secure')
    assert 'ms_' not in pathlib.Path(skep.conf).read_text(), 'stock clients need nothing for it'
    assert skep.ceph('fsid').out.strip()
    refused(skep.with_args('--ms_mon_client_mode=crc'))
    skep.ceph('config', 'set', 'client', 'ms_mon_client_mode', 'secure')
    wait_until(lambda: 'ms_mon_client_mode = secure' in pathlib.Path(skep.conf).read_text(), 60, 0.05, 'ceph.conf to say it')


@pytest.mark.own
def test_an_option_that_does_nothing_says_so(own):
    skep = own(osds=1).start()
    assert 'does nothing' in skep.ceph('config', 'set', 'osd', 'osd_op_queue', 'wpq').err
    assert 'does nothing' in skep.ceph('config', 'help', 'osd_op_queue').out
    assert 'does nothing' not in skep.ceph('config', 'set', 'client', 'rbd_cache', 'true').err
    assert 'no list of' in skep.ceph('config', 'set', 'global', 'ms_cluster_mode', 'plain', check=22).err


@pytest.mark.own
def test_without_keys_encryption_is_refused(own):
    skep = own(osds=1, auth='none').start()
    assert 'without authentication' in skep.ceph('config', 'set', 'global', 'ms_service_mode', 'secure', check=22).err
    skep.ceph('config', 'set', 'global', 'ms_service_mode', 'secure crc')
    skep.rados(skep.make_pool(), 'ls')
