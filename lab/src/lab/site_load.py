"""What came of a load on several clients of a site: of each one, of all together, and of every host."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lab import account, fio, load
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


@dataclass(frozen=True)
class Ran:
    """What TIMED of studies.base printed around a program."""

    output: str
    course: str
    user_s: float
    system_s: float
    elapsed: float


def parse_ran(name: str, program: str, out: str, word: str) -> Ran:
    output, _, rest = out.partition(f"\n{word} ")
    times, _, course = rest.partition("\n")
    try:
        user, system, begun, ended = (float(w) for w in times.split())
    except ValueError as e:
        raise fio.FioError(f"{program} on {name}: its processor time is {times[:40]!r}") from e
    return Ran(output, course.strip(), user / account.TICK, system / account.TICK, max(0.01, ended - begun))


def parse_load(name: str, out: str, word: str) -> Load:
    """Of fio."""
    document = fio.parse(out.partition(f"\n{word} ")[0])
    ran = parse_ran(name, "fio", out, word)
    return Load(name, document, fio.metrics(document), ran.output, ran.course, ran.user_s, ran.system_s, ran.elapsed)


@dataclass(frozen=True)
class OwnLoad:
    """Of one client, by a generator of the lab's own (lab.load)."""

    name: str
    found: load.Load
    output: str
    user_s: float
    system_s: float
    elapsed: float

    @property
    def bins(self) -> dict[float, int]:
        return {float(us): n for us, n in self.found.bins.items()}

    @property
    def values(self) -> dict[str, float]:
        return {"iops": self.found.operations / self.found.seconds, **fio.latencies_of(self.bins)}

    def window(self, clock: Clock, begun: float, ended: float) -> tuple[float, float]:
        """As of Load: told by its host's clock, within what was seen here."""
        shift = time.monotonic() - time.time() - clock.ahead
        start, end = self.found.began_ms / 1000 + shift, self.found.ended_ms / 1000 + shift
        return (start, end) if clock.error < CLOCK_TRUST_S and begun <= start <= end <= ended else (begun, ended)


def parse_own(name: str, program: str, out: str, word: str) -> OwnLoad:
    ran = parse_ran(name, program, out, word)
    found = load.parse(ran.output)
    if not found.operations:
        raise fio.FioError(f"{program} on {name}: no operation was done")
    return OwnLoad(name, found, ran.output, ran.user_s, ran.system_s, ran.elapsed)


def summed(loads: Sequence[Load | OwnLoad]) -> dict[str, float]:
    each = [one.values["iops"] for one in loads]
    return {"host_iops_min": min(each), "host_iops_max": max(each)}


CLIENT_VALUES = ("iops", "bandwidth", "latency_mean", "latency_p50", "latency_p99")


def by_host(loads: Sequence[Load | OwnLoad], meter: Meter, start: float, end: float, program: str = "fio") -> tuple[dict[str, dict[str, float]], dict[str, list[dict[str, Any]]]]:
    """(host -> HOST_METRICS, host -> its processes)"""
    hosts: dict[str, dict[str, float]] = {}
    processes: dict[str, list[dict[str, Any]]] = {}
    for host in meter.hosts:
        if used := meter.host(host.name, start, end):
            hosts[host.name] = dict(used.values)
            processes[host.name] = [{k: round(v, 4) if isinstance(v, float) else v for k, v in p.items()} for p in used.processes]
    for one in loads:
        own = hosts.setdefault(one.name, {})
        own |= {k: one.values[k] for k in CLIENT_VALUES if k in one.values}
        own["client_user"] = own.get("client_user", 0.0) + one.user_s / one.elapsed
        own["client_system"] = own.get("client_system", 0.0) + one.system_s / one.elapsed
        processes.setdefault(one.name, []).append({"name": program, "role": "client", "user_s": round(one.user_s, 4), "system_s": round(one.system_s, 4)})
    return hosts, processes
