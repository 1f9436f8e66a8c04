"""Which figures a study gets: the forms of the published studies, filled with this run's cells.

    matrix      IOPS over the share of reads, a panel per block size and depth; a line per block size for each back
                end; processor of servers and clients; latency                              (Ra's figures)
    boot, failure, migrate   medians with whiskers, the rounds behind them                  (Oliveira's, Ding's)
    boot        also the distribution of the samples, and latency inside the VM
    formats     bandwidth over the record size, a panel per operation, a line per back end and format  (Johari's)
    provision   the parts of the time to disks, stacked                                     (Ding's)
    layouts     bandwidth over the stripe unit, a line per block size, a panel per operation (Borges's)
Any study also gets, where single measurements were kept, distributions of latency and the course of operations over their time;
ratios against the reference; and the rounds of its first metric. A study that is not in the
tables gets dots. Draws nothing itself: shapes are in plots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lab import plots
from lab.plots import Bar, Dot, Figure, Line, Panel, Trace
from lab.records import FACTORS, PUBLISHED, Factor, Measured, Published
from lab.report_data import CaseKey, View
from lab.report_units import case_label, factor_value, metric_name

PHASES = ("download_time", "convert_time", "resize_time", "overlay_time")
MAX_DOT_METRICS = 6
MAX_ROUNDS_DRAWN = 200


def figures(view: View) -> list[Figure]:
    """In the order of the report; a figure with nothing to show is not drawn."""
    if not view.measured:
        return []
    makers = _OF_STUDY.get(view.info.name, [_dots])
    drawn = [f for make in [*makers, _distributions, _courses, _ratios, _rounds] for f in _listed(make(view))]
    return [f for f in drawn if f is not None]


def _listed(found: Figure | Sequence[Figure] | None) -> list[Figure]:
    return [] if found is None else [found] if isinstance(found, Figure) else list(found)


def _styles(view: View) -> dict[str, int]:
    """A back end keeps its colour and marker through all figures of a study."""
    return {b.name: i for i, b in enumerate(view.backends)}


def _values(view: View, factor: str) -> list[Factor]:
    values = list(dict.fromkeys(v for case in view.cases for n, v in case if n == factor))
    return sorted(values) if all(isinstance(v, (int, float)) for v in values) else values


def _position(value: Factor, values: Sequence[Factor]) -> float:
    return float(value) if isinstance(value, (int, float)) else float(values.index(value))


def _is_size(factor: str) -> bool:
    return factor in FACTORS and FACTORS[factor].unit == "B"


def _over(view: View, metric: str, x: str, panel_factors: Sequence[str], name: str, caption: str, series: Sequence[str] = (), log_x: bool = False) -> Figure | None:
    """Medians over x: a panel for each combination of panel factors, a line per back end and other factors.
    `series` given: those factors make the lines, and each back end a panel of its own. Panels without any line are left out where
    `log_x` is asked for: they are for what grows with x."""
    xs = _values(view, x)
    if len(xs) < 2 or metric not in view.metrics:
        return None
    varying = view.varying()
    split = [f for f in panel_factors if f in varying and f != x]
    rest = [f for f in varying if f not in (*split, x)]
    styles, panels, line_styles, unit = _styles(view), {}, {}, ""
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
        if series or rest:
            style = line_styles.setdefault(label, len(line_styles))
        else:
            style = styles[backend]
        line = panel.setdefault(label, Line(label, style))
        i = cell.interval
        line.points.append((_position(factors[x], xs), i.median, i.low, i.high))
    if log_x:
        panels = {t: lines for t, lines in panels.items() if any(len(line.points) > 1 for line in lines.values())}
    if not panels:
        return None
    marked = xs[:: -(-(len(xs) - 1) // 5) or 1] if len(xs) > 8 else xs
    ticks = [(_position(v, xs), factor_value(x, v) if _is_size(x) else str(v)) for v in marked]
    shown = _in_case_order(view, split, panels, bool(series))
    return plots.lines(
        name, caption, [Panel(t, list(panels[t].values())) for t in shown], unit, metric_name(metric), _axis(x), ticks,
        log_x=log_x or _is_size(x), columns=min(plots.COLUMNS, len(shown)),
    )  # fmt: skip


def _in_case_order(view: View, split: Sequence[str], panels: dict[str, object], by_backend: bool) -> list[str]:
    if by_backend:
        return list(panels)
    ordered = dict.fromkeys(case_label(dict(c), split) for c in view.cases)
    return [t for t in ordered if t in panels]


def _axis(factor: str) -> str:
    info = FACTORS.get(factor)
    title = info.title if info else factor
    return f"{title} [{info.unit}]" if info and info.unit and info.unit != "B" else title


def _matrix(view: View) -> list[Figure | None]:
    around = ("bs", "depth", "clients", "hosts")
    made = [_over(view, "iops", "read", around, "matrix-iops", "Operations per second over the share of reads: medians, whiskers their intervals.")]
    deepest = _only(view, {f: _values(view, f)[-1] for f in ("depth", "clients") if _values(view, f)})
    if len(_values(deepest, "bs")) > 1:
        at = case_label({f: v for f, v in deepest.constants().items() if f in ("depth", "clients")})
        made.append(_over(deepest, "iops", "read", (), "matrix-block-sizes", f"The same by block size for each back end ({at}).", series=("bs",)))
    if len(_values(view, "clients")) > 1:
        made.append(_over(view, "iops", "clients", ("bs", "read", "depth", "hosts"), "matrix-clients", "Operations per second over the number of clients."))
    if len(_values(view, "hosts")) > 1:
        made.append(_over(view, "iops", "hosts", ("bs", "read", "depth", "clients"), "matrix-hosts", "Operations per second over the number of client hosts at work, all together."))
    made.append(_over(view, "latency_p99", "read", around, "matrix-latency", "99th percentile of latency over the share of reads."))
    for metric, name in (("latency_p50", "median"), ("latency_p99", "99th percentile"), ("latency_p999", "99.9th percentile")):
        made.append(_over(view, metric, "depth", ("bs", "read", "clients", "hosts"), f"matrix-depth-{metric.removeprefix('latency_')}",
                          f"Latency over the operations in flight: {name}, medians of the rounds.", log_x=True))  # fmt: skip
    made.append(_over(view, "server_cpu_per_op", "read", around, "matrix-processor", "Processor time of the servers per operation."))
    made.append(_processor(deepest))
    if not any(made[:1]):  # a grid without read shares
        made.append(_dots(view))
    return made


def _only(view: View, wanted: dict[str, Factor]) -> View:
    """The view of the cases that have these factors."""
    cases = [c for c in view.cases if all(dict(c).get(n) == v for n, v in wanted.items())]
    kept = set(cases)
    cells = {k: cell for k, cell in view.cells.items() if k[2] in kept}
    return View(view.info, view.backends, cases, view.metrics, cells, view.pairs, [c for c in view.compared if c.case in kept])


def _processor(view: View) -> Figure | None:
    """Who uses the processor: servers and clients, stacked."""
    parts = [("server_cores", "storage servers"), ("client_cores", "clients")]
    blocks, reads = _values(view, "bs")[:1], _values(view, "read")
    ends = {reads[0], reads[len(reads) // 2], reads[-1]} if reads else set()
    rows, varying = [], view.varying()
    for case in view.cases:
        # The smallest blocks cost most per byte; of the mixes the ends and the middle.
        if dict(case).get("bs") not in (blocks or [None]) or (ends and dict(case).get("read") not in ends):
            continue
        for b in view.measured:
            cells = [(title, view.cells.get((metric, b.name, case))) for metric, title in parts]
            segments = tuple((title, c.interval.median) for title, c in cells if c is not None and c.interval.median is not None)
            if segments:
                rows.append(Bar(f"{case_label(dict(case), varying)}  {b.title}", segments))
    if not rows:
        return None
    return plots.bars("matrix-cores", "Processors in use during the load, servers apart from clients (medians).", rows, "cores", "processors")


def _row_label(view: View, backend: str, case: CaseKey) -> str:
    label = case_label(dict(case), view.varying())
    return f"{view.title(backend)}{', ' if label else ''}{label}"


def _dots(view: View) -> Figure | None:
    styles, groups = _styles(view), []
    for metric in view.headline()[:MAX_DOT_METRICS]:
        rows, unit = [], ""
        for case in view.cases:
            for b in view.measured:
                cell = view.cells.get((metric, b.name, case))
                if cell is None or cell.interval.median is None:
                    continue
                i, unit = cell.interval, cell.unit
                rows.append(Dot(_row_label(view, b.name, case), styles[b.name], i.median, i.low, i.high, tuple(cell.rounds.values())))
        if rows:
            groups.append((metric_name(metric), unit, rows))
    if not groups:
        return None
    marks: dict[str, list[tuple[float, str]]] = {}
    for p in _published(view):
        marks.setdefault(metric_name(p.metric), []).append((p.value, p.label))
    elsewhere = " Dotted: values that the study prints, of its own machines." if marks else ""
    return plots.dots(f"{view.info.name}-medians", f"Medians with their intervals; the strokes are the rounds.{elsewhere}", groups, marks)


def _published(view: View) -> list[Published]:
    return [p for p in PUBLISHED if p.preset == view.preset and p.study == view.info.name]


def _compared_with_published(view: View) -> Figure | None:
    """Where the printed values are of single cases: those cases, with the values as rows of their own."""
    rows, unit = [], ""
    styles = _styles(view)
    for condition in dict.fromkeys(p.case for p in _published(view)):
        values = [p for p in _published(view) if p.case == condition]
        for case in [c for c in view.cases if all(dict(c).get(n) == v for n, v in condition)]:
            for b in view.measured:
                cell = view.cells.get((values[0].metric, b.name, case))
                if cell is not None and cell.interval.median is not None:
                    i, unit = cell.interval, cell.unit
                    rows.append(Dot(_row_label(view, b.name, case), styles[b.name], i.median, i.low, i.high, tuple(cell.rounds.values())))
        if rows:
            rows += [Dot(f"{p.label}, {case_label(dict(p.case))}", len(view.backends), p.value, None, None) for p in values]
    if not unit:
        return None
    return plots.dots(f"{view.info.name}-published", "The cases of which the study prints values, which are of its own machines, beside what was measured here.",
                      [(metric_name(_published(view)[0].metric), unit, rows)])  # fmt: skip


SAMPLED = ("boot_time", "delete_time", "run_time", "bandwidth")


def _boot(view: View) -> list[Figure | None]:
    """Medians, the samples' distribution for each time, and latency inside the guest."""
    styles, made = _styles(view), [_dots(view)]
    for metric in SAMPLED:
        panels, unit = [], ""
        for case in view.cases:
            traces = []
            for b in view.measured:
                cell = view.cells.get((metric, b.name, case))
                if cell is not None and len(cell.rounds) > 1:
                    unit, values = cell.unit, sorted(cell.rounds.values())
                    traces.append(Trace(view.title(b.name), styles[b.name], values, [(n + 1) / len(values) for n in range(len(values))]))
            if traces:
                panels.append((case_label(dict(case), view.varying()), traces))
        if panels:
            made.append(plots.distributions(f"boot-samples-{metric.replace('_', '-')}", f"Distribution of the samples, {metric_name(metric)}: the share of VMs at or below a value.",
                                            panels, unit, metric_name(metric), "VMs"))  # fmt: skip
    rows = {m: [] for m in ("latency_mean", "latency_p50", "latency_p99", "latency_p999")}
    for (metric, backend, case), cell in view.cells.items():
        if metric in rows and cell.interval.median is not None:
            i = cell.interval
            rows[metric].append(Dot(_row_label(view, backend, case), styles[backend], i.median, i.low, i.high, tuple(cell.rounds.values())))
    groups = [(metric_name(m), "us", r) for m, r in rows.items() if r]
    made.append(plots.dots("boot-latency", "Latency of the writes inside the VM: medians with their intervals; the strokes are the rounds.", groups) if groups else None)
    return made


