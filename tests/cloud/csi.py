"""What ceph-csi does for Kubernetes volumes of type rbd, call by call, over the stock libraries, for test_csi.py. Arguments: ceph.conf, user,
keyring, pool.

Source: ceph/ceph-csi, internal/journal (names and keys of the journal's omaps) and internal/rbd, by go-ceph; here by python3-rados and
python3-rbd, which call the same functions of the same libraries.
"""
import json
import sys
import time
import uuid

import rados
import rbd

CONF, USER, KEYRING, POOL = sys.argv[1:5]
MIB = 1 << 20
FEATURES = (rbd.RBD_FEATURE_LAYERING | rbd.RBD_FEATURE_EXCLUSIVE_LOCK | rbd.RBD_FEATURE_OBJECT_MAP | rbd.RBD_FEATURE_FAST_DIFF
            | rbd.RBD_FEATURE_DEEP_FLATTEN)
DIRECTORY = {'volume': 'csi.volumes.default', 'snap': 'csi.snaps.default'}


def part(name):
    print('part', name, flush=True)


class Journal:
    """Which image stands for which name that Kubernetes gave."""

    def __init__(self, ioctx, kind):
        self.ioctx, self.kind = ioctx, kind

    def _get(self, oid, keys):
        with rados.ReadOpCtx() as op:
            rows, _ = self.ioctx.get_omap_vals_by_keys(op, tuple(keys))
            self.ioctx.operate_read_op(op, oid)
            return {k: v.decode() for k, v in rows}

    def set(self, oid, pairs):
        with rados.WriteOpCtx() as op:
            self.ioctx.set_omap(op, tuple(pairs), tuple(v.encode() for v in pairs.values()))
            self.ioctx.operate_write_op(op, oid)

    def check(self, name):
        """The reservation of the name: its own omap's values, or None."""
        key = 'csi.%s.%s' % (self.kind, name)
        try:
            found = self._get(DIRECTORY[self.kind], [key])
        except rados.ObjectNotFound:
            return None
        if key not in found:
            return None
        oid = 'csi.%s.%s' % (self.kind, found[key])
        with rados.ReadOpCtx() as op:
            rows, _ = self.ioctx.get_omap_vals(op, '', 'csi.', 512)
            self.ioctx.operate_read_op(op, oid)
            return {'uuid': found[key], **{k: v.decode() for k, v in rows}}

    def reserve(self, name, source=None):
        """A new image's name. The uuid is new: its omap is made, and must not be there yet."""
        one = str(uuid.uuid4())
        oid = 'csi.%s.%s' % (self.kind, one)
        with rados.WriteOpCtx() as op:
            op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
            self.ioctx.operate_write_op(op, oid)
        try:
            with rados.WriteOpCtx() as op:
                op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
                self.ioctx.operate_write_op(op, oid)
            raise SystemExit('an omap was made twice')
        except rados.ObjectExists:
            pass
        self.set(DIRECTORY[self.kind], {'csi.%s.%s' % (self.kind, name): one})
        image = 'csi-%s-%s' % ('vol' if self.kind == 'volume' else 'snap', one)
        pairs = {'csi.volname' if self.kind == 'volume' else 'csi.snapname': name, 'csi.imagename': image}
        self.set(oid, {**pairs, 'csi.source': source} if source else pairs)
        return image

    def undo(self, name, image):
        self.ioctx.remove_object('csi.%s.%s' % (self.kind, image[-36:]))
        with rados.WriteOpCtx() as op:
            self.ioctx.remove_omap_keys(op, ('csi.%s.%s' % (self.kind, name),))
            self.ioctx.operate_write_op(op, DIRECTORY[self.kind])


