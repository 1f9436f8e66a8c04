"""fio's `rbd` and `rados` engines, writing with checksums in every block and verifying them, in the same
run and again by a new process."""
import json

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB


def fio(cluster, engine, pool, *args, check=0):
    argv = ['fio', '--name=job', '--ioengine=' + engine, '--clientname=admin', '--pool=' + pool, '--output-format=json',
            '--verify=crc32c', '--verify_fatal=1', '--verify_state_save=0',
            '--randseed=7', *args]
    r = cluster.run(*argv, timeout=90, check=check)
    return json.loads(r.out[r.out.index('{'):])['jobs'][0]


@pytest.mark.parametrize('rw, bs', [('randwrite', '4k'), ('write', '64k'), ('randwrite', '4k-128k'), ('randrw', '16k')])
def test_rbd_engine_verifies_what_it_wrote(cluster, images, rw, bs):
    name = images.create(16 * MIB)
    args = ['--rbdname=' + name, '--rw=' + rw, ('--bsrange=' if '-' in bs else '--bs=') + bs, '--iodepth=16', '--size=16m']
    job = fio(cluster, 'rbd', images.pool, *args)
    assert job['error'] == 0 and job['write']['total_ios'] > 0 and job['read']['total_ios'] > 0, job
    if rw != 'randrw':
        job = fio(cluster, 'rbd', images.pool, *args, '--verify_only')
        assert job['error'] == 0 and job['read']['io_bytes'] == 16 * MIB, job


def test_verification_would_notice_a_change(cluster, images):
    """The check checks: a block changed behind fio's back fails it."""
    name = images.create(8 * MIB)
    args = ['--rbdname=' + name, '--rw=write', '--bs=4k', '--size=8m', '--iodepth=8']
    fio(cluster, 'rbd', images.pool, *args)
    images.write(name, 3 * MIB + 100, b'flipped')
    fio(cluster, 'rbd', images.pool, *args, '--verify_only', check='fails')


def test_rados_engine(cluster, pool):
    args = ['--conf=' + cluster.conf, '--rw=randwrite', '--bs=4k', '--iodepth=16', '--size=8m', '--nrfiles=4', '--filename_format=' + unique('fio') + '.$filenum']
    job = fio(cluster, 'rados', pool, *args)
    assert job['error'] == 0 and job['write']['total_ios'] == 2048, job
