"""``./inv compare``: one model in several schemes, on several devices and engines: what each costs and loses.

Give samples to the program of every cell of a filled matrix, and compare what it gives: how far it is from the float
model's outputs, and how often it is right. On a device there is one connection and one upload for all samples, and a
process for each. What is found is printed as a table, and written as JSON.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from core import console
from core.console.units import amount, duration
from core.errors import SlipwayError, UsageError
from core.files import write_atomic
from core.formats.program import Program, Sample, Samples
from deploy.devices.probe import device_root
from deploy.matrix.model import CellResult, Problem
from deploy.matrix.plan import grouped
from deploy.matrix.run import Made
from deploy.run import collect
from deploy.run.compare import Kept
from deploy.run.events import Steps
from deploy.run.job import Sized
from deploy.run.npy import BFLOAT16, load, widen
from deploy.run.pipeline import connected, prepared
from deploy.run.result import now
from deploy.run.session import Session
from deploy.run.settings import ONCE, Settings
from deploy.store.store import Blob, Store

BEYOND = 100.0
"""Decibels above which differences are those of float32 arithmetic: such programs are equally accurate."""
LOSS = 0.01
"""The accuracy that a suggested program may lose against float: a part of it, or 1 - cosine."""


class Accuracy(Kept):
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


class Suggestion(Kept):
    """The row of a device that costs least and loses little."""

    device: str
    engine: str
    program: str
    why: str


class Compared(Kept):
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
    """The float model's, in PyTorch."""
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
    for own in grouped((one.device, (index, one)) for index, one in enumerate(rows) if one.usable).values():
        points = [(-accurate(one.accuracy, by), float(one.program_bytes), one.p50) for _, one in own]
        for (index, one), best in zip(own, front(points), strict=True):
            found[index] = one.model_copy(update={"front": best})
    return tuple(found.get(index, one) for index, one in enumerate(rows))


def suggested(rows: Sequence[Row], by: str) -> tuple[Suggestion, ...]:
    """For each device the fastest row (on an emulated one the smallest) of its front that loses at most `LOSS`."""
    found = []
    lost = f"loses at most {LOSS:.0%} of the float model's accuracy"
    if by == "psnr":
        lost = f"keeps a cosine of {1 - LOSS:g}"
    for device, near in grouped((one.device, one) for one in rows if one.front and _loses_little(one, by)).items():
        best = min(near, key=lambda one: (one.p50, one.program_bytes))
        why = f"the {'smallest' if best.emulated else 'fastest'} that {lost}"
        found.append(Suggestion(device=device, engine=best.engine, program=best.program, why=why))
    return tuple(found)


def _loses_little(one: Row, by: str) -> bool:
    if by == "psnr":
        return one.accuracy.cosine is not None and one.accuracy.cosine >= 1 - LOSS
    want = accurate(one.reference, by)
    return accurate(one.accuracy, by) >= want - LOSS * abs(want)


Array = Any


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

    The scores of a sample have the classes along the last axis; its label is a class, or one for each of its rows.
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
    by_output = [psnr([one[index] for one in ours], [two[index] for two in theirs]) for index in range(len(ours[0]))]
    labels = [one.label for one in samples]
    scores = [one[0] for one in ours]
    return Accuracy(
        cosine=_least([cosine(a, b) for a, b in pairs]),
        psnr=_least(by_output),
        top1=top(1, scores, labels) if labelled else None,
        top5=top(5, scores, labels) if labelled else None,
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
    cells: Sequence[CellResult],
    made: Mapping[str, Made],
    *,
    many: bool,
    metric: Metric | None = None,
    metric_name: str = "",
    impossible: Sequence[str] = (),
) -> Compared:
    """Give the samples to every program that ran, and compare what it gives.

    Args:
        made: what each of the cells ran, by its key.
        many: give emulated devices all samples, not only the first `EMULATED`.
        impossible: what was asked for, too, and why it cannot be.
    """
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
        own = samples.each if many or not cell.emulated else samples.each[:EMULATED]
        if cell.outcome not in ("passed", "differs"):
            rows.append(Row(**dict(cell)))
            continue
        label = f"{len(own)} samples on {cell.device}: {cell.program}, {cell.engine}"
        with console.step(label, announce=False) as step:
            step.count(0, len(own))
            try:
                exact = accuracy(_outputs(made[cell.key], own, step.one), own, labelled, metric)
                measured = {"samples": len(own), "accuracy": exact, "reference": floating(len(own))}
            except SlipwayError as error:
                measured = {"outcome": "failed", "problem": Problem.of(error)}
            rows.append(Row(**{**dict(cell), **measured}))
    by: Literal["metric", "top1", "psnr"] = "metric" if metric else "top1" if reference.top1 is not None else "psnr"
    found = marked(rows, by)
    return Compared(
        model=model, data=samples.source, metric=metric_name, created=now(), samples=len(samples.each),
        of=samples.of, reference=reference, by=by, rows=found, suggestions=suggested(found, by),
        impossible=tuple(impossible),
    )  # fmt: skip


_PATIENCE = 10
"""Samples for which the device's own timeout is enough."""


def widened(file: Path) -> Any:
    """The numbers in a ``.npy`` file; bfloat16 as float32."""
    return widen(*load(file))


def fitted(file: Path, dtype: str, folder: Path) -> Path:
    """An input in the type that the program takes: the file itself, or another one in ``folder``.

    Raises:
        UsageError: no such conversion.
    """
    has, array = load(file)
    if has == dtype:
        return file
    made = folder / file.name
    values = widened(file)
    if dtype == BFLOAT16 and values.dtype.kind == "f":
        bits = values.astype(np.float32).view(np.uint32)
        np.save(made, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).view("V2"), allow_pickle=False)
    elif dtype.startswith("float") and array.dtype.kind in "fu":
        with np.errstate(over="ignore"):  # infinite, as in PyTorch
            np.save(made, values.astype(dtype), allow_pickle=False)
    else:
        raise UsageError(f"A sample is {has}, the program takes {dtype}.", "", "samples like the example inputs")
    return made


