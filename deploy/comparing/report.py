"""A comparison on the terminal, as JSON, and as one HTML file with a plot for each device."""

from __future__ import annotations

import json
import math
from pathlib import Path

from markupsafe import Markup

from core import console
from core.files import write_atomic
from core.program import ENGINES
from core.units import duration
from deploy.comparing.model import Accuracy, Compared, Row, accurate
from deploy.matrix import plots
from deploy.matrix.html import template
from deploy.run.preflight import size

JSON = "compare.json"
REPORT = "compare.html"
TEMPLATE = Path(__file__).with_name("compare.html.j2")
NAMES = {"metric": "metric", "top1": "top-1", "psnr": "PSNR, dB"}
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM, _RIGHT = 860.0, 320.0, 70.0, 18.0, 44.0, 190.0


def write(found: Compared, folder: Path) -> None:
    """Write ``compare.json`` and ``compare.html``."""
    write_atomic(folder / JSON, found.model_dump_json(indent=1) + "\n")
    write_atomic(folder / REPORT, html(found))


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
        "\n".join(
            [*lines, f"* no other row of the device beats it. {console.shown(folder / REPORT)}", *troubles(found)]
        ),
    )


def troubles(found: Compared) -> list[str]:
    """A line for each program that failed, however often, and for what is impossible."""
    places: dict[str, list[str]] = {}
    for one in found.rows:
        if one.problem and not one.samples:
            line = f"{one.program} {one.outcome}: {one.problem.short(one.program)}"
            places.setdefault(line, []).append(f"{one.engine} on {one.device}")
    lines = [f"{line} ({', '.join(where)})" for line, where in places.items()]
    more = ["The page has the whole of each message."] if lines else []
    return [*lines, *more, *(f"impossible: {one}" for one in found.impossible)]


def table(found: Compared) -> tuple[list[str], list[list[str]]]:
    """The columns that have figures, and a row for the float model and for each program."""
    has = [name for name in ("metric", "top1", "top5") if getattr(found.reference, name) is not None]
    columns = ["device", "engine", "program", *(NAMES.get(name, "top-5") for name in has)]
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


def html(found: Compared) -> str:
    """The page."""
    devices = list(dict.fromkeys(one.device for one in found.rows))
    columns, rows = table(found)
    return template(TEMPLATE).render(
        found=found,
        columns=columns,
        rows=list(zip(rows, [*[None] * (len(rows) - len(found.rows)), *found.rows], strict=True)),
        engines=[name for name in ENGINES if any(one.engine == name for one in found.rows)],
        plots=[(device, plot([one for one in found.rows if one.device == device], found)) for device in devices],
        accuracy=NAMES[found.by],
    )


def plot(rows: list[Row], found: Compared) -> Markup:
    """Accuracy over the median latency, on an emulated device over the size; the front is a line, its points filled."""
    shown = [one for one in rows if one.usable and math.isfinite(accurate(one.accuracy, found.by))]
    if not shown:
        return Markup("")
    emulated = shown[0].emulated
    unit = "kB" if emulated else "ms"
    costs = [one.size / 1e3 if emulated else max(one.p50 or 0.0, 1e-6) for one in shown]
    values = [accurate(one.accuracy, found.by) for one in shown]
    low, high = min(values), max(values)
    around = 0.02 if found.by == "top1" else 0.5
    low, high = (
        (low - around, high + around) if high - low < 1e-9 else (low - (high - low) / 10, high + (high - low) / 10)
    )
    scale = plots.log_scale(costs)
    span = math.log(scale.high / scale.low)

    def at(cost: float, value: float) -> tuple[float, float]:
        x = _LEFT + math.log(cost / scale.low) / span * (_WIDTH - _LEFT - _RIGHT)
        return x, _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    marks = []
    for tick in scale.ticks():
        x = at(tick, low)[0]
        marks += [_line(x, x, _TOP, _HEIGHT - _BOTTOM), plots.caption(x, _HEIGHT - 26, f"{tick:g}", "tick middle")]
    for step in range(5):
        value = low + (high - low) * step / 4
        y = at(scale.low, value)[1]
        words = f"{value:.1%}" if found.by == "top1" else f"{value:.4g}"
        marks += [_line(_LEFT, _WIDTH - _RIGHT, y, y), plots.caption(_LEFT - 8, y + 4, words, "tick end")]
    marks.append(plots.caption((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 8, f"{_axis(emulated)}, {unit}", "tick middle"))
    best = [at(cost, value) for one, cost, value in zip(shown, costs, values, strict=True) if one.front]
    points = sorted(best, key=lambda point: point[0])
    if len(points) > 1:
        marks.append(
            plots.element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="line dashed")
        )
    taken: list[tuple[float, float]] = []
    for one, cost, value in sorted(zip(shown, costs, values, strict=True), key=lambda each: not each[0].front):
        x, y = at(cost, value)
        title = f"{one.program} on {one.engine}: {NAMES[found.by]} {value:.4g}, {cost:.4g} {unit}"
        label = y + 4
        while any(abs(x - a) < 110 and abs(label - b) < 13 for a, b in taken):
            label += 13  # a label below those of its neighbours
        taken.append((x, label))
        dot = plots.element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=6 if one.front else 4, class_="dot")
        words = plots.caption(x + 9, label, one.scheme, "label" if one.front else "tick")
        css = f"e-{one.engine}" + ("" if one.front else " faint")
        marks.append(plots.element("g", plots.element("title", title), dot, words, class_=css))
    return plots.element(
        "svg", *marks, viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}", role="img", class_="plot",
        aria_label=f"{NAMES[found.by]} over {_axis(emulated)}", preserveAspectRatio="xMinYMin meet",
    )  # fmt: skip


def _axis(emulated: bool) -> str:
    return "size of the program" if emulated else "median latency"


def _line(x1: float, x2: float, y1: float, y2: float) -> Markup:
    return plots.element("line", x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}", class_="grid")
