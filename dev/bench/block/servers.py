"""What is compared: clusters that start on loopback, run a client's jobs and are weighed while they do.

A side makes itself (`create`), is started by the commands in `argv` and can be started again on what it holds (`restart`).
Invariants: all that a side makes lies in its folder; `stop` ends every process that it started.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

from block import machine
from block.commands import Failed, run, wait_for

POOL, IMAGE = 'bench', 'image'
CLIENTS = 16                                   # images for jobs of several clients
CLIENT_IMAGE_MIB = 64
TICK = os.sysconf('SC_CLK_TCK')
PAGE = os.sysconf('SC_PAGE_SIZE')


class Server:
    """A cluster: its processes, its configuration for clients."""

    def __init__(self, name, folder, args):
        self.name, self.dir, self.args = name, folder, args
        self.argv, self.processes, self.start_s = {}, {}, None
        folder.mkdir()

    def spawn(self, name):
        with open(self.dir / f'{name}.out', 'wb') as log:
            self.processes[name] = subprocess.Popen(self.argv[name], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def ceph(self, *words):
        return run(['ceph', '-c', self.conf, *words])

    def rbd(self, *words):
        return run(['rbd', '-c', self.conf, *words], limit=900)

    def clean(self):
        stat = json.loads(self.ceph('pg', 'stat', '-f', 'json'))
        stat = stat.get('pg_summary', stat)
        states = {s['name'] for s in stat['num_pg_by_state']}
        return stat['num_pgs'] > 0 and states == {'active+clean'}

    def make_images(self):
        """The pool, the image of most jobs and, if asked for, those of several clients; all written in full."""
        self.ceph('osd', 'pool', 'create', POOL, '32', '32')
        force = ['--yes-i-really-mean-it'] if self.args.copies == 1 else []
        self.ceph('osd', 'pool', 'set', POOL, 'size', str(self.args.copies), *force)
        wait_for(self.clean, f'{self.name}: pool of {self.args.copies} copies clean')
        acting = json.loads(self.ceph('osd', 'map', POOL, 'x', '-f', 'json'))['acting']
        if len(acting) != self.args.copies:
            raise Failed(f'{self.name}: {len(acting)} copies are kept, not {self.args.copies}')
        self.rbd('pool', 'init', POOL)
        images = {IMAGE: self.args.size}
        if self.args.many:
            images |= {f'{IMAGE}.{n}': f'{CLIENT_IMAGE_MIB}M' for n in range(CLIENTS)}
        for image, size in images.items():
            self.rbd('create', f'{POOL}/{image}', '--size', size)
            self.fio([f'--rbdname={image}', '--rw=write', '--bs=4M', '--iodepth=8'])

    def fio(self, options, seconds=None, images=None):
        """What fio found; all its jobs in one."""
        argv = ['fio', '--ioengine=rbd', f'--pool={POOL}', '--clientname=admin', '--output-format=json', '--eta=never',
                '--group_reporting=1', *options]
        if seconds:
            argv += ['--time_based=1', f'--runtime={seconds}', '--ramp_time=1', '--norandommap=1']
        for image in images or ['']:
            argv += [f'--name=bench{image}', *([f'--rbdname={image}'] if image else [])]
        out = run(argv, limit=900, env={**os.environ, 'CEPH_CONF': str(self.conf)})
        found = json.loads(out[out.index('{'):])['jobs']
        if len(found) != 1 or found[0]['error']:
            raise Failed(f"{self.name}: fio ended with error {[job['error'] for job in found]}")
        return found[0]

    def job(self, job, seconds):
        """fio's figures for a job, or in its words those of our own client."""
        if job.lean:
            return self.lean(job, seconds)
        if job.vm:
            drive = {'driver': 'rbd', 'pool': POOL, 'image': IMAGE, 'conf': str(self.conf), 'user': 'admin'}
            return machine.fio(self.args.guest, drive, job.options, seconds)
        return self.fio(job.options, seconds, [f'{IMAGE}.{n}' for n in range(CLIENTS)] if job.many else [IMAGE])

    def lean(self, job, seconds):
        out = run([self.args.skep, 'bench', 'rbd', '--conf', self.conf, '--pool', POOL, '--image', IMAGE, '--overwrite',
                   '--seconds', str(seconds), '--format', 'json', *job.lean_options])
        found = json.loads(out)
        return {kind: {
            'iops': side['iops'], 'bw_bytes': side['bytes_per_s'], 'total_ios': side['ops'],
            'io_bytes': side['ops'] * found['block_size'],
            'clat_ns': {'percentile': {key: side['latency_us'][mark] * 1000 for mark, key in
                                       (('p50', '50.000000'), ('p99', '99.000000'), ('p99.9', '99.900000'))}},
        } for kind, side in found.items() if kind in ('read', 'write')}

    def usage(self, which=None):
        """Seconds of processor time and bytes written so far, resident bytes now."""
        cpu = written = resident = 0
        for name, p in self.processes.items():
            if which and not name.startswith(which):
                continue
            proc = pathlib.Path(f'/proc/{p.pid}')
            fields = (proc / 'stat').read_text().rsplit(')', 1)[1].split()
            cpu += (int(fields[11]) + int(fields[12])) / TICK
            written += int(re.search(r'^write_bytes: (\d+)', (proc / 'io').read_text(), re.M)[1])
            resident += int((proc / 'statm').read_text().split()[1]) * PAGE
        return cpu, written, resident

    def check_alive(self):
        for name, p in self.processes.items():
            if p.poll() is not None:
                tail = (self.dir / f'{name}.out').read_text(errors='replace')[-400:]
                raise Failed(f'{self.name}: {name} ended with status {p.returncode}: {tail}')

    def restart(self, by=signal.SIGTERM):
        """Ends it and starts it again on what it holds: seconds from there to the first durable write of a client."""
        self.stop(by)
        began = time.monotonic()
        for name in self.argv:
            self.spawn(name)
        run(['rados', '-c', self.conf, '-p', POOL, 'put', 'after-restart', '/proc/version'], limit=300)
        self.start_s = time.monotonic() - began
        return self.start_s

    def stop(self, by=signal.SIGTERM):
        for p in reversed(self.processes.values()):
            if p.poll() is None:
                p.send_signal(by)
        for p in self.processes.values():
            try:
                p.wait(20)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()

    def end(self):
        """Stops it, and removes what it has beside its folder."""
        self.stop()


