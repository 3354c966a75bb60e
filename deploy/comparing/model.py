"""What ``./inv compare`` found, as ``compare.json`` keeps it: a row for each device, engine and scheme."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from deploy.comparing import metrics
from deploy.matrix.model import CellResult, Problem

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


class Row(_Model):
    """A program on a device. Sizes in bytes, times in milliseconds."""

    device: str
    emulated: bool
    engine: str
    target: str
    program: str
    scheme: str
    outcome: str
    """Of its deploy with the reference's inputs: ``passed``, ``differs``, ``failed``, ``not run``."""
    problem: Problem | None = None
    samples: int = 0
    accuracy: Accuracy = NOTHING
    reference: Accuracy = NOTHING
    """The float model's, on the same samples."""
    size: int = 0
    p50: float | None = None
    """``None`` on an emulated device, as ``load``: its times are not latency figures."""
    load: float | None = None
    memory: int = 0
    """Peak of the process: resident bytes, the engine's own included."""
    throttled: bool = False
    front: bool = False
    """No other row of its device is at least as accurate, small and fast, and better in one of these."""

    @property
    def usable(self) -> bool:
        """Whether its figures count."""
        return self.outcome == "passed" and self.samples > 0


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


def row(
    cell: CellResult,
    samples: int = 0,
    accuracy: Accuracy = NOTHING,
    reference: Accuracy = NOTHING,
    problem: Problem | None = None,
) -> Row:
    """A row from the cell of a matrix."""
    latency = cell.latency
    return Row(
        device=cell.device, emulated=cell.emulated, engine=cell.engine, target=cell.target, program=cell.program,
        scheme=cell.scheme, outcome="failed" if problem else cell.outcome, problem=problem or cell.problem,
        samples=samples, accuracy=accuracy, reference=reference, size=cell.program_bytes,
        p50=latency.p50 if latency else None, load=latency.load if latency else None,
        memory=cell.peak_rss_bytes, throttled=bool(cell.throttled),
    )  # fmt: skip


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
        points = [(-accurate(one.accuracy, by), float(one.size), one.p50 or 0.0) for _, one in own]
        for (index, one), best in zip(own, metrics.front(points), strict=True):
            found[index] = one.model_copy(update={"front": best})
    return tuple(found.get(index, one) for index, one in enumerate(rows))


def suggested(rows: Sequence[Row], by: str) -> tuple[Suggestion, ...]:
    """For each device the fastest row (on an emulated one the smallest) of its front that loses at most `LOSS`."""
    found = []
    for device in dict.fromkeys(one.device for one in rows):
        near = [one for one in rows if one.device == device and one.front and _loses_little(one, by)]
        if near:
            best = min(near, key=lambda one: (one.p50 or 0.0, one.size))
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
