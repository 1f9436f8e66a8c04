"""Whole test suites of others: what their cases came to, held against what is expected, and written down.

A rule is (suite, case, reason), both with wildcards. A case that fails has to be named by a rule, and one that a rule names
has to fail: what begins to work is taken from the list, and the page (docs/compatibility.md) shows it.
"""
import fnmatch
import json
import os
import pathlib

GOOD = ('passed', 'skipped')


def reason(rules, suite, case):
    """The reason of the first rule that names the case, or None."""
    return next((why for s, c, why in rules if fnmatch.fnmatch(suite, s) and fnmatch.fnmatch(case, c)), None)


def patterns(rules, suite):
    """Patterns of cases that the rules name in a suite, with their reasons."""
    return {c: why for s, c, why in rules if fnmatch.fnmatch(suite, s)}


def write_down(suite, version, cases, fails=(), left_out=None):
    """For dev/compatibility, where SKEP_UPSTREAM_RESULTS names its folder."""
    folder = os.environ.get('SKEP_UPSTREAM_RESULTS')
    if folder:
        said = {'suite': suite, 'version': version, 'left_out': left_out or {},
                'cases': {n: [c.outcome, reason(fails, suite, n) or c.text[-200:]] for n, c in cases.items()
                          if c.outcome != 'passed'},
                'passed': [n for n, c in cases.items() if c.outcome == 'passed']}
        pathlib.Path(folder, suite.replace('/', '-') + '.json').write_text(json.dumps(said, indent=1, sort_keys=True))


def judge(suite, cases, fails, flaky=()):
    """Fails where a case did not come out as expected. Of those that `flaky` names, any outcome is."""
    assert cases, 'nothing ran'
    wrong = []
    for name, case in cases.items():
        why = reason(fails, suite, name)
        if reason(flaky, suite, name):
            continue
        if case.outcome not in GOOD and not why:
            wrong.append('%s %s\n%s' % (name, case.outcome, case.text))
        if case.outcome in GOOD and why:
            wrong.append('%s passes, so it no longer belongs into the list (%s)' % (name, why))
    assert not wrong, '%d of %d cases:\n%s' % (len(wrong), len(cases), '\n'.join(wrong))
