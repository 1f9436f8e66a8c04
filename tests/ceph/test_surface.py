"""Commands with good and bad arguments, in one long run: exit codes, texts and keys as recorded from Ceph 16.2.15.

`commands.jsonl` holds what the real one answered (tests/tools/record-commands made it). Where Skep answers otherwise on
purpose, the line says what and why; all else has to be the same. Numbers count for nothing: times, epochs, ids of pools.
"""
import json
import pathlib
import re
import socket
import subprocess

HERE = pathlib.Path(__file__).parent
CASES = HERE / 'commands.jsonl'
TOOL = HERE.parent / 'tools' / 'record-commands'


def normal(text):
    """Without what differs from run to run."""
    return re.sub(r'\d+', 'N', text.replace(socket.gethostname().split('.')[0], 'HOST')).strip()


def test_answers_as_recorded(own):
    skep = own().start()
    try:
        expected = [json.loads(line) for line in CASES.read_text().splitlines()]
        run = skep.run('/usr/bin/python3', str(TOOL), skep.conf, str(CASES), timeout=300)
        answers = [json.loads(line) for line in run.out.splitlines()]
        assert len(answers) == len(expected), run.err[-2000:]
        wrong = []
        for want, have in zip(expected, answers):
            want = {**want, **want.get('skep', {})}
            have = {'code': have['code'], 'status': normal(have['status']), 'keys': have['keys']}
            same = [k for k in have if want.get(k) == have[k] or k not in want]
            wrong += ['%s: %s %r, not %r' % (want['case'], k, have[k], want.get(k)) for k in have if k not in same]
        assert not wrong, '%d of %d differ:\n%s' % (len(wrong), len(expected), '\n'.join(wrong))
    finally:
        skep.stop()
