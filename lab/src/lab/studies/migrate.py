"""Live migration between two QEMU processes: over shared storage only memory moves, over local storage the disk too.

The guest writes to its disk all the while (fio at a low rate). With local storage the disk is mirrored into the target's
over NBD, then memory moves, and at the switch-over the mirror is in sync: libvirt's way. Both hosts are this machine, so
the network is loopback; the pause is what QEMU reports as downtime.
"""

from __future__ import annotations

import json
import time

from lab import fio
from lab.backends import Backend, Disk
from lab.guest import ROOT_BYTES
from lab.process import ToolError
from lab.qsd import Export
from lab.studies.base import BOOT_S, GUESSED_RATE, START_S, Case, Result, Study
from lab.studies.boot import imported_base
from lab.vm import Machine

POLL_S = 0.02
RUNNING_LIMIT_S = 10.0
LOAD = "filename=/dev/vda,ioengine=sync,direct=1,rw=randwrite,bs=4096,rate_iops=50,time_based=1,runtime=3600"


class Migrate(Study):
    name = "migrate"

    def missing(self) -> list[str]:
        return self.guests.missing()

    def cases(self, backend: Backend) -> list[Case]:
        if not {"qcow2", "rbd"} & set(backend.formats):
            return []
        return [{"storage": backend.storage, "accel": self.guests.accel()}]

    def seconds(self, case: Case) -> float:
        s = self.config.migrate
        return 2 * BOOT_S + (s.written / GUESSED_RATE + s.disk_size / GUESSED_RATE if case["storage"] == "local" else START_S)

    def prepare(self, backend: Backend, case: Case) -> None:
        imported_base(self, backend)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        s = self.config.migrate
        format = "rbd" if "rbd" in backend.formats else "qcow2"
        disk = Disk(f"migrate-vm{round}", s.disk_size, format)
        other = Disk(f"migrate-to{round}", s.disk_size, format) if case["storage"] == "local" else disk
        made = []
        try:
            backend.clone(imported_base(self, backend), disk)
            made.append(disk)
            self._write(backend, disk)
            if other is not disk:
                backend.create(other)
                made.append(other)
            return [Result(case, *self._migrate(backend, case, disk, other))]
        finally:
            for d in made:
                backend.remove(d)

    def _write(self, backend: Backend, disk: Disk) -> None:
        """Data on the disk beside the image, so that a disk that moves has something to carry."""
        with Export(backend, disk) as export:
            argv = fio.command([export.fio()], rw="write", bs=1 << 20, depth=4, size=self.config.migrate.written, extra=[f"--offset={ROOT_BYTES}", "--refill_buffers=1"])
            self.scratch.run(argv, timeout=600)

    def _migrate(self, backend: Backend, case: Case, disk: Disk, other: Disk) -> tuple[dict[str, float], str]:
        """What was measured, and what QEMU said of it."""
        load = f"{LOAD},offset={ROOT_BYTES},size={self.config.migrate.written}"
        address = f"unix:{self.scratch.path}/migrate"
        common = (self.scratch, self.guests.image(), case["accel"], self.config.guest.memory)
        source = Machine(*common, backend.blockdev(disk), "load", load, backend.client_env())
        target = Machine(*common, backend.blockdev(other), "load", load, backend.client_env(), incoming=address)
        with source, target:
            source.start()
            source.wait_for("LAB loading", self.config.guest.boot_limit)
            time.sleep(1.0)
            target.start()
            target.qmp("query-status")
            started = time.monotonic()
            moved = self._mirror(source, target) if other is not disk else None
            info = self._move(source, address, mirrored=moved is not None)
            values = {"migration_time": time.monotonic() - started, "migration_pause": float(info["downtime"]),
                      "migration_bytes": float(info["ram"]["transferred"] + (moved or 0))}
            self._await_running(target)
            return values, json.dumps({"query-migrate": info, "mirrored": moved})

    def _await_running(self, target: Machine) -> None:
        """The source says completed when all is sent; the target may still be taking it in."""
        deadline = time.monotonic() + RUNNING_LIMIT_S
        while not (status := target.qmp("query-status"))["running"]:
            if time.monotonic() > deadline:
                raise ToolError(f"the guest does not run after its migration: {status['status']}")
            time.sleep(POLL_S)

    def _mirror(self, source: Machine, target: Machine) -> int:
        """The disk to the other host, until both are equal; the bytes that moved."""
        path = str(self.scratch.path / "mirror")
        target.qmp("nbd-server-start", addr={"type": "unix", "data": {"path": path}})
        target.qmp("block-export-add", **{"type": "nbd", "id": "mirror", "node-name": "disk0", "name": "disk0", "writable": True})
        source.qmp("blockdev-add", **{"driver": "nbd", "node-name": "there", "server": {"type": "unix", "path": path}, "export": "disk0"})
        source.qmp("blockdev-mirror", **{"job-id": "mirror", "device": "disk0", "target": "there", "sync": "full"})
        deadline = time.monotonic() + self.config.migrate.limit
        while True:
            jobs = source.qmp("query-block-jobs")
            if not jobs:
                raise ToolError("the disk's mirror ended early")
            if jobs[0].get("ready"):
                return int(jobs[0]["len"])
            if time.monotonic() > deadline:
                raise ToolError(f"the disk was not mirrored within {self.config.migrate.limit:.0f} s")
            time.sleep(POLL_S)

    def _move(self, source: Machine, address: str, mirrored: bool) -> dict:
        if mirrored:
            source.qmp("migrate-set-capabilities", capabilities=[{"capability": "pause-before-switchover", "state": True}])
        source.qmp("migrate", uri=address)
        deadline = time.monotonic() + self.config.migrate.limit
        while time.monotonic() < deadline:
            info = source.qmp("query-migrate")
            status = info.get("status")
            if status == "completed":
                return info
            if status in ("failed", "cancelled"):
                raise ToolError(f"migration {status}: {info.get('error-desc', 'QEMU gives no reason')}")
            if status == "pre-switchover":
                # The guest stands still: what the mirror has is all there is, so it may end in sync.
                source.qmp("block-job-cancel", device="mirror")
                while source.qmp("query-block-jobs"):
                    time.sleep(POLL_S)
                source.qmp("migrate-continue", state="pre-switchover")
            time.sleep(POLL_S)
        raise ToolError(f"the migration did not end within {self.config.migrate.limit:.0f} s")
