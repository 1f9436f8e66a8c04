"""A VM's disk under load: stock fio with the rbd engine writes at random, reads back what it wrote while it goes on, and
all of it at the end; and how long it had to wait.

    with Load(host, pool, place) as load:      # returns once its first writes are done
        host.kill()
        ...
    load.verify()                              # every block again, by another fio: with the caches of nobody

Leaving the block waits for the load's own end. Any error that the client sees, and any block that is not what was
written, fails the test. `load.gap` is the longest time for which no operation came back: what a VM would have felt.
"""
import json
import pathlib
import subprocess

from skeptest.cluster import unique
from skeptest.run import end_group, wait_until

RATE = 150                                         # writes a second: what a debug build on two cores takes
BLOCK = 16 << 10
LIMIT_S = 150


def job_of(output):
    """fio's account of its job; messages may stand before it."""
    return json.JSONDecoder().raw_decode(output[output.index('\n{') + 1 if output[0] != '{' else 0:])[0]['jobs'][0]


class Load:
    """`seconds` of load against an image of its own, longer by what the faults cost."""

    def __init__(self, host, pool, place, seconds=6, note=None):
        self.host, self.pool, self.image = host, pool, unique('image')
        self.place = pathlib.Path(place) / self.image
        self.place.mkdir()
        self.size = seconds * RATE * BLOCK >> 20
        self.conf = host.with_conf(self.place / 'ceph.conf', ['rbd_cache = false']).conf
        self.gap, self.note = None, note
        host.rbd('create', '%s/%s' % (pool, self.image), '--size', '%dM' % self.size, timeout=60)
        self.prefix = host.rbd_json('info', '%s/%s' % (pool, self.image))['block_name_prefix']

    def _argv(self, *more):
        return ['env', 'CEPH_CONF=' + self.conf, 'fio', '--name=job', '--ioengine=rbd', '--clientname=admin', '--pool=' + self.pool,
                '--rbdname=' + self.image, '--rw=randwrite', '--bs=%d' % BLOCK, '--iodepth=8', '--size=%dm' % self.size,
                '--verify=crc32c', '--verify_fatal=1', '--randseed=5', '--verify_state_save=0',
                '--output-format=json', '--eta=never', *more]

    def __enter__(self):
        options = ['--rate_iops=,%d' % RATE, '--verify_backlog=64', '--verify_backlog_batch=32',
                   '--write_lat_log=%s/log' % self.place, '--log_max_value=0']
        self.out = open(self.place / 'out', 'w+b')
        self.proc = self.host.popen(*self._argv(*options), stdin=subprocess.DEVNULL, stdout=self.out,
                                    stderr=subprocess.STDOUT, cwd=str(self.place))
        try:
            wait_until(self._writes, 60, 0.1, 'fio to begin')
        except BaseException:
            self._kill()
            raise
        return self

    def _writes(self):
        """fio says nothing before its end, but the image has objects once it has written."""
        assert self.proc.poll() is None, 'fio ended:\n' + self.said()
        return self.prefix in self.host.rados(self.pool, 'ls').out

    def __exit__(self, kind, error, trace):
        if kind is not None:
            return self._kill()
        early = self.proc.poll() is not None
        try:
            self.proc.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self._kill()
            raise AssertionError('fio does not get on:\n%s\n%s' % (self.said(), self.host.ceph('-s', check=None)))
        assert self.proc.returncode == 0, self.said()
        job = job_of(self._output())
        assert job['error'] == 0 and job['write']['io_bytes'] == self.size << 20, job
        self.gap = self._longest_gap()
        if self.note:
            # On a slow machine a fault may outlast the load, which has felt its beginning all the same.
            self.note('longest pause of the client', '%.2f s%s' % (self.gap, ', but it was done too soon' * early))
        return False

    def _kill(self):
        end_group(self.proc)
        self.proc.wait(60)

    def _output(self):
        self.out.seek(0)
        return self.out.read().decode(errors='replace')

    def said(self):
        return self._output()[-6000:]

    def _longest_gap(self):
        """Seconds between completions; from fio's log: milliseconds, nanoseconds of latency, direction, size, offset."""
        log = next(self.place.glob('log_clat.*.log'))
        times = sorted(int(line.split(',')[0]) for line in log.read_text().splitlines())
        assert len(times) > 10, 'fio noted %d operations' % len(times)
        return max(b - a for a, b in zip(times, times[1:])) / 1000

    def verify(self):
        """Reads every block and compares it with what was written."""
        r = self.host.run(*self._argv('--verify_only'), timeout=LIMIT_S)
        job = job_of(r.out)
        assert job['error'] == 0 and job['read']['io_bytes'] == self.size << 20, job
