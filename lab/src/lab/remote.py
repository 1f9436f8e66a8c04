"""Programs on other machines over OpenSSH, so that none outlives the lab.

Vocabulary
    host      a machine that is reached by ssh; one connection (a master) carries all that is done there
    guard     a shell around each remote program: it ends the program when its standard input ends (the lab, or the connection,
              is gone) and when it hears nothing for SILENCE_S, which is how a network that died shows
    mark      LAB_MARK in the remote program's environment, as here: what is left can be found

Invariants: a guarded program and what it started are ended by SIGKILL when the lab ends in whatever way; nothing asks for a password;
an unknown host key is refused as ssh's own configuration says. Needs bash, setsid and grep on the other side, and nothing of the lab's.
"""

from __future__ import annotations

import secrets
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from lab.process import MARK, ROLE, Done, Scratch, ToolError, beating, kill_group, last_words

BEAT_S = 5.0
SILENCE_S = 30
CONNECT_LIMIT_S = 20.0
OPTIONS = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-T", "-a", "-x")
GUARD_WORD = "LAB_GUARD"

# $1 seconds of silence, $2 the guard's own word; the rest is the program. Job control gives the program a group of its own. What went
# out of the group is found by the word in its environment, and ends with the program.
GUARD = """set -m
silence=$1 word=$2; shift 2; exec 3<&0
env LAB_GUARD="$word" "$@" </dev/null 3<&- & child=$!
exec 2>/dev/null
{ while read -r -t "$silence" -u 3 _; do :; done; kill -9 -- -"$child"; } >/dev/null 2>&1 & watcher=$!
wait "$child"; status=$?
for p in $(grep -lzsxF "LAB_GUARD=$word" /proc/[0-9]*/environ | cut -d/ -f3); do kill -9 "$p"; done
kill -9 -- -"$watcher"
exit "$status"
"""


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
        for option in self.options:
            argv += ["-o", option]
        return [*argv, f"{self.user}@{self.address}" if self.user else self.address]


@dataclass
class Host:
    at: Address
    scratch: Scratch
    running: list["Session"] = field(default_factory=list)
    master: subprocess.Popen | None = None

    @property
    def name(self) -> str:
        return self.at.name

    @property
    def socket(self) -> Path:
        return self.scratch.path / f"ssh-{self.name}"

    def connect(self) -> None:
        log = self.scratch.path / f"ssh-{self.name}.log"
        self.master = self.scratch.spawn(self._ssh("-M", "-N"), "tool", log=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while not self.socket.exists():
            if self.master.poll() is not None or time.monotonic() > deadline:
                kill_group(self.master)
                raise ToolError(f"host {self.name} ({self.at.address}): {last_words(log.read_text(errors='replace')) or 'no connection'}")
            time.sleep(0.02)

    def _ssh(self, *options: str) -> list[str]:
        program, *rest = self.at.ssh()
        return [program, "-S", str(self.socket), *options, *rest]

    def argv(self, argv: list[str], role: str, env: dict[str, str] | None = None) -> list[str]:
        """The ssh command that runs the program under a guard."""
        given = [f"{k}={v}" for k, v in {MARK: self.scratch.mark, ROLE: role, **(env or {})}.items()]
        remote = ["bash", "-c", GUARD, "guard", str(SILENCE_S), secrets.token_hex(8), "env", *given, *argv]
        return [*self._ssh(), "--", shlex.join(remote)]

    def run(self, argv: list[str], timeout: float = 60, check: bool = True, role: str = "tool", env: dict[str, str] | None = None) -> Done:
        """As Scratch.run; the processor time is that of ssh and says nothing."""
        try:
            done = self.scratch.run(self.argv(argv, role, env), timeout, check=False, beat=BEAT_S)
        except ToolError as e:
            raise ToolError(f"host {self.name}: {shlex.join(argv[:4])}: {str(e).partition(': ')[2]}") from e
        if done.status == 255 and not done.out:
            raise ToolError(f"host {self.name} ({self.at.address}): {last_words(done.err) or 'the connection ended'}")
        if check and done.status != 0:
            raise ToolError(f"host {self.name}: {shlex.join(argv[:6])}: status {done.status}: {last_words(done.err or done.out)}")
        return Done(argv, done.status, done.out, done.err, done.seconds, 0.0)

    def start(self, argv: list[str], role: str, log: Path, env: dict[str, str] | None = None) -> "Session":
        session = Session(self.scratch.spawn(self.argv(argv, role, env), "tool", log=log, stdin=subprocess.PIPE), log)
        self.running.append(session)
        return session


class Session:
    """A remote program that goes on running; `close` ends it."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process, self.log = process, log
        beating(process, BEAT_S)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def close(self) -> None:
        if self.process.stdin:
            try:
                self.process.stdin.close()
            except OSError:
                pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            kill_group(self.process)
