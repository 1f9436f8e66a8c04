"""Which figures a study gets: forms after those of the published studies, filled with this run's cells.

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

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from lab import plots, stats
from lab.plots import Bar, Column, Dot, Figure, Line, Panel, Trace
from lab.plots_matrix import matrix
from lab.plots_view import along, compared_with_published, dots, only, over, published_of, row_label, styles_of, values_of
from lab.records import Measured
from lab.report_data import View
from lab.report_units import case_label, factor_value, metric_name

PHASES = ("download_time", "convert_time", "resize_time", "overlay_time")
MAX_ROUNDS_DRAWN = 200


def figures(view: View) -> list[Figure]:
    """In the order of the report; a figure with nothing to show is not drawn."""
    if not view.measured:
        return []
    makers = _OF_STUDY.get(view.info.name, [dots])
    drawn = [f for make in [*makers, _distributions, _courses, _ratios, _rounds] for f in _listed(make(view))]
    return [f for f in drawn if f is not None]


def _listed(found: Figure | Sequence[Figure] | None) -> list[Figure]:
    return [] if found is None else [found] if isinstance(found, Figure) else list(found)


PERCENTILES = (50.0, 75.0, 90.0, 95.0, 97.5, 99.0)


def _percentiles(view: View) -> list[Figure | None]:
    """Boot and deletion by percentile of the VMs, with intervals from 20 of them on."""
    styles, made = styles_of(view), []
    for metric in ("boot_time", "delete_time"):
        panels: dict[str, list[Line]] = {}
        for case in view.cases:
            for b in view.measured:
                cell = view.cells.get((metric, b.name, case))
                found = [stats.percentile_interval(list(cell.rounds.values()), p) if cell else None for p in PERCENTILES]
                points = [(float(n), i.median, i.low, i.high) for n, i in enumerate(found) if i is not None]
                if len(points) > 1:
                    panels.setdefault(case_label(dict(case), view.varying()), []).append(Line(view.title(b.name), styles[b.name], points))
        if panels:
            last = int(max(p[0] for drawn in panels.values() for line in drawn for p in line.points))
            made.append(plots.lines(
                f"boot-percentiles-{metric.replace('_', '-')}", f"Percentiles of the {metric_name(metric)}, with their intervals by bootstrap where there are {stats.MIN_BOOTSTRAP} VMs and more.",
                [Panel(title, drawn) for title, drawn in panels.items()], "s", metric_name(metric), "percentile of the VMs", [(float(n), f"{PERCENTILES[n]:g}") for n in range(last + 1)],
                columns=min(2, len(panels)), marks=_marks_of(view, metric, panels)))  # fmt: skip
    return made


def _one_by_one(view: View) -> list[Figure | None]:
    """Every VM's run time and bandwidth, in the order in which they ran: of Oliveira's study there are 40."""
    styles, made = styles_of(view), []
    for metric in ("run_time", "bandwidth"):
        panels, unit = {}, ""
        for case in view.cases:
            for b in view.measured:
                cell = view.cells.get((metric, b.name, case))
                if cell is not None and len(cell.rounds) > 1:
                    unit = cell.unit
                    points = [(n + 1.0, v, None, None) for n, v in sorted(cell.rounds.items())[:MAX_ROUNDS_DRAWN]]
                    panels.setdefault(case_label(dict(case), view.varying()), []).append(Line(view.title(b.name), styles[b.name], points))
        if panels:
            last = int(max(p[0] for drawn in panels.values() for line in drawn for p in line.points))
            ticks = [(float(n), str(n)) for n in range(1, last + 1, max(1, last // 10))]
            made.append(plots.lines(f"boot-each-{metric.replace('_', '-')}", f"Each VM's {metric_name(metric)}, in the order of the samples.", [Panel(t, drawn) for t, drawn in panels.items()],
                                    unit, metric_name(metric), "sample", ticks, columns=1, marks=_marks_of(view, metric, panels)))  # fmt: skip
    return made


def _marks_of(view: View, metric: str, panels: Iterable[str]) -> dict[str, list[tuple[float, str]]]:
    return {title: [(p.value, p.label) for p in published_of(view) if p.metric == metric and not p.case] for title in panels}


SAMPLED = ("boot_time", "delete_time", "run_time", "bandwidth")


def _boot(view: View) -> list[Figure | None]:
    """Medians, the samples' distribution for each time, and latency inside the guest."""
    styles, made = styles_of(view), [dots(view), *_percentiles(view), *_one_by_one(view)]
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
            rows[metric].append(Dot(row_label(view, backend, case), styles[backend], i.median, i.low, i.high, tuple(cell.rounds.values())))
    groups = [(metric_name(m), "us", r) for m, r in rows.items() if r]
    made.append(plots.dots("boot-latency", "Latency of the writes inside the VM: medians with their intervals; the strokes are the rounds.", groups) if groups else None)
    return made


