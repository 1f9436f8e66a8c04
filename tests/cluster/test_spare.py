"""An OSD in spare space of a small file system: the host fills it, data moves off and the file shrinks; and back."""
import os
import subprocess

import pytest

from skeptest.run import run, wait_until

pytestmark = pytest.mark.own
MIB = 1 << 20


@pytest.fixture
def small_disk(workdir):
    """Mounts a file system of 3 GiB on a directory."""
    image, places = workdir / 'spare.img', []

    def mount(place):
        run(['truncate', '-s', '3G', image])
        run(['mkfs.ext4', '-q', '-F', '-m', '0', image])
        place.mkdir()
        if subprocess.run(['mount', '-o', 'loop', image, place], stderr=subprocess.DEVNULL).returncode:
            pytest.skip('cannot mount here')
        places.append(place)
    yield mount
    for place in places:
        run(['umount', '-l', place])
    image.unlink()


def test_data_moves_off_when_the_host_needs_room_and_comes_back(small_disk, hosts):
    group = hosts(3)
    group.start_etcd()
    a = group[0]
    small_disk(a.data)
    options = ['--spare', '--keep-free', '300M', '--osd-memory', '64M']
    a.up(create=True, options=options)
    for host in group.list[1:]:
        host.up(join=True, options=options)
    for osd in (1, 2):
        a.ceph('osd', 'crush', 'reweight', 'osd.%d' % osd, '0.003')
    pool = a.make_pool(pg_num=16)
    a.ceph('osd', 'pool', 'set', pool, 'size', '2')
    a.rados(pool, 'bench', '300', 'write', '-b', '4M', '-t', '4', '--max-objects', '120', '--no-cleanup', timeout=400)

    def weight():
        return next(o['weight'] for o in a.ask('osd', 'dump')['osds'] if o['osd'] == 0)

    def taken():
        return (a.data / 'osd.0' / 'block').stat().st_blocks * 512 // MIB

    def settled():
        return all(pg['state'] == 'active+clean' and pg['up'] == pg['acting'] for pg in a.pgs())
    wait_until(settled, 120, 0.5, 'a settled pool')
    assert weight() == 1
    before = taken()
    filler = a.data / 'lost+found' / 'of-the-host'
    # The host takes all but 200 MiB of the 300 that the OSD was to leave to it.
    run(['fallocate', '-l', str(os.statvfs(a.data).f_bavail * os.statvfs(a.data).f_frsize - 200 * MIB), filler])
    wait_until(lambda: weight() < 0.5, 60, 0.5, 'the weight to fall')
    health = a.ceph_json('health', 'detail')['checks']
    assert 'osd.0' in health['OSD_SPARE_SHRUNK']['detail'][0]['message'], health
    assert 'lives in spare space' in a.cli('doctor', '--data', a.data).out
    nodes = a.ceph_json('osd', 'df')['nodes']
    assert next(n['reweight'] for n in nodes if n['id'] == 0) < 0.5
    wait_until(lambda: settled() and taken() < before * 3 / 4, 180, 0.5,
               'the file to shrink from %d MiB' % before)
    print('weight %.2f, file %d -> %d MiB' % (weight(), before, taken()))
    filler.unlink()
    wait_until(lambda: weight() == 1 and settled(), 180, 0.5, 'the weight to come back')
    assert 'OSD_SPARE_SHRUNK' not in a.ceph_json('health')['checks']
