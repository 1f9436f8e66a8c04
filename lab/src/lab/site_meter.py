"""Instruments on a site's hosts: a shell loop on each that reads /proc, one connection's session, as long as a measurement lasts.

Vocabulary
    look      what one host's /proc said at one moment: of the chosen processes, of the whole host, of its network and disks
    meter     the looks of all hosts during one measurement

Looks are stamped by the host's time since its start, which nobody sets; how that stands to the clock here is what the look says that arrived
quickest. So hosts' wall clocks do not matter, nor a look that was held up; the error is the network's shortest delay.
Invariants: at most LOOKS_MAX looks of a host are kept; a host that stops answering leaves what it had said, and no figure for a time
that was not looked at. Works with what a user may read: without root there are no bytes of processes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from lab import account
from lab.process import ToolError
from lab.remote import Host, Session, each, every

STEP_S = 0.25
FIRST_LIMIT_S = 20.0
LOOKS_MAX = 50_000
SECTOR = 512

# $1 seconds between looks, $2 pids. Only what the shell can do itself, so that looking costs little; reads whole files by `mapfile`.
LOOP = r"""while :; do
    read -r s _ </proc/uptime; printf 'look %s\n' "$s"
    for p in $2; do
        if { IFS= read -r s <"/proc/$p/stat"; } 2>/dev/null; then
            printf 'stat %s\n' "$s"
            io=(); { mapfile -t io <"/proc/$p/io"; } 2>/dev/null
            [ "${#io[@]}" = 0 ] || printf "io $p %s\n" "${io[@]}"
        fi
    done
    IFS= read -r s </proc/stat; printf 'host %s\n' "$s"
    mapfile -t a </proc/net/dev; printf 'net %s\n' "${a[@]:2}"
    mapfile -t a </proc/diskstats; [ "${#a[@]}" = 0 ] || printf 'disk %s\n' "${a[@]}"
    printf 'end\n'
    sleep "$1"
done"""
NO_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
HOST_FIELDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")


@dataclass
class Look:
    """Counters since the host's or the process's start; seconds and bytes."""

    at: float  # the host's uptime, s
    cpu: dict[int, tuple[float, float]] = field(default_factory=dict)  # pid -> (user, system)
    names: dict[int, str] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    host: dict[str, float] = field(default_factory=dict)  # HOST_FIELDS
    net_in: int = 0
    net_out: int = 0
    disk_read: int = 0
    disk_written: int = 0


def parse(lines: list[str], at: float) -> Look:
    """One look of LOOP. A disk's partitions are not counted beside it."""
    look, io = Look(at), dict[int, list[str]]()
    disks: list[tuple[str, int, int]] = []
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "stat":
            pid = int(rest.partition(" ")[0])
            name, fields = rest[rest.index("(") + 1 : rest.rindex(")")], rest.rpartition(")")[2].split()
            look.cpu[pid], look.names[pid] = (int(fields[11]) / account.TICK, int(fields[12]) / account.TICK), name
        elif kind == "io":
            pid_text, _, row = rest.partition(" ")
            io.setdefault(int(pid_text), []).append(row)
        elif kind == "host":
            look.host = {k: int(v) / account.TICK for k, v in zip(HOST_FIELDS, rest.split()[1:])}
        elif kind == "net":
            name, _, counts = rest.partition(":")
            if name.strip() != "lo" and (words := counts.split()):
                look.net_in, look.net_out = look.net_in + int(words[0]), look.net_out + int(words[8])
        elif kind == "disk":
            words = rest.split()
            if len(words) >= 10 and not words[2].startswith(NO_DISKS):
                disks.append((words[2], int(words[5]), int(words[9])))
    names = {d[0] for d in disks}
    for name, read, wrote in disks:
        if not _is_partition(name, names):
            look.disk_read, look.disk_written = look.disk_read + read * SECTOR, look.disk_written + wrote * SECTOR
    look.written = {pid: account.bytes_written("\n".join(rows)) for pid, rows in io.items()}
    return look