def _formats(view: View) -> Figure | None:
    made = _over(view, "bandwidth", "record", ("op", "instrument"), "formats-bandwidth", "Bandwidth over the record size: medians, whiskers their intervals.")
    return made or _dots(view)


def _provision(view: View) -> list[Figure | None]:
    rows, varying = [], view.varying()
    for case in view.cases:
        for b in view.measured:
            cells = [(p, view.cells.get((p, b.name, case))) for p in PHASES]
            segments = tuple((metric_name(p).removesuffix(" time"), c.interval.median) for p, c in cells if c is not None and c.interval.median is not None)
            if segments:
                rows.append(Bar(f"{case_label(dict(case), varying)}{'  ' if varying else ''}{b.title}", segments))
    parts = plots.bars("provision-parts", "Time until the disks exist, by its parts (medians).", rows, "s", "time") if rows else None
    whole = _over(view, "provision_time", "vms", ("hosts",), "provision-time", "Time until the disks of all VMs exist, over their number.")
    boots = _over(view, "batch_boot_time", "vms", ("hosts",), "provision-boot", "Time until the last VM of the batch reports, over their number.")
    return [parts, whole, boots] if whole or boots else [parts, _dots(view)]


def _layouts(view: View) -> list[Figure | None]:
    made: list[Figure | None] = []
    series = [f for f in ("bs", "threads", "stripe_count") if len(_values(view, f)) > 1]
    panels = [f for f in view.info.panels if f not in series]
    by_block = _over(view, "bandwidth", "stripe_unit", panels, "layouts-stripe-unit",
                     "Bandwidth over the stripe unit, for each back end.", series=series) if series else None  # fmt: skip
    made.append(by_block or _over(view, "bandwidth", "stripe_unit", view.info.panels, "layouts-stripe-unit", "Bandwidth over the stripe unit."))
    for x, name in (("stripe_count", "stripe count"), ("threads", "threads"), ("delay", "network delay")):
        others = [f for f in (*view.info.panels, "stripe_unit") if f != x]
        made.append(_over(view, "bandwidth", x, others, f"layouts-{x.replace('_', '-')}", f"Bandwidth over {name}."))
    return made if any(made) else [_dots(view)]


