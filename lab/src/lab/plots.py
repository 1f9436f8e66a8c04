"""Shapes of figures, as SVG that is readable on a light and on a dark page.

Vocabulary
    figure      what a report embeds: a name, SVG, a caption
    shape       lines over a factor, dots with whiskers, stacked bars, ratios, curves
    colour      a variable of the page (`var(--s0)`), so that one SVG suits both schemes; series also differ by
                marker and dash, so that none is told by colour alone

Invariants: the same data give the same bytes; a whisker is an interval of stats, never a standard deviation; an
axis of amounts starts at 0 unless it is logarithmic; what does not fit is left out by a named bound, and the
caption says how much. Which figures a study gets is the business of plots_studies.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import matplotlib

matplotlib.use("svg")
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure as Canvas  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator  # noqa: E402

from lab.report_units import scale, significant  # noqa: E402

MAX_PANELS = 12
MAX_ROWS = 40
MAX_DOTS = 60  # rounds drawn behind a whisker
LOG_SPREAD = 50  # largest over smallest value from which an axis is logarithmic
WIDTH_IN = 9.0
COLUMNS = 3

# Stand-ins that matplotlib can parse; `_themed` puts the page's variables in their place.
FG, GRID, BG, MUTED = "#010203", "#010204", "#010205", "#010206"
SERIES = [f"#0203{i:02x}" for i in range(8)]
GAIN = {"better": "#030401", "worse": "#030402", "same": MUTED, "undecided": MUTED, "undefined": MUTED, "changed": FG}
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "*"]
DASHES = ["-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (8, 2))]

_VARIABLES = {FG: "--fg", GRID: "--grid", BG: "--plot-bg", MUTED: "--muted", GAIN["better"]: "--good", GAIN["worse"]: "--bad"} | {
    c: f"--s{i}" for i, c in enumerate(SERIES)
}
# One table: the page and a figure of its own take their colours here.
COLOURS = {
    "light": {
        "--fg": "#1f2328", "--muted": "#6e7781", "--grid": "#d8dee4", "--plot-bg": "#ffffff", "--good": "#1a7f37", "--bad": "#cf222e",
        "--s0": "#0b62b3", "--s1": "#c84e00", "--s2": "#00805a", "--s3": "#9a3d8c", "--s4": "#8a6a00", "--s5": "#3a8fb7", "--s6": "#5b6470", "--s7": "#b02a4c",
    },
    "dark": {
        "--fg": "#e6edf3", "--muted": "#8b949e", "--grid": "#30363d", "--plot-bg": "#0d1117", "--good": "#3fb950", "--bad": "#ff7b72",
        "--s0": "#58a6ff", "--s1": "#ff9b57", "--s2": "#3ecf9e", "--s3": "#db8fd0", "--s4": "#e3c04d", "--s5": "#8fd3f0", "--s6": "#b1bac4", "--s7": "#ff8fab",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    name: str
    svg: str  # inline: its colours come from the page
    caption: str

    def standalone(self) -> str:
        """For a file of its own: with both colour schemes inside."""
        light, dark = (";".join(f"{k}:{v}" for k, v in COLOURS[s].items()) for s in ("light", "dark"))
        style = f"<style>svg{{{light}}}@media (prefers-color-scheme: dark){{svg{{{dark}}}}}</style>"
        return '<?xml version="1.0" encoding="utf-8"?>\n' + re.sub(r"(<svg[^>]*>)", lambda m: m.group(1) + style, self.svg, count=1)


@dataclass
class Line:
    label: str
    style: int
    points: list[tuple[float, float, float | None, float | None]] = field(default_factory=list)  # x, median, low, high
    filled: bool = True


@dataclass
class Panel:
    title: str
    lines: list[Line]


@dataclass
class Trace:
    """A curve without marks; `low` and `high` give it a band."""

    label: str
    style: int
    xs: list[float]
    ys: list[float]
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Dot:
    label: str
    style: int
    value: float
    low: float | None
    high: float | None
    rounds: tuple[float, ...] = ()
    gain: str = ""


@dataclass(frozen=True)
class Bar:
    label: str
    segments: tuple[tuple[str, float], ...]  # part, amount


def lines(
    name: str, caption: str, panels: Sequence[Panel], unit: str, ylabel: str, xlabel: str,
    ticks: Sequence[tuple[float, str]] = (), log_x: bool = False, columns: int = COLUMNS, marks: dict[str, Sequence[tuple[float, str]]] | None = None,
) -> Figure:  # fmt: skip
    """Small multiples of medians with whiskers over a factor. `marks`: of a panel's title, values from elsewhere as dotted lines across it."""
    shown, left_out = _spread(panels, MAX_PANELS)
    rows, columns = -(-len(shown) // columns), min(columns, len(shown))
    height = 2.5 * rows + 0.9
    canvas, grid = _canvas(rows, columns, height)
    each = [[v for line in panel.lines for p in line.points for v in p[1:] if v is not None] + [v for v, _ in (marks or {}).get(panel.title, ())] for panel in shown]
    log = _all_logarithmic(each)
    for axes, panel, values in zip(grid, shown, each):
        divisor, unit_name = scale(values, unit)
        xs = [p[0] for line in panel.lines for p in line.points]
        for place, line in enumerate(panel.lines):
            _draw_line(axes, _aside(line, place - (len(panel.lines) - 1) / 2, max(xs, default=1) - min(xs, default=0), log_x), divisor)
        _marks(axes, (marks or {}).get(panel.title, ()), divisor)
        axes.set_title(_wrapped(panel.title, columns), fontsize=9, color=FG, loc="left")
        if log_x:
            axes.set_xscale("log", base=2)
        if ticks:
            axes.set_xticks([x for x, _ in ticks], [label for _, label in ticks])
            axes.minorticks_off()
            if len(ticks) > 6:
                axes.tick_params(axis="x", labelrotation=45)
        _amounts(axes.yaxis, axes.set_ylim, values, divisor, log)
        axes.set_xlabel(xlabel, fontsize=8, color=FG)
        axes.set_ylabel(_with_unit(ylabel, unit_name), fontsize=8, color=FG)
    _hide(grid[len(shown) :])
    _legend(canvas, [line for p in shown for line in p.lines], height)
    return _figure(canvas, name, caption + _left_out(left_out, "panels"))


def dots(name: str, caption: str, groups: Sequence[tuple[str, str, Sequence[Dot]]], marks: dict[str, Sequence[tuple[float, str]]] | None = None) -> Figure:
    """Per metric (title, unit) a panel with a row for each back end or case: median, whisker, the rounds behind. `marks`: of a panel's
    title, values from elsewhere as named lines. One kind of axis for all panels; a metric that is 0 everywhere is said, not drawn."""
    idle = [title for title, _, rows in groups if not any(v for d in rows for v in _amounts_of(d))]
    drawn = [g for g in groups if g[0] not in idle] or groups
    kept = [(title, unit, _spread(rows, MAX_ROWS)) for title, unit, rows in drawn]
    heights = [0.3 * max(1, len(rows)) + 0.85 + (0.25 if title in (marks or {}) else 0.0) for title, _, (rows, _) in kept]
    canvas, grid = _canvas(len(kept), 1, sum(heights) + 0.2, heights)
    each = [[v for d in rows for v in _amounts_of(d)] + [v for v, _ in (marks or {}).get(title, ())] for title, _, (rows, _) in kept]
    log = _all_logarithmic(each)
    for axes, (title, unit, (rows, _)), values in zip(grid, kept, each):
        lines_of = (marks or {}).get(title, ())
        divisor, unit_name = scale(values, unit)
        for y, dot in enumerate(rows):
            axes.plot([v / divisor for v in dot.rounds[:MAX_DOTS]], [y] * len(dot.rounds[:MAX_DOTS]), "|", color=MUTED, markersize=7, alpha=0.55)
            _whisker(axes, dot, y, divisor, SERIES[dot.style % len(SERIES)])
        for n, (value, label) in enumerate(lines_of):
            axes.axvline(value / divisor, color=FG, linewidth=1, linestyle=":")
            # Beside the line, on its side with room; neighbours at other heights.
            right = value < 0.6 * max(values)
            axes.annotate(f"{label} {significant(value / divisor)}", (value / divisor, -0.55), (4 if right else -4, -2 - 9 * (n % 2)), textcoords="offset points",
                          ha="left" if right else "right", va="top", fontsize=7, color=MUTED)  # fmt: skip
        _rows(axes, [d.label for d in rows])
        if lines_of:
            axes.set_ylim(len(rows) - 0.4, -1.3)
        axes.set_title(_with_unit(title, unit_name), fontsize=9, color=FG, loc="left")
        _amounts(axes.xaxis, axes.set_xlim, values, divisor, log)
    nothing = f" Nothing but 0: {', '.join(idle)}." if idle and drawn is not groups else ""
    return _figure(canvas, name, caption + nothing + _left_out(sum(n for _, _, (_, n) in kept), "rows"))


def ratios(name: str, caption: str, rows: Sequence[Dot], xlabel: str) -> Figure:
    """Ratios with their intervals around 1: filled where a difference is called, hollow elsewhere."""
    shown, left_out = _spread(rows, MAX_ROWS)
    canvas, grid = _canvas(1, 1, 0.26 * len(shown) + 1.0)
    axes = grid[0]
    axes.axvline(1, color=FG, linewidth=1)
    for y, dot in enumerate(shown):
        decided = dot.gain in ("better", "worse", "changed")
        _whisker(axes, dot, y, 1.0, GAIN.get(dot.gain, MUTED), filled=decided)
    _rows(axes, [d.label for d in shown])
    values = [v for d in shown for v in (d.value, d.low, d.high) if v is not None and v > 0] + [1.0]
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.25, max(values) * 1.25)
    _log_ticks(axes.xaxis, max(values) / min(values))
    axes.set_xlabel(xlabel, fontsize=8, color=FG)
    return _figure(canvas, name, caption + _left_out(left_out, "rows"))


