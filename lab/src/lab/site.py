"""A site: hosts that are reached by ssh, the servers that run there, and what the lab does with both.

Vocabulary
    client    a host that generates load; a case uses the first `hosts` of them, all at once
    server    a host where a back end's servers run: programs of the names in its `processes`, and its services; what they use is measured
    service   a server program of a back end that the lab starts on a host, and ends

The file (TOML): [ssh], [[host]], [[service]], and where the storage is: [ceph], [skep] (conf, pool: as the clients have them), [mount]
(path: a directory of it that is mounted on every client). Errors name file, line and key. Formats and an example: README.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab import account, ledger
from lab.plan_toml import Document, PlanError
from lab.process import Done, Scratch, ToolError
from lab.remote import Address, Host, Session

HOSTS_MAX = 200
SERVICES_MAX = 200
ROLES = ("client", "server")
BACKENDS = ("ceph", "skep", "mount")
HOST_BITS = 24  # a remote pid's host stands above them, so that pids of several hosts are told apart
# $1: names of programs, blank between them; $2: the run's mark; $3: the role of its services. Pids, then stat and io of each.
PIDS = 'for n in $1; do pgrep -x "$n"; done; grep -lzsxF "LAB_MARK=$2" /proc/[0-9]*/environ | while IFS=/ read -r _ _ p _; do grep -qzxF "LAB_ROLE=$3" "/proc/$p/environ" && echo "$p"; done'
LOOK = 'for p in $1; do [ -r "/proc/$p/io" ] && { echo "pid $p"; cat "/proc/$p/stat" "/proc/$p/io"; }; done; true'
MEMORY = 'for p in $1; do grep -s ^Pss: "/proc/$p/smaps_rollup"; done; true'


@dataclass(frozen=True)
class SiteHost:
    at: Address
    roles: tuple[str, ...]


@dataclass(frozen=True)
class Service:
    name: str
    backend: str  # ceph, skep or mount
    host: str
    command: str
    ready: str  # text that it prints when it serves; "" where starting is enough
    limit: float


@dataclass(frozen=True)
class SiteFile:
    path: str
    hosts: tuple[SiteHost, ...]
    services: tuple[Service, ...]
    clusters: dict[str, tuple[str, str]]  # ceph, skep -> (conf, pool)
    mount: str
    processes: dict[str, tuple[str, ...]]  # back end -> names of its programs on servers
    acknowledged: str  # when the mounted storage answers a write
    directory: str  # of what the lab makes on each host

    @property
    def clients(self) -> list[SiteHost]:
        return [h for h in self.hosts if "client" in h.roles]


def read(path: Path) -> SiteFile:
    doc = Document(path)
    doc.root().done()
    ssh = doc.table("ssh", required=False)
    common: dict[str, Any] = {"user": "", "port": 0, "identity": "", "options": ()}
    directory = "/var/tmp"
    if ssh is not None:
        common = {"user": ssh.text("user", ""), "port": ssh.whole("port", 0, 65_535, 0), "identity": _identity(ssh, doc), "options": _words(ssh, "options")}
        directory = ssh.text("directory", "/var/tmp")
        if not directory.startswith("/") or directory == "/":
            raise ssh.error("directory", f"{directory!r} is no absolute path of a directory")
        ssh.done()
    hosts = _hosts(doc, common)
    services = _services(doc, {h.at.name for h in hosts if "server" in h.roles})
    clusters, processes = {}, {}
    for kind in ("ceph", "skep"):
        if (t := doc.table(kind, required=False)) is not None:
            clusters[kind], processes[kind] = (t.text("conf"), t.text("pool", "")), _processes(t)
            t.done()
    mount = acknowledged = ""
    if (t := doc.table("mount", required=False)) is not None:
        mount = t.text("path")
        if not mount.startswith("/"):
            raise t.error("path", f"{mount!r} is no absolute path")
        processes["mount"] = _processes(t)
        acknowledged = t.text("acknowledged", allowed=("flushed", "sent", "cached"))
        t.done()
    doc.done()
    made = SiteFile(doc.file, hosts, services, clusters, mount, processes, acknowledged, directory)
    if not made.clients:
        raise PlanError(f"{doc.file}:1: [[host]]: none has the role client")
    if not clusters and not mount:
        raise PlanError(f"{doc.file}:1: what is measured: one of [ceph], [skep], [mount] is needed")
    return made


def _identity(t: Any, doc: Document) -> str:
    found = t.text("identity", "")
    return str(doc.path.parent / Path(found).expanduser()) if found else ""


def _words(t: Any, key: str) -> tuple[str, ...]:
    t.taken.add(key)
    value = t.data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise t.error(key, f"{value!r} is no list of texts")
    return tuple(value)


def _processes(t: Any) -> tuple[str, ...]:
    found = _words(t, "processes")
    if bad := [p for p in found if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,15}", p)]:
        raise t.error("processes", f"{bad[0]!r} is no name as `ps -o comm` shows it, of 1 to 15 letters")
    return found


def _hosts(doc: Document, common: dict[str, Any]) -> tuple[SiteHost, ...]:
    found: list[SiteHost] = []
    for t in doc.tables("host", HOSTS_MAX):
        name = t.text("name")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", name):
            raise t.error("name", f"{name!r} is not 1 to 21 letters, digits, - and _")
        if any(h.at.name == name for h in found):
            raise t.error("name", f"{name} is there twice")
        address = t.text("address", name)
        if address.startswith("-") or not re.fullmatch(r"[A-Za-z0-9_.:%-]+", address):
            raise t.error("address", f"{address!r} is no name or address")
        roles = _words(t, "roles")
        if not roles or (bad := [r for r in roles if r not in ROLES]):
            raise t.error("roles", f"{', '.join(bad) if roles else 'none'}: there are {', '.join(ROLES)}")
        at = Address(name, address, t.text("user", common["user"]), t.whole("port", 0, 65_535, common["port"]), common["identity"], common["options"])
        found.append(SiteHost(at, roles))
        t.done()
    return tuple(found)


def _services(doc: Document, hosts: set[str]) -> tuple[Service, ...]:
    found: list[Service] = []
    for t in doc.tables("service", SERVICES_MAX):
        made = Service(t.text("name"), t.text("backend", allowed=BACKENDS), t.text("host"), t.text("command"), t.text("ready", ""), t.number("limit", 0.1, 3600, 60))
        if made.host not in hosts:
            raise t.error("host", f"no server {made.host}; there are {', '.join(sorted(hosts)) or 'none'}")
        try:
            shlex.split(made.command)
        except ValueError as e:
            raise t.error("command", str(e)) from e
        found.append(made)
        t.done()
    return tuple(found)


class SiteScratch(Scratch):
    """What back ends run as tools runs on the first client; the lab's own things (`local`) run here."""

    control: Host | None = None

    def run(self, argv: list[str], timeout: float = 60, check: bool = True, role: str = "tool", env: dict[str, str] | None = None,
            input: bytes | None = None, beat: float = 0.0) -> Done:
        if self.control is None or beat:
            return super().run(argv, timeout, check, role, env, input, beat)
        return self.control.run(argv, timeout, check, role, env)


