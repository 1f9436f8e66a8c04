"""Programs on other machines over OpenSSH, so that none outlives the lab.

Vocabulary
    host      a machine that is reached by ssh; one connection (a master) carries all that is done there
    guard     a shell around each remote program: it ends the program when its standard input ends (the lab, or the connection,
              is gone) and when it hears nothing for SILENCE_S, which is how a network that died shows
    after     a shell script that the guard runs once its program has ended, in whatever way: what the program made is taken back
    mark      LAB_MARK in the remote program's environment, as here: what is left can be found
    lost      a host whose connection ended by itself: what is asked of it fails at once, until `again`

Invariants: a guarded program and what it started are ended by SIGKILL when the lab ends in whatever way; nothing asks for a password;
an unknown host key is refused, whatever ~/.ssh/config says, unless the site's own options say `accept-new`. At most SESSIONS_MAX programs
run over one connection (sshd's own bound is 10), at most PARALLEL hosts are asked at the same time. Needs bash, setsid, timeout and grep
on the other side, and nothing of the lab's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from lab.process import MARK, ROLE, Done, Scratch, ToolError, beating, kill_group, last_words

BEAT_S = 5.0
SILENCE_S = 30
CONNECT_LIMIT_S = 20.0
SESSIONS_MAX = 9
SESSION_WAIT_S = 120.0  # for one of them to end
PARALLEL = 16
AFTER_LIMIT_S = 60
CLOSE_LIMIT_S = 10.0
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-T", "-a", "-x")
GUARD_WORD = "LAB_GUARD"

# $1 seconds of silence, $2 the guard's own word, $3 what is run after; the rest is the program. Job control gives the program a group of its own. What went
# out of the group is found by the word in its environment, and ends with the program. With job control `wait` returns for a program that was stopped
# as well, which is no end of it.
GUARD = """set -m
silence=$1 word=$2 after=$3; shift 3; exec 3<&0
env LAB_GUARD="$word" "$@" </dev/null 3<&- & child=$!
exec 2>/dev/null
{ while read -r -t "$silence" -u 3 _; do :; done; kill -9 -- -"$child"; } >/dev/null 2>&1 & watcher=$!
wait "$child"; status=$?
while kill -0 "$child"; do sleep 0.1; wait "$child"; status=$?; done
for p in $(grep -lzsxF "LAB_GUARD=$word" /proc/[0-9]*/environ | cut -d/ -f3); do kill -9 "$p"; done
kill -9 -- -"$watcher"
[ -z "$after" ] || timeout -k 1 LIMIT sh -c "$after" </dev/null >/dev/null 2>&1
exit "$status"
""".replace("LIMIT", str(AFTER_LIMIT_S))

T, R = TypeVar("T"), TypeVar("R")


def each(items: Sequence[T], do: Callable[[T], R]) -> list[R | ToolError]:
    """`do` of all of them, PARALLEL at a time; a ToolError stands where one failed."""

    def one(item: T) -> R | ToolError:
        try:
            return do(item)
        except ToolError as e:
            return e

    with ThreadPoolExecutor(max(1, min(PARALLEL, len(items)))) as pool:
        return list(pool.map(one, items))


def every(items: Sequence[T], do: Callable[[T], R]) -> list[R]:
    """The same; where some failed, all of their errors in one."""
    found = each(items, do)
    if errors := [str(e) for e in found if isinstance(e, ToolError)]:
        raise ToolError("; ".join(errors))
    return found  # type: ignore[return-value]


@dataclass(frozen=True)
class Address:
    name: str
    address: str
    user: str = ""
    port: int = 0
    identity: str = ""
    options: tuple[str, ...] = ()

    def ssh(self) -> list[str]:
        """Without a master: for whoever comes later."""
        argv = ["ssh", *OPTIONS]
        argv += ["-p", str(self.port)] if self.port else []
        argv += ["-i", self.identity, "-o", "IdentitiesOnly=yes"] if self.identity else []
        for option in (*self.options, "StrictHostKeyChecking=yes"):  # ssh takes the first of a name
            argv += ["-o", option]
        return [*argv, f"{self.user}@{self.address}" if self.user else self.address]


@dataclass
class Host:
    at: Address
    scratch: Scratch
    master: subprocess.Popen | None = None
    places: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(SESSIONS_MAX))

    @property
    def name(self) -> str:
        return self.at.name

    @property
    def socket(self) -> Path:
        return self.scratch.path / f"ssh-{self.name}"

    @property
    def log(self) -> Path:
        return self.scratch.path / f"ssh-{self.name}.log"

    @property
    def lost(self) -> str:
        """Why nothing can be asked of it, or ""."""
        if self.master is None:
            return "not connected"
        if self.master.poll() is None:
            return ""
        return f"the connection ended{': ' + said if (said := last_words(self._said())) else ''}"

    def _said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def connect(self) -> None:
        self.log.unlink(missing_ok=True)
        self.master = self.scratch.spawn(self._ssh("-M", "-N"), "tool", log=self.log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while not self.socket.exists():
            if self.master.poll() is not None or time.monotonic() > deadline:
                kill_group(self.master)
                raise ToolError(f"host {self.name} ({self.at.address}): {last_words(self._said()) or 'no connection'}")
            time.sleep(0.02)

    def again(self) -> None:
        """One more try, where the connection ended."""
        if self.lost:
            self.socket.unlink(missing_ok=True)
            self.connect()

    def _ssh(self, *options: str) -> list[str]:
        program, *rest = self.at.ssh()
        return [program, "-S", str(self.socket), *options, *rest]

    def argv(self, argv: list[str], role: str, env: dict[str, str] | None = None, after: str = "") -> list[str]:
        """The ssh command that runs the program under a guard."""
        given = [f"{k}={v}" for k, v in {MARK: self.scratch.mark, ROLE: role, **(env or {})}.items()]
        remote = ["bash", "-c", GUARD, "guard", str(SILENCE_S), secrets.token_hex(8), after, "env", *given, *argv]
        return [*self._ssh(), "--", shlex.join(remote)]

    def _here(self) -> None:
        if why := self.lost:
            raise ToolError(f"host {self.name} ({self.at.address}): {why}")

    def run(self, argv: list[str], timeout: float = 60, check: bool = True, role: str = "tool", env: dict[str, str] | None = None) -> Done:
        """As Scratch.run; the processor time is that of ssh and says nothing."""
        self._here()
        if not self.places.acquire(timeout=SESSION_WAIT_S):
            raise ToolError(f"host {self.name}: {SESSIONS_MAX} programs run there, and none ended within {SESSION_WAIT_S:.0f} s")
        try:
            done = self.scratch.run(self.argv(argv, role, env), timeout, check=False, beat=BEAT_S)
        except ToolError as e:
            raise ToolError(f"host {self.name}: {shown(argv)}: {str(e).partition(': ')[2]}") from e
        finally:
            self.places.release()
        if done.status == 255 and not done.out:
            raise ToolError(f"host {self.name} ({self.at.address}): {last_words(done.err) or self.lost or 'the connection ended'}")
        if check and done.status != 0:
            raise ToolError(f"host {self.name}: {shown(argv)}: status {done.status}: {last_words(done.err or done.out)}")
        return Done(argv, done.status, done.out, done.err, done.seconds, 0.0)

    def put(self, path: str, data: bytes, mode: str = "600", timeout: float = 60) -> None:
        """A file's content; its bytes are in no command line. Its directory is there."""
        self._here()
        script = 'umask 077; cat >"$1" && chmod "$2" "$1"'
        done = self.scratch.run([*self._ssh(), "--", shlex.join(["sh", "-c", script, "sh", path, mode])], timeout, check=False, input=data)
        if done.status != 0:
            raise ToolError(f"host {self.name}: {path}: {last_words(done.err) or 'the connection ended'}")

    @contextlib.contextmanager
    def talk(self, argv: list[str]) -> Iterator[Callable[[float], str]]:
        """A short program that answers a line with a line; no guard, it ends with its input."""
        self._here()
        process = self.scratch.spawn([*self._ssh(), "--", shlex.join(argv)], "tool", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

        def ask(limit: float) -> str:
            try:
                os.write(process.stdin.fileno(), b"\n")
            except OSError:
                pass  # it ended, which its silence says
            said, deadline = b"", time.monotonic() + limit
            while not said.endswith(b"\n"):
                ready, _, _ = select.select([process.stdout], [], [], max(0.0, deadline - time.monotonic()))
                part = os.read(process.stdout.fileno(), 4096) if ready else b""
                if not part:
                    raise ToolError(f"host {self.name} ({self.at.address}): {self.lost or f'no answer within {limit:.0f} s'}")
                said += part
            return said.decode(errors="replace").strip()

        try:
            yield ask
        finally:
            kill_group(process)
            for pipe in (process.stdin, process.stdout):
                pipe.close()

    def start(self, argv: list[str], role: str, log: Path, env: dict[str, str] | None = None, after: str = "", piped: bool = False) -> "Session":
        """`piped`: the output is read from `Session.process.stdout`, and not kept."""
        self._here()
        if not self.places.acquire(blocking=False):
            raise ToolError(f"host {self.name}: {SESSIONS_MAX} programs run there already")
        more: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL} if piped else {}
        return Session(self.scratch.spawn(self.argv(argv, role, env, after), "tool", log=log, stdin=subprocess.PIPE, **more), log, self.places)


def shown(argv: list[str], words: int = 6, letters: int = 60) -> str:
    """A command for messages: scripts in it are cut."""
    short = [w.split("\n")[0][:letters] + "..." if "\n" in w or len(w) > letters else w for w in argv[:words]]
    return shlex.join(short)


class Session:
    """A remote program that goes on running; `close` ends it."""

    def __init__(self, process: subprocess.Popen, log: Path, places: threading.BoundedSemaphore) -> None:
        self.process, self.log, self.places, self.closed = process, log, places, False
        beating(process, BEAT_S)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait_for(self, text: str, limit: float, what: str) -> None:
        deadline = time.monotonic() + limit
        while text not in self.said():
            if self.process.poll() is not None:
                raise ToolError(f"{what} ended with status {self.process.returncode}: {self.said()[-300:].strip()}")
            if time.monotonic() > deadline:
                raise ToolError(f"{what} did not say {text!r} within {limit:g} s: {self.said()[-300:].strip()}")
            time.sleep(0.05)

    def close(self, limit: float = CLOSE_LIMIT_S) -> None:
        """Also waits for what is run after."""
        if self.closed:
            return
        self.closed = True
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            kill_group(self.process)
        self.places.release()
