"""Skep on loopback: one process with monitor and OSDs, started and stopped by the lab (several: skep_hosts)."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from lab import account
from lab.backends.base import Context, ToolError
from lab.backends.ceph import CephService

READY_LIMIT_S = 60.0


class SkepService(CephService):
    """Speaks Ceph's protocol, so pools, images and commands are Ceph's; only how it starts differs."""

    name = "skep"
    more: tuple[str, ...] = ()  # further arguments of its first start and all others

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = context.config.skep
        cluster = context.site.skep if context.site else None
        self.ours = cluster is not None
        self.external = bool(self.settings.conf) or self.ours
        self.dir = self.scratch.path / "skep"
        self.conf = (cluster.conf if cluster else self.settings.conf) or str(self.dir / "client.conf")
        self.process: subprocess.Popen | None = None

    def _start(self) -> None:
        if self.external:
            self.ceph("status")
            return
        self.dir.mkdir()
        self._launch()
        self.write_client_conf(self.dir / "data" / "ceph.conf")

    def write_client_conf(self, conf: Path) -> None:
        """What clients use: Skep's own ceph.conf, and the lab's settings for them."""
        cache = "true" if self.settings.rbd_cache else "false"
        text = f"{conf.read_text()}\n[client]\nrbd_cache = {cache}\nadmin_socket =\nlog_file = {self.dir}/client.log\n"
        Path(self.conf).write_text(text)

    def _launch(self) -> None:
        log = self.dir / "server.log"
        seen = log.stat().st_size if log.exists() else 0
        argv = [binary(self.settings.bin), "up", "--data", str(self.dir / "data"), "--osds", str(self.settings.osds), "--auth", "none",
                "--osd-memory", str(self.settings.osd_memory), "--osd-size", str(self.settings.osd_size), "--allow-pool-delete", *self.more]
        if seen == 0:
            argv += ["--mon-port", "0"]
        self.process = self.scratch.spawn(argv, self.role, log=log)
        wait_ready(self.process, log, seen)

    def alive(self) -> str:
        if self.process is not None and self.process.poll() is not None:
            return f"skep ended with status {self.process.returncode}"
        return ""

    def memory_parts(self) -> dict[str, float]:
        """One process: the monitor is in the OSDs' shares."""
        return {"osd_memory": account.memory(self.pids()) / self.settings.osds} if not self.external else {}

    def victim(self) -> int:
        return self.process.pid  # all OSDs are threads of the one process

    def revive(self) -> None:
        self.process.kill()
        self.process.wait()
        self._launch()

    def version(self) -> str:
        if self.ours:
            return self.context.site.skep.version
        if self.external:
            return super().version()
        return self.scratch.run([binary(self.settings.bin), "--version"], check=False).out.strip()


def wait_ready(process: subprocess.Popen, log: Path, seen: int) -> None:
    """Until it says so, behind the first `seen` bytes of its log."""
    deadline = time.monotonic() + READY_LIMIT_S
    while b"\nready" not in log.read_bytes()[seen:]:
        if process.poll() is not None:
            raise ToolError(f"skep ended with status {process.returncode}: {log.read_text()[-300:].strip()}")
        if time.monotonic() > deadline:
            raise ToolError(f"skep: not ready within {READY_LIMIT_S:.0f} s")
        time.sleep(0.02)


def binary(configured: str) -> str:
    """The program: configuration, SKEP_BIN, or the search path; "" where there is none."""
    for name in (configured, os.environ.get("SKEP_BIN", ""), "skep"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return ""
