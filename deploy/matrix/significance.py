"""What times say beyond chance: percentiles, the exact test of Mann and Whitney, ratios of two ways in turns.

Source: H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than
the other", 1947. It compares ranks only, so that a single slow round decides nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = 0.99
"""Of an interval. Of a hundred pairs without any difference, about one is reported with one."""
RESAMPLES = 4000
_SEED = 20
_EXACT = 20
"""Values of both sets together, up to which all orders are counted; above, the normal approximation."""


def larger(before: Sequence[float], after: Sequence[float]) -> float:
    """Probability that ``after`` ranks as high as it does by chance alone, if both came from one source.

    One-sided; ties count half. Small when ``after`` is larger. 1.0 if one of them is empty.
    """
    few, many = len(before), len(after)
    if not few or not many:
        return 1.0
    wins = sum((new > old) + 0.5 * (new == old) for new in after for old in before)
    if few + many <= _EXACT:
        least = math.ceil(wins - 0.5) if wins != int(wins) else int(wins)
        counts = [_orders(few, many, total) for total in range(few * many + 1)]
        return sum(counts[least:]) / sum(counts)
    mean = few * many / 2
    spread = math.sqrt(few * many * (few + many + 1) / 12)
    return 0.5 * math.erfc((wins - mean - 0.5) / spread / math.sqrt(2))


@functools.cache
def _orders(few: int, many: int, wins: int) -> int:
    """In how many orders of ``few`` and ``many`` values the second win ``wins`` of all comparisons."""
    if wins < 0:
        return 0
    if few == 0 or many == 0:
        return int(wins == 0)
    # The largest value is one of the second set, which wins against all of the first, or one of the first.
    return _orders(few, many - 1, wins - few) + _orders(few - 1, many, wins)


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney's test; ties count half, which makes it a little cautious."""
    return min(1.0, 2 * min(larger(first, second), larger(second, first)))


def percentile(times: Sequence[float], part: float) -> float:
    """By the nearest rank, as the runner's: always a measured time."""
    ordered = sorted(times)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


@dataclass(frozen=True)
class Compared:
    """The first way's times in parts of the second's: below 1 the first is faster."""

    ratio: float
    low: float
    high: float
    p: float
    """Mann-Whitney's, two-sided: how often chance alone would order the processes so or further apart."""
    verdict: Literal["faster", "slower", "no difference seen"]


def compare(first: Sequence[float], second: Sequence[float]) -> Compared:
    """Compare medians of processes, in the order of their rounds; two or more of each, all above 0.

    The unit is a process: a thousand executions of one say hardly more than one, as they share memory, clock and
    neighbours. The ratio is the median of the rounds' ratios, its interval a percentile bootstrap over rounds. A
    difference is reported only if the interval leaves 1 out and the test agrees.
    """
    import numpy as np

    logs = np.log(np.asarray(first, dtype=float)) - np.log(np.asarray(second, dtype=float))
    draws = np.random.default_rng(_SEED).integers(0, len(logs), size=(RESAMPLES, len(logs)))
    medians = np.median(logs[draws], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.exp(np.quantile(medians, [tail, 1 - tail]))
    p, ratio = mann_whitney(first, second), float(np.exp(np.median(logs)))
    seen = p < 1 - CONFIDENCE and not low <= 1 <= high
    verdict: Literal["faster", "slower", "no difference seen"] = "no difference seen"
    if seen:
        verdict = "faster" if ratio < 1 else "slower"
    return Compared(ratio, float(low), float(high), p, verdict)
