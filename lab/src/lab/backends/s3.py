"""S3 gateways: Skep's, in the process that has all else (`skep up --s3`), and Ceph's radosgw before a real Ceph.

Both answer a put when the object is on every copy, flushed. What was deleted is removed by both after GC_WAIT_S, instead of their own 15 minutes
and 2 hours, so that a night of puts does not fill the disk. radosgw is told not to
wait for full packets (tcp_nodelay, off by default): without that each of its reads takes 44 ms from a client that keeps its connection.
One number of copies in a run: a gateway has one set of pools.
"""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

from lab.backends.base import Backend, Context, Disk, Unsupported, programs_missing
from lab.backends.ceph import CephService
from lab.backends.rbd import Ceph
from lab.backends.skep import SkepService, binary
from lab.config import Config

GC_WAIT_S = 60
SKEP_PORT, RGW_PORT = 17480, 17481
USER = "lab"
RGW_LIMIT_S = 240.0  # it makes its zone at its first start


@dataclass(frozen=True)
class Account:
    """Where a gateway listens, and a user's key."""

    endpoint: str
    access: str
    secret: str


class S3Backend(Backend):
    formats = ()
    serves = ("objects",)
    copies_possible = (1, 2, 3)
    acknowledged, acknowledged_where = "flushed", "on disk, flushed, on every copy"
    service_class: type[CephService]
    service: CephService

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service = context.service(self.service_class)
        self.account: Account | None = None

    def start(self) -> None:
        if self.account is None:
            self.service.start()
            one_number(self.service, "s3", self.copies)
            self.account = self._open()

    def _open(self) -> Account:
        """The gateway with its pools of so many copies, and a user."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        s = self.service.settings
        return {**super().options(), "osds": s.osds, "osd_memory": s.osd_memory, "gc_wait_s": GC_WAIT_S}

    def create(self, disk: Disk) -> None:
        raise Unsupported("a gateway has objects, no disks")

    remove = fio = protocol = location = create

    def clone(self, base: Disk, disk: Disk) -> None:
        self.create(disk)


class SkepS3Service(SkepService):
    """Apart from the Skep of the other studies: nobody else pays for the gateway."""

    name = "skep-s3"
    more = ("--msgr1-port", "0", "--metrics-port", "0", "--s3", "--s3-listen", f"127.0.0.1:{SKEP_PORT}", "--s3-gc-wait", str(GC_WAIT_S))

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.external = False
        self.dir = self.scratch.path / self.name
        self.conf = str(self.dir / "client.conf")


class SkepS3(S3Backend):
    kind, title, service_class = "skep-s3", "Skep S3", SkepS3Service

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        own = [] if binary(config.skep.bin) else ["no skep program: set SKEP_BIN, or `bin` under [skep] in the configuration"]
        return programs_missing({"ceph": "ceph-common"}) + own

    def _open(self) -> Account:
        made = self.scratch.run([binary(self.config.skep.bin), "s3", "user", "create", USER, "-c", self.service.conf, "-f", "json"]).out
        for pool in ("s3.meta", "s3.data"):
            keep_copies(self.service, pool, self.copies)
        self.service.wait(self.service.clean, "all pools clean")
        found = json.loads(made)
        return Account(f"127.0.0.1:{SKEP_PORT}", *key_of(found))


class Rgw(S3Backend):
    kind, title, service_class = "rgw", "Ceph radosgw", CephService

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return Ceph.missing(config) + programs_missing({"radosgw": "radosgw", "radosgw-admin": "radosgw"}) + (["a gateway is started before the lab's own Ceph alone"] if config.ceph.conf else [])

    def options(self) -> dict[str, Any]:
        return {**super().options(), "frontend": "beast tcp_nodelay=1"}

    def _open(self) -> Account:
        for pool in (".rgw.root", *(f"default.rgw.{n}" for n in ("log", "control", "meta", "buckets.index", "buckets.data"))):
            self.service.pool(pool, self.copies, app=False)
            self.service.ceph("osd", "pool", "application", "enable", pool, "rgw")
        self.service.start_rgw(RGW_PORT, GC_WAIT_S)
        self.service.wait(lambda: answers(RGW_PORT), "answered by radosgw", RGW_LIMIT_S)
        made = self.scratch.run(["radosgw-admin", "-c", self.service.conf, "user", "create", f"--uid={USER}", f"--display-name={USER}"]).out
        return Account(f"127.0.0.1:{RGW_PORT}", *key_of(json.loads(made[made.index("{"):])))


def key_of(user: dict[str, Any]) -> tuple[str, str]:
    """(access, secret) out of a user as either gateway prints it."""
    key = user["keys"][0]
    return key["access_key"], key["secret_key"]


def answers(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/")
        connection.getresponse().read()
    except OSError:
        return False
    return True


def keep_copies(service: CephService, pool: str, copies: int) -> None:
    """Of a pool that somebody else makes: waits for it, and sets its copies."""
    service.wait(lambda: pool in service.ceph("osd", "pool", "ls").split(), f"pool {pool}")
    service.ceph("osd", "pool", "set", pool, "size", str(copies), *(["--yes-i-really-mean-it"] if copies == 1 else []))
    if (kept := service.copies_kept(pool)) != copies:
        service.wait(lambda: service.copies_kept(pool) == copies, f"pool {pool} of {copies} copies, not {kept}")


def one_number(service: CephService, what: str, copies: int) -> None:
    """Refuses a second number of copies where a service has one set of pools."""
    have = service.copies_of.setdefault(what, copies)
    if have != copies:
        raise Unsupported(f"{what} has pools of {have} {'copy' if have == 1 else 'copies'} in this run: {copies} copies take a run of their own")


__all__ = ["Account", "Rgw", "S3Backend", "SkepS3", "keep_copies", "one_number"]
