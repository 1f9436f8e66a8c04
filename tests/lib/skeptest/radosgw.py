"""A stock radosgw in front of a cluster, as its documentation sets one up: a user of its own, Beast on a port, nothing else prepared."""
import json
import socket

from skeptest.run import end_group, popen, run, wait_until
from skeptest.s3 import Server
from skeptest.skep import free_port

NAME = 'client.rgw.test'
CAPS = ('mon', 'allow rw', 'osd', 'allow rwx')
# It makes its pools first.
READY_S = 240
# Small pieces, so that little data has many of them; what is otherwise done after hours is done after seconds.
OPTIONS = {'rgw_max_chunk_size': 16384, 'rgw_obj_stripe_size': 16384, 'rgw_put_obj_min_window_size': 16384, 'rgw_multipart_min_part_size': 1000,
           'rgw_enable_usage_log': 'true', 'rgw_usage_log_tick_interval': 1, 'rgw_gc_obj_min_wait': 1}


class Radosgw(Server):
    def __init__(self, cluster, folder):
        super().__init__(free_port())
        self.cluster, self.folder, self.proc = cluster, folder, None
        self.keyring = folder / 'keyring'
        self.log = folder / 'radosgw.log'
        cluster.ceph('auth', 'get-or-create', NAME, *CAPS, '-o', self.keyring)

    def arguments(self):
        options = ['--%s=%s' % (name.replace('_', '-'), value) for name, value in OPTIONS.items()]
        return ['-c', self.cluster.conf, '-n', NAME, '--keyring', self.keyring, '--run-dir', self.folder, '--admin-socket', self.folder / '$pid.asok', *options]

    def start(self):
        with open(self.log, 'ab') as log:
            self.proc = popen(['radosgw', '-f', *self.arguments(), '--rgw-frontends', 'beast endpoint=127.0.0.1:%d' % self.port,
                               '--log-file', self.folder / 'log'], stdout=log, stderr=log)

        def ready():
            assert self.proc.poll() is None, self.log.read_text(errors='replace')[-4000:]
            with socket.socket() as s:
                return s.connect_ex(('127.0.0.1', self.port)) == 0
        wait_until(ready, READY_S, 0.1, 'radosgw to listen')
        return self

    def kill(self):
        if self.proc is not None:
            end_group(self.proc)
            self.proc.wait(60)

    def admin(self, *words, parsed=True, **kw):
        """A command of the stock radosgw-admin."""
        r = run(['radosgw-admin', *self.arguments(), *words], timeout=180, **kw)
        return json.loads(r.out) if parsed else r


class GatewayUser:
    def __init__(self, gateway, name):
        key = gateway.admin('user', 'create', '--uid', name, '--display-name', name)['keys'][0]
        self.name, self.access, self.secret = name, key['access_key'], key['secret_key']
