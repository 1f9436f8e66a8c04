"""Starting programs so that none outlives the run: every child carries a mark in its environment.

Vocabulary
    mark     a random word in LAB_MARK; daemons that fork away keep it, so /proc finds them
    role     LAB_ROLE, `server:ceph`, `client:gluster`, `load`, `tool`: whose processor time it is
    scratch  the run's directory of everything temporary; mounts and loop devices lie under it
    reaper   a process of its own that waits for the lab's end, however it comes, and sweeps

Invariants: `sweep` needs only the scratch directory and the mark, so a second process can do it after a SIGKILL; it may
be repeated. Output that is kept in memory is bounded. Does not know any program by name.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.link import inside

MARK = "LAB_MARK"
ROLE = "LAB_ROLE"
OWNER_FILE = "owner"
OUTPUT_LIMIT = 64 << 20  # of one program's output; what comes after is dropped
SWEEP_LIMIT_S = 20.0
CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_REC, MS_PRIVATE, MS_BIND = 0x4000, 1 << 18, 0x1000


class ToolError(Exception):
    """A program ended badly or took too long; the message has its command and its last words."""


@dataclass(frozen=True)
class Done:
    argv: list[str]
    status: int
    out: str
    err: str
    seconds: float
    cpu_s: float  # of the program and the children it waited for


def last_words(text: str, limit: int = 400) -> str:
    """The end of a program's complaint, on one line."""
    return " / ".join(line.strip() for line in text.strip().splitlines() if line.strip())[-limit:]