def _is_partition(name: str, names: set[str]) -> bool:
    """sda1 of sda, nvme0n1p2 of nvme0n1."""
    stem = name.rstrip("0123456789")
    return stem != name and (stem in names or (stem.endswith("p") and stem[:-1] in names))


def blend(a: Look, b: Look, at: float) -> Look:
    """What a look in between would have said, by straight lines."""
    share = (at - a.at) / (b.at - a.at) if b.at > a.at else 1.0

    def mid(x: float, y: float) -> float:
        return x + share * (y - x)

    made = Look(at, names=b.names)
    made.cpu = {p: (mid(a.cpu[p][0], u), mid(a.cpu[p][1], s)) for p, (u, s) in b.cpu.items() if p in a.cpu}
    made.written = {p: round(mid(a.written[p], w)) for p, w in b.written.items() if p in a.written}
    made.host = {k: mid(a.host[k], v) for k, v in b.host.items() if k in a.host}
    for name in ("net_in", "net_out", "disk_read", "disk_written"):
        setattr(made, name, round(mid(getattr(a, name), getattr(b, name))))
    return made


@dataclass(frozen=True)
class HostUsed:
    """What one host did in a time."""

    seconds: float
    processes: list[dict[str, Any]]  # pid, name, role, user_s, system_s, written [B]
    values: dict[str, float]  # of HOST_METRICS in records


def used(a: Look, b: Look, servers: set[int]) -> HostUsed | None:
    """None where a process ended meanwhile, and its counters with it."""
    seconds = b.at - a.at
    if seconds <= 0 or not set(a.cpu) <= set(b.cpu):
        return None
    processes = []
    for pid, (user, system) in b.cpu.items():
        was = a.cpu.get(pid, (0.0, 0.0))
        one: dict[str, Any] = {"pid": pid, "name": b.names[pid], "role": "server" if pid in servers else "client", "user_s": user - was[0], "system_s": system - was[1]}
        if pid in b.written:
            one["written"] = max(0, b.written[pid] - a.written.get(pid, 0))
        processes.append(one)
    values = {"net_in": (b.net_in - a.net_in) / seconds, "net_out": (b.net_out - a.net_out) / seconds,
              "disk_read": (b.disk_read - a.disk_read) / seconds, "disk_written": (b.disk_written - a.disk_written) / seconds}
    spent = {k: b.host.get(k, 0.0) - a.host.get(k, 0.0) for k in HOST_FIELDS[:8]}
    if (total := sum(spent.values())) > 0:
        values["host_busy"] = 100 * (1 - (spent["idle"] + spent["iowait"]) / total)
        values["host_softirq"] = 100 * (spent["irq"] + spent["softirq"]) / total
    for role in ("server", "client"):
        if own := [p for p in processes if p["role"] == role]:
            values[f"{role}_user"] = sum(p["user_s"] for p in own) / seconds
            values[f"{role}_system"] = sum(p["system_s"] for p in own) / seconds
            if all("written" in p for p in own):
                values[f"{role}_written"] = sum(p["written"] for p in own) / seconds
    return HostUsed(seconds, processes, {k: max(0.0, v) for k, v in values.items()})


