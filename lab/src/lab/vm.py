"""A virtual machine: a QEMU process driven over QMP, whose serial lines are kept with their time of arrival."""

from __future__ import annotations

import json
import secrets
import subprocess
import threading
import time
from typing import Any

from qemu.qmp.legacy import QEMUMonitorProtocol

from lab.guest import GuestImage
from lab.process import Scratch, ToolError, kill_group, last_words

QMP_LIMIT_S = 30.0
LINES_MAX = 100_000  # of one guest; a guest that says more is stopped


class Machine:
    """`node` is the disk, as QEMU's block layer names it: Backend.blockdev. A context manager: no way out leaves QEMU behind."""

    def __init__(self, scratch: Scratch, image: GuestImage, accel: str, memory: int, node: dict[str, Any], do: str = "", fio: str = "",
                 env: dict[str, str] | None = None, incoming: str = "", role: str = "load") -> None:
        word = secrets.token_hex(4)
        self.scratch, self.env, self.role = scratch, env or {}, role
        self.socket = scratch.path / f"qmp-{word}"
        self.log = scratch.path / f"qemu-{word}.log"
        append = f"console=ttyS0 quiet panic=-1 tsc=unstable lab.do={do} lab.fio={fio}"
        self.argv = ["qemu-system-x86_64", "-accel", accel, "-cpu", "host" if accel == "kvm" else "max", "-m", str(memory >> 20),
                     "-nodefaults", "-display", "none", "-no-reboot", "-kernel", str(image.kernel), "-initrd", str(image.initrd), "-append", append,
                     "-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
                     "-qmp", f"unix:{self.socket},server=on,wait=off",
                     "-blockdev", json.dumps(node), "-device", f"virtio-blk-pci,drive={node['node-name']},id=vda"]
        if incoming:
            self.argv += ["-incoming", incoming]
        self.lines: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._monitor: QEMUMonitorProtocol | None = None
        self.process = None
        self.started = 0.0

    def start(self) -> None:
        self.started = time.monotonic()
        with open(self.log, "ab") as log:
            self.process = self.scratch.spawn(self.argv, self.role, env=self.env, stdout=subprocess.PIPE, stderr=log)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            with self._news:
                if len(self.lines) < LINES_MAX:
                    self.lines.append((time.monotonic(), line.decode("utf-8", "replace").rstrip("\r\n")))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    _ended = False

    def wait_for(self, text: str, limit: float) -> tuple[float, str]:
        """(seconds since start, line) of the first serial line with the text."""
        deadline = time.monotonic() + limit
        seen = 0
        with self._news:
            while True:
                for at, line in self.lines[seen:]:
                    if text in line:
                        return at - self.started, line[line.index(text):]
                    if "LAB failed" in line or "Kernel panic" in line:
                        raise ToolError(f"the guest: {line.strip()}")
                seen = len(self.lines)
                if self._ended:
                    raise ToolError(f"the guest ended before {text!r}: {self._complaint()}")
                rest = deadline - time.monotonic()
                if rest <= 0:
                    raise ToolError(f"the guest did not say {text!r} within {limit:.0f} s: {self._complaint()}")
                self._news.wait(rest)

    def _complaint(self) -> str:
        return last_words(self.log.read_text(errors="replace")) or last_words("\n".join(line for _, line in self.lines[-3:])) or "it said nothing"

    def between(self, begin: str, end: str) -> str:
        """The serial lines between two marks."""
        lines = [line for _, line in self.lines]
        first = next(i for i, line in enumerate(lines) if begin in line)
        last = next(i for i, line in enumerate(lines) if end in line)
        return "\n".join(lines[first + 1:last])

    def qmp(self, command: str, **arguments: Any) -> Any:
        if self._monitor is None:
            self._monitor = connect(str(self.socket), self.process)
        return self._monitor.cmd(command, **arguments)

    def wait(self, limit: float) -> None:
        """Until the guest has powered off."""
        try:
            self.process.wait(limit)
        except Exception as e:
            raise ToolError(f"QEMU did not end within {limit:.0f} s") from e

    def stop(self) -> None:
        """Ends QEMU by its monitor, as a cloud does; by force if it does not hear."""
        if self.process is None:
            return
        try:
            if self.process.poll() is None:
                self.qmp("quit")
                self.process.wait(QMP_LIMIT_S)
        except Exception:
            pass
        if self.process.poll() is None:
            kill_group(self.process)
        if self._monitor is not None:
            try:
                self._monitor.close()
            except Exception:
                pass
            self._monitor = None
        self._reader.join(5)
        self.process.stdout.close()
        self.socket.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        self.process = None

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def connect(path: str, process: subprocess.Popen | None = None) -> QEMUMonitorProtocol:
    """Until it answers, or the process whose monitor it is has ended: a guest that powers off takes its monitor along."""
    deadline = time.monotonic() + QMP_LIMIT_S
    while True:
        monitor = QEMUMonitorProtocol(path)
        try:
            monitor.connect()
            return monitor
        except Exception as e:
            if process is not None and process.poll() is not None:
                raise ToolError("QEMU has ended") from e
            if time.monotonic() > deadline:
                raise ToolError(f"QEMU's monitor does not answer: {e}") from e
            time.sleep(0.02)
