"""python3-rados: handles, object I/O, asynchronous I/O, omap, xattrs, snapshots, watch and notify, locks,
commands, statistics, as programs (OpenStack, Proxmox, scripts) use them."""
import hashlib
import hmac
import json
import os
import struct
import threading
import time

import pytest

from skeptest.api import connect, in_child
from skeptest.cluster import external


@pytest.fixture
def call(cluster, pool):
    """Runs a test body with an open ioctx in a child process."""
    def run(body, *args):
        def inner():
            handle = connect(cluster)
            try:
                with handle.open_ioctx(pool) as io:
                    return body(handle, io, *args)
            finally:
                handle.shutdown()
        return in_child(inner)
    return run


def test_handle(call, cluster):
    def body(handle, io):
        return handle.get_fsid(), handle.get_instance_id(), handle.list_pools(), handle.get_cluster_stats()
    fsid, instance, pools, stats = call(body)
    assert fsid == cluster.ceph('fsid').out.strip() and instance > 0 and pools
    assert {'kb', 'kb_used', 'kb_avail', 'num_objects'} == set(stats) and stats['kb'] > 0, stats


def test_pool_create_and_delete(call):
    def body(handle, io):
        name = 'api-%d' % os.getpid()
        handle.create_pool(name)
        assert handle.pool_exists(name) and handle.pool_reverse_lookup(handle.pool_lookup(name)) == name
        handle.delete_pool(name)
        assert not handle.pool_exists(name)
    call(body)


def test_object_io(call, oid):
    def body(handle, io):
        import rados
        data = os.urandom(3 << 20)
        io.write_full(oid, data)
        assert io.read(oid, len(data)) == data
        io.write(oid, b'patch', 1000)
        io.append(oid, b'end')
        expected = data[:1000] + b'patch' + data[1005:] + b'end'
        assert io.read(oid, len(expected) + 10) == expected
        assert io.read(oid, 5, 1000) == b'patch' and io.read(oid, 5, len(expected)) == b''
        assert io.stat(oid)[0] == len(expected)
        io.trunc(oid, 1002)
        assert io.read(oid, 99999) == expected[:1002]
        io.remove_object(oid)
        with pytest.raises(rados.ObjectNotFound):
            io.stat(oid)
        with pytest.raises(rados.ObjectNotFound):
            io.read(oid)
    call(body)


def test_many_asynchronous_writes(call, oid):
    """Hundreds in flight; each completion is called back once; all data is there."""
    def body(handle, io):
        lock, done = threading.Lock(), []

        def safe(completion, i):
            with lock:
                done.append(i)
        completions = [io.aio_write_full('%s-%d' % (oid, i), b'%06d' % i * 700, oncomplete=lambda c, i=i: safe(c, i))
                       for i in range(400)]
        for c in completions:
            c.wait_for_complete_and_cb()
            assert c.get_return_value() == 0
        assert sorted(done) == list(range(400))
        for i in range(0, 400, 7):
            assert io.read('%s-%d' % (oid, i), 5000) == b'%06d' % i * 700
    call(body)


def test_writes_of_one_object_stay_in_order(call, oid):
    def body(handle, io):
        completions = [io.aio_append(oid, b'%04d' % i) for i in range(300)]
        for c in completions:
            c.wait_for_complete()
        assert io.read(oid, 10000) == b''.join(b'%04d' % i for i in range(300))
    call(body)


def test_compound_operations_are_atomic(call, oid):
    def body(handle, io):
        import rados
        with rados.WriteOpCtx() as op:
            op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
            op.write_full(b'content')
            op.set_xattr('a', b'1')
            io.set_omap(op, ('k',), (b'v',))
            io.operate_write_op(op, oid)
        with rados.WriteOpCtx() as op:                     # fails as a whole: the object exists
            op.append(b'must not appear')
            op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
            with pytest.raises(rados.ObjectExists):
                io.operate_write_op(op, oid)
        assert io.read(oid) == b'content' and io.get_xattr(oid, 'a') == b'1'
    call(body)


