"""Clusters that the lab starts over a site's hosts: Skep with an etcd, GlusterFS; and GlusterFS volumes mounted on the clients.

Their data lies in the run's directory on each host and goes with it. Programs run under guards like all others, so they end with the
lab or its connection. etcd has three members where there are three hosts, else one. Ports are fixed: a host that has such a server
already is refused by the server itself, in its words.
"""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.process import ToolError
from lab.remote import every
from lab.site_file import SiteHost, Start

if TYPE_CHECKING:
    from lab.site import Site

ETCD_PORT, ETCD_PEER_PORT = 23790, 23800
MON_PORT = 13310
READY_LIMIT_S = 120.0
PROGRAM_MAX = 2 << 30  # bytes of a program that is sent
GLUSTERD_VOLFILE = """volume management
    type mgmt/glusterd
    option working-directory {dir}/glusterd
    option run-directory {dir}/glusterd-run
    option glusterd-sockfile {dir}/glusterd.sock
    option transport-type socket
    option transport.socket.listen-port 24007
    option transport.socket.keepalive-time 10
    option transport.socket.keepalive-interval 2
    option transport.socket.read-fail-log off
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
"""


class SkepCluster:
    def __init__(self, site: Site, start: Start) -> None:
        self.site, self.start = site, start
        self.hosts = [site.file.host(name) for name in start.hosts]
        self.dir = f"{site.directory}/skep"
        self.conf = f"{self.dir}/ceph.conf"  # on the clients
        self.program = f"{site.directory}/skep-program" if start.send else start.program
        self.version = ""

    def open(self) -> None:
        site = self.site
        if self.start.send:
            data = Path(self.start.send)
            if data.stat().st_size > PROGRAM_MAX:
                raise ToolError(f"{data}: more than {PROGRAM_MAX} bytes are not sent")
            content = data.read_bytes()
            every(self.hosts, lambda h: site.hosts[h.at.name].put(self.program, content, "755", timeout=600))
        self.version = site.hosts[self.start.hosts[0]].run([self.program, "--version"]).out.strip()
        every(self.hosts + site.file.clients, lambda h: site.hosts[h.at.name].run(["mkdir", "-p", "-m", "700", self.dir]))
        self._etcd()
        self._up(self.hosts[0], "--create")
        every(self.hosts[1:], lambda h: self._up(h, "--join"))
        self._conf_to_clients()
        self._wait_for_osds()

    def close(self) -> None:
        """Its programs are the site's to end, and its data goes with the run's directory."""

    def _etcd(self) -> None:
        members = self.hosts[:3] if len(self.hosts) >= 3 else self.hosts[:1]
        all_of_them = ",".join(f"{h.at.name}=http://{bracket(h.storage)}:{ETCD_PEER_PORT}" for h in members)
        self.etcd = [f"http://{bracket(h.storage)}:{ETCD_PORT}" for h in members]

        def begin(h: SiteHost) -> None:
            client, peer = f"http://{bracket(h.storage)}:{ETCD_PORT}", f"http://{bracket(h.storage)}:{ETCD_PEER_PORT}"
            argv = ["etcd", "--name", h.at.name, "--data-dir", f"{self.dir}/etcd", "--listen-client-urls", client, "--advertise-client-urls", client,
                    "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", all_of_them]
            self.site.begin(f"etcd of skep on {h.at.name}", h.at.name, argv, "server:skep", "ready to serve client requests", READY_LIMIT_S)

        every(members, begin)  # side by side: none is ready before most are there

    def _up(self, h: SiteHost, how: str) -> None:
        settings = self.site.config.skep
        argv = [self.program, "up", "--data", f"{self.dir}/data", "--osds", str(self.start.osds), "--bind", h.storage, "--mon-port", str(MON_PORT),
                "--msgr1-port", "0", "--metrics-port", "0", "--host", h.at.name, "--etcd", ",".join(self.etcd), how,
                "--osd-memory", str(settings.osd_memory), "--osd-size", str(settings.osd_size), "--allow-pool-delete"]
        self.site.begin(f"skep on {h.at.name}", h.at.name, argv, "server:skep", "\nready", READY_LIMIT_S)

    def _conf_to_clients(self) -> None:
        first = self.site.hosts[self.start.hosts[0]]
        conf = until(lambda: (t := first.run(["cat", f"{self.dir}/data/ceph.conf"]).out) and all(f"{h.storage}" in t for h in self.hosts) and t, "all monitors in ceph.conf")
        keyring = first.run(["cat", f"{self.dir}/data/ceph.client.admin.keyring"]).out.encode()
        kept = "\n".join(line for line in str(conf).splitlines() if not line.startswith("keyring"))
        cache = "true" if self.site.config.skep.rbd_cache else "false"
        text = f"{kept}\nkeyring = {self.dir}/ceph.client.admin.keyring\n[client]\nrbd_cache = {cache}\nadmin_socket =\nlog_file = {self.dir}/client.log\n"

        def put(h: SiteHost) -> None:
            host = self.site.hosts[h.at.name]
            host.put(f"{self.dir}/ceph.client.admin.keyring", keyring)
            host.put(self.conf, text.encode(), "644")

        every(self.site.file.clients, put)

    def _wait_for_osds(self) -> None:
        wanted = len(self.hosts) * self.start.osds
        ask = ["ceph", "-c", self.conf, "osd", "stat", "-f", "json"]
        until(lambda: json.loads(self.site.control.run(ask).out)["num_up_osds"] == wanted, f"all {wanted} OSDs of skep up")


