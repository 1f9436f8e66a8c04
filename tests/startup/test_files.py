"""Who may read what lies in the data directory: its owner."""
import os
import stat

import pytest

pytestmark = pytest.mark.own


def modes(data):
    """Path and mode of everything that is not a link."""
    out = {}
    for at, dirs, files in os.walk(data):
        for name in dirs + files:
            path = os.path.join(at, name)
            mode = os.lstat(path).st_mode
            if not stat.S_ISLNK(mode):
                out[os.path.relpath(path, data)] = (stat.S_ISDIR(mode), stat.S_IMODE(mode))
    return out


def check(data):
    found = modes(data)
    assert os.stat(data).st_mode & 0o077 == 0
    loose = {p: oct(m) for p, (is_dir, m) in found.items() if m & (0o077 if is_dir else 0o177)}
    assert not loose, loose
    for name in ('osd.0/block', 'skep.asok', 'ceph.client.admin.keyring', 'skep.toml'):
        assert name in found, sorted(found)


def test_nobody_else_reads_the_data_whatever_the_umask(own):
    """`osd.N/block` could be read by every user of the host."""
    old = os.umask(0)
    try:
        skep = own()
        skep.data.mkdir(mode=0o777, parents=True, exist_ok=True)
        skep.start()
    finally:
        os.umask(old)
    check(skep.data)
    # As an earlier version left it.
    skep.stop()
    for path, (is_dir, _) in modes(skep.data).items():
        os.chmod(skep.data / path, 0o755 if is_dir else 0o644)
    skep.start()
    check(skep.data)
