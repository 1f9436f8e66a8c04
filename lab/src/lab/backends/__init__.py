"""The table of back ends. `parse` turns `kind:copies` into one; what is not in the table is a config error."""

from __future__ import annotations

from lab.backends.base import Backend, Context, Disk, Service, Unsupported
from lab.backends.cephfs import CephFs, SkepFs
from lab.backends.gluster import GlusterApi, GlusterFuse
from lab.backends.local import LocalBlock, LocalFile
from lab.backends.lvm import LvmThin
from lab.backends.mount import Mount
from lab.backends.nfs import Nfs
from lab.backends.rbd import Ceph, Skep, SkepHosts
from lab.backends.s3 import Rgw, SkepS3
from lab.config import ConfigError

KINDS: dict[str, type[Backend]] = {b.kind: b for b in (Skep, SkepHosts, Ceph, SkepFs, CephFs, SkepS3, Rgw, GlusterFuse, GlusterApi, LocalFile, LocalBlock, Nfs, LvmThin, Mount)}


def parse(name: str) -> tuple[type[Backend], int]:
    """(class, copies) of `ceph:2`; `ceph` alone is one copy."""
    kind, _, copies = name.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"no back end {kind!r}; there are {', '.join(KINDS)}")
    found = KINDS[kind]
    if not copies:
        return found, 1
    if not copies.isdigit() or int(copies) not in found.copies_possible:
        raise ConfigError(f"{name}: {kind} is measured with {' or '.join(map(str, found.copies_possible))} copies")
    return found, int(copies)


__all__ = ["KINDS", "Backend", "Context", "Disk", "Service", "Unsupported", "parse"]