class _Sampling(Session):
    """A session that runs a program on the inputs of all its cases."""

    def all_of(self, settings: Settings, found: list[list[Any]], done: Callable[[], None]) -> None:
        """Run the cases that have no outputs in ``found`` yet; those stay there if the connection breaks."""
        with Store(self.transport, device_root(self.device)) as store:
            _, _, survey, voucher = self.arrive(store, settings)
            self._upload(store, voucher, survey, self._missing(survey))
            for case in self.job.cases[len(found) :]:
                with tempfile.TemporaryDirectory() as folder:
                    names = collect.run_case(
                        case,
                        lambda case: self._run(store, settings, case),
                        lambda answer, to: self.fetch(store.run_folder, answer, to),
                        Path(folder),
                    )[1]
                    found.append([widened(Path(folder) / name) for name in names])
                done()


def _outputs(made: Made, samples: Sequence[Sample], done: Callable[[], None]) -> list[list[Any]]:
    """The outputs of a program for each sample, in order; ``done`` is called after each.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    device, bundle, settings = made.device, made.bundle, made.settings.model_copy(update=ONCE)
    found: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        job, needs = prepared(bundle, made.path, settings)
        assert job.program is not None  # noqa: S101 - an export's
        program = job.program
        job = replace(job, cases=tuple(_case(program, sample, Path(folder)) for sample in samples))
        seconds = (settings.timeout or device.timeout) * max(1, len(samples) / _PATIENCE)
        patient = settings.model_copy(update={"timeout": seconds})
        connected(
            device, bundle, job, needs, Steps(), patient, lambda _: _Sampling,
            lambda session, _attempt: session.all_of(settings, found, done),
        )  # fmt: skip
    return found


def _case(program: Program, sample: Sample, folder: Path) -> Sized:
    """A sample, under the names of its files."""
    inputs = {}
    for file, wanted in zip(sample.inputs, program.inputs, strict=True):
        inputs[file.name] = Blob.of(fitted(file, wanted.dtype, folder))
    return Sized("a sample", inputs, (), ())


JSON = "compare.json"
_NAMES = {"metric": "metric", "top1": "top-1", "top5": "top-5"}


def report(found: Compared, folder: Path, as_json: bool = False) -> None:
    """Write ``compare.json``, and print the comparison."""
    write_atomic(folder / JSON, found.model_dump_json(indent=1) + "\n")
    if as_json:
        console.print_json({**json.loads(found.model_dump_json()), "folder": str(folder)})
        return
    columns, rows = table(found)
    samples = f"{found.samples} of {found.of} samples of {found.data}" if found.data else "the example inputs"
    lines = [f"{one.device}: {one.program} on {one.engine} is {one.why}." for one in found.suggestions]
    console.table(
        f"{found.model}, {samples}",
        columns,
        rows,
        "\n".join([*lines, f"* no other row of the device beats it. {console.shown(folder / JSON)}", *troubles(found)]),
    )


def troubles(found: Compared) -> list[str]:
    """A line for each program that failed, however often, and for what is impossible."""
    places = grouped(
        (f"{one.program} {one.outcome}: {one.problem.short(one.program)}", f"{one.engine} on {one.device}")
        for one in found.rows
        if one.problem and not one.samples
    )
    lines = [f"{line} ({', '.join(where)})" for line, where in places.items()]
    more = [f"{JSON} has the whole of each message."] if lines else []
    return [*lines, *more, *(f"impossible: {one}" for one in found.impossible)]


def table(found: Compared) -> tuple[list[str], list[list[str]]]:
    """The columns that have figures, and a row for the float model and for each program."""
    floats = {"float": found.reference}
    if fewer := next((one for one in found.rows if 0 < one.samples < found.samples), None):
        floats[f"float, {fewer.samples} samples as on emulated devices"] = fewer.reference
    has = [name for name in _NAMES if getattr(found.reference, name) is not None]
    columns = ["device", "engine", "program", *(_NAMES[name] for name in has)]
    columns += ["cosine", "PSNR", "size", "p50", "load", "memory", "front"]
    rows = [["this machine", "PyTorch", name, *_figures(exact, has), *[""] * 7] for name, exact in floats.items()]
    rows += [[one.device, one.engine, one.program, *_figures(one.accuracy, has), *_costs(one)] for one in found.rows]
    return columns, rows


def _figures(accuracy: Accuracy, has: list[str]) -> list[str]:
    values = [(name, getattr(accuracy, name)) for name in has]
    return ["" if value is None else f"{value:.4g}" if name == "metric" else f"{value:.1%}" for name, value in values]


def _costs(one: Row) -> list[str]:
    if one.problem and not one.samples:
        return [one.outcome, *[""] * 6]
    cosine, psnr = one.accuracy.cosine, one.accuracy.psnr
    times = [duration(time) for time in (one.latency.p50, one.latency.load)] if one.latency else ["emulated"] * 2
    return [
        "" if cosine is None else f"{cosine:.6f}",
        "" if psnr is None else "identical" if psnr == math.inf else f"{psnr:.1f} dB",
        amount(one.program_bytes),
        times[0] + " throttled" * bool(one.throttled),
        times[1],
        amount(one.peak_rss_bytes),
        "DIFFERS" if one.outcome == "differs" else "*" if one.front else "",
    ]
