"""The report's plots, drawn as inline SVG: no library, no script, colours from the page's style sheet.

Every function gives safe markup: names and texts are escaped. Lengths are in the units of the drawing's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from core.plain import plain
from core.units import duration, size, three
from deploy.matrix.model import CellResult
from deploy.matrix.people import disturbed

_WIDTH = 860
_LABEL = 290
_RIGHT = 96
_ROW = 22
_DOT = 10.0
"""Width of a dot with its gap."""
_LANE = 12.0
"""Height of a second row of dots."""
_LISTED = 12
"""Cells that a dot's title names."""
_CHARACTERS = 40
"""Characters of a label."""
_SHORT = 38
"""Characters of a line of the label of a small plot."""
_LINE = 15.0


def element(tag: str, *children: Markup | str, **attributes: object) -> Markup:
    """An SVG element; ``class_`` is ``class``, other underscores are dashes."""
    pairs = ((name.rstrip("_").replace("_", "-"), plain(str(value))) for name, value in attributes.items())
    words = [Markup('{}="{}"').format(name, value) for name, value in pairs]
    inside = Markup("").join(child if isinstance(child, Markup) else escape(plain(child)) for child in children)
    return Markup("<{} {}>{}</{}>").format(tag, Markup(" ").join(words), inside, tag)


def _svg(height: float, label: str, *children: Markup) -> Markup:
    return element(
        "svg", *children, viewBox=f"0 0 {_WIDTH} {height:g}", role="img", aria_label=label, class_="plot",
        preserveAspectRatio="xMinYMin meet",
    )  # fmt: skip


def _text(x: float, y: float, words: str, css: str = "", **attributes: object) -> Markup:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", class_=css or "label", **attributes)


def _label(y: float, words: str, whole: str = "") -> Markup:
    short = words if len(words) <= _CHARACTERS else words[: _CHARACTERS - 1] + "…"
    return element(
        "text", short, element("title", whole or words), x=f"{_LABEL - 10}", y=f"{y + 4:.1f}", class_="label end"
    )


