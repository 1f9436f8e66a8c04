"""Files in a directory where somebody's storage is mounted already: CephFS, GlusterFS, NFS, whatever has a path. With a site the
directory is on every client, and the commands run there. What is made is one directory of the run's own name, removed at the end."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from lab.backends.base import Backend, Disk, Unsupported, programs_missing
from lab.config import Config


class Mount(Backend):
    kind, title, formats, copies_possible = "mount", "mounted directory", ("raw",), (1, 2, 3, 4, 5)
    serves = ("disks", "files")
    durable_fio = ("--sync=dsync",)

    @property
    def home(self) -> str:
        return f"{self.config.mount.path.rstrip('/')}/lab-{self.scratch.mark}"

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return ([] if config.mount.path else ["no directory: `path` under [mount]"]) + ([] if config.run.site else programs_missing({"fio": "fio"}))

    def options(self) -> dict[str, Any]:
        self.acknowledged = self.config.mount.acknowledged
        self.acknowledged_where = f"{self.acknowledged}, as [mount] says"
        return {**super().options(), "path": self.config.mount.path}

    def start(self) -> None:
        self.scratch.run(["mkdir", "-p", self.home])

    def close(self) -> str:
        return self._remove() if self.config.mount.path else ""

    def _remove(self) -> str:
        try:
            self.scratch.run(["rm", "-rf", "--one-file-system", "--", self.home], timeout=600)
        except Exception as e:
            return f"{self.home} could not be removed: {e}; by hand: rm -rf {shlex.quote(self.home)}"
        return ""

    def directory(self) -> Path:
        return Path(self.home)

    def location(self, disk: Disk) -> str:
        return f"{self.home}/{disk.name}"

    def create(self, disk: Disk) -> None:
        self.scratch.run(["truncate", "-s", str(disk.size), self.location(disk)])

    def remove(self, disk: Disk) -> None:
        self.scratch.run(["rm", "-f", "--", self.location(disk)])

    def fio(self, disk: Disk) -> list[str]:
        return ["--ioengine=libaio", "--direct=1", f"--filename={self.location(disk)}"]

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "file", "filename": self.location(disk), "aio": "threads"}

    def clone(self, base: Disk, disk: Disk) -> None:
        raise Unsupported("a mounted directory has no clones of its own")
