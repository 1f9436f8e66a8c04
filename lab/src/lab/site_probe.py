"""`lab check --site`: what each host lacks, in words, before anything starts. Makes nothing on hosts and ends nothing there.

Each sentence is printed by a shell script on the host (PROBES), so that one session a host tells everything; what cannot be reached is
said with ssh's own words.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from lab.config import Config
from lab.process import Scratch, ToolError
from lab.remote import Host, each
from lab.site import CAN_DELAY, CLOCK_APART_S, Clock, clock
from lab.site_file import SiteFile, SiteHost
from lab.site_start import ETCD_PORT, MON_PORT

ANSWER_LIMIT_S = 60
FREE_MIN = 1 << 30
TOOLS = 'PATH=$PATH:/usr/sbin:/sbin; export PATH; has() { command -v "$1" >/dev/null || echo "$1 is not installed (Debian: $2)"; }\n'
# What a port is wanted for is said where something listens on it already. $1 port, $2 what for.
PORT = 'port() { ss -Hltn "sport = :$1" 2>/dev/null | grep -q . && echo "port $1 is taken, which $2 needs"; }\n'


@dataclass(frozen=True)
class Found:
    host: SiteHost
    lacks: list[str]
    clock: Clock | None


def check(file: SiteFile, config: Config) -> list[Found]:
    """Of every host, side by side."""
    with Scratch(Path(config.run.scratch)) as scratch:

        def one(h: SiteHost) -> Found:
            host = Host(h.at, scratch)
            host.connect()
            lacks = host.run(["sh", "-c", probe(file, h, config)], timeout=ANSWER_LIMIT_S, check=False).out.strip()
            try:
                there = clock(host)
            except ToolError as e:
                return Found(h, [*lacks.splitlines(), str(e)], None)
            return Found(h, lacks.splitlines(), there)

        found = each(file.hosts, one)
    return [f if isinstance(f, Found) else Found(h, [str(f).removeprefix(f"host {h.at.name} ")], None) for h, f in zip(file.hosts, found)]


def probe(file: SiteFile, h: SiteHost, config: Config) -> str:
    """The script for one host."""
    parts = [TOOLS, PORT, 'for p in bash grep cut timeout setsid; do has "$p" "bash, grep, coreutils, util-linux"; done', _directory(file)]
    if "client" in h.roles:
        parts += _client(file, config)
    if "server" in h.roles:
        parts += _server(file, h)
    return "\n".join(parts) + "\ntrue\n"


def _directory(file: SiteFile) -> str:
    d = shlex.quote(file.directory)
    return (f'[ -d {d} ] && [ -w {d} ] || echo {d}" is no directory where the lab may make its own ([ssh] directory)"\n'
            f'free=$(df -Pk {d} 2>/dev/null | awk \'NR == 2 {{ print $4 }}\'); [ "${{free:-{FREE_MIN}}}" -ge {FREE_MIN >> 10} ] || echo {d}" has less than 1 GiB free: $free KiB"')


def _client(file: SiteFile, config: Config) -> list[str]:
    parts = ["has fio fio"]
    if any(k in file.kinds for k in ("ceph", "skep")):
        parts += ["has ceph ceph-common; has rbd ceph-common",
                  "! command -v fio >/dev/null || fio --enghelp 2>/dev/null | grep -qw rbd || echo 'fio has no engine rbd there'"]
    for kind, (conf, pool) in file.clusters.items():
        parts.append(_cluster(kind, conf, pool, file.users[kind]))
    if "gluster" in file.kinds:
        parts += ["has glusterfs glusterfs-client", "[ -w /dev/fuse ] || echo '/dev/fuse cannot be used (FUSE)'"]
    if file.mount:
        m = shlex.quote(file.mount)
        parts.append(f'if [ ! -d {m} ]; then echo {m}" is no directory"; elif [ ! -w {m} ]; then echo {m}" may not be written"; fi')
    if any(file.delays) or any(any(g.get("delay", [])) for g in config.matrix.grid):
        parts.append(f"({CAN_DELAY})")
    return parts


def _cluster(kind: str, conf: str, pool: str, user: str) -> str:
    """Whether it answers, and lets this user in. $1 ceph.conf, $2 user, $3 pool, $4 kind."""
    words = " ".join(shlex.quote(w) for w in (conf, user, pool, kind))
    return f"set -- {words}\n{CLUSTER}"


CLUSTER = """if [ ! -r "$1" ]; then echo "$4: $1 cannot be read"
elif command -v ceph >/dev/null; then
    said=$(timeout 25 ceph -c "$1" --id "$2" --connect-timeout 15 osd pool ls 2>&1)
    if [ $? != 0 ]; then echo "$4: client.$2 does not get in by $1: $(printf '%s' "$said" | tail -n 1)"
    elif [ -n "$3" ] && ! printf '%s\\n' "$said" | grep -qxF -- "$3"; then echo "$4: no pool $3"
    fi
fi"""


def _server(file: SiteFile, h: SiteHost) -> list[str]:
    parts = ['has pgrep procps', '[ "$(id -u)" = 0 ] || echo "not root: no bytes of servers are measured, only their processor time"']
    ours = any(s.host == h.at.name for s in file.services) or any(h.at.name in s.hosts for s in file.starts.values())
    if (names := sorted({n for own in file.processes.values() for n in own})) and not ours:
        found, said = " ".join(map(shlex.quote, names)), shlex.quote(f"none of {', '.join(names)} runs there: nothing of this server would be measured")
        parts.append(f'alive=; for n in {found}; do pgrep -x "$n" >/dev/null && alive=1; done; [ -n "$alive" ] || echo {said}')
    for kind, start in file.starts.items():
        if h.at.name not in start.hosts:
            continue
        if kind == "skep":
            parts.append("has etcd etcd-server" if h.at.name in (start.hosts[:3] if len(start.hosts) >= 3 else start.hosts[:1]) else ":")
            parts.append(f"port {MON_PORT} 'the monitor of skep'; port {ETCD_PORT} etcd")
            program = shlex.quote(start.program)
            parts.append(":" if start.send else f"command -v {program} >/dev/null || echo {shlex.quote(f'no program {start.program}: name it as bin, or let send copy one')}")
        else:
            parts += [f"has {shlex.quote(start.program)} glusterfs-server; has gluster glusterfs-cli",
                      "port 24007 'glusterd (one that runs there already: name its volume in [gluster] volume)'"]
    return parts


def as_dict(found: list[Found]) -> dict[str, Any]:
    return {"hosts": {f.host.at.name: {"address": f.host.at.address, "roles": list(f.host.roles), "lacks": told(f),
                                       "clock_ahead": f.clock.ahead if f.clock else None, "clock_error": f.clock.error if f.clock else None} for f in found}}


def told(found: Found) -> list[str]:
    c = found.clock
    apart = [f"its clock is {abs(c.ahead):.1f} s {'ahead of' if c.ahead > 0 else 'behind'} this machine's"] if c and abs(c.ahead) - c.error > CLOCK_APART_S else []
    return [*found.lacks, *apart]


def table(found: list[Found]) -> Table:
    made = Table(box=None, pad_edge=False)
    for column in ("host", "roles", "ready", "what it lacks"):
        made.add_column(column)
    for f in found:
        lacks = told(f)
        made.add_row(f"{f.host.at.name} ({f.host.at.address})", ", ".join(f.host.roles), Text("no", "red") if lacks else Text("yes", "green"), Text("\n".join(lacks)))
    return made
