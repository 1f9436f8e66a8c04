"""Time until the disks of M VMs on N hosts exist, and until all of them have booted.

Unified storage (RBD): a clone for each VM from the image that is already there. Local storage: each host fetches the image
from the image store (a directory), converts it to raw, resizes it, and makes an overlay for each VM. Files on shared
storage: the same, but fetched and converted once for all hosts. One machine plays all hosts, at the same time; their disks
and network are one.

`image` in the grid makes the image so large: the guest's root disk with data behind it that no conversion can skip.
"""

from __future__ import annotations

import contextlib
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.backends import Backend, Disk
from lab.backends.local import DirectoryBackend
from lab.backends.rbd import RbdBackend
from lab.config import ConfigError, expand
from lab.guest import ROOT_BYTES
from lab.studies.base import BOOT_S, GUESSED_RATE, START_S, Case, Result, Study
from lab.studies.boot import imported_base
from lab.vm import Machine

STEP_LIMIT_S = 3600.0
STEPS = ("download_time", "convert_time", "resize_time", "overlay_time")


class Provision(Study):
    name = "provision"

    def missing(self) -> list[str]:
        return self.guests.missing()

    def cases(self, backend: Backend) -> list[Case]:
        if not isinstance(backend, RbdBackend) and (not isinstance(backend, DirectoryBackend) or backend.kind == "nfs"):
            return []
        cases = expand(self.config.provision.grid, ("vms", "hosts", "image"), self.name, {"image": ROOT_BYTES})
        if small := [c["image"] for c in cases if c["image"] < ROOT_BYTES]:
            raise ConfigError(f"provision.grid: image {min(small)}: the guest's own has {ROOT_BYTES} bytes already")
        return [{**c, "accel": self.guests.accel()} for c in cases]

    def seconds(self, case: Case) -> float:
        return 2 * case["image"] / GUESSED_RATE + START_S * case["vms"] + (BOOT_S * case["vms"] if self.config.provision.boot else 0.0)

    def prepare(self, backend: Backend, case: Case) -> None:
        if isinstance(backend, RbdBackend):
            self._base(backend, case)
        else:
            self._store(case)

    def _size(self, case: Case) -> int:
        return max(self.config.provision.disk_size, case["image"])

    def _store(self, case: Case) -> Path:
        """What the image store has; an image larger than the guest's is made once a run."""
        if case["image"] == ROOT_BYTES:
            return self.guests.image().store
        made = self.scratch.directory("images") / f"{case['image'] >> 20}m.qcow2"
        if not made.exists():
            raw, part = made.with_suffix(".raw"), made.with_suffix(".part")
            self.scratch.run(["cp", "--sparse=always", str(self.guests.image().root), str(raw)])
            append_data(raw, case["image"])
            self.scratch.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", str(raw), str(part)], timeout=STEP_LIMIT_S)
            raw.unlink()
            part.rename(made)
        return made

    def _base(self, backend: Backend, case: Case) -> Disk:
        return imported_base(self, backend, self._store(case), case["image"]) if case["image"] > ROOT_BYTES else imported_base(self, backend)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        made: list[Disk] = []
        try:
            started = time.monotonic()
            disks, steps = self._provide(backend, case, made)
            values = {**steps, "provision_time": time.monotonic() - started}
            if self.config.provision.boot:
                values["batch_boot_time"] = self._boot(backend, case, disks)
        finally:
            for disk in reversed(made):
                with contextlib.suppress(FileNotFoundError):
                    backend.remove(disk)
        return [Result(case, values)]

    def _provide(self, backend: Backend, case: Case, made: list[Disk]) -> tuple[list[Disk], dict[str, float]]:
        size = self._size(case)
        unified = isinstance(backend, RbdBackend)
        disks = [Disk(f"provision-vm{n}", size, "rbd" if unified else "qcow2") for n in range(case["vms"])]
        made.extend(disks)
        if unified:
            started = time.monotonic()
            base = self._base(backend, case)
            with ThreadPoolExecutor(case["hosts"]) as hosts:
                list(hosts.map(lambda disk: backend.clone(base, disk), disks))
            return disks, {"overlay_time": time.monotonic() - started}
        bases = 1 if backend.storage == "shared" else case["hosts"]
        made[:0] = [Disk(f"provision-base{n}", size, f) for n in range(bases) for f in ("raw", "image")]
        with ThreadPoolExecutor(bases) as hosts:
            times = list(hosts.map(lambda n: self._host(backend, case, n, disks[n::bases]), range(bases)))
        return disks, {step: max(t[i] for t in times) for i, step in enumerate(STEPS)}

    def _host(self, backend: DirectoryBackend, case: Case, n: int, disks: list[Disk]) -> list[float]:
        """One host's steps; their times in the order of STEPS."""
        base = Disk(f"provision-base{n}", self._size(case), "raw")
        fetched = backend.path(Disk(base.name, base.size, "image"))
        clock = [time.monotonic()]
        self.scratch.run(["cp", "--reflink=never", str(self._store(case)), str(fetched)], timeout=STEP_LIMIT_S)
        clock.append(time.monotonic())
        backend.qemu_img("convert", "-f", "qcow2", "-O", "raw", str(fetched), backend.location(base), timeout=STEP_LIMIT_S)
        clock.append(time.monotonic())
        backend.qemu_img("resize", "-q", "-f", "raw", backend.location(base), str(base.size))
        clock.append(time.monotonic())
        for disk in disks:
            backend.clone(base, disk)
        clock.append(time.monotonic())
        return [b - a for a, b in zip(clock, clock[1:])]

    def _boot(self, backend: Backend, case: Case, disks: list[Disk]) -> float:
        with contextlib.ExitStack() as stack:
            machines = [stack.enter_context(Machine(self.scratch, self.guests.image(), case["accel"], self.config.guest.memory, backend.blockdev(disk), "wait", "", backend.client_env())) for disk in disks]
            started = time.monotonic()
            for machine in machines:
                machine.start()
            limit = self.config.guest.boot_limit * max(1, len(machines) / 2)
            return max(machine.wait_for("LAB up", limit)[0] + machine.started for machine in machines) - started


def append_data(file: Path, size: int) -> None:
    """To that size, with data that is not zeros: a conversion has to move all of it."""
    block = os.urandom(4 << 20)
    with open(file, "ab") as f:
        while (rest := size - f.tell()) > 0:
            f.write(block[:rest])
