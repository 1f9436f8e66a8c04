"""Commands that end within a limit, and waiting."""
import subprocess
import time

START_LIMIT_S = 120


class Failed(Exception):
    """What cannot go on, for people."""


def run(argv, limit=120, **kw):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, **kw)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, argv[:6]))} ...: {done.stderr.strip()[-400:] or done.stdout.strip()[-400:]}")
    return done.stdout


def wait_for(condition, what, limit=START_LIMIT_S):
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise Failed(f'{what}: not within {limit} s')
        time.sleep(0.2)
