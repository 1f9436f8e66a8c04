"""Many small objects through one client. Each `rados put` or `get` is a client of its own, 35 ms of the processor and the connections
that it makes: where a test is about what became of the objects, one is enough.
"""
from skeptest.api import connect, in_child

LONGEST = 4 << 20
LIMIT_S = 180


def put(cluster, pool, contents):
    """Writes each of `contents` (bytes by name) as a whole; returns when all are acknowledged."""
    def run():
        cluster.enter()
        with connect(cluster).open_ioctx(pool) as io:
            for name, data in contents.items():
                io.write_full(name, data)
    in_child(run, timeout=LIMIT_S)


def get(cluster, pool, names, snap=None):
    """What each of these objects holds, by name; with `snap`, in this snapshot of the pool."""
    def run():
        cluster.enter()
        with connect(cluster).open_ioctx(pool) as io:
            if snap:
                io.set_read(io.lookup_snap(snap).snap_id)
            return {name: io.read(name, LONGEST) for name in names}
    got = in_child(run, timeout=LIMIT_S)
    assert all(len(data) < LONGEST for data in got.values())
    return got
