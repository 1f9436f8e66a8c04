"""What the servers of a back end used, apart from the clients: processor, bytes to disk, memory, out of /proc.

Invariants: figures are sums over the processes that carry the back end's role; a process that ended in between
takes its counters along, so a difference is None when a pid of the beginning is gone. Kernel work that is done for nobody's
account (a loop device's thread, write-back) is not in it, which the report says for local back ends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Snapshot:
    at: float
    cpu_s: dict[int, float]
    written: dict[int, int]


@dataclass(frozen=True)
class Used:
    seconds: float
    cpu_s: float
    written: float

    @property
    def cores(self) -> float:
        return self.cpu_s / self.seconds if self.seconds > 0 else 0.0


def cpu_seconds(stat: str) -> float:
    """User and system time out of the text of /proc/PID/stat (the name may hold blanks and brackets)."""
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


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


MODES = ("cpu_user", "cpu_system", "cpu_softirq", "cpu_guest")


def machine(stat: str) -> dict[str, float]:
    """Seconds of the whole machine by mode (MODES), out of the text of /proc/stat: guests' time, which the kernel also counts as the user's,
    is taken out of that."""
    values = [int(v) / TICK for v in stat.partition("\n")[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, _, guest, guest_nice = (values + [0.0] * 10)[:10]
    return dict(zip(MODES, (user + nice - guest - guest_nice, system, irq + softirq, guest + guest_nice)))


def machine_now() -> tuple[float, dict[str, float]]:
    """(time.monotonic, its seconds by mode)"""
    with open("/proc/stat") as f:
        return time.monotonic(), machine(f.read())


STEP_S = 0.05  # between two looks of a timeline
LOOKS_MAX = 200_000  # of one timeline; beyond that it looks no more


class Timeline:
    """Looks at processes again and again, so that what they used can be told for any part of that time: fio says only at its end
    when its ramp was over."""

    def __init__(self, pids: list[int], look: Callable[[list[int]], Snapshot] = snapshot, step: float = STEP_S) -> None:
        self.pids, self.look, self.step = pids, look, step
        self.looks = [look(pids)]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="timeline", daemon=True)

    def __enter__(self) -> "Timeline":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.looks.append(self.look(self.pids))

    def _watch(self) -> None:
        while not self._ended.wait(self.step) and len(self.looks) < LOOKS_MAX:
            self.looks.append(self.look(self.pids))

    def between(self, start: float, end: float) -> Used | None:
        """What was used from `start` to `end` (time.monotonic), by straight lines between looks; None where the time was not looked
        at or a process ended."""
        first, last = self.looks[0], self.looks[-1]
        start, end = max(start, first.at), min(end, last.at)
        if end <= start or used(first, last) is None:
            return None
        (cpu_0, written_0), (cpu_1, written_1) = self._at(start), self._at(end)
        return Used(end - start, cpu_1 - cpu_0, max(0, round(written_1 - written_0)))

    def _at(self, when: float) -> tuple[float, float]:
        after = next(i for i, x in enumerate(self.looks) if x.at >= when)
        b = self.looks[after]
        a = self.looks[max(0, after - 1)]
        share = (when - a.at) / (b.at - a.at) if b.at > a.at else 1.0
        values = [(sum(x.cpu_s.values()), sum(x.written.values())) for x in (a, b)]
        return tuple(p + share * (q - p) for p, q in zip(*values))  # type: ignore[return-value]


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
