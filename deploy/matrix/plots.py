"""The reports' plots: inline SVG without library or script, colours from the page's style sheet.

Positions across are per cent of the plot's width, so that a plot fits a screen, a phone and paper without being drawn
anew. Every function gives safe markup: names and texts are escaped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from core.console.units import duration, size
from core.plain import plain
from deploy.matrix.model import CellResult
from deploy.matrix.people import disturbed

_LISTED = 12
"""Cells that a dot's title names."""
_STEPS = 5
"""Numbers of an axis, about."""
_SPARK = 72.0
"""Height of a plot of the history, in pixels, as the next one."""
_SCATTER = 320.0


def element(tag: str, *children: Markup | str, **attributes: object) -> Markup:
    """An element; ``class_`` is ``class``, other underscores are dashes."""
    pairs = ((name.rstrip("_").replace("_", "-"), plain(str(value))) for name, value in attributes.items())
    words = [Markup(' {}="{}"').format(name, value) for name, value in pairs]
    inside = Markup("").join(child if isinstance(child, Markup) else escape(plain(child)) for child in children)
    return Markup("<{}{}>{}</{}>").format(tag, Markup("").join(words), inside, tag)


def _line(x1: float, x2: float, css: str, y1: object = "50%", y2: object = "50%") -> Markup:
    return element("line", x1=f"{x1:.2f}%", x2=f"{x2:.2f}%", y1=y1, y2=y2, class_=css)


def _dot(x: float, y: object = "50%", radius: float = 4) -> Markup:
    return element("circle", cx=f"{x:.2f}%", cy=y, r=f"{radius:g}", class_="dot")


def _text(x: float, y: object, words: str, css: str) -> Markup:
    return element("text", words, x=f"{x:.2f}%", y=y, class_=css)


def round_steps(low: float, high: float, steps: int = _STEPS) -> list[float]:
    """Round values from ``low`` to ``high``, 1, 2 or 5 times a power of ten apart; about as many as ``steps``."""
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= rough)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Scale:
    """Numbers to per cent of a plot's width, logarithmic or from 0 on."""

    low: float
    high: float
    log: bool = True

    def at(self, value: float) -> float:
        """The position of ``value``; a value outside is put at the edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return 100 * math.log(value / self.low) / math.log(self.high / self.low)
        return 100 * (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers inside."""
        if not self.log:
            return round_steps(self.low, self.high)
        first, last = round(math.log10(self.low)), round(math.log10(self.high))
        return [10.0**power for power in range(first, last + 1, max(1, math.ceil((last - first) / _STEPS)))]


def log_scale(values: Iterable[float]) -> Scale:
    """A logarithmic scale of whole decades that holds all positive numbers of ``values``."""
    good = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(good))), math.ceil(math.log10(max(good)))
    return Scale(10.0**low, 10.0 ** (high if high > low else low + 1))


@dataclass(frozen=True)
class Row:
    """A label, marks at its right, and a figure behind them."""

    label: str
    marks: Markup
    figure: str = ""
    title: str = ""
    css: str = ""


def _rows(label: str, rows: Sequence[Row], scale: Scale, words: Callable[[float], str]) -> Markup:
    """A plot of rows over one axis, whose numbers ``words`` writes; nothing without rows."""
    if not rows:
        return Markup("")
    grid = Markup("").join(_line(scale.at(tick), scale.at(tick), "grid", 0, "100%") for tick in scale.ticks())
    numbers = Markup("").join(_text(scale.at(tick), 14, words(tick), "tick middle") for tick in scale.ticks())
    lines = [
        element(
            "div", element("span", row.label), element("div", element("svg", grid, row.marks), class_="track"),
            element("span", row.figure, class_="value"), class_=f"row {row.css}", title=row.title or row.label,
        )
        for row in rows
    ]  # fmt: skip
    axis = element("div", element("span"), element("div", element("svg", numbers), class_="track"), class_="row")
    return element("figure", *lines, axis, class_="plot", aria_label=label)


def latency(cells: Sequence[CellResult]) -> Markup:
    """Latency of real devices: a line from the fastest execution to p99, a box from p50 to p90, a mark at p50."""
    shown = sorted((cell.device, cell.program, cell.engine, cell.key) for cell in cells if cell.latency)
    known = {cell.key: cell for cell in cells}
    times = [cell.latency for cell in cells if cell.latency]
    scale = log_scale(value for each in times for value in (each.min, each.p99))
    rows = []
    for *names, key in shown:
        cell, each = known[key], known[key].latency
        if each is None:
            continue
        notes = [f"throttled: {', '.join(cell.throttled)}"] * bool(cell.throttled) + [*disturbed(cell)]
        figures = f"fastest {each.min:.4g}, p50 {each.p50:.4g}, p90 {each.p90:.4g}, p99 {each.p99:.4g} ms"
        a, b, c, d = (scale.at(value) for value in (each.min, each.p50, each.p90, each.p99))
        marks = _line(a, d, "whisker") + _line(b, c, "box") + _dot(b)
        title = "; ".join([f"{cell.key}: {figures} over {each.count}", *notes])
        css = f"e-{cell.engine}" + " faint" * bool(notes)
        rows.append(Row(" · ".join(names), marks, duration(each.p50), title, css))
    return _rows("Latency of real devices", rows, scale, duration)


def bars(shown: Mapping[str, tuple[int, str]], label: str) -> Markup:
    """Bars of bytes from 0 on; each label's size and class of the style sheet."""
    scale = Scale(0, max((count for count, _css in shown.values()), default=1), log=False)
    rows = [
        Row(name, _line(0, max(scale.at(count), 0.3), "bar"), size(count), css=css)
        for name, (count, css) in sorted(shown.items())
    ]
    return _rows(label, rows, scale, lambda value: size(value) or "0")


