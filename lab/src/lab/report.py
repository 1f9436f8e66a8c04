"""A run as one self-contained HTML page, as Markdown, and as JSON.

`write` puts report.html (everything inside, no network), headline.html (the same on one page, to print), report.md and its figures (plots/*.svg) into a directory;
`summary` is the same content as one JSON-able document. Back ends that were skipped, failed or are unfinished are
named with the reason; a run that was cut short gives a report that says so on top.
Does not measure, and changes nothing of the run.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jinja2

from lab import plots, plots_matrix, plots_studies, report_data, report_text, stats
from lab.records import METRICS, Run, load_curves
from lab.report_data import Cell, Compared, View, Wishes
from lab.report_hosts import tables as tables_by_host
from lab.report_units import case_label, factor_label, metric_name, metric_title, scale, significant, written

MAX_TABLE_ROWS = 400  # of one table; the rest is in the JSON and in the raw data


def summary(run: Run, wishes: Wishes = Wishes()) -> dict[str, Any]:
    """Everything that the page says, as one JSON document."""
    shown = report_data.views(run, wishes)
    return {
        "run": run.id,
        "started": run.started,
        "ended": run.ended,
        "state": run.end_state,
        "partial": report_text.completeness(run, shown),
        "environment": asdict(run.environment),
        "options": run.options,
        "method": {"verdicts": "corrected for the number of comparisons (Holm, at the level)", "interval": "percentile bootstrap of the median; order statistics below "
                   f"{stats.MIN_BOOTSTRAP} rounds", "level": stats.LEVEL, "resamples": stats.RESAMPLES, "rounds_for_a_verdict": stats.MIN_VERDICT},
        "studies": [{**_study_json(v), "by_host": [asdict(b) for b in run.by_host if b.study == v.info.name]} for v in shown],
    }  # fmt: skip


def _study_json(view: View) -> dict[str, Any]:
    return {
        "study": view.info.name,
        "title": view.info.title,
        "backends": [asdict(b) for b in view.backends],
        "missing": report_text.missing(view),
        "findings": [
            {"metric": f.metric, "reference": f.pair.reference, "other": f.pair.other, "gain": f.gain, "badge": f.badge, "sentence": f.sentence}
            for f in report_text.findings(view)
        ],
        "cells": [_cell_json(c) for c in view.cells.values()],
        "comparisons": [comparison_json(c) for c in view.compared],
    }


def _cell_json(cell: Cell) -> dict[str, Any]:
    i = cell.interval
    return {
        "metric": cell.metric, "unit": cell.unit, "backend": cell.backend, "case": dict(cell.case), "rounds": i.n, "median": i.median,
        "low": i.low, "high": i.high, "level": i.level, "method": i.method, "noise": cell.noise, "drifts": cell.drifts, "failed": cell.failed,
    }  # fmt: skip


def comparison_json(c: Compared) -> dict[str, Any]:
    return {"metric": c.metric, "reference": c.pair.reference, "other": c.pair.other, "case": dict(c.case), "gain": c.gain, "unlike": c.unlike, **asdict(c.result)}


def write(run: Run, out_dir: Path, wishes: Wishes = Wishes()) -> list[Path]:
    """report.html, headline.html, report.md and plots/*.svg; what an earlier report left in plots/ is replaced."""
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    context = _context(run, out_dir, wishes)
    page, text = out_dir / "report.html", out_dir / "report.md"
    page.write_text(environment().get_template("report.html.j2").render(context), encoding="utf-8")
    text.write_text(environment().get_template("report.md.j2").render(context), encoding="utf-8")
    headline = out_dir / "headline.html"
    headline.write_text(environment().get_template("headline.html.j2").render(context), encoding="utf-8")
    return [page, headline, text, *write_figures(out_dir / "plots", [f for s in context["studies"] for f in s["figures"]])]


def write_figures(directory: Path, drawn: list[plots.Figure], prefix: str = "") -> list[Path]:
    directory.mkdir(exist_ok=True)
    for old in directory.glob(f"{prefix}*.svg"):
        old.unlink()
    paths = []
    for figure in drawn:
        path = directory / f"{figure.name}.svg"
        path.write_text(figure.standalone(), encoding="utf-8")
        paths.append(path)
    return paths


def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("lab"), autoescape=lambda name: bool(name) and name.endswith(".html.j2"),
        trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    made.globals.update(colours=plots.COLOURS, level=stats.LEVEL)
    made.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return made


def _context(run: Run, out_dir: Path, wishes: Wishes) -> dict[str, Any]:
    shown = report_data.views(run, wishes, {study: load_curves(run, study) for study in run.studies})
    return {
        "run": run,
        "banner": report_text.completeness(run, shown),
        "chance": report_text.chance(shown),
        "headlines": [{"title": v.info.title, "name": v.info.name, "backends": [b.title for b in v.measured], "rows": _headlines(v)} for v in shown if v.measured],
        "overview": plots_studies.overview(shown),
        "studies": [{**_study(v), "by_host": tables_by_host(run, v.info.name, {b.name: b.title for b in v.backends}, v.varying())} for v in shown],
        "backends": _backends(shown),
        "machine": _machine(run),
        "tools": sorted({(k, v) for e in run.environments for k, v in e.tools.items()}),
        "notes": list(dict.fromkeys(n for e in run.environments for n in e.notes)),
        # Of the site's file its name: where it lies says nothing to readers, and pages are passed on.
        "options": [(k, Path(v).name if k == "config.run.site" else v) for k, v in report_data.flattened(run.options).items() if v],
        "raw": _raw_link(run, out_dir),
        "min_bootstrap": stats.MIN_BOOTSTRAP,
        "min_verdict": stats.MIN_VERDICT,
        "resamples": f"{stats.RESAMPLES:,}",
    }


def _headlines(view: View) -> list[dict[str, Any]]:
    """A row for each headline metric: every back end's median, or the span of its cases' medians; and the verdicts."""
    rows, found = [], report_text.findings(view)
    for metric in view.headline():
        cells = {b.name: [c for (m, name, _), c in view.cells.items() if m == metric and name == b.name and c.interval.median is not None] for b in view.measured}
        medians = [c.interval.median for own in cells.values() for c in own]
        if not medians:
            continue
        divisor, unit = scale(medians, METRICS[metric].unit if metric in METRICS else next(c.unit for own in cells.values() for c in own))
        rows.append({
            "name": metric_name(metric), "unit": unit, "cells": [_span([c.interval.median / divisor for c in cells[b.name]], _bounded(view, metric, cells[b.name])) for b in view.measured],
            "cases": max(len(own) for own in cells.values()),
            "verdicts": [(f"{view.title(f.pair.reference)} / {view.title(f.pair.other)}", f.gain, f.badge) for f in found if f.metric == metric],
        })  # fmt: skip
    return rows


def _bounded(view: View, metric: str, cells: list[Cell]) -> bool:
    """Whether a stall among them is only a lower bound."""
    return metric == "stall" and any(report_data.is_censored(view.cells, c.backend, c.case) for c in cells)


def _span(values: list[float], at_least: bool = False) -> str:
    if not values:
        return "-"
    low, high = significant(min(values)), significant(max(values))
    return ("≥ " if at_least else "") + (low if low == high else f"{low} to {high}")


def _raw_link(run: Run, out_dir: Path) -> str:
    """Relative, so that the report can move together with its data; "" where the run came from no file."""
    if run.path is None:
        return ""
    return Path(os.path.relpath(Path(run.path) / "run.jsonl", out_dir)).as_posix()


def _plain(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return "; ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def _study(view: View) -> dict[str, Any]:
    headline = view.headline()
    return {
        "name": view.info.name,
        "title": view.info.title,
        "source": view.info.source,
        "published": view.info.published,
        "missing": report_text.missing(view),
        "constants": ", ".join(factor_label(n, v) for n, v in view.constants().items()),
        "findings": report_text.findings(view),
        "figures": plots_studies.figures(view),
        "grids": plots_matrix.tables(view),
        "tables": [_table(view, m) for m in headline],
        "more_tables": [_table(view, m) for m in view.metrics if m not in headline],
        "noise": _noise(view),
        "errors": [(b.title, e) for b in view.backends for e in b.errors],
    }


def _table(view: View, metric: str) -> dict[str, Any]:
    """Rows are cases, columns back ends, then the ratio of each pair; one unit for the whole table."""
    own = [c for (m, _, _), c in view.cells.items() if m == metric]
    unit = own[0].unit
    divisor, unit_name = scale([c.interval.median for c in own if c.interval.median is not None], unit)
    columns = [b for b in view.measured if any(c.backend == b.name for c in own)]
    compared = {(c.pair, c.case): c for c in view.compared if c.metric == metric}
    pairs = [p for p in view.pairs if any(pair == p for pair, _ in compared)]
    varying, rows = view.varying(), []
    for case in view.cases:
        cells = [view.cells.get((metric, b.name, case)) for b in columns]
        if any(c is not None for c in cells):
            rows.append({
                "case": case_label(dict(case), varying) or "all",
                "cells": [_cell(c, divisor, metric == "stall" and report_data.is_censored(view.cells, b.name, case)) for b, c in zip(columns, cells)],
                "ratios": [_ratio(compared.get((p, case)), unit) for p in pairs],
            })  # fmt: skip
    return {
        "metric": metric, "name": metric_name(metric), "title": metric_title(metric), "unit": unit_name,
        "columns": [b.title for b in columns], "pairs": [f"{view.title(p.reference)} / {view.title(p.other)}" for p in pairs],
        "rows": rows[:MAX_TABLE_ROWS], "left_out": max(0, len(rows) - MAX_TABLE_ROWS), "noted": any(c.interval.note for c in own),
    }  # fmt: skip


def _cell(cell: Cell | None, divisor: float, at_least: bool = False) -> dict[str, str]:
    if cell is None or cell.interval.median is None:
        return {"value": "-", "interval": "", "note": "no result"}
    i = cell.interval
    extent = "" if i.low is None else f"{significant(i.low / divisor)} to {significant(i.high / divisor)}"
    notes = [n for n in (i.note, "drifts from round to round" if cell.drifts else "", f"{cell.failed} failed" if cell.failed else "") if n]
    notes += ["as long as the outage: a lower bound"] if at_least else []
    return {"value": ("≥ " if at_least else "") + significant(i.median / divisor), "interval": extent, "note": "; ".join(notes)}


_MARKS = {**report_text.BADGES, "undecided": "too few rounds", "undefined": "not comparable"}


def _ratio(c: Compared | None, unit: str) -> dict[str, str]:
    if c is None or c.result.value is None:
        return {"value": "-", "interval": "", "gain": "undefined", "mark": ""}
    r = c.result

    def amount(v: float) -> str:
        return significant(v) if r.kind == "ratio" else written(v, unit)

    extent = "" if r.low is None else f"{amount(r.low)} to {amount(r.high)}"
    return {"value": ("" if r.kind == "ratio" else "difference ") + amount(r.value), "interval": extent, "gain": c.gain, "mark": _MARKS[c.gain]}


def _noise(view: View) -> list[dict[str, Any]]:
    """Per back end, over all cells of its headline metrics."""
    rows = []
    for b in view.measured:
        cells = [c for (m, name, _), c in view.cells.items() if name == b.name and m in view.headline()]
        noises = sorted(c.noise for c in cells if c.noise is not None)
        counts = sorted({c.interval.n for c in cells})
        rows.append({
            "title": b.title, "cells": len(cells), "drifts": sum(c.drifts for c in cells), "failed": b.failed,
            "rounds": f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}" if counts else "0",
            "median": f"{100 * noises[len(noises) // 2]:.1f} %" if noises else "-", "worst": f"{100 * noises[-1]:.1f} %" if noises else "-",
        })  # fmt: skip
    return rows


def _backends(shown: list[View]) -> list[dict[str, Any]]:
    """One row per back end over all studies: versions and options once, states by study."""
    rows: dict[str, dict[str, Any]] = {}
    for view in shown:
        for b in view.backends:
            name = b.name.partition("/")[0]
            row = rows.setdefault(name, {"name": name, "title": b.title.removesuffix(b.name.replace(name, "", 1).replace("/", ", ")), "version": "", "acknowledged": "", "options": "", "states": {}})
            row["version"] = row["version"] or b.version
            row["acknowledged"] = row["acknowledged"] or b.acknowledged
            row["options"] = row["options"] or _plain({k: v for k, v in b.options.items() if k != "acknowledged"})
            state = "partial" if b.state == "done" and b.failed else b.state
            row["states"].setdefault((state, b.reason), []).append(view.info.name)
    for row in rows.values():
        row["states"] = [{"state": s, "studies": ", ".join(dict.fromkeys(studies)), "reason": reason} for (s, reason), studies in row["states"].items()]
    return list(rows.values())


def _machine(run: Run) -> list[tuple[str, str]]:
    e = run.environment
    rows = [
        ("host", e.host), ("system", e.system), ("kernel", e.kernel), ("processor", f"{e.cpu}, {e.cpus} processors" if e.cpus else e.cpu),
        ("governor", e.governor), ("memory", written(float(e.memory_bytes), "B") if e.memory_bytes else ""), ("disk", e.disk),
        ("file system", e.filesystem), ("virtualisation", e.virtual), ("load before the run", significant(e.load_before)),
    ]  # fmt: skip
    if len(run.environments) > 1:
        rows.append(("resumed", f"{len(run.environments) - 1} times; the environment is that of the last start"))
    return [(k, v) for k, v in rows if v]
