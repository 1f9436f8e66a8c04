"""Drives glance_store's rbd driver, as Glance does, for test_openstack.py. Arguments: ceph.conf, pool."""
import hashlib
import io
import json
import os
import subprocess
import sys
import uuid

import rados
import rbd
from glance_store import backend, exceptions
from oslo_config import cfg

CONF_FILE, POOL = sys.argv[1:3]
MIB = 1 << 20


def store_of(**options):
    conf = cfg.CONF
    backend.register_opts(conf)
    values = {'stores': ['rbd'], 'default_store': 'rbd', 'rbd_store_pool': POOL, 'rbd_store_user': 'admin',
              'rbd_store_ceph_conf': CONF_FILE, 'rbd_store_chunk_size': 4, **options}
    conf([])
    for name, value in values.items():
        conf.set_override(name, value, 'glance_store')
    backend.create_stores(conf)
    backend.verify_default_store()
    return conf


def rbd_json(*args):
    return json.loads(subprocess.run(['rbd', '-c', CONF_FILE, *args, '--format', 'json'], check=True,
                                     stdout=subprocess.PIPE).stdout)


def upload(conf, data, size):
    image = str(uuid.uuid4())
    where, stored, checksum, _ = backend.add_to_backend(conf, image, io.BytesIO(data), size)
    assert stored == len(data) and checksum == hashlib.md5(data).hexdigest()
    return image, where


def download(where):
    chunks, size = backend.get_from_backend(where)
    data = b''.join(chunks)
    assert int(size) == len(data)
    return data


conf = store_of()
data = os.urandom(9 * MIB + 12345)

# Uploads of known and of unknown size (the driver resizes as it goes), and what comes back.
for size in (len(data), 0):
    image, where = upload(conf, data, size)
    assert download(where) == data, 'other data came back'
    info = rbd_json('info', '%s/%s' % (POOL, image))
    assert info['size'] == len(data), info
    # Nova clones from this snapshot, which is protected.
    snap, = rbd_json('snap', 'ls', '%s/%s' % (POOL, image))
    assert (snap['name'], snap['protected']) == ('snap', 'true'), snap
    fsid, pool, name, snap = where[len('rbd://'):].split('/')
    assert (pool, name, snap) == (POOL, image, 'snap')

# A range, as Glance gives it to who asks for one: this driver says that it cannot, and is asked for everything.
try:
    backend.get_from_backend(where, offset=MIB, chunk_size=4096)
except exceptions.StoreRandomGetNotSupported:
    pass
# Ranges, as who clones from the snapshot reads them.
with rados.Rados(conffile=CONF_FILE, rados_id='admin') as cluster, cluster.open_ioctx(POOL) as ioctx, \
        rbd.Image(ioctx, image, snapshot='snap', read_only=True) as opened:
    for offset, length in ((0, 1), (4 * MIB - 1, 2), (len(data) - 7, 7), (5, 5 * MIB)):
        assert opened.read(offset, length) == data[offset:offset + length]

# An image that is in use stays; it goes when its clone has gone.
subprocess.run(['rbd', '-c', CONF_FILE, 'clone', '%s/%s@snap' % (POOL, image), '%s/child' % POOL], check=True)
try:
    backend.delete_from_backend(where)
    raise SystemExit('an image with a clone was deleted')
except exceptions.InUseByStore:
    pass
assert download(where) == data, 'the refused deletion did harm'
subprocess.run(['rbd', '-c', CONF_FILE, 'rm', '--no-progress', '%s/child' % POOL], check=True)
backend.delete_from_backend(where)
try:
    download(where)
    raise SystemExit('it is still there')
except exceptions.NotFound:
    pass

# Sparse: what is zeros takes no space.
conf = store_of(rbd_thin_provisioning=True)
hole = b'\0' * (16 * MIB)
sparse = data[:4 * MIB] + hole + data[:4 * MIB]
image, where = upload(conf, sparse, len(sparse))
assert download(where) == sparse
used = sum(part['used_size'] for part in rbd_json('du', '%s/%s' % (POOL, image))['images'])
assert used == 8 * MIB, used
backend.delete_from_backend(where)
print('done')
