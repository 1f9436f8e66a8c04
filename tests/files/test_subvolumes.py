"""Subvolumes, as Manila's CephFS driver and ceph-csi use them: by the manager's commands, and mounted with their own keys."""
import errno
import os

import pytest

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import wait_until
from skeptest.volumes import Driver, names


@pytest.fixture(scope='module')
def driver(cluster, fs):
    return Driver(cluster, fs)


def test_what_manila_does_with_a_share(cluster, driver, tmp_path):
    """create_share, update_access (allow, deny), extend, shrink, delete."""
    share = driver.create(size=8 << 20, namespace_isolated=True, mode='755')
    path = driver.path(share)
    assert path.startswith('/volumes/_nogroup/%s/' % share)
    user = unique('alice')
    key = driver.do('fs subvolume authorize', sub_name=share, auth_id=user, access_level='rw', tenant_id='t1').strip()
    assert driver.json('fs subvolume authorized_list', sub_name=share) == [{user: 'rw'}]
    code, _, said = driver.ask('fs subvolume authorize', sub_name=share, auth_id=user, tenant_id='t2')
    assert code == -errno.EPERM and said == 'auth ID: %s is already in use' % user
    held = cluster.ceph_json('auth', 'get', 'client.' + user)[0]
    assert held['key'] == key
    assert held['caps']['mds'] == 'allow rw path=' + path
    assert held['caps']['osd'] == 'allow rw pool=cephfs.%s.data namespace=fsvolumens_%s' % (driver.fs, share)
    info = driver.json('fs subvolume info', sub_name=share)
    assert (info['path'], info['bytes_quota'], info['state']) == (path, 8 << 20, 'complete')
    assert info['pool_namespace'] == 'fsvolumens_' + share
    resized = driver.json('fs subvolume resize', sub_name=share, new_size=str(16 << 20))
    assert resized[1] == {'bytes_quota': 16 << 20}
    driver.do('fs subvolume deauthorize', sub_name=share, auth_id=user)
    assert driver.json('fs subvolume authorized_list', sub_name=share) == []
    assert cluster.ceph('auth', 'get', 'client.' + user, check=None).returncode == errno.ENOENT
    driver.do('fs subvolume rm', sub_name=share)
    assert share not in names(driver.json('fs subvolume ls'))
    code, _, said = driver.ask('fs subvolume getpath', sub_name=share)
    assert (code, said) == (-errno.ENOENT, "subvolume '%s' does not exist" % share)
    driver.do('fs subvolume rm', sub_name=share, force=True)


def test_what_ceph_csi_does_with_a_volume(driver):
    """A group of its own, a volume with metadata, expanded and removed; each step may come twice."""
    group = unique('csi')
    for _ in range(2):
        driver.do('fs subvolumegroup create', group_name=group)
    name = unique('csi-vol')
    for _ in range(2):
        driver.create(name, group_name=group, size=1 << 20, mode='777')
    assert names(driver.json('fs subvolume ls', group_name=group)) == [name]
    assert driver.path(name, group_name=group).startswith('/volumes/%s/%s/' % (group, name))
    args = {'sub_name': name, 'group_name': group}
    driver.do('fs subvolume metadata set', key_name='csi.storage.k8s.io/pvc/name', value='a claim', **args)
    assert driver.json('fs subvolume metadata ls', **args) == {'csi.storage.k8s.io/pvc/name': 'a claim'}
    driver.do('fs subvolume metadata rm', key_name='csi.storage.k8s.io/pvc/name', **args)
    assert driver.json('fs subvolume metadata ls', **args) == {}
    driver.do('fs subvolume resize', new_size=str(2 << 20), no_shrink=True, **args)
    info = driver.json('fs subvolume info', **args)
    assert info['bytes_quota'] == 2 << 20 and info['features']
    code, _, said = driver.ask('fs subvolumegroup rm', group_name=group)
    assert (code, said) == (-errno.ENOTEMPTY, 'error in rmdir /volumes/' + group)
    assert driver.json('fs subvolume snapshot ls', **args) == []
    driver.do('fs subvolume rm', **args)
    driver.do('fs subvolumegroup rm', group_name=group)
    assert group not in names(driver.json('fs subvolumegroup ls'))


def test_a_volume_leaves_a_group_with_a_quota(driver):
    """To the trash, which has none."""
    group, name = unique('csi'), unique('csi-vol')
    driver.do('fs subvolumegroup create', group_name=group, size=str(4 << 20))
    driver.create(name, group_name=group, size=1 << 20)
    driver.do('fs subvolume rm', sub_name=name, group_name=group)
    assert names(driver.json('fs subvolume ls', group_name=group)) == []
    driver.do('fs subvolumegroup rm', group_name=group)