def test_omap_pages_and_ranges(call, oid):
    def body(handle, io):
        import rados
        keys = tuple('key%05d' % i for i in range(2500))
        with rados.WriteOpCtx() as op:
            io.set_omap(op, keys, tuple(k.encode() * 3 for k in keys))
            io.operate_write_op(op, oid)
        got, after = [], ''
        while True:                                        # a server answers with at most so many at once
            with rados.ReadOpCtx() as op:
                it, _ = io.get_omap_vals(op, after, '', 1000)
                io.operate_read_op(op, oid)
                page = list(it)
            if not page:
                break
            got += page
            after = page[-1][0]
        assert got == [(k, k.encode() * 3) for k in keys]
        with rados.ReadOpCtx() as op:
            it, _ = io.get_omap_vals(op, '', 'key0001', 100)
            io.operate_read_op(op, oid)
            assert [k for k, _ in it] == ['key0001%d' % i for i in range(10)]
        with rados.ReadOpCtx() as op:
            it, _ = io.get_omap_vals_by_keys(op, ('key00000', 'none', 'key02499'))
            io.operate_read_op(op, oid)
            assert [k for k, _ in it] == ['key00000', 'key02499']
        with rados.WriteOpCtx() as op:
            io.remove_omap_keys(op, keys[:2499])
            io.operate_write_op(op, oid)
        with rados.ReadOpCtx() as op:
            it, _ = io.get_omap_keys(op, '', 10)
            io.operate_read_op(op, oid)
            assert [k for k, _ in it] == ['key02499']
    call(body)


def test_xattrs(call, oid):
    def body(handle, io):
        import rados
        io.write_full(oid, b'x')
        io.set_xattr(oid, 'a', b'\x00\xff')
        io.set_xattr(oid, 'b', b'y' * 60000)
        assert dict(io.get_xattrs(oid)) == {'a': b'\x00\xff', 'b': b'y' * 60000}
        io.rm_xattr(oid, 'a')
        with pytest.raises(rados.NoData):
            io.get_xattr(oid, 'a')
    call(body)


def test_self_managed_snapshots(cluster):
    """As librbd uses them: the client carries the snapshot context."""
    pool = cluster.make_pool()

    def body():
        handle = connect(cluster)
        with handle.open_ioctx(pool) as io:
            io.write_full('o', b'one')
            first = io.create_self_managed_snap()
            io.set_self_managed_snap_write([first])
            io.write_full('o', b'two')
            second = io.create_self_managed_snap()
            assert second > first
            io.set_self_managed_snap_write([second, first])
            io.write_full('o', b'three')
            io.set_read(first)
            assert io.read('o') == b'one'
            io.set_read(second)
            assert io.read('o') == b'two'
            io.set_read((1 << 64) - 2)                     # the head
            assert io.read('o') == b'three'
            io.rollback_self_managed_snap('o', first)
            assert io.read('o') == b'one'
            io.remove_self_managed_snap(first)
            io.remove_self_managed_snap(second)
        handle.shutdown()
    try:
        in_child(body)
    finally:
        cluster.drop_pool(pool)


def test_watch_and_notify(call, oid):
    def body(handle, io):
        io.write_full(oid, b'x')
        seen = []
        with io.watch(oid, lambda notify_id, notifier, watch_id, data: seen.append(data)) as watch:
            assert watch.check() is not None
            assert io.notify(oid, 'message')
            assert seen == [b'message'], seen
        assert io.notify(oid, 'nobody hears it')
        assert seen == [b'message']
    call(body)


def test_locks(call, oid):
    def body(handle, io):
        import rados
        io.lock_exclusive(oid, 'lock', 'cookie', 'desc', 60)
        with pytest.raises(rados.ObjectExists):
            io.lock_exclusive(oid, 'lock', 'cookie')
        with pytest.raises(rados.ObjectBusy):
            io.lock_shared(oid, 'lock', 'other', 'tag')
        io.unlock(oid, 'lock', 'cookie')
        io.lock_shared(oid, 'lock', 'one', 'tag')
        io.lock_shared(oid, 'lock', 'two', 'tag')
        with pytest.raises(rados.ObjectNotFound):
            io.unlock(oid, 'lock', 'three')
    call(body)


def test_execute_a_class_method(call, oid):
    def body(handle, io):
        import rados
        io.write_full(oid, b'')
        assert io.execute(oid, 'hello', 'say_hello', b'Skep')[1] == b'Hello, Skep!'
        with pytest.raises(rados.Error):
            io.execute(oid, 'hello', 'no_such_method', b'')
        with pytest.raises(rados.Error):
            io.execute(oid, 'no_such_class', 'm', b'')
    call(body)


def test_classes_that_are_not_served(call, oid):
    """docs/compatibility.md names them."""
    if external():
        pytest.skip('a real one serves them')

    def body(handle, io):
        import errno
        import rados
        io.write_full(oid, b'')
        with pytest.raises(rados.Error) as refused:
            io.execute(oid, 'cephfs', 'accumulate_inode_metadata', b'')
        assert refused.value.errno == errno.EOPNOTSUPP, refused.value
    call(body)


