"""A disk of any format on any back end, as QEMU reads and writes it, made reachable for fio: qemu-storage-daemon with an
NBD export on a Unix socket. The same client path for all formats, without a guest."""

from __future__ import annotations

import json
import secrets
import time
from pathlib import Path

from lab.backends.base import Backend, Disk, ToolError
from lab.process import kill_group, last_words

READY_LIMIT_S = 30.0


class Export:
    def __init__(self, backend: Backend, disk: Disk) -> None:
        self.backend, self.disk = backend, disk
        self.scratch = backend.scratch
        word = secrets.token_hex(4)
        self.socket = self.scratch.path / f"nbd-{word}"
        self.log = self.scratch.path / f"qsd-{word}.log"

    def __enter__(self) -> Export:
        node = self.backend.blockdev(self.disk, "disk0")
        argv = ["qemu-storage-daemon", "--blockdev", json.dumps(node),
                "--nbd-server", f"addr.type=unix,addr.path={self.socket}",
                "--export", "type=nbd,id=export0,node-name=disk0,name=disk0,writable=on"]
        self.process = self.scratch.spawn(argv, f"client:{self.backend.name}", log=self.log, env=self.backend.client_env())
        deadline = time.monotonic() + READY_LIMIT_S
        while not self.socket.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ToolError(f"qemu-storage-daemon: {last_words(self.log.read_text())}")
            time.sleep(0.01)
        return self

    def fio(self) -> list[str]:
        return ["--ioengine=nbd", f"--uri=nbd+unix:///disk0?socket={self.socket}"]

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(10)
        except Exception:
            kill_group(self.process)
        for path in (self.socket, self.log):
            Path(path).unlink(missing_ok=True)

    def __exit__(self, *_: object) -> None:
        self.close()
