"""fio over block size, share of reads, depth and clients: random I/O on disks that were written before.

Each client has a disk of its own. The working set may fit into caches (size in the settings; the report shows it): what
a small machine compares is the path, not the disk.
"""

from __future__ import annotations

import contextlib

from lab import fio
from lab.backends import Backend
from lab.config import expand
from lab.studies.base import Case, Result, Study

FACTORS = ("bs", "read", "depth", "clients")


class Matrix(Study):
    name = "matrix"

    def cases(self, backend: Backend) -> list[Case]:
        return expand(self.config.matrix.grid, FACTORS, self.name, {"read": 0})

    def prepare(self, backend: Backend, case: Case) -> None:
        for n in range(case["clients"]):
            self.disk(backend, str(n), self.config.matrix.size)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        settings = self.config.matrix
        with contextlib.ExitStack() as stack:
            targets = [stack.enter_context(self.target(backend, self.disk(backend, str(n), settings.size))) for n in range(case["clients"])]
            rw = {0: "randwrite", 100: "randread"}.get(case["read"], "randrw")
            argv = fio.command(targets, rw=rw, bs=case["bs"], depth=case["depth"], size=settings.size, read=case["read"] if rw == "randrw" else None,
                               runtime=settings.runtime, ramp=settings.ramp, extra=[f"--randseed={round + 1}"])
            return [self.fio_result(backend, case, argv, settings.runtime + settings.ramp)]
