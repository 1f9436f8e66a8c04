"""Two runs beside each other: which medians of the same back end and case differ (`lab compare OLD NEW`).

The ratio is new over old. Two runs share no rounds, so they are resampled apart, and whatever else changed between
them is in the ratio too: what differs in their environment is listed first. Does not compare different back ends:
that is the report of one interleaved run.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab import stats
from lab.records import Run
from lab.report_data import flattened, gain_of, views
from lab.report_units import case_label, metric_name, significant, written

MAX_ROWS = 200  # of the table on screen; the JSON has all
_STYLES = {"better": "green", "worse": "red"}


def compare(old: Run, new: Run) -> dict[str, Any]:
    """Rows for what both have; `only` names the back ends that one of them lacks."""
    rows, had = [], {v.info.name: v for v in views(old)}
    only: list[str] = []
    for view in views(new):
        before = had.pop(view.info.name, None)
        if before is None:
            only.append(f"{view.info.name} is in {new.id} only")
            continue
        names_old, names_new = ({b.name for b in v.measured} for v in (before, view))
        only += [f"{view.info.name}: {n} is in {new.id} only" for n in sorted(names_new - names_old)]
        only += [f"{view.info.name}: {n} is in {old.id} only" for n in sorted(names_old - names_new)]
        varying = view.varying()
        for (metric, backend, case), cell in view.cells.items():
            other = before.cells.get((metric, backend, case))
            if other is None:
                continue
            r = stats.compare_apart(list(cell.rounds.values()), list(other.rounds.values()))
            rows.append({
                "study": view.info.name, "backend": backend, "title": view.title(backend), "case": dict(case), "label": case_label(dict(case), varying),
                "metric": metric, "unit": cell.unit, "headline": metric in view.headline(), "old": other.interval.median, "new": cell.interval.median,
                "result": r,
            })  # fmt: skip
    only += [f"{name} is in {old.id} only" for name in had]
    for wanted in (True, False):  # headlines are one family, all else another
        family = [r for r in rows if r["headline"] == wanted]
        for row, result in zip(family, stats.corrected([r.pop("result") for r in family])):
            row |= {"gain": gain_of(row["metric"], result.verdict), **asdict(result)}
    counts = {g: sum(r["gain"] == g for r in rows) for g in ("better", "worse", "changed", "same", "undecided", "undefined")}
    return {
        "old": {"run": old.id, "started": old.started}, "new": {"run": new.id, "started": new.started}, "changed": _changed(old, new), "only": only,
        "rows": rows, "counts": counts, "level": stats.LEVEL,
    }  # fmt: skip


def _changed(old: Run, new: Run) -> list[dict[str, str]]:
    """What is not the same: machine, versions, options."""

    def facts(run: Run) -> dict[str, str]:
        e = asdict(run.environment)
        tools = e.pop("tools")
        told = {k: str(v) for k, v in e.items() if k not in ("at", "load_before", "notes")}
        told |= {f"tool {k}": v for k, v in tools.items()} | {f"option {k}": v for k, v in flattened(run.options).items()}
        return told | {f"version of {b.name}": b.version for b in run.backends if b.version}

    a, b = facts(old), facts(new)
    return [{"what": k, "old": a.get(k, ""), "new": b.get(k, "")} for k in dict.fromkeys([*a, *b]) if a.get(k, "") != b.get(k, "")]


def table(found: dict[str, Any]) -> Group:
    """For the screen: headline metrics, those that differ first."""
    parts: list[Any] = []
    for c in found["changed"]:
        parts.append(Text(f"not the same: {c['what']}: {c['old'] or '-'} -> {c['new'] or '-'}", style="yellow"))
    parts += [Text(line, style="yellow") for line in found["only"]]
    rows = sorted((r for r in found["rows"] if r["headline"]), key=lambda r: r["gain"] not in ("better", "worse", "changed"))
    grid = Table(title=f"{found['old']['run']} -> {found['new']['run']}", title_justify="left")
    for name in ("study", "back end", "case", "metric", "old", "new", "new / old", f"{100 * found['level']:.0f} % interval", ""):
        grid.add_column(name, justify="right" if name in ("old", "new", "new / old") else "left", overflow="fold")
    for r in rows[:MAX_ROWS]:
        def amount(v: float | None, row: dict[str, Any] = r) -> str:
            return "-" if v is None else significant(v) if row["kind"] == "ratio" else written(v, row["unit"])

        extent = "" if r["low"] is None else f"{amount(r['low'])} to {amount(r['high'])}"
        grid.add_row(r["study"], r["title"], r["label"], metric_name(r["metric"]), written(r["old"], r["unit"]), written(r["new"], r["unit"]),
                     amount(r["value"]), extent, Text(r["note"] or r["gain"], style=_STYLES.get(r["gain"], "")))  # fmt: skip
    parts.append(grid)
    if len(rows) > MAX_ROWS:
        parts.append(Text(f"{len(rows) - MAX_ROWS} more rows: -f json"))
    c = found["counts"]
    parts.append(Text(
        f"All metrics: {c['better']} better, {c['worse']} worse, {c['same']} not shown to differ, {c['undecided']} with too few rounds; "
        "corrected for their number (Holm)."))  # fmt: skip
    return Group(*parts)
