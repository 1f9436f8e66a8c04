"""fio: its command line, and its JSON turned into metrics. The version in Debian 12 is 3.33.

Invariants: a job that reported an error, ended early or moved no data is an error, never a sample of 0; latencies are
completion latencies in microseconds; figures of several jobs are merged, by fio (group_reporting) or here; a percentile is given only
where TAIL_MIN operations lie beyond it (the 99.9th: 10,000 operations in all).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from lab.records import Curves


FLUSH_EACH = "--fsync=1"
TAIL_MIN = 10  # operations beyond the 99.9th percentile; fewer say nothing of it
SERIES_POINTS = 100  # of one measurement's course, at most about so many
SERIES_STEP_MS = 100  # its finest step
BINS_PER_OCTAVE = 8  # of a distribution that is kept: 9 % apart


class FioError(Exception):
    """fio ran, but what it measured does not count; the message says why."""


def command(targets: Sequence[Sequence[str]], *, rw: str, bs: int, depth: int = 1, size: int | None = None, read: int | None = None,
            runtime: float | None = None, ramp: float = 0, extra: Sequence[str] = (), apart: bool = False) -> list[str]:
    """One job for each target (what Backend.fio gives), all of one kind of work; `apart`: each is reported by itself."""
    common = [f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}", *([] if apart else ["--group_reporting=1"]), "--randrepeat=1", "--norandommap=1",
              "--output-format=json+", "--eta=never", *extra]
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
    """Of several sides: the mean weighed by operations. Percentiles do not add up, but fio's bins do (`json+`), so that a mix has
    percentiles where there are bins."""
    operations = sum(s["total_ios"] for s in sides)
    latencies = {"latency_mean": sum(s["clat_ns"]["mean"] * s["total_ios"] for s in sides) / operations / 1000,
                 "latency_max": max(s["clat_ns"]["max"] for s in sides) / 1000}
    if len(sides) == 1:
        given = {float(k): v / 1000 for k, v in sides[0]["clat_ns"].get("percentile", {}).items()}
    else:
        together = merged_bins(sides)
        given = {p: v for p in (50.0, 99.0, 99.9) if (v := percentile(together, p)) is not None}
    for name, p in (("latency_p50", 50.0), ("latency_p99", 99.0), ("latency_p999", 99.9)):
        if p in given and (p < 99.9 or operations * (1 - p / 100) >= TAIL_MIN - 1e-6):
            latencies[name] = given[p]
    return latencies


def latencies_of(bins: dict[float, int]) -> dict[str, float]:
    """The same metrics out of bins alone (microseconds -> operations)."""
    operations = sum(bins.values())
    found = {"latency_mean": sum(us * n for us, n in bins.items()) / operations, "latency_max": max(bins)}
    for name, p in (("latency_p50", 50.0), ("latency_p99", 99.0), ("latency_p999", 99.9)):
        if (p < 99.9 or operations * (1 - p / 100) >= TAIL_MIN - 1e-6) and (v := percentile(bins, p)) is not None:
            found[name] = v
    return found


def merged_bins(sides: list[dict[str, Any]]) -> dict[float, int]:
    """Microseconds -> operations, of all sides together; empty where one of them has no bins."""
    together: Counter[float] = Counter()
    for side in sides:
        bins = side["clat_ns"].get("bins")
        if not bins:
            return {}
        for ns, count in bins.items():
            together[int(ns) / 1000] += count
    return dict(together)


def percentile(bins: dict[float, int], p: float) -> float | None:
    """The latency at or below which p percent of the operations were done."""
    wanted, seen = p / 100 * sum(bins.values()), 0
    for us in sorted(bins):
        seen += bins[us]
        if seen >= wanted - 1e-9:
            return us
    return None


# --- what is kept beside the figures: distribution and course


def logged(argv: Sequence[str], prefix: str, runtime: float) -> list[str]:
    """The same work, which also writes how many operations it did in each step of its time to `PREFIX_iops.log`.
    `runtime`: how long it is expected to take, in seconds."""
    step = series_step(runtime)
    more = [f"--write_iops_log={prefix}", "--per_job_logs=0", f"--log_avg_msec={step}"]
    found: list[str] = []
    for word in argv:
        found += [word, *more] if word.startswith("--name=") else [word]
    return found


def series_step(runtime: float) -> int:
    """Milliseconds."""
    return max(SERIES_STEP_MS, round(runtime * 1000 / SERIES_POINTS))


def curves(document: dict[str, Any], log: str, runtime: float) -> Curves:
    """Distribution of latency by side, in coarser bins, and operations per second over the time; `runtime`: as for `logged`."""
    distribution = {}
    for side in ("read", "write"):
        if bins := merged_bins([job[side] for job in document["jobs"] if job[side]["total_ios"]]):
            distribution[side] = coarser(bins)
    step, rates = series_step(runtime), course(log, series_step(runtime))
    join = -(-len(rates) // (4 * SERIES_POINTS))  # work that took longer than was expected
    if join > 1:
        rates = [sum(rates[n : n + join]) / join for n in range(0, len(rates) - join + 1, join)]
    return Curves(distribution, step * max(1, join) / 1000, rates)


def coarser(bins: dict[float, int]) -> list[tuple[float, int]]:
    """(upper end in us, operations), BINS_PER_OCTAVE of them for a doubling."""
    joined: dict[int, tuple[float, int]] = {}
    for us, count in sorted(bins.items()):
        ns = max(1, int(us * 1000))
        octave = ns.bit_length() - 1
        place = octave * BINS_PER_OCTAVE + (ns * BINS_PER_OCTAVE >> octave)
        joined[place] = (us, joined.get(place, (0.0, 0))[1] + count)
    return list(joined.values())


def course(log: str, step_ms: int) -> list[float]:
    """Operations per second in each whole step, all jobs and directions together, out of fio's log of IOPS: a line is the rate since
    the line before it of the same job and direction, and jobs follow one another."""
    spans: list[tuple[int, int, int]] = []
    last: dict[str, int] = {}
    for number, line in enumerate(log.splitlines(), 1):
        if not line.strip():  # of a host whose fio had no time for a line
            continue
        parts = [p.strip() for p in line.split(",")]
        try:
            at, rate, direction = int(parts[0]), int(parts[1]), parts[2]
        except (ValueError, IndexError) as e:
            raise FioError(f"line {number} of fio's log is no rate: {line[:80]!r}") from e
        begin = last.get(direction, 0)
        spans.append((begin if begin < at else 0, at, rate))
        last[direction] = at
    steps = max((end for _, end, _ in spans), default=0) // step_ms
    done = [0.0] * steps
    for begin, end, rate in spans:
        for n in range(begin // step_ms, min(steps, -(-end // step_ms))):
            done[n] += rate * max(0, min(end, (n + 1) * step_ms) - max(begin, n * step_ms)) / 1000
    return [d * 1000 / step_ms for d in done]


def rates(document: dict[str, Any]) -> list[float]:
    """Operations per second of each job."""
    return [job["read"]["iops"] + job["write"]["iops"] for job in document["jobs"]]


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
        if not line.strip():  # of a host whose fio had no time for a line
            continue
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
