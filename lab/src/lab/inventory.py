"""What there is, and what can run here: the bodies of `lab list` and `lab check`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from lab.backends import KINDS as BACKENDS
from lab.config import Config
from lab.guest import GuestMaker, trial_mark
from lab.records import RUN_FILE, STUDIES, RecordError, load_run
from lab.studies import KINDS
from lab.studies.layouts import missing_delay


def everything(runs: Path) -> dict[str, Any]:
    return {
        "studies": [{"name": s.name, "title": s.title, "source": s.source} for s in STUDIES.values() if s.name in KINDS],
        "backends": [{"name": b.kind, "title": b.title, "copies": list(b.copies_possible), "formats": list(b.formats)} for b in BACKENDS.values()],
        "runs": [_run(path.parent) for path in sorted(runs.glob(f"*/{RUN_FILE}"))],
    }


def _run(path: Path) -> dict[str, Any]:
    try:
        run = load_run(path)
    except RecordError as e:
        return {"path": str(path), "state": f"unreadable: {e}"}
    return {"path": str(path), "state": run.end_state, "started": run.started, "studies": run.studies, "samples": len(run.samples)}


def tables(found: dict[str, Any]) -> list[Table]:
    made = []
    for title, rows in found.items():
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        for column in rows[0] if rows else ():
            table.add_column(column)
        for row in rows:
            table.add_row(*(Text(", ".join(map(str, v)) if isinstance(v, list) else str(v)) for v in row.values()))
        if rows:
            made.append(table)
    return made


def check(config: Config) -> dict[str, Any]:
    """Back ends, studies and instruments with what is missing for each; nothing is started."""
    guests = GuestMaker.missing()
    studies = {name: guests if name in ("boot", "vm", "provision", "migrate") else [] for name in KINDS}
    instruments = {
        "fio": [] if shutil.which("fio") else ["not installed (Debian: fio)"],
        "iozone": [] if shutil.which("iozone") else ["not installed; its pattern runs by fio, and the report says so"],
        "kvm": kvm_missing(),
        "network delay": [why] if (why := missing_delay(os.geteuid() == 0)) else [],
    }
    return {
        "backends": {b.kind: {"title": b.title, "missing": b.missing(config)} for b in BACKENDS.values()},
        "studies": {name: {"title": STUDIES[name].title, "missing": missing} for name, missing in studies.items()},
        "instruments": {name: {"title": "", "missing": missing} for name, missing in instruments.items()},
    }


def kvm_missing() -> list[str]:
    """What a trial guest has shown on this boot of the machine; without one, that nobody has tried."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return ["no /dev/kvm: guests' processors are emulated"]
    tried = trial_mark()
    if not tried.exists():
        return ["not tried yet: /dev/kvm opens; the first run with guests tries one"]
    return [] if tried.read_text() == "works" else ["a trial guest hung: guests' processors are emulated"]


def check_table(found: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("", "what", "here", "why not"):
        table.add_column(column)
    for part, rows in found.items():
        for name, row in rows.items():
            good = not row["missing"]
            table.add_row(part, Text.assemble(name, "  ", (row["title"], "dim")), Text("yes", "green") if good else Text("no", "red"), Text("; ".join(row["missing"])))
    return table
