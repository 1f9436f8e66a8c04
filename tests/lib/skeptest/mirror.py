"""Two clusters that mirror RBD images to one another by stock `rbd-mirror` daemons.

    pair = Pair(a, b, workdir)             # two `Cluster`s: Skep or a real Ceph
    pair.connect()                         # pool on both, bootstrap of the peers, a daemon at each
    pair.a.daemon.kill(); pair.a.daemon.start()

The daemons look more often than by default, so that tests wait less; that is all that they are told.
"""
import json
import pathlib
import re
import signal
import subprocess

from skeptest.cluster import unique
from skeptest.run import end_group, popen, wait_until

USER = 'rbd-mirror'
WAIT_S = 150
OFTEN = {'rbd_mirror_pool_replayers_refresh_interval': 3, 'rbd_mirror_image_state_check_interval': 3,
         'rbd_mirror_sync_point_update_age': 3, 'rbd_mirror_image_policy_rebalance_timeout': 0,
         'rbd_mirror_leader_heartbeat_interval': 2}


class Daemon:
    """One `rbd-mirror` at a site, with a user and a folder of its own. It finds its site as an operator's does: by the
    file ceph.conf; the other one by what the bootstrap left."""

    def __init__(self, cluster, folder):
        self.cluster, self.dir, self.proc = cluster, pathlib.Path(folder), None

    def prepare(self):
        self.dir.mkdir()
        key = self.cluster.ceph('auth', 'get-or-create', 'client.' + USER, 'mon', 'profile rbd-mirror',
                                'osd', 'profile rbd', 'mgr', 'profile rbd').out
        (self.dir / 'keyring').write_text(key)
        rows = {name: self.cluster.option(name) for name in ('fsid', 'mon_host')}
        rows.update(keyring=self.dir / 'keyring', log_file=self.dir / 'log', admin_socket=self.dir / 'asok', **OFTEN)
        text = '[global]\n' + ''.join('%s = %s\n' % row for row in rows.items())
        (self.dir / 'ceph.conf').write_text(text)

    def start(self):
        assert not self.alive, 'runs already'
        out = open(self.dir / 'out', 'ab')
        self.proc = popen(['rbd-mirror', '-f', '--id', USER], cwd=self.dir, stdin=subprocess.DEVNULL, stdout=out,
                          stderr=out)
        out.close()

    @property
    def alive(self):
        return self.proc is not None and self.proc.poll() is None

    def kill(self, sig=signal.SIGKILL):
        if self.proc is not None:
            end_group(self.proc, sig)
            self.proc.wait(60)

    def stop(self):
        self.kill(signal.SIGTERM)

    def log_tail(self, lines=30):
        try:
            return '\n'.join((self.dir / 'log').read_text(errors='replace').splitlines()[-lines:])
        except FileNotFoundError:
            return '(no log)'


class Site:
    """One side: a cluster, the pool, its daemon."""

    def __init__(self, cluster, name, pool, folder):
        self.cluster, self.name, self.pool = cluster, name, pool
        self.daemon = Daemon(cluster, folder)

    def spec(self, image):
        return '%s/%s' % (self.pool, image)

    def rbd(self, *args, **kw):
        return self.cluster.rbd(*args, **kw)

    def rbd_json(self, *args, **kw):
        return self.cluster.rbd_json(*args, **kw)

    # -- images
    def create(self, image, mode, size='64M', data=True):
        features = ['--image-feature', 'exclusive-lock,journaling'] if mode == 'journal' else []
        self.rbd('create', '--size', size, *features, self.spec(image))
        if data:
            self.write(image)
        self.rbd('mirror', 'image', 'enable', self.spec(image), mode)

    def write(self, image, total='4M', pattern='rand'):
        """Something new, at random places."""
        self.rbd('bench', '--io-type', 'write', '--io-size', '16K', '--io-total', total, '--io-pattern', pattern,
                 self.spec(image), timeout=120)

    def sum(self, image):
        """Of all that a client reads."""
        r = self.cluster.run('sh', '-c', 'rbd export --no-progress %s - | sha256sum' % self.spec(image), timeout=180)
        return r.out.split()[0]

    # -- mirroring
    def mirror(self, verb, image, *more, **kw):
        return self.rbd('mirror', 'image', verb, self.spec(image), *more, **kw)

    def take_over(self, image, timeout=WAIT_S):
        """Promotes it in good order, after the other site's demotion: once the daemon here says that it has that, too. Before,
        a site that was primary itself would go on with what it had then: that alone `promote` does not notice."""
        self.wait_demoted(image, timeout)

        def promoted():
            r = self.mirror('promote', image, check=None)
            not_yet = ('demotion is not propagated yet', '(30) Read-only file system')
            assert r.returncode == 0 or any(text in r.err for text in not_yet), r
            return r.returncode == 0
        wait_until(promoted, timeout, 1, lambda: 'the demotion to come over: %s\n%s' % (
            self.status(image), self.daemon.log_tail()))

    def status(self, image):
        """None while there is none."""
        r = self.rbd('mirror', 'image', 'status', self.spec(image), '--format', 'json', check=None)
        return json.loads(r.out) if r.returncode == 0 else None

    def state(self, image):
        return (self.status(image) or {}).get('state')

    def wait_state(self, image, state, timeout=WAIT_S, text=''):
        def reached():
            now = self.status(image) or {}
            return now.get('state') == state and text in now.get('description', '')
        wait_until(reached, timeout, 0.5, lambda: '%s of %s to be %s %s; it is %s\n%s' % (
            image, self.name, state, text, self.status(image), self.daemon.log_tail()))
        return self.status(image)

    def wait_demoted(self, image, timeout=WAIT_S):
        """Until the daemon here has all that the other site had when it was demoted. It says "remote image demoted" then, and from
        its next look on, 3 s later at most, "remote image is not primary": a real Ceph's does, too, so either is good."""
        return self.wait_state(image, 'up+unknown', timeout, 'remote image')

    def lag(self, image):
        """The numbers that the daemon here gives of an image that it replays."""
        said = (self.status(image) or {}).get('description', '')
        found = re.search(r'\{.*\}', said)
        return json.loads(found.group()) if found else {}

    def is_primary(self, image):
        return self.rbd_json('info', self.spec(image))['mirroring']['primary']

    def snapshots(self, image):
        return self.rbd_json('snap', 'ls', '--all', self.spec(image))


