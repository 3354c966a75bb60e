"""The pieces of the reports' plots: inline SVG without library or script, colours from the page's style sheet.

Every plot is drawn twice (`both`): for a wide screen and paper, and for a phone. The style sheet shows one of the two.
Every function gives safe markup: names and texts are escaped. Lengths are in the units of the drawing's own view box.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from core.plain import plain

ROW = 22.0
"""Height of a row of marks."""
LINE = 15.0
"""Height of a line of a label."""
_TOP = 5.0
_FOOT = 29.0
"""Height of the axis' numbers."""


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
