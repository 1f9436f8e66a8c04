"""A disk that answers, but ten times slower than the others: writes go on at its pace, and `ceph health`, `ceph osd perf` and
`skep doctor` name it and nobody else. Taking it out brings the pace back. A library that is loaded before the program's own
makes flushes slow, while a file exists.
"""
import json
import re
import shutil

import pytest

from skeptest.load import Load
from skeptest.run import run, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

SHIM = r'''
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
static void wait_if_slow(void) {
    const char *flag = getenv("SLOW_DISK");
    if (flag && access(flag, F_OK) == 0) usleep(200000);
}
int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_if_slow();
    return real(fd);
}
int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_if_slow();
    return real(fd);
}
'''


@pytest.fixture
def slow_disk(tmp_path):
    """Lets a host's flushes last 200 ms longer, from when the returned file exists."""
    if not shutil.which('cc'):
        pytest.skip('no C compiler')
    (tmp_path / 'slow.c').write_text(SHIM)
    run(['cc', '-shared', '-fPIC', '-o', tmp_path / 'slow.so', tmp_path / 'slow.c', '-ldl'], timeout=60)
    flag = tmp_path / 'slow'

    def prepare(host):
        plain = host.argv

        def argv(command=None):
            if command is not None:
                return plain(command)
            words = plain()
            program = words.index(find_binary())
            return [*words[:program], 'env', 'LD_PRELOAD=%s' % (tmp_path / 'slow.so'), 'SLOW_DISK=%s' % flag, *words[program:]]
        host.argv = argv
        return flag
    return prepare


def test_a_slow_disk_is_named(hosts, slow_disk, tmp_path):
    group = hosts(4)
    group.start_etcd(apart=True)
    a, victim = group[0], group[3]
    flag = slow_disk(victim)
    options = ['--disk-io', 'direct', '--osd-memory', '64M']
    a.up(create=True, options=options)
    for host in group.list[1:]:
        host.up(join=True, options=options)
    pool = a.make_copies(3, 'rbd', pg_num=16)

    def perf():
        infos = a.ceph_json('osd', 'perf')['osdstats']['osd_perf_infos']
        return {i['id']: i['perf_stats']['commit_latency_ms'] for i in infos}

    def named():
        detail = a.ask('health', detail='detail')['checks'].get('OSD_SLOW_DISK', {}).get('detail', [])
        return [d['message'].split()[0] for d in detail]
    with Load(a, pool, tmp_path, seconds=20, note=lambda *a: print(*a)) as load:
        flag.touch()
        wait_until(lambda: named() == ['osd.3'], 60, 0.5, 'osd.3 to be named')
        print(a.ceph('osd', 'perf').out, a.ceph('health', 'detail').out)
        # At first of flushes that had not ended.
        wait_until(lambda: perf()[3] >= 200, 60, 0.5, 'flushes of 200 ms')
        # Who waits for it does not take that for its own disk's time.
        assert max(ms for osd, ms in perf().items() if osd != 3) < 200, perf()
        said = a.cli('doctor', '--data', a.data).out
        takes = re.search(r'osd\.3: its disk takes (\d+) ms', said)
        assert takes and int(takes.group(1)) >= 200 and 'ceph osd out 3' in said, said
        why = json.loads(a.run(find_binary(), 'why', '%s/%s' % (pool, load.image), '--seconds', '4', '-f', 'json', '--conf', a.conf).out)
        print(a.run(find_binary(), 'why', pool, '--seconds', '4', '--conf', a.conf).out)
        worst = why['causes'][0]
        assert worst['where'].startswith('until osd.3 has it durable') and worst['share'] > 0.5, why
        assert worst['because'][0].startswith('the disk of osd.3 takes'), why
        # As it says.
        a.ceph('osd', 'out', '3')
        wait_until(lambda: a.whole(pool) and not any(3 in pg['acting'] for pg in a.pgs()), 90, 0.5, 'the data to leave osd.3')
        flag.unlink()
    load.verify()
    wait_until(lambda: named() == [], 90, 1, 'health to forget it')
