"""Clusters with an S3 gateway: those of the block bench, a gateway more, and a user of it."""
import http.client
import json

from block.commands import run, wait_for
from block.servers import Ceph, Skep

GC_WAIT_S = 60
USER = 'bench'
RGW_POOLS = ('.rgw.root', *(f'default.rgw.{n}' for n in ('log', 'control', 'meta', 'buckets.index', 'buckets.data')))
RGW_LIMIT_S = 240                              # it makes its zone at its first start


def answers(port):
    try:
        connection = http.client.HTTPConnection('127.0.0.1', port, timeout=5)
        connection.request('GET', '/')
        connection.getresponse().read()
    except OSError:
        return False
    return True


class Gateway:
    """What both sides have in common: where it listens, and a user's keys."""

    def endpoint(self):
        return f'127.0.0.1:{self.s3_port}'

    def know(self, printed):
        key = json.loads(printed[printed.index('{'):])['keys'][0]
        self.access, self.secret = key['access_key'], key['secret_key']

    def keep_copies(self, pool):
        wait_for(lambda: pool in self.ceph('osd', 'pool', 'ls').split(), f'{self.name}: pool {pool}')
        force = ['--yes-i-really-mean-it'] if self.args.copies == 1 else []
        self.ceph('osd', 'pool', 'set', pool, 'size', str(self.args.copies), *force)

    def gateway_memory(self):
        """Resident bytes of what serves S3."""
        return self.usage(self.served_by)[2]


class CephGateway(Gateway, Ceph):
    """With a radosgw, which is told not to wait for full packets: each of its reads takes 44 ms otherwise."""

    tools = [*Ceph.tools, 'radosgw', 'radosgw-admin']
    served_by = 'rgw'

    def __init__(self, name, folder, args):
        super().__init__(name, folder, args)
        self.port, self.s3_port = args.port, args.port + 10

    def start(self):
        super().start()
        for pool in RGW_POOLS:
            self.ceph('osd', 'pool', 'create', pool, '32', '32')
            self.keep_copies(pool)
            self.ceph('osd', 'pool', 'application', 'enable', pool, 'rgw')
        wait_for(self.clean, f'{self.name}: pools clean')
        # Without ms_mon_client_mode it asks monitors for encryption, which there is none of without keys.
        self.argv['rgw'] = ['radosgw', '-f', '-n', 'client.admin', '-c', self.conf, '--ms_mon_client_mode=crc',
                            f'--rgw_frontends=beast endpoint={self.endpoint()} tcp_nodelay=1', f'--rgw_gc_obj_min_wait={GC_WAIT_S}',
                            f'--rgw_gc_processor_period={GC_WAIT_S}', f'--log_file={self.dir}/rgw.log']
        self.spawn('rgw')
        wait_for(lambda: self.check_alive() or answers(self.s3_port), f'{self.name}: radosgw', RGW_LIMIT_S)
        self.know(run(['radosgw-admin', '-c', self.conf, 'user', 'create', f'--uid={USER}', f'--display-name={USER}']))


class SkepGateway(Gateway, Skep):
    """The gateway is a thread of the one process."""

    served_by = 'skep'

    def __init__(self, name, program, folder, args):
        super().__init__(name, program, folder, args)
        self.s3_port = self.port() + 60

    def port(self):
        return self.args.port + 20 + 2 * self.args.sides.index(self.name)

    def spawn(self, name):
        more = ['--s3', '--s3-listen', self.endpoint(), '--s3-gc-wait', str(GC_WAIT_S), '--metrics-port', '0']
        if '--s3' not in self.argv[name]:
            self.argv[name] += more
        super().spawn(name)

    def start(self):
        super().start()
        self.know(run([self.program, 's3', 'user', 'create', USER, '-c', self.conf, '-f', 'json']))
        for pool in ('s3.meta', 's3.data'):
            self.keep_copies(pool)
        wait_for(self.clean, f'{self.name}: pools clean')