def test_the_tree_is_what_a_ceph_would_leave(driver, mount):
    name = driver.create(uid=10, gid=20, mode='750')
    path = driver.path(name)
    base = mount / ('volumes/_nogroup/' + name)
    assert (base / '.meta').read_text() == (
        '[GLOBAL]\nversion = 2\ntype = subvolume\npath = %s\nstate = complete\n\n' % path)
    data = os.stat(str(mount.path) + path)
    assert (data.st_uid, data.st_gid, data.st_mode & 0o7777) == (10, 20, 0o750)
    assert sorted(os.listdir(base)) == ['.meta', path.split('/')[-1]]
    layout = os.getxattr(str(mount.path) + path, 'ceph.dir.layout').decode()
    assert layout.endswith('pool=cephfs.%s.data' % driver.fs)


def test_bad_words_are_refused(driver):
    for args, number, said in [
            ({'sub_name': 'a', 'mode': '9z'}, errno.EINVAL, "Invalid mode '9z'"),
            ({'sub_name': 'a', 'size': -5}, errno.EINVAL, "invalid size specified: '-5'"),
            ({'sub_name': 'a', 'pool_layout': 'nope'}, errno.EINVAL,
             "invalid pool layout 'nope' -- need a valid data pool"),
            ({'sub_name': 'a', 'group_name': 'nog'}, errno.ENOENT, "subvolume group 'nog' does not exist"),
            ({'sub_name': '..'}, errno.EINVAL, "'..' is not a valid name of a subvolume")]:
        code, _, why = driver.ask('fs subvolume create', **args)
        assert (code, why) == (-number, said)
    code, _, said = Driver(driver.cluster, 'nofs').ask('fs subvolume ls')
    assert (code, said) == (-errno.ENOENT, "FS 'nofs' not found")
    code, _, said = driver.ask('fs subvolume authorize', sub_name=driver.create(), auth_id='admin')
    assert code == -errno.EPERM and 'Not allowed to modify' in said


def keyring(path, user, key):
    path.write_text('[client.%s]\n\tkey = %s\n' % (user, key))
    return path


def test_a_key_opens_its_subvolume_and_no_other(cluster, driver, tmp_path):
    mine, other = driver.create(size=4 << 20, namespace_isolated=True), driver.create()
    user = unique('carol')
    key = driver.do('fs subvolume authorize', sub_name=mine, auth_id=user, tenant_id='t').strip()
    options = ['--id', user, '-k', keyring(tmp_path / 'keyring', user, key)]
    with mounted(cluster, tmp_path / 'm', fs=driver.fs, options=[*options, '-r', driver.path(mine)]) as m:
        (m / 'f').write_bytes(b'x' * 1000)
        assert (m / 'f').read_bytes() == b'x' * 1000

        def fill():
            with open(m / 'big', 'wb') as f:
                for _ in range(64):
                    f.write(bytes(1 << 20))
                    f.flush()
                    os.fsync(f.fileno())
        with pytest.raises(OSError) as e:
            fill()
        assert e.value.errno == errno.EDQUOT
        assert os.stat(m / 'big').st_size < 32 << 20
    for root in ['/', driver.path(other)]:
        (tmp_path / 'n').mkdir(exist_ok=True)
        refused = cluster.run('ceph-fuse', '-f', '-c', cluster.conf, '--client_fs', driver.fs, *options,
                              '-r', root, tmp_path / 'n', check=None)
        assert refused.returncode != 0 and 'Operation not permitted' in refused.err, refused


@pytest.mark.own
def test_a_purge_goes_on_after_a_kill(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    driver = Driver(skep, 'fs')
    name, keeps = driver.create(), driver.create()
    with mounted(skep, tmp_path / 'm', fs='fs') as m:
        data = m / driver.path(name)[1:]
        for d in range(6):
            (data / str(d)).mkdir()
            for i in range(120):
                os.mknod(data / str(d) / str(i))
            (data / str(d) / 'large').write_bytes(bytes(100_000))
        (m / driver.path(keeps)[1:] / 'f').write_text('kept')
    driver.do('fs subvolume rm', sub_name=name)
    skep.restart()
    wait_active(skep, 'fs')
    assert names(driver.json('fs subvolume ls')) == [keeps]

    def settled():
        keys = skep.ceph_json('config-key', 'ls')
        return not [k for k in keys if k.startswith('volumes/purge/')]
    wait_until(settled, 240, 0.2, 'the end of the purge')
    with mounted(skep, tmp_path / 'm', fs='fs') as m:
        assert os.listdir(m / 'volumes/_deleting') == []
        assert (m / driver.path(keeps)[1:] / 'f').read_text() == 'kept'
