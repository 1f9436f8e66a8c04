"""What the failure study strikes and loads: here, or on a site's hosts.

Vocabulary
    victim    the server that is killed or hangs; `strike` and `restore_service` say when that was, in time.time() of this machine
    load      the fio that writes meanwhile, and the log of its completions; `ahead`: its clock against this machine's, in seconds

Invariant: whatever went wrong, `restore` leaves no server stopped (SIGSTOP), and a load ends with its `with`.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

from lab.backends import Backend
from lab.backends.base import hang, wake
from lab.process import Scratch, ToolError, kill_group

if TYPE_CHECKING:
    from lab.site import Site

STUCK = "the client's I/O did not go on after the server's return"
LOAD = "load of failure"
# $1 a directory of its own, then fio: in the end its output and its log lie there.
LOAD_THERE = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'


class Victim(ABC):
    def __init__(self, fault: str) -> None:
        if fault not in ("kill", "hang"):
            raise ValueError(f"no fault {fault}")
        self.fault = fault

    @abstractmethod
    def strike(self) -> float: ...

    @abstractmethod
    def restore_service(self) -> float: ...

    @abstractmethod
    def restore(self) -> None: ...


class VictimHere(Victim):
    def __init__(self, backend: Backend, fault: str) -> None:
        super().__init__(fault)
        self.backend, self.pid = backend, 0

    def strike(self) -> float:
        self.pid = self.backend.victim()
        at = time.time()
        if self.fault == "kill":
            os.kill(self.pid, signal.SIGKILL)
        else:
            hang(self.pid)
        return at

    def restore_service(self) -> float:
        at = time.time()
        if self.fault == "kill":
            self.backend.revive()
        else:
            wake(self.pid)
        return at

    def restore(self) -> None:
        if self.pid and self.fault == "hang":
            try:
                wake(self.pid)
            except ProcessLookupError:
                pass


class VictimThere(Victim):
    def __init__(self, site: Site, name: str, fault: str) -> None:
        super().__init__(fault)
        self.site, self.name, self.struck = site, name, False

    def strike(self) -> float:
        self.struck = True  # before: a half-made one is taken back, too
        return self.site.signal(self.name, "KILL" if self.fault == "kill" else "STOP")

    def restore_service(self) -> float:
        if self.fault == "hang":
            at = self.site.signal(self.name, "CONT")
        else:
            at = time.time()
            self.site.begin_again(self.name)
        self.struck = False
        return at

    def restore(self) -> None:
        if not self.struck:
            return
        if self.fault == "hang":
            self.site.signal(self.name, "CONT")
        elif self.site.sessions[self.name].process.poll() is not None:
            self.site.begin_again(self.name)


class LoadHere:
    ahead = 0.0

    def __init__(self, scratch: Scratch, name: str, argv: list[str], env: dict[str, str]) -> None:
        self.directory: Path = scratch.directory(name)
        self.process = scratch.spawn([*argv, f"--write_lat_log={self.directory}/log", f"--output={self.directory}/out"], "load", log=self.directory / "messages", env=env)

    def status(self) -> int | None:
        return self.process.poll()

    def end(self, limit: float) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired as e:
            raise ToolError(STUCK) from e

    def results(self) -> tuple[str, str]:
        """(log of completions, fio's output)"""
        found = next(self.directory.glob("log_clat.*.log")).read_text(), (self.directory / "out").read_text()
        for path in self.directory.iterdir():
            path.unlink()
        return found

    def __enter__(self) -> LoadHere:
        return self

    def __exit__(self, *_: object) -> None:
        kill_group(self.process)


class LoadThere:
    """On the first client."""

    def __init__(self, site: Site, argv: list[str], env: dict[str, str]) -> None:
        client = site.file.clients[0].at.name
        self.site, self.host, self.ahead = site, site.hosts[client], site.clocks[client].ahead
        self.directory = f"{site.directory}/failure-{secrets.token_hex(4)}"
        words = [f"{k}={v}" for k, v in env.items()]
        # SIGINT, which a shell in the background lets its programs ignore, is what ends fio with its report.
        program = ["env", "--default-signal=INT", *words, "sh", "-c", LOAD_THERE, "sh", self.directory, *argv, "--write_lat_log=log", "--output=out"]
        self.session = site.begin(LOAD, client, program, "load", "", 0)

    def status(self) -> int | None:
        return self.session.process.poll()

    def end(self, limit: float) -> None:
        if self.session.process.poll() is None:
            with contextlib.suppress(ToolError):  # it has ended meanwhile, or its host is gone, which the wait shows
                self.site.signal(LOAD, "INT")
        try:
            self.session.process.wait(limit)
        except subprocess.TimeoutExpired as e:
            raise ToolError(STUCK) from e

    def results(self) -> tuple[str, str]:
        log = self.host.run(["sh", "-c", f"cat {shlex.quote(self.directory)}/log_clat.*.log"]).out
        return log, self.host.run(["cat", f"{self.directory}/out"]).out

    def __enter__(self) -> LoadThere:
        return self

    def __exit__(self, *_: object) -> None:
        self.site.finish(LOAD)
        if not self.host.lost:
            self.host.run(["rm", "-rf", "--", self.directory], check=False)
