"""A file system whose metadata pool lost its objects gets no new root: the rank is damaged, and comes back with the objects."""
import os
import struct
import threading

import pytest

from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import wait_until

pytestmark = pytest.mark.own
META = 'cephfs.fs.meta'


def test_a_root_that_is_gone_is_not_made_anew(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        (a / 'kept').write_text('still here')
    skep.ceph('fs', 'fail', 'fs')
    skep.rados(META, 'export', tmp_path / 'saved')
    objects = lambda pool: sorted(skep.rados(pool, 'ls').out.split())
    data = objects('cephfs.fs.data')
    skep.rados(META, 'purge', META, '--yes-i-really-really-mean-it')
    assert objects(META) == []
    skep.ceph('fs', 'set', 'fs', 'joinable', 'true')

    checks = lambda: skep.ceph_json('health')['checks']
    wait_until(lambda: 'MDS_DAMAGE' in checks(), 90, 0.3, 'the damage')
    assert checks()['MDS_DAMAGE']['severity'] == 'HEALTH_ERR'
    said = 'is not there, though this file system was active before'
    wait_until(lambda: said in skep.log.read_text(errors='replace'), 60, 0.3, 'the reason')
    skep.ceph('mds', 'repaired', 'fs:0')
    wait_until(lambda: skep.log.read_text(errors='replace').count(said) >= 2, 90, 0.3, 'a second look')
    wait_until(lambda: 'MDS_DAMAGE' in checks(), 90, 0.3, 'the damage')
    assert objects(META) == [] and objects('cephfs.fs.data') == data

    skep.rados(META, 'import', tmp_path / 'saved')
    head = tmp_path / 'head'
    head.write_bytes(struct.pack('<BBIQQ', 2, 2, 16, 1, 1))
    if 'skep.journal' in objects(META):
        skep.rados(META, 'get', 'skep.journal', head)
    # As a program from before snapshots wrote it: it shall not open what is written from now on.
    head.write_bytes(b'\1\1' + head.read_bytes()[2:])
    skep.rados(META, 'put', 'skep.journal', head)
    skep.ceph('mds', 'repaired', 'fs:0')
    wait_active(skep, 'fs')
    skep.rados(META, 'get', 'skep.journal', head)
    assert head.read_bytes()[:2] == b'\2\2'
    with mounted(skep, tmp_path / 'b', fs='fs') as b:
        assert (b / 'kept').read_text() == 'still here'


def test_the_metadata_server_has_a_key_of_its_own(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    name = next(iter(skep.ceph_json('fs', 'get', 'fs')['mdsmap']['info'].values()))['name']
    caps = skep.ceph_json('auth', 'get', 'mds.' + name)[0]['caps']
    assert caps == {'mds': 'allow', 'mon': 'allow profile mds', 'osd': 'allow rw tag cephfs *=*'}
    skep.ceph('auth', 'caps', 'client.admin', 'mon', 'allow *', 'mgr', 'allow *', 'mds', 'allow *', 'osd', 'allow r')
    skep.restart()
    wait_active(skep, 'fs')
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        (a / 'd').mkdir()
    with mounted(skep, tmp_path / 'b', fs='fs') as b:
        assert (b / 'd').is_dir()


@pytest.mark.long
def test_damage_that_is_found_while_serving_ends_the_rank(own, tmp_path):
    """A directory becomes two objects, and one of its names cannot be read: no daemon after the other ends by it."""
    skep = own().start()
    make_volume(skep, 'fs')
    with mounted(skep, tmp_path / 'a', fs='fs') as a:
        (a / 'd').mkdir()
        held = 'skep.dir.%x.0.0' % (a / 'd').stat().st_ino
        names = ['file%05d' % i for i in range(17000)]
        for name in names[:16000]:
            os.mknod(a / 'd' / name)
        wait_until(lambda: held in skep.rados(META, 'ls').out.split(), 90, 0.3, 'the names in the pool')
        skep.rados(META, 'setomapval', held, 'no name', 'nothing')
        rest = threading.Thread(target=lambda: [os.mknod(a / 'd' / name) for name in names[16000:]])
        rest.start()
        checks = lambda: skep.ceph_json('health')['checks']
        wait_until(lambda: 'MDS_DAMAGE' in checks(), 120, 0.3, 'the damage')
        skep.rados(META, 'rmomapkey', held, 'no name')
        skep.ceph('mds', 'repaired', 'fs:0')
        wait_active(skep, 'fs')
        rest.join(120)
        assert not rest.is_alive() and sorted(os.listdir(a / 'd')) == names
        assert skep.log.read_text(errors='replace').count('a name that cannot be read') == 1
