"""What a report says, before it is put into words, tables or plots: cells, and comparisons between them.

Vocabulary
    cell        one metric of one case on one back end: its interval, noise, rounds, failures
    view        one study: its back ends, cases, metrics, cells and comparisons
    reference   the back end that others are compared with: Skep of as many copies, where Skep was measured, else
                the first back end that has samples
    pair        (reference, other)
    like        what a fair comparison needs: as many copies, and for writes answers given at the same point (flushed, sent,
                cached), and for memory the same budget. What is not like is shown with its ratio, and not judged

Invariants: every back end that the run names is in its study's view, also those that were skipped or failed;
failed measurements are counted, never dropped in silence; comparisons pair rounds of the same case only.
Does no formatting and reads no files.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from lab import stats
from lab.records import METRICS, STUDIES, BackendState, Factor, Measured, RecordError, Run, Sample, StudyInfo

REFERENCE_KINDS = ("skep", "skep-hosts", "skep-fs", "skep-s3")
CHANGING_OPS = ("put", "delete", "create", "rename", "unlink")  # that have no "write" in their name
UNLIKE = "unlike"  # the gain of a comparison that is not judged
# Where a write is when it is answered, out of what runs recorded before there was a word for it.
_ACKNOWLEDGED_TEXTS = (("on disk, flushed", "flushed"), ("page cache of", "cached"), ("the device's hands", "sent"), ("as the server promise", "cached"))
MAX_ERRORS = 10  # different errors kept for each back end of a study

# A factor that tells what a back end's disks are like rather than what is asked of them. Where a study has more
# than one value of it, `gluster:2` with qcow2 and with raw are compared as back ends of their own: `gluster:2/qcow2`.
OWN_FACTORS = ("format", "storage")

CaseKey = tuple[tuple[str, Factor], ...]


@dataclass(frozen=True)
class Cell:
    metric: str
    unit: str
    backend: str
    case: CaseKey
    interval: stats.Interval
    rounds: dict[int, float]
    noise: float | None
    drifts: bool
    failed: int


@dataclass(frozen=True)
class Pair:
    reference: str
    other: str


@dataclass(frozen=True)
class Compared:
    """The reference against the other back end; `gain` is better, worse, same, undecided or undefined, changed
    where neither direction of the metric is better, or unlike, with the reason in `unlike`."""

    metric: str
    pair: Pair
    case: CaseKey
    result: stats.Comparison
    gain: str
    unlike: str = ""


@dataclass(frozen=True)
class Wishes:
    """What a reader asks of the comparisons."""

    reference: str = ""  # a back end's name; "": by the rule above
    all_pairs: bool = False
    judge_unlike: bool = False


@dataclass
class BackendView:
    name: str
    title: str
    state: str  # as of BackendState; "unfinished" where the run ended before it
    reason: str
    version: str
    options: dict[str, object]
    samples: int = 0
    failed: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        return self.samples > 0

    @property
    def complete(self) -> bool:
        return self.state == "done" and self.failed == 0

    @property
    def acknowledged(self) -> str:
        """flushed, sent or cached; "" where the run does not say."""
        said = str(self.options.get("acknowledged", ""))
        return said if said in ("flushed", "sent", "cached") else next((word for text, word in _ACKNOWLEDGED_TEXTS if text in said), "")


@dataclass
class View:
    info: StudyInfo
    backends: list[BackendView]
    cases: list[CaseKey]
    metrics: list[str]
    cells: dict[tuple[str, str, CaseKey], Cell]
    pairs: list[Pair]
    compared: list[Compared]
    preset: str = ""  # the published study whose work this is
    curves: list[Measured] = field(default_factory=list)  # of single measurements, with variants' names

    def title(self, backend: str) -> str:
        return next((b.title for b in self.backends if b.name == backend), backend)

    @property
    def measured(self) -> list[BackendView]:
        return [b for b in self.backends if b.measured]

    def varying(self) -> list[str]:
        """Factors with more than one value, in order of first appearance."""
        values: dict[str, set[Factor]] = {}
        for case in self.cases:
            for name, value in case:
                values.setdefault(name, set()).add(value)
        everywhere = {n for n in values if all(n in dict(c) for c in self.cases)}
        return [n for n in values if len(values[n]) > 1 or n not in everywhere]

    def constants(self) -> dict[str, Factor]:
        varying = set(self.varying())
        return {n: v for case in self.cases[:1] for n, v in case if n not in varying}

    def headline(self) -> list[str]:
        """At one block size bandwidth says again what IOPS say."""
        chosen = [m for m in self.info.headline if m in self.metrics and not (m == "bandwidth" and "iops" in self.info.headline)]
        return chosen or self.metrics[:1]


def copies_of(backend: str) -> str:
    """Of `gluster:2/qcow2` the 2."""
    return backend.partition(":")[2].partition("/")[0]


def _variant(name: str, siblings: list[str]) -> str:
    """`, qcow2` where the back end was measured with several formats."""
    return "".join(f", {v}" for v in name.split("/")[1:]) if len(siblings) > 1 else ""


def _title(title: str) -> str:
    """`Ceph RBD, 1 copy` reads better within a sentence as `Ceph RBD (1 copy)`."""
    name, comma, rest = title.rpartition(", ")
    return f"{name} ({rest})" if comma and rest.endswith(("copy", "copies")) else title


def kind_of(backend: str) -> str:
    return backend.partition(":")[0]


def gain_of(metric: str, verdict: str) -> str:
    better = METRICS[metric].better if metric in METRICS else ""
    if verdict not in (stats.HIGHER, stats.LOWER):
        return verdict
    if not better:
        return "changed"
    return "better" if verdict == better else "worse"


def flattened(options: dict[str, Any], before: str = "") -> dict[str, str]:
    """{"matrix": {"size": 1}} -> {"matrix.size": "1"}: one setting a line. Rows of a grid stay together."""
    flat: dict[str, str] = {}
    for key, value in options.items():
        if isinstance(value, dict):
            flat |= flattened(value, f"{before}{key}.")
        else:
            flat[before + key] = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return flat


def views(run: Run, wishes: Wishes = Wishes(), curves: dict[str, list[Measured]] | None = None) -> list[View]:
    """`curves`: by study, as records.load_curves gives them."""
    names = list(dict.fromkeys([*run.studies, *(b.study for b in run.backends), *(s.study for s in run.samples)]))
    shown = [_view(run, name, wishes, (curves or {}).get(name, [])) for name in names if name]
    if wishes.reference and not any(wishes.reference in (p.reference, p.other) for v in shown for p in v.pairs):
        measured = sorted({b.name for v in shown for b in v.measured})
        raise RecordError(f"no results of {wishes.reference}; the run has {', '.join(measured)}")
    _correct(shown)
    return shown


def _correct(shown: list[View]) -> None:
    """Headlines of the whole report are one family, all else another."""
    for wanted in (True, False):
        places = [(v, i) for v in shown for i, c in enumerate(v.compared) if not c.unlike and (c.metric in v.headline()) == wanted]
        results = stats.corrected([v.compared[i].result for v, i in places])
        for (v, i), result in zip(places, results):
            v.compared[i] = replace(v.compared[i], result=result, gain=gain_of(v.compared[i].metric, result.verdict))


def _view(run: Run, study: str, wishes: Wishes, curves: list[Measured]) -> View:
    samples, variants, split = _split_variants([s for s in run.samples if s.study == study])
    info = STUDIES.get(study) or StudyInfo(study, study, "", (), "", (), "")
    # A failed measurement stands for its case also where it names no metric.
    cases = _ordered_cases(list(dict.fromkeys(_key(s) for s in samples)))
    present = {s.metric for s in samples if s.ok}
    metrics = [m for m in info.headline if m in present]
    metrics += [m for m in METRICS if m in present and m not in metrics]
    metrics += sorted(present - set(metrics))
    backends = _backends(run, study, samples, variants)
    cells = _cells(samples)
    pairs = _pairs([b.name for b in backends if b.measured], wishes)
    return View(info, backends, cases, metrics, cells, pairs, _compare(metrics, cases, pairs, cells, {} if wishes.judge_unlike else {b.name: b for b in backends}),
                str(run.options.get("profile", "")), [replace(m, backend=_own_name(m.backend, m.case, split), case={k: v for k, v in m.case.items() if k not in split}) for m in curves])


def _own_name(backend: str, case: dict[str, Factor], split: list[str]) -> str:
    return "/".join([backend, *(str(case[f]) for f in split if f in case)])


def _split_variants(samples: list[Sample]) -> tuple[list[Sample], dict[str, list[str]], list[str]]:
    """Samples with their own factors moved into the back end's name; for each back end its variants' names; those factors."""
    split = [f for f in OWN_FACTORS if len({s.case[f] for s in samples if f in s.case}) > 1]
    variants: dict[str, dict[str, None]] = {}
    moved = []
    for s in samples:
        name = _own_name(s.backend, s.case, split)
        variants.setdefault(s.backend, {})[name] = None
        moved.append(replace(s, backend=name, case={k: v for k, v in s.case.items() if k not in split}) if name != s.backend else s)
    return moved, {name: list(found) for name, found in variants.items()}, split


def _key(sample: Sample) -> CaseKey:
    return tuple(sample.case.items())


def _ordered_cases(cases: list[CaseKey]) -> list[CaseKey]:
    """Numbers by size, names by first appearance, the first factor outermost."""
    seen: dict[Factor, int] = {}
    for case in cases:
        for _, value in case:
            seen.setdefault(value, len(seen))

    def place(case: CaseKey) -> list[tuple[int, float]]:
        return [(0, float(v)) if isinstance(v, (int, float)) else (1, float(seen[v])) for _, v in case]

    return sorted(cases, key=place)


def _backends(run: Run, study: str, samples: list[Sample], variants: dict[str, list[str]]) -> list[BackendView]:
    states = {name: s for (st, name), s in run.last_states().items() if st in (study, "")}
    # Of several states of one back end the first that carries a title or version tells it; "skipped" may lack them.
    told: dict[str, BackendState] = {}
    for s in run.backends:
        if s.name not in told or (s.title and not told[s.name].title):
            told[s.name] = s
    found = []
    for name, shown_name in [(n, v) for n in dict.fromkeys([*states, *variants]) for v in variants.get(n, [n])]:
        own = [s for s in samples if s.backend == shown_name]
        state = states.get(name) or BackendState(name, study, "ready")
        shown, reason = state.state, state.reason
        if shown == "ready":
            shown, reason = "unfinished", reason or "the run ended before this back end was through"
        failed = [s for s in own if not s.ok]
        found.append(
            BackendView(
                shown_name, _title(state.title or told.get(name, state).title or name) + _variant(shown_name, variants.get(name, [])), shown, reason, state.version or told.get(name, state).version,
                dict(state.options or told.get(name, state).options), sum(s.ok for s in own), len({(_key(s), s.round) for s in failed}),
                list(dict.fromkeys(s.error for s in failed if s.error))[:MAX_ERRORS],
            )
        )  # fmt: skip
    return found


def _cells(samples: list[Sample]) -> dict[tuple[str, str, CaseKey], Cell]:
    values: dict[tuple[str, str, CaseKey], list[tuple[int, float]]] = {}
    failed: dict[tuple[str, CaseKey], set[int]] = {}
    units: dict[str, str] = {}
    for s in samples:
        if s.ok and s.value is not None:
            values.setdefault((s.metric, s.backend, _key(s)), []).append((s.round, s.value))
            units[s.metric] = s.unit
        else:
            failed.setdefault((s.backend, _key(s)), set()).add(s.round)
    cells = {}
    for key, points in values.items():
        metric, backend, case = key
        rounds = stats.per_round(points)
        data = list(rounds.values())
        cells[key] = Cell(
            metric, units[metric], backend, case, stats.median_interval(data), rounds,
            stats.noise(data), stats.drifts(rounds), len(failed.get((backend, case), ())),
        )  # fmt: skip
    return cells


def _pairs(measured: list[str], wishes: Wishes) -> list[Pair]:
    """Every other back end beside the reference of as many copies; where there is none, beside the first one."""
    if wishes.all_pairs:
        return [Pair(a, b) for i, a in enumerate(measured) for b in measured[i + 1:]]
    if wishes.reference:
        return [Pair(wishes.reference, b) for b in measured if b != wishes.reference] if wishes.reference in measured else []
    references = [b for b in measured if kind_of(b) in REFERENCE_KINDS] or measured[:1]
    pairs = []
    for other in measured:
        if other in references:
            continue
        same = [r for r in references if copies_of(r) == copies_of(other)]
        same.sort(key=lambda r: r.partition("/")[2] != other.partition("/")[2])
        pairs.append(Pair((same or references)[0], other))
    return pairs


def unlike(metric: str, case: CaseKey, a: BackendView, b: BackendView) -> str:
    """Why these two are no equals for this metric and case, or ""."""
    if copies_of(a.name) != copies_of(b.name):
        return f"copies differ: {_copies(a.name)} against {_copies(b.name)}"
    if metric in ("server_memory", "osd_memory"):
        budgets = [x.options.get("osd_memory") for x in (a, b)]
        return "" if budgets[0] == budgets[1] else f"memory budgets differ: {_budget(budgets[0])} against {_budget(budgets[1])} for an OSD"
    if writes(case) and (unknown := [x.title for x in (a, b) if x.options.get("acknowledged") == "unknown"]):
        return f"nobody has said when {' and '.join(unknown)} answers a write"
    if a.acknowledged != b.acknowledged and writes(case) and dict(case).get("flushed") != "yes":
        return f"writes are answered when {a.acknowledged or 'unknown'} against {b.acknowledged or 'unknown'}"
    return ""


def is_censored(cells: dict[tuple[str, str, CaseKey], Cell], backend: str, case: CaseKey) -> bool:
    """Whether the stall there is a lower bound in at least half of the rounds."""
    cell = cells.get(("stall_censored", backend, case))
    return cell is not None and (cell.interval.median or 0.0) >= 0.5


def writes(case: CaseKey) -> bool:
    """Whether the work of a case has writes."""
    f = dict(case)
    if "read" in f:
        return f["read"] != 100
    return "op" not in f or "write" in str(f["op"]) or f["op"] in CHANGING_OPS


def _copies(backend: str) -> str:
    n = copies_of(backend)
    return f"{n or '?'} {'copy' if n == '1' else 'copies'}"


def _budget(value: object) -> str:
    return f"{int(value) >> 20} MiB" if isinstance(value, int) else "none said"


def _compare(metrics: list[str], cases: list[CaseKey], pairs: list[Pair], cells: dict[tuple[str, str, CaseKey], Cell], known: dict[str, BackendView]) -> list[Compared]:
    """`known`: back ends whose likeness is looked at."""
    found = []
    for metric in metrics:
        for pair in pairs:
            for case in cases:
                a, b = cells.get((metric, pair.reference, case)), cells.get((metric, pair.other, case))
                if a is None or b is None:
                    continue
                result = stats.compare_rounds(a.rounds, b.rounds)
                why = unlike(metric, case, known[pair.reference], known[pair.other]) if known else ""
                if metric == "stall" and all(is_censored(cells, name, case) for name in (pair.reference, pair.other)):
                    why = why or "both stalls lasted as long as the outage, so both are only lower bounds"
                found.append(Compared(metric, pair, case, result, UNLIKE if why else gain_of(metric, result.verdict), why))
    return found
