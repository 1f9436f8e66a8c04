"""Runs the cases of a googletest program, one result for each, also where one of them hangs or ends the program.

The program prints each case as it begins and ends. One that says nothing for too long is killed, and what had begun
has `hung`; one that ends in the middle of a case, that has `crashed`; both are started again without what has run.
"""
import re
import selectors
import subprocess
import time

from skeptest.run import end_group

# `[ RUN      ] Suite.Case`, and its end, which other output of the program may share a line with.
MARK = re.compile(r'\[ +(RUN|OK|FAILED|SKIPPED) +\] ([\w/]+\.[\w/]+)(?:, where .*?)?(?: \(\d+ ms\))?\s*$')
ENDED = {'OK': 'passed', 'FAILED': 'failed', 'SKIPPED': 'skipped'}
# What a failed case said: so many of its last characters are kept.
TEXT_MAX = 3000
# More starts than this would be a program that never gets anywhere.
STARTS_MAX = 300


class Case:
    def __init__(self, outcome, text='', seconds=0.0):
        self.outcome, self.text, self.seconds = outcome, text[-TEXT_MAX:], seconds

    def __repr__(self):
        return '%s: %s' % (self.outcome, self.text)


class Watched:
    """The program's output as lines, until it ends or is silent for `silence_s`."""

    def __init__(self, proc, silence_s):
        self.proc, self.silence_s, self.silent = proc, silence_s, False

    def __iter__(self):
        rest = b''
        with selectors.DefaultSelector() as ready:
            ready.register(self.proc.stdout, selectors.EVENT_READ)
            while True:
                if not ready.select(self.silence_s):
                    self.silent = True
                    break
                got = self.proc.stdout.read1(65536)
                if not got:
                    break
                *lines, rest = (rest + got).split(b'\n')
                yield from (line.decode(errors='replace') for line in lines)
        end_group(self.proc)
        self.proc.wait(60)
        if rest:
            yield rest.decode(errors='replace')


def _pass(lines, cases):
    """Reads one run of the program into `cases`; returns the case in which it ended, or None."""
    now, said, since = None, [], 0.0
    for line in lines:
        mark = MARK.search(line)
        if not mark:
            said = said[-200:] + [line]
            continue
        kind, name = mark.groups()
        if kind == 'RUN':
            now, said, since = name, [], time.monotonic()
        elif name == now:
            text = '\n'.join(said) if ENDED[kind] != 'passed' else ''
            cases[name] = Case(ENDED[kind], text, time.monotonic() - since)
            now = None
        else:
            said.append(line)
    if now:
        kind = 'hung' if lines.silent else 'crashed'
        cases[now] = Case(kind, '\n'.join(said), time.monotonic() - since)
    return now


def run_cases(start, only='*', without=(), silence_s=120):
    """`start(arguments)` starts the program. Returns {name: Case} of what matched `only` and not `without`."""
    cases = {}
    for _ in range(STARTS_MAX):
        negative = ':'.join([*without, *cases])
        proc = start(['--gtest_filter=%s%s' % (only, '-' + negative if negative else ''), '--gtest_color=no'])
        lines = Watched(proc, silence_s)
        if _pass(lines, cases) is None:
            status = proc.returncode
            assert cases or status == 0, 'it ran nothing and ended with %s' % status
            return cases
    raise AssertionError('it was started %d times and did not end by itself' % STARTS_MAX)


def stdout_and_err():
    """How `start` opens the program's outputs."""
    return {'stdin': subprocess.DEVNULL, 'stdout': subprocess.PIPE, 'stderr': subprocess.STDOUT}
