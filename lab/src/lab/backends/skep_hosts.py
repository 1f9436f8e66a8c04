"""Skep as on several machines: a process each with a monitor and one OSD, their state in a real etcd, all on loopback.

Every process has an address of its own (127.0.0.1, 127.0.0.2, ...) and is a host of the CRUSH tree, so that copies lie in
different processes and one can be killed while the others serve. etcd has one member, as the Ceph of the lab has
one monitor; neither is struck. Authentication is cephx: Skep with etcd has no other.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import account
from lab.backends.base import Context
from lab.backends.skep import READY_LIMIT_S, SkepService, binary, wait_ready

ETCD_PORT, ETCD_PEER_PORT = 23790, 23800
MON_PORT = 13310
JOIN_LIMIT_S = 30.0


class SkepHostsService(SkepService):
    name = "skep-hosts"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.external = False
        self.dir = self.scratch.path / "skep-hosts"
        self.conf = str(self.dir / "ceph.conf")  # clients take the cluster's name, and with it the keyring's, from that of the file
        self.processes: dict[int, subprocess.Popen] = {}

    def _start(self) -> None:
        self.dir.mkdir()
        self._start_etcd()
        for n in range(self.settings.osds):
            self._launch_host(n)
        addresses = [f"{self.address(n)}:{MON_PORT}" for n in range(self.settings.osds)]
        conf = self.dir / "host.0" / "ceph.conf"
        self.wait(lambda: all(a in conf.read_text() for a in addresses), "all monitors in ceph.conf", JOIN_LIMIT_S)
        self.write_client_conf(conf)
        self.wait(lambda: self.json("osd", "stat")["num_up_osds"] == self.settings.osds, "all OSDs up")

    @staticmethod
    def address(n: int) -> str:
        return f"127.0.0.{n + 1}"

    def _start_etcd(self) -> None:
        client, peer = f"http://127.0.0.1:{ETCD_PORT}", f"http://127.0.0.1:{ETCD_PEER_PORT}"
        argv = ["etcd", "--name", "lab", "--data-dir", str(self.dir / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"lab={peer}"]
        self.etcd_url = client
        self.etcd = self.scratch.spawn(argv, self.role, log=self.dir / "etcd.log")
        healthy = ["etcdctl", "--endpoints", client, "endpoint", "health"]
        self.wait(lambda: self.scratch.run(healthy, check=False, env={"ETCDCTL_API": "3"}).status == 0, "etcd", READY_LIMIT_S)

    def _launch_host(self, n: int) -> None:
        log = self.dir / f"host.{n}.log"
        seen = log.stat().st_size if log.exists() else 0
        argv = [binary(self.settings.bin), "up", "--data", str(self.dir / f"host.{n}"), "--osds", "1", "--bind", self.address(n),
                "--mon-port", str(MON_PORT), "--msgr1-port", "0", "--host", f"lab{n}", "--etcd", self.etcd_url, "--join" if n else "--create",
                "--osd-memory", str(self.settings.osd_memory), "--osd-size", str(self.settings.osd_size), "--allow-pool-delete"]
        self.processes[n] = self.scratch.spawn(argv, self.role, log=log)
        wait_ready(self.processes[n], log, seen)

    def alive(self) -> str:
        if getattr(self, "etcd", None) is not None and self.etcd.poll() is not None:
            return f"etcd ended with status {self.etcd.returncode}: {tail(self.dir / 'etcd.log')}"
        for n, process in self.processes.items():
            if process.poll() is not None:
                return f"skep on host {n} ended with status {process.returncode}: {tail(self.dir / f'host.{n}.log')}"
        return ""

    def memory_parts(self) -> dict[str, float]:
        """Processes of a monitor and an OSD each; beside them etcd."""
        own = [p.pid for p in self.processes.values()]
        return {"osd_memory": account.memory(own) / len(own), "mon_memory": float(account.memory([self.etcd.pid]))} if own else {}

    def victim(self) -> int:
        return self.processes[0].pid

    def revive(self) -> None:
        self.processes[0].kill()
        self.processes[0].wait()
        self._launch_host(0)


def tail(log: Path) -> str:
    return log.read_text(errors="replace")[-200:].strip() if log.exists() else ""