def _by_case(view: View, kept: Callable[[Measured], bool]) -> list[tuple[str, list[tuple[str, list[Measured]]]]]:
    """(case, (back end, its rounds)), in the report's order."""
    varying, found = view.varying(), {}
    for m in view.curves:
        if kept(m):
            found.setdefault(tuple(m.case.items()), {}).setdefault(m.backend, []).append(m)
    return [(case_label(dict(case), varying), [(b.name, found[case][b.name]) for b in view.backends if b.name in found[case]]) for case in view.cases if case in found]


def _distributions(view: View) -> Figure | None:
    """All rounds of a case together; reads and writes of a mix apart."""
    styles, panels = _styles(view), []
    for label, backends in _by_case(view, lambda m: bool(m.curves.distribution)):
        sides = list(dict.fromkeys(side for _, rounds in backends for m in rounds for side in m.curves.distribution))
        for side in sides:
            traces = []
            for name, rounds in backends:
                counts: dict[float, int] = {}
                for m in rounds:
                    for us, n in m.curves.distribution.get(side, []):
                        counts[us] = counts.get(us, 0) + n
                if counts:
                    xs = sorted(counts)
                    shares = np.cumsum([counts[x] for x in xs]) / sum(counts.values())
                    traces.append(Trace(view.title(name), styles[name], xs, [float(v) for v in shares]))
            panels.append((f"{label}{', ' if label else ''}{side}s" if len(sides) > 1 else label, traces))
    if not panels:
        return None
    return plots.distributions(f"{view.info.name}-distribution", "Distribution of completion latency: the share of operations done within a time, all rounds together. "
                               "The upper axis is stretched towards 100 %.", panels, "us", "completion latency")  # fmt: skip


