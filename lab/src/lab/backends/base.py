"""What a back end is to the studies, and what it needs to know about the machine.

Vocabulary
    service   servers that may carry several back ends (one Ceph cluster: copies 1, 2, 3, and CephFS)
    disk      a VM's disk by name, with size and format; `rbd` is the native format of RBD
    base      a disk that others are cloned from
    victim    a server process that the failure study kills or hangs

Contract (what each Backend must hold, and the studies rely on)
    - `missing()` says what keeps it from running here, changes nothing, and is quick
    - `start()` brings it to where disks can be made; a second call does nothing
    - `create` makes a disk whose reads give zeros; `remove` ends it and its space; both return when it is done
    - `fio(disk)` is fio's engine and target for the back end's own client; `blockdev(disk)` is QEMU's
    - what cannot be done raises Unsupported with the reason; nothing is faked
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.config import Config
from lab.process import Scratch, ToolError, marked

IMPORT_LIMIT_S = 3600.0


class Unsupported(Exception):
    """This back end has no such thing; the message says what and why."""


@dataclass(frozen=True)
class Disk:
    name: str
    size: int
    format: str
    stripe_unit: int = 0
    stripe_count: int = 0
    writers: int = 1  # clients that write at the same time


@dataclass
class Context:
    """What back ends share: configuration, the run's scratch, the services already made."""

    config: Config
    scratch: Scratch
    services: dict[str, "Service"]
    isolated: bool = True
    site: Any = None  # lab.site.Site, where the run's hosts are reached by ssh

    def service(self, kind: type["Service"]) -> Any:
        if kind.name not in self.services:
            self.services[kind.name] = kind(self)
        return self.services[kind.name]


def programs_missing(names: dict[str, str]) -> list[str]:
    """`names`: program -> Debian package that has it."""
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    return [f"{program} is not installed (Debian: {package})" for program, package in names.items() if not shutil.which(program, path=path)]


def device_missing(path: str, what: str) -> list[str]:
    return [] if os.path.exists(path) and os.access(path, os.R_OK | os.W_OK) else [f"{path} cannot be used ({what})"]


def not_root(what: str) -> list[str]:
    return [] if os.geteuid() == 0 else [f"{what} needs root"]


class Service(ABC):
    """Servers under one name; `role` marks their processes."""

    name = ""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.scratch = context.scratch
        self.started = False

    @property
    def role(self) -> str:
        return f"server:{self.name}"

    def start(self) -> None:
        if not self.started:
            self._start()
            self.started = True

    @abstractmethod
    def _start(self) -> None: ...

    def version(self) -> str:
        return ""

    def pids(self) -> list[int]:
        return marked(self.scratch.mark, self.role)

    def memory_parts(self) -> dict[str, float]:
        return {}

    def alive(self) -> str:
        """Why the service cannot serve any more, or ""."""
        return "" if self.pids() else f"{self.name}: no server process is left"


