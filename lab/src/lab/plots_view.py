"""From a study's cells to shapes: what the figures of all studies share.

`over` is the form of most: medians over a factor, a panel for each combination of some factors, a line for each back end. Published
values are drawn where a run has the preset of the study that prints them. Draws nothing itself: shapes are in plots.
"""

from __future__ import annotations

from collections.abc import Sequence

from lab import plots
from lab.plots import Dot, Figure, Line, Panel
from lab.records import FACTORS, PUBLISHED, Factor, Published
from lab.report_data import CaseKey, View, is_censored
from lab.report_units import case_label, factor_value, metric_name

MAX_DOT_METRICS = 6


def styles_of(view: View) -> dict[str, int]:
    """A back end keeps its colour and marker through all figures of a study."""
    return {b.name: i for i, b in enumerate(view.backends)}


def values_of(view: View, factor: str) -> list[Factor]:
    values = list(dict.fromkeys(v for case in view.cases for n, v in case if n == factor))
    return sorted(values) if all(isinstance(v, (int, float)) for v in values) else values


def place_of(value: Factor, values: Sequence[Factor]) -> float:
    return float(value) if isinstance(value, (int, float)) else float(values.index(value))


def is_size(factor: str) -> bool:
    return factor in FACTORS and FACTORS[factor].unit == "B"


