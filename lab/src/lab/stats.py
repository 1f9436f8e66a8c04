"""Statistics of repeated measurements: an interval for a median, and whether two back ends differ.

Vocabulary
    values      one value per round; a round is the unit of repetition (see `per_round`)
    interval    where the median lies, with the confidence it really has
    ratio       median of A over median of B, with an interval
    verdict     what may be said of A against B: HIGHER, LOWER, SAME (no difference shown), UNDECIDED (too few
                rounds to say), UNDEFINED (nothing to compare)
    p           how likely rounds differ so much where A and B do not: t-test on the logarithms (paired: of the
                rounds' ratios; apart: Welch's)
    family      comparisons that are read together, such as all headlines of a report; `corrected` takes their number into
                account (Holm), so that a family of equal pairs has any verdict in at most 5 % of reports

Method, and why (figures of docs/statistics.md, repeated by tests/test_stats_coverage.py)
    Percentile bootstrap of the median with 10,000 resamples and 95 % from 20 values on, as Oliveira's study
    of BeeFS and Ceph did with 40. Below that the bootstrap covers less than it claims (88 % at 7 values), so there
    the exact interval of the order statistics is taken, which covers at least 95 % whatever the distribution.
    Below 6 values no 95 % interval exists: the range is given, with the confidence that it has (94 % at 5).
    The ratio resamples rounds: in an interleaved run the same rounds for A and B, so that what disturbs a whole
    round cancels out. Below 5 rounds such an interval calls a difference too often (12 to 24 % of the time
    where there is none), so no verdict is given.

Invariants: the same values give the same figures in every process (the resampling is seeded); a value that is
not finite is refused; no verdict of HIGHER or LOWER unless the ratio's interval excludes 1 (where the ratio
does not exist because B is 0: the difference's interval excludes 0), and p holds among its family.
Does not know metrics, studies or back ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.stats import binom, kendalltau, t as student

LEVEL = 0.95
RESAMPLES = 10_000
SEED = 20_190_401
MIN_BOOTSTRAP = 20  # values; below, order statistics
MIN_VERDICT = 5  # rounds; below, UNDECIDED
MIN_DRIFT = 8  # rounds; below, no test for drift
DRIFT_P = 0.01
MAD_TO_SIGMA = 1.4826  # of a normal distribution

HIGHER, LOWER, SAME, UNDECIDED, UNDEFINED = "higher", "lower", "same", "undecided", "undefined"


@dataclass(frozen=True)
class Interval:
    """`level` is the confidence that the method has at this n; low and high are None where n is 1 or 0."""

    n: int
    median: float | None
    low: float | None
    high: float | None
    level: float | None
    method: str  # bootstrap, order statistics, range, none

    @property
    def note(self) -> str:
        if self.n == 0:
            return "no value"
        if self.n == 1:
            return "one value: no interval"
        if self.method == "range":
            return f"{self.n} values: their range, which holds the median with {100 * (self.level or 0):.0f} % confidence"
        return ""


@dataclass(frozen=True)
class Comparison:
    """A against B. `value` is a ratio, or a difference where `kind` says so (B's median is or may be 0)."""

    verdict: str
    kind: str  # ratio, difference
    value: float | None
    low: float | None
    high: float | None
    n: int
    paired: bool
    note: str = ""
    p: float | None = None  # None where there is no verdict to take back
    family: int = 1  # comparisons that it was corrected for


def per_round(values: Iterable[tuple[int, float]]) -> dict[int, float]:
    """One value per round, the median of the values in it: VMs booted together share whatever disturbed that
    round and are not independent repetitions."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for number, value in values:
        rounds[number].append(value)
    return {number: float(np.median(_checked(rounds[number]))) for number in sorted(rounds)}


def median_interval(values: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES) -> Interval:
    """The interval by the method that is honest at this number of values."""
    data = _checked(values)
    if data.size == 0:
        return Interval(0, None, None, None, None, "none")
    median = float(np.median(data))
    if data.size == 1:
        return Interval(1, median, None, None, None, "none")
    if data.size >= MIN_BOOTSTRAP:
        low, high = bootstrap_interval(data, level, resamples)
        return Interval(data.size, median, low, high, level, "bootstrap")
    return order_interval(data, level)


def bootstrap_interval(values: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Percentile bootstrap of the median."""
    data = _checked(values)
    medians = np.median(data[_draws(data.size, resamples, 0)], axis=1)
    return _percentiles(medians, level)


def percentile_interval(values: Sequence[float], p: float, level: float = LEVEL, resamples: int = RESAMPLES) -> Interval | None:
    """A percentile of the values with its percentile bootstrap; None where fewer than one value would lie beyond it. `median` is the percentile."""
    data = _checked(values)
    if data.size * (1 - p / 100) < 1 - 1e-9:
        return None
    point = float(np.percentile(data, p))
    if data.size < MIN_BOOTSTRAP:
        return Interval(data.size, point, None, None, None, "none")
    low, high = _percentiles(np.percentile(data[_draws(data.size, resamples, 0)], p, axis=1), level)
    return Interval(data.size, point, low, high, level, "bootstrap")


def order_interval(values: Sequence[float], level: float = LEVEL) -> Interval:
    """The narrowest pair of k-th smallest and k-th largest value that holds the median with at least `level`;
    the range, with the confidence it has, where even that does not reach it."""
    data = np.sort(_checked(values))
    n, median = data.size, float(np.median(data))
    k = 1
    while 2 * (k + 1) <= n and order_level(n, k + 1) >= level:
        k += 1
    reached = order_level(n, k)
    method = "order statistics" if reached >= level else "range"
    return Interval(n, median, float(data[k - 1]), float(data[n - k]), reached, method)


def order_level(n: int, k: int) -> float:
    """Confidence with which the k-th smallest and k-th largest of n values enclose the median: each value is
    below it with probability 1/2, and fewer than k on one side is a miss."""
    return float(1 - 2 * binom.cdf(k - 1, n, 0.5))


def compare_rounds(
    a: Mapping[int, float], b: Mapping[int, float], level: float = LEVEL, resamples: int = RESAMPLES
) -> Comparison:
    """A against B of one interleaved run: only rounds that both have, the same resample of rounds for both."""
    common = sorted(a.keys() & b.keys())
    left, right = _checked([a[r] for r in common]), _checked([b[r] for r in common])
    return _compare(left, right, True, level, resamples)


def compare_apart(a: Sequence[float], b: Sequence[float], level: float = LEVEL, resamples: int = RESAMPLES) -> Comparison:
    """A against B of two runs, which share no rounds: resampled apart. Whatever differs between the two runs
    besides the back end is in the ratio."""
    return _compare(_checked(a), _checked(b), False, level, resamples)


def _compare(a: np.ndarray, b: np.ndarray, paired: bool, level: float, resamples: int) -> Comparison:
    n = min(a.size, b.size)
    if n == 0:
        return Comparison(UNDEFINED, "ratio", None, None, None, 0, paired, "no round in common" if paired else "no value")
    medians_a = np.median(a[_draws(a.size, resamples, 0)], axis=1)
    medians_b = np.median(b[_draws(b.size, resamples, 0 if paired else 1)], axis=1)
    median_a, median_b = float(np.median(a)), float(np.median(b))
    # A ratio to something that may be 0 or change sign says nothing: then the difference.
    if b.min() > 0 and a.min() >= 0:
        kind, value, neutral = "ratio", median_a / median_b, 1.0
        low, high = _percentiles(medians_a / medians_b, level)
    else:
        kind, value, neutral = "difference", median_a - median_b, 0.0
        low, high = _percentiles(medians_a - medians_b, level)
    if n < MIN_VERDICT:
        word = "round" if n == 1 else "rounds"
        note = f"{n} {word}: too few to say"
        if n == 1:
            return Comparison(UNDECIDED, kind, value, None, None, n, paired, note)
        return Comparison(UNDECIDED, kind, value, low, high, n, paired, note)
    verdict = HIGHER if low > neutral else LOWER if high < neutral else SAME
    p = chance_of(np.log(a), np.log(b), paired) if kind == "ratio" and a.min() > 0 else chance_of(a, b, paired)
    return corrected([Comparison(verdict, kind, value, low, high, n, paired, p=p)], level)[0]


def chance_of(a: np.ndarray, b: np.ndarray, paired: bool) -> float:
    """Two-sided p of a difference of means: Student's test over the rounds' differences, or Welch's."""
    if paired:
        parts = [(a - b, 1.0)]
    else:
        parts = [(a, 1.0), (b, -1.0)]
    mean = sum(sign * float(np.mean(x)) for x, sign in parts)
    errors = [float(np.var(x, ddof=1)) / x.size for x, _ in parts]
    error = sum(errors)
    if error <= 1e-24:  # values that repeat exactly
        return 1.0 if abs(mean) < 1e-12 else 0.0
    freedom = error**2 / sum(e**2 / (x.size - 1) for e, (x, _) in zip(errors, parts))
    return float(2 * student.sf(abs(mean) / math.sqrt(error), freedom))


def corrected(family: Sequence[Comparison], level: float = LEVEL) -> list[Comparison]:
    """The same comparisons with those verdicts taken back that as many comparisons would have by chance (Holm: the k-th smallest
    of m values of p must be at most (1 - level) / (m - k + 1), and all before it)."""
    tested = sorted((c.p, i) for i, c in enumerate(family) if c.p is not None)
    held, alive = set(), True
    for k, (p, i) in enumerate(tested):
        alive = alive and p <= (1 - level) / (len(tested) - k)
        held |= {i} if alive else set()
    found = []
    for i, c in enumerate(family):
        if c.p is not None:
            c = replace(c, family=len(tested))
            if i not in held and c.verdict in (HIGHER, LOWER):
                among = f" among {len(tested)} comparisons" if len(tested) > 1 else ""
                c = replace(c, verdict=SAME, note=f"no more than chance{among} (p = {c.p:.2g})")
        found.append(c)
    return found


def noise(values: Sequence[float]) -> float | None:
    """Robust coefficient of variation: 1.4826 x median absolute deviation / median, as a share of 1."""
    data = _checked(values)
    if data.size < 2:
        return None
    median = float(np.median(data))
    if median == 0:
        return None
    return MAD_TO_SIGMA * float(np.median(np.abs(data - median))) / abs(median)


def drifts(rounds: Mapping[int, float]) -> bool:
    """Whether values climb or fall from round to round (Kendall's test), as when a machine heats up or a disk
    fills: then rounds are not repetitions of the same thing."""
    if len(rounds) < MIN_DRIFT or len(set(rounds.values())) < 2:
        return False
    order = sorted(rounds)
    p = kendalltau(order, [rounds[r] for r in order]).pvalue
    return bool(p < DRIFT_P)


def geometric_mean(values: Sequence[float]) -> float | None:
    """Of positive values; None where there is none or one is not positive."""
    data = _checked(values)
    if data.size == 0 or data.min() <= 0:
        return None
    return float(math.exp(float(np.mean(np.log(data)))))


def _checked(values: Iterable[float]) -> np.ndarray:
    data = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=float)
    if data.ndim != 1 or not np.isfinite(data).all():
        raise ValueError("a value that is no finite number cannot be summarised")
    return data


@lru_cache(maxsize=64)
def _draws(n: int, resamples: int, stream: int) -> np.ndarray:
    """Indices of the resamples; the same for every cell with n values, so that reports repeat exactly."""
    return np.random.default_rng([SEED, n, stream]).integers(0, n, (resamples, n))


def _percentiles(values: np.ndarray, level: float) -> tuple[float, float]:
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(values, [tail, 100 - tail])
    return float(low), float(high)
