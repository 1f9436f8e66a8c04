"""Snapshots of subvolumes and clones of them, as Manila's CephFS driver and ceph-csi use them."""
import errno
import json
import os
import re
import threading

import pytest

from skeptest.cluster import unique
from skeptest.mounts import make_volume, mounted, wait_active
from skeptest.run import wait_until
from skeptest.volumes import Driver, names


@pytest.fixture(scope='module')
def driver(cluster, fs):
    return Driver(cluster, fs)


def state(driver, name, **args):
    return driver.json('fs clone status', clone_name=name, **args)['status']['state']


def wait_complete(driver, name, **args):
    wait_until(lambda: state(driver, name, **args) == 'complete', 240, 0.2, 'a whole clone')


def test_snapshots_of_a_subvolume(driver, mount):
    name = driver.create(size=64 << 20)
    data = mount / driver.path(name)[1:]
    with open(data / 'f', 'wb') as f:
        f.write(b'before' * 1000)
        f.flush()
        # The server knows the size.
        os.fsync(f.fileno())
    args = {'sub_name': name}
    driver.do('fs subvolume snapshot create', snap_name='s1', **args)
    code, _, said = driver.ask('fs subvolume snapshot create', snap_name='s1', **args)
    assert code == -errno.EEXIST and 's1' in said
    (data / 'f').write_bytes(b'after')
    assert names(driver.json('fs subvolume snapshot ls', **args)) == ['s1']
    info = driver.json('fs subvolume snapshot info', snap_name='s1', **args)
    assert re.fullmatch(r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}', info['created_at'])
    assert info['data_pool'] == 'cephfs.%s.data' % driver.fs
    assert (info['has_pending_clones'], info['size']) == ('no', 6000)
    keeps = dict(snap_name='s1', key_name='csi.storage.k8s.io/name', **args)
    driver.do('fs subvolume snapshot metadata set', value='a snapshot', **keeps)
    assert driver.do('fs subvolume snapshot metadata get', **keeps).strip() == 'a snapshot'
    assert driver.json('fs subvolume snapshot metadata ls', snap_name='s1', **args) == {keeps['key_name']: 'a snapshot'}
    assert driver.json('fs subvolume metadata ls', **args) == {}
    base = data.parent
    assert (base / '.snap/s1' / data.name / 'f').read_bytes() == b'before' * 1000
    with pytest.raises(PermissionError):
        # Below the subvolume nobody makes any.
        os.mkdir(data / '.snap/mine')
    for what in ('protect', 'unprotect'):
        driver.do('fs subvolume snapshot ' + what, snap_name='s1', **args)
    code, _, said = driver.ask('fs subvolume rm', **args)
    assert (code, said) == (-errno.ENOTEMPTY, "subvolume '%s' has snapshots" % name)
    # The data go, what the snapshot has stays.
    driver.do('fs subvolume rm', retain_snapshots=True, **args)
    code, _, said = driver.ask('fs subvolume getpath', **args)
    assert code == -errno.ENOENT and 'snapshots retained' in said
    assert driver.json('fs subvolume info', **args)['state'] == 'snapshot-retained'
    assert (base / '.snap/s1' / data.name / 'f').read_bytes() == b'before' * 1000
    driver.create(name)
    assert driver.path(name) != '/' + str(data.relative_to(mount.path))
    driver.do('fs subvolume rm', retain_snapshots=True, **args)
    driver.do('fs subvolume snapshot rm', snap_name='s1', **args)
    assert name not in names(driver.json('fs subvolume ls'))
    code, _, said = driver.ask('fs subvolume snapshot rm', snap_name='s1', **args)
    assert code == -errno.ENOENT
    driver.do('fs subvolume snapshot rm', snap_name='s1', force=True, **args)


def test_snapshots_of_a_group(driver):
    group = unique('g')
    driver.do('fs subvolumegroup create', group_name=group)
    name = driver.create(group_name=group)
    driver.do('fs subvolumegroup snapshot create', group_name=group, snap_name='gs')
    assert names(driver.json('fs subvolumegroup snapshot ls', group_name=group)) == ['gs']
    # It is the group's.
    assert driver.json('fs subvolume snapshot ls', sub_name=name, group_name=group) == []
    driver.do('fs subvolumegroup snapshot rm', group_name=group, snap_name='gs')
    code, _, said = driver.ask('fs subvolumegroup snapshot rm', group_name=group, snap_name='gs')
    assert (code, said) == (-errno.ENOENT, "snapshot 'gs' does not exist")
    driver.do('fs subvolume rm', sub_name=name, group_name=group)
    driver.do('fs subvolumegroup rm', group_name=group)


