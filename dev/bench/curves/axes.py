"""What grows: one axis each, with how a cluster gets there and what is looked at besides an operation's cost.

An axis is told to `grow` to each of its steps in turn, on one cluster of its own; `probe` gives what only this axis has. Steps
beyond LARGE are taken with --large only.
"""
import json
import random
import threading
import time

import rados
import rbd

from block.commands import Failed
from block.servers import IMAGE, POOL
from curves.crowd import Crowd

UNDER_WAY = 64                                 # operations of a client that fills
KEYS_AT_ONCE = 1000
TRIES = 20                                     # of a probe, for its median
IMAGE_BYTES = 4 << 20


def seconds_of(step):
    began = time.monotonic()
    step()
    return time.monotonic() - began


def median_ms(step, tries=TRIES):
    times = sorted(seconds_of(lambda: step(n)) for n in range(tries))
    return times[tries // 2] * 1000


class Axis:
    """Connected as a client while it lives."""

    anew = False

    def __init__(self, server):
        self.server = server
        self.handle = rados.Rados(conffile=str(server.conf), name='client.admin')
        self.handle.connect(timeout=30)
        self.io = self.handle.open_ioctx(POOL)

    def probe(self, x):
        return {}

    def end(self):
        self.io.close()
        self.handle.shutdown()


class Objects(Axis):
    name, unit, steps, large = 'objects', 'objects of 512 bytes in a pool', [10_000, 100_000, 1_000_000], 10_000_000

    def __init__(self, server):
        super().__init__(server)
        self.have = 0

    def grow(self, x):
        room, failed = threading.Semaphore(UNDER_WAY), []
        data = b'x' * 512

        def ended(completion):
            if completion.get_return_value() < 0:
                failed.append(completion.get_return_value())
            room.release()
        for n in range(self.have, x):
            room.acquire()
            self.io.aio_write_full(f'o{n}', data, oncomplete=ended)
        self.io.aio_flush()
        if failed:
            raise Failed(f'{len(failed)} of {x} writes failed, the first with {failed[0]}')
        self.have = x

    def probe(self, x):
        def listed(_):
            objects = self.io.list_objects()
            for _ in range(1000):
                next(objects)
        return {
            'list 1,000, ms': median_ms(listed, 5),
            'read one, ms': median_ms(lambda n: self.io.read(f'o{random.randrange(x)}')),
        }


class Pgs(Axis):
    name, unit, steps, large = 'pgs', 'PGs of three copies on three OSDs', [32, 320, 3200], 10_000

    def grow(self, x):
        have = sum(p['pg_num'] for p in json.loads(self.server.ceph('osd', 'pool', 'ls', 'detail', '-f', 'json')))
        if x > have:
            more = str(x - have)
            self.server.ceph('config', 'set', 'global', 'mon_max_pg_per_osd', '100000')
            self.server.ceph('osd', 'pool', 'create', f'more{x}', more, more, '--autoscale-mode=off')
            end = time.monotonic() + 300
            while not self.server.clean():
                if time.monotonic() > end:
                    raise Failed(f'{x} PGs are not clean after 300 s')
                time.sleep(0.5)

    def probe(self, x):
        return {'ceph pg dump, ms': median_ms(lambda _: self.server.ceph('pg', 'dump', '-f', 'json'), 3)}


class Images(Axis):
    name, unit, steps, large = 'images', 'images in a pool', [100, 1000, 10_000], 100_000

    def __init__(self, server):
        super().__init__(server)
        self.have = 0

    def grow(self, x):
        for n in range(self.have, x):
            rbd.RBD().create(self.io, f'i{n}', IMAGE_BYTES, features=1)
        self.have = x

    def probe(self, x):
        def opened(_):
            rbd.Image(self.io, f'i{random.randrange(x)}').close()
        return {
            'rbd ls, ms': median_ms(lambda _: self.server.rbd('ls', POOL), 3),
            'open, ms': median_ms(opened),
            'create and remove, ms': median_ms(lambda n: (rbd.RBD().create(self.io, f't{n}', IMAGE_BYTES, features=1),
                                                           rbd.RBD().remove(self.io, f't{n}'))),
        }


class Snapshots(Axis):
    name, unit, steps, large = 'snapshots', 'snapshots of the image that is written', [10, 100, 1000], 1000

    def __init__(self, server):
        super().__init__(server)
        self.have = 0

    def grow(self, x):
        with rbd.Image(self.io, IMAGE) as image:
            for n in range(self.have, x):
                image.create_snap(f's{n}')
        self.have = x

    def probe(self, x):
        def opened(_):
            rbd.Image(self.io, IMAGE, read_only=True).close()
        with rbd.Image(self.io, IMAGE) as image:
            made = median_ms(lambda n: (image.create_snap(f't{n}'), image.remove_snap(f't{n}')), 5)
        return {'open, ms': median_ms(opened), 'snapshot made and removed, ms': made}


class CloneDepth(Axis):
    name, unit, steps, large = 'clone-depth', 'images behind one another, read through all of them', [1, 10, 100], 100

    def __init__(self, server):
        super().__init__(server)
        rbd.RBD().create(self.io, 'depth0', IMAGE_BYTES, old_format=False, features=1)
        with rbd.Image(self.io, 'depth0') as image:
            image.write(b'x' * 65536, 0)
        self.have = 0

    def grow(self, x):
        for n in range(self.have, x):
            with rbd.Image(self.io, f'depth{n}') as image:
                image.create_snap('s')
                image.protect_snap('s')
            rbd.RBD().clone(self.io, f'depth{n}', 's', self.io, f'depth{n + 1}', features=1)
        self.have = x

    def probe(self, x):
        def opened(_):
            rbd.Image(self.io, f'depth{x}', read_only=True).close()
        with rbd.Image(self.io, f'depth{x}', read_only=True) as image:
            read = median_ms(lambda n: image.read(4096 * (n % 16), 4096))
        return {'open, ms': median_ms(opened, 5), 'read through all, ms': read}


class OmapKeys(Axis):
    name, unit, steps, large = 'omap-keys', 'omap keys of 64 bytes in one object', [10_000, 100_000, 1_000_000], 10_000_000

    def __init__(self, server):
        super().__init__(server)
        self.have = 0

    def keys(self, first, count):
        with rados.WriteOpCtx() as op:
            names = tuple(f'key{n:010}' for n in range(first, first + count))
            self.io.set_omap(op, names, (b'v' * 64,) * count)
            self.io.operate_write_op(op, 'omap')

    def grow(self, x):
        for first in range(self.have, x, KEYS_AT_ONCE):
            self.keys(first, min(KEYS_AT_ONCE, x - first))
        self.have = x

    def probe(self, x):
        def got(_):
            with rados.ReadOpCtx() as op:
                values, _ = self.io.get_omap_vals(op, f'key{random.randrange(x):010}', '', 100)
                self.io.operate_read_op(op, 'omap')
                list(values)
        return {
            'set one, ms': median_ms(lambda _: self.keys(random.randrange(x), 1)),
            'get 100, ms': median_ms(got),
        }


class Connections(Axis):
    """They end with the server that each step kills, and are opened anew."""

    name, unit, steps, large = 'connections', 'clients that are connected and idle', [20, 200, 2_000], 6_000

    def __init__(self, server):
        super().__init__(server)
        self.crowd = None

    def grow(self, x):
        if self.crowd:
            self.crowd.end()
        osds = json.loads(self.server.ceph('osd', 'dump', '-f', 'json'))['osds']
        v2 = [next(a for a in o['public_addrs']['addrvec'] if a['type'] == 'v2') for o in osds]
        addrs = [(*a['addr'].rsplit(':', 1), a['nonce']) for a in v2]
        self.crowd = Crowd([(ip, int(port), nonce) for ip, port, nonce in addrs])
        took = seconds_of(lambda: self.crowd.grow(x))
        self.connecting_ms = took / x * 1000

    def probe(self, x):
        alive = self.crowd.alive()
        if alive != x:
            raise Failed(f'of {x} clients {x - alive} have lost their connections')
        return {'connect, ms': self.connecting_ms}

    def end(self):
        if self.crowd:
            self.crowd.end()
        super().end()


class Osds(Axis):
    """A cluster of its own for each step."""

    name, unit, steps, large = 'osds', 'OSDs in one process', [3, 8, 16, 32], 64
    anew = True

    def grow(self, x):
        if len(json.loads(self.server.ceph('osd', 'ls', '-f', 'json'))) != x:
            raise Failed(f'not {x} OSDs')


AXES = {axis.name: axis for axis in (Objects, Pgs, Images, Snapshots, CloneDepth, OmapKeys, Connections, Osds)}
