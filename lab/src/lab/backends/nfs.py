"""NFS by the user-space server NFS-Ganesha; clients are QEMU's own (libnfs), since the kernel here may have none.

fio has no NFS engine in Debian, so it reaches the disk through QEMU's block layer (lab.qsd); the report says so.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from lab.backends.base import Context, Disk, Service, ToolError, Unsupported, not_root, programs_missing
from lab.backends.local import DirectoryBackend
from lab.config import Config
from lab.fio import FLUSH_EACH

PSEUDO = "/lab"
READY_LIMIT_S = 30.0
CONF = """
NFS_CORE_PARAM {{ Protocols = 3, 4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; Plugins_Dir = "{plugins}"; }}
NFSv4 {{ Graceless = true; RecoveryRoot = "{dir}/recovery"; }}
EXPORT {{ Export_Id = 1; Path = "{path}"; Pseudo = "{pseudo}"; Access_Type = RW; Squash = No_Root_Squash; SecType = sys;
  Transports = TCP; PrivilegedPort = false; FSAL {{ Name = VFS; }} }}
LOG {{ Default_Log_Level = WARN; }}
"""


class GaneshaService(Service):
    name = "nfs"

    def _start(self) -> None:
        if not self.context.isolated:
            raise ToolError("nfs: needs mounts and a network of its own (root, namespaces)")
        home = self.scratch.directory("ganesha")
        self.export = self.scratch.directory("nfs")
        (home / "recovery").mkdir()
        conf = home / "ganesha.conf"
        plugins = "/usr/lib/x86_64-linux-gnu/ganesha"
        conf.write_text(CONF.format(dir=home, path=self.export, pseudo=PSEUDO, plugins=plugins))
        self.scratch.spawn(["rpcbind", "-f"], self.role, log=home / "rpcbind.log")
        time.sleep(0.3)
        self.daemon = self.scratch.spawn(["ganesha.nfsd", "-F", "-f", str(conf), "-L", f"{home}/log", "-p", f"{home}/pid"], self.role, log=home / "out")
        deadline = time.monotonic() + READY_LIMIT_S
        probe = f"nfs://127.0.0.1{self.export}/probe.raw"
        while self.scratch.run(["qemu-img", "create", "-q", "-f", "raw", probe, "64k"], check=False, timeout=20).status != 0:
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                log = home / "log"
                raise ToolError(f"nfs: ganesha does not serve: {log.read_text()[-300:].strip() if log.exists() else ''}")
            time.sleep(0.3)

    def version(self) -> str:
        return self.scratch.run(["ganesha.nfsd", "-v"], check=False).out.split("\n")[0]

    def alive(self) -> str:
        return "nfs: ganesha ended" if self.started and self.daemon.poll() is not None else ""


class Nfs(DirectoryBackend):
    kind, title = "nfs", "NFS (Ganesha, libnfs client)"
    acknowledged, acknowledged_where = "cached", "in the server's hands, unstable in NFS' words; on its disk only after a commit"
    durable_fio = (FLUSH_EACH,)
    serves = ("disks",)

    def __init__(self, context: Context, copies: int) -> None:
        super().__init__(context, copies)
        self.service: GaneshaService = context.service(GaneshaService)

    @classmethod
    def missing(cls, config: Config) -> list[str]:
        problems = not_root("NFS on its own ports") + programs_missing({"ganesha.nfsd": "nfs-ganesha", "rpcbind": "rpcbind", "qemu-img": "qemu-utils"})
        plugins = Path("/usr/lib/x86_64-linux-gnu")
        if not (plugins / "ganesha" / "libfsalvfs.so").exists():
            problems.append("Ganesha's VFS plugin is not installed (Debian: nfs-ganesha-vfs)")
        if not (plugins / "qemu" / "block-nfs.so").exists():
            problems.append("QEMU's NFS client is not installed (Debian: qemu-block-extra)")
        return problems

    def start(self) -> None:
        self.service.start()

    def directory(self) -> Path:
        raise Unsupported("no mount: the kernel's NFS client is not used")

    def name_of(self, disk: Disk) -> str:
        return f"{self.service.export}/{disk.name}.{disk.format}"

    def location(self, disk: Disk) -> str:
        return f"nfs://127.0.0.1{self.name_of(disk)}"

    def remove(self, disk: Disk) -> None:
        """On the server: the client library that is here has no command for it."""
        os.unlink(self.name_of(disk))

    def fio(self, disk: Disk) -> list[str]:
        raise Unsupported("fio has no NFS engine here; disks go through QEMU's block layer")

    def protocol(self, disk: Disk) -> dict[str, Any]:
        return {"driver": "nfs", "server": {"type": "inet", "host": "127.0.0.1"}, "path": self.name_of(disk)}
