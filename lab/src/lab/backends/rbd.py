"""Disks that are RBD images: on Ceph and on Skep, through the same stock librbd."""

from __future__ import annotations

from typing import Any

from lab import ledger
from lab.backends.base import Backend, Context, Disk, Unsupported, programs_missing
from lab.backends.ceph import CephService
from lab.backends.skep import SkepService, binary
from lab.backends.skep_hosts import SkepHostsService
from lab.config import Config

REMOVE_LIMIT_S = 600.0  # for one command at the end, on a cluster that may be busy

CLIENT_PROGRAMS = {"ceph": "ceph-common", "rbd": "ceph-common", "fio": "fio", "qemu-img": "qemu-utils"}


class RbdBackend(Backend):
    formats = ("rbd",)
    can_be_behind = True
    copies_possible = (1, 2, 3)
    client_programs = {"fio": "fio", "ceph": "ceph-common", "rbd": "ceph-common"}
    acknowledged, acknowledged_where = "flushed", "on disk, flushed, on every copy"
    auth = "none"
    service_class: type[CephService]

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service: CephService = context.service(self.service_class)
        self.bases: set[str] = set()  # disks with a protected snapshot
        named = self.service.settings.pool if self.service.external else ""
        self.pool = named or (f"lab-{self.scratch.mark}-{copies}" if self.service.external else f"lab{copies}")
        self.prefix = f"lab-{self.scratch.mark}-" if named else ""  # of images in a pool that others use as well
        self.entry: ledger.Entry | None = None  # of what it makes on somebody's cluster

    def start(self) -> None:
        self.service.start()
        if self.service.external and not self.service.ours and self.entry is None:
            stay = ledger.Stay(self.service.conf, self.pool, self.prefix, self._ssh(), self.service.settings.user)
            self.entry = ledger.note(self.scratch.path, self.scratch.mark, stay)
        if not self.prefix:
            self.service.pool(self.pool, self.copies)
        elif self.pool not in self.service.ceph("osd", "pool", "ls").split():
            raise Unsupported(f"{self.service.conf}: no pool {self.pool}")
        kept = self.service.copies_kept(self.pool)
        if kept != self.copies:
            why = "measure it under that number" if self.prefix else "its writes would be taken for what they are not"
            raise Unsupported(f"pool {self.pool}: {kept} OSD{'' if kept == 1 else 's'} act for a PG, not {self.copies}: {why}")

    def _ssh(self) -> tuple[str, ...]:
        return tuple(self.context.site.file.clients[0].at.ssh()) if self.context.site else ()

    def close(self) -> str:
        return ledger.remove(self.entry, lambda argv: self.scratch.run(argv, timeout=REMOVE_LIMIT_S).out) if self.entry else ""

    def options(self) -> dict[str, Any]:
        s = self.service.settings
        told = {**super().options(), "rbd_cache": s.rbd_cache}
        if not self.service.external:
            return {**told, "osds": s.osds, "osd_memory": s.osd_memory, "auth": self.auth}
        # Of a cluster that was there, settings of the lab say nothing; the one that it starts on a site's hosts has cephx.
        return {**told, "osd_memory": s.osd_memory, "auth": "cephx"} if self.service.ours else told

    def rbd(self, *args: str, timeout: float = 120) -> str:
        quiet = ["--no-progress"] if args[0] in ("rm", "import", "export") else []
        return self.scratch.run([*self.service.client("rbd"), *quiet, *args], timeout=timeout).out

    def spec(self, disk: Disk) -> str:
        return f"{self.pool}/{self.image(disk)}"

    def image(self, disk: Disk) -> str:
        return self.prefix + disk.name

    def create(self, disk: Disk) -> None:
        layout = ["--stripe-unit", str(disk.stripe_unit), "--stripe-count", str(disk.stripe_count)] if disk.stripe_unit else []
        if disk.writers > 1:
            # Without the exclusive lock, which writers would take from each other all the time.
            layout += ["--image-feature", "layering"]
        self.rbd("create", "--size", f"{disk.size}B", *layout, self.spec(disk))

    def remove(self, disk: Disk) -> None:
        if disk.name in self.bases:
            self.rbd("snap", "unprotect", f"{self.spec(disk)}@base")
            self.rbd("snap", "rm", "--no-progress", f"{self.spec(disk)}@base")
            self.bases.discard(disk.name)
        self.rbd("rm", self.spec(disk))

    def import_image(self, image: Any, base: Disk) -> None:
        super().import_image(image, base)
        self.rbd("snap", "create", f"{self.spec(base)}@base")
        self.rbd("snap", "protect", f"{self.spec(base)}@base")
        self.bases.add(base.name)

    def clone(self, base: Disk, disk: Disk) -> None:
        self.rbd("clone", f"{self.spec(base)}@base", self.spec(disk))
        if disk.size > base.size:
            self.rbd("resize", "--no-progress", "--size", f"{disk.size}B", self.spec(disk))

    def fio(self, disk: Disk) -> list[str]:
        return ["--ioengine=rbd", f"--clientname={self.service.settings.user}", f"--pool={self.pool}", f"--rbdname={self.image(disk)}"]

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "rbd", "pool": self.pool, "image": self.image(disk), "conf": self.service.conf, "user": self.service.settings.user}

    def location(self, disk: Disk) -> str:
        return f"rbd:{self.spec(disk)}:id={self.service.settings.user}:conf={self.service.conf}"

    def client_env(self) -> dict[str, str]:
        return {"CEPH_CONF": self.service.conf}

    def victim(self) -> int:
        if self.service.external:
            raise Unsupported("the lab does not kill servers that it did not start")
        return self.service.victim()

    def revive(self) -> None:
        self.service.revive()

    def whole(self) -> bool:
        return self.service.clean()


class Ceph(RbdBackend):
    kind, title, service_class = "ceph", "Ceph RBD", CephService

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        servers = {} if config.ceph.conf else {"ceph-mon": "ceph-mon", "ceph-mgr": "ceph-mgr", "ceph-osd": "ceph-osd", "monmaptool": "ceph-base"}
        return programs_missing({**CLIENT_PROGRAMS, **servers})


class Skep(RbdBackend):
    kind, title, service_class = "skep", "Skep RBD", SkepService

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        problems = programs_missing(CLIENT_PROGRAMS)
        if not config.skep.conf and not binary(config.skep.bin):
            problems.append("no skep program: set SKEP_BIN, or `bin` under [skep] in the configuration")
        return problems


class SkepHosts(Skep):
    """For the failure study: a process for each host, so that one can be lost."""

    kind, title, service_class, auth = "skep-hosts", "Skep RBD, a process per host", SkepHostsService, "cephx"

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        own = [] if binary(config.skep.bin) else ["no skep program: set SKEP_BIN, or `bin` under [skep] in the configuration"]
        return programs_missing({**CLIENT_PROGRAMS, "etcd": "etcd-server", "etcdctl": "etcd-client"}) + own
