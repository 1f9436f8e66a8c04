"""The guest: kernel, initial RAM disk and root disk, built from Debian's packages once and kept in the cache.

The kernel and its RAM disk come from the host's files (QEMU's -kernel); the root file system, with fio and its libraries
in it, comes from the storage under test. The guest's init (GUEST_INIT) does what the kernel's command line says and
reports over the serial console in lines that begin with LAB. Nothing here needs root rights, a loop device or a mount.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lab.backends.base import Unsupported, programs_missing
from lab.config import Config
from lab.process import Scratch, ToolError

ROOT_BYTES = 256 << 20
MODULES = ("virtio_pci", "virtio_blk", "ext4")
PROGRAMS = {"apt-get": "apt", "dpkg-deb": "dpkg", "depmod": "kmod", "cpio": "cpio", "mke2fs": "e2fsprogs", "fio": "fio",
            "qemu-img": "qemu-utils", "qemu-system-x86_64": "qemu-system-x86", "ldd": "libc-bin"}
BUILD_LIMIT_S = 300.0

INITRD_INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in /modules/*; do insmod "$m"; done
i=0; while [ ! -b /dev/vda ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
mount -t ext4 -o ro /dev/vda /root || { echo "LAB failed: no root file system" >/dev/ttyS0; poweroff -f; }
mount --move /dev /root/dev; mount --move /proc /root/proc; mount --move /sys /root/sys
exec switch_root /root /sbin/init
"""

GUEST_INIT = """#!/bin/busybox sh
export PATH=/bin:/sbin:/usr/bin
exec </dev/null >/dev/ttyS0 2>&1
mount -t tmpfs tmpfs /tmp; cd /tmp
do= opts=
for word in $(cat /proc/cmdline); do
    case $word in
    lab.do=*) do=${word#lab.do=} ;;
    lab.fio=*) opts="--$(echo "${word#lab.fio=}" | sed 's/,/ --/g')" ;;
    esac
done
echo "LAB up uptime=$(cut -d' ' -f1 /proc/uptime) kernel=$(uname -r)"
case $do in
fio)
    fio --name=guest --output-format=json --output=/tmp/out --eta=never $opts >/tmp/err 2>&1
    status=$?
    [ $status = 0 ] || cat /tmp/err
    echo "LAB fio-begin"; cat /tmp/out; echo "LAB fio-end status=$status"
    echo "LAB done uptime=$(cut -d' ' -f1 /proc/uptime)" ;;
load)
    fio --name=guest --eta=never --output=/tmp/out $opts & echo "LAB loading"; wait ;;
wait) while :; do sleep 1; done ;;
esac
poweroff -f
"""


@dataclass(frozen=True)
class GuestImage:
    kernel: Path
    initrd: Path
    root: Path  # raw, ROOT_BYTES long
    store: Path  # the same as an image store keeps it: qcow2, compressed


