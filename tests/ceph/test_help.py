"""Every command that `ceph --help` names, and how it is here: the table of docs/compatibility.md comes from this run.

A command that is only refused says so in its own help. What the others answer is compared with recorded answers of a real Ceph
(test_surface.py, upstream's scripts beside this file); here it is counted by command. On a real Ceph (SKEP_TEST_CONF) the run lists its commands.
"""
import collections
import json
import pathlib

import rados

from skeptest.cluster import external
from skeptest.gtest import Case
from skeptest.suites import write_down

HERE = pathlib.Path(__file__).parent
NOT_BUILT = 'not built in skep'


def described(cluster):
    """Help by command, of the monitors and the manager."""
    out = {}
    with rados.Rados(conffile=str(cluster.conf), rados_id='admin') as client:
        for ask in (lambda c: client.mon_command(c, b''), lambda c: client.mgr_command(c, b'')):
            code, said, why = ask(json.dumps({'prefix': 'get_command_descriptions'}))
            assert code == 0, why
            for one in json.loads(said).values():
                words = [w for w in one['sig'] if isinstance(w, str) and '=' not in w]
                out[' '.join(words)] = (one.get('help') or '', any(isinstance(w, dict) and w.get('req', True) not in (False, 'false')
                                                                   for w in one['sig']))
    return out


def recorded():
    """How many recorded answers of the real one there are, by command; each is compared with ours in every run."""
    count = collections.Counter()
    for line in (HERE / 'commands.jsonl').read_text().splitlines():
        count[json.loads(line)['case'].split(' | ')[0]] += 1
    return count


def test_help(cluster):
    commands, counts = described(cluster), recorded()
    assert len(commands) > 200 and 'status' in commands
    cases = {}
    for prefix, (text, needs) in sorted(commands.items()):
        if external():
            cases[prefix] = Case('passed', '')
        elif NOT_BUILT in text:
            # It says so to whoever runs it, too, where it needs no arguments.
            if not needs:
                r = cluster.ceph(*prefix.split(), check=None)
                assert r.returncode != 0, '%s says that it is not built, and goes well' % prefix
            cases[prefix] = Case('failed', 'refused: ' + text)
        else:
            cases[prefix] = Case('passed', '%d answers compared' % counts[prefix] if counts[prefix] else '')
    write_down('ceph commands', cluster.ceph('version').out.split()[2], cases)
