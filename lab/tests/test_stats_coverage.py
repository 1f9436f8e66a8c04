"""How often the intervals hold the truth, and how often a difference is called where there is none.

Seeded, so that it passes or fails alike everywhere. `python tests/test_stats_coverage.py` prints the table of
docs/statistics.md.
"""

from __future__ import annotations

import numpy as np
import pytest
from lab import stats

TRIALS = 400
RESAMPLES = 1000


def coverage(n: int, method: str, trials: int = TRIALS) -> float:
    """Share of trials in which the interval holds the true median, 1, of a skewed distribution."""
    rng = np.random.default_rng(1000 + n)
    hits = 0
    for _ in range(trials):
        data = rng.lognormal(0, 0.5, n)
        if method == "bootstrap":
            low, high = stats.bootstrap_interval(data, resamples=RESAMPLES)
        elif method == "order":
            i = stats.order_interval(data)
            low, high = i.low, i.high
        else:
            i = stats.median_interval(data, resamples=RESAMPLES)
            low, high = i.low, i.high
        hits += low <= 1 <= high
    return hits / trials


def false_calls(n: int, paired: bool, disturbance: float, trials: int = TRIALS) -> float:
    """Share of trials in which two equal back ends get an interval that excludes 1."""
    rng = np.random.default_rng(2000 + n)
    calls = 0
    for _ in range(trials):
        shared = rng.normal(0, disturbance, n)
        a, b = (np.exp(shared + rng.normal(0, 0.1, n)) for _ in range(2))
        if paired:
            c = stats.compare_rounds(dict(enumerate(a)), dict(enumerate(b)), resamples=RESAMPLES)
        else:
            c = stats.compare_apart(a, b, resamples=RESAMPLES)
        calls += not c.low <= 1 <= c.high
    return calls / trials


# Four standard errors of 400 trials at 5 % are 4.4 points.
@pytest.mark.parametrize("n", [6, 8, 12, 20, 40])
def test_the_chosen_interval_holds_the_median(n):
    assert coverage(n, "chosen") >= 0.95 - 0.044


def test_the_bootstrap_alone_would_not_at_seven_values():
    # Why order statistics are taken below 20 values.
    assert coverage(7, "bootstrap") < 0.92 < coverage(7, "order")


def test_the_range_has_the_confidence_it_is_given():
    assert coverage(4, "chosen") == pytest.approx(0.875, abs=0.066)


@pytest.mark.parametrize("n", [5, 10, 20])
@pytest.mark.parametrize("disturbance", [0.0, 0.3])
def test_equal_back_ends_are_rarely_told_apart(n, disturbance):
    assert false_calls(n, True, disturbance) <= 0.0625 + 0.048


def test_three_rounds_would_call_too_often():
    # Why there is no verdict below five rounds.
    assert false_calls(3, True, 0.0) > 0.15


def test_a_real_difference_is_found():
    # 20 % at 10 % noise over ten rounds.
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(100):
        a, b = (dict(enumerate(m * np.exp(rng.normal(0, 0.1, 10)))) for m in (1.2, 1.0))
        found += stats.compare_rounds(a, b, resamples=RESAMPLES).verdict == stats.HIGHER
    assert found >= 80


if __name__ == "__main__":
    print("values  interval of the median holds it          equal back ends called different")
    print("        bootstrap  order statistics  as chosen    paired  paired, disturbed rounds  two runs")
    for size in (3, 4, 5, 6, 7, 8, 10, 12, 15, 20, 30, 40):
        row = [coverage(size, m, 2000) for m in ("bootstrap", "order", "chosen")]
        calls = [false_calls(size, p, d, 2000) for p, d in ((True, 0.0), (True, 0.3), (False, 0.0))]
        print(f"{size:6}  {row[0]:9.1%}  {row[1]:16.1%}  {row[2]:9.1%}    {calls[0]:6.1%}  {calls[1]:24.1%}  {calls[2]:8.1%}")
