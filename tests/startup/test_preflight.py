"""`skep preflight`: what it finds on this machine, and what would keep a start from succeeding."""
import json
import socket

from skeptest.run import run
from skeptest.skep import find_binary, free_port


def preflight(*args, check=0):
    argv = [find_binary(), 'preflight', '--seconds', '1', '--metrics-port', '0', *args]
    return run(argv, check=check)


def findings(*args, check=0):
    return {f['about']: f for f in json.loads(preflight(*args, '-f', 'json', check=check).out)}


def ports():
    return ['--mon-port', free_port(), '--msgr1-port', free_port()]


def test_a_machine_that_will_do(tmp_path):
    found = findings('--data', tmp_path / 'a' / 'b', *ports())
    flushes = found['flushes of %s' % tmp_path]
    assert 'a durable write of 4 KiB takes' in flushes['text'], flushes
    assert {'clock', 'memory', 'descriptors', 'io_uring', 'address', 'folder %s' % (tmp_path / 'a' / 'b')} <= set(found)
    assert all(f['verdict'] in ('good', 'warning') for f in found.values()), found
    # Nothing is left, and nothing was made.
    assert not list(tmp_path.iterdir())
    plain = preflight('--data', tmp_path, *ports()).out
    assert len(plain.splitlines()) == len(found) and all(l.split()[0] in ('good', 'warning') for l in plain.splitlines())


def test_what_would_keep_it_from_starting(tmp_path):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = preflight('--data', tmp_path, '--mon-port', port, '--msgr1-port', 'none', check=1)
        assert '127.0.0.1:%d is taken' % port in said.out and '1 of these would keep' in said.err, said
        # S3 is served when it can, and all else before.
        found = findings('--data', tmp_path, '--s3', '--s3-listen', '127.0.0.1:%d' % port, *ports())
        assert found['port %d' % port]['verdict'] == 'warning', found
    found = findings('--data', tmp_path, '--bind', '192.0.2.77', '--device', '/dev/null', *ports(), check=1)
    assert found['address']['verdict'] == 'bad' and 'not one of this machine' in found['address']['text']
    assert found['device /dev/null']['text'] == 'not a block device'
    # An etcd that is not there, and an address that others cannot reach.
    dead = 'http://127.0.0.1:%d' % free_port()
    found = findings('--data', tmp_path, '--etcd', dead, '--bind', '127.0.0.1', *ports(), check=1)
    assert found['etcd']['verdict'] == 'bad' and found['address']['verdict'] == 'warning', found


def test_the_options_of_a_file_hold(tmp_path):
    (tmp_path / 'skep.toml').write_text('osds = 7\nosd-memory = "64M"\n')
    found = findings('--data', tmp_path, '--config', tmp_path / 'skep.toml', *ports())
    assert 'for 7 OSDs of 64 MiB' in found['memory']['text'], found['memory']
