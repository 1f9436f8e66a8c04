"""The lab's back ends that are Skep's newer services, measured for real: every operation has figures, and nothing is left behind."""
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from skeptest.skep import find_binary
from skeptest.run import wait_until

pytestmark = pytest.mark.own
LAB = Path(__file__).parents[2] / 'dev/lab'
SETTINGS = '''
[run]
rounds = 1
scratch = "{scratch}"
[skep]
osd_size = "2G"
[ceph]
osd_size = "4G"
[objects]
grid = [{{ object = [4096], clients = [2] }}]
runtime = 0.5
volume = "1M"
[metadata]
grid = [{{ files = [20], clients = [2] }}]
runtime = 0.5
'''
OPS = {'objects': {'put', 'get', 'list', 'delete'}, 'metadata': {'create', 'stat', 'readdir', 'rename', 'unlink'}}


@pytest.fixture
def folder():
    """With a short name: sockets of servers lie in it, whose paths have 108 bytes at most."""
    with tempfile.TemporaryDirectory(prefix='skep-lab-') as made:
        yield Path(made)


def start(folder, study, backend):
    settings = folder / 'lab.toml'
    settings.write_text(SETTINGS.format(scratch=folder / 'scratch'))
    argv = [str(LAB), 'run', study, '--backends', backend, '-c', str(settings), '--out', str(folder / 'run')]
    return subprocess.Popen(argv, env={**os.environ, 'SKEP_BIN': find_binary()}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def results(folder):
    lines = [json.loads(line) for line in (folder / 'run/run.jsonl').read_text().splitlines()]
    return [line for line in lines if line['type'] == 'result']


def left(folder):
    """Processes that have the run's scratch directory in their arguments, and what it holds."""
    found = [p.name for p in Path('/proc').iterdir() if p.name.isdigit() and str(folder / 'scratch').encode() in cmdline(p)]
    return found + [p.name for p in (folder / 'scratch').glob('*')]


def cmdline(process):
    try:
        return (process / 'cmdline').read_bytes()
    except OSError:
        return b''


@pytest.mark.parametrize('study,backend', [
    ('objects', 'skep-s3:1'),
    ('metadata', 'skep-fs:1'),
    pytest.param('objects', 'rgw:1', marks=pytest.mark.long),
    pytest.param('metadata', 'cephfs:1', marks=pytest.mark.long),
    pytest.param('objects', 'skep-s3:3', marks=pytest.mark.long),
    pytest.param('metadata', 'skep-fs:3', marks=pytest.mark.long),
])
def test_every_operation_is_measured(folder, study, backend):
    lab = start(folder, study, backend)
    said, _ = lab.communicate(timeout=570)
    found = results(folder)
    assert lab.returncode == 0 and not [r for r in found if r.get('error')], said
    assert {r['case']['op'] for r in found} == OPS[study]
    for r in found:
        assert r['values']['iops'] > 0 and r['values']['latency_p50'] > 0 and r['values']['server_cores'] >= 0, r
    assert left(folder) == []


def test_a_lab_that_is_killed_leaves_no_gateway(folder):
    lab = start(folder, 'objects', 'skep-s3:1')
    wait_until(lambda: b'lab.load.s3' in b''.join(cmdline(p) for p in Path('/proc').iterdir() if p.name.isdigit()), 120, what='a load that runs')
    os.kill(lab.pid, signal.SIGKILL)
    lab.communicate(timeout=60)
    wait_until(lambda: left(folder) == [], 120, what='nothing left')
