"""The machine as a run finds it: what somebody who repeats it would have to know. Reads only; what cannot be read is ""."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import socket
import subprocess
from pathlib import Path

import psutil

from lab.backends.skep import binary
from lab.config import Config
from lab.records import Environment

VERSION_COMMANDS = {
    "fio": ["fio", "--version"],
    "qemu": ["qemu-system-x86_64", "--version"],
    "ceph": ["ceph", "--version"],
    "glusterfs": ["glusterfs", "--version"],
    "ganesha": ["ganesha.nfsd", "-v"],
    "iozone": ["iozone", "-v"],
}
BUSY_LOAD = 0.5  # per processor, before the run; above that a note says so


def collect(config: Config, now: str, notes: list[str]) -> Environment:
    load = os.getloadavg()[0]
    cpus = os.cpu_count() or 0
    notes = list(notes)
    if load > BUSY_LOAD * cpus:
        notes.append(f"Other work was running when this began (load {load:.1f} on {cpus} processors).")
    source, filesystem, options = mount_of(Path(config.run.scratch))
    return Environment(
        host=socket.gethostname(), kernel=platform.release(), system=os_name(), cpu=cpu_name(), cpus=cpus,
        memory_bytes=psutil.virtual_memory().total, disk=disk_of(source), filesystem=f"{filesystem} ({options})",
        virtual=output(["systemd-detect-virt"]), load_before=load, governor=read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        tools=tools(config), notes=notes, at=now,
    )


def tools(config: Config) -> dict[str, str]:
    found = {name: output(argv) for name, argv in VERSION_COMMANDS.items()}
    for package in ("ceph-osd", "librbd1", "glusterfs-server"):
        found[f"package {package}"] = output(["dpkg-query", "-W", "-f", "${Version}", package])
    if program := binary(config.skep.bin):
        with open(program, "rb") as f:
            digest = hashlib.file_digest(f, "sha256").hexdigest()
        found["skep"] = f"{output([program, '--version'])}, program's sha256 {digest[:16]}"
    return {k: v for k, v in found.items() if v}


def output(argv: list[str]) -> str:
    """The first line that a program says; "" where there is none."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    return lines[0].strip() if lines and done.returncode == 0 else ""


def read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def os_name() -> str:
    m = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.M)
    return m.group(1) if m else platform.system()


def cpu_name() -> str:
    m = re.search(r"^model name\s*:\s*(.*)$", read("/proc/cpuinfo"), re.M)
    return m.group(1) if m else platform.machine()


def mount_of(path: Path) -> tuple[str, str, str]:
    """(device, file system, options) of the mount that holds the path."""
    best = ("", "", "", "")
    for line in read("/proc/mounts").splitlines():
        device, point, filesystem, options = line.split()[:4]
        if (str(path) + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best[1]):
            best = (device, point, filesystem, options)
    return best[0], best[2], best[3]


def disk_of(device: str) -> str:
    """Device, model, size and whether it turns."""
    name = Path(device).name
    base = re.sub(r"(?<=[a-z])\d+$|p\d+$", "", name)
    home = Path("/sys/block") / (name if (Path("/sys/block") / name).exists() else base)
    if not home.exists():
        return device
    sectors = read(str(home / "size"))
    size = f"{int(sectors) * 512 / 1e9:.0f} GB" if sectors.isdigit() else ""
    turns = {"0": "no rotation", "1": "rotating (as the kernel is told)"}.get(read(str(home / "queue/rotational")), "")
    cache = read(str(home / "queue/write_cache"))
    return ", ".join(x for x in (device, read(str(home / "device/model")), size, turns, cache) if x)
