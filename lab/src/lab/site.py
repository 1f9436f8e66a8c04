"""A site at work: connected hosts, started servers, load on several clients at once. Its file: site_file; its instruments: site_meter.

Vocabulary
    anchor    a program on each host that holds the run's directory there for as long as the lab lives: its guard puts everything away
              when the lab ends, in whatever way; `lab clean --site` takes a directory without one for left behind
    control   the client where commands such as `rbd` run: the first whose connection lives

Invariants: hosts are asked side by side, at most PARALLEL at a time; a host that vanishes makes what needs it fail within some
15 s (ssh's ServerAlive options) and holds nobody else up; what is made on a host is noted here before (ledger).
"""

from __future__ import annotations

import shlex
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from lab import ledger
from lab.config import Config
from lab.process import MARK, Done, Scratch, ToolError, last_words
from lab.remote import Host, Session, each, every
from lab.site_file import Service, SiteFile, SiteHost
from lab.site_meter import Meter
from lab.site_start import GlusterVolumes, SkepCluster

PUT_AWAY_LIMIT_S = 60.0
CLOCK_TRIES = 5
SERVICE = "LAB_SERVICE"  # in the environment of what `begin` began: its name
STRUCK = ("skep",)  # clusters of the lab's whose servers a fault may strike
GENERATORS = ("__init__.py", "files.py")  # of lab.load
DELAYED = ("matrix", "layouts")  # studies that have the delay as a factor
CLOCK_APART_S = 0.5  # from here on the report says that hosts' logs do not line up
# $1: names of programs, blank between them; $2: the run's mark; $3: the role of its services. Their pids.
PIDS = 'for n in $1; do pgrep -x "$n"; done; grep -lzsxF "LAB_MARK=$2" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do grep -qzxF "LAB_ROLE=$3" "/proc/$p/environ" && echo "$p"; done'
MEMORY = 'for p in $1; do grep -s ^Pss: "/proc/$p/smaps_rollup"; done; true'
HOLD = 'mkdir -p -- "$1" && printf "%s\\n" "$2" >"$1/held-for" && echo held && exec sleep 1000000000'
# $1, $2 what its environment has (the guard's own has not), $3 a signal. Says when; the clock is read before, so that nothing is taken for late.
SIGNAL = """pids=$(grep -lzsxF "$1" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do grep -qzsxF "$2" "/proc/$p/environ" && echo "$p"; done)
[ -n "$pids" ] || exit 1
echo "${EPOCHREALTIME:-$(date +%s.%N)}"
for p in $pids; do kill -s "$3" "$p" || [ ! -e "/proc/$p" ] || exit 1; done
"""
# Whether this kernel can delay what a device sends; tried in a network that ends with the trial.
CAN_DELAY = """PATH=$PATH:/usr/sbin:/sbin
command -v tc >/dev/null || { echo "tc is not installed (Debian: iproute2)"; exit; }
[ "$(id -u)" = 0 ] || { echo "a delay needs root"; exit; }
why=$(unshare -n sh -c 'tc qdisc add dev lo root handle 1ab0: prio bands 2 && tc qdisc add dev lo parent 1ab0:2 netem delay 1ms' 2>&1) ||
    echo "this kernel adds no delay (sch_prio, sch_netem): $(echo "$why" | head -n 1)"
"""
# $1 the run's directory there, $2 milliseconds, then servers. Only the way to those is slowed: what else uses the device passes by.
DELAY = """set -e
PATH=$PATH:/usr/sbin:/sbin dir=$1 ms=$2; shift 2
devices=
for name in "$@"; do
    a=$(getent ahosts "$name" | { read -r first _ || true; echo "$first"; }); a=${a:-$name}
    dev=$(ip -o route get "$a" | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p')
    [ -n "$dev" ] || { echo "no way to $name" >&2; exit 1; }
    [ "$dev" != lo ] || continue
    case " $devices " in *" $dev "*) ;; *)
        case $(tc qdisc show dev "$dev" root | cut -d' ' -f2,3) in
        *" 1ab0:"*) tc qdisc del dev "$dev" root ;;
        *noqueue* | *pfifo* | *fq* | *mq* | "") ;;
        *) echo "$dev has a queue of its own ($(tc qdisc show dev "$dev" root | cut -d' ' -f2)): no delay is added there" >&2; exit 1 ;;
        esac
        devices="$devices $dev"
        [ "$ms" = 0 ] || {
            printf 'PATH=$PATH:/usr/sbin:/sbin tc qdisc del dev %s root\\n' "$dev" >"$dir/undo-delay-$(printf %s "$dev" | tr -c 'a-z0-9\\n' -)"
            tc qdisc add dev "$dev" root handle 1ab0: prio bands 2 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
            tc qdisc add dev "$dev" parent 1ab0:2 handle 1ab1: netem delay "${ms}ms" limit 100000
        } ;;
    esac
    [ "$ms" = 0 ] || case $a in
    *:*) tc filter add dev "$dev" parent 1ab0: protocol ipv6 prio 2 u32 match ip6 dst "$a" flowid 1ab0:2 ;;
    *) tc filter add dev "$dev" parent 1ab0: protocol ip prio 1 u32 match ip dst "$a" flowid 1ab0:2 ;;
    esac
done
[ -n "$devices" ] || { echo "all servers are on this host" >&2; exit 1; }
"""


