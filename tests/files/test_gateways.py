"""NFS-Ganesha (FSAL_CEPH) and Samba (vfs_ceph) as Debian has them, with user-space clients: docs/operating/files.md has these settings."""
import contextlib
import os
import shutil
import socket
import subprocess

import pytest

from skeptest.run import end_group, popen, run, wait_until
from skeptest.skep import free_port

pytestmark = pytest.mark.long

GANESHA = '''NFS_CORE_PARAM {{
    NFS_Port = {nfs}; MNT_Port = {mnt}; NLM_Port = {nlm}; Bind_addr = 127.0.0.1;
    Enable_UDP = false; Enable_RQUOTA = false; Protocols = 3, 4; mount_path_pseudo = true;
}}
NFSv4 {{ Minor_Versions = 0, 1, 2; Only_Numeric_Owners = true; Graceless = true; }}
CEPH {{ Ceph_Conf = {conf}; }}
EXPORT {{
    Export_Id = 1; Path = /; Pseudo = /skep; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP;
    FSAL {{ Name = CEPH; Filesystem = {fs}; User_Id = admin; }}
}}
'''
SAMBA = '''[global]
    smb ports = {port}
    bind interfaces only = yes
    interfaces = lo
    private dir = {dir}/private
    state directory = {dir}/state
    lock directory = {dir}/lock
    pid directory = {dir}/pid
    ncalrpc dir = {dir}/ncalrpc
    cache directory = {dir}/cache
    log file = {dir}/log
    server role = standalone server
    map to guest = Bad User
    guest account = root
    disable spoolss = yes
    load printers = no
[skep]
    path = /
    vfs objects = ceph
    ceph:config_file = {conf}
    ceph:user_id = admin
    ceph:filesystem = {fs}
    kernel share modes = no
    oplocks = no
    read only = no
    guest ok = yes
    guest only = yes
    force user = root
'''


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(('127.0.0.1', port)) == 0


@contextlib.contextmanager
def serving(argv, port, folder):
    with open(folder / 'out', 'wb') as out:
        proc = popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        def up():
            assert proc.poll() is None, (folder / 'out').read_text(errors='replace')[-3000:]
            return listens(port)
        wait_until(up, 90, 0.2, '%s to listen' % argv[0])
        yield
    finally:
        end_group(proc)
        proc.wait(60)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / 'gateway'
    path.mkdir()
    return path


def needs(program):
    if not shutil.which(program, path=os.environ['PATH'] + ':/usr/sbin:/sbin'):
        pytest.skip('no %s here' % program)


def test_ganesha(cluster, fs, mount, folder, tmp_path):
    needs('ganesha.nfsd')
    needs('nfs-ls')
    nfs, mnt, nlm = free_port(), free_port(), free_port()
    (folder / 'conf').write_text(GANESHA.format(nfs=nfs, mnt=mnt, nlm=nlm, conf=cluster.conf, fs=fs))
    large, small = os.urandom(3_000_000), os.urandom(1000)
    with contextlib.ExitStack() as stack:
        if not listens(111):
            # It says its ports there, and ends where it cannot.
            os.makedirs('/run/rpcbind', exist_ok=True)
            (tmp_path / 'rpcbind').mkdir()
            stack.enter_context(serving(['/usr/sbin/rpcbind', '-f', '-i'], 111, tmp_path / 'rpcbind'))
        os.makedirs('/run/ganesha', exist_ok=True)
        argv = ['ganesha.nfsd', '-F', '-f', folder / 'conf', '-L', folder / 'log', '-p', folder / 'pid']
        stack.enter_context(serving(argv, nfs, folder))
        # libnfs 4.0 of Debian 12 cannot write more than some 64 KiB by v4, and knows no v4.1.
        for version, data in (3, large), (4, small):
            def url(name):
                return 'nfs://127.0.0.1/skep/%s?version=%d&nfsport=%d&mountport=%d' % (name, version, nfs, mnt)
            (tmp_path / 'data').write_bytes(data)
            run(['nfs-cp', tmp_path / 'data', url('v%d' % version)])
            assert (mount / ('v%d' % version)).read_bytes() == data
            (mount / ('by-fuse-%d' % version)).write_bytes(large)
            run(['nfs-cp', url('by-fuse-%d' % version), tmp_path / ('back%d' % version)])
            assert (tmp_path / ('back%d' % version)).read_bytes() == large
            (mount / 'sub').mkdir(exist_ok=True)
            listed = {line.split()[-1]: line for line in run(['nfs-ls', url('')]).out.splitlines()}
            assert {'v%d' % version, 'by-fuse-%d' % version, 'sub'} <= set(listed), listed
            assert listed['sub'].startswith('d') and '3000000' in listed['by-fuse-%d' % version]
            os.unlink(mount / ('by-fuse-%d' % version))
            wait_until(lambda: 'by-fuse-%d' % version not in run(['nfs-ls', url('')]).out, 120, 1, 'the name to go')


def test_samba(cluster, fs, mount, folder, tmp_path):
    needs('smbd')
    needs('smbclient')
    port = free_port()
    for d in ('private', 'state', 'lock', 'pid', 'ncalrpc', 'cache'):
        (folder / d).mkdir()
    (folder / 'smb.conf').write_text(SAMBA.format(port=port, dir=folder, conf=cluster.conf, fs=fs))
    (tmp_path / 'data').write_bytes(os.urandom(3_000_000))
    data = (tmp_path / 'data').read_bytes()

    def client(*commands):
        words = ['smbclient', '-N', '-p', port, '//127.0.0.1/skep', '-c', '; '.join(commands)]
        return run(words, cwd=tmp_path, timeout=120).out
    with serving(['/usr/sbin/smbd', '-F', '--no-process-group', '-s', folder / 'smb.conf'], port, folder):
        client('mkdir smb', 'cd smb', 'put data', 'rename data moved')
        assert (mount / 'smb/moved').read_bytes() == data
        (mount / 'smb/by-fuse').write_bytes(data[::-1])
        assert 'by-fuse' in client('cd smb', 'ls')
        client('cd smb', 'get by-fuse back')
        assert (tmp_path / 'back').read_bytes() == data[::-1]
        client('cd smb', 'del moved', 'del by-fuse', 'cd ..', 'rmdir smb')
        assert not (mount / 'smb').exists()
