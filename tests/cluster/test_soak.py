"""`dev/soak` for three minutes: what of its parts finds time, and its report. Longer ones are run by hand."""
import pathlib
import re

import pytest

from skeptest.hosts import usable
from skeptest.run import run

pytestmark = [pytest.mark.own, pytest.mark.long]
SOAK = pathlib.Path(__file__).resolve().parents[2] / 'dev' / 'soak'


def test_three_minutes(workdir, tmp_path):
    why = usable()
    if why:
        pytest.skip(why)
    report = tmp_path / 'report.md'
    r = run([SOAK, '--minutes', '3', '--report', report, '--dir', workdir], timeout=1200, check=None)
    text = report.read_text() if report.exists() else r.err
    assert r.returncode == 0, text
    assert '**Passed**' in text and 'HEALTH_OK' in text, text
    read_back = int(re.search(r'read back \| (\d+) \|', text)[1])
    done = re.findall(r'^\| ([a-z ]+) \| (\d+) \| [0-9.]+ \| [0-9.]+ \|$', text, re.M)
    assert read_back >= 1 and sum(int(n) for _, n in done) >= 3, text
    assert not list(workdir.glob('skep-soak-*')), 'nothing is left behind'


def test_what_makes_no_sense_is_refused():
    for words in (['--minutes', '0'], ['--hours', '1', '--minutes', '1'], ['--old', '/none']):
        r = run([SOAK, *words], check=None)
        assert r.returncode == 2 and 'usage' in r.err, r