def _formats(view: View) -> Figure | None:
    made = over(view, "bandwidth", "record", ("op", "instrument"), "formats-bandwidth", "Bandwidth over the record size: medians, whiskers their intervals.")
    return made or dots(view)


def _vm(view: View) -> list[Figure | None]:
    """A figure for each work: throughput or IOPS over the block size, a panel for each operation; dots where there is one block size."""
    made: list[Figure | None] = []
    for work, metric, caption in (("seq", "bandwidth", "Sequential throughput inside a VM"), ("rand", "iops", "Random IOPS inside a VM"),
                                  ("iozone", "bandwidth", "iozone's pattern inside a VM, by fio: bandwidth over the record size")):  # fmt: skip
        part = only(view, {"work": work})
        if part.cases:
            made.append(over(part, metric, "bs", ("op", "depth"), f"vm-{work}", f"{caption}: medians, whiskers their intervals.")
                        or dots(part, (metric,), f"vm-{work}", f"{caption}: medians with their intervals; the strokes are the rounds."))  # fmt: skip
    return made


def _startup(view: View) -> list[Figure | None]:
    """After Ding et al.: what the time to a running VM is made of over the size of its image, and each part over that size."""
    parts = (("download_time", "download"), ("convert_time", "convert"), ("resize_time", "resize"), ("overlay_time", "copy on write, clone"), ("batch_boot_time", "boot"))
    panels, of_size = [], [c for c in view.cases if len({dict(d).get("image") for d in view.cases if all(dict(d).get(f) == dict(c).get(f) for f in ("vms", "hosts"))}) > 1]
    for b in view.measured:
        bars = []
        for case in of_size:
            cells = [(title, view.cells.get((p, b.name, case))) for p, title in parts]
            if segments := tuple((title, c.interval.median) for title, c in cells if c is not None and c.interval.median is not None):
                differing = [f for f in ("vms", "hosts") if len({dict(c)[f] for c in of_size}) > 1]
                bars.append(Column("\n".join([factor_value("image", dict(case)["image"]), *([case_label(dict(case), differing)] if differing else [])]), segments))
        if len(bars) > 1:
            panels.append((b.title, bars))
    if not panels:
        return []
    sized = View(view.info, view.backends, of_size, view.metrics, {k: c for k, c in view.cells.items() if k[2] in set(of_size)}, view.pairs, view.compared, view.preset)
    made: list[Figure | None] = [plots.columns("provision-startup", "Time until a VM runs, by its parts, over the size of its image (medians).", panels, "s", "time", "size of the image")]
    for metric, name in (*parts[:2], parts[3], ("provision_time", "all until the disks exist")):
        made.append(over(sized, metric, "image", ("vms", "hosts"), f"provision-image-{metric.removesuffix('_time')}", f"Time over the size of the image: {name}."))
    return made


def _provision(view: View) -> list[Figure | None]:
    rows, varying = [], view.varying()
    for case in view.cases:
        for b in view.measured:
            cells = [(p, view.cells.get((p, b.name, case))) for p in PHASES]
            segments = tuple((metric_name(p).removesuffix(" time"), c.interval.median) for p, c in cells if c is not None and c.interval.median is not None)
            if segments:
                rows.append(Bar(f"{case_label(dict(case), varying)}{'  ' if varying else ''}{b.title}", segments))
    parts = plots.bars("provision-parts", "Time until the disks exist, by its parts (medians).", rows, "s", "time") if rows else None
    sized = _startup(view)
    if sized:  # what follows is of the smallest image alone
        view = only(view, {"image": values_of(view, "image")[0]})
    whole = over(view, "provision_time", "vms", ("hosts",), "provision-time", "Time until the disks of all VMs exist, over their number.")
    boots = over(view, "batch_boot_time", "vms", ("hosts",), "provision-boot", "Time until the last VM of the batch reports, over their number.")
    return [parts, *sized, whole, boots] if whole or boots or sized else [parts, dots(view)]


