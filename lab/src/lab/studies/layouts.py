"""Bandwidth of files over stripe unit, stripe count, block size, threads and network delay.

CephFS has a layout per file, RBD one per image, both laid out by the client. Back ends that have none take part with the
plain layout alone (stripe unit 4 MiB, count 1: whole objects), which is the case that all have in common. A delay is one between client and
servers alone (lab.link): the client, and its FUSE daemon, run in a network of their own. Where that cannot be, and for back ends whose client is
elsewhere, those cases are left out, and `missing_delay` says why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from lab import fio, link
from lab.backends import Backend
from lab.config import expand
from lab.studies.base import Case, Result, Study

FACTORS = ("op", "bs", "stripe_unit", "stripe_count", "threads", "delay")
PLAIN = (4 << 20, 1)
STRIPING = ("cephfs", "skep-fs", "ceph", "skep")


class Layouts(Study):
    name = "layouts"

    def cases(self, backend: Backend) -> list[Case]:
        cases = expand(self.config.layouts.grid, FACTORS, self.name, {"delay": 0, "threads": 1, "op": "write", "stripe_unit": PLAIN[0]})
        if any(c["delay"] for c in cases) and missing_delay(self.context.isolated):
            cases = [c for c in cases if not c["delay"]]
        if backend.kind not in STRIPING:
            cases = [c for c in cases if (c["stripe_unit"], c["stripe_count"]) == PLAIN]
        if not backend.can_be_behind:
            cases = [c for c in cases if not c["delay"]]
        return cases

    def _disk(self, backend: Backend, case: Case):
        layout = {"stripe_unit": case["stripe_unit"], "stripe_count": case["stripe_count"]}
        name = f"{case['stripe_unit']}-{case['stripe_count']}"
        if backend.kind not in STRIPING or (layout["stripe_unit"], layout["stripe_count"]) == PLAIN:
            layout = {}
        return self.disk(backend, f"{name}-{case['threads']}", self.config.layouts.size * case["threads"], writers=case["threads"], **layout)

    def prepare(self, backend: Backend, case: Case) -> None:
        self._disk(backend, case)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        settings = self.config.layouts
        disk = self._disk(backend, case)
        with delayed(self, backend, case["delay"]) as prefix, self.target(backend, disk) as target:
            # Threads share one file, each in a part of its own, as jobs of an analysis farm do.
            parts = [[*target, f"--offset={n * settings.size}"] for n in range(case["threads"])]
            argv = fio.command(parts, rw=case["op"], bs=case["bs"], depth=settings.depth, size=settings.size, runtime=settings.runtime, ramp=settings.ramp)
            return [self.fio_result(backend, case, [*prefix, *argv], settings.runtime + settings.ramp)]


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
