"""Drives Nova's rbd image backend, as a compute node does, for test_openstack.py. Arguments: ceph.conf, pool of Glance's
images, pool of disks, folder.

Nova's own classes are unmodified; what answers in Glance's place here is a class that keeps locations.
"""
import os
import subprocess
import sys
import types
import uuid

import nova.conf
from nova import exception
from nova.storage import rbd_utils
from nova.virt.libvirt import imagebackend

CONF_FILE, IMAGES, DISKS, FOLDER = sys.argv[1:5]
MIB = 1 << 20
CONF = nova.conf.CONF
CONF([], project='nova', default_config_files=[])
for name, value in {'images_type': 'rbd', 'images_rbd_pool': DISKS, 'images_rbd_ceph_conf': CONF_FILE, 'rbd_user': 'admin',
                    'rbd_destroy_volume_retry_interval': 0}.items():
    CONF.set_override(name, value, 'libvirt')
CONF.set_override('instances_path', FOLDER)


class Images:
    """Of Glance, what the backend asks for."""

    def __init__(self):
        self.known = {}

    def get(self, context, image_id, **_):
        return self.known[image_id]


imagebackend.IMAGE_API = images = Images()
driver = rbd_utils.RBDDriver()
glance = rbd_utils.RBDDriver(pool=IMAGES)


def sh(*argv):
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE).stdout


def instance():
    return types.SimpleNamespace(uuid=str(uuid.uuid4()))


def disk_of(vm, name='disk'):
    return imagebackend.Rbd(instance=vm, disk_name=name)


def content(pool, name, length):
    return sh('rbd', '-c', CONF_FILE, 'export', '--no-progress', '%s/%s' % (pool, name), '-')[:length]


# What the host is told of the cluster.
fsid = driver.get_fsid()
assert fsid.encode() in sh('ceph', '-c', CONF_FILE, 'fsid')
hosts, ports = driver.get_mon_addrs()
assert hosts and all(p.isdigit() for p in ports), (hosts, ports)
pool_info = driver.get_pool_info()
assert pool_info['total'] >= pool_info['free'] > 0, pool_info

# An image of Glance's: with a protected snapshot named snap.
data = os.urandom(6 * MIB)
base = os.path.join(FOLDER, 'base')
with open(base, 'wb') as f:
    f.write(data)
image_id = str(uuid.uuid4())
glance.import_image(base, image_id)
glance.create_snap(image_id, 'snap', protect=True)
location = {'url': 'rbd://%s/%s/%s/snap' % (fsid, IMAGES, image_id)}
images.known[image_id] = {'id': image_id, 'disk_format': 'raw', 'locations': [location]}

# A disk is a clone of it, larger as the flavor says.
vm = instance()
disk = disk_of(vm)
assert not disk.exists()
disk.clone(None, image_id)
assert disk.exists()
assert driver.parent_info(disk.rbd_name) == [IMAGES, image_id, 'snap'] or \
    tuple(driver.parent_info(disk.rbd_name)) == (IMAGES, image_id, 'snap')
assert disk.get_disk_size(None) == len(data)
disk.resize_image(20 * MIB)
assert disk.get_disk_size(None) == 20 * MIB
assert content(DISKS, disk.rbd_name, len(data)) == data

# Others are not to be cloned from: another cluster, no location, not raw.
for url, disk_format in (('rbd://other/%s/%s/snap' % (IMAGES, image_id), 'raw'), ('file:///x', 'raw'), (location['url'], 'qcow2')):
    assert not driver.is_cloneable({'url': url}, {'disk_format': disk_format}), url

# A disk from a file, as where Glance keeps its images elsewhere.
local = disk_of(instance())
local.create_image(lambda target: None, base, 10 * MIB)
assert local.get_disk_size(None) == 10 * MIB and content(DISKS, local.rbd_name, len(data)) == data

# Rescue: a second disk from the image, gone after it; the first one stays.
rescue = disk_of(vm, 'disk.rescue')
rescue.clone(None, image_id)
assert rescue.exists()
driver.cleanup_volumes(lambda name: name == rescue.rbd_name)
assert not rescue.exists() and disk.exists()

# A snapshot for a resize of the instance, and back to it.
disk.create_snap('nova-resize')
disk.resize_image(30 * MIB)
disk.rollback_to_snap('nova-resize')
disk.remove_snap('nova-resize')
disk.remove_snap('nova-resize', ignore_errors=True)
assert content(DISKS, disk.rbd_name, len(data)) == data

# A direct snapshot: cloned into Glance's pool and flattened there, without a copy through the host.
snapshot_id = str(uuid.uuid4())
url = disk.direct_snapshot(None, 'name', 'raw', snapshot_id, image_id)
assert url == 'rbd://%s/%s/%s/snap' % (fsid, IMAGES, snapshot_id), url
assert content(IMAGES, snapshot_id, len(data)) == data
try:
    glance.parent_info(snapshot_id)
    raise SystemExit('the snapshot depends on the disk')
except exception.ImageUnacceptable:
    pass
images.known[snapshot_id] = {'id': snapshot_id, 'disk_format': 'raw', 'locations': [{'url': url}]}
again = disk_of(instance())
again.clone(None, snapshot_id)
assert content(DISKS, again.rbd_name, len(data)) == data
again.flatten()
try:
    driver.parent_info(again.rbd_name)
    raise SystemExit('still a clone')
except exception.ImageUnacceptable:
    pass
disk.cleanup_direct_snapshot({'url': url}, also_destroy_volume=True)
assert not glance.exists(snapshot_id)

# The instances go: all of their disks, and nobody else's.
driver.cleanup_volumes(lambda name: name.startswith(vm.uuid))
assert not disk.exists() and again.exists() and local.exists()
print('done')
