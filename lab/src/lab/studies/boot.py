"""A VM's life: its disk is cloned, it boots, writes 1 GiB in blocks of 4 KiB at random, synchronously and directly, one
at a time, and is deleted. All of that is one sample; the work is that of Oliveira's study of BeeFS.

fio writes past the end of the root file system, on the same disk: the region is new, so first writes pay for allocation.
With a time limit (quick) only part of the region is written, which the factor `writes` says; there is no run_time then.
"""

from __future__ import annotations

import time
from pathlib import Path

from lab import fio
from lab.backends import Backend, Disk
from lab.guest import ROOT_BYTES
from lab.report_units import written
from lab.studies.base import BOOT_S, GUESSED_IOPS, Case, Result, Study
from lab.vm import Machine

FIO_LIMIT_S = 7200.0


class Boot(Study):
    name = "boot"

    def missing(self) -> list[str]:
        return self.guests.missing()

    def cases(self, backend: Backend) -> list[Case]:
        formats = ["rbd"] if "rbd" in backend.formats else [f for f in self.config.boot.formats if f in backend.formats]
        if not formats and "raw" in backend.formats:
            formats = ["raw"]
        s = self.config.boot
        writes = f"for {round_up(s.runtime)} s" if s.runtime else written(float(s.size), "B")
        return [{"format": f, "accel": self.guests.accel(), "writes": writes} for f in formats]

    def seconds(self, case: Case) -> float:
        s = self.config.boot
        return BOOT_S + (s.runtime or s.size / 4096 / GUESSED_IOPS)

    def prepare(self, backend: Backend, case: Case) -> None:
        self.base(backend)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        s = self.config.boot
        disk = Disk(f"boot-vm{round}", ROOT_BYTES + s.size, case["format"])
        limit = f",time_based=1,runtime={round_up(s.runtime)}" if s.runtime else ""
        options = f"filename=/dev/vda,ioengine=sync,direct=1,rw=randwrite,bs=4096,offset={ROOT_BYTES},size={s.size},randseed={round + 1}{limit}"
        started = time.monotonic()
        backend.clone(self.base(backend), disk)
        values = {"create_time": time.monotonic() - started}
        machine = Machine(self.scratch, self.guests.image(), case["accel"], self.config.guest.memory, backend.blockdev(disk), "fio", options, backend.client_env())
        try:
            with self.accounted(backend) as accounting, machine:
                machine.start()
                values["boot_time"], _ = machine.wait_for("LAB up", self.config.guest.boot_limit)
                done, _ = machine.wait_for("LAB done", FIO_LIMIT_S)
                if not s.runtime:  # else it is the time that was asked for
                    values["run_time"] = done - values["boot_time"]
                raw = machine.between("LAB fio-begin", "LAB fio-end")
                started = time.monotonic()
                machine.stop()
        finally:
            backend.remove(disk)
        values["delete_time"] = time.monotonic() - started
        document = fio.parse(raw)
        return [Result(case, {**values, **fio.metrics(document), **accounting.values}, raw)]

    def base(self, backend: Backend) -> Disk:
        return imported_base(self, backend)


def round_up(seconds: float) -> int:
    return max(1, int(seconds + 0.999))


def imported_base(study: Study, backend: Backend, image: Path | None = None, size: int = ROOT_BYTES) -> Disk:
    """The guest's root disk, or a larger image that begins with it, inside the back end, once."""
    base = Disk(f"{study.name}-base" + (f"-{size >> 20}m" if image else ""), size, "rbd" if "rbd" in backend.formats else "raw")
    key = (backend.name, base.name)
    if key not in study._ready:
        study._disks.setdefault(backend.name, []).append(base)
        backend.create(base)
        backend.import_image(image or study.guests.image().root, base)
        study._ready.add(key)
    return base