def strip(name: str, caption: str, rows: Sequence[tuple[str, Sequence[tuple[float, str]]]], xlabel: str) -> Figure:
    """A row for each (label, (ratio, gain) of its cases) around 1: how a comparison comes out over all cases at a glance."""
    shown, left_out = _spread(rows, MAX_ROWS)
    height = 0.3 * len(shown) + 1.1
    canvas, grid = _canvas(1, 1, height)
    axes = grid[0]
    axes.axvline(1, color=FG, linewidth=1)
    marks = {"better": "^", "worse": "v", "changed": "D"}
    for y, (_, points) in enumerate(shown):
        for value, gain in points:
            color = GAIN.get(gain, MUTED)
            axes.plot(value, y, marks.get(gain, "o"), color=color, markersize=6, markerfacecolor=color if gain in marks else BG)
    _rows(axes, [label for label, _ in shown])
    values = [v for _, points in shown for v, _ in points] + [1.0]
    axes.set_xscale("log")
    axes.set_xlim(min(values) / 1.25, max(values) * 1.25)
    _log_ticks(axes.xaxis, max(values) / min(values))
    axes.set_xlabel(xlabel, fontsize=8, color=FG)
    keys = (("better", "^", GAIN["better"]), ("worse", "v", GAIN["worse"]), ("no verdict", "o", BG))
    handles = [matplotlib.lines.Line2D([], [], linestyle="", marker=m, color=c if c != BG else MUTED, markerfacecolor=c, label=t) for t, m, c in keys]
    _legend_of(canvas, handles, [t for t, _, _ in keys], height)
    return _figure(canvas, name, caption + _left_out(left_out, "rows"))