class SiteScratch(Scratch):
    """What back ends run as tools runs on a client (`control`); the lab's own things run here."""

    site: "Site | None" = None

    def run(self, argv: list[str], timeout: float = 60, check: bool = True, role: str = "tool", env: dict[str, str] | None = None,
            input: bytes | None = None, beat: float = 0.0) -> Done:
        if self.site is None or beat or input is not None:
            return super().run(argv, timeout, check, role, env, input, beat)
        return self.site.control.run(argv, timeout, check, role, env)


@dataclass(frozen=True)
class Clock:
    ahead: float  # s, of this machine's
    error: float


def with_delays(file: SiteFile, grids: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A delay of the site's file is a factor where a grid has none of its own."""
    return [{"delay": list(file.delays), **grid} for grid in grids] if file.delays else grids


def victim(file: SiteFile, kind: str) -> str:
    """The program of a back end's that a fault strikes; "" where the lab starts none that it may strike."""
    started = [f"{kind} on {name}" for name in file.starts[kind].hosts] if kind in STRUCK and kind in file.starts else []
    return next(iter([*started, *(s.name for s in file.services if s.backend == kind)]), "")


@dataclass(frozen=True)
class Planned:
    """A site that nobody has connected to, for estimates."""

    file: SiteFile
    no_delay: str = ""
    skep: None = None
    gluster: None = None

    def with_delays(self, grids: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return with_delays(self.file, grids)

    def victim(self, kind: str) -> str:
        return victim(self.file, kind)


@dataclass(frozen=True)
class Program:
    """One that goes on running on a host, as it was begun."""

    name: str
    host: str
    argv: tuple[str, ...]
    role: str
    ready: str
    limit: float
    after: str


@dataclass
class Site:
    """Connected hosts, started services."""

    file: SiteFile
    scratch: SiteScratch
    config: Config
    kinds: tuple[str, ...] = ()  # of the back ends that are measured: only their clusters are started
    studies: tuple[str, ...] = ("matrix",)  # that are measured
    hosts: dict[str, Host] = field(default_factory=dict)
    anchors: dict[str, Session] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    programs: dict[str, Program] = field(default_factory=dict)  # of the sessions
    begun: int = 0
    entries: list[ledger.HostEntry] = field(default_factory=list)
    clocks: dict[str, Clock] = field(default_factory=dict)
    skep: SkepCluster | None = None
    gluster: GlusterVolumes | None = None
    no_delay: str = ""  # why the way to servers cannot be slowed, where that is wanted
    delay_ms: int = 0
    sent: bool = False  # whether the load generators are on the clients

    def open(self) -> None:
        self.hosts = {h.at.name: Host(h.at, self.scratch) for h in self.file.hosts}
        every(list(self.hosts.values()), lambda h: h.connect())
        # Before anything is made there.
        for h in self.file.hosts:
            self.entries.append(self._note(h, self.directory))
        if self.file.mount:
            self.entries.append(self._note(self.file.clients[0], self.mounted))
        every(self.file.hosts, self._hold)
        if any(self.delays):
            self.no_delay = "; ".join(f"{c.at.name}: {why}" for c, why in zip(self.file.clients, every(self.file.clients, self._cannot_delay)) if why)
        self.clocks = dict(zip(self.hosts, every(list(self.hosts.values()), clock)))
        for service in self.file.services:
            self._start(service)
        if "skep" in self.file.starts and "skep" in self.kinds:
            self.skep = SkepCluster(self, self.file.starts["skep"])
            self.skep.open()
        if "gluster" in self.kinds:
            self.gluster = GlusterVolumes(self, self.file.starts.get("gluster"), self.file.volume)
            self.gluster.open()
        self.scratch.site = self

    def _note(self, h: SiteHost, directory: str) -> ledger.HostEntry:
        return ledger.note_host(self.scratch.path, self.scratch.mark, ledger.HostStay(h.at.name, h.at.ssh(), directory, self.scratch.mark))

    def _hold(self, h: SiteHost) -> None:
        """The anchor. On the first client it also puts away what the run has in mounted storage."""
        mounted = [self.mounted] if self.file.mount and h is self.file.clients[0] else []
        after = shlex.join(ledger.removal(self.scratch.mark, self.directory, *mounted))
        said = f"lab run {self.scratch.mark} of {self.file.path}, since {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())}"
        log = self.scratch.path / f"anchor-{h.at.name}.log"
        session = self.hosts[h.at.name].start(["sh", "-c", HOLD, "sh", self.directory, said], "anchor", log, after=after)
        self.anchors[h.at.name] = session
        session.wait_for("held", 30, f"host {h.at.name}: {self.directory}")

    @property
    def delays(self) -> set[int]:
        """All that the run wants, ms."""
        grids = [grid for study in DELAYED if study in self.studies for grid in self.with_delays(getattr(self.config, study).grid)]
        return {d for grid in grids for d in grid.get("delay", [])}

    def with_delays(self, grids: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return with_delays(self.file, grids)

    def _cannot_delay(self, client: SiteHost) -> str:
        return self.hosts[client.at.name].run(["sh", "-c", CAN_DELAY], check=False).out.strip()

    @property
    def directory(self) -> str:
        """Of what this run makes on each host."""
        return f"{self.file.directory}/lab-{self.scratch.mark}"

    @property
    def mounted(self) -> str:
        """The same in storage that is mounted on the clients."""
        return f"{self.file.mount.rstrip('/')}/lab-{self.scratch.mark}"

    @property
    def generators(self) -> str:
        """Where the lab's own load generators are on clients (`send_generators`), for PYTHONPATH."""
        return f"{self.directory}/generators"

    def send_generators(self) -> None:
        """Python files of the lab that need nothing but Python itself, to every client, once."""
        if self.sent:
            return
        if lacks := self.missing({"python3": "python3"}):
            raise ToolError(f"the lab's load generators need Python: {'; '.join(lacks)}")
        files = {name: resources.files("lab.load").joinpath(name).read_bytes() for name in GENERATORS}

        def one(client: SiteHost) -> None:
            host = self.hosts[client.at.name]
            host.run(["mkdir", "-p", f"{self.generators}/lab/load"])
            for name, data in files.items():
                host.put(f"{self.generators}/lab/load/{name}", data, "644")

        every(self.file.clients, one)
        self.sent = True

    @property
    def control(self) -> Host:
        living = [self.hosts[c.at.name] for c in self.file.clients if not self.hosts[c.at.name].lost]
        return living[0] if living else self.hosts[self.file.clients[0].at.name]

    def begin(self, name: str, host: str, argv: list[str], role: str, ready: str, limit: float, after: str = "") -> Session:
        """A program that goes on running on a host."""
        self.programs[name] = program = Program(name, host, tuple(argv), role, ready, limit, after)
        return self._begin(program)

    def _begin(self, program: Program) -> Session:
        self.begun += 1
        log = self.scratch.path / f"service-{self.begun}.log"
        self.sessions[program.name] = session = self.hosts[program.host].start(list(program.argv), program.role, log, env={SERVICE: program.name}, after=program.after)
        if program.ready:
            session.wait_for(program.ready, program.limit, f"service {program.name} on {program.host}")
        return session

    def begin_again(self, name: str) -> None:
        """One that has ended, or ends now, as it was begun."""
        self.sessions[name].close()
        self._begin(self.programs[name])

    def finish(self, name: str) -> None:
        """One that is not needed any more."""
        self.sessions.pop(name).close()
        self.programs.pop(name)

    def signal(self, name: str, which: str) -> float:
        """To the program and what it started; when that was, by time.time() of this machine."""
        program, asked = self.programs[name], time.time()
        done = self.hosts[program.host].run(["bash", "-c", SIGNAL, "signal", f"{SERVICE}={name}", f"{MARK}={self.scratch.mark}", which], check=False)
        answered = time.time()
        if done.status != 0:
            raise ToolError(f"{name} on {program.host}: no signal {which} reached it: {last_words(done.err) or 'it does not run there'}")
        return min(max(float(done.out.replace(",", ".")) - self.clocks[program.host].ahead, asked), answered)

    def victim(self, kind: str) -> str:
        return victim(self.file, kind)

    def _start(self, service: Service) -> None:
        argv = ["sh", "-c", f"cd {shlex.quote(self.directory)} && exec {service.command}"]
        self.begin(service.name, service.host, argv, f"server:{service.backend}", service.ready, service.limit)

    def alive(self) -> str:
        for name, host in self.hosts.items():
            if host.lost:
                return f"host {name} ({host.at.address}): {host.lost}"
        for name, session in self.sessions.items():
            if session.process.poll() is not None:
                return f"service {name} ended with status {session.process.returncode}: {session.said()[-200:].strip()}"
        return ""

    def missing(self, programs: dict[str, str]) -> list[str]:
        """Programs that some client has not got."""
        script = "for p in $1; do PATH=$PATH:/usr/sbin:/sbin command -v \"$p\" >/dev/null || echo \"$p\"; done"

        def gone(client: SiteHost) -> list[str]:
            said = self.hosts[client.at.name].run(["sh", "-c", script, "sh", " ".join(programs)]).out.split()
            return [f"{p} is not installed on {client.at.name} (Debian: {programs[p]})" for p in said]

        return [text for part in every(self.file.clients, gone) for text in part]

    def close(self) -> list[str]:
        """What could not be put away. Where a host's connection ended it is tried once more."""
        self.scratch.site = None
        if self.delay_ms:
            each(self.file.clients, lambda c: self._delay(c, 0))
        for part in (self.gluster, self.skep):
            if part is not None:
                part.close()
        each(list(reversed(self.sessions.values())), lambda s: s.close())
        each(list(self.anchors.values()), lambda s: s.close(PUT_AWAY_LIMIT_S))
        each([h for h in self.hosts.values() if h.lost], lambda h: h.again())
        left = each(self.entries, lambda e: ledger.remove_host(e, lambda argv: self.hosts[e.stay.name].run(argv, timeout=120, role=ledger.PUTS_AWAY).out))
        for host in self.hosts.values():
            if host.master is not None:
                host.master.terminate()
        return [str(text) for text in left if text]

    def told(self) -> list[str]:
        """A sentence a host, for the report; and what of their clocks it should say."""

        def one(h: SiteHost) -> str:
            said = self.hosts[h.at.name].run(["sh", "-c", 'uname -sr; nproc; fio --version 2>/dev/null || echo "no fio"'], check=False).out.split("\n")
            c = self.clocks[h.at.name]
            return (f"Host {h.at.name} ({h.at.address}): {' and '.join(h.roles)}, {said[0]}, {(said + ['?'])[1]} processors, {(said + ['', '?'])[2]}; "
                    f"its clock is {c.ahead:+.3f} s from this machine's (known to {c.error:.3f} s).")

        found = [text if isinstance(text, str) else str(text) for text in each(self.file.hosts, one)]
        for name, c in self.clocks.items():
            if abs(c.ahead) - c.error > CLOCK_APART_S:
                found.append(f"The clock of {name} is {abs(c.ahead):.1f} s {'ahead of' if c.ahead > 0 else 'behind'} this machine's: figures do not depend on it, logs of the hosts do not "
                             "line up, and Ceph's monitors want clocks within 0.05 s.")
        return found

    # --- what is measured on hosts
    def server_pids(self, backend: str) -> dict[str, list[int]]:
        """Of the servers of a kind of back end, on each server."""
        names = list(self.file.processes.get(backend, ()))
        return {h.at.name: found for h, found in zip(self.file.servers, every(self.file.servers, lambda h: self._pids(h, names, f"server:{backend}")))}

    def client_pids(self, backend: str, count: int) -> dict[str, list[int]]:
        """Of the client's programs beside the load (FUSE mounts), on the first clients."""
        chosen = self.file.clients[:count]
        found = every(chosen, lambda h: self._pids(h, list(self.file.client_processes.get(backend, ())), f"client:{backend}"))
        return {h.at.name: pids for h, pids in zip(chosen, found)}

    def _pids(self, h: SiteHost, names: list[str], role: str) -> list[int]:
        said = self.hosts[h.at.name].run(["sh", "-c", PIDS, "sh", " ".join(names), self.scratch.mark, role], check=False).out
        return [int(p) for p in dict.fromkeys(said.split()) if p.isdigit()]

    def memory(self, pids: dict[str, list[int]]) -> dict[str, int]:
        """Bytes by host; what processes share is counted once."""

        def of(name: str) -> int:
            said = self.hosts[name].run(["sh", "-c", MEMORY, "sh", " ".join(map(str, pids[name]))], check=False).out
            return sum(int(line.split()[1]) * 1024 for line in said.splitlines())

        names = [n for n, own in pids.items() if own]
        return dict(zip(names, every(names, of)))

    def meter(self, backend: str, count: int) -> Meter:
        """On all servers and the first clients."""
        clients = [c.at.name for c in self.file.clients[:count]]
        hosts = [self.hosts[h.at.name] for h in self.file.hosts if "server" in h.roles or h.at.name in clients]
        return Meter(hosts, self.server_pids(backend), self.client_pids(backend, count))

    # --- load
    def slow(self, ms: int) -> None:
        """From now on the way from every client to the servers takes so much longer; the way back is as it was."""
        if ms != self.delay_ms:
            self.delay_ms = ms or self.delay_ms  # before: a half-made one is taken back, too
            every(self.file.clients, lambda c: self._delay(c, ms))
            self.delay_ms = ms

    def _delay(self, client: SiteHost, ms: int) -> None:
        servers = [h.storage for h in self.file.servers]
        self.hosts[client.at.name].run(["sh", "-c", DELAY, "sh", self.directory, str(ms), *servers], timeout=60)

    def together(self, count: int, argv: list[list[str]], timeout: float, env: dict[str, str]) -> list[Done]:
        """Each command on its client, all at the same time."""
        chosen = [self.hosts[c.at.name] for c in self.file.clients[:count]]
        ready = threading.Barrier(len(chosen))

        def one(host: Host, words: list[str]) -> Done | ToolError:
            ready.wait()
            try:
                return host.run(words, timeout, check=False, role="load", env=env)
            except ToolError as e:
                return e

        with ThreadPoolExecutor(len(chosen)) as pool:
            found = list(pool.map(one, chosen, argv))
        if errors := [str(d) for d in found if isinstance(d, ToolError)]:
            raise ToolError("; ".join(errors))
        return found  # type: ignore[return-value]


def clock(host: Host) -> Clock:
    """By the quickest of a few questions over one session: its answer was given in between."""
    best = Clock(0.0, float("inf"))
    with host.talk(["bash", "-c", 'while read -r _; do echo "${EPOCHREALTIME:-$(date +%s.%N)}"; done']) as ask:
        for _ in range(CLOCK_TRIES):
            asked = time.time()
            said = ask(30.0)
            answered = time.time()
            try:
                there = float(said.replace(",", "."))
            except ValueError as e:
                raise ToolError(f"host {host.name}: its clock says {last_words(said)!r}") from e
            if (answered - asked) / 2 < best.error:
                best = Clock(there - (asked + answered) / 2, (answered - asked) / 2)
    return best


__all__ = ["DELAYED", "Clock", "Planned", "Site", "SiteScratch", "clock"]
