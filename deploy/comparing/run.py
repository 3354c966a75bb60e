"""Measure the accuracy of every cell of a filled matrix, and put the figures together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from core import console
from core.errors import SlipwayError
from core.formats.bundle import Bundle
from core.formats.program import Sample, Samples
from deploy.comparing import metrics, sampling
from deploy.comparing.model import Accuracy, Compared, Row, marked, row, suggested
from deploy.comparing.sampling import widened
from deploy.matrix.model import CellResult, Problem
from deploy.matrix.plan import Cell
from deploy.run.result import now
from deploy.run.settings import Settings

EMULATED = 10
"""Samples on an emulated device, if no number is given."""
Metric = Callable[[list[tuple[Any, ...]], list[Any]], float]
"""The user's own measure: of the outputs of all samples, and of their labels."""


def accuracy(
    outputs: Sequence[Sequence[Any]], samples: Sequence[Sample], labelled: bool, metric: Metric | None = None
) -> Accuracy:
    """Compare outputs with the float model's, and with labels where every sample has one."""
    wanted = [[widened(file) for file in one.wanted] for one in samples]
    if any([a.shape for a in ours] != [b.shape for b in theirs] for ours, theirs in zip(outputs, wanted, strict=True)):
        return Accuracy()
    ours = [_rows(one, sample) for one, sample in zip(outputs, samples, strict=True)]
    theirs = [_rows(one, sample) for one, sample in zip(wanted, samples, strict=True)]
    pairs = [pair for one, two in zip(ours, theirs, strict=True) for pair in zip(one, two, strict=True)]
    by_output = [
        metrics.psnr([one[index] for one in ours], [two[index] for two in theirs]) for index in range(len(ours[0]))
    ]
    labels = [one.label for one in samples]
    scores = [one[0] for one in ours]
    return Accuracy(
        cosine=_least([metrics.cosine(a, b) for a, b in pairs]),
        psnr=_least(by_output),
        top1=metrics.top(1, scores, labels) if labelled else None,
        top5=metrics.top(5, scores, labels) if labelled else None,
        metric=float(metric([tuple(one) for one in ours], labels)) if metric else None,
    )


def _least(values: Sequence[float]) -> float | None:
    """The least; NaN if one is."""
    return math.nan if any(map(math.isnan, values)) else min(values, default=None)


def _rows(outputs: Sequence[Any], sample: Sample) -> list[Any]:
    """The outputs without the rows that only fill the batch."""
    return [one[: sample.rows] if sample.rows and one.ndim else one for one in outputs]


def compare(
    model: str,
    samples: Samples,
    cells: Sequence[Cell],
    results: Sequence[CellResult],
    parts: Callable[[Cell], tuple[Bundle, Path]],
    settings: Callable[[Cell], Settings],
    *,
    many: bool,
    metric: Metric | None = None,
    metric_name: str = "",
    impossible: Sequence[str] = (),
) -> Compared:
    """Give the samples to every program that ran, and compare what it gives.

    Args:
        cells: as in ``results``, which has what each one's deploy found.
        parts: a cell's bundle and program.
        many: give emulated devices all samples, not only the first `EMULATED`.
        metric: the user's own measure.
        impossible: what was asked for, too, and why it cannot be.
    """
    known: Mapping[str, CellResult] = {one.key: one for one in results}
    labelled = samples.labelled
    floats = [[widened(file) for file in one.wanted] for one in samples.each]
    references: dict[int, Accuracy] = {}

    def floating(count: int) -> Accuracy:
        if count not in references:
            references[count] = accuracy(floats[:count], samples.each[:count], labelled, metric)
        return references[count]

    reference = floating(len(floats))
    rows: list[Row] = []
    for cell in cells:
        result = known[cell.key]
        own = samples.each if many or not cell.device.emulated else samples.each[:EMULATED]
        if result.outcome not in ("passed", "differs"):
            rows.append(row(result))
            continue
        label = f"{len(own)} samples on {cell.device.name}: {cell.program.name}, {cell.engine}"
        with console.step(label, announce=False) as step:
            step.count(0, len(own))
            try:
                bundle, path = parts(cell)
                outputs = sampling.run(cell.device, bundle, path, own, settings(cell), step.one)
                exact = accuracy(outputs, own, labelled, metric)
                rows.append(row(result, len(own), exact, floating(len(own))))
            except SlipwayError as error:
                rows.append(row(result, problem=Problem.of(error)))
    by: Literal["metric", "top1", "psnr"] = "metric" if metric else "top1" if reference.top1 is not None else "psnr"
    found = marked(rows, by)
    return Compared(
        model=model, data=samples.source, metric=metric_name, created=now(), samples=len(samples.each),
        of=samples.of, reference=reference, by=by, rows=found, suggestions=suggested(found, by),
        impossible=tuple(impossible),
    )  # fmt: skip