def bars(name: str, caption: str, rows: Sequence[Bar], unit: str, xlabel: str) -> Figure:
    """Stacked horizontal bars: of what parts an amount is made."""
    shown, left_out = _spread(rows, MAX_ROWS)
    parts = list(dict.fromkeys(part for bar in shown for part, _ in bar.segments))
    totals = [sum(v for _, v in bar.segments) for bar in shown]
    divisor, unit_name = scale(totals, unit)
    height = 0.34 * len(shown) + 1.25
    canvas, grid = _canvas(1, 1, height)
    axes = grid[0]
    for y, bar in enumerate(shown):
        left = 0.0
        for part, amount in bar.segments:
            axes.barh(y, amount / divisor, left=left / divisor, height=0.62, color=SERIES[parts.index(part) % len(SERIES)], edgecolor=BG, linewidth=0.8)
            left += amount
        axes.text(left / divisor, y, f"  {significant(left / divisor)}", va="center", fontsize=8, color=FG)
    _rows(axes, [b.label for b in shown])
    axes.set_xlim(0, max(totals, default=1) / divisor * 1.12 or 1)
    axes.set_xlabel(_with_unit(xlabel, unit_name), fontsize=8, color=FG)
    handles = [matplotlib.patches.Patch(color=SERIES[i % len(SERIES)], label=p) for i, p in enumerate(parts)]
    _legend_of(canvas, handles, parts, height)
    return _figure(canvas, name, caption + _left_out(left_out, "rows"))


