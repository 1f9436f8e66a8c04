"""Writes docs/compatibility.md to its output from the results of suites. usage: compatibility.py RESULTS REAL TESTS COMMIT PAGE

Files of skeptest.suites.write_down, one for each suite; REAL may be empty. PAGE is the page as it was: what it says of suites that have no
results now is kept, with the commit of their run.
"""
import collections
import json
import pathlib
import re
import sys

COMMANDS, CEPH_COMMANDS = 'rbd commands', 'ceph commands'
TABLES = (CEPH_COMMANDS, COMMANDS)

HEAD = '''# What of others' tests passes here

Made by `dev/compatibility` from its runs; not to be edited. Test suites of others, unmodified, against Skep (three OSDs), and beside it against a
real Ceph 16.2.15 (three OSDs, the same client programs on the same machine). A case counts as failed whatever the reason; the reasons are below.
What is left out is not run. "Run at" is the commit whose server ran the suite.

| suite | version | cases | passed | skipped | failed | Ceph: passed | skipped | failed | run at |
|---|---|---|---|---|---|---|---|---|---|
'''


class Page:
    """The page as it was: rows by section, each with its suite first."""

    def __init__(self, path):
        self.sections, title = collections.defaultdict(list), ''
        for line in pathlib.Path(path).read_text().splitlines():
            title = line[3:] if line.startswith('## ') else title
            if line.startswith('| ') and not line.startswith(('| suite', '| command')):
                self.sections[title].append(line)

    def rows(self, title, without=()):
        return [line for line in self.sections[title] if line.split(' | ')[0][2:] not in without]


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


def beside(suite, real, page):
    """The real one's numbers: of now, or of the earlier run."""
    if real:
        return ' | '.join(map(str, count(real)))
    earlier = [line.strip('| ').split(' | ') for line in page.rows('') if line.startswith('| %s | ' % suite)]
    return ' | '.join(earlier[0][6:9]) if earlier and len(earlier[0]) >= 9 else 'not run | | '


def row(suite, ours, real, commit, page):
    passed, skipped, failed = count(ours)
    return '| %s | %s | %d | %d | %d | %d | %s | %s |' % (
        suite, ours['version'], passed + skipped + failed, passed, skipped, failed, beside(suite, real, page), ours.get('commit', commit))


def kept(page, ours):
    """Rows of suites that were run earlier. Pages before this column did not say when."""
    for line in page.rows('', ours):
        yield line if line.count(' | ') >= 9 else line + ' earlier |'


def first_line(text):
    """Of what a case said, a little, without the machine's paths."""
    return ' '.join(re.sub(r'/tmp/\S+', '...', text).split())[-160:].replace('|', '/')


def reasons(title, results, page):
    """Cases that did not pass, with why, those of one reason together."""
    earlier = page.rows(title, results)
    results = {suite: result for suite, result in results.items() if suite not in TABLES}
    by_reason = collections.defaultdict(list)
    for suite, result in results.items():
        for case, (outcome, why) in result['cases'].items():
            by_reason[suite, outcome, first_line(why)].append(case)
    lines = ['', '## ' + title, '', '| suite | outcome | cases | why |', '|---|---|---|---|']
    for (suite, outcome, why), cases in sorted(by_reason.items()):
        names = ', '.join('`%s`' % c for c in sorted(cases)[:6]) + (' and %d more' % (len(cases) - 6) if len(cases) > 6 else '')
        lines.append('| %s | %s | %s | %s |' % (suite, outcome, names, why or 'says nothing'))
    return lines + [line for line in earlier if line.split(' | ')[0][2:] not in TABLES]


def left_out(results, programs, page):
    earlier = page.rows('Left out', [*results, *programs])
    lines = ['', '## Left out', '', '| suite | cases | why |', '|---|---|---|']
    lines += ['| %s | all | %s |' % item for item in sorted(programs.items())]
    for suite, result in results.items():
        if suite in TABLES:
            continue
        lines += ['| %s | `%s` | %s |' % (suite, case, why) for case, why in sorted(result['left_out'].items())]
    return lines + earlier


def commands(result):
    """Each command of `rbd help` with its state."""
    states = {name: 'works' for name in result['passed']}
    states.update({name: 'refused: ' + first_line(why) for name, (_, why) in result['cases'].items()})
    states.update({name: 'not tried: ' + why for name, why in result['left_out'].items()})
    return states


def ceph_commands(result, real):
    """Each command of `ceph --help`, here or there, with its state: served, refused by its own help, or unknown."""
    states = {name: 'served' for name in result['passed']}
    states.update({name: first_line(why) for name, (_, why) in result['cases'].items()})
    if real:
        states.update({name: 'unknown here' for name in real['passed'] if name not in states})
        states.update({name: state + '; not of 16.2' for name, state in states.items() if name not in real['passed']})
    return states


def table(title, states, page):
    lines = ['', '## ' + title, '', '| command | state |', '|---|---|']
    rows = ['| `%s` | %s |' % item for item in sorted(states.items())] if states else page.rows(title)
    return lines + (rows or ['| all of them | not run |'])


# Of the classes that a stock OSD of 16.2 loads. tests/api/test_rados.py asks for each.
CLASSES_REFUSED = """
## Object classes that are refused

EOPNOTSUPP, as from an OSD that has not loaded them. All others of its `osd_class_load_list` are served (docs/protocol/classes.md).

| class | why |
|---|---|
| `cephfs` | only `cephfs-data-scan` calls it, which rebuilds lost metadata |"""


def main():
    ours, real, commit, page = load(sys.argv[1]), load(sys.argv[2]), sys.argv[4], Page(sys.argv[5])
    sys.path.insert(0, sys.argv[3] + '/upstream')
    from expected import PROGRAMS, PROGRAMS_LEFT_OUT
    rows = [row(s, r, real.get(s), commit, page) for s, r in ours.items() if s not in TABLES or s == COMMANDS]
    rows += kept(page, ours)
    never = [p for p in PROGRAMS if not any(line.startswith('| %s | ' % p) for line in rows)]
    rows += ['| %s | | not run | | | | | | | |' % p for p in never]
    print(HEAD + '\n'.join(sorted(rows)))
    print('\n'.join(reasons('Not passed here', ours, page)))
    print('\n'.join(reasons('Not passed on the real Ceph', real, page)))
    print('\n'.join(left_out(ours, PROGRAMS_LEFT_OUT, page)))
    print(CLASSES_REFUSED)
    states = ceph_commands(ours[CEPH_COMMANDS], real.get(CEPH_COMMANDS)) if CEPH_COMMANDS in ours else {}
    print('\n'.join(table('Every command of `ceph --help`', states, page)))
    print('\n'.join(table('Every command of `rbd help`', commands(ours[COMMANDS]) if COMMANDS in ours else {}, page)))


main()
