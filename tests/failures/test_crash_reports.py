"""A panic of a role leaves a crash report: who, where, with the backtrace; it is there after a restart, too."""
import json

import pytest

from skeptest.run import wait_until

pytestmark = pytest.mark.own


def test_a_panic_is_a_crash_that_operators_are_told_of(own, monkeypatch):
    monkeypatch.setenv('SKEP_TEST_PANICS', '1')
    skep = own(osds=1).start()
    assert json.loads(skep.ceph('crash', 'ls', '-f', 'json').out) == []
    skep.admin('skep test panic', role='osd.0', point='loop')
    crashes = wait_until(lambda: json.loads(skep.ceph('crash', 'ls', '-f', 'json').out), 90, 0.5, 'the report')
    [report] = crashes
    assert report['entity_name'] == 'osd.0' and 'a test asked for a panic' in report['assert_msg'], report
    assert any('panic_if_wanted' in line for line in report['backtrace']), report['backtrace'][:20]
    assert 'RECENT_CRASH' in skep.ceph('health', 'detail').out
    skep.stop()
    skep.start()
    assert json.loads(skep.ceph('crash', 'info', report['crash_id']).out) == report
    skep.ceph('crash', 'archive-all')
    assert 'RECENT_CRASH' not in skep.ceph('health', 'detail').out