class Ceph(Server):
    """Debian's Ceph: a monitor, a manager, BlueStore OSDs on files. All of it sees the folder as `seen`."""

    tools = ['ceph-osd', 'ceph-mon', 'ceph-mgr']
    port = 13300

    def __init__(self, name, folder, args):
        super().__init__(name, folder, args)
        self.conf, self.seen = folder / 'ceph.conf', folder

    def command(self, *words):
        """What starts a server's program."""
        return list(words)

    def configure(self, conf, d):
        """For programs that see the folder as `d`."""
        rows = {
            **self.settings, 'fsid': self.fsid, 'mon_host': self.addr, 'public_addr': '127.0.0.1', 'run_dir': d, 'pid_file': '',
            'mon_data_avail_crit': 1, 'mon_data_avail_warn': 2, 'mon_warn_on_pool_no_redundancy': 'false',
            'log_file': f'{d}/$name.log', 'admin_socket': f'{d}/$name.$pid.asok', 'keyring': f'{d}/keyring',
            'mon_cluster_log_file': f'{d}/cluster.log', 'osd_data': f'{d}/osd.$id', 'mon_data': f'{d}/mon.$id',
            'mgr_data': f'{d}/mgr.$id', 'crash_dir': f'{d}/crash', 'mgr_initial_modules': 'balancer',
        }
        conf.write_text('[global]\n' + ''.join(f'{k} = {v}\n' for k, v in rows.items()) + '[client]\nrbd_cache = false\n')

    def start(self):
        d, self.fsid = self.dir, uuid.uuid4()
        self.addr = f'[v2:127.0.0.1:{self.port},v1:127.0.0.1:{self.port + 1}]'
        self.settings = {
            'osd_pool_default_min_size': 1, 'osd_crush_chooseleaf_type': 0, 'mon_allow_pool_size_one': 'true',
            'bluestore_block_size': self.args.disk, 'osd_memory_target': 1 << 30,
            'auth_cluster_required': 'none', 'auth_service_required': 'none', 'auth_client_required': 'none',
        }
        self.configure(self.conf, d)
        self.configure(d / 'server.conf', self.seen)
        run(['ceph-authtool', '--create-keyring', d / 'keyring', '--gen-key', '-n', 'mon.', '--cap', 'mon', 'allow *'])
        caps = [w for s in ('mon', 'osd', 'mds', 'mgr') for w in ('--cap', s, 'allow *')]
        run(['ceph-authtool', d / 'keyring', '--gen-key', '-n', 'client.admin', *caps])
        run(['monmaptool', '--create', '--fsid', str(self.fsid), '--addv', 'a', self.addr, d / 'monmap'])
        run(self.server('mon', 'a', '--mkfs', '--monmap', f'{self.seen}/monmap', '--keyring', f'{self.seen}/keyring'))
        self.daemon('mon', 'a')
        self.ceph('config', 'set', 'global', 'mon_warn_on_insecure_global_id_reclaim_allowed', 'false')
        (d / 'mgr.x').mkdir()
        self.daemon('mgr', 'x')
        for n in range(self.args.osds):
            (d / f'osd.{n}').mkdir()
            name = str(uuid.uuid4())
            self.ceph('osd', 'new', name)
            run(self.server('osd', str(n), '--mkfs', '--osd-uuid', name))
            self.daemon('osd', str(n))
        up = lambda: json.loads(self.ceph('osd', 'stat', '-f', 'json'))['num_up_osds'] == self.args.osds
        wait_for(up, f'{self.name}: all OSDs up')

    def server(self, kind, which, *words):
        return self.command(f'ceph-{kind}', '-i', which, '-c', f'{self.seen}/server.conf', *words)

    def daemon(self, kind, which):
        self.argv[f'{kind}.{which}'] = self.server(kind, which, '-f')
        self.spawn(f'{kind}.{which}')

    def weigh(self):
        """MiB of memory per OSD, and what is counted."""
        return self.usage('osd')[2] / self.args.osds / 2**20, 'OSDs alone'

    def package(self):
        return run(['dpkg-query', '-W', '-f', '${Version}', 'ceph-osd']) if shutil.which('dpkg-query') else ''

    def about(self):
        version = run(self.command('ceph-osd', '--version')).strip()
        return {'version': version, 'package': self.package(), 'settings': {k: str(v) for k, v in self.settings.items()}}


