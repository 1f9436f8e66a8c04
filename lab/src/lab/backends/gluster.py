"""GlusterFS on loopback: glusterd with volumes of 1, 2 or 3 bricks that hold the same data; FUSE or gfapi clients.

glusterd keeps its state in fixed places (lab.process.PRIVATE) and refuses a brick on an address it takes for loopback, so it runs
only where the lab has mounts of its own: there those places are empty, and /etc/hosts has the name HOST.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from lab.backends.base import Backend, Context, Disk, Service, ToolError, Unsupported, device_missing, not_root, programs_missing
from lab.backends.cephfs import wait_for_mount
from lab.backends.local import DirectoryBackend
from lab.config import Config
from lab.fio import FLUSH_EACH
from lab.process import bind_file, marked

HOST = "labgluster"
PORT = 24007
START_LIMIT_S = 60.0
VOLUME_OPTIONS = {"cluster.heal-timeout": "5", "performance.client-io-threads": "on"}


class GlusterService(Service):
    name = "gluster"

    def _start(self) -> None:
        if not self.context.isolated:
            raise ToolError("gluster: needs mounts of its own (root, namespaces)")
        hosts = self.scratch.path / "hosts"
        hosts.write_text(Path("/etc/hosts").read_text() + f"127.0.0.1 {HOST} {socket.gethostname()}\n")
        bind_file(hosts, "/etc/hosts")
        for d in ("/var/log/glusterfs/bricks", "/var/lib/glusterd/vols", "/var/lib/glusterd/peers"):
            os.makedirs(d, exist_ok=True)
        self.daemon = self.scratch.spawn(["glusterd", "-N", "--log-level", "WARNING"], self.role, log=self.scratch.path / "glusterd.log")
        deadline = time.monotonic() + START_LIMIT_S
        while self.gluster("volume", "list", check=False) is None:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise ToolError("gluster: glusterd does not answer")
            time.sleep(0.2)
        self.volumes: set[str] = set()

    def gluster(self, *args: str, check: bool = True, timeout: float = 120) -> str | None:
        done = self.scratch.run(["gluster", "--mode=script", *args], timeout=timeout, check=check)
        return done.out if done.status == 0 else None

    def volume(self, copies: int) -> str:
        """A started volume of so many bricks."""
        name = f"lab{copies}"
        if name in self.volumes:
            return name
        bricks = [f"{HOST}:{self.brick(name, n)}" for n in range(copies)]
        for n in range(copies):
            self.scratch.directory(f"gluster/{name}.{n}")
        replica = ["replica", str(copies)] if copies > 1 else []
        self.gluster("volume", "create", name, *replica, *bricks, "force")
        for option, value in VOLUME_OPTIONS.items():
            if copies > 1 or not option.startswith("cluster."):
                self.gluster("volume", "set", name, option, value)
        self.gluster("volume", "start", name)
        self.volumes.add(name)
        return name

    def brick(self, volume: str, n: int) -> Path:
        return self.scratch.path / "gluster" / f"{volume}.{n}"

    def brick_pid(self, volume: str, n: int) -> int:
        wanted = str(self.brick(volume, n)).encode()
        for pid in marked(self.scratch.mark, self.role):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--brick-name" in command and command[command.index(b"--brick-name") + 1] == wanted:
                return pid
        raise ToolError(f"gluster: no process of brick {wanted.decode()}")

    def version(self) -> str:
        return self.scratch.run(["glusterd", "--version"], check=False).out.split("\n")[0]

    def alive(self) -> str:
        return "gluster: glusterd ended" if self.started and self.daemon.poll() is not None else ""


class _Gluster(Backend):
    """What the two clients share."""

    copies_possible = (1, 2, 3)
    acknowledged, acknowledged_where = "cached", "in the page cache of every brick's host; on disk only after a flush by the client"
    durable_fio = (FLUSH_EACH,)
    service: GlusterService
    volume = ""

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service = context.service(GlusterService)

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return not_root("glusterd") + programs_missing({"glusterd": "glusterfs-server", "gluster": "glusterfs-cli", "glusterfs": "glusterfs-client"})

    def start(self) -> None:
        self.service.start()
        self.volume = self.service.volume(self.copies)

    def options(self) -> dict[str, Any]:
        return {**super().options(), "bricks": self.copies, **VOLUME_OPTIONS}

    def alive(self) -> str:
        if gone := self.service.alive():
            return gone
        try:
            for n in range(self.copies if self.volume else 0):
                self.service.brick_pid(self.volume, n)
        except ToolError as e:
            return str(e)
        return ""

    def victim(self) -> int:
        return self.service.brick_pid(self.volume, 0)

    def revive(self) -> None:
        self.service.gluster("volume", "start", self.volume, "force")

    def whole(self) -> bool:
        if self.copies == 1:
            return True
        out = self.service.gluster("volume", "heal", self.volume, "info", check=False) or ""
        counts = [line.split(":")[1].strip() for line in out.splitlines() if line.startswith("Number of entries")]
        return len(counts) == self.copies and all(c == "0" for c in counts)


class GlusterFuse(_Gluster, DirectoryBackend):
    kind, title = "gluster", "GlusterFS (FUSE)"

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return super().missing(config) + device_missing("/dev/fuse", "FUSE")

    def start(self) -> None:
        super().start()
        target = self.directory()
        if os.path.ismount(target):
            return
        self._mount(target)

    def _mount(self, target: Path) -> None:
        argv = ["glusterfs", "--no-daemon", f"--volfile-server={HOST}", f"--volfile-id={self.volume}", "--log-level=WARNING", str(target)]
        self.scratch.spawn(argv, f"client:{self.name}", log=self.scratch.path / f"{target.name}.fuse.log")
        wait_for_mount(target)

    def elsewhere(self) -> Path:
        target = self.scratch.directory(f"mnt/gluster{self.copies}-second")
        if not os.path.ismount(target):
            self._mount(target)
        return target

    def directory(self) -> Path:
        return self.scratch.directory(f"mnt/gluster{self.copies}")


class GlusterApi(_Gluster):
    """Disks are reached by libgfapi, in fio and in QEMU, without the kernel's FUSE."""

    kind, title = "gluster-gfapi", "GlusterFS (gfapi)"

    def path(self, disk: Disk) -> str:
        return f"{disk.name}.gfapi.{disk.format}"

    def location(self, disk: Disk) -> str:
        return f"gluster://{HOST}:{PORT}/{self.volume}/{self.path(disk)}"

    def create(self, disk: Disk) -> None:
        self.qemu_img("create", "-q", "-f", disk.format, self.location(disk), str(disk.size))

    def remove(self, disk: Disk) -> None:
        """By a FUSE mount made for it where there is none: qemu-img has no command that deletes."""
        target = self.scratch.directory(f"mnt/gfapi{self.copies}")
        if not os.path.ismount(target):
            argv = ["glusterfs", "--no-daemon", f"--volfile-server={HOST}", f"--volfile-id={self.volume}", "--log-level=WARNING", str(target)]
            self.scratch.spawn(argv, f"client:{self.name}", log=self.scratch.path / "gfapi.fuse.log")
            wait_for_mount(target)
        (target / self.path(disk)).unlink()

    def clone(self, base: Disk, disk: Disk) -> None:
        if disk.format == "raw":
            self.qemu_img("convert", "-f", base.format, "-O", "raw", self.location(base), self.location(disk))
            self.qemu_img("resize", "-q", "-f", "raw", self.location(disk), str(disk.size))
            return
        self.qemu_img("create", "-q", "-f", disk.format, "-b", self.location(base), "-F", base.format, self.location(disk), str(disk.size))

    def fio(self, disk: Disk) -> list[str]:
        if disk.format != "raw":
            raise Unsupported(f"fio writes raw disks; {disk.format} goes through QEMU")
        return ["--ioengine=gfapi_async", "--direct=1", f"--volume={self.volume}", f"--brick={HOST}", f"--filename={self.path(disk)}"]

    def protocol(self, disk: Disk) -> dict[str, Any]:
        server = {"type": "inet", "host": HOST, "port": str(PORT)}
        return {"driver": "gluster", "volume": self.volume, "path": self.path(disk), "server": [server]}
