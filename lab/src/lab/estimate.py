"""How much a run would measure, and about how long: `lab run ... --dry-run`. Starts no server and no guest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from lab.backends import Context, parse
from lab.backends.site_gluster import SITE_KINDS
from lab.config import Config
from lab.guest import GuestMaker
from lab.process import Scratch
from lab.site import Planned
from lab.site_file import read as read_site
from lab.studies import KINDS

START_S = 10.0  # of one back end's servers, and the disks that are filled before


def estimate(config: Config, studies: list[str], backends: list[str]) -> dict[str, Any]:
    """Rows of study and back end, and the sum. Guesses come from the settings: run times, sizes, counts."""
    if config.guest.accel == "auto":
        config.guest.accel = "tcg"  # no trial guest now; emulation takes longest
    rows: list[dict[str, Any]] = []
    with Scratch(Path(config.run.scratch)) as scratch:
        context = Context(config, scratch, {}, site=Planned(read_site(Path(config.run.site))) if config.run.site else None)
        for name in studies:
            study, settings = KINDS[name](context, GuestMaker(config, scratch)), getattr(config, name)
            rounds = settings.rounds or config.run.rounds
            for backend in backends or settings.backends or config.run.backends:
                kind, copies = parse(backend)
                if context.site:
                    kind = SITE_KINDS.get(kind.kind, kind)
                # What a site's hosts lack is said by `lab check --site`: nobody is asked here.
                if missing := [*study.missing(), *([] if context.site else kind.missing(config))]:
                    rows.append({"study": name, "backend": backend, "cases": 0, "rounds": rounds, "seconds": 0.0, "missing": "; ".join(missing)})
                    continue
                cases = study.cases_of(kind(context, copies))
                seconds = START_S + rounds * sum(study.seconds(c) for c in cases) if cases else 0.0
                rows.append({"study": name, "backend": backend, "cases": len(cases), "rounds": rounds, "seconds": seconds, "missing": "" if cases else "no case of the study fits"})
    return {"rows": rows, "measurements": sum(r["cases"] * r["rounds"] for r in rows), "seconds": sum(r["seconds"] for r in rows)}


def table(found: dict[str, Any]) -> Table:
    made = Table(box=None, pad_edge=False, title="what would be measured; nothing was started", title_justify="left")
    for column in ("study", "back end", "cases", "rounds", "about", ""):
        made.add_column(column, justify="right" if column in ("cases", "rounds", "about") else "left")
    for r in found["rows"]:
        made.add_row(r["study"], r["backend"], str(r["cases"]), str(r["rounds"]), duration(r["seconds"]), Text(r["missing"]))
    made.add_section()
    made.add_row("all", "", "", "", duration(found["seconds"]), Text(f"{found['measurements']:,} measurements"))
    return made


def duration(seconds: float) -> str:
    if seconds >= 2 * 86_400:
        return f"{seconds / 86_400:.1f} days"
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
