"""The figures of `matrix`, after Ra's: IOPS over mixes, block sizes, clients and hosts; who uses the processor; memory of an OSD; and
the table of IOPS by block size and mix."""

from __future__ import annotations

import numpy as np

from lab import plots
from lab.plots import Bar, Column, Dot, Figure
from lab.plots_view import dots, only, over, published_of, styles_of, values_of
from lab.report_data import View
from lab.report_units import case_label, factor_value, metric_name, significant

ANY_MIX = "; of which mix of reads and writes, our notes do not say"

def matrix(view: View) -> list[Figure | None]:
    around = ("bs", "depth", "clients", "hosts")
    made = [over(view, "iops", "read", around, "matrix-iops", "Operations per second over the share of reads: medians, whiskers their intervals.")]
    deepest = only(view, {f: values_of(view, f)[-1] for f in ("depth", "clients") if values_of(view, f)})
    if len(values_of(deepest, "bs")) > 1:
        at = case_label({f: v for f, v in deepest.constants().items() if f in ("depth", "clients")})
        made.append(over(deepest, "iops", "read", (), "matrix-block-sizes", f"The same by block size for each back end ({at}).", series=("bs",)))
        made.append(over(deepest, "iops", "bs", (), "matrix-mix", f"Operations per second over the block size, a line for each mix of reads and writes ({at}).", series=("read",)))
    if len(values_of(view, "clients")) > 1:
        made.append(over(view, "iops", "clients", ("bs", "read", "depth", "hosts"), "matrix-clients", "Operations per second over the number of clients."))
    if len(values_of(view, "hosts")) > 1:
        made.append(over(view, "iops", "hosts", ("bs", "read", "depth", "clients"), "matrix-hosts", "Operations per second over the number of client hosts at work, all together."))
        made.append(over(view, "iops_per_host", "hosts", ("bs", "read", "depth", "clients"), "matrix-per-host", f"Operations per second of a client host, over their number.{_elsewhere(view, ANY_MIX)}"))
        for metric, which in (("host_iops_min", "slowest"), ("host_iops_max", "fastest")):
            made.append(over(view, metric, "hosts", ("bs", "read", "depth", "clients"), f"matrix-{which}-host", f"What the {which} client host did."))
    if len(values_of(view, "clients")) > 1:
        for metric, which in (("client_iops_min", "slowest"), ("client_iops_max", "fastest")):
            made.append(over(view, metric, "clients", ("bs", "read", "depth", "hosts"), f"matrix-{which}-client", f"What the {which} client did, over their number."))
    for x in ("clients", "hosts"):
        if len(values_of(view, x)) > 1:
            around_x = tuple(f for f in ("bs", "read", "depth", "clients", "hosts") if f != x)
            made.append(over(view, "iops_per_client", x, around_x, f"matrix-per-client-{x}", f"Operations per second of one client, over the number of {x}.{_elsewhere(view, ANY_MIX)}"))
    if len(values_of(view, "disk")) > 1:
        made.append(over(view, "iops", "read", around, "matrix-disks", "Operations per second by kind of disk: the kinds were measured one after another.", series=("disk",)))
    made.append(over(view, "latency_p99", "read", around, "matrix-latency", "99th percentile of latency over the share of reads."))
    for metric, name in (("latency_p50", "median"), ("latency_p99", "99th percentile"), ("latency_p999", "99.9th percentile")):
        made.append(over(view, metric, "depth", ("bs", "read", "clients", "hosts"), f"matrix-depth-{metric.removeprefix('latency_')}",
                          f"Latency over the operations in flight: {name}, medians of the rounds.", log_x=True))  # fmt: skip
    made.append(over(view, "server_cpu_per_op", "read", around, "matrix-processor", "Processor time of the servers per operation."))
    made += [_processor(deepest), _machine(deepest), _osd_memory(view)]
    if not any(made[:1]):  # a grid without read shares
        made.append(dots(view))
    return made


def _processor(view: View) -> Figure | None:
    """Who uses the processor: servers and clients, stacked."""
    parts = [("server_cores", "storage servers"), ("client_cores", "clients")]
    blocks, reads = values_of(view, "bs")[:1], values_of(view, "read")
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


