"""Files whose data lie in an erasure-coded pool, which a directory's layout names."""
import os

import pytest

from skeptest.cluster import unique
from skeptest.coded import make_coded
from skeptest.mounts import mounted
from skeptest.run import wait_until

MIB = 1 << 20


@pytest.fixture(scope='module')
def coded(cluster, fs):
    pool = make_coded(cluster, 2, 1, app='cephfs')
    cluster.ceph('fs', 'add_data_pool', fs, pool)
    return pool


def set_layout(directory, pool):
    try:
        os.setxattr(directory, 'ceph.dir.layout.pool', pool.encode())
        return True
    except OSError:
        return False


def test_files_in_a_coded_pool(cluster, fs, coded, mount, tmp_path):
    d = mount / unique('coded')
    d.mkdir()
    wait_until(lambda: set_layout(d, coded), 60, 0.2, 'the metadata server to hear of the new pool')
    content = bytearray(os.urandom(9 * MIB + 321))
    (d / 'f').write_bytes(content)
    held = lambda: [o for o in cluster.rados(coded, 'ls').out.split() if o.startswith('%x.' % ino)]
    ino = (d / 'f').stat().st_ino
    # Over ends of stripes (8 KiB) and of objects (4 MiB), behind the end, and cut off in a stripe.
    for at, size in [(1, 1), (8191, 2), (4 * MIB - 5000, 10_000), (9 * MIB, 70_000), (10 * MIB + 7, 100)]:
        piece = os.urandom(size)
        with open(d / 'f', 'r+b') as f:
            f.seek(at)
            f.write(piece)
            os.fsync(f.fileno())
        content.extend(bytes(max(0, at + size - len(content))))
        content[at:at + size] = piece
    os.truncate(d / 'f', 9 * MIB + 5)
    del content[9 * MIB + 5:]
    (d / '.snap/before').mkdir()
    with open(d / 'f', 'r+b') as f:
        f.write(b'after')
    assert len(held()) == 3
    with mounted(cluster, tmp_path / 'other', fs=fs) as other:
        seen = other / d.name
        assert (seen / '.snap/before/f').read_bytes() == content
        content[:5] = b'after'
        assert (seen / 'f').read_bytes() == content
    (d / '.snap/before').rmdir()
    os.unlink(d / 'f')
    wait_until(lambda: held() == [], 60, 0.5, 'the objects to go')


def test_pools_that_files_cannot_lie_in(cluster, fs):
    plain = make_coded(cluster, 2, 1, overwrites=False, app='cephfs')
    said = cluster.ceph('fs', 'add_data_pool', fs, plain, check='fails').err
    assert 'with no overwrite support' in said
    data = unique('data')
    cluster.ceph('osd', 'pool', 'create', data, 8)
    said = cluster.ceph('fs', 'new', unique('fs'), plain, data, check='fails').err
    assert 'metadata is not permitted' in said
    for pool in [plain, data]:
        cluster.drop_pool(pool)
