"""GlusterFS of a site: a volume that is there, or one that the lab makes over its hosts, mounted by FUSE on every client."""

from __future__ import annotations

from typing import Any

from lab.backends.base import Backend
from lab.backends.gluster import VOLUME_OPTIONS, GlusterFuse
from lab.backends.mount import Mount
from lab.config import Config


class SiteGluster(Mount):
    kind, title = "gluster", "GlusterFS (FUSE)"
    acknowledged, acknowledged_where, durable_fio = GlusterFuse.acknowledged, GlusterFuse.acknowledged_where, GlusterFuse.durable_fio
    client_programs = {"fio": "fio", "glusterfs": "glusterfs-client"}
    target = ""

    @property
    def home(self) -> str:
        return f"{self.target}/lab-{self.scratch.mark}"

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        return []

    def options(self) -> dict[str, Any]:
        own = VOLUME_OPTIONS if self.context.site.gluster.start else {"volume": self.context.site.file.volume}
        return {**super(Mount, self).options(), "bricks": self.copies, **own}

    def version(self) -> str:
        return self.context.site.gluster.version

    def start(self) -> None:
        self.target = self.context.site.gluster.mount(self.copies, VOLUME_OPTIONS)
        super().start()

    def close(self) -> str:
        return self._remove() if self.target else ""


# What stands in for the back end of that kind where hosts are reached by ssh.
SITE_KINDS: dict[str, type[Backend]] = {b.kind: b for b in (SiteGluster,)}
