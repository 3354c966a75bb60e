"""Figures as people read them: ``7.4 µs``, ``10 MB``, ``4 min 10 s``, ``1 device``."""

from __future__ import annotations

import math
from collections.abc import Sequence


def three(value: float) -> str:
    """A number with three significant digits, without trailing zeros and exponents where it can be."""
    if not math.isfinite(value):
        return str(value)
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{round(value, digits):.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, units: Sequence[str]) -> str:
    at = 0
    while abs(float(three(value))) >= 1000 and at < len(units) - 1:
        value, at = value / 1000, at + 1
    return f"{three(value)} {units[at]}"


def duration(ms: float) -> str:
    """Milliseconds as ``7.4 µs``, ``12.3 ms`` or ``6.9 s``."""
    if 0 < abs(ms) < 1:
        return _scaled(ms * 1e6, ("ns", "µs", "ms"))
    return _scaled(ms, ("ms", "s")) if math.isfinite(ms) else f"{ms} ms"


def elapsed(seconds: float) -> str:
    """Wall time as ``6.9 s``, ``4 min 10 s`` or ``2 h 5 min``."""
    if seconds < 59.95:
        return duration(seconds * 1000)
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def took(seconds: float) -> str:
    """How long a step took, in tenths of a second up to a minute: ``0.3 s``, ``4 min 10 s``."""
    return f"{seconds:.1f} s" if seconds < 59.95 else elapsed(seconds)


def clock(seconds: float) -> str:
    """Seconds as a clock counts them: ``0:07``, ``12:40``, ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def size(count: float | None) -> str:
    """Bytes as ``10 MB`` (decimal units); empty for nothing."""
    return _scaled(float(count), ("B", "kB", "MB", "GB", "TB")) if count else ""


def amount(count: float) -> str:
    """Bytes as `size` has them; ``0 B`` for nothing."""
    return size(count) or "0 B"


def counted(count: int, word: str) -> str:
    """``1 cell``, ``2 cells``."""
    return f"{count} {word}{'' if count == 1 else 's'}"