def test_one_time_codes(call, oid):
    """Class otp, called as radosgw-admin's mfa commands call it."""
    def body(handle, io):
        seed, step = b'12345678901234567890', 3600

        def text(value):
            return struct.pack('<I', len(value)) + value

        def part(body):
            return b'\1\1' + text(body)

        def code(ahead):
            mac = hmac.new(seed, struct.pack('>Q', int(time.time()) // step + ahead), hashlib.sha1).digest()
            at = mac[-1] & 15
            return b'%06d' % ((struct.unpack('>I', mac[at:at + 4])[0] & 0x7fffffff) % 1000000)

        def outcome(pin, token):
            asked = part(text(b'phone') + text(pin) + text(token))
            io.execute(oid, 'otp', 'otp_check', asked)
            return io.execute(oid, 'otp', 'otp_get_result', asked)[1][-1]

        # An hour may begin while this runs: the window is of three.
        device = b'\2' + text(b'phone') + text(seed.hex().encode()) + b'\1' + text(b'') + struct.pack('<iII', 0, step, 3)
        io.execute(oid, 'otp', 'otp_set', part(struct.pack('<I', 1) + part(device)))
        right, wrong, unknown = 1, 2, 0
        first, second = code(0), code(1)
        assert outcome(first, b'a') == right
        assert outcome(first, b'b') == wrong, 'it counts once'
        assert outcome(b'no', b'c') == wrong
        assert outcome(second, b'd') == right
        assert outcome(first, b'e') == wrong, 'none of before the last'
        assert outcome(code(2), b'f') == unknown, 'five attempts in a step'
    call(body)


def test_namespaces(call, oid):
    def body(handle, io):
        import rados
        io.write_full(oid, b'plain')
        io.set_namespace('ns-' + oid)
        io.write_full(oid, b'spaced')
        assert [o.key for o in io.list_objects()] == [oid]
        io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
        assert ('ns-' + oid, oid) in [(o.nspace, o.key) for o in io.list_objects()]
        io.set_namespace('')
        assert io.read(oid) == b'plain'
    call(body)


def test_commands(call):
    def body(handle, io):
        code, out, status = handle.mon_command(json.dumps({'prefix': 'osd stat', 'format': 'json'}), b'')
        assert code == 0 and json.loads(out)['num_up_osds'] >= 1, (code, out, status)
        code, out, status = handle.mon_command(json.dumps({'prefix': 'no such command'}), b'')
        assert code == -22, (code, out, status)
        code, out, status = handle.osd_command(0, json.dumps({'prefix': 'version'}), b'')
        assert code == 0 and b'version' in out, (code, out, status)
    call(body)


def test_large_object_up_to_the_limit(call, oid):
    """An object may grow to 128 MiB; a write beyond it is refused, not cut."""
    def body(handle, io):
        import rados
        io.write(oid, b'last', (128 << 20) - 4)
        assert io.stat(oid)[0] == 128 << 20
        with pytest.raises(rados.Error):
            io.write(oid, b'x', 128 << 20)
        assert io.stat(oid)[0] == 128 << 20
        assert io.read(oid, 8, (128 << 20) - 8) == b'\0\0\0\0last'
        io.remove_object(oid)
    call(body)


def test_following_the_log(call):
    """A level takes the place of the one before; `None` ends it. The first line is the newest that there is: python3-rados'
    own test waits for one, and nothing else happens meanwhile."""
    def body(handle, io):
        import rados
        got, came = [], threading.Condition()

        def heard(arg, line, who, sec, nsec, seq, level, msg):
            with came:
                got.append((arg, level, msg))
                came.notify()
            return 0

        def say(level, text):
            code, _, status = handle.mon_command(json.dumps({'prefix': 'log', 'level': level, 'logtext': [text]}), b'')
            assert code == 0, status

        def wait(arg, level, text):
            with came:
                assert came.wait_for(lambda: any(g == (arg, level, text.encode()) for g in got), 30), (text, got)

        say('error', 'newest')
        rados.MonitorLog(handle, 'debug', heard, 'first')
        wait('first', b'[ERR]', 'newest')
        for level, quieter in (('info', 'debug'), ('sec', 'info'), ('warn', 'sec'), ('error', 'warn')):
            rados.MonitorLog(handle, level, heard, level)
            say(quieter, 'unheard at ' + level)
            say('error', 'heard at ' + level)
            wait(level, b'[ERR]', 'heard at ' + level)
        heard_lines = [m for _, _, m in got]
        assert not any(m.startswith(b'unheard') for m in heard_lines), got
        assert sum(m.startswith(b'heard at') for m in heard_lines) == 4, got
        rados.MonitorLog(handle, 'error', None, None)
        assert handle.monitor_callback is None
        say('error', 'after the end')
        rados.MonitorLog(handle, 'info', heard, 'again')
        say('info', 'once more')
        wait('again', b'[INF]', 'once more')
        assert not any(g[0] == 'error' and g[2] == b'after the end' for g in got), got
    call(body)
