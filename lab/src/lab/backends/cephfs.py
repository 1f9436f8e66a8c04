"""CephFS through ceph-fuse: files with layouts, and disks that are files; of a real Ceph with its MDS, and of Skep with its own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.backends.base import Context, Disk, ToolError, device_missing, not_root, programs_missing
from lab.backends.ceph import CephService
from lab.backends.local import DirectoryBackend
from lab.backends.rbd import Ceph, Skep
from lab.backends.s3 import keep_copies, one_number
from lab.backends.skep import SkepService
from lab.config import Config
from lab.process import kill_group

MOUNT_LIMIT_S = 60.0
OBJECT_SIZE = 4 << 20
VOLUME = "lab"


class CephFs(DirectoryBackend):
    kind, title = "cephfs", "CephFS (ceph-fuse)"
    copies_possible = (1, 2, 3)
    can_be_behind = True
    acknowledged, acknowledged_where = "flushed", "on disk, flushed, on every copy"
    service_class: type[CephService] = CephService
    service: CephService

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service = context.service(self.service_class)
        self.mounted = False
        self.home = self.scratch.path / f"mnt/{self.kind}"  # where files are made and measured

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        programs = {} if config.ceph.conf else {"ceph-mds": "ceph-mds"}
        return Ceph.missing(config) + programs_missing(programs) + fuse_missing()

    def start(self) -> None:
        if self.mounted:
            return
        self.service.start()
        if not self.service.external:
            one_number(self.service, "a file system", self.copies)
            self._make()
        self._mount(self.directory())
        self.mounted = True

    def _make(self) -> None:
        self.service.start_mds(self.copies)

    def _mount(self, target: Path) -> None:
        self._fuse(target, [])

    def _fuse(self, target: Path, prefix: list[str]) -> subprocess.Popen:
        argv = [*prefix, "ceph-fuse", "-f", "-c", self.service.conf, "-n", "client.admin", str(target)]
        daemon = self.scratch.spawn(argv, f"client:{self.name}", log=self.scratch.path / f"{target.name}.log")
        wait_for_mount(target)
        return daemon

    def directory(self) -> Path:
        self.home.mkdir(parents=True, exist_ok=True)
        return self.home

    @contextlib.contextmanager
    def behind(self, prefix: list[str]) -> Iterator[None]:
        """A mount of its own, whose daemon runs there."""
        usual, self.home = self.home, self.scratch.directory(f"mnt/{self.kind}-behind")
        daemon = None
        try:
            daemon = self._fuse(self.home, prefix)
            yield
        finally:
            self.scratch.run(["umount", str(self.home)], check=False)
            self.home = usual
            if daemon is not None:
                end(daemon)

    def elsewhere(self) -> Path:
        target = self.scratch.directory(f"mnt/{self.kind}-second")
        if not os.path.ismount(target):
            self._mount(target)
        return target

    def options(self) -> dict[str, Any]:
        s = self.service.settings
        return {**super().options(), "osds": s.osds, "osd_memory": s.osd_memory, "client": "ceph-fuse", "object_size": OBJECT_SIZE}

    def create(self, disk: Disk) -> None:
        if disk.stripe_unit:
            path = self.path(disk)
            path.touch()
            layout = f"stripe_unit={disk.stripe_unit} stripe_count={disk.stripe_count} object_size={OBJECT_SIZE}"
            os.setxattr(path, "ceph.file.layout", layout.encode())
            os.truncate(path, disk.size)
        else:
            super().create(disk)


class SkepFs(CephFs):
    kind, title, service_class = "skep-fs", "Skep files (ceph-fuse)", SkepService

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return Skep.missing(config) + fuse_missing()

    def _make(self) -> None:
        """By one command, as its users do; then its pools get their copies."""
        if VOLUME not in (fs["name"] for fs in self.service.json("fs", "ls")):
            self.service.ceph("fs", "volume", "create", VOLUME)
        for pool in (f"cephfs.{VOLUME}.meta", f"cephfs.{VOLUME}.data"):
            keep_copies(self.service, pool, self.copies)
        self.service.wait(self.service.clean, "all pools clean")
        self.service.wait(lambda: "up:active" in self.service.ceph("mds", "stat"), "the metadata server active")


def fuse_missing() -> list[str]:
    return programs_missing({"ceph-fuse": "ceph-fuse"}) + device_missing("/dev/fuse", "FUSE") + not_root("a FUSE mount")


def end(daemon: subprocess.Popen) -> None:
    """A FUSE daemon whose mount is gone ends by itself; by force where it does not."""
    try:
        daemon.wait(MOUNT_LIMIT_S)
    except subprocess.TimeoutExpired:
        kill_group(daemon)


def wait_for_mount(target: Path) -> None:
    deadline = time.monotonic() + MOUNT_LIMIT_S
    while not os.path.ismount(target):
        if time.monotonic() > deadline:
            raise ToolError(f"{target}: not mounted within {MOUNT_LIMIT_S:.0f} s")
        time.sleep(0.05)