@dataclass
class Site:
    """Connected hosts, started services."""

    file: SiteFile
    scratch: SiteScratch
    hosts: dict[str, Host] = field(default_factory=dict)
    sessions: dict[str, Session] = field(default_factory=dict)
    entries: list[ledger.HostEntry] = field(default_factory=list)

    def open(self) -> None:
        for h in self.file.hosts:
            host = Host(h.at, self.scratch)
            host.connect()
            self.hosts[h.at.name] = host
            # Before anything is made there.
            self.entries.append(ledger.note_host(self.scratch.path, self.scratch.mark, ledger.HostStay(h.at.name, h.at.ssh(), self.directory, self.scratch.mark)))
            host.run(["mkdir", "-p", self.directory])
        for service in self.file.services:
            self._start(service)
        first = self.file.clients[0].at
        if self.file.mount:
            stay = ledger.HostStay(first.name, first.ssh(), f"{self.file.mount.rstrip('/')}/lab-{self.scratch.mark}", self.scratch.mark)
            self.entries.append(ledger.note_host(self.scratch.path, self.scratch.mark, stay))
        self.scratch.control = self.hosts[first.name]

    @property
    def directory(self) -> str:
        """Of what this run makes on each host."""
        return f"{self.file.directory}/lab-{self.scratch.mark}"

    def _start(self, service: Service) -> None:
        log = self.scratch.path / f"service-{len(self.sessions)}.log"
        argv = ["sh", "-c", f"cd {shlex.quote(self.directory)} && exec {service.command}"]
        session = self.hosts[service.host].start(argv, f"server:{service.backend}", log)
        self.sessions[service.name] = session
        deadline = time.monotonic() + service.limit
        while service.ready and service.ready not in session.said():
            if session.process.poll() is not None:
                raise ToolError(f"service {service.name} on {service.host} ended with status {session.process.returncode}: {session.said()[-300:].strip()}")
            if time.monotonic() > deadline:
                raise ToolError(f"service {service.name} on {service.host} did not say {service.ready!r} within {service.limit:g} s: {session.said()[-300:].strip()}")
            time.sleep(0.05)

    def alive(self) -> str:
        for name, session in self.sessions.items():
            if session.process.poll() is not None:
                return f"service {name} ended with status {session.process.returncode}: {session.said()[-200:].strip()}"
        for name, host in self.hosts.items():
            if host.master is not None and host.master.poll() is not None:
                return f"host {name}: the connection ended"
        return ""

    def missing(self, programs: dict[str, str]) -> list[str]:
        """Programs that some client has not got."""
        script = "for p in $1; do PATH=$PATH:/usr/sbin:/sbin command -v \"$p\" >/dev/null || echo \"$p\"; done"
        found = []
        for client in self.file.clients:
            gone = self.hosts[client.at.name].run(["sh", "-c", script, "sh", " ".join(programs)]).out.split()
            found += [f"{p} is not installed on {client.at.name} (Debian: {programs[p]})" for p in gone]
        return found

    def close(self) -> list[str]:
        """What could not be put away."""
        self.scratch.control = None
        for session in self.sessions.values():
            session.close()
        left = [ledger.remove_host(entry, lambda argv, name=entry.stay.name: self.hosts[name].run(argv, timeout=120).out) for entry in self.entries]
        for host in self.hosts.values():
            if host.master is not None:
                host.master.terminate()
        return [text for text in left if text]

    def told(self) -> list[str]:
        """A sentence a host, for the report."""
        found = []
        for h in self.file.hosts:
            said = self.hosts[h.at.name].run(["sh", "-c", 'uname -sr; nproc; fio --version 2>/dev/null || echo "no fio"'], check=False).out.split("\n")
            found.append(f"Host {h.at.name} ({h.at.address}): {' and '.join(h.roles)}, {said[0]}, {(said + ['?'])[1]} processors, {(said + ['', '?'])[2]}.")
        return found

    # --- servers
    def pids(self, backend: str) -> list[int]:
        """Of the servers of a kind of back end."""
        found = []
        for n, h in enumerate(self.file.hosts):
            if "server" in h.roles:
                names = " ".join(self.file.processes.get(backend, ()))
                said = self.hosts[h.at.name].run(["sh", "-c", PIDS, "sh", names, self.scratch.mark, f"server:{backend}"], check=False).out
                found += [(n << HOST_BITS) + int(p) for p in dict.fromkeys(said.split()) if p.isdigit()]
        return found

    def look(self, pids: list[int]) -> account.Snapshot:
        cpu: dict[int, float] = {}
        written: dict[int, int] = {}
        for n, text in self._on_hosts(LOOK, pids):
            for part in text.split("pid ")[1:]:
                pid, stat, *io = part.strip().split("\n")
                key = (n << HOST_BITS) + int(pid)
                cpu[key], written[key] = account.cpu_seconds(stat), account.bytes_written("\n".join(io))
        return account.Snapshot(time.monotonic(), cpu, written)

    def memory(self, pids: list[int]) -> int:
        return sum(int(line.split()[1]) * 1024 for _, text in self._on_hosts(MEMORY, pids) for line in text.splitlines())

    def _on_hosts(self, script: str, pids: list[int]) -> Iterator[tuple[int, str]]:
        for n, h in enumerate(self.file.hosts):
            if own := [str(p & ((1 << HOST_BITS) - 1)) for p in pids if p >> HOST_BITS == n]:
                yield n, self.hosts[h.at.name].run(["sh", "-c", script, "sh", " ".join(own)], check=False).out

    # --- load
    def together(self, count: int, argv: list[list[str]], timeout: float, env: dict[str, str]) -> list[Done]:
        """Each command on its client, all at the same time."""
        chosen = [self.hosts[c.at.name] for c in self.file.clients[:count]]
        ready = threading.Barrier(len(chosen))

        def one(host: Host, words: list[str]) -> Done:
            ready.wait()
            return host.run(words, timeout, check=False, role="load", env=env)

        with ThreadPoolExecutor(len(chosen)) as pool:
            return list(pool.map(one, chosen, argv))


__all__ = ["Site", "SiteFile", "SiteScratch", "read"]
