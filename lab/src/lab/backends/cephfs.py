"""CephFS through ceph-fuse: files with layouts, and disks that are files."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lab.backends.base import Context, Disk, ToolError, device_missing, not_root, programs_missing
from lab.backends.ceph import CephService
from lab.backends.local import DirectoryBackend
from lab.backends.rbd import Ceph
from lab.config import Config

MOUNT_LIMIT_S = 30.0
OBJECT_SIZE = 4 << 20


class CephFs(DirectoryBackend):
    kind, title = "cephfs", "CephFS (ceph-fuse)"
    acknowledged, acknowledged_where = "flushed", "on disk, flushed, on every copy"

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service: CephService = context.service(CephService)
        self.mounted = False

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        programs = {"ceph-fuse": "ceph-fuse"} | ({} if config.ceph.conf else {"ceph-mds": "ceph-mds"})
        return Ceph.missing(config) + programs_missing(programs) + device_missing("/dev/fuse", "FUSE") + not_root("a FUSE mount")

    def start(self) -> None:
        if self.mounted:
            return
        self.service.start()
        if not self.service.external:
            self.service.start_mds()
        target = self.directory()
        self.scratch.spawn(["ceph-fuse", "-f", "-c", self.service.conf, "-n", "client.admin", str(target)], f"client:{self.name}", log=self.scratch.path / "ceph-fuse.log")
        wait_for_mount(target)
        self.mounted = True

    def directory(self) -> Path:
        return self.scratch.directory("mnt/cephfs")

    def options(self) -> dict[str, Any]:
        return {**super().options(), "osds": self.service.settings.osds, "client": "ceph-fuse", "object_size": OBJECT_SIZE}

    def create(self, disk: Disk) -> None:
        if disk.stripe_unit:
            path = self.path(disk)
            path.touch()
            layout = f"stripe_unit={disk.stripe_unit} stripe_count={disk.stripe_count} object_size={OBJECT_SIZE}"
            os.setxattr(path, "ceph.file.layout", layout.encode())
            os.truncate(path, disk.size)
        else:
            super().create(disk)


def wait_for_mount(target: Path) -> None:
    deadline = time.monotonic() + MOUNT_LIMIT_S
    while not os.path.ismount(target):
        if time.monotonic() > deadline:
            raise ToolError(f"{target}: not mounted within {MOUNT_LIMIT_S:.0f} s")
        time.sleep(0.05)
