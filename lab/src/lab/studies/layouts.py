"""Bandwidth of files over stripe unit, stripe count, block size, threads and network delay.

CephFS has a layout per file, RBD one per image, both laid out by the client. Back ends that have none take part with the
plain layout alone (stripe unit 4 MiB, count 1: whole objects), which is the case that all have in common. A delay is one between client and
servers alone (lab.link): the client, and its FUSE daemon, run in a network of their own. Where that cannot be, and for back ends whose client is
elsewhere, those cases are left out, and `missing_delay` says why.

With a site `hosts` client hosts work at once, each with `threads` on a file of its own, and the delay is one on the way from them to the servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lab import fio, link
from lab.backends import Backend, Disk
from lab.config import expand
from lab.studies.base import Case, Result, Study

FACTORS = ("op", "bs", "stripe_unit", "stripe_count", "threads", "delay")
PLAIN = (4 << 20, 1)
STRIPING = ("cephfs", "skep-fs", "ceph", "skep")
DEFAULTS = {"delay": 0, "threads": 1, "op": "write", "stripe_unit": PLAIN[0]}


class Layouts(Study):
    name = "layouts"
    over_site = True

    def cases(self, backend: Backend) -> list[Case]:
        cases = self._over_hosts() if self.context.site else expand(self.config.layouts.grid, FACTORS, self.name, DEFAULTS)
        if not self.context.site and any(c["delay"] for c in cases) and (not backend.can_be_behind or missing_delay(self.context.isolated)):
            cases = [c for c in cases if not c["delay"]]
        if backend.kind not in STRIPING:
            cases = [c for c in cases if (c["stripe_unit"], c["stripe_count"]) == PLAIN]
        return cases

    def _over_hosts(self) -> list[Case]:
        there = len(self.context.site.file.clients)
        cases = expand(self.context.site.with_delays(self.config.layouts.grid), (*FACTORS, "hosts"), self.name, {**DEFAULTS, "hosts": there})
        return [c for c in cases if c["hosts"] <= there and not (c["delay"] and self.context.site.no_delay)]

    def _disk(self, backend: Backend, case: Case, host: int = 0) -> Disk:
        layout = {"stripe_unit": case["stripe_unit"], "stripe_count": case["stripe_count"]}
        name = f"{case['stripe_unit']}-{case['stripe_count']}{f'-host{host}' if self.context.site else ''}"
        if backend.kind not in STRIPING or (layout["stripe_unit"], layout["stripe_count"]) == PLAIN:
            layout = {}
        return self.disk(backend, f"{name}-{case['threads']}", self.config.layouts.size * case["threads"], writers=case["threads"], **layout)

    def prepare(self, backend: Backend, case: Case) -> None:
        if self.context.site:
            self.context.site.slow(0)
        for host in range(case.get("hosts", 1)):
            self._disk(backend, case, host)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        if self.context.site:
            return [self._over_site(backend, case)]
        settings = self.config.layouts
        disk = self._disk(backend, case)
        with delayed(self, backend, case["delay"]) as prefix, self.target(backend, disk) as target:
            return [self.fio_result(backend, case, [*prefix, *self._command(target, case)], settings.runtime + settings.ramp)]

    def _over_site(self, backend: Backend, case: Case) -> Result:
        settings = self.config.layouts
        self.context.site.slow(case["delay"])
        durable = backend.durable_fio if self.config.run.durable else ()
        argv = [self._command([*backend.fio(self._disk(backend, case, host)), *durable], case) for host in range(case["hosts"])]
        return self.site_result(backend, case, argv, settings.runtime + settings.ramp)

    def _command(self, target: list[str], case: Case) -> list[str]:
        """Threads share one file, each in a part of its own, as jobs of an analysis farm do."""
        s = self.config.layouts
        parts = [[*target, f"--offset={n * s.size}"] for n in range(case["threads"])]
        return fio.command(parts, rw=case["op"], bs=case["bs"], depth=s.depth, size=s.size, runtime=s.runtime, ramp=s.ramp)


def missing_delay(isolated: bool) -> str:
    """Why no delay can be put between client and servers, or ""."""
    return link.missing() if isolated else "no network of its own to delay"


@contextlib.contextmanager
def delayed(study: Study, backend: Backend, ms: float) -> Iterator[list[str]]:
    """What the client's command begins with, so that it is so far away (a round trip) from the servers."""
    if not ms:
        yield []
        return
    with study.scratch.link(ms) as prefix, backend.behind(prefix):
        yield prefix