@dataclass(frozen=True)
class Column:
    """A vertical bar at its label."""

    label: str
    segments: tuple[tuple[str, float], ...]  # part, amount


def columns(name: str, caption: str, panels: Sequence[tuple[str, Sequence[Column]]], unit: str, ylabel: str, xlabel: str, across: int = 2) -> Figure:
    """Stacked vertical bars, one kind of axis for all panels."""
    shown, left_out = _spread(panels, MAX_PANELS)
    across = min(across, len(shown))
    rows = -(-len(shown) // across)
    height = 2.9 * rows + 0.9
    canvas, grid = _canvas(rows, across, height)
    # The order of the bar that has most of them.
    parts = list(dict.fromkeys(part for bar in sorted((b for _, bars_of in shown for b in bars_of), key=lambda b: -len(b.segments)) for part, _ in bar.segments))
    totals = [sum(v for _, v in bar.segments) for _, bars_of in shown for bar in bars_of]
    divisor, unit_name = scale(totals, unit)
    for axes, (title, bars_of) in zip(grid, shown):
        for x, bar in enumerate(bars_of):
            below = 0.0
            for part, amount in bar.segments:
                axes.bar(x, amount / divisor, bottom=below / divisor, width=0.7, color=SERIES[parts.index(part) % len(SERIES)], edgecolor=BG, linewidth=0.6)
                below += amount
        crowded = max(len(line) for bar in bars_of for line in bar.label.split("\n")) * len(bars_of) > 90 // across
        axes.set_xticks(range(len(bars_of)), [bar.label for bar in bars_of], rotation=60 if crowded else 0, ha="right" if crowded else "center")
        axes.grid(False, axis="x")
        axes.set_title(_wrapped(title, across), fontsize=9, color=FG, loc="left")
        axes.set_ylim(0, max(totals, default=1.0) / divisor * 1.08 or 1)
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.set_xlabel(xlabel, fontsize=8, color=FG)
        axes.set_ylabel(_with_unit(ylabel, unit_name), fontsize=8, color=FG)
    _hide(grid[len(shown) :])
    _legend_of(canvas, [matplotlib.patches.Patch(color=SERIES[i % len(SERIES)], label=p) for i, p in enumerate(parts)], parts, height)
    return _figure(canvas, name, caption + _left_out(left_out, "panels"))


def curves(
    name: str, caption: str, drawn: Sequence[Line], xlabel: str, ylabel: str, log_x: bool = False, log_y: bool = False,
    mark_x: tuple[float, str] | None = None, format_y: Callable[[float], str] = significant,
) -> Figure:  # fmt: skip
    """Lines without whiskers on one wide panel, each named at its end: for models."""
    canvas, grid = _canvas(1, 1, 3.6)
    axes = grid[0]
    for line in drawn:
        color = SERIES[line.style % len(SERIES)]
        xs, ys = [p[0] for p in line.points], [p[1] for p in line.points]
        axes.plot(xs, ys, color=color, linestyle=DASHES[line.style % len(DASHES)], linewidth=1.8, label=line.label)
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    if mark_x:
        axes.axvline(mark_x[0], color=MUTED, linewidth=1, linestyle=":")
        axes.text(mark_x[0], axes.get_ylim()[1], f" {mark_x[1]}", fontsize=8, color=MUTED, va="top")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: format_y(v)))
    axes.set_xlabel(xlabel, fontsize=8, color=FG)
    axes.set_ylabel(ylabel, fontsize=8, color=FG)
    _legend(canvas, list(drawn), 3.6, markers=False)
    return _figure(canvas, name, caption)


LEAST_SHARE = 0.001  # where an axis of distributions begins
SHARES = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999)  # ticks of an axis of shares