class Pair:
    """Two sites with one pool each, of the same name."""

    def __init__(self, a, b, workdir, mode='image'):
        self.pool, self.mode = unique('mirrored'), mode
        folder = workdir / unique('daemons')
        folder.mkdir()
        self.a = Site(a, 'site-a', self.pool, folder / 'a')
        self.b = Site(b, 'site-b', self.pool, folder / 'b')
        self.token = folder / 'token'

    @property
    def sites(self):
        return [self.a, self.b]

    def connect(self, daemons=True):
        for site in self.sites:
            site.cluster.make_pool('rbd', name=self.pool)
            site.rbd('mirror', 'pool', 'enable', '--site-name', site.name, self.pool, self.mode)
        self.token.write_text(self.a.rbd('mirror', 'pool', 'peer', 'bootstrap', 'create', self.pool).out)
        self.b.rbd('mirror', 'pool', 'peer', 'bootstrap', 'import', self.pool, self.token)
        for site in self.sites:
            site.daemon.prepare()
            if daemons:
                site.daemon.start()
        return self

    def end(self):
        for site in self.sites:
            site.daemon.kill()

    # -- conditions
    def wait_copied(self, source, image, mode, timeout=WAIT_S):
        """Until all that is in the image at `source` now is at the other site, too."""
        other = self.b if source is self.a else self.a
        if mode == 'journal':
            return wait_until(lambda: self._replayed(source, image), timeout, 0.5, lambda: (
                'the journal to be replayed: %s\n%s' % (other.status(image), other.daemon.log_tail())))
        source.mirror('snapshot', image)
        newest = max(s['id'] for s in source.snapshots(image) if s['namespace']['type'] == 'mirror')

        def there():
            r = other.rbd('snap', 'ls', '--all', '--format', 'json', other.spec(image), check=None)
            spaces = [s['namespace'] for s in json.loads(r.out)] if r.returncode == 0 else []
            return any(n.get('primary_snap_id') == newest and n.get('complete') for n in spaces)
        wait_until(there, timeout, 0.5, lambda: 'snapshot %d to be copied: %s\n%s' % (
            newest, other.status(image), other.daemon.log_tail()))

    def _replayed(self, source, image):
        """True if the other site's client of the journal has committed what the image's own one has, or more: a writer that
        was killed has not noted how far it came."""
        r = source.rbd('journal', 'status', '--image', source.spec(image), '--format', 'json', check=None)
        if r.returncode != 0:
            return False
        clients = json.loads(r.out)['registered_clients']
        own = [c['commit_position'] for c in clients if c['id'] == '']
        others = [c['commit_position'] for c in clients if c['id'] != '']
        place = lambda p: max([(e['tag_tid'], e['entry_tid']) for e in p['object_positions']], default=(0, -1))
        return bool(own) and bool(others) and all(place(p) >= place(own[0]) for p in others)

    def same(self, image):
        """Both sites read the same."""
        sums = [site.sum(image) for site in self.sites]
        assert sums[0] == sums[1], 'the sites differ: %s' % sums
        return sums[0]


__all__ = ['Daemon', 'Pair', 'Site']
