"""What differs, in one sentence each; and the sentences about what is missing, noisy or partial.

Invariants: a sentence says "better" or "worse" only where a comparison's interval excludes no difference and that is more than
chance among all; where rounds are too few it says so instead; what is no comparison of equals is said and not judged; a badge
speaks of all cases or counts them. Does not compute statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab import stats
from lab.records import Run
from lab.report_data import UNLIKE, BackendView, Compared, Pair, View, is_censored
from lab.report_units import case_label, joined, metric_name, significant, written

MAX_CASES_NAMED = 3  # exceptions that a sentence names; more are counted
DECIDED = ("better", "worse", "changed")
BADGES = {"better": "better", "worse": "worse", "changed": "differs", "same": "no difference", "undecided": "too few", "undefined": "none", UNLIKE: "not judged"}


@dataclass(frozen=True)
class Finding:
    """One sentence on one metric of one pair; gain: better or worse (in all cases), mixed, changed, same, undecided, unlike;
    badge: the same for people, with counts where cases differ."""

    metric: str
    pair: Pair
    gain: str
    badge: str
    sentence: str


def findings(view: View, metrics: list[str] | None = None) -> list[Finding]:
    found = []
    for metric in metrics if metrics is not None else view.headline():
        for pair in view.pairs:
            compared = [c for c in view.compared if c.metric == metric and c.pair == pair]
            if compared:
                found.append(_finding(view, metric, pair, compared))
    return found


def _finding(view: View, metric: str, pair: Pair, compared: list[Compared]) -> Finding:
    groups: dict[str, list[Compared]] = {}
    for c in compared:
        groups.setdefault(c.gain, []).append(c)
    gain = next(iter(groups)) if len(groups) == 1 else "mixed" if any(g in groups for g in DECIDED) else next((g for g in ("same", "undecided", UNLIKE) if g in groups), "undecided")
    sentence = _single(view, metric, pair, compared[0]) if len(compared) == 1 else _many(view, metric, pair, compared, groups)
    bounds = [view.title(n) for n in (pair.reference, pair.other) if metric == "stall" and any(is_censored(view.cells, n, c.case) for c in compared)]
    if bounds:
        sentence += f" Stalls of {joined(bounds)} lasted as long as the outage{'' if len(compared) == 1 else ' in some cases'}: at least so long."
    return Finding(metric, pair, gain, _badge(gain, groups, len(compared)), sentence)


def _badge(gain: str, groups: dict[str, list[Compared]], total: int) -> str:
    if gain != "mixed":
        return BADGES[gain]
    counts = [f"{len(groups[g])} {BADGES[g]}" for g in DECIDED if g in groups]
    return f"{', '.join(counts)} of {total}"


def _single(view: View, metric: str, pair: Pair, c: Compared) -> str:
    unit = next(cell.unit for (m, _, _), cell in view.cells.items() if m == metric)
    a, b = (view.cells[(metric, name, c.case)].interval.median for name in (pair.reference, pair.other))
    head = f"{_capital(metric_name(metric))}: {view.title(pair.reference)} {written(a, unit)}, {view.title(pair.other)} {written(b, unit)}"
    if c.result.value is None:
        return f"{head}; not comparable ({c.result.note})."
    extent = _extent(c, unit)
    if c.gain == UNLIKE:
        return f"{head}; {extent}: not judged, since {c.unlike}."
    if c.gain == "undecided":
        return f"{head}; {extent}; {c.result.note}."
    if c.gain == "same":
        return f"{head}; {extent}: no difference shown{', ' + c.result.note if c.result.note else ''}."
    word = {"better": "better", "worse": "worse", "changed": c.result.verdict}[c.gain]
    return f"{head}; {extent}: {word}."


def _extent(c: Compared, unit: str) -> str:
    if c.result.value is None:
        return ""
    interval = "" if c.result.low is None else f" ({_amount(c, c.result.low, unit)} to {_amount(c, c.result.high, unit)})"
    return f"ratio {significant(c.result.value)}{interval}" if c.result.kind == "ratio" else f"difference {written(c.result.value, unit)}{interval}"


def _amount(c: Compared, value: float | None, unit: str) -> str:
    return "-" if value is None else significant(value) if c.result.kind == "ratio" else written(value, unit)


def _many(view: View, metric: str, pair: Pair, compared: list[Compared], groups: dict[str, list[Compared]]) -> str:
    total = len(compared)
    head = f"{_capital(metric_name(metric))}: {view.title(pair.reference)} against {view.title(pair.other)} is"
    parts = []
    for gain in ("better", "worse", "changed"):
        if gain in groups:
            where = "all" if len(groups[gain]) == total else f"{len(groups[gain])} of"
            parts.append(f"{gain} in {where} {total} cases{_range(groups[gain])}{_where(view, groups[gain], total)}")
    if "same" in groups:
        parts.append(f"not shown to differ in {len(groups['same'])} of {total}{_range(groups['same'])}")
    undecided = groups.get("undecided", []) + groups.get("undefined", [])
    if undecided:
        rounds = min(c.result.n for c in undecided)
        few = "no round in common" if rounds == 0 else f"{rounds} round{'s' if rounds > 1 else ''}, too few"
        parts.append(f"not decided in {len(undecided)} of {total} ({few}){_range(undecided)}")
    if UNLIKE in groups:
        reasons = list(dict.fromkeys(c.unlike for c in groups[UNLIKE]))
        parts.append(f"not judged in {len(groups[UNLIKE])} of {total}, since {'; '.join(reasons)}{_range(groups[UNLIKE])}")
    return f"{head} {joined(parts)}."


def _range(group: list[Compared]) -> str:
    ratios = [c.result.value for c in group if c.result.kind == "ratio" and c.result.value is not None]
    if not ratios:
        return ""
    low, high = significant(min(ratios)), significant(max(ratios))
    return f", ratio {low}" if low == high else f", ratios {low} to {high}"


def _where(view: View, group: list[Compared], total: int) -> str:
    """Names the cases where they are the few of many."""
    if len(group) > MAX_CASES_NAMED or len(group) * 2 > total:
        return ""
    names = view.varying()
    return " (" + "; ".join(case_label(dict(c.case), names) for c in group) + ")"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def missing(view: View) -> list[str]:
    """A sentence for each back end that has not given everything it was asked for."""
    return [text for b in view.backends if (text := _missing(b))]


def _missing(b: BackendView) -> str:
    reason = f": {b.reason.rstrip('.')}" if b.reason else ""
    if b.state == "skipped":
        return f"{b.title} was not measured{reason}."
    if b.state == "failed":
        kept = "its results until then are kept and partial" if b.measured else "it gave no result"
        return f"{b.title} failed in mid-run{reason}; {kept}."
    if b.state == "unfinished":
        kept = "its results are partial" if b.measured else "it gave no result"
        return f"{b.title} is unfinished{reason}; {kept}."
    if b.failed:
        errors = f" ({b.errors[0].rstrip('.')}{', and others' if len(b.errors) > 1 else ''})" if b.errors else ""
        return f"{b.title}: {b.failed} measurement{'s' if b.failed > 1 else ''} failed{errors}."
    if not b.measured:
        return f"{b.title} gave no result{reason}."
    return ""


def completeness(run: Run, shown: list[View]) -> str:
    """The banner over a report that is not whole; empty where it is."""
    if run.end_state == "interrupted":
        return "This run was interrupted: the report holds what was measured until then. It can be resumed."
    if run.end_state == "partial" or any(not b.complete and b.state != "skipped" for v in shown for b in v.backends):
        reason = f" {run.end_reason.rstrip('.')}." if run.end_reason else ""
        return f"This report is partial: not every back end could be measured to the end.{reason}"
    return ""


def chance(shown: list[View]) -> str:
    """How many comparisons were made, and what that did to the verdicts."""
    headlines = [c for v in shown for c in v.compared if c.metric in v.headline()]
    tested = [c for c in headlines if c.result.p is not None and not c.unlike]
    unlike = sum(bool(c.unlike) for c in headlines)
    if not tested and not unlike:
        return ""
    called = sum(c.gain in DECIDED for c in tested)
    said = (
        f"Of {len(tested)} comparisons of headline metrics with rounds enough, {called} show a difference. Verdicts are corrected for that number (Holm): "
        f"were all back ends equal, a report would have any verdict in at most {100 * (1 - stats.LEVEL):.0f} % of cases."
    )
    return said + (f" {unlike} more are no comparisons of equals and were not judged (`--judge-unlike` judges them)." if unlike else "")