def _courses(view: View) -> Figure | None:
    """The median of the rounds in each step of the measurement, the band their range."""
    styles, panels = _styles(view), []
    for label, backends in _by_case(view, lambda m: len(m.curves.course) > 1):
        traces = []
        for name, rounds in backends:
            step = rounds[0].curves.step
            courses = [m.curves.course for m in rounds if m.curves.step == step]
            steps = [[c[n] for c in courses if n < len(c)] for n in range(max(map(len, courses)))]
            traces.append(Trace(view.title(name), styles[name], [(n + 0.5) * step for n in range(len(steps))], [float(np.median(v)) for v in steps],
                                [min(v) for v in steps] if len(courses) > 1 else [], [max(v) for v in steps] if len(courses) > 1 else []))  # fmt: skip
        panels.append((label, traces))
    if not panels:
        return None
    return plots.courses(f"{view.info.name}-course", "Operations per second within a measurement, after its ramp: the median of the rounds at each moment, the band their range.",
                         panels, "1/s", "IOPS", "time [s]")  # fmt: skip


def _ratios(view: View) -> list[Figure | None]:
    """Headline metrics against the reference: in one figure where they fit, else one for each metric."""
    made: list[Figure | None] = []
    everything: list[Dot] = []
    for metric in view.headline():
        rows = []
        for c in view.compared:
            r = c.result
            if c.metric != metric or r.kind != "ratio" or not r.value or r.value <= 0 or (r.low is not None and r.low <= 0):
                continue
            case = case_label(dict(c.case), view.varying())
            label = f"{view.title(c.pair.reference)} / {view.title(c.pair.other)}" + (f", {case}" if case else "")
            everything.append(Dot(f"{metric_name(metric)}: {label}", view.pairs.index(c.pair), r.value, r.low, r.high, (), c.gain))
            rows.append(Dot(label, view.pairs.index(c.pair), r.value, r.low, r.high, (), c.gain))
        if len(rows) > 1:
            made.append(plots.ratios(f"{view.info.name}-ratio-{metric.replace('_', '-')}",
                                     f"Ratio of medians, {metric_name(metric)}; filled where it differs from 1.", rows, "ratio"))  # fmt: skip
    if 0 < len(everything) <= plots.MAX_ROWS:
        return [plots.ratios(f"{view.info.name}-ratios", "Ratios of medians; filled where the interval excludes 1.", everything, "ratio")]
    return made


