"""The program's own command line: first start makes a cluster, later starts find it, status, conf, down;
one clear sentence and a non-zero status for a directory that cannot be used.
"""
import json
import os
import shutil
import signal

import pytest

from skeptest.run import wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own


def one_clear_sentence(result):
    """A refusal: non-zero, its reason in one line at the end of standard error (progress and warnings may stand above)."""
    assert result.returncode not in (0, 101) and result.returncode > 0, result
    lines = [line for line in result.err.splitlines() if line.strip() and ' INFO ' not in line and ' WARN ' not in line]
    assert 1 <= len(lines) <= 3 and lines[0].startswith(('skep: ', 'error: ')) and 'panicked' not in result.err, result
    return '\n'.join(lines)


def try_start(skep, timeout=60):
    """A start that must not succeed: its end is waited for, not its readiness."""
    return skep.cli(*skep.argv()[1:], timeout=timeout, check=None)


def test_first_start_says_where_things_lie(own):
    skep = own().start()
    said = skep.log.read_text()
    assert str(skep.data / 'ceph.conf') in said and 'ceph.client.admin.keyring' in said, said
    assert (skep.data / 'ceph.conf').is_file() and (skep.data / 'ceph.client.admin.keyring').is_file()
    assert (skep.data / 'ceph.client.admin.keyring').stat().st_mode & 0o777 == 0o600
    skep.ceph('-s')


def test_the_stock_ceph_daemon_asks_the_socket(own):
    """`ceph daemon` reads what the socket offers before it sends anything."""
    skep = own().start()

    def ask(*words):
        return skep.run('ceph', 'daemon', skep.data / 'skep.asok', *words).out
    counters = json.loads(ask('perf', 'dump'))
    assert {'mon.a', 'osd.0'} <= set(counters) and 'op_w' in counters['osd.0']['osd'], sorted(counters)
    # Each port of the monitor has a part of its budget.
    for port in 'mon', 'mgr':
        assert counters['mon.a']['throttle-%s_client_bytes' % port]['max'] > 16 << 20
    assert json.loads(ask('status'))['running']
    assert 'osd.0' in ask('osd', 'tree')


def test_status_and_conf(own):
    skep = own().start()
    out = skep.cli('status', '--data', skep.data).out
    assert out.startswith('running') and str(skep.port) in out and '3 of 3 up' in out, out
    assert isinstance(json.loads(skep.cli('status', '--data', skep.data, '-f', 'json').out), dict)
    conf = skep.cli('conf', '--data', skep.data).out
    assert conf == (skep.data / 'ceph.conf').read_text() and skep.ceph('fsid').out.strip() in conf, conf


def test_down_stops_it(own):
    skep = own().start()
    skep.cli('down', '--data', skep.data)
    wait_until(lambda: skep.proc.poll() is not None, 60, what='the end of the server')
    assert skep.proc.returncode == 0, skep.log_tail()
    r = skep.cli('down', '--data', skep.data, check=None)                 # none runs any more
    assert 'panicked' not in r.err, r
    r = skep.cli('status', '--data', skep.data, check=None)
    assert r.returncode != 0 and 'panicked' not in r.err, r


def test_sigterm_stops_cleanly_and_a_later_start_finds_everything(own):
    skep = own().start()
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'content')
    skep.ceph('auth', 'get-or-create', 'client.u', 'mon', 'allow r')
    skep.ceph('config', 'set', 'client', 'rbd_default_order', '21')
    fsid, key = skep.ceph('fsid').out, skep.ceph('auth', 'print-key', 'client.u').out
    assert skep.stop() == 0, skep.log_tail()
    assert 'panicked' not in skep.log.read_text(errors='replace')
    skep.start()
    assert skep.rados(pool, 'get', 'o', '-').out == 'content'
    assert (skep.ceph('fsid').out, skep.ceph('auth', 'print-key', 'client.u').out) == (fsid, key)
    assert skep.ceph('config', 'get', 'client', 'rbd_default_order').out == '21\n'


