"""LVM thin volumes: only where the kernel has the device mapper with the thin target, which `missing` finds out."""

from __future__ import annotations

import subprocess
from typing import Any

from lab.backends.base import Context, Disk, device_missing, not_root, programs_missing
from lab.backends.local import LocalBlock
from lab.config import Config


class LvmThin(LocalBlock):
    kind, title = "lvm", "LVM thin volume (over a loop device)"

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.group = f"lab{self.scratch.mark}"
        self.loop = ""

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        problems = not_root("LVM") + programs_missing({"lvcreate": "lvm2", "thin_check": "thin-provisioning-tools", "dmsetup": "dmsetup"})
        problems += device_missing("/dev/loop-control", "loop devices")
        if not problems:
            targets = subprocess.run(["dmsetup", "targets"], capture_output=True, text=True, env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"})
            if "thin-pool" not in targets.stdout:
                problems.append("this kernel has no device mapper with thin volumes (dmsetup targets)")
        return problems

    def start(self) -> None:
        if self.loop:
            return
        file = self.scratch.directory("lvm") / "pool"
        with open(file, "wb") as f:
            f.truncate(self.config.lvm.size)
        self.loop = self.scratch.run(["losetup", "--find", "--show", "--direct-io=on", str(file)]).out.strip()
        self.scratch.run(["vgcreate", "-y", self.group, self.loop])
        self.scratch.run(["lvcreate", "-y", "--type", "thin-pool", "-l", "95%FREE", "-n", "pool", self.group])

    def create(self, disk: Disk) -> None:
        self.scratch.run(["lvcreate", "-y", "-V", f"{disk.size}b", "--thin", "-n", disk.name, f"{self.group}/pool"])
        self.devices[disk.name] = f"/dev/{self.group}/{disk.name}"

    def remove(self, disk: Disk) -> None:
        self.scratch.run(["lvremove", "-y", f"{self.group}/{disk.name}"])
        self.devices.pop(disk.name, None)

    def clone(self, base: Disk, disk: Disk) -> None:
        self.scratch.run(["lvcreate", "-y", "-s", "-kn", "-n", disk.name, f"{self.group}/{base.name}"])
        self.devices[disk.name] = f"/dev/{self.group}/{disk.name}"
        if disk.size > base.size:
            self.scratch.run(["lvextend", "-y", "-L", f"{disk.size}b", f"{self.group}/{disk.name}"])

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "host_device", "filename": self.devices[disk.name], "aio": "threads"}