def cache_dir() -> Path:
    base = os.environ.get("LAB_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "skep-lab")
    return Path(base)


def trial_mark() -> Path:
    """Where a trial guest's result is kept, for this boot of the machine."""
    return cache_dir() / f"kvm-{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"


class GuestMaker:
    """Builds the image and finds out how the guest's processor can run; both once."""

    def __init__(self, config: Config, scratch: Scratch) -> None:
        self.config, self.scratch = config, scratch
        self._image: GuestImage | None = None
        self._accel = ""
        self.notes: list[str] = []

    @staticmethod
    def missing() -> list[str]:
        return programs_missing(PROGRAMS)

    def image(self) -> GuestImage:
        if self._image is None:
            if problems := self.missing():
                raise Unsupported("; ".join(problems))
            key = hashlib.sha256("".join((INITRD_INIT, GUEST_INIT, str(ROOT_BYTES), *MODULES)).encode()).hexdigest()[:12]
            home = cache_dir() / f"guest-{key}"
            if not home.is_dir():
                build(self.scratch, home)
            self._image = GuestImage(home / "vmlinuz", home / "initrd.gz", home / "root.raw", home / "image.qcow2")
        return self._image

    def accel(self) -> str:
        """kvm where a trial guest comes up with it, else tcg; a trial's result holds until the machine boots anew."""
        if not self._accel:
            wanted = self.config.guest.accel
            self._accel = wanted if wanted != "auto" else ("kvm" if self._kvm_works() else "tcg")
            if self._accel == "tcg":
                self.notes.append("The guests' processors are emulated (TCG): times in guests are longer than on KVM, for all back ends alike.")
        return self._accel

    def _kvm_works(self) -> bool:
        from lab.vm import Machine

        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return False
        mark = trial_mark()
        if mark.exists():
            return mark.read_text() == "works"
        overlay = self.scratch.path / "trial.qcow2"
        self.scratch.run(["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(self.image().root), "-F", "raw", str(overlay)])
        node = {"driver": "qcow2", "node-name": "disk0", "file": {"driver": "file", "filename": str(overlay)}}
        works = False
        with Machine(self.scratch, self.image(), "kvm", self.config.guest.memory, node) as machine:
            try:
                machine.start()
                machine.wait_for("LAB up", self.config.guest.kvm_trial)
                works = True
            except ToolError:
                pass
        overlay.unlink()
        mark.write_text("works" if works else "hangs")
        return works


def build(scratch: Scratch, home: Path) -> None:
    """Into a directory beside `home`, renamed when complete, so that a build that is cut leaves no half image."""
    home.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="build-", dir=scratch.path))
    _fetch(scratch, work)
    kernel = next((work / "kernel/boot").glob("vmlinuz-*"))
    _initrd(scratch, work, kernel.name.removeprefix("vmlinuz-"))
    _root(scratch, work)
    out = Path(tempfile.mkdtemp(prefix="new-", dir=home.parent))
    try:
        shutil.copy(kernel, out / "vmlinuz")
        shutil.copy(work / "initrd.gz", out / "initrd.gz")
        scratch.run(["cp", "--sparse=always", str(work / "root.raw"), str(out / "root.raw")])
        scratch.run(["qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", str(out / "root.raw"), str(out / "image.qcow2")], timeout=BUILD_LIMIT_S)
        out.rename(home)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        raise
    shutil.rmtree(work)


def _fetch(scratch: Scratch, work: Path) -> None:
    shown = scratch.run(["apt-cache", "show", "--no-all-versions", "linux-image-cloud-amd64"], check=False).out
    found = re.search(r"^Depends:.*?(linux-image-\S*-cloud-amd64)", shown, re.M)
    if not found:
        raise ToolError("the guest image: apt knows no linux-image-cloud-amd64 (a Debian 12 or newer, after apt-get update)")
    debs = work / "deb"
    debs.mkdir()
    os.chmod(work, 0o755)
    for package in (found.group(1), "busybox-static"):
        script = 'cd "$1" && exec apt-get download -q -o APT::Sandbox::User=root "$2"'
        scratch.run(["sh", "-c", script, "sh", str(debs), package], timeout=BUILD_LIMIT_S)
    for deb in debs.iterdir():
        scratch.run(["dpkg-deb", "-x", str(deb), str(work / ("kernel" if deb.name.startswith("linux-") else "busybox"))])


def _initrd(scratch: Scratch, work: Path, version: str) -> None:
    tree = work / "initrd"
    for name in ("bin", "proc", "sys", "dev", "root", "modules"):
        (tree / name).mkdir(parents=True)
    shutil.copy(_busybox(work), tree / "bin/busybox")
    scratch.run(["depmod", "-b", str(work / "kernel"), version])
    shown = scratch.run(["modprobe", "-d", str(work / "kernel"), "-S", version, "--show-depends", "-a", *MODULES]).out
    paths: list[str] = []
    for line in shown.splitlines():
        words = line.split()
        if words[:1] == ["insmod"] and words[1] not in paths:
            paths.append(words[1])
    for n, path in enumerate(paths):
        target = tree / "modules" / f"{n:03d}-{Path(path).name}"
        shutil.copy(path, target)
        if target.suffix == ".xz":
            scratch.run(["xz", "-d", str(target)])
    (tree / "init").write_text(INITRD_INIT)
    (tree / "init").chmod(0o755)
    script = 'cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc -R 0:0 --quiet | gzip -6 >"$2"'
    scratch.run(["sh", "-c", script, "sh", str(tree), str(work / "initrd.gz")])


def _busybox(work: Path) -> Path:
    return next(p for p in (work / "busybox/bin/busybox", work / "busybox/usr/bin/busybox") if p.exists())


def _root(scratch: Scratch, work: Path) -> None:
    tree = work / "root"
    for name in ("bin", "sbin", "dev", "proc", "sys", "tmp", "usr/bin", "lib", "lib64"):
        (tree / name).mkdir(parents=True)
    shutil.copy(_busybox(work), tree / "bin/busybox")
    for applet in ("sh", "mount", "cat", "echo", "cut", "uname", "sed", "sleep", "poweroff"):
        (tree / "bin" / applet).symlink_to("busybox")
    fio = shutil.which("fio") or ""
    shutil.copy(fio, tree / "usr/bin/fio")
    for library in libraries(scratch.run(["ldd", fio]).out):
        target = tree / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target)
        if ".so" in target.name and not target.name.startswith("ld-"):
            scratch.run(["strip", "--strip-unneeded", str(target)], check=False)
    (tree / "sbin/init").write_text(GUEST_INIT)
    (tree / "sbin/init").chmod(0o755)
    image = work / "root.raw"
    with open(image, "wb") as f:
        f.truncate(ROOT_BYTES)
    path = shutil.which("mke2fs", path=os.environ["PATH"] + ":/sbin:/usr/sbin") or "mke2fs"
    scratch.run([path, "-q", "-F", "-t", "ext4", "-m", "0", "-E", "root_owner=0:0,lazy_itable_init=0", "-d", str(tree), str(image), f"{ROOT_BYTES >> 10}k"], timeout=BUILD_LIMIT_S)


def libraries(ldd: str) -> list[str]:
    """Absolute paths out of ldd's listing."""
    found = []
    for line in ldd.splitlines():
        m = re.match(r"\s*(?:\S+ => )?(/\S+) \(0x", line)
        if m and m.group(1) not in found:
            found.append(m.group(1))
    return found


__all__ = ["GuestImage", "GuestMaker", "ROOT_BYTES", "build", "cache_dir", "libraries"]