def distributions(name: str, caption: str, panels: Sequence[tuple[str, Sequence[Trace]]], unit: str, xlabel: str, of: str = "operations") -> Figure:
    """Cumulative shares (ys from 0 to 1) over amounts. The axis of shares is stretched towards 100 %, where tails differ."""
    shown, left_out = _spread(panels, MAX_PANELS)
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    height = 2.5 * rows + 0.9
    canvas, grid = _canvas(rows, columns, height)
    for axes, (title, traces) in zip(grid, shown):
        values = [x for t in traces for x in t.xs]
        divisor, unit_name = scale(values, unit)
        top = max((_stretched(y) for t in traces for y in t.ys if y < 1), default=1.0) + 0.3
        for t in traces:
            points = [(x / divisor, _stretched(y)) for x, y in zip(t.xs, t.ys) if y < 1]
            # The last bin has all operations: it stands at the top of the axis.
            points += [(t.xs[-1] / divisor, top)] if t.xs else []
            axes.plot([p[0] for p in points], [p[1] for p in points], drawstyle="steps-post", color=SERIES[t.style % len(SERIES)], linestyle=DASHES[t.style % len(DASHES)], linewidth=1.5)
        axes.set_title(_wrapped(title, columns), fontsize=9, color=FG, loc="left")
        axes.set_xscale("log")
        # Single operations far below all others would take half of the axis.
        least = min((next(x for x, y in zip(t.xs, t.ys) if y >= LEAST_SHARE) for t in traces), default=1.0)
        axes.set_xlim(least / divisor / 1.15, max(values) / divisor * 1.15)
        _log_ticks(axes.xaxis, max(values) / least)
        ticks = [s for s in SHARES if _stretched(s) <= top]
        axes.set_yticks([_stretched(s) for s in ticks], [f"{100 * s:.6g} %" for s in ticks])
        axes.set_ylim(0, top * 1.03)
        axes.set_xlabel(_with_unit(xlabel, unit_name), fontsize=8, color=FG)
        axes.set_ylabel(f"share of {of}", fontsize=8, color=FG)
    _hide(grid[len(shown) :])
    _legend(canvas, [Line(t.label, t.style) for _, traces in shown for t in traces], height, markers=False)
    return _figure(canvas, name, caption + _left_out(left_out, "panels"))


def _stretched(share: float) -> float:
    return -math.log10(max(1e-9, 1 - share))


def courses(name: str, caption: str, panels: Sequence[tuple[str, Sequence[Trace]]], unit: str, ylabel: str, xlabel: str) -> Figure:
    """Amounts over time, with bands."""
    shown, left_out = _spread(panels, MAX_PANELS)
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    height = 2.3 * rows + 0.9
    canvas, grid = _canvas(rows, columns, height)
    for axes, (title, traces) in zip(grid, shown):
        values = [y for t in traces for y in (*t.ys, *t.high)]
        divisor, unit_name = scale(values, unit)
        for t in traces:
            color = SERIES[t.style % len(SERIES)]
            if t.low:
                axes.fill_between(t.xs, [y / divisor for y in t.low], [y / divisor for y in t.high], color=color, alpha=0.18, linewidth=0)
            axes.plot(t.xs, [y / divisor for y in t.ys], color=color, linestyle=DASHES[t.style % len(DASHES)], linewidth=1.4)
        axes.set_title(_wrapped(title, columns), fontsize=9, color=FG, loc="left")
        axes.set_xlim(left=0)
        _amounts(axes.yaxis, axes.set_ylim, values, divisor, log=False)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
        axes.set_xlabel(xlabel, fontsize=8, color=FG)
        axes.set_ylabel(_with_unit(ylabel, unit_name), fontsize=8, color=FG)
    _hide(grid[len(shown) :])
    _legend(canvas, [Line(t.label, t.style) for _, traces in shown for t in traces], height, markers=False)
    return _figure(canvas, name, caption + _left_out(left_out, "panels"))


