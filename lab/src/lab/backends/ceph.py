"""A real Ceph cluster on loopback, from Debian's packages: monitor, manager, BlueStore OSDs on files, on demand an MDS.

Settings are Ceph's own defaults except what a single host needs (copies over OSDs instead of hosts) and what keeps a
small machine usable (memory target, small logs). Authentication is off, as for Skep under the lab.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from lab import account
from lab.backends.base import Context, Service, ToolError

CLEAN_LIMIT_S = 90.0
MON_PORT = 13300


class CephService(Service):
    name = "ceph"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.settings = context.config.ceph
        self.external = bool(self.settings.conf)
        self.dir = self.scratch.path / "ceph"
        self.conf = self.settings.conf or str(self.dir / "ceph.conf")
        self.ours = False  # a cluster over a site's hosts, which ends with the run
        self.daemons: dict[str, subprocess.Popen] = {}
        self.fsid = str(uuid.uuid4())
        self.copies_of: dict[str, int] = {}  # of pools that there are once: s3, files

    # --- start
    def _start(self) -> None:
        if self.external:
            self.ceph("status")
            return
        self.dir.mkdir()
        self._write_conf()
        self._make_mon()
        self.daemon("mon", "a")
        self.ceph("config", "set", "global", "mon_warn_on_insecure_global_id_reclaim_allowed", "false", timeout=60)
        (self.dir / "mgr.x").mkdir()
        self.daemon("mgr", "x")
        numbers = range(self.settings.osds)
        for n in numbers:
            (self.dir / f"osd.{n}").mkdir()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._make_osd, [(n, self._new_osd()) for n in numbers]))
        for n in numbers:
            self.daemon("osd", str(n))
        self.wait(lambda: self.json("osd", "stat")["num_up_osds"] == self.settings.osds, "all OSDs up")

    def _write_conf(self) -> None:
        rows = {
            "fsid": self.fsid,
            "mon_host": f"[v2:127.0.0.1:{MON_PORT},v1:127.0.0.1:{MON_PORT + 1}]",
            "public_addr": "127.0.0.1",
            "auth_cluster_required": "none", "auth_service_required": "none", "auth_client_required": "none",
            "osd_crush_chooseleaf_type": "0",
            "osd_pool_default_min_size": "1",
            "mon_allow_pool_delete": "true", "mon_allow_pool_size_one": "true",
            "mon_warn_on_pool_no_redundancy": "false",
            "mon_data_avail_crit": "1", "mon_data_avail_warn": "2",
            "run_dir": str(self.dir),
            "log_file": f"{self.dir}/$name.log", "admin_socket": f"{self.dir}/$name.$pid.asok", "pid_file": "",
            "mon_cluster_log_file": f"{self.dir}/cluster.log",
            "osd_data": f"{self.dir}/osd.$id", "mon_data": f"{self.dir}/mon.$id",
            "mgr_data": f"{self.dir}/mgr.$id", "mds_data": f"{self.dir}/mds.$id",
            "bluestore_block_size": str(self.settings.osd_size),
            "osd_memory_target": str(self.settings.osd_memory),
            "keyring": f"{self.dir}/keyring", "crash_dir": f"{self.dir}/crash",
        }
        client = {"rbd_cache": "true" if self.settings.rbd_cache else "false"}
        text = "[global]\n" + "".join(f"{k} = {v}\n" for k, v in rows.items())
        text += "[client]\n" + "".join(f"{k} = {v}\n" for k, v in client.items())
        (self.dir / "ceph.conf").write_text(text)

    def _make_mon(self) -> None:
        run, d = self.scratch.run, self.dir
        run(["ceph-authtool", "--create-keyring", f"{d}/keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"])
        caps = [w for service in ("mon", "osd", "mds", "mgr") for w in ("--cap", service, "allow *")]
        run(["ceph-authtool", f"{d}/keyring", "--gen-key", "-n", "client.admin", *caps])
        run(["monmaptool", "--create", "--fsid", self.fsid, "--addv", "a", f"[v2:127.0.0.1:{MON_PORT},v1:127.0.0.1:{MON_PORT + 1}]", f"{d}/monmap"])
        run(["ceph-mon", "--mkfs", "-i", "a", "--monmap", f"{d}/monmap", "--keyring", f"{d}/keyring", "-c", self.conf])

    def _new_osd(self) -> str:
        name = str(uuid.uuid4())
        self.ceph("osd", "new", name)
        return name

    def _make_osd(self, osd: tuple[int, str]) -> None:
        n, name = osd
        self.scratch.run(["ceph-osd", "-i", str(n), "--mkfs", "--osd-uuid", name, "-c", self.conf], timeout=120)

    def daemon(self, kind: str, id: str) -> None:
        """In the foreground, so that it is ours to end."""
        log = self.dir / f"{kind}.{id}.out"
        self.daemons[f"{kind}.{id}"] = self.scratch.spawn([f"ceph-{kind}", "-f", "-i", id, "-c", self.conf], self.role, log=log)

    def start_mds(self, copies: int = 1) -> None:
        if "mds.a" in self.daemons:
            return
        (self.dir / "mds.a").mkdir()
        for pool in ("cephfs_meta", "cephfs_data"):
            self.pool(pool, copies, app=False)
        self.ceph("fs", "new", "lab", "cephfs_meta", "cephfs_data")
        self.daemon("mds", "a")
        self.wait(lambda: "up:active" in self.ceph("mds", "stat"), "the MDS active")

    def start_rgw(self, port: int, gc_wait: int) -> None:
        """Without `ms_mon_client_mode` it asks monitors for nothing but encryption, which there is none of without keys."""
        if "rgw.lab" in self.daemons:
            return
        argv = ["radosgw", "-f", "-n", "client.admin", "-c", self.conf, "--keyring", f"{self.dir}/keyring", "--ms_mon_client_mode=crc", f"--rgw_frontends=beast endpoint=127.0.0.1:{port} tcp_nodelay=1",
                f"--rgw_gc_obj_min_wait={gc_wait}", f"--rgw_gc_processor_period={gc_wait}", f"--log_file={self.dir}/rgw.log"]  # fmt: skip
        self.daemons["rgw.lab"] = self.scratch.spawn(argv, self.role, log=self.dir / "rgw.out")

    # --- commands
    def client(self, program: str) -> list[str]:
        return [program, "-c", self.conf, *(["--id", self.settings.user] if self.settings.user != "admin" else [])]

    def ceph(self, *args: str, timeout: float = 60) -> str:
        return self.scratch.run([*self.client("ceph"), *args], timeout=timeout).out

    def json(self, *args: str) -> dict:
        return json.loads(self.ceph(*args, "-f", "json"))

    def pool(self, name: str, copies: int, app: bool = True) -> None:
        if name in self.ceph("osd", "pool", "ls").split():
            return
        self.ceph("osd", "pool", "create", name, "32", "32")
        self.ceph("osd", "pool", "set", name, "size", str(copies), *(["--yes-i-really-mean-it"] if copies == 1 else []))
        if app:
            self.scratch.run([*self.client("rbd"), "pool", "init", name])
        if not self.external:
            self.wait(self.clean, f"pool {name} clean")

    def clean(self) -> bool:
        states = self.json("pg", "stat")
        states = states.get("pg_summary", states)
        return bool(states["num_pgs"]) and all({"active", "clean"} <= set(s["name"].split("+")) for s in states["num_pg_by_state"])

    def copies_kept(self, pool: str) -> int:
        """How many OSDs act for a PG of the pool, which is what a write waits for."""
        return len(self.json("osd", "map", pool, "lab")["acting"])

    def wait(self, condition, what: str, limit: float = CLEAN_LIMIT_S) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            if gone := self.alive():
                raise ToolError(gone)
            if time.monotonic() > deadline:
                raise ToolError(f"{self.name}: not {what} within {limit:.0f} s")
            time.sleep(0.3)

    def version(self) -> str:
        return self.scratch.run([*self.client("ceph"), "version"], check=False).out.strip()

    def alive(self) -> str:
        if self.external:
            return ""
        for name, process in self.daemons.items():
            if process.poll() is not None:
                return f"ceph: {name} ended with status {process.returncode}"
        return ""

    def memory_parts(self) -> dict[str, float]:
        osds = [p.pid for name, p in self.daemons.items() if name.startswith("osd.")]
        others = [p.pid for name, p in self.daemons.items() if not name.startswith("osd.")]
        return {"osd_memory": account.memory(osds) / len(osds), "mon_memory": float(account.memory(others))} if osds else {}

    def victim(self) -> int:
        return self.daemons["osd.0"].pid

    def revive(self) -> None:
        process = self.daemons["osd.0"]
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.daemon("osd", "0")