class Driver:
    def __init__(self, cluster, ioctx):
        self.cluster, self.ioctx, self.rbd = cluster, ioctx, rbd.RBD()
        self.volumes, self.snaps = Journal(ioctx, 'volume'), Journal(ioctx, 'snap')

    def manager(self, prefix, **args):
        code, out, why = self.cluster.mgr_command(json.dumps({'prefix': prefix, 'format': 'json', **args}), b'')
        assert code == 0, (prefix, code, why)
        return json.loads(out) if out else None

    def image(self, name, **kw):
        return rbd.Image(self.ioctx, name, **kw)

    def create(self, name, size):
        found = self.volumes.check(name)
        if found:
            # The same request again: what is there is given.
            with self.image(found['csi.imagename'], read_only=True) as image:
                assert image.size() == size
            return found['csi.imagename']
        image = self.volumes.reserve(name)
        self.rbd.create(self.ioctx, image, size, old_format=False, features=FEATURES)
        self.known(self.volumes, image, {'csi.storage.k8s.io/pvc/name': name, 'csi.ceph.com/cluster/name': 'k8s'})
        return image

    def known(self, journal, name, metadata):
        with self.image(name) as image:
            journal.set('csi.%s.%s' % (journal.kind, name[-36:]), {'csi.imageid': image.id()})
            for key, value in metadata.items():
                image.metadata_set(key, value)

    def clone(self, parent, snap, child):
        """By the newer way, which needs no protection: a snapshot that is removed then goes to the trash."""
        self.rbd.clone(self.ioctx, parent, snap, self.ioctx, child, features=FEATURES)

    def snapshot(self, name, source):
        """A snapshot is an image of its own: a clone, with a snapshot from which volumes are cloned."""
        image = self.snaps.reserve(name, source)
        with self.image(source) as parent:
            parent.create_snap(image)
        self.clone(source, image, image)
        with self.image(source) as parent:
            parent.remove_snap(image)
            assert [s['namespace'] for s in parent.list_snaps()] == [rbd.RBD_SNAP_NAMESPACE_TYPE_TRASH]
        with self.image(image) as clone:
            clone.create_snap(image)
        self.known(self.snaps, image, {'csi.storage.k8s.io/volumesnapshot/name': name})
        return image

    def restore(self, name, snap):
        image = self.volumes.reserve(name)
        self.clone(snap, snap, image)
        self.known(self.volumes, image, {})
        return image

    def copy(self, name, source):
        """A volume from a volume, with an image between that goes at once."""
        image = self.volumes.reserve(name)
        between = image + '-temp'
        with self.image(source) as parent:
            parent.create_snap(between)
        self.clone(source, between, between)
        with self.image(source) as parent:
            parent.remove_snap(between)
        with self.image(between) as middle:
            middle.create_snap(image)
        self.clone(between, image, image)
        with self.image(between) as middle:
            middle.remove_snap(image)
        self.trash(between)
        self.known(self.volumes, image, {})
        return image

    def depth(self, name):
        """Of clones above it, through parents that are in the trash, too."""
        n = 0
        with self.image(name, read_only=True) as image:
            while True:
                try:
                    parent = image.get_parent_image_spec()
                except rbd.ImageNotFound:
                    return n
                n, image = n + 1, rbd.Image(self.ioctx, image_id=image.parent_id(), read_only=True)

    def flatten(self, name):
        self.manager('rbd task add flatten', image_spec='%s/%s' % (POOL, name))

        def done():
            with self.image(name, read_only=True) as image:
                try:
                    image.get_parent_image_spec()
                    return False
                except rbd.ImageNotFound:
                    return True
        self.wait(done, 'the clone to be flat')

    def trash(self, name):
        """Into the trash, from which the cluster removes it."""
        with self.image(name, read_only=True) as image:
            one = image.id()
        self.rbd.trash_move(self.ioctx, name, 0)
        task = self.manager('rbd task add trash remove', image_id_spec='%s/%s' % (POOL, one))
        assert task['refs']['image_id'] == one
        return one

    def delete(self, journal, name, image):
        found = journal.check(name)
        with self.image(image, read_only=True) as opened:
            assert opened.id() == found['csi.imageid']
            # Whoever has it mapped watches; we do not, reading.
            assert list(opened.watchers_list()) == [] or len(list(opened.watchers_list())) == 1
        if journal.kind == 'snap':
            with self.image(image) as clone:
                clone.remove_snap(image)
        one = self.trash(image)
        journal.undo(name, image)
        assert journal.check(name) is None
        return one

    def wait(self, condition, what):
        end = time.monotonic() + 90
        while not condition():
            assert time.monotonic() < end, 'waited for ' + what
            time.sleep(0.2)

    def gone(self):
        return list(self.rbd.trash_list(self.ioctx)) == [] and self.manager('rbd task list') == []


