"""The reports' plots, and their pieces: inline SVG without library or script, colours from the page's style sheet.

Every plot is drawn twice (`both`): for a wide screen and paper, and for a phone. The style sheet shows one of the two.
Every function gives safe markup: names and texts are escaped. Lengths are in the units of the drawing's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from core.console.units import duration
from core.plain import plain
from deploy.matrix.model import CellResult
from deploy.matrix.people import disturbed

ROW = 22.0
"""Height of a row of marks."""
LINE = 15.0
"""Height of a line of a label."""
_TOP = 5.0
_FOOT = 29.0
"""Height of the axis' numbers."""
_DOT = 10.0
"""Width of a dot with its gap."""
_LANE = 14.0
"""Height of a second row of dots."""
_LISTED = 12
"""Cells that a dot's title names."""
_SHORT = 38
"""Characters of a line of the label of a small plot."""


@dataclass(frozen=True)
class Frame:
    """A drawing's width and margins.

    Attributes:
        css: the class by which the style sheet shows it.
        left: where plots of rows begin.
        right: the margin for the rows' figures.
        characters: of a line of a label.
        steps: between the numbers of an axis, at most.
        above: whether labels are above their rows; else they are at the left.
    """

    css: str
    width: float
    left: float
    right: float
    characters: int
    steps: int
    above: bool


BROAD = Frame("broad", 760, 282, 92, 36, 6, above=False)
SLIM = Frame("slim", 320, 26, 72, 40, 4, above=True)


def both(draw: Callable[[Frame], Markup]) -> Markup:
    """The same plot for wide screens and for narrow ones."""
    return draw(BROAD) + draw(SLIM)


def element(tag: str, *children: Markup | str, **attributes: object) -> Markup:
    """An SVG element; ``class_`` is ``class``, other underscores are dashes."""
    pairs = ((name.rstrip("_").replace("_", "-"), plain(str(value))) for name, value in attributes.items())
    words = [Markup('{}="{}"').format(name, value) for name, value in pairs]
    inside = Markup("").join(child if isinstance(child, Markup) else escape(plain(child)) for child in children)
    return Markup("<{} {}>{}</{}>").format(tag, Markup(" ").join(words), inside, tag)


def svg(frame: Frame, height: float, label: str, *children: Markup) -> Markup:
    """A whole drawing, ``label`` for people who hear it."""
    return element(
        "svg", *children, viewBox=f"0 0 {frame.width:g} {height:g}", role="img", aria_label=label,
        class_=f"plot {frame.css}", preserveAspectRatio="xMinYMin meet",
    )  # fmt: skip


def caption(x: float, y: float, words: str, css: str = "label") -> Markup:
    """A text; the classes ``middle`` and ``end`` say what of it is at ``x``."""
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", class_=css)


def line(x1: float, x2: float, y1: float, y2: float, css: str = "grid") -> Markup:
    """A straight line."""
    return element("line", x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}", class_=css)


