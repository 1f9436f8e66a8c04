"""A real Ceph of Debian's packages on loopback, as the other side of tests between two clusters: one monitor, one manager and one OSD
with BlueStore on a file, cephx on. Only for tests marked `long`: `needed()` skips where its programs are not installed
(`./dev/test --all` installs them).
"""
import pathlib
import shutil
import subprocess
import uuid

import pytest

from skeptest.cluster import Cluster
from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import free_port

PROGRAMS = ['ceph-mon', 'ceph-mgr', 'ceph-osd']
DISK = 8 << 30
UP_S = 120


def needed():
    missing = [p for p in PROGRAMS if not shutil.which(p)]
    if missing:
        pytest.skip('not installed: ' + ', '.join(missing))


class RealCeph(Cluster):
    def __init__(self, data):
        self.data = pathlib.Path(data)
        self.port = free_port()
        self.procs = {}
        super().__init__(self.data / 'ceph.conf')

    def start(self):
        self.data.mkdir()
        self._write_conf()
        d, tool = self.data, lambda *argv: run([*argv], env=self.env())
        caps = [word for kind in ('mon', 'osd', 'mds', 'mgr') for word in ('--cap', kind, 'allow *')]
        tool('ceph-authtool', '--create-keyring', d / 'mon.keyring', '--gen-key', '-n', 'mon.', '--cap', 'mon', 'allow *')
        tool('ceph-authtool', d / 'mon.keyring', '--gen-key', '-n', 'client.admin', *caps)
        # Clients and servers look for their keys in the one file.
        shutil.copy(d / 'mon.keyring', d / 'keyring')
        tool('monmaptool', '--create', '--fsid', self.option('fsid'), '--addv', 'a',
             '[v2:127.0.0.1:%d]' % self.port, d / 'monmap')
        tool('ceph-mon', '--mkfs', '-i', 'a', '--monmap', d / 'monmap', '--keyring', d / 'mon.keyring', '-c', self.conf)
        self._daemon('mon', 'a')
        wait_until(lambda: self.ceph('fsid', check=None).returncode == 0, UP_S, 0.5, 'the real monitor to answer')
        self._keyed('mgr.x', 'mon', 'allow profile mgr', 'osd', 'allow *', 'mds', 'allow *')
        self._daemon('mgr', 'x')
        name = str(uuid.uuid4())
        self.ceph('osd', 'new', name)
        self._keyed('osd.0', 'mon', 'allow profile osd', 'mgr', 'allow profile osd', 'osd', 'allow *')
        tool('ceph-osd', '-i', '0', '--mkfs', '--osd-uuid', name, '-c', self.conf)
        self._daemon('osd', '0')
        wait_until(lambda: self.ceph_json('osd', 'stat')['num_up_osds'] == 1, UP_S, 0.5, 'the real OSD to be up')
        wait_until(lambda: self.ceph_json('mgr', 'stat')['available'], UP_S, 0.5, 'the real manager to be active')
        self.ceph('config', 'set', 'global', 'mon_warn_on_insecure_global_id_reclaim_allowed', 'false')
        return self

    def _write_conf(self):
        d = self.data
        for kind in ('mon.a', 'mgr.x', 'osd.0'):
            (d / kind).mkdir()
        rows = {
            'fsid': uuid.uuid4(), 'mon_host': '[v2:127.0.0.1:%d]' % self.port, 'public_addr': '127.0.0.1',
            'auth_cluster_required': 'cephx', 'auth_service_required': 'cephx', 'auth_client_required': 'cephx',
            'osd_pool_default_size': 1, 'osd_pool_default_min_size': 1, 'osd_crush_chooseleaf_type': 0,
            'mon_allow_pool_delete': 'true', 'mon_allow_pool_size_one': 'true',
            'mon_warn_on_pool_no_redundancy': 'false', 'mon_data_avail_crit': 1, 'mon_data_avail_warn': 2,
            'run_dir': d, 'log_file': '%s/$name.log' % d, 'admin_socket': '%s/$name.$pid.asok' % d, 'pid_file': '',
            'mon_data': '%s/mon.$id' % d, 'mgr_data': '%s/mgr.$id' % d, 'osd_data': '%s/osd.$id' % d,
            'mon_cluster_log_file': '%s/cluster.log' % d, 'crash_dir': '%s/crash' % d,
            'bluestore_block_size': DISK, 'osd_memory_target': 1 << 30, 'keyring': '%s/keyring' % d,
        }
        text = '[global]\n' + ''.join('%s = %s\n' % row for row in rows.items())
        pathlib.Path(self.conf).write_text(text + '[client]\nlog_file =\nadmin_socket =\n')

    def _keyed(self, entity, *caps):
        with open(self.data / 'keyring', 'a') as f:
            f.write(self.ceph('auth', 'get-or-create', entity, *caps).out)

    def _daemon(self, kind, which):
        self.procs[kind] = popen(['ceph-' + kind, '-f', '-i', which, '-c', self.conf], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=open(self.data / (kind + '.err'), 'ab'))

    def kill(self):
        """SIGKILL for all of it."""
        self.asker.end()
        for proc in self.procs.values():
            end_group(proc)
            proc.wait(60)

    def restart(self):
        self.kill()
        for kind, which in (('mon', 'a'), ('mgr', 'x'), ('osd', '0')):
            self._daemon(kind, which)
        return self

    @property
    def alive(self):
        return all(p.poll() is None for p in self.procs.values())


__all__ = ['RealCeph', 'needed']
