"""How a value with its unit is written for people: 4096 B as 4 KiB, 25e6 B/s as 25.0 MB/s, 2300 us as 2.30 ms.

Three significant figures; sizes of data in powers of 1024 (KiB), rates and disks in powers of 1000 (MB/s), as
the tools of the field print them. Does not translate between units that mean different things.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab.records import FACTORS, METRICS, Factor

_DECIMAL = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
_TIMES = ((1, "s"), (1e-3, "ms"), (1e-6, "us"))
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def significant(value: float, figures: int = 3) -> str:
    """12345 -> 12,345 (whole numbers stay whole); below 100 three figures: 12.3, 1.20, 0.0123."""
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (figures - 1):
        return f"{value:,.0f}"
    digits = figures - 1
    size = abs(value)
    while size < 1 and digits < 12:
        size *= 10
        digits += 1
    while size >= 10 and digits > 0:
        size /= 10
        digits -= 1
    return f"{value:.{digits}f}"


def scale(values: Sequence[float], unit: str) -> tuple[float, str]:
    """(divisor, unit to write) that suit the largest of the values: an axis or a row shares one."""
    top = max((abs(v) for v in values), default=0.0)
    if unit in _SECONDS:
        top_s = top * _SECONDS[unit]
        for size, name in _TIMES:
            if top_s >= size:
                return size / _SECONDS[unit], name.replace("us", "µs")
        return 1e-6 / _SECONDS[unit], "µs"
    if unit == "B":
        return next(((float(s), n) for s, n in _BINARY if top >= s), (1.0, "B"))
    if unit == "B/s":
        return next(((s, f"{p}B/s") for s, p in _DECIMAL if top >= s), (1.0, "B/s"))
    if unit == "1/s":
        return (1e3, "k/s") if top >= 100_000 else (1.0, "/s")
    if unit == "1":
        return 1.0, ""
    return 1.0, unit


def written(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    divisor, name = scale([value], unit)
    return f"{significant(value / divisor)} {name}".rstrip()


def metric_title(metric: str) -> str:
    return METRICS[metric].title if metric in METRICS else metric.replace("_", " ")


def metric_name(metric: str) -> str:
    """Short: for a table's head and a sentence."""
    return _SHORT.get(metric, metric.replace("_", " "))


_SHORT = {
    "iops": "IOPS",
    "read_iops": "read IOPS",
    "write_iops": "write IOPS",
    "latency_mean": "mean latency",
    "latency_p50": "median latency",
    "latency_p99": "99th percentile of latency",
    "latency_p999": "99.9th percentile of latency",
    "latency_max": "longest latency",
    "server_cores": "processors used by servers",
    "client_cores": "processors used by clients",
    "server_cpu_per_op": "server processor time per operation",
    "server_memory": "memory of servers",
    "iops_per_client": "IOPS of a client",
    "client_iops_min": "IOPS of the slowest client",
    "client_iops_max": "IOPS of the fastest client",
    "host_iops_min": "IOPS of the slowest client host",
    "host_iops_max": "IOPS of the fastest client host",
    "iops_per_host": "IOPS of a host",
    "osd_memory": "memory of an OSD",
    "mon_memory": "memory of monitor and manager",
    "server_written": "bytes written by servers",
    "rebuild_latency_p99": "99th percentile of latency during rebuild",
    "rebuild_latency_p50": "median latency during rebuild",
    "before_latency_p99": "99th percentile of latency before the fault",
    "before_latency_p50": "median latency before the fault",
    "outage_latency_p99": "99th percentile of latency during the outage",
    "outage_latency_p50": "median latency during the outage",
    "after_latency_p99": "99th percentile of latency after the rebuild",
    "after_latency_p50": "median latency after the rebuild",
    "errors": "I/O errors",
}


def factor_value(name: str, value: Factor) -> str:
    """bs 4096 -> 4 KiB; read 30 -> 30 %; depth 8 -> 8."""
    unit = FACTORS[name].unit if name in FACTORS else ""
    if isinstance(value, (int, float)) and unit == "B":
        return written(float(value), "B") if value % 1024 else _binary_whole(int(value))
    return f"{value} {unit}".rstrip()


def _binary_whole(value: int) -> str:
    size, name = next((s, n) for s, n in _BINARY if value >= s) if value else (1, "B")
    return f"{value / size:g} {name}"


_FACTOR_NAMES = {"bs": "block", "read": "reads", "op": "", "format": "", "stripe_unit": "stripe unit", "stripe_count": "stripes", "instrument": ""}


def factor_label(name: str, value: Factor) -> str:
    """For a panel's head or a row: `block 4 KiB`, `30 % reads`, `depth 8`, `randwrite`."""
    short = _FACTOR_NAMES.get(name, name.replace("_", " "))
    text = factor_value(name, value)
    if name == "read":
        return f"{text} {short}"
    return f"{short} {text}".strip()


def case_label(case: dict[str, Factor], names: Sequence[str] | None = None) -> str:
    chosen = [n for n in (names if names is not None else case) if n in case]
    return ", ".join(factor_label(n, case[n]) for n in chosen)


def joined(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""
