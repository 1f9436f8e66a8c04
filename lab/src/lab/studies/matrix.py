"""fio over block size, share of reads, depth and clients: random I/O on disks that were written before.

Each client has a disk of its own. With a site `hosts` client hosts work at once, each with so many `clients`, and `delay` ms lie on
their way to the servers. The working set may fit into caches (size in the settings; the report shows it): what
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
    over_site = True

    def cases(self, backend: Backend) -> list[Case]:
        if not self.context.site:
            return expand(self.config.matrix.grid, FACTORS, self.name, {"read": 0})
        there = len(self.context.site.file.clients)
        grids = self.context.site.with_delays(self.config.matrix.grid)
        delay = ("delay",) if any("delay" in grid for grid in grids) else ()
        cases = expand(grids, (*FACTORS, "hosts", *delay), self.name, {"read": 0, "hosts": there, "delay": 0})
        return [c for c in cases if c["hosts"] <= there and not (c.get("delay") and self.context.site.no_delay)]

    def prepare(self, backend: Backend, case: Case) -> None:
        for n in range(case["clients"] * case.get("hosts", 1)):
            self.disk(backend, str(n), self.config.matrix.size)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        settings = self.config.matrix
        if self.context.site:
            return [self._over_site(backend, case, round)]
        with contextlib.ExitStack() as stack:
            targets = [stack.enter_context(self.target(backend, self.disk(backend, str(n), settings.size))) for n in range(case["clients"])]
            argv = self._command(targets, case, round)
            result = self.fio_result(backend, case, argv, settings.runtime + settings.ramp)
            each = fio.rates(fio.parse(result.raw))
            result.values |= {"iops_per_client": sum(each) / len(each), "client_iops_min": min(each), "client_iops_max": max(each)}
            return [result]

    def _over_site(self, backend: Backend, case: Case, round: int) -> Result:
        """Every host has clients and disks of its own."""
        s, clients = self.config.matrix, case["clients"]
        self.context.site.slow(case.get("delay", 0))
        argv = []
        for host in range(case["hosts"]):
            disks = [self.disk(backend, str(n), s.size) for n in range(host * clients, (host + 1) * clients)]
            durable = backend.durable_fio if self.config.run.durable else ()
            argv.append(self._command([[*backend.fio(d), *durable] for d in disks], case, round * 1000 + host))
        result = self.site_result(backend, case, argv, s.runtime + s.ramp)
        result.values |= {"iops_per_host": result.values["iops"] / case["hosts"], "iops_per_client": result.values["iops"] / case["hosts"] / clients}
        return result

    def _command(self, targets: list[list[str]], case: Case, seed: int) -> list[str]:
        s = self.config.matrix
        rw = {0: "randwrite", 100: "randread"}.get(case["read"], "randrw")
        return fio.command(targets, rw=rw, bs=case["bs"], depth=case["depth"], size=s.size, read=case["read"] if rw == "randrw" else None,
                           runtime=s.runtime, ramp=s.ramp, extra=[f"--randseed={seed + 1}"], apart=True)
