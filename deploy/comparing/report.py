"""A comparison on the terminal and as JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path

from core import console
from core.console.units import duration
from core.files import write_atomic
from deploy.comparing.model import Accuracy, Compared, Row
from deploy.run.preflight import size

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
    has = [name for name in ("metric", "top1", "top5") if getattr(found.reference, name) is not None]
    columns = ["device", "engine", "program", *(_NAMES[name] for name in has)]
    columns += ["cosine", "PSNR", "size", "p50", "load", "memory", "front"]
    rows = [_float("float", found.reference, has)]
    if fewer := next((one for one in found.rows if 0 < one.samples < found.samples), None):
        rows.append(_float(f"float, {fewer.samples} samples as on emulated devices", fewer.reference, has))
    rows += [[one.device, one.engine, one.program, *figures(one.accuracy, has), *_costs(one)] for one in found.rows]
    return columns, rows


def _float(name: str, reference: Accuracy, has: list[str]) -> list[str]:
    return ["this machine", "PyTorch", name, *figures(reference, has), *[""] * 7]


def figures(accuracy: Accuracy, has: list[str]) -> list[str]:
    """The figures of ``has``, as text."""
    values = [(name, getattr(accuracy, name)) for name in has]
    return ["" if value is None else f"{value:.4g}" if name == "metric" else f"{value:.1%}" for name, value in values]


def _costs(one: Row) -> list[str]:
    if one.problem and not one.samples:
        return [one.outcome, *[""] * 6]
    slow = " throttled" if one.throttled else ""
    times = ["emulated"] * 2 if one.emulated else [_ms(one.p50) + slow, _ms(one.load)]
    mark = "DIFFERS" if one.outcome == "differs" else "*" if one.front else ""
    close = [_cosine(one.accuracy.cosine), _decibels(one.accuracy.psnr)]
    return [*close, size(one.size), *times, size(one.memory), mark]


def _ms(value: float | None) -> str:
    return "" if value is None else duration(value)


def _cosine(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


def _decibels(value: float | None) -> str:
    return "" if value is None else "identical" if value == math.inf else f"{value:.1f} dB"