def main(cluster, ioctx):
    csi = Driver(cluster, ioctx)
    data = bytes(range(256)) * 4096

    def holds(name, want=data):
        with csi.image(name, read_only=True) as image:
            assert image.read(0, len(want)) == want, name

    part('a volume, asked for twice')
    first = csi.create('pvc-1', 32 * MIB)
    assert csi.create('pvc-1', 32 * MIB) == first and csi.rbd.list(ioctx) == [first]
    with csi.image(first) as image:
        image.write(data, 0)
        assert dict(image.metadata_list())['csi.storage.k8s.io/pvc/name'] == 'pvc-1'
    part('it grows')
    with csi.image(first) as image:
        image.resize(64 * MIB)
        assert image.size() == 64 * MIB
    part('a snapshot, and what was written later')
    snap = csi.snapshot('snapshot-1', first)
    found = csi.snaps.check('snapshot-1')
    assert (found['csi.source'], found['csi.imagename']) == (first, snap)
    with csi.image(first) as image:
        image.write(b'later' * 1000, 0)
    holds(snap)
    part('volumes of the snapshot, and of a volume')
    restored, copied = csi.restore('pvc-2', snap), csi.copy('pvc-3', first)
    holds(restored)
    holds(copied, b'later' * 1000)
    assert csi.depth(snap) == 1 and csi.depth(restored) == 2 and csi.depth(copied) == 2
    part('flattened by the cluster')
    csi.flatten(restored)
    assert csi.depth(restored) == 0
    holds(restored)
    csi.flatten(copied)
    part('what changed between two snapshots')
    with csi.image(restored) as image:
        image.create_snap('one')
        image.write(b'x' * 4096, 40 * MIB)
        image.create_snap('two')
    with csi.image(restored, snapshot='two', read_only=True) as image:
        extents = []
        image.diff_iterate(0, image.size(), 'one', lambda *extent: extents.append(extent), include_parent=False, whole_object=True)
        assert [(o, e) for o, _, e in extents] == [(40 * MIB, True)], extents
    with csi.image(restored) as image:
        image.remove_snap('one')
        image.remove_snap('two')
    part('space given back')
    with csi.image(first) as image:
        image.write(b'\0' * 4 * MIB, 8 * MIB)
        image.sparsify(4 * MIB)
    part('a group and its snapshot')
    csi.rbd.group_create(ioctx, 'csi-vol-group-1')
    group = rbd.Group(ioctx, 'csi-vol-group-1')
    for name in (first, restored):
        group.add_image(ioctx, name)
    group.create_snap('group-snap')
    assert [s['name'] for s in group.list_snaps()] == ['group-snap']
    group.remove_snap('group-snap')
    for name in (first, restored):
        group.remove_image(ioctx, name)
    csi.rbd.group_remove(ioctx, 'csi-vol-group-1')
    part('deleted, in whatever order')
    csi.delete(csi.volumes, 'pvc-1', first)
    holds(snap)
    csi.delete(csi.snaps, 'snapshot-1', snap)
    holds(restored)
    csi.delete(csi.volumes, 'pvc-2', restored)
    csi.delete(csi.volumes, 'pvc-3', copied)
    assert csi.rbd.list(ioctx) == []
    csi.wait(csi.gone, 'the trash to be emptied: %s, %s' % (list(csi.rbd.trash_list(ioctx)), csi.manager('rbd task list')))
    part('mirroring, as its replication asks for it')
    mirrored = csi.create('pvc-4', 16 * MIB)
    csi.rbd.mirror_mode_set(ioctx, rbd.RBD_MIRROR_MODE_IMAGE)
    with csi.image(mirrored) as image:
        image.mirror_image_enable(rbd.RBD_MIRROR_IMAGE_MODE_SNAPSHOT)
        assert image.mirror_image_get_info()['primary']
        image.mirror_image_disable(False)
    csi.delete(csi.volumes, 'pvc-4', mirrored)
    csi.wait(csi.gone, 'the last image to be removed')
    csi.rbd.mirror_mode_set(ioctx, rbd.RBD_MIRROR_MODE_DISABLED)
    print('done')


with rados.Rados(conffile=CONF, rados_id=USER, conf={'keyring': KEYRING, 'rbd_default_clone_format': '2'}) as rados_cluster, rados_cluster.open_ioctx(POOL) as pool_ioctx:
    main(rados_cluster, pool_ioctx)