def over(view: View, metric: str, x: str, panel_factors: Sequence[str], name: str, caption: str, series: Sequence[str] = (), log_x: bool = False) -> Figure | None:
    """Medians over x: a panel for each combination of panel factors, a line per back end and other factors.
    `series` given: those factors make the lines, and each back end a panel of its own. Panels without any line are left out where
    `log_x` is asked for: they are for what grows with x."""
    xs = values_of(view, x)
    if len(xs) < 2 or metric not in view.metrics:
        return None
    varying = view.varying()
    split = [f for f in panel_factors if f in varying and f != x]
    rest = [f for f in varying if f not in (*split, x)]
    styles, panels, line_styles, unit = styles_of(view), {}, {}, ""
    known: dict[str, dict[str, Factor]] = {}  # of a panel: the factors that all of it has
    for (m, backend, case), cell in view.cells.items():
        factors = dict(case)
        if m != metric or x not in factors or cell.interval.median is None:
            continue
        unit = cell.unit
        own_panel = case_label(factors, split)
        label = case_label(factors, rest)
        if series:
            own_panel, label = f"{view.title(backend)}{', ' if own_panel else ''}{own_panel}", case_label(factors, series)
        else:
            label = view.title(backend) + (f", {label}" if label else "")
        panel = panels.setdefault(own_panel, {})
        known.setdefault(own_panel, {n: v for n, v in factors.items() if n in split or n not in varying})
        if series or rest:
            style = line_styles.setdefault(label, len(line_styles))
        else:
            style = styles[backend]
        line = panel.setdefault(label, Line(label, style))
        i = cell.interval
        line.points.append((place_of(factors[x], xs), i.median, i.low, i.high))
    if log_x:
        panels = {t: lines for t, lines in panels.items() if any(len(line.points) > 1 for line in lines.values())}
    if not panels:
        return None
    marked = xs[:: -(-(len(xs) - 1) // 5) or 1] if len(xs) > 8 else xs
    ticks = [(place_of(v, xs), factor_value(x, v) if is_size(x) else str(v)) for v in marked]
    shown = in_case_order(view, split, panels, bool(series))
    marks = {t: m for t in shown if (m := [(p.value, p.label) for p in published_of(view) if p.metric == metric and (p.line or not p.case) and dict(p.case).items() <= known[t].items()])}
    return plots.lines(
        name, caption, [Panel(t, list(panels[t].values())) for t in shown], unit, metric_name(metric), axis_title(x), ticks,
        log_x=log_x or is_size(x), columns=min(plots.COLUMNS, len(shown)), marks=marks,
    )  # fmt: skip


def in_case_order(view: View, split: Sequence[str], panels: dict[str, object], by_backend: bool) -> list[str]:
    if by_backend:
        return list(panels)
    ordered = dict.fromkeys(case_label(dict(c), split) for c in view.cases)
    return [t for t in ordered if t in panels]


def axis_title(factor: str) -> str:
    info = FACTORS.get(factor)
    title = info.title if info else factor
    return f"{title} [{info.unit}]" if info and info.unit and info.unit != "B" else title


def only(view: View, wanted: dict[str, Factor]) -> View:
    """The view of the cases that have these factors."""
    cases = [c for c in view.cases if all(dict(c).get(n) == v for n, v in wanted.items())]
    kept = set(cases)
    cells = {k: cell for k, cell in view.cells.items() if k[2] in kept}
    return View(view.info, view.backends, cases, view.metrics, cells, view.pairs, [c for c in view.compared if c.case in kept], view.preset)


def along(view: View, x: str) -> View:
    """The view of the cases that differ from another one in x alone: what a figure over x can show."""
    values: dict[CaseKey, set[Factor]] = {}
    for case in view.cases:
        values.setdefault(tuple((n, v) for n, v in case if n != x), set()).add(dict(case).get(x, ""))
    cases = [c for c in view.cases if len(values[tuple((n, v) for n, v in c if n != x)]) > 1]
    kept = set(cases)
    cells = {k: cell for k, cell in view.cells.items() if k[2] in kept}
    return View(view.info, view.backends, cases, view.metrics, cells, view.pairs, [c for c in view.compared if c.case in kept], view.preset)


def row_label(view: View, backend: str, case: CaseKey) -> str:
    label = case_label(dict(case), view.varying())
    return f"{view.title(backend)}{', ' if label else ''}{label}"


def dots(view: View, metrics: Sequence[str] = (), name: str = "", caption: str = "") -> Figure | None:
    """A row for each case and back end, for each metric: the headline ones where none is named."""
    styles, groups = styles_of(view), []
    for metric in metrics or view.headline()[:MAX_DOT_METRICS]:
        rows, unit = [], ""
        for case in view.cases:
            for b in view.measured:
                cell = view.cells.get((metric, b.name, case))
                if cell is None or cell.interval.median is None:
                    continue
                i, unit = cell.interval, cell.unit
                bound = " (at least)" if metric == "stall" and is_censored(view.cells, b.name, case) else ""
                rows.append(Dot(row_label(view, b.name, case) + bound, styles[b.name], i.median, i.low, i.high, tuple(cell.rounds.values())))
        if rows:
            groups.append((metric_name(metric), unit, rows))
    if not groups:
        return None
    marks: dict[str, list[tuple[float, str]]] = {}
    for p in [p for p in published_of(view) if not p.line]:
        marks.setdefault(metric_name(p.metric), []).append((p.value, p.label))
    elsewhere = " Dotted: values that the study prints, of its own machines." if marks else ""
    return plots.dots(name or f"{view.info.name}-medians", (caption or "Medians with their intervals; the strokes are the rounds.") + elsewhere, groups, marks)


def published_of(view: View) -> list[Published]:
    return [p for p in PUBLISHED if p.preset == view.preset and p.study == view.info.name]


def compared_with_published(view: View) -> Figure | None:
    """Where the printed values are of single cases: those cases, with the values as rows of their own."""
    rows, unit = [], ""
    styles = styles_of(view)
    for condition in dict.fromkeys(p.case for p in published_of(view) if p.case and not p.line):
        values = [p for p in published_of(view) if p.case == condition and not p.line]
        for case in [c for c in view.cases if all(dict(c).get(n) == v for n, v in condition)]:
            for b in view.measured:
                cell = view.cells.get((values[0].metric, b.name, case))
                if cell is not None and cell.interval.median is not None:
                    i, unit = cell.interval, cell.unit
                    rows.append(Dot(row_label(view, b.name, case), styles[b.name], i.median, i.low, i.high, tuple(cell.rounds.values())))
        if rows:
            rows += [Dot(f"{p.label}, {case_label(dict(p.case))}", len(view.backends), p.value, None, None) for p in values]
    if not unit:
        return None
    return plots.dots(f"{view.info.name}-published", "The cases of which the study prints values, which are of its own machines, beside what was measured here.",
                      [(metric_name(next(p for p in published_of(view) if p.case and not p.line).metric), unit, rows)])  # fmt: skip
