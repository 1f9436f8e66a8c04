"""What lies in the pools: striped files by layout, backtraces, nothing of what was removed; and quotas and sums, which the server
keeps whatever a client thinks."""
import errno
import os
import struct

import cephfs
import pytest
import rados

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import wait_until


def setting(path, name, value):
    os.setxattr(path, 'ceph.' + name, str(value).encode())


@pytest.fixture(scope='module')
def pools(cluster):
    """Opens a pool, or a namespace of it."""
    with rados.Rados(conffile=str(cluster.conf)) as r:
        def opened(name, namespace=''):
            io = r.open_ioctx(name)
            io.set_namespace(namespace)
            return io
        yield opened


def objects(io, ino):
    return sorted(o.key for o in io.list_objects() if o.key.startswith('%x.' % ino))


def gather(io, ino, size, unit, count, object_size):
    """A file's bytes from its objects, by the rule of striping."""
    data, per = bytearray(size), object_size // unit
    for name in objects(io, ino):
        n, content = int(name.split('.')[1], 16), io.read(name, object_size)
        for row in range(per):
            piece = content[row * unit:(row + 1) * unit]
            at = ((n // count * per + row) * count + n % count) * unit
            data[at:at + len(piece)] = piece
    return bytes(data[:size])


def test_files_lie_as_their_layout_says(cluster, fs, mount, pools):
    second = unique('more')
    cluster.ceph('osd', 'pool', 'create', second, 8)
    cluster.ceph('fs', 'add_data_pool', fs, second)
    pool, apart, not_apart = pools('cephfs.%s.data' % fs), pools(second, 'apart'), pools(second)
    d = mount / unique('layouts')
    d.mkdir()
    content = os.urandom(700_001)
    (d / 'plain').write_bytes(content)
    assert gather(pool, (d / 'plain').stat().st_ino, len(content), 4 << 20, 1, 4 << 20) == content
    # Of a file; and of a directory, for what is made in it from then on.
    (d / 'own').touch()
    setting(d / 'own', 'file.layout', 'stripe_unit=65536 stripe_count=3 object_size=131072')
    (d / 'own').write_bytes(content)
    assert gather(pool, (d / 'own').stat().st_ino, len(content), 65536, 3, 131072) == content
    def told():
        try:
            setting(d, 'dir.layout', 'stripe_unit=131072 stripe_count=2 object_size=262144 pool=%s pool_namespace=apart' % second)
            return True
        except OSError as e:
            assert e.errno == errno.EINVAL, e
            return False
    wait_until(told, 60, 0.2, 'the metadata server to hear of the new pool')
    assert os.getxattr(d, 'ceph.dir.layout').decode() == \
        'stripe_unit=131072 stripe_count=2 object_size=262144 pool=%s pool_namespace=apart' % second
    (d / 'sub').mkdir()
    (d / 'sub/f').write_bytes(content)
    ino = (d / 'sub/f').stat().st_ino
    assert gather(apart, ino, len(content), 131072, 2, 262144) == content
    assert objects(pool, ino) == objects(not_apart, ino) == []
    with pytest.raises(OSError) as e:
        setting(d / 'own', 'file.layout.stripe_count', 2)
    assert e.value.errno == errno.ENOTEMPTY
    for bad in ['stripe_unit=65535', 'object_size=100000', 'stripe_count=0', 'pool=rbd-%s' % unique('no')]:
        with pytest.raises(OSError) as e:
            setting(d, 'dir.layout', bad)
        assert e.value.errno == errno.EINVAL, bad
    # Cut in the middle, then gone: nothing is left in either pool.
    os.truncate(d / 'sub/f', 200_000)
    assert gather(apart, ino, 200_000, 131072, 2, 262144) == content[:200_000]
    os.unlink(d / 'sub/f')
    wait_until(lambda: objects(apart, ino) == [], 60, 0.5, 'the objects to go')


def parse_backtrace(b):
    """Inode, and names with their directories, upward."""
    ino, n = struct.unpack_from('<QI', b, 6)
    at, names = 18, []
    for _ in range(n):
        length, = struct.unpack_from('<I', b, at + 2)
        dir_, size = struct.unpack_from('<QI', b, at + 6)
        names.append((dir_, b[at + 18:at + 18 + size].decode()))
        at += 6 + length
    return ino, names


def test_backtraces_say_where_objects_belong(fs, mount, pools):
    pool, meta = pools('cephfs.%s.data' % fs), pools('cephfs.%s.meta' % fs)
    top = unique('bt')
    (mount / top / 'dir').mkdir(parents=True)
    (mount / top / 'dir/f').write_text('x')
    (mount / top / 'empty').touch()
    d, f, e, t = ((mount / top / n).stat().st_ino for n in ('dir', 'dir/f', 'empty', '.'))

    def said(io, ino):
        try:
            return parse_backtrace(io.get_xattr('%x.00000000' % ino, 'parent'))
        except (rados.ObjectNotFound, rados.NoData):
            return None
    for where, ino, names in [(pool, f, [(d, 'f'), (t, 'dir'), (1, top)]), (pool, e, [(t, 'empty'), (1, top)]),
                              (meta, d, [(t, 'dir'), (1, top)])]:
        wait_until(lambda: said(where, ino) == (ino, names), 90, 0.5, 'the backtrace %s' % (names,))
    os.rename(mount / top / 'dir/f', mount / top / 'g')
    wait_until(lambda: said(pool, f) == (f, [(t, 'g'), (1, top)]), 90, 0.5, 'the new backtrace')
    for n in ('g', 'empty'):
        os.unlink(mount / top / n)
    os.rmdir(mount / top / 'dir')
    wait_until(lambda: not any(said(*o) for o in [(pool, f), (pool, e), (meta, d)]), 60, 0.5, 'all to go')


def test_the_server_keeps_quotas_too(cluster, fs, mount):
    """A client that does not look at quotas (`client_quota` off) is refused by the server."""
    d = unique('quota')
    (mount / d / 'sub').mkdir(parents=True)
    setting(mount / d, 'quota.max_files', 4)
    setting(mount / d, 'quota.max_bytes', 1 << 20)
    c = cephfs.LibCephFS(conffile=str(cluster.conf))
    c.conf_set('client_quota', 'false')
    c.mount(filesystem_name=fs.encode())
    try:
        def make(name):
            fd = c.open('/%s/sub/%s' % (d, name), 'w', 0o644)
            c.close(fd)
        make('a')
        make('b')

        def refused():
            try:
                make('c')
            except cephfs.Error as e:
                assert abs(e.errno) == errno.EDQUOT, e
                return True
            c.unlink('/%s/sub/c' % d)
            return False
        wait_until(refused, 60, 0.3, 'a refusal by the number of files')
        with pytest.raises(cephfs.Error) as e:
            c.mkdir('/%s/sub/more' % d, 0o755)
        assert abs(e.value.errno) == errno.EDQUOT
        with pytest.raises(cephfs.Error) as e:
            c.truncate('/%s/sub/a' % d, 2 << 20)
        assert abs(e.value.errno) == errno.EDQUOT
        c.truncate('/%s/sub/a' % d, 1 << 19)
        c.unlink('/%s/sub/b' % d)
        wait_until(lambda: not refused(), 60, 0.3, 'room for one more')
    finally:
        c.shutdown()
    # Nothing goes from under one quota to under another.
    def touched():
        try:
            (mount / d / 'sub/mine').touch()
            return True
        except OSError as e:
            # This client looks for itself, at what it has heard so far.
            assert e.errno == errno.EDQUOT, e
            return False
    wait_until(touched, 60, 0.3, 'room in the eyes of ceph-fuse')
    with pytest.raises(OSError) as e:
        os.rename(mount / d / 'sub/mine', mount / unique('out'))
    assert e.value.errno == errno.EXDEV


@pytest.mark.own
def test_sums_are_right_after_a_kill(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')

    def sums(path):
        return tuple(int(os.getxattr(path, 'ceph.dir.' + n)) for n in ('rbytes', 'rfiles', 'rsubdirs'))
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        expected = 0
        for i in range(30):
            d = a / ('t/%d/%d' % (i % 3, i % 2))
            d.mkdir(parents=True, exist_ok=True)
            (d / ('f%d' % i)).write_bytes(bytes(100 * i))
            expected += 100 * i
            if i in (10, 20):
                skep.restart()
                wait_active(skep, 'fs')
        skep.restart()
        wait_active(skep, 'fs')
        wait_until(lambda: sums(a / 't') == (expected, 30, 10), 60, 0.3, 'sums of all')
        os.rename(a / 't/0', a / 'out')
        skep.restart()
        wait_active(skep, 'fs')
        wait_until(lambda: tuple(map(sum, zip(sums(a / 't'), sums(a / 'out')))) == (expected, 30, 10), 60, 0.3, 'sums of both')
