"""Commands to the manager and the monitors in one process that lives on: for conditions that are asked for again and again.

Each `ceph` is a Python of its own, a fifth of a second of processor time; an answer here costs a thousandth. What the
commands themselves do is tested with `ceph`.

Invariants: an answer comes in time or not at all, and then `ceph` is asked; it comes no sooner than that of `ceph` would, so
that what was ordered just before has begun; nothing of it outlives its cluster's process.
"""
import json
import selectors
import subprocess
import time

from skeptest.run import end_group

ANSWER_S = 5
START_S = 0.2                                      # what `ceph` takes before it asks
SCRIPT = r'''
import json, rados, sys
handle = rados.Rados(conffile=sys.argv[1], name='client.admin')
handle.connect(timeout=5)
for line in sys.stdin:
    to, command = json.loads(line)
    send = handle.mgr_command if to == 'mgr' else handle.mon_command
    status, out, _ = send(json.dumps(command), b'')
    print(json.dumps([status, out.decode()]), flush=True)
'''


class Asker:
    """A client of one cluster; connects when it is first asked."""

    def __init__(self, cluster):
        self.cluster, self.proc = cluster, None

    def ask(self, to, command):
        """The answer to a command that succeeded, or None."""
        if self.proc is None:
            self.proc = self.cluster.popen('/usr/bin/python3', '-c', SCRIPT, self.cluster.conf, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        time.sleep(START_S)
        try:
            self.proc.stdin.write(json.dumps([to, command]).encode() + b'\n')
            self.proc.stdin.flush()
            line = self._line()
        except BrokenPipeError:
            line = b''
        if not line.endswith(b'\n'):
            self.end()
            return None
        status, out = json.loads(line)
        return out if status == 0 else None

    def _line(self):
        """A line is written at once, but may be longer than the pipe."""
        line = b''
        with selectors.DefaultSelector() as selector:
            selector.register(self.proc.stdout, selectors.EVENT_READ)
            while not line.endswith(b'\n') and selector.select(ANSWER_S):
                more = self.proc.stdout.read1(1 << 16)
                if not more:
                    break
                line += more
        return line

    def end(self):
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)
            for pipe in (self.proc.stdin, self.proc.stdout):
                try:
                    pipe.close()
                except BrokenPipeError:          # a question that was never read
                    pass
            self.proc = None