def _elsewhere(view: View, mix: str = "") -> str:
    return f" Dotted: values that the study prints, of its own machines{mix}." if published_of(view) else ""


MODES = (("cpu_user", "user"), ("cpu_system", "system"), ("cpu_softirq", "softirq"), ("cpu_guest", "guests"))


def _machine(view: View) -> Figure | None:
    """After Ra: what the whole machine's processors did, over the operations per second that came of it; of the smallest blocks."""
    smallest, panels = values_of(view, "bs")[:1], []
    small = only(view, {"bs": smallest[0]}) if smallest else view
    for b, disk in [(b, d) for b in view.measured for d in values_of(small, "disk") or [""]]:
        found = []
        for case in only(small, {"disk": disk} if disk else {}).cases:
            done = view.cells.get(("iops", b.name, case))
            modes = [(title, view.cells.get((metric, b.name, case))) for metric, title in MODES]
            if done and done.interval.median and all(c and c.interval.median is not None for _, c in modes):
                label = f"{significant(done.interval.median)}" + (f"\n{dict(case)['read']} % reads" if "read" in dict(case) else "")
                found.append((done.interval.median, Column(label, tuple((title, c.interval.median) for title, c in modes))))
        if found:
            panels.append((f"{b.title}{', disk ' if disk else ''}{disk}", [c for _, c in sorted(found, key=lambda f: f[0])]))
    if not panels:
        return None
    at = case_label(small.constants(), [f for f in ("bs", "depth", "clients", "hosts") if f in small.constants()])
    return plots.columns("matrix-machine", f"Processors in use on the whole machine, load generator included, over the operations per second ({at}; medians).", panels, "cores",
                         "processors", "operations per second")  # fmt: skip


def _osd_memory(view: View) -> Figure | None:
    """Memory of OSDs apart from monitors and manager: over all cases of a back end its largest median, and the cases behind."""
    styles, groups, marks = styles_of(view), [], {}
    for metric in ("osd_memory", "mon_memory"):
        rows = []
        for b in view.measured:
            medians = sorted(c.interval.median for (m, name, _), c in view.cells.items() if m == metric and name == b.name and c.interval.median is not None)
            if medians:
                rows.append(Dot(b.title, styles[b.name], float(np.median(medians)), medians[0], medians[-1], tuple(medians)))
        if rows:
            groups.append((metric_name(metric), "B", rows))
            marks[metric_name(metric)] = [(p.value, p.label) for p in published_of(view) if p.metric == metric]
    if not groups:
        return None
    return plots.dots("matrix-osd-memory", f"Memory of one OSD, and of monitor and manager together: the median of all cases, from the least to the largest.{_elsewhere(view)}", groups,
                      {k: v for k, v in marks.items() if v})  # fmt: skip


def tables(view: View) -> list[dict[str, object]]:
    """IOPS by block size and mix, a table for each back end and depth, after Ra's: {title, columns, rows}."""
    blocks, reads, made = values_of(view, "bs"), values_of(view, "read"), []
    if view.info.name != "matrix" or len(blocks) < 2 or len(reads) < 2:
        return []
    others = list(dict.fromkeys(tuple((n, v) for n, v in case if n not in ("bs", "read")) for case in view.cases))
    for b in view.measured:
        for other in others:
            found = {(dict(c)["bs"], dict(c)["read"]): view.cells.get(("iops", b.name, c)) for c in view.cases if tuple((n, v) for n, v in c if n not in ("bs", "read")) == other}
            if len({bs for bs, _ in found}) < 2 or len({r for _, r in found}) < 2:
                continue
            at = case_label(dict(other), [n for n, _ in other if n in view.varying()])
            rows = [(factor_value("bs", bs), [significant(cell.interval.median) if (cell := found.get((bs, r))) and cell.interval.median is not None else "-" for r in reads]) for bs in blocks]
            made.append({"title": f"{b.title}{', ' if at else ''}{at}", "columns": [f"{r} % reads" for r in reads], "rows": rows})
    return made
