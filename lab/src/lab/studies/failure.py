"""What a client sees when a server is killed or hangs: the longest stall, the errors, then the copies being made whole.

A client writes at a fixed rate all the time. At `before` seconds the victim gets SIGKILL or SIGSTOP; after `outage`
seconds it is started again or wakes. With one copy nothing can take over, so the stall is at least the outage; with more,
it is the time until the survivors go on. A stall that lasts until the server is back says only that it is at least that long, and is
shown so (stall_censored). stall_before is the longest gap of the undisturbed time, for comparison.
Latencies are given apart for the time before the fault, while the victim is away, while it is rebuilt, and after that; each
operation counts where it completed.
"""

from __future__ import annotations

import json
import math
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

from lab import fio
from lab.backends import Backend
from lab.backends.base import hang, wake
from lab.process import ToolError, kill_group
from lab.studies.base import START_S, Case, Result, Study

POLL_S = 0.2
REACTION_S = 0.05  # what completes so soon after the fault had been answered before it
AFTER_S = 3.0
LATENCIES_MIN = 20  # of a phase; fewer have no percentiles
EINTR = 4  # what fio calls the error of a job that was asked to end


class Failure(Study):
    name = "failure"

    def cases(self, backend: Backend) -> list[Case]:
        if type(backend).victim is Backend.victim:
            return []
        return [{"fault": fault} for fault in self.config.failure.faults]

    def seconds(self, case: Case) -> float:
        s = self.config.failure
        return START_S + s.before + s.outage + AFTER_S + s.after / 2

    def prepare(self, backend: Backend, case: Case) -> None:
        self.disk(backend, "disk", self.config.failure.size)

    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]:
        s = self.config.failure
        directory = self.scratch.directory(f"failure-{backend.kind}")
        runtime = s.before + s.outage + s.after + s.recover_limit
        with self.target(backend, self.disk(backend, "disk", s.size)) as target:
            argv = fio.command([target], rw="randwrite", bs=s.bs, depth=s.depth, size=s.size, runtime=runtime, extra=[
                f"--rate_iops={s.rate}", f"--write_lat_log={directory}/log", "--log_unix_epoch=1", f"--output={directory}/out"])
            load = self.scratch.spawn(argv, "load", log=directory / "messages", env=backend.client_env())
            try:
                times = self._strike(backend, case["fault"], load)
                self._end(load, directory, times)
            finally:
                kill_group(load)
                self._restore(backend, case["fault"])
        log, output = next(directory.glob("log_clat.*.log")).read_text(), (directory / "out").read_text()
        for path in directory.iterdir():
            path.unlink()
        # With it each value comes again: when the server went and came back, and when each operation ended.
        return [Result(case, values(log, output, times), json.dumps({"times": times, "fio": output, "log": log}))]

    def _strike(self, backend: Backend, fault: str, load: subprocess.Popen) -> dict[str, float]:
        s = self.config.failure
        time.sleep(s.before + 1.0)  # fio's own start-up is not part of the undisturbed time
        if load.poll() is not None:
            raise fio.FioError(f"fio ended before the fault, with status {load.returncode}")
        self._victim = backend.victim()
        times = {"struck": time.time()}
        if fault == "kill":
            os.kill(self._victim, signal.SIGKILL)
        elif fault == "hang":
            hang(self._victim)
        else:
            raise ValueError(f"no fault {fault}")
        time.sleep(s.outage)
        times["back"] = time.time()
        if fault == "kill":
            backend.revive()
        else:
            wake(self._victim)
        deadline = time.monotonic() + s.recover_limit
        while not backend.whole():
            if time.monotonic() > deadline:
                raise ToolError(f"copies not whole {s.recover_limit:.0f} s after the server's return")
            time.sleep(POLL_S)
        times["whole"] = time.time()
        return times

    def _end(self, load: subprocess.Popen, directory: Path, times: dict[str, float]) -> None:
        """Lets I/O flow for AFTER_S once all is whole again, then ends the load; one that is stuck ends by its own limit."""
        time.sleep(AFTER_S)
        if load.poll() is None:
            load.send_signal(signal.SIGINT)
        try:
            load.wait(self.config.failure.after + self.config.failure.recover_limit)
        except subprocess.TimeoutExpired as e:
            raise ToolError("the client's I/O did not go on after the server's return") from e

    def _restore(self, backend: Backend, fault: str) -> None:
        """Whatever went wrong: the victim runs."""
        victim = getattr(self, "_victim", 0)
        if victim and fault == "hang":
            try:
                wake(victim)
            except ProcessLookupError:
                pass


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
