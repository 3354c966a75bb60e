"""How far outputs are from the float model's, and how often they are right."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
Outputs = Sequence[Array]
"""The outputs of one execution."""


def _pair(got: Array, want: Array) -> tuple[Array, Array]:
    """Both as float64 vectors."""
    return got.astype(np.float64).ravel(), want.astype(np.float64).ravel()


def cosine(got: Array, want: Array) -> float:
    """The cosine of the angle between two arrays taken as vectors: 1 for equal directions; NaN if one is not finite."""
    a, b = _pair(got, want)
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    # Scaled first: squares of large numbers overflow.
    a, b = a / (np.abs(a).max(initial=0.0) or 1.0), b / (np.abs(b).max(initial=0.0) or 1.0)
    product = math.sqrt(float(a @ a)) * math.sqrt(float(b @ b))
    if product == 0.0:
        return 1.0 if not a.any() and not b.any() else 0.0
    return max(-1.0, min(1.0, float(a @ b) / product))


def psnr(got: Sequence[Array], want: Sequence[Array]) -> float:
    """Peak signal to noise in dB over several arrays: the range of all of ``want`` against the mean squared difference.

    Infinite if nothing differs; NaN if a number is not finite on one side alone.
    """
    squares, count, low, high = 0.0, 0, math.inf, -math.inf
    for ours, theirs in zip(got, want, strict=True):
        a, b = _pair(ours, theirs)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        squares += float(np.square(np.where(same, 0.0, a - b)).sum())
        count += a.size
        known = b[np.isfinite(b)]
        low, high = min(low, known.min(initial=low)), max(high, known.max(initial=high))
    if squares == 0.0:
        return math.inf
    peak = high - low if high > low else abs(high) or 1.0
    return 10 * math.log10(peak * peak * count / squares) if math.isfinite(squares) else math.nan


def top(k: int, outputs: Sequence[Array], labels: Sequence[Any]) -> float | None:
    """The part of all rows whose label is among the ``k`` largest scores; ``None``: these are not classes.

    Args:
        outputs: the scores of each sample, classes along the last axis.
        labels: of each sample a class, or one for each of its rows.
    """
    right = rows = 0
    for scores, label in zip(outputs, labels, strict=True):
        classes = np.asarray(label)
        if scores.ndim == 0 or classes.dtype.kind not in "iu":
            return None
        table = scores.reshape(-1, scores.shape[-1]).astype(np.float64)
        wanted = classes.reshape(-1)
        if len(wanted) != len(table) or len(wanted) == 0 or not 0 <= wanted.min() <= wanted.max() < table.shape[1]:
            return None
        if k >= table.shape[1]:
            return None
        own = table[np.arange(len(table)), wanted][:, None]
        # Ahead of it: greater scores, and equal ones of lower classes, as argmax takes the first. NaN is never right.
        before = (table > own).sum(axis=1)
        before += ((table == own) & (np.arange(table.shape[1])[None, :] < wanted[:, None])).sum(axis=1)
        right += int(((before < k) & ~np.isnan(own[:, 0])).sum())
        rows += len(table)
    return right / rows if rows else None


def front(points: Sequence[Sequence[float]]) -> list[bool]:
    """Which points no other one beats: at least as good in every figure and better in one. Lower figures are better."""

    def beaten(one: Sequence[float]) -> bool:
        return any(
            all(a <= b for a, b in zip(other, one, strict=True)) and any(a < b for a, b in zip(other, one, strict=True))
            for other in points
        )

    return [not beaten(one) for one in points]