def test_a_clone_has_what_the_snapshot_has(driver, mount):
    name = driver.create(size=64 << 20, mode='750', uid=10, gid=20)
    data = mount / driver.path(name)[1:]
    (data / 'd/e').mkdir(parents=True)
    large = os.urandom(5 << 20) + bytes(6 << 20) + b'end'
    (data / 'd/large').write_bytes(large)
    (data / 'd/e/f').write_text('before')
    os.chown(data / 'd/e/f', 12, 34)
    os.chmod(data / 'd/e/f', 0o4751)
    os.utime(data / 'd/e/f', ns=(1_000_000_001, 2_000_000_002))
    os.setxattr(data / 'd/e/f', 'user.k', b'v')
    os.symlink('e/f', data / 'd/link')
    with open(data / 'hole', 'wb') as f:
        f.truncate(3 << 20)
    driver.do('fs subvolume snapshot create', sub_name=name, snap_name='s')
    (data / 'd/e/f').write_text('after')
    group, clone = unique('g'), unique('clone')
    driver.do('fs subvolumegroup create', group_name=group)
    args = {'sub_name': name, 'snap_name': 's', 'target_sub_name': clone, 'target_group_name': group}
    driver.do('fs subvolume snapshot clone', **args)
    code, _, said = driver.ask('fs subvolume snapshot clone', **args)
    assert (code, said) == (-errno.EEXIST, "subvolume '%s' exists" % clone)
    wait_complete(driver, clone, group_name=group)
    assert driver.json('fs clone status', clone_name=clone, group_name=group) == {'status': {'state': 'complete'}}
    path = driver.path(clone, group_name=group)
    copy = mount / path[1:]
    info = driver.json('fs subvolume info', sub_name=clone, group_name=group)
    assert (info['type'], info['bytes_quota'], info['mode'] & 0o7777) == ('clone', 64 << 20, 0o750)
    assert (info['uid'], info['gid']) == (10, 20)
    assert (copy / 'd/large').read_bytes() == large
    assert (copy / 'd/e/f').read_text() == 'before'
    assert os.readlink(copy / 'd/link') == 'e/f'
    assert (copy / 'hole').read_bytes() == bytes(3 << 20)
    s = os.stat(copy / 'd/e/f')
    assert (s.st_uid, s.st_gid, s.st_mode & 0o7777, s.st_mtime_ns) == (12, 34, 0o4751, 2_000_000_002)
    assert os.getxattr(copy / 'd/e/f', 'user.k') == b'v'
    code, _, said = driver.ask('fs clone cancel', clone_name=clone, group_name=group)
    assert code == -errno.EINVAL and 'finished' in said
    code, _, said = driver.ask('fs clone status', clone_name=name)
    assert code == -errno.EOPNOTSUPP
    driver.do('fs subvolume snapshot rm', sub_name=name, snap_name='s')
    # A clone needs its source no more.
    assert (copy / 'd/e/f').read_text() == 'before'
    driver.do('fs subvolume rm', sub_name=name)
    driver.do('fs subvolume rm', sub_name=clone, group_name=group)


def test_a_clone_whose_source_has_gone_fails_and_keeps_no_other_waiting(driver, mount):
    """It was tried for ever, and what was behind it never."""
    busy, gone, other = (driver.create() for _ in range(3))
    with open(mount / driver.path(busy)[1:] / 'large', 'wb') as f:
        # Copying it takes until it is canceled.
        f.truncate(1 << 39)
    for source in (busy, gone, other):
        driver.do('fs subvolume snapshot create', sub_name=source, snap_name='s')
    # They are copied in the order of their names.
    clones = sorted(unique('clone') for _ in range(3))
    for source, clone in zip((busy, gone, other), clones):
        driver.do('fs subvolume snapshot clone', sub_name=source, snap_name='s', target_sub_name=clone)
        if source == busy:
            wait_until(lambda: state(driver, clones[0]) == 'in-progress', 240, 0.2, 'a clone that is copied')
        if source == gone:
            os.rmdir((mount / driver.path(gone)[1:]).parent / '.snap/s')
    assert [state(driver, clone) for clone in clones] == ['in-progress', 'pending', 'pending']
    driver.do('fs clone cancel', clone_name=clones[0])
    wait_complete(driver, clones[2])
    status = driver.json('fs clone status', clone_name=clones[1])['status']
    assert status['state'] == 'failed' and status['failure']['errno'] == str(errno.ENOENT), status
    for clone in clones[:2]:
        driver.do('fs subvolume rm', sub_name=clone, force=True)