class GlusterVolumes:
    """`volume`: HOST:/NAME of one that is there. Otherwise one is made of bricks on the hosts for each number of copies."""

    def __init__(self, site: Site, start: Start | None, volume: str) -> None:
        self.site, self.start, self.volume = site, start, volume
        self.mounts: dict[int, str] = {}
        self.version = ""

    def open(self) -> None:
        if self.start is None:
            return
        site, hosts = self.site, [self.site.file.host(n) for n in self.start.hosts]

        def begin(h: SiteHost) -> None:
            host, d = site.hosts[h.at.name], site.directory
            host.run(["mkdir", "-p", f"{d}/glusterd", f"{d}/glusterd-run"])
            host.put(f"{d}/glusterd.vol", GLUSTERD_VOLFILE.format(dir=d).encode(), "644")
            argv = [self.start.program, "-N", "-f", f"{d}/glusterd.vol", "-l", f"{d}/glusterd.log", "-p", f"{d}/glusterd.pid", "-L", "WARNING"]  # type: ignore[union-attr]
            session = site.begin(f"glusterd on {h.at.name}", h.at.name, argv, "server:gluster", "", 0)
            until(lambda: self.ask(h, "volume", "list", check=False) is not None or session.process.poll() is not None, f"glusterd on {h.at.name} ready")
            if session.process.poll() is not None:
                raise ToolError(f"glusterd on {h.at.name} ended: {site.hosts[h.at.name].run(['tail', '-n', '3', f'{d}/glusterd.log'], check=False).out.strip()}")

        every(hosts, begin)
        for h in hosts[1:]:
            self.ask(hosts[0], "peer", "probe", h.storage)
        until(lambda: (self.ask(hosts[0], "pool", "list") or "").count("Connected") == len(hosts), "all peers of gluster connected")
        self.version = site.hosts[hosts[0].at.name].run([self.start.program, "--version"], check=False).out.split("\n")[0]

    def ask(self, h: SiteHost, *words: str, check: bool = True) -> str | None:
        argv = ["gluster", "--mode=script", f"--glusterd-sock={self.site.directory}/glusterd.sock", *words]
        done = self.site.hosts[h.at.name].run(argv, timeout=120, check=False)
        if check and done.status != 0:
            raise ToolError(f"gluster on {h.at.name}: {' '.join(words[:3])}: {(done.err or done.out).strip()[-300:]}")
        return done.out if done.status == 0 else None

    def mount(self, copies: int, options: dict[str, str]) -> str:
        """Where the volume of so many copies is on every client."""
        if copies in self.mounts:
            return self.mounts[copies]
        target = f"{self.site.directory}/gluster-{copies}"
        server, _, name = self.volume.rpartition(":")
        name = name.lstrip("/")
        if self.start is not None:
            server, name = self.site.file.host(self.start.hosts[0]).storage, self._make(copies, options)
        again = f"glusterfs --volfile-server={shlex.quote(server)} --volfile-id={shlex.quote(name)} {target}"
        undo = f"umount -l {target}\n"
        if self.start is None:
            # What the run has in somebody's volume goes before the mount does.
            undo += f"{again} && timeout 20 rm -rf --one-file-system -- {target}/lab-{self.site.scratch.mark}\numount -l {target}\n"

        def one(h: SiteHost) -> None:
            host = self.site.hosts[h.at.name]
            host.run(["mkdir", "-p", target])
            host.put(f"{self.site.directory}/undo-gluster-{copies}", undo.encode())
            argv = ["glusterfs", "--no-daemon", f"--volfile-server={server}", f"--volfile-id={name}", "--log-level=WARNING", f"--log-file={target}.log", target]
            session = self.site.begin(f"gluster mount {copies} on {h.at.name}", h.at.name, argv, "client:gluster", "", 0)
            until(lambda: host.run(["mountpoint", "-q", target], check=False).status == 0 or session.process.poll() is not None, f"{target} mounted on {h.at.name}")
            if session.process.poll() is not None:
                raise ToolError(f"host {h.at.name}: {server}:/{name} is not mounted: {host.run(['tail', '-n', '2', f'{target}.log'], check=False).out.strip()[-300:]}")

        every(self.site.file.clients, one)
        self.mounts[copies] = target
        return target

    def _make(self, copies: int, options: dict[str, str]) -> str:
        hosts = [self.site.file.host(n) for n in self.start.hosts]  # type: ignore[union-attr]
        if len(hosts) < copies:
            raise ToolError(f"gluster: {copies} copies need as many hosts, not {len(hosts)}")
        hosts, name = hosts[: len(hosts) // copies * copies], f"lab{copies}"
        bricks = [f"{h.storage}:{self.site.directory}/brick-{copies}" for h in hosts]
        self.ask(hosts[0], "volume", "create", name, *(["replica", str(copies)] if copies > 1 else []), *bricks, "force")
        for option, value in options.items():
            if copies > 1 or not option.startswith("cluster."):
                self.ask(hosts[0], "volume", "set", name, option, value)
        self.ask(hosts[0], "volume", "start", name)
        return name

    def close(self) -> None:
        """By the guards and the undo scripts."""


def bracket(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def until(condition, what: str, limit: float = READY_LIMIT_S):  # type: ignore[no-untyped-def]
    """The first value that is true; errors of the condition count as not yet."""
    deadline, why = time.monotonic() + limit, ""
    while True:
        try:
            if value := condition():
                return value
        except (ToolError, ValueError, KeyError) as e:
            why = f": {e}"
        if time.monotonic() > deadline:
            raise ToolError(f"not {what} within {limit:.0f} s{why}")
        time.sleep(0.2)
