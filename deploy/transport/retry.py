"""Retry after transient errors only, with growing and jittered pauses."""

from __future__ import annotations

import math
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

from core.errors import DeviceBusyError, SlipwayError


def is_transient(error: BaseException) -> bool:
    """Whether the same step may succeed a little later; a busy device does not count: `wait` covers it."""
    return isinstance(error, SlipwayError) and error.transient and not isinstance(error, DeviceBusyError)


def retrying(
    retries: int,
    left: Callable[[], float] = lambda: math.inf,
    on_retry: Callable[[SlipwayError, float], None] | None = None,
    *,
    first: float = 0.5,
    longest: float = 10.0,
) -> Retrying:
    """A caller that calls a function again after transient errors; it raises the last one.

    Args:
        retries: attempts after the first.
        left: seconds that are left for all attempts: one that would come too late is not begun, so that the raised
            error names the cause and not only the time limit.
        on_retry: called with the error and the pause (s) that follows.
        first, longest: seconds of the first pause and at most; up to half of ``first`` is added at random, so that
            many hosts do not return at the same moment.
    """

    enough = stop_after_attempt(retries + 1)

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if on_retry is not None and isinstance(error, SlipwayError):
            on_retry(error, state.upcoming_sleep)

    return Retrying(
        stop=lambda state: enough(state) or state.upcoming_sleep >= left(),
        wait=wait_exponential_jitter(multiplier=first, max=longest, jitter=first / 2),
        retry=retry_if_exception(is_transient),
        before_sleep=tell,
        reraise=True,
    )
