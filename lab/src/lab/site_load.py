"""What came of a load on several clients of a site: of each one, of all together, and of every host."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from lab import account, fio
from lab.site import Clock
from lab.site_meter import Meter

CLOCK_TRUST_S = 0.5  # a clock that is known less well does not say when the load ended


@dataclass(frozen=True)
class Load:
    """Of one client."""

    name: str
    document: dict[str, Any]  # fio's
    values: dict[str, float]
    output: str
    course: str
    user_s: float  # processor time of fio, start and ramp included
    system_s: float
    elapsed: float  # s, what that is of

    @property
    def operations(self) -> int:
        return fio.operations(self.document)

    def window(self, clock: Clock, begun: float, ended: float) -> tuple[float, float]:
        """When its figures were taken, in time.monotonic here: from the ramp's end to the end, which fio tells by its host's clock. What
        cannot be (a clock that was set meanwhile) is taken for the end that was seen here."""
        stamp = self.document.get("timestamp_ms")
        end = ended
        if stamp is not None and clock.error < CLOCK_TRUST_S:
            told = stamp / 1000 - clock.ahead - time.time() + time.monotonic()
            end = told if begun <= told <= ended else ended
        return end - fio.seconds(self.document), end


def parse_load(name: str, out: str, word: str) -> Load:
    """What SITE_FIO of studies.base printed."""
    output, _, rest = out.partition(f"\n{word} ")
    times, _, course = rest.partition("\n")
    document = fio.parse(output)
    try:
        user, system, begun, ended = (float(w) for w in times.split())
    except ValueError as e:
        raise fio.FioError(f"fio on {name}: its processor time is {times[:40]!r}") from e
    return Load(name, document, fio.metrics(document), output, course.strip(), user / account.TICK, system / account.TICK, max(0.01, ended - begun))


def summed(loads: list[Load]) -> dict[str, float]:
    each = [load.values["iops"] for load in loads]
    return {"host_iops_min": min(each), "host_iops_max": max(each)}


CLIENT_VALUES = ("iops", "bandwidth", "latency_mean", "latency_p50", "latency_p99")


def by_host(loads: list[Load], meter: Meter, start: float, end: float) -> tuple[dict[str, dict[str, float]], dict[str, list[dict[str, Any]]]]:
    """(host -> HOST_METRICS, host -> its processes)"""
    hosts: dict[str, dict[str, float]] = {}
    processes: dict[str, list[dict[str, Any]]] = {}
    for host in meter.hosts:
        if used := meter.host(host.name, start, end):
            hosts[host.name] = dict(used.values)
            processes[host.name] = [{k: round(v, 4) if isinstance(v, float) else v for k, v in p.items()} for p in used.processes]
    for load in loads:
        own = hosts.setdefault(load.name, {})
        own |= {k: load.values[k] for k in CLIENT_VALUES if k in load.values}
        own["client_user"] = own.get("client_user", 0.0) + load.user_s / load.elapsed
        own["client_system"] = own.get("client_system", 0.0) + load.system_s / load.elapsed
        processes.setdefault(load.name, []).append({"name": "fio", "role": "client", "user_s": round(load.user_s, 4), "system_s": round(load.system_s, 4)})
    return hosts, processes
