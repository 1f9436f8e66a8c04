"""A file system whose metadata pool lost its objects gets no new root: the rank is damaged, and comes back with the objects."""
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
    skep.ceph('mds', 'repaired', 'fs:0')
    wait_active(skep, 'fs')
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