class Scratch:
    """The run's temporary directory and its processes. Use as a context manager."""

    def __init__(self, root: Path, env: dict[str, str] | None = None) -> None:
        self.mark = secrets.token_hex(6)
        root.mkdir(parents=True, exist_ok=True)
        self.path = Path(tempfile.mkdtemp(prefix="lab-", dir=root))
        os.chmod(self.path, 0o755)  # servers that drop their rights must pass through
        (self.path / OWNER_FILE).write_text(f"{os.getpid()} {start_time(os.getpid())} {self.mark}\n")
        self.env = {**os.environ, **(env or {}), MARK: self.mark, "TMPDIR": str(self.path)}
        self._pipe = self._start_reaper()
        self.closed = False

    def _start_reaper(self) -> int:
        read, write = os.pipe()
        env = {k: v for k, v in os.environ.items() if k != MARK}
        subprocess.Popen(
            [sys.executable, "-m", "lab.reaper", str(self.path), self.mark],
            stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=env, cwd="/",
        )
        os.close(read)
        return write

    def spawn(self, argv: list[str], role: str, log: Path | None = None, env: dict[str, str] | None = None, **more: object) -> subprocess.Popen:
        """Starts a program that goes on running; its output goes to `log`."""
        with open(log or os.devnull, "ab") as out:
            more.setdefault("stdin", subprocess.DEVNULL)
            more.setdefault("stdout", out)
            more.setdefault("stderr", subprocess.STDOUT if "stderr" not in more else more["stderr"])
            return subprocess.Popen(argv, env={**self.env, **(env or {}), ROLE: role}, start_new_session=True, **more)  # type: ignore[call-overload]

    def run(self, argv: list[str], timeout: float = 60, check: bool = True, role: str = "tool", env: dict[str, str] | None = None, input: bytes | None = None,
            beat: float = 0.0) -> Done:
        """Runs a program to its end; beyond `timeout` it and its children are killed. `beat`: its standard input stays open, with a line
        every so many seconds, until it ends."""
        started = time.monotonic()
        with tempfile.TemporaryFile(dir=self.path) as out, tempfile.TemporaryFile(dir=self.path) as err:
            try:
                process = self.spawn(argv, role, env=env, stdout=out, stderr=err, stdin=subprocess.PIPE if input is not None or beat else subprocess.DEVNULL)
            except FileNotFoundError as e:
                raise ToolError(f"{argv[0]}: no such program") from e
            try:
                if input is not None:
                    process.stdin.write(input)
                    process.stdin.close()
                if beat:
                    beating(process, beat)
                status, usage = wait_with_usage(process, timeout)
            except BaseException:
                kill_group(process)
                raise
            seconds = time.monotonic() - started
            if beat:
                process.stdin.close()
            texts = []
            for f in (out, err):
                f.seek(0)
                texts.append(f.read(OUTPUT_LIMIT).decode("utf-8", "replace"))
        if status is None:
            raise ToolError(f"{' '.join(argv[:4])}: no end within {timeout:.0f} s: {last_words(texts[1] or texts[0])}")
        done = Done(argv, status, texts[0], texts[1], seconds, usage.ru_utime + usage.ru_stime if usage else 0.0)
        if check and status != 0:
            raise ToolError(f"{' '.join(argv[:6])}: status {status}: {last_words(done.err or done.out)}")
        return done

    @contextlib.contextmanager
    def link(self, ms: float) -> Iterator[list[str]]:
        """A network for clients at that distance from everything here; what their commands begin with."""
        process = self.spawn([sys.executable, "-m", "lab.link", str(ms)], "link", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            if process.stdout.readline() != b"ready\n":  # type: ignore[union-attr]
                raise ToolError(f"no slow network: {last_words(process.stderr.read().decode('utf-8', 'replace'))}")  # type: ignore[union-attr]
            yield inside(process.pid)
        finally:
            kill_group(process)

    def directory(self, name: str) -> Path:
        path = self.path / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            sweep(self.path, self.mark)
            os.close(self._pipe)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def beating(process: subprocess.Popen, seconds: float) -> None:
    """A line on its standard input every few seconds, as long as it runs: the lab lives."""

    def beat() -> None:
        while process.returncode is None:
            try:
                os.write(process.stdin.fileno(), b"\n")  # type: ignore[union-attr]
            except (OSError, ValueError):
                return
            ended = time.monotonic() + seconds
            while process.returncode is None and time.monotonic() < ended:
                time.sleep(0.1)

    threading.Thread(target=beat, daemon=True, name="beat").start()


def wait_with_usage(process: subprocess.Popen, timeout: float) -> tuple[int | None, resource.struct_rusage | None]:
    """(exit status, usage), or (None, None) after killing a program that took too long."""
    fd = os.pidfd_open(process.pid)
    try:
        ready, _, _ = select.select([fd], [], [], timeout)
    finally:
        os.close(fd)
    if not ready:
        kill_group(process)
        return None, None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage


def kill_group(process: subprocess.Popen) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if process.returncode is None:
        process.wait()


def run_plainly(argv: list[str], timeout: float = 600) -> str:
    """A program's output, outside of any run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except FileNotFoundError as e:
        raise ToolError(f"{argv[0]}: no such program") from e
    except subprocess.TimeoutExpired as e:
        raise ToolError(f"{' '.join(argv[:4])}: no end within {timeout:.0f} s") from e
    if done.returncode != 0:
        raise ToolError(f"{' '.join(argv[:6])}: status {done.returncode}: {last_words(done.stderr or done.stdout)}")
    return done.stdout


# --- isolation ------------------------------------------------------------------------------------------------


PRIVATE = ("/run", "/var/lib/glusterd", "/var/log/glusterfs")  # fixed places of servers' state, sockets and logs
MADE = ("/run/lock", "/run/gluster", "/run/rpcbind", "/run/ganesha")  # directories that servers expect


def isolate(scratch: Scratch, network: bool) -> str:
    """Gives this process and its children their own mounts (and network, with only loopback): servers with fixed ports
    and fixed paths meet no others, and mounts end with the last process. PRIVATE directories are replaced by empty
    ones. Returns why it could not, or ""."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS | (CLONE_NEWNET if network else 0)) != 0:
        return f"no namespaces of its own: {os.strerror(ctypes.get_errno())}"
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return f"mounts stay shared: {os.strerror(ctypes.get_errno())}"
    for target in PRIVATE:
        if Path(target).is_dir():
            _replace(libc, scratch, target)
    if network:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # No name server can be reached from here: clients that look a name up must not wait for one.
        empty = scratch.path / "resolv.conf"
        empty.write_text("options timeout:1 attempts:1\n")
        if Path("/etc/resolv.conf").exists():
            bind_file(empty, "/etc/resolv.conf")
    return ""


def _replace(libc: ctypes.CDLL, scratch: Scratch, target: str) -> None:
    """An empty directory in the target's place. Nothing of the host's is ever mounted below the scratch directory,
    which `sweep` deletes."""
    source = scratch.directory(f"private{target}")
    shutil.copymode(target, source)
    for path in MADE:
        if Path(path).is_relative_to(target):
            (source / Path(path).relative_to(target)).mkdir(parents=True)
    libc.mount(str(source).encode(), target.encode(), None, MS_BIND, None)


def bind_file(source: Path, target: str) -> None:
    """Puts a file in another's place, within the isolated mounts only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(str(source).encode(), target.encode(), None, MS_BIND, None) != 0:
        raise ToolError(f"{target}: {os.strerror(ctypes.get_errno())}")


# --- finding and ending what is left -----------------------------------------------------------------------------


def start_time(pid: int) -> str:
    """A pid's start time, which tells it from a later process of the same number; "" where there is none."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def marked(mark: str, role: str = "") -> list[int]:
    """Pids of the processes that carry the mark (and the role, or roles that begin so with a colon at the end)."""
    want = f"{MARK}={mark}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            with open(f"/proc/{entry}/environ", "rb") as f:
                environment = f.read().split(b"\0")
        except OSError:
            continue
        if want in environment and (not role or _has_role(environment, role.encode())):
            found.append(int(entry))
    return found


def _has_role(environment: list[bytes], role: bytes) -> bool:
    for item in environment:
        if item.startswith(b"LAB_ROLE="):
            have = item[len(b"LAB_ROLE="):]
            return have.startswith(role) if role.endswith(b":") else have == role
    return False


def sweep(scratch: Path, mark: str) -> None:
    """Ends the marked processes, unmounts, detaches, deletes."""
    deadline = time.monotonic() + SWEEP_LIMIT_S
    empty = 0
    # Twice, because a process in the middle of its exec has no environment that could be read.
    while empty < 2 and time.monotonic() < deadline:
        pids = [p for p in marked(mark) if p != os.getpid() and not is_zombie(p)]
        empty = 0 if pids else empty + 1
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        _reap_children()
        time.sleep(0.02)
    for target in reversed(mounts_under(scratch)):
        subprocess.run(["umount", "-l", target], stderr=subprocess.DEVNULL)
    for name in device_maps(f"lab{mark}"):
        subprocess.run(["dmsetup", "remove", "--force", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for device in loops_under(scratch):
        subprocess.run(["losetup", "-d", device], stderr=subprocess.DEVNULL)
    if not mounts_under(scratch):  # never delete what is somebody else's, through a mount that stayed
        shutil.rmtree(scratch, ignore_errors=True)


def _reap_children() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except (OSError, IndexError):
        return True


def mounts_under(path: Path) -> list[str]:
    with open("/proc/self/mountinfo") as f:
        points = [line.split()[4].encode().decode("unicode_escape") for line in f]
    return [p for p in points if p == str(path) or p.startswith(f"{path}/")]


def loops_under(path: Path) -> list[str]:
    found = []
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            if backing.read_text().startswith(f"{path}/"):
                found.append(f"/dev/{backing.parent.parent.name}")
        except OSError:
            pass
    return found


def device_maps(prefix: str) -> list[str]:
    """Device-mapper volumes of that prefix, the youngest first: those stand on the older ones."""
    names = []
    for path in sorted(Path("/sys/block").glob("dm-*/dm/name"), key=lambda p: -int(p.parent.parent.name[3:])):
        try:
            names.append(path.read_text().strip())
        except OSError:
            pass
    return [n for n in names if n.startswith(prefix)]


def abandoned(root: Path) -> list[tuple[Path, str]]:
    """Scratch directories whose lab is gone: (directory, mark)."""
    found = []
    for owner in sorted(root.glob(f"lab-*/{OWNER_FILE}")):
        try:
            pid, started, mark = owner.read_text().split()
        except (OSError, ValueError):
            continue
        if start_time(int(pid)) != started:
            found.append((owner.parent, mark))
    return found
