"""Names that look like a misspelt one, for errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def near(name: str, names: Iterable[str], most: int = 3, least: float = 0.5) -> list[str]:
    """The names that look like ``name``, the most similar first.

    Args:
        most: how many at most.
        least: similarity, 0 to 1; 0 takes even what looks different.
    """
    return difflib.get_close_matches(name, list(names), most, least)


def nearest(name: str, names: Iterable[str], least: float = 0.5) -> str:
    """The most similar name; empty if all look different."""
    return next(iter(near(name, names, 1, least)), "")


def did_you_mean(found: Sequence[str]) -> str:
    """``did you mean a, b or c?`` for an error's cause; empty without names."""
    *others, last = found or [""]
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def suggestion(name: str, names: Iterable[str]) -> str:
    """The same with a blank behind it, for a cause that goes on with all names; two names at most."""
    return f"{did_you_mean(near(name, names, 2))} ".lstrip()
