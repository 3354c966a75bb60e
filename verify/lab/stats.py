"""Comparing two ways to run the same layer: medians of processes in turns, an interval, and a test.

The unit is a process, not an execution: executions of one process have the same memory, clock and neighbours, so a
thousand of them say hardly more than one. Each round runs both ways, one right after the other and in random order, so
that a device which warms up or is disturbed changes both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from deploy.matrix.significance import larger

CONFIDENCE = 0.99
"""Of the interval. Of a hundred layers without any difference, about one is reported with one."""
RESAMPLES = 4000
_SEED = 20

Verdict = Literal["faster", "slower", "no difference seen"]


@dataclass(frozen=True)
class Compared:
    """The first way's times in parts of the second's: below 1 the first is faster."""

    ratio: float
    low: float
    high: float
    p: float
    """Mann-Whitney's, two-sided: how often chance alone would order the processes so or further apart."""
    verdict: Verdict


def compare(first: Sequence[float], second: Sequence[float]) -> Compared:
    """Compare medians of processes, in the order of their rounds; two or more of each, all above 0.

    The ratio is the median of the rounds' ratios, its interval a percentile bootstrap over rounds. A difference is
    reported only if the interval leaves 1 out and the test agrees.
    """
    logs = np.log(np.asarray(first, dtype=float)) - np.log(np.asarray(second, dtype=float))
    draws = np.random.default_rng(_SEED).integers(0, len(logs), size=(RESAMPLES, len(logs)))
    medians = np.median(logs[draws], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.exp(np.quantile(medians, [tail, 1 - tail]))
    p = mann_whitney(first, second)
    ratio = float(np.exp(np.median(logs)))
    verdict: Verdict = "no difference seen"
    if p < 1 - CONFIDENCE and not low <= 1 <= high:
        verdict = "faster" if ratio < 1 else "slower"
    return Compared(ratio, float(low), float(high), p, verdict)


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> float:
    """The two-sided p of Mann and Whitney's test; ties count half, which makes it a little cautious."""
    return min(1.0, 2 * min(larger(first, second), larger(second, first)))


def percentile(times: Sequence[float], part: float) -> float:
    """By the nearest rank, as the runner's: always a measured time."""
    ordered = sorted(times)
    return ordered[max(0, int(np.ceil(part * len(ordered))) - 1)]