def errors(cells: Sequence[CellResult]) -> Markup:
    """Largest errors of each program and engine: a dot for each cell, a bar at the tolerance; 0 is at the left."""
    shown = [cell for cell in cells if cell.max_abs is not None]
    limits = {cell.program: max((o.atol or 0.0 for o in cell.outputs), default=0.0) for cell in shown}
    decades = log_scale([*(cell.max_abs or 0.0 for cell in shown), *limits.values()])
    scale = Scale(decades.low / 10, decades.high)
    rows = []
    for program, engine in sorted({(cell.program, cell.engine) for cell in shown}):
        dots: dict[tuple[int, str], list[CellResult]] = {}
        for cell in shown:
            if (cell.program, cell.engine) == (program, engine):
                at = round(scale.at(cell.max_abs or 0.0))
                dots.setdefault((at, "bad" if cell.outcome == "differs" else ""), []).append(cell)
        marks = Markup("")
        if limits[program] > 0:
            at = round(scale.at(limits[program]))
            marks += element("g", element("title", f"tolerance {limits[program]:g}"), _line(at, at, "limit", 3, "90%"))
        for (at, css), together in dots.items():
            lines = [f"{cell.key}: {cell.max_abs or 0.0:.3g}" for cell in together]
            more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
            title = element("title", "; ".join(lines[:_LISTED] + more))
            count = f"×{len(lines)}" if lines[1:] else ""
            marks += element("g", title, _dot(at), _text(at + 1, 15, count, "tick"), class_=css)
        rows.append(Row(f"{program} · {engine}", marks, css=f"e-{engine}"))
    return _rows(
        "Largest absolute errors", rows, scale, lambda value: "0" if value <= scale.low * 1.5 else f"{value:g}"
    )


@dataclass(frozen=True)
class Series:
    """A latency (ms) over several matrices, the latest last; ``None`` if it is missing."""

    label: str
    values: tuple[float | None, ...]
    notes: tuple[str, ...]
    """When each was measured."""
    baseline: float | None = None
    css: str = ""


def history(series: Series) -> Markup:
    """Over time, the baseline dashed. The scale begins at 0."""
    known = [value for value in series.values if value is not None]
    highest = max([*known, series.baseline or 0.0, 1e-12]) * 1.1
    step = 100 / max(len(series.values) - 1, 1)

    def y(value: float) -> float:
        return round(_SPARK * (1 - value / highest), 1)

    marks = [_line(0, 100, "grid", _SPARK - 1, _SPARK - 1)]
    if series.baseline is not None:
        title = element("title", f"baseline {duration(series.baseline)}")
        marks.append(element("g", title, _line(0, 100, "limit dashed", y(series.baseline), y(series.baseline))))
    points = [(index * step, y(value), value, index) for index, value in enumerate(series.values) if value is not None]
    marks += [_line(one[0], two[0], "line", one[1], two[1]) for one, two in itertools.pairwise(points)]
    for x, at, value, index in points:
        marks.append(element("g", element("title", f"{series.notes[index]} {duration(value)}"), _dot(x, at, 2.5)))
    last = f": {duration(known[-1])}" if known else ""
    caption = element("figcaption", series.label + last)
    return element("figure", caption, element("svg", *marks, height=_SPARK), class_=f"spark {series.css}")


@dataclass(frozen=True)
class Point:
    """A point with its number; ``best`` ones are joined by a line, and ``strong`` ones drawn so."""

    x: float
    y: float
    number: int
    title: str
    css: str = ""
    best: bool = False
    strong: bool = False


def scatter(points: Sequence[Point], words: Callable[[float], str], across: str, label: str) -> Markup:
    """Points over a logarithmic axis.

    Args:
        words: writes the numbers of the upright axis.
        across: what the other axis has.
    """
    if not points:
        return Markup("")
    low, high = min(each.y for each in points), max(each.y for each in points)
    around = (high - low) / 10 or max(abs(high) / 50, 1e-3)
    low, high = low - around, high + around
    scale = log_scale(each.x for each in points)
    decades = math.log10(scale.high / scale.low)
    ticks = [factor * tick for tick in scale.ticks() for factor in ((1, 2, 5) if decades < _STEPS / 2 else (1,))]

    def y(value: float) -> float:
        return round(_SCATTER * (high - value) / (high - low), 1)

    marks = []
    for tick in (tick for tick in ticks if tick <= scale.high):
        x = scale.at(tick)
        marks += [_line(x, x, "grid", 0, _SCATTER), _text(x, _SCATTER + 16, f"{tick:g}", "tick middle")]
    for value in round_steps(low, high):
        at = y(value)
        words_at = element("text", words(value), x=0, dx=-8, y=at + 4, class_="tick end")
        marks += [_line(0, 100, "grid", at, at), words_at]
    corners = sorted((scale.at(each.x), y(each.y)) for each in points if each.best)
    marks += [_line(a, c, "line dashed", b, d) for (a, b), (c, d) in itertools.pairwise(corners)]
    marks.append(_text(50, _SCATTER + 34, across, "tick middle"))
    for each in sorted(points, key=lambda each: each.strong):
        x, at = scale.at(each.x), y(each.y)
        circle = element("circle", cx=f"{x:.2f}%", cy=at, r=10, class_="point strong" if each.strong else "point")
        number = _text(x, at + 4, str(each.number), "number middle")
        marks.append(element("g", element("title", each.title), circle, number, class_=each.css))
    return element(
        "figure", element("svg", *marks, height=_SCATTER + 40, role="img", aria_label=label), class_="plot scatter"
    )