def broken(label: str, characters: int) -> list[str]:
    """A label in lines, broken after a point, a slash or a dash where that is possible."""
    lines, rest = [], label
    while len(rest) > characters:
        ends = [max(rest.rfind(mark, 0, characters) + len(mark) for mark in marks) for marks in (("· ",), "/-+")]
        at = next((end for end in ends if end > characters // 2), characters)
        lines.append(rest[:at])
        rest = rest[at:]
    return [*lines, rest]


@dataclass(frozen=True)
class Scale:
    """Numbers to positions between the margins of a frame, logarithmic or from 0 on."""

    low: float
    high: float
    log: bool = True
    frame: Frame = BROAD

    def at(self, value: float) -> float:
        """The position of ``value``; a value outside is put at the edge."""
        value = min(max(value, self.low), self.high)
        if self.log:
            span = math.log(self.high) - math.log(self.low)
            part = (math.log(value) - math.log(self.low)) / span if span else 0.5
        else:
            part = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0
        return self.frame.left + part * (self.frame.width - self.frame.left - self.frame.right)

    def ticks(self) -> list[float]:
        """Round numbers inside."""
        if not self.log:
            return round_steps(0.0, self.high, self.frame.steps)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, math.ceil((last - first) / self.frame.steps))
        return [10.0**power for power in range(first, last + 1, every)]


def log_scale(values: Sequence[float], frame: Frame = BROAD) -> Scale:
    """A logarithmic scale of whole decades that holds all positive numbers of ``values``."""
    good = [value for value in values if value > 0 and math.isfinite(value)] or [1.0]
    low, high = math.floor(math.log10(min(good))), math.ceil(math.log10(max(good)))
    return Scale(10.0**low, 10.0 ** (high if high > low else low + 1), frame=frame)


def round_steps(low: float, high: float, steps: int = 5) -> list[float]:
    """Round values from ``low`` to ``high``, 1, 2 or 5 times a power of ten apart; about as many as ``steps``."""
    rough = (high - low) / steps
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= rough)
    return [step * count for count in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Rows:
    """Rows of marks with their labels, from the top down."""

    marks: list[Markup]
    """The labels."""
    tops: list[float]
    """Where the marks of each row begin."""
    bottom: float

    @property
    def height(self) -> float:
        """Of the drawing, with its axis."""
        return self.bottom + _FOOT


def rows(frame: Frame, labels: Sequence[str], heights: Sequence[float]) -> Rows:
    """Divide a drawing into a row for each label, with so much room for its marks."""
    marks, tops, y = [], [], _TOP
    for label, height in zip(labels, heights, strict=True):
        lines = broken(label, frame.characters)
        room = LINE * len(lines)
        if frame.above:
            first, x, css = y + LINE, 0.0, "label"
            tops.append(y + room + 3)
            y += room + height + 6
        else:
            row = max(height, room + 4)
            first, x, css = y + (row - room) / 2 + 11.5, frame.left - 10, "label end"
            tops.append(y + (row - height) / 2)
            y += row
        marks += [caption(x, first + LINE * index, words, css) for index, words in enumerate(lines)]
    return Rows(marks, tops, y)


def axis(scale: Scale, bottom: float, words: Callable[[float], str] = "{:g}".format, unit: str = "") -> list[Markup]:
    """Lines at round numbers, and below ``bottom`` the numbers."""
    frame = scale.frame
    marks = [ruled(scale.at(tick), bottom, words(tick)) for tick in scale.ticks()]
    return [*marks, caption(frame.width, bottom + 21, unit, "tick end")] if unit else marks


def ruled(x: float, bottom: float, words: str, css: str = "grid") -> Markup:
    """A line at ``x`` down to ``bottom``, and its number."""
    return line(x, x, 4, bottom + 7, css) + caption(x, bottom + 21, words, "tick middle")


def hit(frame: Frame, top: float, height: float) -> Markup:
    """The part of a row where its title appears."""
    x = 0 if frame.above else frame.left
    return element("rect", x=f"{x:g}", y=f"{top:.1f}", width=f"{frame.width - x:g}", height=f"{height:g}", class_="hit")


def figure(frame: Frame, y: float, words: str) -> Markup:
    """A row's figure in the right margin."""
    return caption(frame.width - frame.right + 8, y + 4, words, "value")


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
    """A latency (ms) over several matrices, the latest last; ``None`` if it is missing."""

    label: str
    values: tuple[float | None, ...]
    notes: tuple[str, ...]
    """When each was measured."""
    baseline: float | None = None
    css: str = ""


def history(series: Series) -> Markup:
    """Over time, the baseline dashed. The scale begins at 0."""
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
        title = element("title", f"baseline {duration(series.baseline)}")
        marks.append(element("g", title, line(left, width - right, at, at, "limit dashed")))
    if len(points) > 1:
        path = " ".join(f"{x:.1f},{at:.1f}" for x, at, _value, _index in points)
        marks.append(element("polyline", points=path, class_="line"))
    for x, at, value, index in points:
        dot = element("circle", cx=f"{x:.1f}", cy=f"{at:.1f}", r=f"{radius:g}", class_="dot")
        marks.append(element("g", element("title", f"{series.notes[index]} {duration(value)}"), dot))
    if points:
        marks.append(caption(width - right + 8, points[-1][1] + 4, duration(points[-1][2]), "value"))
    return element(
        "svg", element("title", series.label), *marks, viewBox=f"0 0 {width:g} {height:g}", role="img",
        class_=f"spark {series.css}",
    )  # fmt: skip
