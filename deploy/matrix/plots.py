"""The matrix' plots, from the pieces of `deploy.matrix.drawing`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from core.console.units import duration, size, three
from deploy.matrix.drawing import (
    LINE,
    ROW,
    Frame,
    Scale,
    axis,
    both,
    broken,
    caption,
    element,
    figure,
    hit,
    line,
    log_scale,
    rows,
    ruled,
    svg,
)  # fmt: skip
from deploy.matrix.model import CellResult
from deploy.matrix.people import disturbed

_DOT = 10.0
"""Width of a dot with its gap."""
_LANE = 14.0
"""Height of a second row of dots."""
_LISTED = 12
"""Cells that a dot's title names."""
_SHORT = 38
"""Characters of a line of the label of a small plot."""


def latency(cells: Sequence[CellResult]) -> Markup:
    """Latency of real devices: a line from the fastest execution to p99, a box from p50 to p90, a mark at p50."""
    shown = [cell for cell in cells if cell.latency]
    shown.sort(key=lambda cell: (cell.device, cell.program, cell.engine))
    return both(lambda frame: _latency(frame, shown)) if shown else Markup("")


def _latency(frame: Frame, shown: Sequence[CellResult]) -> Markup:
    times = [cell.latency for cell in shown if cell.latency]
    scale = log_scale([value for each in times for value in (each.min, each.p99)], frame)
    places = rows(frame, [f"{cell.device} · {cell.program} · {cell.engine}" for cell in shown], [ROW] * len(shown))
    marks = [*axis(scale, places.bottom, duration), *places.marks]
    for top, cell, each in zip(places.tops, shown, times, strict=True):
        y = top + ROW / 2
        title = (
            f"{cell.key}: fastest {each.min:.4g}, p50 {each.p50:.4g}, p90 {each.p90:.4g}, p99 {each.p99:.4g} ms "
            f"over {each.count}"
            + (f"; throttled: {', '.join(cell.throttled)}" if cell.throttled else "")
            + "".join(f"; {word}" for word in disturbed(cell))
        )
        a, b, c, d = (scale.at(value) for value in (each.min, each.p50, each.p90, each.p99))
        css = f"e-{cell.engine}" + (" faint" if cell.throttled or disturbed(cell) else "")
        marks.append(
            element(
                "g",
                element("title", title),
                hit(frame, top, ROW),
                line(a, d, y, y, "whisker"),
                element("rect", x=f"{b:.1f}", y=y - 5, width=f"{max(c - b, 1.5):.1f}", height=10, class_="box", rx=2),
                element("circle", cx=f"{b:.1f}", cy=y, r=4, class_="dot"),
                figure(frame, y, duration(each.p50)),
                class_=css,
            )
        )
    return svg(frame, places.height, "Latency of real devices in milliseconds", *marks)


@dataclass(frozen=True)
class Bar:
    """A bar with its label and the text after it."""

    label: str
    value: float
    text: str
    css: str = ""


def bars(shown: Sequence[Bar], words: Callable[[float], str], label: str) -> Markup:
    """Bars from 0 on; ``words`` writes the numbers of the axis."""
    return both(lambda frame: _bars(frame, shown, words, label)) if shown else Markup("")


def _bars(frame: Frame, shown: Sequence[Bar], words: Callable[[float], str], label: str) -> Markup:
    scale = Scale(0, max(*(each.value for each in shown), 1e-9), log=False, frame=frame)
    places = rows(frame, [each.label for each in shown], [ROW] * len(shown))
    marks = [*axis(scale, places.bottom, lambda value: words(value) or "0"), *places.marks]
    for top, each in zip(places.tops, shown, strict=True):
        width = max(scale.at(each.value) - frame.left, 1.0)
        marks.append(
            element(
                "g",
                element("title", f"{each.label}: {each.text}"),
                element("rect", x=frame.left, y=top + 4, width=f"{width:.1f}", height=14, rx=2, class_="bar"),
                caption(frame.left + width + 6, top + 15, each.text, "value"),
                class_=each.css,
            )
        )
    return svg(frame, places.height, label, *marks)


def errors(cells: Sequence[CellResult]) -> Markup:
    """Largest errors by program: a dot for each cell, a bar at the tolerance; identical outputs are at the left."""
    shown = [cell for cell in cells if cell.max_abs is not None]
    return both(lambda frame: _errors(frame, shown)) if shown else Markup("")


def _errors(frame: Frame, shown: Sequence[CellResult]) -> Markup:
    limits = {cell.program: max((o.atol or 0.0 for o in cell.outputs), default=0.0) for cell in shown}
    scale = log_scale([*(float(cell.max_abs or 0.0) for cell in shown), *limits.values()], frame)
    zero = scale.low / 10
    scale = Scale(zero, scale.high, frame=frame)
    programs = sorted(limits)
    dots = {program: _apart([cell for cell in shown if cell.program == program], scale) for program in programs}
    heights = [ROW + max(lane for lane, *_rest in dots[program]) * _LANE for program in programs]
    places = rows(frame, programs, heights)
    marks = [ruled(scale.at(each), places.bottom, "0" if each <= zero * 1.5 else f"{each:g}") for each in scale.ticks()]
    marks += places.marks
    for program, top, height in zip(programs, places.tops, heights, strict=True):
        if limits[program] > 0:
            x = scale.at(limits[program])
            title = element("title", f"{program}: tolerance {limits[program]:g}")
            marks.append(element("g", title, line(x, x, top + 3, top + height - 3, "limit")))
        for lane, at, css, cells_here in dots[program]:
            y = top + ROW / 2 + lane * _LANE
            lines = [f"{cell.key}: {cell.max_abs or 0.0:.3g}" for cell in cells_here]
            more = [f"and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
            marks.append(
                element(
                    "g",
                    element("title", "; ".join(lines[:_LISTED] + more)),
                    element("circle", cx=f"{at:.1f}", cy=f"{y:.1f}", r=4.5, class_="dot"),
                    *([caption(at + 8, y + 4, f"×{len(lines)}", "tick")] if len(lines) > 1 else []),
                    class_=css,
                )
            )
    return svg(frame, places.height, "Largest absolute error by program, with the tolerance", *marks)


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


def history(series: Series) -> Markup:
    """One figure over time, the baseline dashed. The scale begins at 0."""
    label = broken(series.label, _SHORT)
    more = LINE * (len(label) - 1)
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
        *(caption(left, 14 + index * LINE, words, "label") for index, words in enumerate(label)),
        line(left, width - right, height - 10, height - 10),
    ]
    if series.baseline is not None:
        at = y(series.baseline)
        title = element("title", f"baseline {_value(series.baseline, series.unit)}")
        marks.append(element("g", title, line(left, width - right, at, at, "limit dashed")))
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{at:.1f}" for x, at, _value, _index in points)
        marks.append(element("polyline", points=path, class_="line"))
    for x, at, value, index in points:
        note = series.notes[index] if index < len(series.notes) else ""
        dot = element("circle", cx=f"{x:.1f}", cy=f"{at:.1f}", r=f"{radius:g}", class_="dot")
        marks.append(element("g", element("title", f"{note} {_value(value, series.unit)}"), dot))
    if points:
        marks.append(caption(width - right + 8, points[-1][1] + 4, _value(points[-1][2], series.unit), "value"))
    return element(
        "svg", element("title", series.label), *marks, viewBox=f"0 0 {width:g} {height:g}", role="img",
        class_=f"spark {series.css}",
    )  # fmt: skip
