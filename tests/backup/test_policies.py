"""Policies of `skep backup`: kept by the cluster, run by cron or by `skep backup serve`, watched by the cluster's health."""
import json
import os
import signal

import pytest

from skeptest.cluster import unique
from skeptest.images import MIB, pattern
from skeptest.run import popen, run, wait_until
from skeptest.skep import find_binary


class Policies:
    def __init__(self, cluster, tmp_path):
        self.cluster, self.tmp = cluster, tmp_path
        self.repo, self.key = tmp_path / 'repo', tmp_path / 'key'
        self.key.write_text('secret\n')
        self.names = []

    def __call__(self, *args, **kw):
        return run([find_binary(), 'backup', *args], env=self.cluster.env(), **kw)

    def init(self):
        self('init', self.repo, '--key-file', self.key)

    def set(self, of, *args, **kw):
        name = unique('policy')
        self('policy', 'set', name, '--of', of, '--to', self.repo, '--key-file', self.key, '--every', '1h', *args, **kw)
        self.names.append(name)
        return name

    def row(self, name):
        rows = json.loads(self('policy', 'ls', '-f', 'json').out)
        return next((r for r in rows if r['name'] == name), None)

    def check(self, code, name):
        """The alarm's lines about the policy."""
        found = self.cluster.ask('health', 'detail')['checks'].get(code, {'detail': []})
        return [d['message'] for d in found['detail'] if 'policy %s:' % name in d['message']]


@pytest.fixture
def policies(cluster, tmp_path):
    made = Policies(cluster, tmp_path)
    yield made
    for name in made.names:
        made('policy', 'rm', name, check=None)


def test_what_is_due_runs(cluster, images, policies):
    policies.init()
    data = pattern(3 * MIB)
    one, two = images.load(data), images.load(pattern(MIB))
    name = policies.set(images.spec(one)[:-1] + '?', '--trial', '1d', '--keep', '1d:1h')
    row = policies.row(name)
    assert (row['every'], row['trial'], row['keep'], row['images']) == (3600, 86400, '1d:1h', []), row
    rows = json.loads(policies('run', name, '-f', 'json').out)
    images_of = {r['image'] for r in rows if 'id' in r}
    assert images.spec(one) in images_of, rows
    trial, = [r for r in rows if r.get('trial', '').startswith(images.spec(one) + '@')]
    assert trial['compared'] is True, rows
    image = next(i for i in policies.row(name)['images'] if i['image'] == images.spec(one))
    assert image['error'] is None and image['trial_good'] and image['good'], image
    figures = cluster.ceph('skep', 'metrics').out
    labels = '{policy="%s",image="%s"}' % (name, images.spec(one))
    assert 'ceph_skep_backup_last_success_time%s %d\n' % (labels, image['good']) in figures, figures[-2000:]
    assert 'ceph_skep_backup_failed%s 0\n' % labels in figures
    # An hour has not passed.
    assert policies('run', name).out == ''
    assert images.spec(one) + '@' in policies('run', name, '--now').out
    assert json.loads(policies('ls', policies.repo, '--key-file', policies.key, '-f', 'json').out)[-1]['policy'] == name
    # An image that is gone has no turn any more.
    cluster.rbd('snap', 'purge', images.spec(one))
    cluster.rbd('rm', images.spec(one))
    policies('run', name, '--now', check=None)
    assert images.spec(one) not in {i['image'] for i in policies.row(name)['images']}
    assert two in cluster.rbd('ls', images.pool).out
    policies('policy', 'rm', name)
    assert policies.row(name) is None
    assert name not in cluster.ceph('config-key', 'ls').out