class Skep(Server):
    """All OSDs and the monitor in one process of a Skep program."""

    tools = []

    def __init__(self, name, program, folder, args):
        super().__init__(name, folder, args)
        self.program, self.conf = program, folder / 'client.conf'

    def start(self):
        data = self.dir / 'data'
        self.argv['skep'] = [self.program, 'up', '--data', data, '--osds', str(self.args.osds), '--auth', 'none',
                             '--osd-size', str(self.args.disk), '--mon-port', str(self.port()), '--msgr1-port', '0']
        self.spawn('skep')
        self.wait_ready('skep')
        self.conf.write_text((data / 'ceph.conf').read_text() + '\n[client]\nrbd_cache = false\nadmin_socket =\n')

    def port(self):
        """A fixed one, so that clients find the same cluster after it was started again."""
        return 13320 + 2 * self.args.sides.index(self.name)

    def wait_ready(self, name):
        out = self.dir / f'{name}.out'
        wait_for(lambda: self.check_alive() or b'\nready' in out.read_bytes(), f'{self.name}: {name} ready')

    def weigh(self):
        return self.usage()[2] / self.args.osds / 2**20, f'the whole process by its {self.args.osds} OSDs'

    def about(self):
        settings = list(self.argv.values())[-1][4:]
        return {'version': run([self.program, '--version']).strip(), 'settings': ' '.join(map(str, settings))}


class SkepApart(Skep):
    """A process for each OSD, on a loopback address of its own; their state in an etcd of one member."""

    tools = ['etcd', 'etcdctl']

    def __init__(self, name, program, folder, args):
        super().__init__(name, program, folder, args)
        self.conf = folder / 'ceph.conf'       # clients find the keyring by the file's name

    def start(self):
        client, peer = (f'http://127.0.0.1:{base + 2 * self.args.sides.index(self.name)}' for base in (23790, 23791))
        self.argv['etcd'] = ['etcd', '--name', 'bench', '--data-dir', self.dir / 'etcd', '--listen-client-urls', client,
                             '--advertise-client-urls', client, '--listen-peer-urls', peer,
                             '--initial-advertise-peer-urls', peer, '--initial-cluster', f'bench={peer}']
        self.spawn('etcd')
        health = lambda: subprocess.run(['etcdctl', '--endpoints', client, 'endpoint', 'health'], capture_output=True,
                                        env={**os.environ, 'ETCDCTL_API': '3'}).returncode == 0
        wait_for(lambda: self.check_alive() or health(), 'etcd')
        for n in range(self.args.osds):
            self.argv[f'osd.{n}'] = [
                self.program, 'up', '--data', self.dir / f'host.{n}', '--osds', '1', '--osd-size', str(self.args.disk),
                '--bind', f'127.0.0.{n + 1}', '--mon-port', str(self.port()), '--msgr1-port', '0', '--host', f'bench{n}', '--etcd', client,
                '--join' if n else '--create']
            self.spawn(f'osd.{n}')
            self.wait_ready(f'osd.{n}')
            self.argv[f'osd.{n}'].pop()        # it is a member from now on
        conf = self.dir / 'host.0' / 'ceph.conf'
        wait_for(lambda: f'127.0.0.{self.args.osds}:{self.port()}' in conf.read_text(), 'all monitors in ceph.conf')
        self.conf.write_text(conf.read_text() + '\n[client]\nrbd_cache = false\nadmin_socket =\n')

    def weigh(self):
        return self.usage('osd')[2] / self.args.osds / 2**20, 'OSD and monitor'
