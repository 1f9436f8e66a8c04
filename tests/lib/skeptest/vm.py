"""Virtual machines under stock QEMU: a small guest without a disk of its own, which writes to the one that it is given.

    guest = Guest(folder)                        # kernel and initial RAM disk, made once
    vm = Vm(guest, folder, 'a', drive)           # boots; drive: the value of QEMU's -drive, without if=
    vm.wait_blocks(100)                          # until the guest has been told that so many blocks are durable
    other = Vm(guest, folder, 'b', drive, incoming=True)
    vm.migrate(other)                            # what QEMU says of it
    vm.quit()

The guest numbers its blocks of 4 KiB: block N begins with the number N as ten digits, is written with fsync, and is then named on the serial
console ("wrote N"). Emulated processor: hardware virtualisation hangs on some of the machines that run these tests.
"""
import json
import pathlib
import re
import select
import shutil
import socket
import time

from skeptest.run import end_group, popen, run, wait_until

BLOCK = 4096
BOOTS_S = 90
INIT = '''#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS0 2>&1
for m in /modules/*; do insmod $m; done
n=0; while [ ! -b /dev/vda ] && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
echo "SKEP-GUEST up"
n=0
while printf '%010d\\n' $n | dd of=/dev/vda bs=4096 seek=$n conv=sync,fsync,notrunc 2>/dev/null; do
    echo "SKEP-GUEST wrote $n"
    n=$((n + 1))
done
echo "SKEP-GUEST failed at $n"
sleep 1000
'''


class Guest:
    """Kernel and initial RAM disk: Debian's cloud kernel, unpacked and not installed, and busybox."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        ask = ['apt-cache', 'show', '--no-all-versions', 'linux-image-cloud-amd64']
        shown = run(ask, check=None).out
        if not shown:
            run(['apt-get', 'update', '-q'], timeout=300)
            shown = run(ask).out
        package = re.search(r'^Depends:.*?(linux-image-[^ ]*-cloud-amd64)', shown, re.M).group(1)
        run(['apt-get', 'download', '-q', package], cwd=self.folder)
        deb, = self.folder.glob('linux-image-*.deb')
        run(['dpkg-deb', '-x', deb, self.folder / 'kernel'])
        deb.unlink()
        self.kernel, = (self.folder / 'kernel' / 'boot').glob('vmlinuz-*')
        version = self.kernel.name.removeprefix('vmlinuz-')
        run(['/sbin/depmod', '-b', self.folder / 'kernel', version])
        shown = run(['/sbin/modprobe', '-d', self.folder / 'kernel', '-S', version, '--show-depends', '-a',
                     'virtio_pci', 'virtio_blk']).out
        root = self.folder / 'root'
        for name in ('bin', 'proc', 'sys', 'dev', 'modules'):
            (root / name).mkdir(parents=True)
        shutil.copy('/bin/busybox', root / 'bin' / 'busybox')
        for n, path in enumerate(dict.fromkeys(re.findall(r'^insmod (\S+)', shown, re.M))):
            shutil.copy(path, root / 'modules' / ('%02d.ko' % n))
        (root / 'init').write_text(INIT)
        (root / 'init').chmod(0o755)
        names = sorted(str(p.relative_to(root)) for p in root.rglob('*'))
        packed = run(['cpio', '-o', '-H', 'newc', '--quiet'], stdin='\n'.join(names) + '\n', cwd=root)
        self.initrd = self.folder / 'initrd'
        self.initrd.write_bytes(packed.out_bytes)
        shutil.rmtree(self.folder / 'kernel' / 'lib')
        shutil.rmtree(root)


class Vm:
    def __init__(self, guest, folder, name, drive, incoming=False, env=None):
        folder = pathlib.Path(folder)
        self.serial, self.log = folder / (name + '.serial'), folder / (name + '.qemu')
        self.control, self.way_in = folder / (name + '.qmp'), folder / (name + '.in')
        argv = ['qemu-system-x86_64', '-accel', 'tcg', '-cpu', 'max', '-m', '96', '-nodefaults', '-display', 'none', '-no-reboot',
                '-kernel', guest.kernel, '-initrd', guest.initrd, '-append', 'console=ttyS0 quiet panic=-1',
                '-serial', 'file:%s' % self.serial, '-qmp', 'unix:%s,server=on,wait=off' % self.control,
                '-drive', drive + ',if=virtio']
        if incoming:
            argv += ['-incoming', 'unix:%s' % self.way_in]
        with open(self.log, 'wb') as log:
            self.proc = popen(argv, env=env, stdout=log, stderr=log)
        try:
            self.socket = wait_until(self.connected, 60, 0.02, 'QEMU to start')
            self.socket.settimeout(60)
            self.lines = self.socket.makefile('r')
            json.loads(self.lines.readline())
            self.ask('qmp_capabilities')
            if not incoming:
                wait_until(lambda: 'SKEP-GUEST up' in self.said(), BOOTS_S, 0.1, 'the guest to boot')
        except BaseException:
            self.quit()
            raise

    def connected(self):
        """Its control socket is there a moment before it listens."""
        assert self.proc.poll() is None, self.log.read_text()
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(str(self.control))
        except (FileNotFoundError, ConnectionRefusedError):
            s.close()
            return None
        return s

    def said(self):
        return self.serial.read_text(errors='replace') if self.serial.exists() else ''

    def blocks(self):
        """How many blocks the guest knows to be durable, from the first; what this machine's console says."""
        found = re.findall(r'SKEP-GUEST wrote (\d+)\r?\n', self.said())
        assert 'failed at' not in self.said(), self.said()[-500:]
        return int(found[-1]) + 1 if found else 0

    def wait_blocks(self, count):
        wait_until(lambda: self.blocks() >= count, 60, 0.05, '%d blocks of the guest' % count)

    def ask(self, command, **arguments):
        self.socket.sendall(json.dumps({'execute': command, 'arguments': arguments}).encode() + b'\n')
        while True:
            answer = json.loads(self.lines.readline())
            if 'event' not in answer:
                assert 'return' in answer, answer
                return answer['return']

    def migrate(self, other):
        """Moves the running guest; gives QEMU's account of it. `other` runs it afterwards."""
        self.ask('migrate', uri='unix:%s' % other.way_in)
        ended = ('completed', 'failed', 'cancelled')
        found = wait_until(lambda: (s := self.ask('query-migrate'))['status'] in ended and s, 60, 0.02, 'the migration')
        assert found['status'] == 'completed', (found, other.log.read_text())
        wait_until(lambda: other.ask('query-status')['running'], 30, 0.01, 'the guest to run there')
        return found

    def quit(self):
        end_group(self.proc)
        self.proc.wait(60)


def longest_silence(vms, seconds):
    """Watches the consoles for so long; the longest time without a new durable block, in milliseconds."""
    end, last, longest, seen = time.monotonic() + seconds, time.monotonic(), 0.0, -1
    while time.monotonic() < end:
        now = max(vm.blocks() for vm in vms)
        if now != seen:
            longest, last, seen = max(longest, time.monotonic() - last), time.monotonic(), now
        select.select([], [], [], 0.002)
    return max(longest, time.monotonic() - last) * 1000
