"""One monotonic end for a sequence of steps, passed down instead of scattered timeouts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from core.errors import DeadlineError


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
