"""Intervals and verdicts against hand-computed cases and against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lab import stats
from scipy.stats import binom, bootstrap, ttest_ind, ttest_rel


def test_order_statistics_by_hand():
    # Ten values: the 2nd smallest and the 2nd largest. A miss is 0 or 1 of ten on one side: 2 * (1 + 10) / 1024.
    i = stats.median_interval([10, 1, 9, 2, 8, 3, 7, 4, 6, 5])
    assert (i.n, i.median, i.low, i.high, i.method) == (10, 5.5, 2, 9, "order statistics")
    assert i.level == pytest.approx(1 - 22 / 1024)
    # Six values: only their range reaches 95 %: 1 - 2 / 64.
    i = stats.median_interval([3, 1, 2, 6, 5, 4])
    assert (i.low, i.high, i.method) == (1, 6, "order statistics")
    assert i.level == pytest.approx(1 - 2 / 64)


@pytest.mark.parametrize("n,level", [(2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)])
def test_few_values_give_the_range_and_its_true_confidence(n, level):
    i = stats.median_interval(list(range(n)))
    assert (i.low, i.high, i.method) == (0, n - 1, "range")
    assert i.level == pytest.approx(level)
    assert f"{100 * level:.0f} %" in i.note and str(n) in i.note


def test_one_value_and_none_have_no_interval():
    one = stats.median_interval([7.0])
    assert (one.median, one.low, one.high, one.level) == (7.0, None, None, None)
    assert "no interval" in one.note
    assert stats.median_interval([]).median is None


def test_order_level_agrees_with_the_binomial_distribution():
    for n in range(2, 60):
        for k in range(1, n // 2 + 1):
            # Both tails are misses: fewer than k of n values below the median, or above it.
            inside = sum(math.comb(n, i) for i in range(k, n - k + 1)) / 2**n
            assert stats.order_level(n, k) == pytest.approx(inside, abs=1e-12)


def bootstrap_median_quantile(n: int, p: float) -> int:
    """By hand: the median of an odd resample is at most the k-th smallest value when more than half of its n
    draws are among the k smallest, each with probability k / n. The first k at which that reaches p."""
    return next(k for k in range(1, n + 1) if 1 - binom.cdf(n // 2, n, k / n) >= p)


@pytest.mark.parametrize("n", [21, 25, 31, 41])
def test_bootstrap_finds_the_order_statistics_that_theory_gives(n):
    # An odd n: the bootstrap's distribution lies on the values themselves and is known exactly.
    low, high = stats.bootstrap_interval([float(i) for i in range(1, n + 1)])
    assert low == bootstrap_median_quantile(n, 0.025)
    assert high == bootstrap_median_quantile(n, 0.975)


@pytest.mark.parametrize("draw", [lambda r, n: r.normal(100, 10, n), lambda r, n: r.lognormal(1, 0.6, n), lambda r, n: r.exponential(5, n)])
def test_bootstrap_agrees_with_scipy(draw):
    data = draw(np.random.default_rng(5), 40)
    low, high = stats.bootstrap_interval(data)
    theirs = bootstrap((data,), np.median, n_resamples=10_000, method="percentile", rng=np.random.default_rng(1)).confidence_interval
    width = theirs.high - theirs.low
    assert low == pytest.approx(theirs.low, abs=0.1 * width)
    assert high == pytest.approx(theirs.high, abs=0.1 * width)


def test_chance_agrees_with_scipy():
    rng = np.random.default_rng(3)
    a, b = np.exp(rng.normal(0.1, 0.2, 9)), np.exp(rng.normal(0, 0.3, 9))
    assert stats.compare_rounds(dict(enumerate(a)), dict(enumerate(b))).p == pytest.approx(ttest_rel(np.log(a), np.log(b)).pvalue)
    assert stats.compare_apart(a, b[:7]).p == pytest.approx(ttest_ind(np.log(a), np.log(b[:7]), equal_var=False).pvalue)
    same = stats.compare_rounds(dict.fromkeys(range(6), 2.0), dict.fromkeys(range(6), 2.0))
    assert (same.p, same.verdict) == (1.0, stats.SAME)
    assert stats.compare_rounds(dict.fromkeys(range(6), 2.0), dict.fromkeys(range(6), 1.0)).verdict == stats.HIGHER


def test_holm_by_hand():
    def c(p):
        return stats.Comparison(stats.HIGHER, "ratio", 2.0, 1.5, 2.5, 8, True, p=p)

    # Sorted: 0.01 <= 0.05 / 4, 0.013 <= 0.05 / 3, 0.03 > 0.05 / 2, and after that nothing holds.
    family = stats.corrected([c(0.03), c(0.01), c(0.04), c(0.013)])
    assert [x.verdict for x in family] == [stats.SAME, stats.HIGHER, stats.SAME, stats.HIGHER]
    assert family[0].note == "no more than chance among 4 comparisons (p = 0.03)" and family[1].family == 4
    # Too few rounds count for nothing.
    few = stats.Comparison(stats.UNDECIDED, "ratio", 2.0, 1.0, 3.0, 3, True)
    assert stats.corrected([few, c(0.04)])[1].verdict == stats.HIGHER


@pytest.mark.parametrize("paired", [True, False])
def test_ratio_agrees_with_scipy(paired):
    rng = np.random.default_rng(11)
    disturbance = rng.normal(0, 0.2, 30)
    a = 3 * np.exp(disturbance + rng.normal(0, 0.05, 30))
    b = 2 * np.exp(disturbance + rng.normal(0, 0.05, 30))
    ours = stats.compare_rounds(dict(enumerate(a)), dict(enumerate(b))) if paired else stats.compare_apart(a, b)

    def ratio(x, y, axis):
        return np.median(x, axis=axis) / np.median(y, axis=axis)

    theirs = bootstrap(
        (a, b), ratio, paired=paired, n_resamples=10_000, method="percentile", vectorized=True, rng=np.random.default_rng(1)
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.1 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.1 * width)
    assert ours.value == pytest.approx(np.median(a) / np.median(b))
    assert ours.verdict == stats.HIGHER


def test_ratio_by_hand():
    # B is A halved in every round: whatever rounds are drawn, the ratio is 2.
    a = {0: 10.0, 1: 30.0, 2: 20.0, 3: 50.0, 4: 40.0}
    c = stats.compare_rounds(a, {r: v / 2 for r, v in a.items()})
    assert (c.value, c.low, c.high, c.verdict, c.n) == (2.0, 2.0, 2.0, stats.HIGHER, 5)
    back = stats.compare_rounds({r: v / 2 for r, v in a.items()}, a)
    assert (back.value, back.verdict) == (0.5, stats.LOWER)
    assert stats.compare_rounds(a, a).verdict == stats.SAME


def test_pairing_cancels_what_disturbs_a_whole_round():
    # Rounds differ tenfold, A is always 10 % above B: seen only when rounds are paired.
    b = {r: 100.0 * (r + 1) for r in range(10)}
    a = {r: 1.1 * v for r, v in b.items()}
    assert stats.compare_rounds(a, b).verdict == stats.HIGHER
    assert stats.compare_apart(list(a.values()), list(b.values())).verdict == stats.SAME


def test_a_round_that_only_one_has_is_not_compared():
    c = stats.compare_rounds({r: 2.0 for r in range(9)}, {r: 1.0 for r in range(4, 20)})
    assert c.n == 5
    none = stats.compare_rounds({0: 1.0}, {1: 1.0})
    assert (none.verdict, none.value) == (stats.UNDEFINED, None)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_few_rounds_give_no_verdict_however_far_apart(n):
    c = stats.compare_rounds({r: 100.0 + r for r in range(n)}, {r: 1.0 for r in range(n)})
    assert c.verdict == stats.UNDECIDED
    assert "too few" in c.note and c.value > 99
    assert (c.low is None) == (n == 1)


def test_zero_is_compared_by_difference():
    zero, some = {r: 0.0 for r in range(6)}, {r: 2.0 + r / 10 for r in range(6)}
    c = stats.compare_rounds(some, zero)
    assert (c.kind, c.verdict) == ("difference", stats.HIGHER)
    assert c.value == pytest.approx(2.25)
    assert stats.compare_rounds(zero, zero).verdict == stats.SAME
    # Only the denominator matters for the ratio to exist.
    assert stats.compare_rounds(zero, some).kind == "ratio"
    assert stats.compare_rounds(zero, some).verdict == stats.LOWER


def test_a_round_counts_once_however_many_values_it_has():
    assert stats.per_round([(1, 5.0), (0, 1.0), (0, 3.0), (0, 8.0)]) == {0: 3.0, 1: 5.0}


def test_noise_by_hand():
    # Deviations from 10 are 2, 1, 0, 1, 2: their median is 1.
    assert stats.noise([8, 9, 10, 11, 12]) == pytest.approx(0.14826)
    assert stats.noise([3]) is None
    assert stats.noise([0, 0, 0]) is None


def test_drift_is_seen_and_noise_is_not():
    rng = np.random.default_rng(3)
    assert stats.drifts({r: 100 + 3 * r + rng.normal(0, 2) for r in range(12)})
    assert not stats.drifts({r: 100 + rng.normal(0, 2) for r in range(12)})
    assert not stats.drifts({r: float(r) for r in range(stats.MIN_DRIFT - 1)})
    assert not stats.drifts({r: 5.0 for r in range(12)})


@pytest.mark.parametrize("bad", [[1.0, math.nan], [math.inf], [[1.0, 2.0]]])
def test_what_is_no_number_is_refused(bad):
    with pytest.raises(ValueError):
        stats.median_interval(bad)


def test_the_same_values_give_the_same_figures():
    data = np.random.default_rng(2).normal(5, 1, 30)
    stats._draws.cache_clear()
    first = stats.bootstrap_interval(data)
    stats._draws.cache_clear()
    assert stats.bootstrap_interval(data) == first


def test_geometric_mean_by_hand():
    assert stats.geometric_mean([1, 4]) == pytest.approx(2)
    assert stats.geometric_mean([1, 0]) is None
    assert stats.geometric_mean([]) is None