def test_alarms(cluster, images, policies):
    image = images.load(pattern(MIB))
    name = policies.set(images.spec(image), '--trial', '1d')
    failed = policies('run', name, check='fails')
    assert 'there is no repository' in failed.err, failed
    line, = policies.check('BACKUP_FAILED', name)
    assert 'there is no repository' in line, line
    policies.init()
    policies('run', name, '--now')
    assert policies.check('BACKUP_FAILED', name) == []
    assert policies.check('BACKUP_STALE', name) == []
    # A backup that rots is found by its trial.
    pack = max((policies.repo / 'data').glob('*/*'), key=lambda p: p.stat().st_size)
    whole = pack.read_bytes()
    pack.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    key = 'skep/backup/row/%s/%s' % (name, images.spec(image))
    kept = json.loads(cluster.ceph('config-key', 'get', key).out)
    old = dict(kept, trial=1, trial_good=1)
    cluster.ceph('config-key', 'set', key, json.dumps(old))
    assert 'was not tried' in policies.check('BACKUP_TRIAL_FAILED', name)[0]
    policies('run', name, check='fails')
    assert 'not what was written' in policies.check('BACKUP_TRIAL_FAILED', name)[0]
    pack.write_bytes(whole)
    cluster.ceph('config-key', 'set', key, json.dumps(dict(old, trial=None)))
    policies('run', name)
    assert policies.check('BACKUP_TRIAL_FAILED', name) == []
    # Nobody ran it for long.
    cluster.ceph('config-key', 'set', key, json.dumps(dict(kept, good=1000)))
    assert images.spec(image) in policies.check('BACKUP_STALE', name)[0]
    policies('policy', 'rm', name)
    assert policies.check('BACKUP_STALE', name) == []


def test_a_prune_that_fails_is_told(images, policies):
    policies.init()
    image = images.load(os.urandom(MIB))
    other = images.load(os.urandom(MIB))
    policies('run', '--of', images.spec(other), '--to', policies.repo, '--key-file', policies.key)
    name = policies.set(images.spec(image), '--keep', '1w:1w')
    policies('run', name, '--now')
    # The image is backed up anew, but of the other one's backup nothing is known any more.
    for index in (policies.repo / 'index').iterdir():
        index.unlink()
    failed = policies('run', name, '--now', check='fails')
    assert images.spec(image) + '@' in failed.out and 'nothing is taken away' in failed.err, failed
    line, = policies.check('BACKUP_FAILED', name)
    assert 'nothing is taken away' in line, line
    policies('repair', policies.repo, '--key-file', policies.key)
    policies('run', name, '--now')
    assert policies.check('BACKUP_FAILED', name) == []
    assert len(json.loads(policies('ls', policies.repo, '--key-file', policies.key, '-f', 'json').out)) == 2


def test_bad_policies_are_refused(images, policies):
    image = images.load(pattern(MIB))
    policies.init()
    for args, says in (((images.spec(image), '--every', '5'), 'no duration'),
                       ((images.spec(image), '--keep', '1h:1d'), 'is not within'),
                       (('nopool/x',), 'nopool'),
                       (('a/b/c/d',), 'is no POOL'),
                       ((images.spec(image), '--to', 'relative'), 'from the root')):
        argv = ['policy', 'set', 'x', '--key-file', policies.key, '--of', args[0], *args[1:]]
        if '--to' not in args:
            argv += ['--to', policies.repo]
        if '--every' not in args:
            argv += ['--every', '1h']
        refused = policies(*argv, check='fails')
        assert says in refused.err, (args, refused)
    assert "there is no policy 'none'" in policies('run', 'none', check='fails').err
    assert "there is no policy 'none'" in policies('policy', 'rm', 'none', check='fails').err
    assert 'letters' in policies('policy', 'set', 'a/b', '--of', images.pool, '--to', policies.repo, '--every', '1h',
                                 '--key-file', policies.key, check='fails').err


def test_serve_runs_what_is_due(cluster, images, policies):
    policies.init()
    image = images.load(os.urandom(MIB))
    name = policies.set(images.spec(image))
    serving = popen([find_binary(), 'backup', 'serve'], env=cluster.env())
    try:
        wait_until(lambda: (policies.row(name) or {}).get('images'), every=0.5, what='a backup')
        assert policies.row(name)['images'][0]['error'] is None
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60) == 0
    finally:
        serving.kill()