def _layouts(view: View) -> list[Figure | None]:
    """After Borges et al.: over the stripe unit and over the stripe count, a figure for each operation, a panel for each back end, a line for each block
    size; over the threads that share a file, and over the delay, a line for each back end."""
    made: list[Figure | None] = []
    for x, other, name in (("stripe_unit", "stripe_count", "stripe unit"), ("stripe_count", "stripe_unit", "stripe count")):
        part = along(view, x)
        for op in values_of(part, "op"):
            of_op = only(part, {"op": op})
            series = [f for f in ("bs", "threads") if len(values_of(of_op, f)) > 1] or ["bs"]
            made.append(over(of_op, "bandwidth", x, (other, "delay", "hosts"), f"layouts-{x.replace('_', '-')}-{op}", f"Bandwidth over the {name}, {op}.", series=series))
    for x, others, caption in (
        ("threads", ("op", "bs", "stripe_unit", "stripe_count", "delay", "hosts"), "Bandwidth over the threads that share one file"),
        ("delay", ("op", "bs", "stripe_unit", "stripe_count", "threads", "hosts"), "Bandwidth over the delay between client and servers, of a round trip"),
        ("hosts", ("op", "bs", "stripe_unit", "stripe_count", "threads", "delay"), "Bandwidth of all client hosts together, each with a file of its own, over their number"),
    ):
        told = " Dotted: what the study prints, of its own machines and settings." if x == "threads" and published_of(view) else ""
        made.append(over(along(view, x), "bandwidth", x, others, f"layouts-{x}", f"{caption}.{told}", log_x=x == "threads"))
    return made if any(made) else [dots(view)]


def _served(view: View) -> list[Figure | None]:
    """Objects over their size, files over the number of clients: rates, latency by percentiles, and the servers' processor time, a panel for each
    operation."""
    x = view.info.x
    others = tuple(f for f in ("op", "object", "files", "clients", "flushed", "hosts") if f != x)
    made = [over(view, metric, x, others, f"{view.info.name}-{name}", f"{caption}: medians, whiskers their intervals.", log_x=x == "clients")
            for metric, name, caption in (("iops", "rate", "Operations per second"), ("bandwidth", "bandwidth", "Bandwidth"), ("latency_p50", "latency-p50", "Median latency"),
                                          ("latency_p99", "latency-p99", "99th percentile of latency"), ("server_cpu_per_op", "processor", "Processor time of the servers per operation"))]  # fmt: skip
    around = tuple(f for f in ("op", "object", "files", "clients", "flushed"))
    made.append(over(along(view, "hosts"), "iops", "hosts", around, f"{view.info.name}-hosts", "Operations per second of all client hosts together, over their number."))
    return made if any(made) else [dots(view)]


def _by_case(view: View, kept: Callable[[Measured], bool]) -> list[tuple[str, list[tuple[str, list[Measured]]]]]:
    """(case, (back end, its rounds)), in the report's order."""
    varying, found = view.varying(), {}
    for m in view.curves:
        if kept(m):
            found.setdefault(tuple(m.case.items()), {}).setdefault(m.backend, []).append(m)
    return [(case_label(dict(case), varying), [(b.name, found[case][b.name]) for b in view.backends if b.name in found[case]]) for case in view.cases if case in found]


def _distributions(view: View) -> Figure | None:
    """All rounds of a case together; reads and writes of a mix apart."""
    styles, panels = styles_of(view), []
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
    styles, panels = styles_of(view), []
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
                                     f"Ratio of medians, {metric_name(metric)}; filled where a difference is called, hollow where none is or nothing is judged.", rows, "ratio"))  # fmt: skip
    if 0 < len(everything) <= plots.MAX_ROWS:
        return [plots.ratios(f"{view.info.name}-ratios", "Ratios of medians; filled where a difference is called, hollow where none is or nothing is judged.", everything, "ratio")]
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
    metric, styles, drawn = view.headline()[:1], styles_of(view), []
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
    "matrix": [matrix, compared_with_published],
    "boot": [_boot],
    "vm": [_vm],
    "formats": [_formats],
    "provision": [_provision],
    "migrate": [dots],
    "layouts": [_layouts, compared_with_published],
    "metadata": [_served],
    "objects": [_served],
    "failure": [dots],
}