class _Watched:
    """The looks of one host, taken in by a thread."""

    def __init__(self, host: Host, servers: list[int], clients: list[int]) -> None:
        self.host, self.servers, self.looks = host, set(servers), list[Look]()
        self.behind = float("inf")  # time.monotonic here less the host's uptime
        self.first = threading.Event()
        argv = ["bash", "-c", LOOP, "meter", str(STEP_S), " ".join(map(str, dict.fromkeys([*servers, *clients])))]
        self.session: Session = host.start(argv, "meter", host.log, piped=True)
        self.thread = threading.Thread(target=self._take, daemon=True, name=f"meter {host.name}")
        self.thread.start()

    def _take(self) -> None:
        lines: list[str] = []
        at = 0.0
        for raw in self.session.process.stdout or ():
            line = raw.decode("utf-8", "replace").rstrip("\n")
            if line.startswith("look "):
                lines, arrived = [], time.monotonic()
                try:
                    at = float(line[5:])
                except ValueError:
                    continue  # cut by its end
                self.behind = min(self.behind, arrived - at)
            elif line != "end":
                lines.append(line)
            elif len(self.looks) < LOOKS_MAX:
                try:
                    self.looks.append(parse(lines, at))
                except (ValueError, IndexError):
                    continue  # cut by its end
                self.first.set()
        self.first.set()

    def close(self) -> None:
        self.session.close()
        self.thread.join(10)
        if self.session.process.stdout:
            self.session.process.stdout.close()

    def between(self, start: float, end: float) -> HostUsed | None:
        """By time.monotonic here. None where the time was not looked at, or a process ended."""
        if len(self.looks) < 2 or used(self.looks[0], self.looks[-1], self.servers) is None:
            return None
        start, end = max(start - self.behind, self.looks[0].at), min(end - self.behind, self.looks[-1].at)
        return used(self._at(start), self._at(end), self.servers) if end > start else None

    def _at(self, when: float) -> Look:
        after = next(i for i, x in enumerate(self.looks) if x.at >= when)
        return blend(self.looks[max(0, after - 1)], self.looks[after], when)


class Meter:
    """Use as a context manager around a measurement. `servers`, `clients`: by host the processes to look at."""

    def __init__(self, hosts: list[Host], servers: dict[str, list[int]], clients: dict[str, list[int]]) -> None:
        self.hosts, self.servers, self.clients = hosts, servers, clients
        self.watched: dict[str, _Watched] = {}

    def __enter__(self) -> "Meter":
        for host, made in zip(self.hosts, each(self.hosts, lambda h: _Watched(h, self.servers.get(h.name, []), self.clients.get(h.name, [])))):
            if isinstance(made, _Watched):
                self.watched[host.name] = made
        try:
            every(list(self.watched.values()), self._started)
            if gone := [h.name for h in self.hosts if h.name not in self.watched]:
                raise ToolError(f"no instruments on {', '.join(gone)}: {self.hosts[[h.name for h in self.hosts].index(gone[0])].lost or 'too many programs run there'}")
        except BaseException:
            self.__exit__()
            raise
        return self

    @staticmethod
    def _started(watched: _Watched) -> None:
        if not watched.first.wait(FIRST_LIMIT_S) or not watched.looks:
            raise ToolError(f"host {watched.host.name}: its instruments say nothing{': ' + watched.host.lost if watched.host.lost else ''}")

    def __exit__(self, *_: object) -> None:
        # One more look of each first, so that the end was looked at, too.
        seen = {name: len(w.looks) for name, w in self.watched.items()}
        deadline = time.monotonic() + 4 * STEP_S
        while time.monotonic() < deadline and any(len(w.looks) == seen[name] and not w.host.lost for name, w in self.watched.items()):
            time.sleep(0.02)
        each(list(self.watched.values()), lambda w: w.close())

    def host(self, name: str, start: float, end: float) -> HostUsed | None:
        return self.watched[name].between(start, end) if name in self.watched else None

    def servers_used(self, start: float, end: float) -> account.Used | None:
        """What the servers used on all hosts together; None where there are none, or one of them cannot say. Bytes are NaN where a user may
        not see them."""
        names = [n for n, own in self.servers.items() if own]
        found = [self.host(n, start, end) for n in names]
        if not names or any(f is None or "server_user" not in f.values for f in found):
            return None
        cores = sum(f.values["server_user"] + f.values["server_system"] for f in found if f)
        written = sum(f.values.get("server_written", float("nan")) for f in found if f)
        return account.Used(end - start, cores * (end - start), written * (end - start))
