"""Disks on this host alone: files, loop devices over files, and the shared code of everything that is a directory."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from lab.backends.base import Backend, Context, Disk, Unsupported, device_missing, not_root, programs_missing
from lab.config import Config


class DirectoryBackend(Backend):
    """Disks are files below a mounted directory; clones are qcow2 overlays, as clouds make them there."""

    serves = ("disks", "files")

    @abstractmethod
    def directory(self) -> Path: ...

    def path(self, disk: Disk) -> Path:
        return self.directory() / f"{disk.name}.{disk.format}"

    def location(self, disk: Disk) -> str:
        return str(self.path(disk))

    def create(self, disk: Disk) -> None:
        self.qemu_img("create", "-q", "-f", disk.format, self.location(disk), str(disk.size))

    def remove(self, disk: Disk) -> None:
        self.path(disk).unlink()

    def clone(self, base: Disk, disk: Disk) -> None:
        """An overlay; a raw file cannot be one, so that is a full copy."""
        if disk.format == "raw":
            self.qemu_img("convert", "-f", base.format, "-O", "raw", self.location(base), self.location(disk))
            self.qemu_img("resize", "-q", "-f", "raw", self.location(disk), str(disk.size))
            return
        self.qemu_img("create", "-q", "-f", disk.format, "-b", self.location(base), "-F", base.format, self.location(disk), str(disk.size))

    def fio(self, disk: Disk) -> list[str]:
        if disk.format != "raw":
            raise Unsupported(f"fio writes raw disks; {disk.format} goes through QEMU")
        return ["--ioengine=libaio", "--direct=1", f"--filename={self.path(disk)}"]

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "file", "filename": str(self.path(disk)), "aio": "threads"}


class LocalFile(DirectoryBackend):
    kind, title, storage = "file", "local file", "local"
    acknowledged, acknowledged_where = "sent", "in the device's hands, past the page cache, not flushed"
    durable_fio = ("--sync=dsync",)

    def start(self) -> None:
        self.directory()

    def directory(self) -> Path:
        return self.scratch.directory("file")

    def version(self) -> str:
        return ""


class LocalBlock(Backend):
    """Each disk is a loop device with direct I/O over a file of its own."""

    kind, title, storage, formats = "block", "local block device (loop)", "local", ("raw",)
    acknowledged, acknowledged_where = "sent", "in the device's hands, past the page cache, not flushed"
    durable_fio = ("--sync=dsync",)

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.devices: dict[str, str] = {}

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return not_root("a loop device") + device_missing("/dev/loop-control", "loop devices") + programs_missing({"losetup": "mount"})

    def start(self) -> None:
        self.scratch.directory("block")

    def _file(self, disk: Disk) -> Path:
        return self.scratch.directory("block") / disk.name

    def create(self, disk: Disk) -> None:
        with open(self._file(disk), "wb") as f:
            f.truncate(disk.size)
        out = self.scratch.run(["losetup", "--find", "--show", "--direct-io=on", str(self._file(disk))]).out
        self.devices[disk.name] = out.strip()

    def remove(self, disk: Disk) -> None:
        self.scratch.run(["losetup", "-d", self.devices.pop(disk.name)])
        self._file(disk).unlink()

    def clone(self, base: Disk, disk: Disk) -> None:
        """A full copy: plain block devices have nothing better."""
        self.create(disk)
        self.qemu_img("convert", "-n", "-f", "raw", "-O", "raw", self.location(base), self.location(disk))

    def fio(self, disk: Disk) -> list[str]:
        return ["--ioengine=libaio", "--direct=1", f"--filename={self.devices[disk.name]}"]

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "host_device", "filename": self.devices[disk.name], "aio": "threads"}

    def location(self, disk: Disk) -> str:
        return self.devices[disk.name]
