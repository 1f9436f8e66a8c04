"""What a client sees when a server is killed or hangs: the longest stall, the errors, then the copies being made whole.

A client writes at a fixed rate all the time. At `before` seconds the victim gets SIGKILL or SIGSTOP; after `outage`
seconds it is started again or wakes. With one copy nothing can take over, so the stall is at least the outage; with more,
it is the time until the survivors go on. A stall that lasts until the server is back says only that it is at least that long, and is
shown so (stall_censored). stall_before is the longest gap of the undisturbed time, for comparison.
Latencies are given apart for the time before the fault, while the victim is away, while it is rebuilt, and after that; each
operation counts where it completed.

On a site a server is struck that the lab has started there itself: Skep's on the first of its hosts, or the first [[service]] of the back end. Others' servers
are left alone: the study has no case for them.
"""

from __future__ import annotations

import json
import math
import statistics
import time

from lab import fio
from lab.backends import Backend
from lab.process import ToolError
from lab.studies.base import START_S, Case, Result, Study
from lab.studies.faults import LoadHere, LoadThere, Victim, VictimHere, VictimThere

POLL_S = 0.2
REACTION_S = 0.05  # what completes so soon after the fault had been answered before it
AFTER_S = 3.0
LATENCIES_MIN = 20  # of a phase; fewer have no percentiles
EINTR = 4  # what fio calls the error of a job that was asked to end


class Failure(Study):
    name = "failure"
    over_site = True

    def cases(self, backend: Backend) -> list[Case]:
        site = self.context.site
        if not site.victim(backend.kind) if site else type(backend).victim is Backend.victim:
            return []
        return [{"fault": fault} for fault in self.config.failure.faults]

    def seconds(self, case: Case) -> float:
        s = self.config.failure
        return START_S + s.before + s.outage + AFTER_S + s.after / 2

    def prepare(self, backend: Backend, case: Case) -> None:
        self.disk(backend, "disk", self.config.failure.size)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        s, site = self.config.failure, self.context.site
        if site:
            site.slow(0)
        runtime = s.before + s.outage + s.after + s.recover_limit
        with self.target(backend, self.disk(backend, "disk", s.size)) as target:
            argv = fio.command([target], rw="randwrite", bs=s.bs, depth=s.depth, size=s.size, runtime=runtime, extra=[f"--rate_iops={s.rate}", "--log_unix_epoch=1"])
            victim = VictimThere(site, site.victim(backend.kind), case["fault"]) if site else VictimHere(backend, case["fault"])
            try:
                with LoadThere(site, argv, backend.client_env()) if site else LoadHere(self.scratch, f"failure-{backend.kind}", argv, backend.client_env()) as load:
                    times = self._strike(backend, victim, load)
                    time.sleep(AFTER_S)  # I/O flows once all is whole again; a load that is stuck ends by its own limit
                    load.end(s.after + s.recover_limit)
                    log, output = load.results()
            finally:
                victim.restore()
        # By the clock of the log.
        times = {name: at + load.ahead for name, at in times.items()}
        # With it each value comes again: when the server went and came back, and when each operation ended.
        return [Result(case, values(log, output, times), json.dumps({"times": times, "fio": output, "log": log}))]

    def _strike(self, backend: Backend, victim: Victim, load: LoadHere | LoadThere) -> dict[str, float]:
        s = self.config.failure
        time.sleep(s.before + 1.0)  # fio's own start-up is not part of the undisturbed time
        if (status := load.status()) is not None:
            raise fio.FioError(f"fio ended before the fault, with status {status}")
        times = {"struck": victim.strike()}
        time.sleep(s.outage)
        times["back"] = victim.restore_service()
        deadline = time.monotonic() + s.recover_limit
        while not backend.whole():
            if time.monotonic() > deadline:
                raise ToolError(f"copies not whole {s.recover_limit:.0f} s after the server's return")
            time.sleep(POLL_S)
        times["whole"] = time.time()
        return times


def values(log: str, output: str, times: dict[str, float]) -> dict[str, float]:
    """Of fio's log of latencies and its output; `times` of what befell the server, in seconds since 1970."""
    completions = fio.completion_times(log)
    document = fio.parse(output)
    if not completions:
        raise fio.FioError("no I/O completed")
    at = [t for t, _ in completions]
    begin, end = at[0], at[-1]
    found = {
        "stall": fio.longest_gap(at, times["struck"], end),
        "stall_censored": float(not any(times["struck"] + REACTION_S < t < times["back"] for t in at)),
        "stall_before": fio.longest_gap(at, begin, times["struck"]),
        "recovery_time": times["whole"] - times["back"],
        "errors": float(sum(max(job.get("total_err", 0), job["error"] not in (0, EINTR)) for job in document["jobs"])),
    }
    phases = {"before": (begin, times["struck"]), "outage": (times["struck"], times["back"]),
              "rebuild": (times["back"], times["whole"]), "after": (times["whole"], end)}
    for phase, (since, until) in phases.items():
        # What was asked for before the rebuild began is not its work.
        most = until - since if phase == "rebuild" else math.inf
        found |= percentiles(phase, [lat for t, lat in completions if since <= t <= until and lat < most])
    return found


def percentiles(phase: str, latencies: list[float]) -> dict[str, float]:
    """In microseconds; of too few, none."""
    if len(latencies) < LATENCIES_MIN:
        return {}
    found = sorted(lat * 1e6 for lat in latencies)
    p99 = found[min(len(found) - 1, int(len(found) * 0.99))]
    return {f"{phase}_latency_p50": statistics.median(found), f"{phase}_latency_p99": p99}