def _wrapped(title: str, columns: int) -> str:
    """No wider than its panel."""
    return textwrap.fill(title, 100 // columns)


def _hide(unused: Sequence[Axes]) -> None:
    for axes in unused:
        axes.set_visible(False)


def tornado(name: str, caption: str, rows: Sequence[tuple[str, float, float]], centre: float, xlabel: str, format_x: Callable[[float], str]) -> Figure:
    """How far each input moves the result, the strongest on top: (input, result when it is low, when high)."""
    canvas, grid = _canvas(1, 1, 0.34 * len(rows) + 1.2)
    axes = grid[0]
    for y, (_, low, high) in enumerate(rows):
        for value, color in ((low, SERIES[0]), (high, SERIES[1])):
            axes.barh(y, value - centre, left=centre, height=0.58, color=color)
            if value != centre:
                outward = 1 if value > centre else -1
                axes.annotate(format_x(value), (value, y), (4 * outward, 0), textcoords="offset points", va="center",
                              ha="left" if outward > 0 else "right", fontsize=7.5, color=FG)  # fmt: skip
    axes.axvline(centre, color=FG, linewidth=1)
    _rows(axes, [label for label, _, _ in rows])
    values = [v for _, a, b in rows for v in (a, b)] + [centre]
    spread = (max(values) - min(values)) or abs(centre) or 1.0
    axes.set_xlim(min(values) - 0.16 * spread, max(values) + 0.16 * spread)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: format_x(v)))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(xlabel, fontsize=8, color=FG)
    handles = [matplotlib.patches.Patch(color=SERIES[i], label=t) for i, t in enumerate(("input lower", "input higher"))]
    _legend_of(canvas, handles, ["input lower", "input higher"], 0.34 * len(rows) + 1.2)
    return _figure(canvas, name, caption)


# --- parts -------------------------------------------------------------------------------------------------


def _canvas(rows: int, columns: int, height: float, heights: Sequence[float] | None = None) -> tuple[Canvas, list[Axes]]:
    canvas = Canvas(figsize=(WIDTH_IN, height), layout="constrained")
    canvas.set_facecolor(BG)
    grid = canvas.subplots(rows, columns, squeeze=False, height_ratios=heights)
    for axes in grid.flat:
        axes.set_facecolor("none")
        axes.grid(True, color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(colors=FG, labelsize=8, length=3)
        for side, spine in axes.spines.items():
            spine.set_visible(side in ("left", "bottom"))
            spine.set_color(MUTED)
    return canvas, list(grid.flat)


def _aside(line: Line, steps: float, span: float, log_x: bool) -> Line:
    """A little to the side of its neighbours, so that whiskers at one x stay apart."""
    moved = [(x * 1.02**steps if log_x else x + 0.008 * steps * span, *rest) for x, *rest in line.points]
    return Line(line.label, line.style, moved, line.filled)


def _draw_line(axes: Axes, line: Line, divisor: float) -> None:
    color = SERIES[line.style % len(SERIES)]
    points = sorted(line.points)
    xs, ys = [p[0] for p in points], [p[1] / divisor for p in points]
    axes.plot(xs, ys, color=color, marker=MARKERS[line.style % len(MARKERS)], linestyle=DASHES[line.style % len(DASHES)], linewidth=1.5,
              markersize=4.5, markerfacecolor=color if line.filled else BG, label=line.label)  # fmt: skip
    bars = [(p[0], p[2] / divisor, p[3] / divisor) for p in points if p[2] is not None and p[3] is not None]
    if bars:
        axes.vlines([b[0] for b in bars], [b[1] for b in bars], [b[2] for b in bars], color=color, linewidth=1.1)


def _marks(axes: Axes, marks: Sequence[tuple[float, str]], divisor: float) -> None:
    for n, (value, label) in enumerate(marks):
        axes.axhline(value / divisor, color=FG, linewidth=1, linestyle=":")
        axes.annotate(f"{label} {significant(value / divisor)}", (0.5 * (n % 2), value / divisor), (2, 2), xycoords=("axes fraction", "data"), textcoords="offset points",
                      ha="left", va="bottom", fontsize=7, color=MUTED, zorder=5, bbox={"facecolor": BG, "edgecolor": "none", "pad": 1, "alpha": 0.85})  # fmt: skip


def _whisker(axes: Axes, dot: Dot, y: float, divisor: float, color: str, filled: bool = True) -> None:
    if dot.low is not None and dot.high is not None:
        axes.hlines(y, dot.low / divisor, dot.high / divisor, color=color, linewidth=2)
    axes.plot(dot.value / divisor, y, MARKERS[dot.style % len(MARKERS)], color=color, markerfacecolor=color if filled else BG, markersize=6.5)


def _rows(axes: Axes, labels: Sequence[str]) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(False, axis="y")


def _far_apart(values: Sequence[float]) -> bool:
    top, low = max(values, default=0.0), min(values, default=0.0)
    return low > 0 and top / low > LOG_SPREAD


def _all_logarithmic(panels: Sequence[Sequence[float]]) -> bool:
    """One kind of axis for all panels of a figure, which are read beside each other: logarithmic where values are far apart in any, and positive in all."""
    return any(_far_apart(v) for v in panels) and all(min(v, default=1) > 0 for v in panels)


def _amounts_of(dot: Dot) -> list[float]:
    return [v for v in (dot.value, dot.low, dot.high, *dot.rounds[:MAX_DOTS]) if v is not None]


def _amounts(axis: matplotlib.axis.Axis, limit: Callable[..., object], values: Sequence[float], divisor: float, log: bool) -> None:
    """From 0, or logarithmic."""
    top, low = max(values, default=0.0), min(values, default=0.0)
    if low > 0 and log:
        (axis.axes.set_yscale if axis is axis.axes.yaxis else axis.axes.set_xscale)("log")
        limit(low / divisor / 1.4, top / divisor * 1.4)
        _log_ticks(axis, top / low)
        return
    limit(0, top / divisor * 1.08 if top > 0 else 1)
    axis.set_major_locator(MaxNLocator(5))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:.3g}" if v < 10 else f"{v:,.0f}"))


