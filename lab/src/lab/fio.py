"""fio: its command line, and its JSON turned into metrics. The version in Debian 12 is 3.33.

Invariants: a job that reported an error, ended early or moved no data is an error, never a sample of 0; latencies are
completion latencies in microseconds; figures of several jobs are merged by fio (group_reporting).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


FLUSH_EACH = "--fsync=1"


class FioError(Exception):
    """fio ran, but what it measured does not count; the message says why."""


def command(targets: Sequence[Sequence[str]], *, rw: str, bs: int, depth: int = 1, size: int | None = None, read: int | None = None,
            runtime: float | None = None, ramp: float = 0, extra: Sequence[str] = ()) -> list[str]:
    """One job for each target (what Backend.fio gives), all of one kind of work."""
    common = [f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", "--group_reporting=1", "--randrepeat=1", "--norandommap=1",
              "--output-format=json", "--eta=never", *extra]
    if read is not None:
        common.append(f"--rwmixread={read}")
    if size is not None:
        common.append(f"--size={size}")
    if runtime is not None:
        common += ["--time_based=1", f"--runtime={max(1, round(runtime * 1000))}ms"]
        if ramp:
            common.append(f"--ramp_time={round(ramp * 1000)}ms")
    argv = ["fio"]
    for n, target in enumerate(targets):
        argv += [f"--name=client{n}", *common, *target]
    return argv


def parse(text: str) -> dict[str, Any]:
    """The JSON document in fio's output, which messages may precede and follow."""
    start = text.find("\n{") + 1 if not text.startswith("{") else 0
    if start == 0 and not text.startswith("{"):
        raise FioError(f"no figures in fio's output: {text.strip()[-200:] or 'it is empty'}")
    try:
        value, _ = json.JSONDecoder().raw_decode(text[start:])
    except ValueError as e:
        raise FioError(f"fio's JSON is cut: {e}") from e
    if not isinstance(value, dict) or not value.get("jobs"):
        raise FioError("fio's JSON has no jobs")
    return value


def metrics(document: dict[str, Any]) -> dict[str, float]:
    """iops, bandwidth and latencies of a run, summed over its jobs."""
    jobs = document["jobs"]
    for job in jobs:
        if job.get("error"):
            raise FioError(f"job {job.get('jobname')} ended with error {job['error']}")
    result: dict[str, float] = {}
    reads = [job["read"] for job in jobs if job["read"]["total_ios"]]
    writes = [job["write"] for job in jobs if job["write"]["total_ios"]]
    sides = reads + writes
    if not sides:
        raise FioError("fio moved no data")
    result["iops"] = sum(s["iops"] for s in sides)
    result["bandwidth"] = float(sum(s["bw_bytes"] for s in sides))
    if reads and writes:
        result["read_iops"] = sum(s["iops"] for s in reads)
        result["write_iops"] = sum(s["iops"] for s in writes)
    result.update(_latencies(sides))
    return result


def _latencies(sides: list[dict[str, Any]]) -> dict[str, float]:
    """Of several sides: the mean weighed by operations; percentiles only of a single side, since they do not add up."""
    operations = sum(s["total_ios"] for s in sides)
    latencies = {"latency_mean": sum(s["clat_ns"]["mean"] * s["total_ios"] for s in sides) / operations / 1000,
                 "latency_max": max(s["clat_ns"]["max"] for s in sides) / 1000}
    if len(sides) == 1:
        percentiles = sides[0]["clat_ns"].get("percentile", {})
        for name, key in (("latency_p50", "50.000000"), ("latency_p99", "99.000000")):
            if key in percentiles:
                latencies[name] = percentiles[key] / 1000
    return latencies


def operations(document: dict[str, Any]) -> int:
    return sum(job[side]["total_ios"] for job in document["jobs"] for side in ("read", "write"))


def bytes_written(document: dict[str, Any]) -> int:
    return sum(job["write"]["io_bytes"] for job in document["jobs"])


def seconds(document: dict[str, Any]) -> float:
    """The longest job's measured time, without ramp."""
    return max((job[side]["runtime"] for job in document["jobs"] for side in ("read", "write")), default=0) / 1000


def window(document: dict[str, Any], wall: float, monotonic: float) -> tuple[float, float]:
    """When the figures were taken, in time.monotonic: from the ramp's end to the end, which fio's report carries by the wall's
    clock. `wall` and `monotonic` are one moment."""
    end = document.get("timestamp_ms", wall * 1000) / 1000 - wall + monotonic
    return end - seconds(document), end


def completion_times(log: str) -> list[tuple[float, float]]:
    """(second of completion, latency in seconds) out of a latency log (`write_lat_log`: `ms, ns, direction, bs, offset`)."""
    found = []
    for number, line in enumerate(log.splitlines(), 1):
        parts = line.split(",")
        try:
            found.append((int(parts[0]) / 1000, int(parts[1]) / 1e9))
        except (ValueError, IndexError) as e:
            raise FioError(f"line {number} of fio's log is not a completion: {line[:80]!r}") from e
    return found


def longest_gap(times: Sequence[float], start: float, end: float) -> float:
    """The longest time between completions within [start, end], the ends included."""
    points = [start, *sorted(t for t in times if start <= t <= end), end]
    return max(b - a for a, b in zip(points, points[1:]))