def test_a_clone_that_another_worker_took_for_settled_is_copied(cluster, driver, mount):
    """Its row went before it had a `.meta`: it was pending for ever."""
    import rados
    name = driver.create()
    driver.do('fs subvolume snapshot create', sub_name=name, snap_name='s')
    fscid = next(f['id'] for f in cluster.ceph_json('fs', 'dump')['filesystems']
                 if f['mdsmap']['fs_name'] == driver.fs)
    with rados.Rados(conffile=str(cluster.conf), name='client.admin') as client:
        for _ in range(50):
            clone = unique('clone')
            key = 'volumes/clone/%d/_nogroup/%s' % (fscid, clone)

            def mon(prefix, key=key):
                return client.mon_command(json.dumps({'prefix': prefix, 'key': key}), b'')[0]
            asked = threading.Thread(target=driver.do, args=('fs subvolume snapshot clone',), kwargs=dict(
                sub_name=name, snap_name='s', target_sub_name=clone))
            asked.start()
            while mon('config-key exists') and asked.is_alive():
                pass
            mon('config-key rm')
            early = not (mount / 'volumes/_nogroup' / clone / '.meta').exists()
            asked.join()
            if early:
                break
        else:
            pytest.fail('the row never went before .meta was there')
    wait_complete(driver, clone)


@pytest.mark.own
def test_a_clone_goes_on_after_a_kill_and_can_be_canceled(own, tmp_path):
    skep = own().start()
    make_volume(skep, 'fs')
    driver = Driver(skep, 'fs')
    name = driver.create()
    with mounted(skep, tmp_path / 'm', fs='fs') as m:
        data = m / driver.path(name)[1:]
        for d in range(4):
            (data / str(d)).mkdir()
            for i in range(60):
                (data / str(d) / str(i)).write_text('%d %d' % (d, i))
    driver.do('fs subvolume snapshot create', sub_name=name, snap_name='s')
    first, second = unique('clone'), unique('clone')
    for clone in (first, second):
        driver.do('fs subvolume snapshot clone', sub_name=name, snap_name='s', target_sub_name=clone)
    source = {'volume': 'fs', 'subvolume': name, 'snapshot': 's'}
    status = driver.json('fs clone status', clone_name=second)['status']
    assert status['state'] == 'complete' or status == {'state': status['state'], 'source': source}
    skep.restart()
    wait_active(skep, 'fs')
    if state(driver, second) != 'complete':
        code, _, _ = driver.ask('fs subvolume snapshot rm', sub_name=name, snap_name='s')
        assert code in (-errno.EAGAIN, 0) and (code or state(driver, second) == 'complete')
        code, _, said = driver.ask('fs clone cancel', clone_name=second)
        if code == 0:
            assert driver.json('fs clone status', clone_name=second)['status'] == {
                'state': 'canceled', 'source': source}
            code, _, said = driver.ask('fs subvolume rm', sub_name=second)
            assert code == -errno.EAGAIN and 'canceled' in said
            code, _, said = driver.ask('fs subvolume getpath', sub_name=second)
            assert code == -errno.EAGAIN
            driver.do('fs subvolume rm', sub_name=second, force=True)
    wait_complete(driver, first)
    with mounted(skep, tmp_path / 'm', fs='fs') as m:
        copy = m / driver.path(first)[1:]
        for d in range(4):
            assert sorted(os.listdir(copy / str(d))) == sorted(str(i) for i in range(60))
            assert all((copy / str(d) / str(i)).read_text() == '%d %d' % (d, i) for i in range(60))
    assert not [k for k in skep.ceph_json('config-key', 'ls') if k.startswith('volumes/clone/')]