def overview(shown: Sequence[View]) -> Figure | None:
    """Of a whole report: a row for each headline metric and pair, a mark for each case."""
    rows = []
    for view in shown:
        for metric in view.headline():
            for pair in view.pairs:
                points = [(c.result.value, c.gain) for c in view.compared if c.metric == metric and c.pair == pair and c.result.kind == "ratio" and c.result.value]
                if points:
                    rows.append((f"{view.info.name}, {metric_name(metric)}: {view.title(pair.reference)} / {view.title(pair.other)}", points))
    if not rows:
        return None
    return plots.strip("headline", "Every comparison of headline metrics: a mark is the ratio of medians in one case, filled where there is a verdict.", rows, "ratio of medians")


def _rounds(view: View) -> Figure | None:
    """Noise as it came: each round as a share of its case's median."""
    metric, styles, drawn = view.headline()[:1], _styles(view), []
    for b in view.measured:
        by_round: dict[int, list[float]] = {}
        for case in view.cases:
            cell = view.cells.get((metric[0], b.name, case)) if metric else None
            if cell and cell.interval.median and len(cell.rounds) > 1:
                for number, value in cell.rounds.items():
                    by_round.setdefault(number, []).append(value / cell.interval.median)
        points = [(n + 1.0, float(np.median(v)), float(min(v)), float(max(v))) for n, v in sorted(by_round.items())[:MAX_ROUNDS_DRAWN]]
        if len(points) > 1:
            drawn.append(Line(b.title, styles[b.name], points))
    if not drawn:
        return None
    last = int(max(p[0] for line in drawn for p in line.points))
    step = max(1, last // 12)
    ticks = [(float(n), str(n)) for n in range(1, last + 1, step)]
    name = metric_name(metric[0])
    return plots.lines(f"{view.info.name}-rounds", f"Noise: {name} of each round as a share of its case's median; lines join medians over the cases, whiskers are their range.",
                       [Panel("", drawn)], "1", "share of the median", "round", ticks, columns=1)  # fmt: skip


_OF_STUDY: dict[str, list[Callable[[View], Figure | Sequence[Figure | None] | None]]] = {
    "matrix": [_matrix, _compared_with_published],
    "boot": [_boot],
    "formats": [_formats],
    "provision": [_provision],
    "migrate": [_dots],
    "layouts": [_layouts, _compared_with_published],
    "failure": [_dots],
}
