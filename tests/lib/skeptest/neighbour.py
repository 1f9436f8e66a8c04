"""A well-behaved client beside an attack: librados in a process of its own, which writes and reads back small objects one
after the other and notes how long each took; and what the server and its OSDs look like meanwhile.

    with Neighbour(skep, pool) as n:       # returns once it has done something
        attack()
        n.check()                          # it got on, without error and without a long pause; the OSDs stayed up

Bounds are generous: an attack stops a server, noise does not. What was measured goes into the report of the run.
"""
import json
import selectors
import subprocess

from skeptest.run import end_group, wait_until

PAUSE_MAX_S = 20
ANSWER_S = 30
SCRIPT = r'''
import json, os, rados, sys, threading, time
handle = rados.Rados(conffile=sys.argv[1], name='client.admin')
handle.connect(timeout=30)
io = handle.open_ioctx(sys.argv[2])
seen = dict(count=0, longest=0.0, error=None)
began = [time.monotonic()]

def work():
    n = 0
    try:
        while True:
            n += 1
            data = os.urandom(512)
            for step in (lambda: io.write_full('neighbour-%d' % (n % 8), data),
                         lambda: io.read('neighbour-%d' % (n % 8))):
                began[0] = time.monotonic()
                got = step()
                seen['longest'] = max(seen['longest'], time.monotonic() - began[0])
                seen['count'] += 1
            if got != data:
                raise ValueError('read something else than was written')
            time.sleep(0.005)
    except Exception as e:
        seen['error'] = repr(e)

threading.Thread(target=work, daemon=True).start()
for line in sys.stdin:
    now = dict(seen, waiting=time.monotonic() - began[0])
    print(json.dumps(now), flush=True)
'''


class Neighbour:
    def __init__(self, skep, pool):
        self.skep, self.pool = skep, pool

    def __enter__(self):
        self.up_since = self._up_since()
        self.proc = self.skep.popen('/usr/bin/python3', '-c', SCRIPT, self.skep.conf, self.pool, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.seen()['count'], 30, 0.1, 'the neighbour to begin')
        with open('/proc/%d/clear_refs' % self.skep.proc.pid, 'w') as f:
            f.write('5')                           # the peak is counted anew
        self.rss_before = self._peak_kib()
        return self

    def __exit__(self, *_):
        end_group(self.proc)
        self.proc.wait(60)
        self.proc.stdin.close()
        self.proc.stdout.close()

    def _up_since(self):
        return {o['osd']: o['up_from'] for o in self.skep.ask('osd', 'dump')['osds'] if o['up']}

    def seen(self):
        """What it has done: count, longest (seconds), waiting (of the operation under way), error."""
        self.proc.stdin.write(b'\n')
        self.proc.stdin.flush()
        with selectors.DefaultSelector() as s:
            s.register(self.proc.stdout, selectors.EVENT_READ)
            assert s.select(ANSWER_S), 'the neighbour says nothing'
        return json.loads(self.proc.stdout.readline())

    def _peak_kib(self):
        with open('/proc/%d/status' % self.skep.proc.pid) as f:
            return next(int(line.split()[1]) for line in f if line.startswith('VmHWM:'))

    def grown_mib(self):
        """How much more memory the server has held at once, since this began, than before."""
        return (self._peak_kib() - self.rss_before) / 1024

    def check(self):
        before = self.seen()['count']

        def goes_on():
            now = self.seen()
            assert now['error'] is None, now
            assert now['waiting'] < PAUSE_MAX_S, 'the neighbour waits: %s' % now
            return now if now['count'] >= before + 4 else None
        seen = wait_until(goes_on, PAUSE_MAX_S + 10, 0.1, 'the neighbour to go on')
        assert seen['longest'] < PAUSE_MAX_S, seen
        assert self._up_since() == self.up_since, 'OSDs went down meanwhile'
        return seen
