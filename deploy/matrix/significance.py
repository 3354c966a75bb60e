"""What times say beyond chance: the exact test of Mann and Whitney.

Source: H. B. Mann and D. R. Whitney, "On a test of whether one of two random variables is stochastically larger than
the other", 1947. It compares ranks only, so that a single slow round decides nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

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
