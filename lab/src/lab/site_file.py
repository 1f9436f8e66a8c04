"""A site's file (TOML): hosts that are reached by ssh, the servers that run there, and where the storage is.

Vocabulary
    client    a host that generates load; a case uses the first `hosts` of them, all at once
    server    a host where a back end's servers run: programs of the names in its `processes`, and its services; what they use is measured
    service   a server program of a back end that the lab starts on a host, and ends
    start     a whole cluster (Skep, GlusterFS) that the lab starts over hosts, and ends

Tables: [ssh], [[host]], [[service]], [delay], and the storage: [ceph], [skep] (conf, pool: as the clients have them; or hosts, where the
lab starts it), [gluster] (hosts, or volume), [mount] (path: a directory of it that is mounted on every client). Errors name file, line
and key. Reads the file and nothing else. Formats and an example: README.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.plan_toml import Document, PlanError
from lab.remote import SESSIONS_MAX, Address

HOSTS_MAX = 200
SERVICES_MAX = 200
SERVICES_OF_HOST_MAX = SESSIONS_MAX - 4  # beside them on one connection: what holds the host, the instruments, two commands
DELAYS_MAX = 20
ROLES = ("client", "server")
BACKENDS = ("ceph", "skep", "gluster", "mount")
STARTED = {"skep": 2, "gluster": 1}  # what the lab starts over hosts, and how many programs of it one host has at most


@dataclass(frozen=True)
class SiteHost:
    at: Address
    roles: tuple[str, ...]
    storage: str  # the address at which its servers serve clients


@dataclass(frozen=True)
class Service:
    name: str
    backend: str  # one of BACKENDS
    host: str
    command: str
    ready: str  # text that it prints when it serves; "" where starting is enough
    limit: float


@dataclass(frozen=True)
class Start:
    """A cluster that the lab makes over hosts."""

    hosts: tuple[str, ...]
    program: str  # as those hosts have it
    send: str  # a program of this machine that is copied there instead; "" where they have it
    osds: int  # of each host


@dataclass(frozen=True)
class SiteFile:
    path: str
    hosts: tuple[SiteHost, ...]
    services: tuple[Service, ...]
    clusters: dict[str, tuple[str, str]]  # ceph, skep -> (conf, pool)
    users: dict[str, str]  # ceph, skep -> the client's name to the cluster
    starts: dict[str, Start]  # skep, gluster
    volume: str  # of GlusterFS, HOST:/NAME, where it is there already
    mount: str
    processes: dict[str, tuple[str, ...]]  # back end -> names of its programs on servers
    client_processes: dict[str, tuple[str, ...]]  # the same on clients: FUSE mounts and the like
    acknowledged: str  # when the mounted storage answers a write
    directory: str  # of what the lab makes on each host
    delays: tuple[int, ...]  # ms, added to the way from clients to servers; empty: none

    @property
    def clients(self) -> list[SiteHost]:
        return [h for h in self.hosts if "client" in h.roles]

    @property
    def servers(self) -> list[SiteHost]:
        return [h for h in self.hosts if "server" in h.roles]

    def host(self, name: str) -> SiteHost:
        return next(h for h in self.hosts if h.at.name == name)

    @property
    def kinds(self) -> list[str]:
        """Back ends that it has."""
        return [*self.clusters, *self.starts, *(["gluster"] if self.volume else []), *(["mount"] if self.mount else [])]


def read(path: Path) -> SiteFile:
    doc = Document(path)
    doc.root().done()
    ssh = doc.table("ssh", required=False)
    common: dict[str, Any] = {"user": "", "port": 0, "identity": "", "options": ()}
    directory = "/var/tmp"
    if ssh is not None:
        common = {"user": ssh.text("user", ""), "port": ssh.whole("port", 0, 65_535, 0), "identity": _identity(ssh, doc), "options": _words(ssh, "options")}
        if loose := [o for o in common["options"] if re.match(r"(?i)\s*stricthostkeychecking\s*[=\s]\s*(no|off)\b", o)]:
            raise ssh.error("options", f"{loose[0]}: hosts' keys are always checked; `ssh-keyscan HOST >>known_hosts` once, and compare them")
        directory = ssh.text("directory", "/var/tmp")
        if not directory.startswith("/") or directory == "/":
            raise ssh.error("directory", f"{directory!r} is no absolute path of a directory")
        ssh.done()
    hosts = _hosts(doc, common)
    servers = {h.at.name for h in hosts if "server" in h.roles}
    services = _services(doc, servers)
    clusters, users, processes, starts, on_clients = {}, {}, {}, {}, {}
    for kind in ("ceph", "skep"):
        if (t := doc.table(kind, required=False)) is not None:
            if kind in STARTED and "hosts" in t.data:
                starts[kind] = _start(t, doc, kind, servers)
            else:
                clusters[kind], users[kind] = (t.text("conf"), t.text("pool", "")), t.text("user", "admin")
            processes[kind] = _processes(t)
            t.done()
    volume = mount = acknowledged = ""
    if (t := doc.table("gluster", required=False)) is not None:
        if "hosts" in t.data:
            starts["gluster"] = _start(t, doc, "glusterd", servers)
        else:
            volume = t.text("volume")
            if not re.fullmatch(r"[A-Za-z0-9_.:%-]+:/?[A-Za-z0-9_-]+", volume) or volume.startswith("-"):
                raise t.error("volume", f"{volume!r} is no HOST:/NAME")
            processes["gluster"] = _processes(t)
        t.done()
    if (t := doc.table("mount", required=False)) is not None:
        mount = t.text("path")
        if not mount.startswith("/"):
            raise t.error("path", f"{mount!r} is no absolute path")
        processes["mount"], on_clients["mount"] = _processes(t), _processes(t, "client_processes")
        acknowledged = t.text("acknowledged", allowed=("flushed", "sent", "cached"))
        t.done()
    delays = _delays(doc, servers)
    doc.done()
    made = SiteFile(doc.file, hosts, services, clusters, users, starts, volume, mount, processes, on_clients, acknowledged, directory, delays)
    if not made.clients:
        raise PlanError(f"{doc.file}:1: [[host]]: none has the role client")
    if not made.kinds:
        raise PlanError(f"{doc.file}:1: what is measured: one of [ceph], [skep], [gluster], [mount] is needed")
    for name in servers:
        count = sum(s.host == name for s in services) + sum(STARTED[k] for k, s in starts.items() if name in s.hosts)
        if count > SERVICES_OF_HOST_MAX:
            raise PlanError(f"{doc.file}:1: [[service]]: {count} programs on {name}; one connection carries {SERVICES_OF_HOST_MAX}: start some together by one script")
    return made


def _start(t: Any, doc: Document, program: str, servers: set[str]) -> Start:
    hosts = _words(t, "hosts")
    if not hosts or len(set(hosts)) != len(hosts):
        raise t.error("hosts", "none" if not hosts else "a host twice")
    if wrong := [h for h in hosts if h not in servers]:
        raise t.error("hosts", f"no server {', '.join(wrong)}; there are {', '.join(sorted(servers)) or 'none'}")
    send = t.text("send", "") if program == "skep" else ""
    found = str(doc.path.parent / Path(send).expanduser()) if send else ""
    if send and not Path(found).is_file():
        raise t.error("send", f"{found} is no file here")
    return Start(hosts, t.text("bin", program), found, t.whole("osds", 1, 100, 1) if program == "skep" else 0)


def _delays(doc: Document, servers: set[str]) -> tuple[int, ...]:
    if (t := doc.table("delay", required=False)) is None:
        return ()
    t.taken.add("ms")
    value = t.data.get("ms")
    if not isinstance(value, list) or not 0 < len(value) <= DELAYS_MAX or not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= 10_000 for v in value):
        raise t.error("ms", f"{value!r} is no list of 1 to {DELAYS_MAX} whole numbers of milliseconds from 0 to 10000")
    if not servers:
        raise t.error("ms", "no host has the role server: there is no way that could be delayed")
    t.done()
    return tuple(dict.fromkeys(value))


def _identity(t: Any, doc: Document) -> str:
    found = t.text("identity", "")
    return str(doc.path.parent / Path(found).expanduser()) if found else ""


def _words(t: Any, key: str) -> tuple[str, ...]:
    t.taken.add(key)
    value = t.data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise t.error(key, f"{value!r} is no list of texts")
    return tuple(value)


def _processes(t: Any, key: str = "processes") -> tuple[str, ...]:
    found = _words(t, key)
    if bad := [p for p in found if not re.fullmatch(r"[A-Za-z0-9_.+-]{1,15}", p)]:
        raise t.error(key, f"{bad[0]!r} is no name as `ps -o comm` shows it, of 1 to 15 letters")
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
        storage = t.text("storage", address)
        if storage.startswith("-") or not re.fullmatch(r"[A-Za-z0-9_.:%-]+", storage):
            raise t.error("storage", f"{storage!r} is no name or address")
        roles = _words(t, "roles")
        if not roles or (bad := [r for r in roles if r not in ROLES]):
            raise t.error("roles", f"{', '.join(bad) if roles else 'none'}: there are {', '.join(ROLES)}")
        at = Address(name, address, t.text("user", common["user"]), t.whole("port", 0, 65_535, common["port"]), common["identity"], common["options"])
        found.append(SiteHost(at, roles, storage))
        t.done()
    return tuple(found)


def _services(doc: Document, hosts: set[str]) -> tuple[Service, ...]:
    found: list[Service] = []
    for t in doc.tables("service", SERVICES_MAX):
        made = Service(t.text("name"), t.text("backend", allowed=BACKENDS), t.text("host"), t.text("command"), t.text("ready", ""), t.number("limit", 0.1, 3600, 60))
        if any(f.name == made.name for f in found):
            raise t.error("name", f"{made.name} is there twice")
        if made.host not in hosts:
            raise t.error("host", f"no server {made.host}; there are {', '.join(sorted(hosts)) or 'none'}")
        try:
            shlex.split(made.command)
        except ValueError as e:
            raise t.error("command", str(e)) from e
        found.append(made)
        t.done()
    return tuple(found)
