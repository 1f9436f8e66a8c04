"""What a study is to the runner, and what the studies share: accounting around a measurement, disks, a client path.

Contract
    - `cases(backend)` is the same list at each call; a back end that has none is not part of the study
    - `measure` leaves nothing behind that the next measurement would feel, also when it raises
    - a result's case contains the case that was asked for; a measurement may give several results
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import account, fio, load
from lab.backends import Backend, Context, Disk, Unsupported
from lab.guest import GuestMaker
from lab.qsd import Export
from lab.records import STUDIES, Curves, StudyInfo
from lab.site_load import by_host, parse_load, parse_own, summed
from lab.site_meter import Meter

Case = dict[str, Any]
FIO_GRACE_S = 60.0
START_S = 1.5  # fio's or a tool's own start and end
TOGETHER_S = 1.0  # from the order to the begin of loads on several hosts
BOOT_S = 6.0  # a guest until it reports, emulated
GUESSED_RATE = 100e6  # B/s, where a size is written whole
GUESSED_IOPS = 1500.0  # 4 KiB, one at a time
FILL_LIMIT_S = 900.0
# Around a load on a site: its output, then a line with a word of its own, the processor time of it (user, system, in ticks) and when it
# began and ended by the host's uptime, then fio's log.
TIMED = r"""log=$1; shift; read -r begun _ </proc/uptime; "$@"; status=$?; read -r ended _ </proc/uptime
IFS= read -r s </proc/$$/stat; set -- ${s##*)}
printf '\n%s %s %s %s %s\n' "$log" "${14}" "${15}" "$begun" "$ended"
cat "${log}_iops.log" 2>/dev/null; rm -f "${log}_iops.log"; exit $status"""


@dataclass
class Result:
    case: Case
    values: dict[str, float]
    raw: str = ""  # the tool's own output, kept beside the samples
    curves: Curves | None = None  # how it went inside
    hosts: dict[str, dict[str, float]] | None = None  # of a site: host -> HOST_METRICS


@dataclass
class Accounting:
    """Filled when the block of `accounted` ends."""

    values: dict[str, float] = field(default_factory=dict)
    server_cpu_s: float | None = None
    server_written: int | None = None
    servers: account.Timeline | None = None


class Study(ABC):
    name = ""
    needs = "disks"  # of Backend.serves
    over_site = False  # whether its load can run on a site's clients

    def __init__(self, context: Context, guests: GuestMaker) -> None:
        self.context, self.guests = context, guests
        self.config, self.scratch = context.config, context.scratch
        self._ready: set[tuple[str, str]] = set()
        self._disks: dict[str, list[Disk]] = {}

    @property
    def info(self) -> StudyInfo:
        return STUDIES[self.name]

    def cases_of(self, backend: Backend) -> list[Case]:
        """None where the back end has not what the study needs."""
        return self.cases(backend) if self.needs in backend.serves else []

    @abstractmethod
    def cases(self, backend: Backend) -> list[Case]: ...

    def prepare(self, backend: Backend, case: Case) -> None:
        """Untimed; before the first measurement of each case on each back end."""

    @abstractmethod
    def measure(self, backend: Backend, case: Case, round: int) -> list[Result]: ...

    def seconds(self, case: Case) -> float:
        """A guess of how long one measurement takes, for estimates."""
        settings = getattr(self.config, self.name)
        return START_S + getattr(settings, "runtime", 0.0) + getattr(settings, "ramp", 0.0)

    def missing(self) -> list[str]:
        """What keeps the whole study from running here."""
        return []

    def finish(self, backend: Backend) -> list[str]:
        """Removes what `prepare` made; what could not be removed, with the reason (the sweep takes it with the servers)."""
        problems = []
        for disk in self._disks.pop(backend.name, []):
            try:
                backend.remove(disk)
            except Exception as e:
                problems.append(f"{disk.name} stays: {e}")
        self._ready = {r for r in self._ready if r[0] != backend.name}
        return problems

    # --- shared
    @contextlib.contextmanager
    def accounted(self, backend: Backend) -> Iterator[Accounting]:
        """Processor, bytes and memory of the servers, and the other back ends' processor, during the block."""
        found = Accounting()
        pids = backend.server_pids()
        others = [p for s in self.context.services.values() if s is not backend.service for p in s.pids()]
        clients = backend.client_pids()
        before, modes = account.machine_now()
        before_others, before_clients = account.snapshot(others), account.snapshot(clients)
        with account.Timeline(pids) as found.servers:
            yield found
        after, now = account.machine_now()
        found.values |= {mode: (now[mode] - modes[mode]) / max(after - before, 1e-9) for mode in now}
        used = account.used(found.servers.looks[0], found.servers.looks[-1])
        if pids and used:
            found.server_cpu_s, found.server_written = used.cpu_s, used.written
            found.values |= {"server_cores": used.cores, "server_memory": float(account.memory(pids)), "server_written": float(used.written), **backend.memory_parts()}
        used_others = account.used(before_others, account.snapshot(others))
        if used_others:
            found.values["other_cores"] = used_others.cores
        used_clients = account.used(before_clients, account.snapshot(clients))
        if used_clients:
            found.values["client_cores"] = used_clients.cores

    def site_result(self, backend: Backend, case: Case, argv: list[list[str]], seconds: float) -> Result:
        """One fio on each of the site's first clients, all at once: sums, percentiles of all operations together, what the slowest and the
        fastest host did, and what each host did."""
        site = self.context.site
        log = f"{site.directory}/course-{secrets.token_hex(4)}"
        commands = [["bash", "-c", TIMED, "load", log, *fio.logged(words, log, seconds)] for words in argv]
        with site.meter(backend.kind, len(argv)) as meter:
            begun = time.monotonic()
            done = site.together(len(argv), commands, seconds + FIO_GRACE_S, backend.client_env())
            ended = time.monotonic()
        names = [c.at.name for c in site.file.clients[: len(argv)]]
        loads = []
        for name, d in zip(names, done):
            if d.status != 0:
                raise fio.FioError(f"fio on {name} ended with status {d.status}: {(d.err or d.out).strip()[-300:]}")
            loads.append(parse_load(name, d.out, log))
        whole = {"jobs": [job for load in loads for job in load.document["jobs"]]}
        # From the last ramp's end to the first one's end all of them counted.
        spans = [load.window(site.clocks[load.name], begun, ended) for load in loads]
        start, end = max(s for s, _ in spans), min(e for _, e in spans)
        values = fio.metrics(whole) | summed(loads)
        hosts, processes = by_host(loads, meter, start, end)
        rate = sum(load.operations for load in loads) / max(fio.seconds(whole), 1e-9)
        values |= self._hosts_used(loads, hosts, meter, start, end, rate)
        if counted := meter.servers_used(start, end):
            if written := fio.bytes_written(whole):
                values["write_amplification"] = counted.written / counted.seconds / (written / fio.seconds(whole))
        raw = json.dumps({"fio": {load.name: load.output for load in loads}, "hosts": hosts, "processes": processes})
        finite = {k: v for k, v in values.items() if math.isfinite(v)}
        return Result(case, finite, raw, fio.curves(whole, "\n".join(load.course for load in loads), seconds), hosts)

    def _hosts_used(self, loads: Sequence[Any], hosts: dict[str, dict[str, float]], meter: Meter, start: float, end: float, rate: float) -> dict[str, float]:
        """Of all clients and all servers together; each server's memory goes into `hosts`. `rate`: operations per second."""
        values = {"client_cores": sum(hosts[one.name]["client_user"] + hosts[one.name]["client_system"] for one in loads)}
        memory = self.context.site.memory(meter.servers)
        for name, size in memory.items():
            hosts.setdefault(name, {})["server_memory"] = float(size)
        if counted := meter.servers_used(start, end):
            values |= {"server_cores": counted.cores, "server_memory": float(sum(memory.values())), "server_written": counted.written}
            values["server_cpu_per_op"] = counted.cores / rate * 1e6
        return values

    def site_generator(self, backend: Backend, program: str, specs: list[dict[str, Any]], limit: float) -> tuple[Result, list[load.Load]]:
        """One of the lab's own generators on each of the site's first clients, all at once, as `site_result` is for fio; and what each did."""
        site, word = self.context.site, f"word-{secrets.token_hex(4)}"
        with site.meter(backend.kind, len(specs)) as meter:
            begun, start = time.monotonic(), time.time() + TOGETHER_S
            # What a host does may be done within milliseconds: all begin at one time, each by its own clock.
            timed = [{**spec, "start": start + site.clocks[client.at.name].ahead} for client, spec in zip(site.file.clients, specs)]
            commands = [["bash", "-c", TIMED, "load", word, "python3", "-m", f"lab.load.{program}", json.dumps(spec)] for spec in timed]
            done = site.together(len(specs), commands, limit, {**backend.client_env(), "PYTHONPATH": site.generators, "PYTHONDONTWRITEBYTECODE": "1"})
            ended = time.monotonic()
        loads = []
        for client, d in zip(site.file.clients, done):
            if d.status != 0:
                raise fio.FioError(f"{program} on {client.at.name} ended with status {d.status}: {(d.err or d.out).strip()[-300:]}")
            loads.append(parse_own(client.at.name, program, d.out, word))
        # The work is a number of files, not a time: what servers used from the first begin to the last end is of all of it.
        spans = [one.window(site.clocks[one.name], begun, ended) for one in loads]
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        hosts, processes = by_host(loads, meter, start, end, program)
        bins: Counter[float] = Counter()
        for one in loads:
            bins.update(one.bins)
        used = self._hosts_used(loads, hosts, meter, start, end, sum(one.found.operations for one in loads) / max(end - start, 1e-9))
        values = {"iops": sum(one.values["iops"] for one in loads), **fio.latencies_of(bins), **summed(loads), **used}
        raw = json.dumps({"load": {one.name: one.output for one in loads}, "hosts": hosts, "processes": processes})
        finite = {k: v for k, v in values.items() if math.isfinite(v)}
        return Result({}, finite, raw, Curves({"read": fio.coarser(bins)}, 1.0, []), hosts), [one.found for one in loads]

    def fio_result(self, backend: Backend, case: Case, argv: list[str], seconds: float, expected: float = 0.0) -> Result:
        """Runs fio under accounting: all metrics that come of it, its output, and how it went inside. `seconds`: at most so long;
        `expected`: about so long, where that is less."""
        log = self.scratch.path / f"course-{secrets.token_hex(4)}"
        written = Path(f"{log}_iops.log")
        try:
            values, raw = self.run_fio(backend, fio.logged(argv, str(log), expected or seconds), seconds)
            course = written.read_text() if written.exists() else ""
        finally:
            written.unlink(missing_ok=True)
        return Result(case, values, raw, fio.curves(fio.parse(raw), course, expected or seconds))

    def run_fio(self, backend: Backend, argv: list[str], seconds: float) -> tuple[dict[str, float], str]:
        """Runs fio under accounting; all metrics that come of it, and its output."""
        with self.accounted(backend) as accounting:
            done = self.scratch.run(argv, timeout=seconds + FIO_GRACE_S, check=False, role="load", env=backend.client_env())
        if done.status != 0:
            raise fio.FioError(f"fio ended with status {done.status}: {(done.err or done.out).strip()[-300:]}")
        document = fio.parse(done.out)
        values = fio.metrics(document) | accounting.values
        if fio.FLUSH_EACH in argv and fio.bytes_written(document):
            # fio times the flush apart from the write that waits for it.
            values = {k: v for k, v in values.items() if not k.startswith("latency_")}
        values["client_cores"] = values.get("client_cores", 0.0) + done.cpu_s / done.seconds
        operations, written = fio.operations(document), fio.bytes_written(document)
        # Only what the servers used while fio counted: its start, the connection and the ramp are no part of an operation.
        counted = accounting.servers.between(*fio.window(document, time.time(), time.monotonic())) if accounting.server_cpu_s is not None else None
        if counted and operations:
            values["server_cpu_per_op"] = counted.cpu_s / operations * 1e6
        if counted and written:
            values["write_amplification"] = counted.written / written
        return {k: v for k, v in values.items() if math.isfinite(v)}, done.out

    def generator(self, program: str, spec: dict[str, Any]) -> list[str]:
        """The command of one of the lab's own load generators."""
        return [sys.executable, "-m", f"lab.load.{program}", json.dumps(spec)]

    def loaded(self, backend: Backend, program: str, spec: dict[str, Any], limit: float) -> tuple[dict[str, float], str, load.Load]:
        """Runs one under accounting: its metrics, its output, and what it says it did; `window_written`: what the servers wrote meanwhile."""
        with self.accounted(backend) as accounting:
            done = self.scratch.run(self.generator(program, spec), timeout=limit, role="load", env=backend.client_env())
        found = load.parse(done.out)
        if not found.operations:
            raise fio.FioError(f"{spec['op']}: no operation was done")
        bins = {float(us): n for us, n in found.bins.items()}
        values = {**accounting.values, "iops": found.operations / found.seconds, **fio.latencies_of(bins)}
        values["client_cores"] = values.get("client_cores", 0.0) + done.cpu_s / done.seconds
        shift = time.monotonic() - time.time()
        counted = accounting.servers.between(found.began_ms / 1000 + shift, found.ended_ms / 1000 + shift) if accounting.server_cpu_s is not None else None
        if counted:
            values |= {"server_cpu_per_op": counted.cpu_s / found.operations * 1e6, "server_cores": counted.cores, "window_written": float(counted.written)}
        return {k: v for k, v in values.items() if math.isfinite(v)}, done.out, found

    @staticmethod
    def curves_of(found: load.Load, side: str) -> Curves:
        return Curves({side: fio.coarser({float(us): n for us, n in found.bins.items()})}, 1.0, [])

    def disk(self, backend: Backend, name: str, size: int, format: str | None = None, fill: bool = True, **layout: int) -> Disk:
        """A disk that lasts until `finish`; made and filled at the first call."""
        disk = Disk(f"{self.name}-{name}", size, format or ("rbd" if "rbd" in backend.formats else "raw"), **layout)
        if disk not in self._disks.get(backend.name, []):
            backend.create(disk)
            self._disks.setdefault(backend.name, []).append(disk)
            if fill:
                self.fill(backend, disk)
        return disk

    def fill(self, backend: Backend, disk: Disk) -> None:
        with self.target(backend, disk) as target:
            argv = fio.command([target], rw="write", bs=1 << 20, depth=4, size=disk.size, extra=["--refill_buffers=1"])
            self.scratch.run(argv, timeout=FILL_LIMIT_S, env=backend.client_env())

    @contextlib.contextmanager
    def target(self, backend: Backend, disk: Disk) -> Iterator[list[str]]:
        """fio's way to the disk: the back end's own client where fio has it, else QEMU's block layer."""
        durable = backend.durable_fio if self.config.run.durable else ()
        try:
            direct = backend.fio(disk)
        except Unsupported:
            with Export(backend, disk) as export:
                yield [*export.fio(), *([fio.FLUSH_EACH] if durable else [])]
            return
        yield [*direct, *durable]