def _log_ticks(axis: matplotlib.axis.Axis, spread: float) -> None:
    subs = (1.0, 2.0, 5.0) if spread < 500 else (1.0,)
    if spread < 4:
        subs = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
    axis.set_major_locator(LogLocator(base=10, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.6g}"))
    axis.set_minor_locator(NullLocator())


def _legend(canvas: Canvas, drawn: Sequence[Line], height: float, markers: bool = True) -> None:
    handles: dict[str, matplotlib.lines.Line2D] = {}
    for line in drawn:
        color = SERIES[line.style % len(SERIES)]
        handles.setdefault(line.label, matplotlib.lines.Line2D(
            [], [], color=color, marker=MARKERS[line.style % len(MARKERS)] if markers else None, linestyle=DASHES[line.style % len(DASHES)],
            markersize=5, markerfacecolor=color if line.filled else BG))  # fmt: skip
    _legend_of(canvas, list(handles.values()), list(handles), height)


def _legend_of(canvas: Canvas, handles: Sequence[object], labels: Sequence[str], height: float) -> None:
    if not labels:
        return
    columns = max(1, min(len(labels), int(110 / (max(map(len, labels)) + 6))))
    canvas.legend(handles, labels, loc="outside upper left", ncols=columns, fontsize=8, frameon=False, labelcolor=FG)


def _with_unit(title: str, unit: str) -> str:
    return f"{title} [{unit}]" if unit else title


def _spread(items: Sequence, bound: int) -> tuple[list, int]:
    """At most `bound` of them, evenly spread from the first to the last; and how many were left out."""
    if len(items) <= bound:
        return list(items), 0
    chosen = [items[round(i * (len(items) - 1) / (bound - 1))] for i in range(bound)]
    return chosen, len(items) - bound


def _left_out(count: int, what: str) -> str:
    return f" {count} more {what} are in the tables only." if count else ""


_RC = {"svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "text.color": FG, "axes.unicode_minus": False}


def _figure(canvas: Canvas, name: str, caption: str) -> Figure:
    out = io.StringIO()
    with matplotlib.rc_context(_RC | {"svg.hashsalt": name}):
        canvas.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": name})
    return Figure(name, _themed(out.getvalue(), name, caption), caption)


def _themed(svg: str, name: str, caption: str) -> str:
    """The page's variables for the stand-in colours; the SVG element alone, scaling with the page."""
    svg = svg[svg.index("<svg") :]
    # Half of the bytes are decimals and indentation that nobody sees.
    svg = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d+\.\d\d)\d+", r"\1", tag.group()), svg)  # never in texts: 0.001 is no 0.00
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = re.sub(r"<!--.*?-->\n?", "", svg)
    svg = svg.replace("; stroke-linejoin: round", "").replace("; stroke-linecap: square", "")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var({variable})")
    # Ids must not meet those of the page's other figures.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', lambda m: m.group(1) + name + "-", svg)
    svg = svg.replace("font: 8px 'DejaVu Sans'", "font: 8px 'DejaVu Sans', sans-serif")
    label = caption.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return re.sub(r"<svg ", f'<svg role="img" aria-label="{label}" ', svg, count=1).strip()
