"""How long something takes when nobody disturbs it."""

from __future__ import annotations

import time
from collections.abc import Callable


def quickest(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the quickest of several times: other tests keep the processors busy in some of them."""
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return min(took)
