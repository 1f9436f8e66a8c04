"""What a run makes on clusters that it did not start: written down before it is made, so that it can be found and removed when the
run could not do that itself.

Vocabulary
    stay     one thing on a cluster: a pool, or the images of one prefix in a pool that an operator named
    entry    a stay in a file of its own beside the scratch directories, `lab-cluster-MARK-N.json`

Invariants: an entry is there before its stay and goes after it; entries of a lab that lives are not touched by others. Removing asks
only what the cluster allows and never changes its settings.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Callable

from lab.process import ToolError, start_time

PREFIX = "lab-cluster-"
HOST_PREFIX = "lab-host-"


@dataclass(frozen=True)
class Stay:
    cluster: str  # path of its ceph.conf
    pool: str
    images: str  # prefix of image names; "" where the whole pool is the lab's
    ssh: tuple[str, ...] = ()  # how to reach the host that knows the cluster; empty: this one
    user: str = "admin"  # the client's name to it

    def command(self, program: str) -> list[str]:
        return [program, "-c", self.cluster, *(["--id", self.user] if self.user != "admin" else [])]

    @property
    def told(self) -> str:
        what = f"images {self.images}* of pool {self.pool}" if self.images else f"pool {self.pool}"
        return f"{what} on the cluster of {self.cluster}"

    @property
    def by_hand(self) -> str:
        """What an operator types to remove it."""
        if self.images:
            return f"{shlex.join(self.command('rbd'))} ls {self.pool} | grep '^{self.images}'   and, for each: {shlex.join(self.command('rbd'))} snap purge, rm"
        return (f"ceph -c {self.cluster} tell mon.\\* injectargs --mon_allow_pool_delete=true; "
                f"ceph -c {self.cluster} osd pool rm {self.pool} {self.pool} --yes-i-really-really-mean-it")


@dataclass(frozen=True)
class Entry:
    path: Path
    stay: Stay


def note(scratch: Path, mark: str, stay: Stay) -> Entry:
    """Before the stay is made."""
    number = len(list(scratch.parent.glob(f"{PREFIX}{mark}-*.json")))
    path = scratch.parent / f"{PREFIX}{mark}-{number}.json"
    owner = {"pid": os.getpid(), "started": start_time(os.getpid())}
    path.write_text(json.dumps({**owner, **asdict(stay)}) + "\n")
    return Entry(path, stay)


def abandoned(root: Path) -> list[Entry]:
    """Entries whose lab is gone."""
    found = []
    for path in sorted(root.glob(f"{PREFIX}*.json")):
        try:
            data = json.loads(path.read_text())
            owner, stay = (int(data.pop("pid")), data.pop("started")), Stay(**{**data, "ssh": tuple(data.get("ssh", ()))})
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if start_time(owner[0]) != owner[1]:
            found.append(Entry(path, stay))
    return found


Run = Callable[[list[str]], str]  # a command's output; ToolError where it fails


def remove(entry: Entry, run: Run) -> str:
    """Removes the stay and then its entry; or why not, and how to, as sentences."""
    stay = entry.stay
    try:
        _remove_images(stay, run)
        if not stay.images:
            run([*stay.command("ceph"), "osd", "pool", "rm", stay.pool, stay.pool, "--yes-i-really-really-mean-it"])
    except ToolError as e:
        if stay.pool not in _pools(stay, run):
            entry.path.unlink(missing_ok=True)
            return ""
        return f"{stay.told} could not be removed: {e}. `lab clean` tries again; by hand: {stay.by_hand}"
    entry.path.unlink(missing_ok=True)
    return ""


@dataclass(frozen=True)
class HostStay:
    """What a run has on a remote host: a directory, and processes with its mark."""

    name: str
    ssh: list[str]
    directory: str
    mark: str

    @property
    def told(self) -> str:
        return f"{self.directory} and processes of the run on host {self.name}"


@dataclass(frozen=True)
class HostEntry:
    path: Path
    stay: HostStay


PUTS_AWAY = "puts-away"  # the role of this script, which may run twice where a machine has two names
# $1: mark, then directories whose names end in it. Ends only what a guard started, for a host may be this machine, and not itself. What
# else was changed on the host stands as shell scripts `undo-*` in the directory, which are run once, and only where they are this user's own.
REMOVE_HOST = """mark=$1; shift
for again in 1 2; do
    for p in $(grep -lzsxF "LAB_MARK=$mark" /proc/[0-9]*/environ | cut -d/ -f3); do
        grep -qzsxF "LAB_ROLE=ROLE" "/proc/$p/environ" || { grep -qzsE "^LAB_GUARD=" "/proc/$p/environ" && kill -9 "$p"; }
    done
    sleep 0.1
