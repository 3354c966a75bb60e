"""Measure the accuracy of every cell of a filled matrix: give the samples to each program, and compare what it gives.

On a device there is one connection and one upload for all samples, and a process for each. What is found is printed as
a table, and written as JSON.
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
from core.console.units import duration
from core.errors import SlipwayError, UsageError
from core.files import sha256_file, write_atomic
from core.formats.program import Program, Sample, Samples
from deploy.comparing import model as metrics
from deploy.comparing.model import Accuracy, Compared, Row, marked, suggested
from deploy.devices.probe import device_root
from deploy.matrix.model import CellResult, Problem
from deploy.matrix.run import Made
from deploy.run import collect
from deploy.run.events import Steps
from deploy.run.job import Sized
from deploy.run.npy import BFLOAT16, load
from deploy.run.pipeline import connected, prepared
from deploy.run.preflight import size
from deploy.run.result import now
from deploy.run.session import Session
from deploy.run.settings import ONCE, Settings
from deploy.store.store import Blob, Store

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
        cells: the matrix's.
        made: what each of them ran, by its key.
        many: give emulated devices all samples, not only the first `EMULATED`.
        metric: the user's own measure.
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
                outputs = _outputs(made[cell.key], own, step.one)
                exact = accuracy(outputs, own, labelled, metric)
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
    dtype, array = load(file)
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == BFLOAT16 else array


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
        """Run the cases that have no outputs in ``found`` yet; those stay there if the connection breaks.

        Args:
            done: called after each.
        """
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
    """The outputs of a program for each sample, in order.

    Args:
        done: called after each sample.

    Raises:
        SlipwayError: of the class that names the failure; see ``docs/deploy.md``.
    """
    device, bundle, settings = made.device, made.bundle, made.settings.model_copy(update=ONCE)
    steps = Steps([])
    found: list[list[Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        job, needs = prepared(bundle, made.path, settings)
        assert job.program is not None  # noqa: S101 - an export's
        program = job.program
        job = replace(job, cases=tuple(_case(program, sample, Path(folder)) for sample in samples))
        seconds = (settings.timeout or device.timeout) * max(1, len(samples) / _PATIENCE)
        connected(
            device,
            seconds,
            settings.retries,
            steps,
            lambda deadline, transport: _Sampling(device, bundle, job, needs, steps, deadline, transport),
            lambda session, _attempt: session.all_of(settings, found, done),
            wait=settings.wait,
        )
    return found


def _case(program: Program, sample: Sample, folder: Path) -> Sized:
    """A sample, under the names of its files."""
    inputs = {}
    for file, wanted in zip(sample.inputs, program.inputs, strict=True):
        made = fitted(file, wanted.dtype, folder)
        inputs[file.name] = Blob(made.resolve(), sha256_file(made), made.stat().st_size)
    return Sized("a sample", inputs, (), ())


JSON = "compare.json"
_NAMES = {"metric": "metric", "top1": "top-1", "top5": "top-5"}


def write(found: Compared, folder: Path) -> None:
    """Write ``compare.json``."""
    write_atomic(folder / JSON, found.model_dump_json(indent=1) + "\n")


def report(found: Compared, folder: Path, as_json: bool = False) -> None:
    """Print a comparison."""
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
    places: dict[str, list[str]] = {}
    for one in found.rows:
        if one.problem and not one.samples:
            line = f"{one.program} {one.outcome}: {one.problem.short(one.program)}"
            places.setdefault(line, []).append(f"{one.engine} on {one.device}")
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
        size(one.program_bytes),
        times[0] + " throttled" * bool(one.throttled),
        times[1],
        size(one.peak_rss_bytes),
        "DIFFERS" if one.outcome == "differs" else "*" if one.front else "",
    ]
