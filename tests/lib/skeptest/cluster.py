"""A cluster as stock clients see it: a ceph.conf and the tools of Debian 12.

`Cluster` knows only the conf file, so it stands for a Skep process and for a real Ceph alike.
"""
import itertools
import json
import os
import re
import secrets

from skeptest.asker import Asker
from skeptest.forked import ceph
from skeptest.run import LIMIT_S, popen, run, wait_until

RUN_ID = secrets.token_hex(2)                     # names of two test runs on one cluster do not meet
_count = itertools.count(1)


def unique(prefix):
    return '%s-%s-%d' % (prefix, RUN_ID, next(_count))


class Cluster:
    """The stock tools, bound to one ceph.conf."""

    def __init__(self, conf, args=''):
        self.conf, self.args = str(conf), args
        self.asker = Asker(self)

    def env(self):
        return {'CEPH_CONF': self.conf, 'CEPH_ARGS': self.args, 'PYTHONWARNINGS': 'ignore'}

    def with_args(self, args):
        """The same cluster for clients that get further options (CEPH_ARGS)."""
        return Cluster(self.conf, (self.args + ' ' + args).strip())

    def with_conf(self, path, lines):
        """The same cluster under a copy of its conf with further [client] lines."""
        with open(self.conf) as f:
            text = f.read()
        with open(path, 'w') as f:
            f.write('%s\n[client]\n%s\n' % (text, '\n'.join(lines)))
        return Cluster(path, self.args)

    def option(self, name):
        """The value of an option in the conf's text, or None."""
        with open(self.conf) as f:
            m = re.search(r'^\s*%s\s*=\s*(.*?)\s*$' % name.replace('_', '[_ ]'), f.read(), re.M)
        return m.group(1) if m else None

    @property
    def uses_cephx(self):
        return (self.option('auth_client_required') or 'cephx') != 'none'

    # -- tools
    def run(self, *argv, **kw):
        kw['env'] = {**self.env(), **kw.get('env', {})}
        return ceph(argv[1:], **kw) if argv[0] == 'ceph' else run(argv, **kw)

    def popen(self, *argv, **kw):
        return popen(argv, env=self.env(), **kw)

    def ceph(self, *args, **kw):
        return self.run('ceph', *args, **kw)

    def ceph_json(self, *args, **kw):
        """A `ceph` command with -f json, its output parsed."""
        r = self.ceph(*args, '-f', 'json', **kw)
        try:
            return json.loads(r.out)
        except ValueError as e:
            raise AssertionError('not JSON (%s): %r' % (e, r))

    def ask(self, *words, to='mon', **more):
        """What `ceph_json(*words)` says, at a thousandth of its cost: for conditions that are waited for. `more` are the
        command's arguments, `to` says who answers it."""
        out = None if self.args else self.asker.ask(to, {'prefix': ' '.join(words), 'format': 'json', **more})
        if out is not None:
            return json.loads(out)
        return self.ceph_json(*words, *(' '.join(v) if isinstance(v, list) else v for v in more.values()))

    def rados(self, pool, *args, **kw):
        return self.run('rados', '-p', pool, *args, **kw)

    def rbd(self, *args, **kw):
        return self.run('rbd', *args, **kw)

    def rbd_fails(self, args, status, message):
        """An `rbd` command that must end with this status and say this (librbd's log lines left out)."""
        r = self.rbd(*args, check=None)
        said = ''.join(re.sub(r'\d{4}-\d\d-\d\dT[^\n]* librbd[^\n]*\n', '', r.err).splitlines())
        assert r.returncode == status and (message in said or message in r.err), r

    def rbd_json(self, *args, **kw):
        r = self.rbd(*args, '--format', 'json', **kw)
        try:
            return json.loads(r.out)
        except ValueError as e:
            raise AssertionError('not JSON (%s): %r' % (e, r))

    # -- pools
    def make_pool(self, app='rados', pg_num=8, name=None):
        """A new pool with as many copies as the cluster gives by itself."""
        name = name or unique('test')
        self.ceph('osd', 'pool', 'create', name, pg_num, pg_num)
        if app == 'rbd':
            self.run('rbd', 'pool', 'init', name, timeout=60)
        else:
            self.ceph('osd', 'pool', 'application', 'enable', name, app)
        return name

    def make_copies(self, size=3, app='rados', pg_num=16, timeout=60):
        """A new pool of that many copies, once all are there."""
        name = self.make_pool(app, pg_num)
        self.ceph('osd', 'pool', 'set', name, 'size', size, *['--yes-i-really-mean-it'] * (size == 1))
        wait_until(lambda: self.whole(name), timeout, 0.3, 'pool %s to be whole' % name)
        return name

    def pgs(self):
        """Every PG's id, state, up and acting set."""
        brief = self.ask('pg', 'dump', to='mgr', dumpcontents=['pgs_brief'])
        return brief.get('pg_stats', brief) if isinstance(brief, dict) else brief

    def pool_number(self, name):
        return self.ask('osd', 'pool', 'stats', to='mgr', pool_name=name)[0]['pool_id']

    def whole(self, pool=None):
        """True if all PGs (of the pool) have all their copies."""
        of_pool = '' if pool is None else '%d.' % self.pool_number(pool)
        states = [pg['state'] for pg in self.pgs() if pg['pgid'].startswith(of_pool)]
        return bool(states) and all(state == 'active+clean' for state in states)

    def enter(self):
        """Puts this process where clients of the cluster are: that is here."""

    def drop_pool(self, name):
        return self.ceph('osd', 'pool', 'delete', name, name, '--yes-i-really-really-mean-it')


def external():
    """The cluster that SKEP_TEST_CONF names, or None."""
    conf = os.environ.get('SKEP_TEST_CONF')
    return Cluster(conf) if conf else None


__all__ = ['Cluster', 'LIMIT_S', 'external', 'unique']