def test_sigint_stops_it_too(own):
    skep = own().start()
    os.kill(skep.proc.pid, signal.SIGINT)
    wait_until(lambda: skep.proc.poll() is not None, 60, what='the end of the server')
    assert skep.proc.returncode in (0, 130), skep.log_tail()


@pytest.mark.parametrize('osds', [1, 5])
def test_number_of_osds(own, osds):
    skep = own(osds=osds).start()
    assert skep.ceph('osd', 'ls').out.split() == [str(i) for i in range(osds)]
    assert skep.ceph_json('osd', 'stat')['num_up_osds'] == osds
    pool = skep.make_pool()
    skep.rados(pool, 'put', 'o', '-', stdin=b'x')


def test_second_start_on_a_running_directory(own):
    skep = own().start()
    one_clear_sentence(try_start(skep))
    skep.ceph('fsid')                                                     # the first is not disturbed


def test_directory_of_something_else(own):
    skep = own()
    skep.data.mkdir()
    (skep.data / 'holiday.jpg').write_bytes(b'not ours')
    one_clear_sentence(try_start(skep))
    assert {p.name for p in skep.data.iterdir()} <= {'holiday.jpg', 'lock'}
    assert (skep.data / 'holiday.jpg').read_bytes() == b'not ours'


def test_data_path_is_a_file(own):
    skep = own()
    skep.data.write_text('a file')
    try:
        one_clear_sentence(try_start(skep))
    finally:
        skep.data.unlink()


def test_read_only_directory(own):
    """As another user, since root writes anywhere."""
    skep = own()
    skep.data.mkdir(mode=0o555)
    as_nobody = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups']
    from skeptest.run import run
    binary = shutil.copy(find_binary(), '/tmp/skep-for-nobody-%d' % os.getpid())
    try:
        os.chmod(binary, 0o755)
        r = run(as_nobody + [binary] + skep.argv()[1:], check=None, timeout=60)
    finally:
        os.unlink(binary)
    one_clear_sentence(r)


def test_newer_format(own):
    """A directory written by a later version is refused, not tried."""
    skep = own().start()
    skep.stop()
    path = skep.data / 'skep.toml'
    text = path.read_text()
    assert 'format = 1\n' in text, text
    path.write_text(text.replace('format = 1\n', 'format = 9999\n'))
    said = one_clear_sentence(try_start(skep))
    assert '9999' in said and 'newer' in said, said
    path.write_text(text)
    skep.start()


def test_osd_directory_of_another_cluster(own):
    """One cluster's OSD under another cluster's monitor would be someone else's data."""
    one, two = own().start(), own().start()
    one.stop()
    two.stop()
    shutil.rmtree(two.data / 'osd.0')
    shutil.copytree(one.data / 'osd.0', two.data / 'osd.0')
    one_clear_sentence(try_start(two))


def test_missing_osd_directory(own):
    """An OSD whose directory is gone is not made anew in silence: its data would be taken as lost for good."""
    skep = own().start()
    skep.stop()
    shutil.move(skep.data / 'osd.1', skep.data.with_name(skep.data.name + '-elsewhere'))
    try:
        one_clear_sentence(try_start(skep))
    finally:
        shutil.rmtree(skep.data.with_name(skep.data.name + '-elsewhere'))


def test_authentication_none_only_on_loopback(own):
    skep = own(auth='none', options=['--bind', '0.0.0.0'])
    one_clear_sentence(try_start(skep))


@pytest.mark.parametrize('args', [['nosuch'], ['up', '--nosuch'], ['up', '--osds', '0'], ['up', '--osds', 'x'], ['up', '--auth', 'x']])
def test_bad_arguments(own, args):
    skep = own()
    r = skep.cli(*args, *(['--data', str(skep.data)] if args[0] == 'up' else []), check=None, timeout=60)
    assert r.returncode not in (0, 101) and (r.err.strip() or r.out.strip()) and 'panicked' not in r.err, r
    assert not skep.data.exists()


def test_help_and_version(own):
    skep = own()
    assert 'up' in skep.cli('--help').out and skep.cli('--version').out.startswith('skep ')