done 2>/dev/null
for d in "$@"; do
    if [ -O "$d" ]; then
        for u in $(ls -r "$d" | grep '^undo-[a-z0-9-]*$'); do
            [ -O "$d/$u" ] && [ ! -h "$d/$u" ] && text=$(cat "$d/$u") && mv -- "$d/$u" "$d/$u.done" && timeout 30 sh -c "$text"
        done
    fi >/dev/null 2>&1
    case $d in */lab-"$mark") timeout 100 rm -rf --one-file-system -- "$d" || failed=1 ;; esac
done
exit "${failed:-0}"
""".replace("=ROLE", f"={PUTS_AWAY}")


def removal(mark: str, *directories: str) -> list[str]:
    """The command, on the host."""
    return ["sh", "-c", REMOVE_HOST, "sh", mark, *directories]


def note_host(scratch: Path, mark: str, stay: HostStay) -> HostEntry:
    number = len(list(scratch.parent.glob(f"{HOST_PREFIX}{mark}-*.json")))
    path = scratch.parent / f"{HOST_PREFIX}{mark}-{number}.json"
    owner = {"pid": os.getpid(), "started": start_time(os.getpid())}
    path.write_text(json.dumps({**owner, **asdict(stay)}) + "\n")
    return HostEntry(path, stay)


def abandoned_hosts(root: Path) -> list[HostEntry]:
    found = []
    for path in sorted(root.glob(f"{HOST_PREFIX}*.json")):
        try:
            data = json.loads(path.read_text())
            owner, stay = (int(data.pop("pid")), data.pop("started")), HostStay(**data)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if start_time(owner[0]) != owner[1]:
            found.append(HostEntry(path, stay))
    return found


def remove_host(entry: HostEntry, run: Run) -> str:
    """`run` takes a command for that host. Why it stayed, or ""."""
    stay = entry.stay
    if not stay.directory.endswith(f"/lab-{stay.mark}"):
        return f"{entry.path} names a directory that is not the lab's: {stay.directory}"
    try:
        run(removal(stay.mark, stay.directory))
    except ToolError as e:
        return f"{stay.told} could not be removed: {e}. `lab clean` tries again; by hand: {shlex.join(stay.ssh)} rm -rf {stay.directory}"
    entry.path.unlink(missing_ok=True)
    return ""


def over_ssh(ssh: Sequence[str], run: Run) -> Run:
    return lambda argv: run([*ssh, "--", shlex.join(argv)])


ANSWER_LIMIT_S = 15


def silent(entry: Entry, run: Run) -> str:
    """Why nothing can be removed now, where the cluster does not answer: its commands would wait for minutes each."""
    stay = entry.stay
    try:
        run([*stay.command("ceph"), "--connect-timeout", str(ANSWER_LIMIT_S), "status"])
    except ToolError as e:
        return f"{stay.told} may be there still: the cluster does not answer ({e}). `lab clean` tries again; where the cluster is gone for good: rm {entry.path}"
    return ""


def _pools(stay: Stay, run: Run) -> list[str]:
    """Of the cluster; where it does not answer, the stay's own, which then still counts as there."""
    try:
        return run([*stay.command("ceph"), "osd", "pool", "ls"]).split()
    except ToolError:
        return [stay.pool]


def _remove_images(stay: Stay, run: Run) -> None:
    """Clones before their parents: as often as something goes. Data goes this way where a cluster lets nobody delete pools."""
    rbd = stay.command("rbd")
    left = [n for n in run([*rbd, "ls", stay.pool]).split() if n.startswith(stay.images)]
    while left:
        stuck: list[tuple[str, ToolError]] = []
        for name in left:
            image = f"{stay.pool}/{name}"
            try:
                for snap in json.loads(run([*rbd, "snap", "ls", image, "--format", "json"]) or "[]"):
                    if snap.get("protected") == "true":
                        run([*rbd, "snap", "unprotect", f"{image}@{snap['name']}"])
                    run([*rbd, "snap", "rm", "--no-progress", f"{image}@{snap['name']}"])
                run([*rbd, "rm", "--no-progress", image])
            except ToolError as e:
                stuck.append((name, e))
        if len(stuck) == len(left):
            raise stuck[0][1]
        left = [name for name, _ in stuck]
