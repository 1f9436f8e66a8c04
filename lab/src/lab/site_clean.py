"""`lab clean --site`: what runs of labs that are gone left on a site's hosts, also of labs on other machines.

A run is taken for gone where its directory, or processes under its mark, are on a host while no host of the site has its anchor (lab.site):
a lab that lives holds one on every host of its site, and one whose network died loses it within SILENCE_S. Directories of other users, and
those that no lab held, are left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from lab import ledger
from lab.process import ToolError
from lab.remote import each
from lab.site_file import SiteFile, SiteHost

ANSWER_LIMIT_S = 40.0
# $1 directory. A line for each of this user's directories that an anchor made, and for each guarded process of a run: its role and mark.
LOOK = """for d in "$1"/lab-*; do [ -O "$d" ] && [ ! -h "$d" ] && [ -f "$d/held-for" ] && echo "directory ${d##*/lab-}"; done
for f in $(grep -lzsE "^LAB_GUARD=" /proc/[0-9]*/environ); do
    mark=$(tr '\\0' '\\n' <"$f" | sed -n 's/^LAB_MARK=//p') role=$(tr '\\0' '\\n' <"$f" | sed -n 's/^LAB_ROLE=//p')
    [ -z "$mark" ] || echo "${role:-none} $mark"
done 2>/dev/null
echo looked
"""
MARK = re.compile(r"[0-9a-f]{12}")
Ask = Callable[[SiteHost, list[str]], str]  # a command's output on a host, or ToolError


@dataclass(frozen=True)
class Left:
    removed: list[str]
    stayed: list[str]


def clean(file: SiteFile, ask: Ask) -> Left:
    seen = each(file.hosts, lambda h: _look(ask(h, ["sh", "-c", LOOK, "sh", file.directory])))
    silent = [f"host {h.at.name} does not answer, and may have more: {e}" for h, e in zip(file.hosts, seen) if isinstance(e, ToolError)]
    answered = [(h, s) for h, s in zip(file.hosts, seen) if not isinstance(s, ToolError)]
    living = {mark for _, found in answered for kind, mark in found if kind == "anchor"}
    work = [(h, mark) for h, found in answered for mark in dict.fromkeys(m for _, m in found) if mark not in living]
    done = each(work, lambda w: ask(w[0], ledger.removal(w[1], *_directories(file, w[0], w[1]))))
    removed = [_told(file, h, mark) for (h, mark), d in zip(work, done) if not isinstance(d, ToolError)]
    stayed = [f"{_told(file, h, mark)} could not be removed: {d}" for (h, mark), d in zip(work, done) if isinstance(d, ToolError)]
    return Left(removed, [*stayed, *silent])


def _look(said: str) -> list[tuple[str, str]]:
    """(role or `directory`, mark)"""
    lines = said.splitlines()
    if "looked" not in lines:
        raise ToolError("no whole answer")
    return [(kind, mark) for kind, _, mark in (line.partition(" ") for line in lines) if MARK.fullmatch(mark)]


def _directories(file: SiteFile, h: SiteHost, mark: str) -> list[str]:
    """Also of mounted storage, from the first client: of a run that is gone."""
    mounted = [f"{file.mount.rstrip('/')}/lab-{mark}"] if file.mount and h is file.clients[0] else []
    return [f"{file.directory}/lab-{mark}", *mounted]


def _told(file: SiteFile, h: SiteHost, mark: str) -> str:
    return f"{file.directory}/lab-{mark} and processes of that run on host {h.at.name}"
