"""Writes docs/compatibility.md to its output from the results of suites. usage: compatibility.py RESULTS REAL TESTS

Files of skeptest.suites.write_down, one for each suite; REAL may be empty.
"""
import collections
import json
import pathlib
import re
import sys

COMMANDS = 'rbd commands'

HEAD = '''# What of others' tests passes here

Made by `dev/compatibility` from its runs; not to be edited. Test suites of others, unmodified, against Skep (three OSDs), and beside it against a
real Ceph 16.2.15 (three OSDs, the same client programs on the same machine). A case counts as failed whatever the reason; the reasons are below.
What is left out is not run.

| suite | version | cases | passed | skipped | failed | Ceph: passed | skipped | failed |
|---|---|---|---|---|---|---|---|---|
'''


def load(folder):
    if not folder:
        return {}
    said = [json.loads(f.read_text()) for f in sorted(pathlib.Path(folder).glob('*.json'))]
    return {s['suite']: s for s in said}


def count(result):
    """Passed, skipped, failed."""
    outcomes = collections.Counter(outcome for outcome, _ in result['cases'].values())
    skipped = outcomes.pop('skipped', 0)
    return len(result['passed']), skipped, sum(outcomes.values())


def row(suite, ours, real):
    passed, skipped, failed = count(ours)
    beside = ' | '.join(map(str, count(real))) if real else 'not run | | '
    return '| %s | %s | %d | %d | %d | %d | %s |' % (suite, ours['version'], passed + skipped + failed, passed, skipped, failed, beside)


def first_line(text):
    """Of what a case said, a little, without the machine's paths."""
    return ' '.join(re.sub(r'/tmp/\S+', '...', text).split())[-160:].replace('|', '/')


def reasons(title, results):
    """Cases that did not pass, with why, those of one reason together."""
    by_reason = collections.defaultdict(list)
    for suite, result in results.items():
        for case, (outcome, why) in result['cases'].items():
            by_reason[suite, outcome, first_line(why)].append(case)
    lines = ['', '## ' + title, '', '| suite | outcome | cases | why |', '|---|---|---|---|']
    for (suite, outcome, why), cases in sorted(by_reason.items()):
        names = ', '.join('`%s`' % c for c in sorted(cases)[:6]) + (' and %d more' % (len(cases) - 6) if len(cases) > 6 else '')
        lines.append('| %s | %s | %s | %s |' % (suite, outcome, names, why or 'says nothing'))
    return lines


def left_out(results, programs):
    lines = ['', '## Left out', '', '| suite | cases | why |', '|---|---|---|']
    lines += ['| %s | all | %s |' % item for item in sorted(programs.items())]
    for suite, result in results.items():
        if suite == COMMANDS:
            continue
        lines += ['| %s | `%s` | %s |' % (suite, case, why) for case, why in sorted(result['left_out'].items())]
    return lines


def commands(result):
    """Each command of `rbd help` with its state."""
    states = {name: 'works' for name in result['passed']}
    states.update({name: 'refused: ' + first_line(why) for name, (_, why) in result['cases'].items()})
    states.update({name: 'not tried: ' + why for name, why in result['left_out'].items()})
    lines = ['', '## Every command of `rbd help`', '', '| command | state |', '|---|---|']
    return lines + ['| `%s` | %s |' % item for item in sorted(states.items())]


def main():
    ours, real = load(sys.argv[1]), load(sys.argv[2])
    sys.path.insert(0, sys.argv[3] + '/upstream')
    from expected import PROGRAMS_LEFT_OUT
    print(HEAD + '\n'.join(row(s, r, real.get(s)) for s, r in ours.items()))
    print('\n'.join(reasons('Not passed here', ours)))
    if real:
        print('\n'.join(reasons('Not passed on the real Ceph', real)))
    print('\n'.join(left_out(ours, PROGRAMS_LEFT_OUT)))
    if COMMANDS in ours:
        print('\n'.join(commands(ours[COMMANDS])))


main()
