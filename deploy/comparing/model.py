"""What ``./inv compare`` found, as ``compare.json`` keeps it: a row for each device, engine and scheme.

Its figures say how far outputs are from the float model's, and how often they are right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from deploy.matrix.model import CellResult

BEYOND = 100.0
"""Decibels above which differences are those of float32 arithmetic: such programs are equally accurate."""
LOSS = 0.01
"""The accuracy that a suggested program may lose against float: a part of it, or 1 - cosine."""


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class Accuracy(_Model):
    """Of the float model, or of a program on a device."""

    cosine: float | None = None
    """To the float model's outputs: the least of all samples and outputs."""
    psnr: float | None = None
    """Decibels against the float model's outputs: the least of all outputs, over all samples."""
    top1: float | None = None
    top5: float | None = None
    metric: float | None = None
    """What the user's own function says; more is better."""


NOTHING = Accuracy()


class Row(CellResult):
    """A cell of the matrix with what its program loses; `outcome` is that of its deploy with the reference's inputs."""

    samples: int = 0
    accuracy: Accuracy = NOTHING
    reference: Accuracy = NOTHING
    """The float model's, on the same samples."""
    front: bool = False
    """No other row of its device is at least as accurate, small and fast, and better in one of these."""

    @property
    def usable(self) -> bool:
        """Whether its figures count."""
        return self.outcome == "passed" and self.samples > 0

    @property
    def p50(self) -> float:
        """Milliseconds; 0 on an emulated device, whose times are not latency figures."""
        return self.latency.p50 if self.latency else 0.0


class Suggestion(_Model):
    """The row of a device that costs least and loses little."""

    device: str
    engine: str
    program: str
    why: str


class Compared(_Model):
    """All of it."""

    schema_version: Literal[1] = 1
    model: str
    data: str
    """Where the samples are from; empty: the model's example inputs."""
    metric: str = ""
    created: str
    samples: int
    of: int
    """How many samples the data have."""
    reference: Accuracy
    """The float model in PyTorch."""
    by: Literal["metric", "top1", "psnr"]
    """The figure that decides how accurate a program is."""
    rows: tuple[Row, ...]
    suggestions: tuple[Suggestion, ...] = ()
    impossible: tuple[str, ...] = ()
    """What was asked for, too, and why it cannot be."""


def accurate(accuracy: Accuracy, by: str) -> float:
    """The figure that decides; more is better."""
    value = getattr(accuracy, by)
    if value is None or math.isnan(value):
        return -math.inf
    return min(float(value), BEYOND) if by == "psnr" else float(value)


def marked(rows: Sequence[Row], by: str) -> tuple[Row, ...]:
    """The rows with each device's Pareto front marked."""
    found = {}
    for device in dict.fromkeys(one.device for one in rows):
        own = [(index, one) for index, one in enumerate(rows) if one.device == device and one.usable]
        points = [(-accurate(one.accuracy, by), float(one.program_bytes), one.p50) for _, one in own]
        for (index, one), best in zip(own, front(points), strict=True):
            found[index] = one.model_copy(update={"front": best})
    return tuple(found.get(index, one) for index, one in enumerate(rows))


def suggested(rows: Sequence[Row], by: str) -> tuple[Suggestion, ...]:
    """For each device the fastest row (on an emulated one the smallest) of its front that loses at most `LOSS`."""
    found = []
    for device in dict.fromkeys(one.device for one in rows):
        near = [one for one in rows if one.device == device and one.front and _loses_little(one, by)]
        if near:
            best = min(near, key=lambda one: (one.p50, one.program_bytes))
            kind = "smallest" if best.emulated else "fastest"
            lost = f"at most {LOSS:.0%} of the float model's accuracy" if by != "psnr" else f"a cosine of {1 - LOSS:g}"
            why = f"the {kind} that {'loses' if by != 'psnr' else 'keeps'} {lost}"
            found.append(Suggestion(device=device, engine=best.engine, program=best.program, why=why))
    return tuple(found)


def _loses_little(one: Row, by: str) -> bool:
    if by == "psnr":
        return one.accuracy.cosine is not None and one.accuracy.cosine >= 1 - LOSS
    want = accurate(one.reference, by)
    return accurate(one.accuracy, by) >= want - LOSS * abs(want)


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
