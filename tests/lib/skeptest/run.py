"""Running a command with a hard time limit.

Every process that a test starts goes through here: it gets a process group of its own, dies with the
test run (parent-death signal), and its whole group is killed when the limit passes. A command that
hangs is a failed test, never a hung run.
"""
import os
import signal
import subprocess
import time

LIMIT_S = 90
# Asks for the signal and becomes the command. Python could ask between fork and exec, but forks all of itself then: 10 to 20 ms of
# the processor for the 200 MiB of a process that has collected all tests, 2 ms so.
DIES_WITH_PARENT = ('/usr/bin/setpriv', '--pdeathsig', 'KILL', '--')


class Result:
    """What a command left: exit status and its two outputs, as bytes and as text."""

    def __init__(self, argv, returncode, out, err):
        self.argv, self.returncode, self.out_bytes, self.err_bytes = argv, returncode, out, err

    @property
    def out(self):
        return self.out_bytes.decode(errors='replace')

    @property
    def err(self):
        return self.err_bytes.decode(errors='replace')

    def __repr__(self):
        return '%s\n  exit %s\n  stdout: %s\n  stderr: %s' % (
            ' '.join(map(str, self.argv)), self.returncode, self.out[-3000:], self.err[-3000:])


def popen(argv, env=None, cwd=None, **kw):
    """A process in a group of its own that ends with the test run."""
    full = dict(os.environ)
    full.update(env or {})
    return subprocess.Popen([*DIES_WITH_PARENT, *map(str, argv)], env=full, cwd=cwd, start_new_session=True, **kw)


def end_group(proc, sig=signal.SIGKILL):
    """Signals the whole group of a process made by `popen`."""
    try:
        os.killpg(proc.pid, sig)
    except ProcessLookupError:
        pass


def judged(result, check):
    """The result of a command whose exit status had to be `check` (None: any; 'fails': not 0)."""
    if check == 'fails':
        assert result.returncode != 0, 'should have failed: %r' % result
    elif check is not None:
        assert result.returncode == check, 'exit status %s, not %s: %r' % (result.returncode, check, result)
    return result


def run(argv, stdin=b'', timeout=LIMIT_S, check=0, env=None, cwd=None):
    """Runs a command to its end. `check`: see `judged`."""
    if isinstance(stdin, str):
        stdin = stdin.encode()
    proc = popen(argv, env, cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = proc.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        end_group(proc)
        out, err = proc.communicate()
        raise AssertionError('not finished within %s s: %r' % (timeout, Result(argv, 'none', out, err)))
    finally:
        end_group(proc)
    return judged(Result(argv, proc.returncode, out, err), check)


def wait_until(condition, timeout=LIMIT_S, every=0.1, what='a condition'):
    """Waits until `condition()` is true and returns its value; fails after `timeout` seconds. `what` may be a function, which
    then says how things stand."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, 'waited %s s for %s' % (timeout, what() if callable(what) else what)
        time.sleep(every)
