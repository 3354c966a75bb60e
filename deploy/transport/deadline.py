"""One monotonic end for a sequence of steps, and attempts again after transient errors only."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.errors import DeadlineError, DeviceBusyError, SlipwayError

if TYPE_CHECKING:
    from tenacity import RetryCallState, Retrying


@dataclass(frozen=True)
class Deadline:
    """A point of `time.monotonic` time after which a step must not go on."""

    at: float
    allowed: float
    """Seconds that were granted, for messages."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline ``seconds`` from now; infinity for none."""
        return cls(time.monotonic() + seconds, seconds)

    def left(self, at_most: float = math.inf) -> float:
        """Seconds left, never negative and at most ``at_most``."""
        return max(0.0, min(self.at - time.monotonic(), at_most))

    def later(self, seconds: float) -> Deadline:
        """The same deadline ``seconds`` later, for time that somebody else used."""
        return Deadline(self.at + seconds, self.allowed)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.at

    def check(self, doing: str) -> None:
        """Raise `DeadlineError` when the time is up."""
        if self.over:
            raise self.error(doing)

    def error(self, doing: str) -> DeadlineError:
        """What `check` raises; ``doing`` completes "... while"."""
        return DeadlineError(
            f"The {self.allowed:.0f} s allowed were over while {doing}.",
            "the device is slower than expected, busy, or stuck; what ran on it was ended",
            "allow more with INVOKE_SLIPWAY_TIMEOUT=SECONDS, or fewer executions",
        )


NEVER = Deadline(math.inf, math.inf)


def is_transient(error: BaseException) -> bool:
    """Whether the same step may succeed a little later; a busy device does not count, since `--wait` covers it."""
    return isinstance(error, SlipwayError) and error.transient and not isinstance(error, DeviceBusyError)


def retrying(
    retries: int,
    left: Callable[[], float] = lambda: math.inf,
    on_retry: Callable[[SlipwayError, float], None] | None = None,
) -> Retrying:
    """A caller that calls a function again after transient errors; it raises the last one.

    The pauses begin with half a second. Each is longer by a random part, so that many hosts do not return at once.

    Args:
        retries: attempts after the first.
        left: seconds that are left for all attempts: one that would come too late is not begun, so that the raised
            error names the cause and not only the time limit.
        on_retry: called with the error and the pause (s) that follows.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential_jitter

    enough = stop_after_attempt(retries + 1)

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if on_retry is not None and isinstance(error, SlipwayError):
            on_retry(error, state.upcoming_sleep)

    return Retrying(
        stop=lambda state: enough(state) or state.upcoming_sleep >= left(),
        wait=wait_exponential_jitter(multiplier=0.5, max=10.0, jitter=0.25),
        retry=retry_if_exception(is_transient),
        before_sleep=tell,
        reraise=True,
    )
