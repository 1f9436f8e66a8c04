"""What an operation costs the running server outside of its own code: system calls, task switches, bytes to the disk.

Upper bounds only, and wide ones, since these numbers follow from timing, too: `bounds.json` has what was measured once. What is exact
(instructions, allocations, calls at the doors) crates/simtest/tests/cost counts. After a change that is meant to cost something else:

    SKEP_BLESS=1 ./dev/test system cost
"""
import json
import os
import pathlib
import signal
import subprocess

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB
from skeptest.run import end_group, popen, wait_until
from skeptest.skep import find_binary

pytestmark = pytest.mark.own

BOUNDS = pathlib.Path(__file__).with_name('bounds.json')
IMAGE = 16 * MIB
# Times what is kept, by depth: with many operations under way it follows from the load which of them share a flush.
TOLERANCE = {1: 1.6, 16: 2.5}
OPS = {1: 1000, 16: 4000}
TRACED_OPS = {1: 300, 16: 1000}                    # each of their calls stops the server twice
FEW = 0.05                                         # an operation: such calls are not named
# Not worth a failure, an operation: what the server does by itself meanwhile.
SLACK = {'switches': 0.5, 'calls': 0.5, 'disk_bytes': 512}


@pytest.fixture
def server(own):
    """A server of its own, and an image whose every block was written."""
    skep = own(options=['--osd-threads', '1']).start()
    pool, image = skep.make_pool('rbd'), unique('image')
    skep.rbd('create', '%s/%s' % (pool, image), '--size', '%dB' % IMAGE)
    skep.target = ['--pool', pool, '--image', image, '--overwrite']
    bench(skep, 'write', 4, IMAGE // MIB, '--block-size', '1M')
    return skep


def bench(skep, rw, depth, ops, *more):
    out = skep.run(find_binary(), 'bench', 'rbd', '--conf', skep.conf, *skep.target, '--rw', rw, '--depth', depth, '--ops', ops,
                   '--seconds', 60, '-f', 'json', *more, timeout=90).out
    assert json.loads(out)['ops'] == ops, out


def counters(pid):
    """Voluntary task switches of all threads, and bytes that were sent to the disk."""
    switches = 0
    for task in pathlib.Path('/proc/%d/task' % pid).iterdir():
        try:
            text = (task / 'status').read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue                               # it has just ended
        switches += int(text.split('\nvoluntary_ctxt_switches:')[1].split()[0])
    io = dict(line.split(': ') for line in pathlib.Path('/proc/%d/io' % pid).read_text().splitlines())
    return {'switches': switches, 'disk_bytes': int(io['write_bytes'])}


class Strace:
    """Counts the system calls of all threads, by name; None where the host lets nobody look."""

    def __init__(self, pid, place):
        self.out, self.err, self.calls = place / 'calls', place / 'err', None
        argv = ['strace', '-f', '-c', '-p', pid, '-o', self.out]
        with open(self.err, 'wb') as err:
            self.proc = popen(argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err)

    def __enter__(self):
        wait_until(lambda: 'attached' in self.err.read_text() or self.proc.poll() is not None, what='strace to attach')
        return self

    def __exit__(self, *_):
        if self.proc.poll() is None:
            end_group(self.proc, signal.SIGINT)
            try:
                self.proc.wait(20)
            finally:
                end_group(self.proc)
        said = self.err.read_text()
        if 'attached' not in said:
            assert 'not permitted' in said, said
            return
        rows = [line.split() for line in self.out.read_text().splitlines()]
        # % time, seconds, usecs/call, calls, perhaps errors, name
        self.calls = {row[-1]: int(row[3]) for row in rows if len(row) > 4 and row[3].isdigit() and row[-1] != 'total'}


# What the server does by the clock counts, too: the more of it, the slower the host is. So it may cost no more in the best of so many.
ATTEMPTS = 3


def measure(server, place, rw, depth):
    """What one operation costs, by name; and its system calls, in words."""
    pid, ops = server.proc.pid, OPS[depth]
    before = counters(pid)
    bench(server, rw, depth, ops)
    after = counters(pid)
    seen = {name: (after[name] - before[name]) / ops for name in before}
    with Strace(pid, place) as strace:
        bench(server, rw, depth, TRACED_OPS[depth])
    names = ''
    if strace.calls is not None:
        by_name = {name: n / TRACED_OPS[depth] for name, n in strace.calls.items()}
        seen['calls'] = sum(by_name.values())
        often = sorted(((n, name) for name, n in by_name.items() if n > FEW), reverse=True)
        names = ', '.join('%s %.2f' % (name, n) for n, name in often)
    return seen, names


@pytest.mark.parametrize('depth', [1, 16])
@pytest.mark.parametrize('rw', ['randwrite', 'randread'])
def test_cost_of_4k(server, tmp_path, record_property, rw, depth):
    bench(server, rw, depth, 100)                  # what is done once is done
    seen, names = measure(server, tmp_path, rw, depth)
    job = '%s-4k-depth-%d' % (rw, depth)
    text = ', '.join('%s %.2f' % item for item in seen.items())
    record_property(job, '%s (%s)' % (text, names))
    kept = json.loads(BOUNDS.read_text()) if BOUNDS.exists() else {}
    if os.environ.get('SKEP_BLESS'):
        kept[job] = {name: round(n, 2) for name, n in seen.items()}
        BOUNDS.write_text(json.dumps(kept, indent=2, sort_keys=True) + '\n')
        return
    log = server.log.read_text(errors='replace')
    if 'bypassed (O_DIRECT)' not in log or 'requests="io_uring"' not in log:
        pytest.skip('the numbers are those of direct I/O through io_uring, which this host does not have')

    def worse():
        return ['%s: %.2f, %.2f were measured, times %.1f at most' % (name, n, kept[job][name], TOLERANCE[depth])
                for name, n in seen.items() if n > kept[job][name] * TOLERANCE[depth] + SLACK[name]]

    for _ in range(ATTEMPTS - 1):
        if worse():
            again, names = measure(server, tmp_path, rw, depth)
            seen = {name: min(n, again.get(name, n)) for name, n in seen.items()}
    assert not worse(), '%s costs more:\n  %s\n  calls: %s\nIf that is meant: SKEP_BLESS=1 ./dev/test system cost' % (
        job, '\n  '.join(worse()), names)
