"""What the servers of a back end used, apart from the clients: processor, bytes to disk, memory, out of /proc.

Invariants: figures are sums over the processes that carry the back end's role; a process that ended in between
takes its counters along, so a difference is None when a pid of the beginning is gone. Kernel work that is done for nobody's
account (a loop device's thread, write-back) is not in it, which the report says for local back ends.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Snapshot:
    at: float
    cpu_s: dict[int, float]
    written: dict[int, int]


@dataclass(frozen=True)
class Used:
    seconds: float
    cpu_s: float
    written: int

    @property
    def cores(self) -> float:
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0


def cpu_seconds(stat: str) -> float:
    """User and system time out of the text of /proc/PID/stat (the name may hold blanks and brackets)."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def bytes_written(io: str) -> int:
    """`write_bytes` less what was cancelled before it reached the disk."""
    values = dict(line.split(": ") for line in io.strip().splitlines())
    return int(values["write_bytes"]) - int(values.get("cancelled_write_bytes", 0))


def snapshot(pids: list[int]) -> Snapshot:
    cpu: dict[int, float] = {}
    written: dict[int, int] = {}
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as f:
                cpu[pid] = cpu_seconds(f.read())
            with open(f"/proc/{pid}/io") as f:
                written[pid] = bytes_written(f.read())
        except OSError:
            cpu.pop(pid, None)
    return Snapshot(time.monotonic(), cpu, written)


def used(before: Snapshot, after: Snapshot) -> Used | None:
    """The difference, or None when a process ended meanwhile."""
    if not set(before.cpu_s) <= set(after.cpu_s):
        return None
    cpu = sum(after.cpu_s.values()) - sum(before.cpu_s.values())
    written = sum(after.written.values()) - sum(before.written.values())
    return Used(after.at - before.at, cpu, max(0, written))


def memory(pids: list[int]) -> int:
    """Resident memory in bytes; what processes share is counted once, where the kernel tells."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                total += next(int(line.split()[1]) for line in f if line.startswith("Pss:")) * 1024
        except (OSError, StopIteration):
            try:
                with open(f"/proc/{pid}/statm") as f:
                    total += int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            except OSError:
                pass
    return total