class Backend(ABC):
    kind = ""
    title = ""
    formats: tuple[str, ...] = ("raw", "qcow2", "qed")
    copies_possible: tuple[int, ...] = (1,)
    serves: tuple[str, ...] = ("disks",)  # what it has for studies: disks, files (a mounted directory), objects (S3)
    storage = "shared"  # or "local": whether another host would see the disks
    can_be_behind = False  # whether its clients can run in another network than its servers (behind)
    acknowledged = ""  # when a write is answered: flushed (to stable storage, on every copy), sent (to the device), cached
    acknowledged_where = ""  # the same in full
    durable_fio: tuple[str, ...] = ()  # what makes fio's every write durable where it is not by itself
    client_programs: dict[str, str] = {"fio": "fio"}  # that a client of a site needs: program -> Debian package
    service: Service | None = None

    def __init__(self, context: Context, copies: int) -> None:
        self.context, self.copies = context, copies
        self.scratch, self.config = context.scratch, context.config

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.copies}"

    def describe(self) -> str:
        return f"{self.title}, {self.copies} {'copy' if self.copies == 1 else 'copies'}" if self.storage == "shared" else self.title

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return []

    @abstractmethod
    def start(self) -> None: ...

    def version(self) -> str:
        return self.service.version() if self.service else ""

    def options(self) -> dict[str, Any]:
        """Settings that the figures depend on."""
        if self.config.run.durable and self.durable_fio:
            return {"acknowledged": "flushed", "acknowledged_where": f"flushed by the client after each write ({' '.join(self.durable_fio)})"}
        return {"acknowledged": self.acknowledged, "acknowledged_where": self.acknowledged_where}

    def server_pids(self) -> list[int]:
        return self.service.pids() if self.service else []

    def memory_parts(self) -> dict[str, float]:
        """Memory of an OSD apart from monitors, where the servers can be told apart: metrics and bytes."""
        return self.service.memory_parts() if self.service else {}

    def client_pids(self) -> list[int]:
        """Client daemons beside the load generator: FUSE mounts and the like."""
        return marked(self.scratch.mark, f"client:{self.name}")

    def alive(self) -> str:
        return self.service.alive() if self.service else ""

    # --- disks
    @abstractmethod
    def create(self, disk: Disk) -> None: ...

    @abstractmethod
    def remove(self, disk: Disk) -> None: ...

    @abstractmethod
    def fio(self, disk: Disk) -> list[str]: ...

    @abstractmethod
    def protocol(self, disk: Disk) -> dict[str, Any]:
        """QEMU's block driver for the bytes of the disk."""

    @abstractmethod
    def location(self, disk: Disk) -> str:
        """The disk as qemu-img names it."""

    @abstractmethod
    def clone(self, base: Disk, disk: Disk) -> None:
        """A disk that begins with the base's content, made as this back end's clouds do: clone or overlay."""

    def blockdev(self, disk: Disk, node: str = "disk0") -> dict[str, Any]:
        """The disk as a node of QEMU, past the host's page cache."""
        protocol = {**self.protocol(disk), "cache": {"direct": True, "no-flush": False}}
        driver = "raw" if disk.format == "rbd" else disk.format
        return {"driver": driver, "node-name": node, "file": protocol, "cache": {"direct": True, "no-flush": False}}

    def qemu_img(self, *args: str, timeout: float = 300, env: dict[str, str] | None = None) -> str:
        return self.scratch.run(["qemu-img", *args], timeout=timeout, env=env).out

    def client_env(self) -> dict[str, str]:
        """Environment that clients of this back end need."""
        return {}

    def import_image(self, image: Path, base: Disk) -> None:
        """The image store's copy (raw or qcow2, as its name ends) inside the back end, as a base for clones."""
        self.qemu_img("convert", "-n", "-f", image.suffix[1:], "-O", "raw" if base.format == "rbd" else base.format, str(image), self.location(base), timeout=IMPORT_LIMIT_S, env=self.client_env())

    def behind(self, prefix: list[str]) -> contextlib.AbstractContextManager[None]:
        """While it lasts, disks are reached from the network that commands with that prefix run in; a client that is the load generator itself
        needs nothing for it."""
        return contextlib.nullcontext()

    def directory(self) -> Path:
        """A mounted directory of this back end for files."""
        raise Unsupported(f"{self.kind} has no mounted directory")

    def elsewhere(self) -> Path:
        """The same directory as another client sees it, whose caches know nothing of what the first one did; where there is no such
        mount, `directory`."""
        return self.directory()

    def close(self) -> str:
        """At the run's end, for what the sweep does not reach: things on servers that were not started here. What stayed, why, and how to
        remove it; "" where nothing did."""
        return ""

    # --- faults
    def victim(self) -> int:
        """The pid of the server that a fault strikes."""
        raise Unsupported(f"{self.kind} has no server that could fail")

    def revive(self) -> None:
        """Starts the victim again after a kill."""
        raise Unsupported(f"{self.kind} has no server that could fail")

    def whole(self) -> bool:
        """Whether all copies are complete and in sync."""
        return True


def hang(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def wake(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


__all__ = [
    "Backend", "Context", "Disk", "Service", "ToolError", "Unsupported",
    "device_missing", "hang", "not_root", "programs_missing", "wake",
]
