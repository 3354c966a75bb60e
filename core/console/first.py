"""A first deploy as a whole: which part of it is done, and how long the rest takes.

Runs before anything is installed, so it uses the standard library only.
"""

from __future__ import annotations

import os
import time

VARIABLE = "SLIPWAY_FIRST"
"""Set by ``inv`` while it makes the environment: the time, and the command that comes after."""
SECONDS = {"packages": 20.0, "exporter": 50.0, "weights": 6.0, "runner": 45.0, "export": 25.0, "run": 15.0}
"""What each part takes on two cores with 8 MB/s. ``exporter`` is installed beside ``weights`` and ``runner``."""
_PRIOR = 20.0
"""Seconds for which the table counts, beside what was measured since."""
_MOST = 0.95
"""Of a part that has not ended, and does not say how far it is, at most so much is taken as done."""


class Whole:
    """The parts of a first deploy. Every method may be called from any thread.

    Args:
        ago: seconds since it began with Slipway's own packages; None: they were here.
    """

    def __init__(self, ago: float | None = None) -> None:
        self._begun = time.monotonic() - (ago or 0.0)
        self._since: dict[str, float] = {}
        self._done = {"packages": 1.0} if ago is None else {}
        self._total = self._rest()
        self._share = 0.0

    @classmethod
    def resumed(cls) -> Whole | None:
        """The one that ``inv`` began, if a deploy comes after."""
        begun, _, command = os.environ.get(VARIABLE, "").partition(" ")
        ago = time.time() - float(begun) if begun.isdecimal() else -1.0
        return cls(ago) if command == "deploy" and 0 <= ago < 3600 else None

    def begin(self, part: str) -> None:
        """The part begins."""
        self._since[part] = time.monotonic()

    def far(self, part: str, done: float) -> None:
        """So much of the part is done, from 0 to 1."""
        self._done[part] = done

    def end(self, part: str) -> None:
        """The part has ended."""
        self._done[part] = 1.0

    def _rest(self) -> float:
        now = time.monotonic()
        left = {}
        for part, seconds in SECONDS.items():
            done = self._done.get(part)
            if done is None:
                done = min(_MOST, (now - self._since.get(part, now)) / seconds)
            left[part] = seconds * (1 - done)
        beside = max(left["exporter"], left["weights"] + left["runner"])
        return left["packages"] + beside + left["export"] + left["run"]

    def left(self) -> float:
        """Seconds that the rest takes: as the table says, by as much slower or faster as it was until now."""
        rest, passed = self._rest(), time.monotonic() - self._begun
        return rest * (passed + _PRIOR) / (self._total - rest + _PRIOR)

    def share(self) -> float:
        """What is done of all of it, from 0 to 1; never less than before."""
        passed = time.monotonic() - self._begun
        self._share = max(self._share, passed / (passed + self.left() + 1e-9))
        return self._share

    def __str__(self) -> str:
        left = round(self.left())
        return f"{self.share():4.0%}, about {left // 60}:{left % 60:02} left"