@dataclass(frozen=True)
class Scale:
    """Numbers to positions between `_LABEL` and the right margin, logarithmic or from 0 on."""

    low: float
    high: float
    log: bool = True

    def at(self, value: float) -> float:
        """The position of ``value``; a value outside is put at the edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            part = (math.log(value) - math.log(self.low)) / span if span else 0.5
        else:
            part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return _LABEL + part * (_WIDTH - _LABEL - _RIGHT)

    def ticks(self) -> list[float]:
        """Round numbers inside."""
        if not self.log:
            step = 10 ** math.floor(math.log10(self.high)) if self.high > 0 else 1.0
            step = step / 2 if self.high / step < 3 else step
            return [step * i for i in range(int(self.high / step + 1e-9) + 1)]
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, (last - first) // 6)
        return [10.0**power for power in range(first, last + 1, every)]


def log_scale(values: Sequence[float]) -> Scale:
    """A logarithmic scale of whole decades that holds all positive numbers of ``values``."""
    good = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(good))), math.ceil(math.log10(max(good)))
    return Scale(10.0**low, 10.0 ** (high if high > low else low + 1))


def _axis(scale: Scale, height: float, unit: str, words: Callable[[float], str] = "{:g}".format) -> list[Markup]:
    marks = []
    for tick in scale.ticks():
        x = f"{scale.at(tick):.1f}"
        marks.append(element("line", x1=x, x2=x, y1=4, y2=f"{height - 22:.1f}", class_="grid"))
        marks.append(_text(scale.at(tick), height - 8, words(tick), "tick middle"))
    if unit:
        marks.append(_text(_WIDTH - _RIGHT + 22, height - 8, unit, "tick"))
    return marks


def latency(cells: Sequence[CellResult]) -> Markup:
    """Latency of real devices: a line from the fastest execution to p99, a box from p50 to p90, a mark at p50."""
    shown = [cell for cell in cells if cell.latency]
    shown.sort(key=lambda cell: (cell.device, cell.program, cell.engine))
    if not shown:
        return Markup("")
    times = [cell.latency for cell in shown if cell.latency]
    scale = log_scale([value for each in times for value in (each.min, each.p99)])
    height = len(shown) * _ROW + 34
    marks = _axis(scale, height, "", duration)
    for row, (cell, each) in enumerate(zip(shown, times, strict=True)):
        y = row * _ROW + 16.0
        title = (
            f"{cell.key}: fastest {each.min:.4g}, p50 {each.p50:.4g}, p90 {each.p90:.4g}, p99 {each.p99:.4g} ms "
            f"over {each.count}"
            + (f"; throttled: {', '.join(cell.throttled)}" if cell.throttled else "")
            + "".join(f"; {word}" for word in disturbed(cell))
        )
        a, b, c, d = (scale.at(value) for value in (each.min, each.p50, each.p90, each.p99))
        css = f"e-{cell.engine}" + (" faint" if cell.throttled or disturbed(cell) else "")
        marks += [
            _label(y, f"{cell.device} · {cell.program} · {cell.engine}"),
            element(
                "g",
                element("title", title),
                element("rect", x=_LABEL, y=f"{y - _ROW / 2:.1f}", width=_WIDTH - _LABEL, height=_ROW, class_="hit"),
                element("line", x1=f"{a:.1f}", x2=f"{d:.1f}", y1=y, y2=y, class_="whisker"),
                element("rect", x=f"{b:.1f}", y=y - 5, width=f"{max(c - b, 1.5):.1f}", height=10, class_="box", rx=2),
                element("circle", cx=f"{b:.1f}", cy=y, r=4, class_="dot"),
                _text(_WIDTH - _RIGHT + 8, y + 4, duration(each.p50), "value"),
                class_=css,
            ),
        ]
    return _svg(height, "Latency of real devices in milliseconds", *marks)


@dataclass(frozen=True)
class Bar:
    """A bar with its label and the text after it."""

    label: str
    value: float
    text: str
    css: str = ""


def bars(rows: Sequence[Bar], words: Callable[[float], str], label: str) -> Markup:
    """Bars from 0 on; ``words`` writes the numbers of the axis."""
    if not rows:
        return Markup("")
    scale = Scale(0, max(*(row.value for row in rows), 1e-9), log=False)
    height = len(rows) * _ROW + 34
    marks = _axis(scale, height, "", lambda value: words(value) or "0")
    for index, row in enumerate(rows):
        y = index * _ROW + 16.0
        width = max(scale.at(row.value) - _LABEL, 1.0)
        marks += [
            _label(y, row.label),
            element(
                "g",
                element("title", f"{row.label}: {row.text}"),
                element("rect", x=_LABEL, y=y - 7, width=f"{width:.1f}", height=14, rx=2, class_="bar"),
                _text(_LABEL + width + 6, y + 4, row.text, "value"),
                class_=row.css,
            ),
        ]
    return _svg(height, label, *marks)


def errors(cells: Sequence[CellResult]) -> Markup:
    """Largest errors by program: a dot for each cell, a bar at the tolerance; identical outputs are at the left."""
    shown = [cell for cell in cells if cell.max_abs is not None]
    if not shown:
        return Markup("")
    limits = {cell.program: max((o.atol or 0.0 for o in cell.outputs), default=0.0) for cell in shown}
    values = [float(cell.max_abs or 0.0) for cell in shown]
    scale = log_scale([*values, *limits.values()])
    zero = scale.low / 10
    scale = Scale(zero, scale.high)
    programs = sorted(limits)
    rows = {program: _apart([cell for cell in shown if cell.program == program], scale) for program in programs}
    heights = {program: _ROW + max(lane for lane, *_rest in row) * _LANE for program, row in rows.items()}
    height = sum(heights.values()) + 34
    marks = []
    for tick in scale.ticks():
        x = f"{scale.at(tick):.1f}"
        marks.append(element("line", x1=x, x2=x, y1=4, y2=f"{height - 22:.1f}", class_="grid"))
        marks.append(_text(scale.at(tick), height - 8, "0" if tick <= zero * 1.5 else f"{tick:g}", "tick middle"))
    top = 5.0
    for program in programs:
        marks.append(_label(top + heights[program] / 2, program))
        if limits[program] > 0:
            limit = f"{scale.at(limits[program]):.1f}"
            marks.append(
                element(
                    "g",
                    element("title", f"{program}: tolerance {limits[program]:g}"),
                    element("line", x1=limit, x2=limit, y1=top + 3, y2=top + heights[program] - 3, class_="limit"),
                )
            )
        for lane, at, css, cells_here in rows[program]:
            y = top + _ROW / 2 + lane * _LANE
            lines = [f"{cell.key}: {cell.max_abs or 0.0:.3g}" for cell in cells_here]
            more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
            marks.append(
                element(
                    "g",
                    element("title", "; ".join(lines[:_LISTED] + more)),
                    element("circle", cx=f"{at:.1f}", cy=f"{y:.1f}", r=4.5, class_="dot"),
                    *([_text(at + 8, y + 4, f"×{len(lines)}", "tick")] if len(lines) > 1 else []),
                    class_=css,
                )
            )
        top += heights[program]
    return _svg(height, "Largest absolute error by program, with the tolerance", *marks)


def _apart(cells: Sequence[CellResult], scale: Scale) -> list[tuple[int, float, str, list[CellResult]]]:
    """Dots that do not overlap: lane, position, colour, and the cells that one dot stands for."""
    dots: list[tuple[int, float, str, list[CellResult]]] = []
    ends: list[float] = []
    placed = sorted(((scale.at(max(cell.max_abs or 0.0, scale.low)), cell) for cell in cells), key=lambda each: each[0])
    groups: list[tuple[float, str, list[CellResult]]] = []
    for at, cell in placed:
        css = "bad" if cell.outcome == "differs" else f"e-{cell.engine}"
        last = next((group for group in reversed(groups) if group[1] == css), None)
        if last and at - last[0] < _DOT:
            last[2].append(cell)
        else:
            groups.append((at, css, [cell]))
    for at, css, together in groups:
        lane = next((index for index, end in enumerate(ends) if end <= at), len(ends))
        end = at + _DOT + (24 if len(together) > 1 else 0)
        ends[lane : lane + 1] = [end]
        dots.append((lane, at, css, together))
    return dots


@dataclass(frozen=True)
class Series:
    """A figure over several matrices, the latest last; ``None`` if it is missing."""

    label: str
    unit: str
    values: tuple[float | None, ...]
    baseline: float | None = None
    css: str = ""
    notes: tuple[str, ...] = field(default=())
    """When each was measured."""


def _value(value: float, unit: str) -> str:
    """For people: ``7.4 µs`` of milliseconds, ``10 MB`` of bytes."""
    return duration(value) if unit == "ms" else size(value) or "0 B" if unit == "B" else f"{three(value)} {unit}"


def _lines(label: str) -> list[str]:
    """A label in lines that fit a small plot, broken after a slash or a dash where that is possible."""
    lines, rest = [], label
    while len(rest) > _SHORT:
        at = max(rest.rfind(mark, 0, _SHORT) for mark in "/-+") + 1
        at = at if at > _SHORT // 2 else _SHORT
        lines.append(rest[:at])
        rest = rest[at:]
    return [*lines, rest]


def history(series: Series) -> Markup:
    """One figure over time, the baseline dashed. The scale begins at 0."""
    label = _lines(series.label)
    more = _LINE * (len(label) - 1)
    width, height, left, right, top = 270.0, 110.0 + more, 8.0, 76.0, 30.0 + more
    known = [value for value in series.values if value is not None]
    highest = max([*known, series.baseline or 0.0, 1e-12]) * 1.1
    step = (width - left - right) / max(len(series.values) - 1, 1)
    radius = max(min(3.0, 0.45 * step), 1.0)  # of many runs the dots are small, so that they stay apart

    def y(value: float) -> float:
        return height - 10 - (value / highest) * (height - 10 - top)

    points = [
        (left + index * step, y(value), value, index) for index, value in enumerate(series.values) if value is not None
    ]
    marks = [
        *(_text(left, 14 + index * _LINE, line, "label") for index, line in enumerate(label)),
        element("line", x1=left, x2=width - right, y1=height - 10, y2=height - 10, class_="grid"),
    ]
    if series.baseline is not None:
        line = f"{y(series.baseline):.1f}"
        marks.append(
            element(
                "g",
                element("title", f"baseline {_value(series.baseline, series.unit)}"),
                element("line", x1=left, x2=width - right, y1=line, y2=line, class_="limit dashed"),
            )
        )
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{at:.1f}" for x, at, _value, _index in points)
        marks.append(element("polyline", points=path, class_="line"))
    for x, at, value, index in points:
        note = series.notes[index] if index < len(series.notes) else ""
        dot = element("circle", cx=f"{x:.1f}", cy=f"{at:.1f}", r=f"{radius:g}", class_="dot")
        marks.append(element("g", element("title", f"{note} {_value(value, series.unit)}"), dot))
    if points:
        marks.append(_text(width - right + 8, points[-1][1] + 4, _value(points[-1][2], series.unit), "value"))
    return element(
        "svg", element("title", series.label), *marks, viewBox=f"0 0 {width:g} {height:g}", role="img",
        class_=f"spark {series.css}",
    )  # fmt: skip


svg, caption, row_label, axis = _svg, _text, _label, _axis
"""The pieces, for other reports' plots."""
