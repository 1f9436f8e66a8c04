"""Invented runs for the tests of statistics and reports: no figure here was measured.

Each back end has a level per metric; every round has a disturbance that all back ends share, and noise of its own.
"""

from __future__ import annotations

import numpy as np
from lab.records import METRICS, BackendState, Environment, Run, Sample

TITLES = {
    "skep:1": "Skep, 1 copy",
    "ceph:1": "Ceph RBD, 1 copy",
    "gluster:2": "GlusterFS FUSE, 2 copies",
    "file:1": "local file",
    "nfs:1": "NFS-Ganesha",
}
SPEED = {"skep:1": 2.0, "ceph:1": 1.0, "gluster:2": 0.5, "file:1": 3.0}


class Invention:
    def __init__(self, studies: list[str], rounds: int, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.rounds = rounds
        self.run = Run("invented", "2026-01-01T00:00:00Z", studies, {"rounds": rounds, "quick": True})
        self.run.environments.append(Environment("a-host", "6.1", "Debian 12", "a processor", 2, 8 << 30, "a disk", "ext4", "kvm", 0.1,
                                                 tools={"fio": "fio-3.33"}, notes=["These figures are invented for a test."]))  # fmt: skip
        self.run.ended, self.run.end_state = "2026-01-01T01:00:00Z", "complete"

    def state(self, study: str, name: str, state: str = "done", reason: str = "") -> None:
        self.run.backends.append(BackendState(name, study, state, reason, TITLES.get(name, name), "1.0", {"cache": "none"}))

    def measure(self, study: str, name: str, case: dict, levels: dict[str, float], noise: float = 0.04, rounds: int | None = None) -> None:
        """Levels are medians of a back end at SPEED 1; where less is better a fast one gets less."""
        speed = SPEED.get(name, 1.0)
        for number in range(self.rounds if rounds is None else rounds):
            shared = np.random.default_rng([number, 77]).normal(0, 0.03)
            for metric, level in levels.items():
                m = METRICS[metric]
                value = level * (speed if m.better == "higher" else 1 / speed) * float(np.exp(shared + self.rng.normal(0, noise)))
                self.run.samples.append(Sample(study, name, dict(case), metric, value, m.unit, number, f"2026-01-01T00:{number:02}:00Z"))

    def failure(self, study: str, name: str, case: dict, number: int, error: str) -> None:
        self.run.samples.append(Sample(study, name, dict(case), "iops", None, "1/s", number, "2026-01-01T00:59:00Z", False, error))


def matrix(inv: Invention, names: list[str], depths=(1, 32), blocks=(4096, 65536, 1 << 20), reads=tuple(range(0, 101, 10))) -> None:
    for name in names:
        inv.state("matrix", name)
        for bs in blocks:
            for depth in depths:
                for read in reads:
                    iops = 20_000 * (1 + read / 40) * min(depth, 8) ** 0.6 / (bs / 4096) ** 0.7
                    inv.measure("matrix", name, {"bs": bs, "read": read, "depth": depth, "clients": 1}, {
                        "iops": iops, "bandwidth": iops * bs, "latency_p99": 3e6 * depth / iops, "server_cpu_per_op": 60 - read / 4,
                        "server_cores": 1.2 - read / 200, "client_cores": 0.5, "server_memory": 400 << 20})  # fmt: skip


def boot(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("boot", name)
        inv.measure("boot", name, {"accel": "tcg"}, {"bandwidth": 6e6, "boot_time": 4.0, "delete_time": 2.3, "run_time": 60, "create_time": 0.4})


def formats(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("formats", name)
        for i, form in enumerate(["rbd"] if name.startswith(("ceph", "skep")) else ["raw", "qcow2", "qed"]):
            for op in ("write", "rewrite", "read", "reread"):
                for record in (4096, 16384, 65536, 262144):
                    inv.measure("formats", name, {"op": op, "record": record, "format": form, "instrument": "fio"}, {"bandwidth": 2e7 * (record / 4096) ** 0.6 / (1 + i / 3)})


def provision(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("provision", name)
        for vms in (1, 4, 16):
            unified = name.startswith(("ceph", "skep"))
            parts = {"overlay_time": 0.2 * vms} if unified else {"download_time": 6.0, "convert_time": 9.0, "resize_time": 0.3, "overlay_time": 0.1 * vms}
            inv.measure("provision", name, {"vms": vms, "hosts": 1}, parts | {"provision_time": sum(parts.values()), "batch_boot_time": 3 + 0.8 * vms})


def migrate(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("migrate", name)
        local = name.startswith("file")
        inv.measure("migrate", name, {"storage": "local" if local else "shared"},
                    {"migration_time": 120.0 if local else 1.0, "migration_pause": 40.0, "migration_bytes": 3e9 if local else 2e8})  # fmt: skip


def layouts(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("layouts", name)
        for op in ("write", "read"):
            for bs in (65536, 262144):
                for unit in (65536, 131072, 262144, 524288):
                    for count in (1, 4):
                        inv.measure("layouts", name, {"op": op, "bs": bs, "stripe_unit": unit, "stripe_count": count, "threads": 1}, {"bandwidth": 8e7 * min(unit, bs) / bs})


def failure(inv: Invention, names: list[str]) -> None:
    for name in names:
        inv.state("failure", name)
        for fault, level in (("kill", 2.0), ("hang", 20.0)):
            inv.measure("failure", name, {"fault": fault}, {"stall": level, "stall_before": 0.05, "recovery_time": 12.0, "rebuild_latency_p99": 9000.0})


def everything(rounds: int = 7) -> Run:
    names = ["skep:1", "ceph:1", "gluster:2", "file:1"]
    inv = Invention(["matrix", "boot", "formats", "provision", "migrate", "layouts", "failure"], rounds)
    for study in (matrix, boot, formats, provision, migrate, layouts, failure):
        study(inv, names)
    inv.state("matrix", "nfs:1", "skipped", "no nfs-ganesha package and no NFS client in this kernel")
    inv.state("failure", "gluster:2", "failed", "brick 1 ended with status 139 in round 3")
    inv.run.end_state, inv.run.end_reason = "partial", "one back end failed"
    return inv.run
