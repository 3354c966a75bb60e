"""A comparison's plot: accuracy over what a program costs, with a label at each point that covers no other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from deploy.comparing import metrics
from deploy.comparing.model import Row, accurate
from deploy.matrix.plots import Frame, both, caption, element, line, log_scale, round_steps, svg

NAMES = {"metric": "metric", "top1": "top-1", "psnr": "PSNR, dB"}
_TOP, _BOTTOM = 18.0, 44.0
_HEIGHT = 340.0
_LEFT, _RIGHT = 58.0, 70.0
_CHARACTER = 7.6
"""Width of a label's character, of a wide font."""
_LABEL = 14.0
"""Height of a label."""
_GAP = 4.0
_STEP = 7.0
"""Between two heights that are tried for a label."""
_MOVES = sorted(
    ((_STEP * across, _STEP * down) for across in range(20) for down in range(-40, 41)),
    key=lambda move: (2 * move[0] + abs(move[1]), move),
)
"""Ways to move a label from its point, the shortest first; rather up or down than aside."""
_FAR = 12.0
"""A label that is moved farther has a line to its point."""


def plot(rows: Sequence[Row], by: str) -> Markup:
    """Accuracy over the median latency, on an emulated device over the size. Front: large points.

    The line is the front of the two figures that are drawn, so it only rises: a point may be in the front for its size.

    Args:
        by: the figure of accuracy, a key of ``NAMES``.
    """
    shown = [one for one in rows if one.usable and math.isfinite(accurate(one.accuracy, by))]
    return both(lambda frame: _plot(frame, shown, by)) if shown else Markup("")


@dataclass(frozen=True)
class _Point:
    row: Row
    x: float
    y: float
    title: str

    @property
    def radius(self) -> float:
        return 6.0 if self.row.front else 4.0


def _plot(frame: Frame, shown: Sequence[Row], by: str) -> Markup:
    emulated = shown[0].emulated
    unit, what = ("kB", "size of the program") if emulated else ("ms", "median latency")
    costs = [one.size / 1e3 if emulated else max(one.p50 or 0.0, 1e-6) for one in shown]
    values = [accurate(one.accuracy, by) for one in shown]
    low, high = min(values), max(values)
    around = (high - low) / 10 if high - low > 1e-9 else 0.02 if by == "top1" else 0.5
    low, high = low - around, high + around
    scale = log_scale(costs, frame)
    span = math.log(scale.high / scale.low)
    right = frame.width - (24 if frame.above else _RIGHT)

    def at(cost: float, value: float) -> tuple[float, float]:
        x = _LEFT + math.log(cost / scale.low) / span * (right - _LEFT)
        return x, _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    marks = []
    factors = (1, 2, 5) if span / math.log(10) <= frame.steps / 2 else (1,)
    for tick in (factor * whole for whole in scale.ticks() for factor in factors if factor * whole <= scale.high):
        x = at(tick, low)[0]
        marks += [line(x, x, _TOP, _HEIGHT - _BOTTOM), caption(x, _HEIGHT - 26, f"{tick:g}", "tick middle")]
    for value in round_steps(low, high):
        y = at(scale.low, value)[1]
        words = f"{value:.1%}" if by == "top1" else f"{value:.4g}"
        marks += [line(_LEFT, right, y, y), caption(_LEFT - 8, y + 4, words, "tick end")]
    marks.append(caption((_LEFT + right) / 2, _HEIGHT - 8, f"{what}, {unit}", "tick middle"))
    drawn = list(zip(costs, values, strict=True))
    best = metrics.front([(cost, -value) for cost, value in drawn])
    corners = sorted({at(*each) for each, unbeaten in zip(drawn, best, strict=True) if unbeaten})
    if len(corners) > 1:
        marks.append(element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_="line dashed"))
    points = []
    for one, cost, value in sorted(zip(shown, costs, values, strict=True), key=lambda each: not each[0].front):
        exact = one.accuracy.psnr if by == "psnr" else value
        title = f"{one.program} on {one.engine}: {NAMES[by]} {exact:.4g}, {cost:.4g} {unit}"
        points.append(_Point(one, *at(cost, value), title))
    for point, label in zip(points, _labels(points, frame.width), strict=True):
        css = "dot" if point.row.front else "dot faint"
        dot = element("circle", cx=f"{point.x:.1f}", cy=f"{point.y:.1f}", r=f"{point.radius:g}", class_=css)
        marks.append(element("g", element("title", point.title), dot, label, class_=f"e-{point.row.engine}"))
    return svg(frame, _HEIGHT, f"{NAMES[by]} over {what}", *marks)


@dataclass(frozen=True)
class _Box:
    left: float
    top: float
    right: float
    bottom: float

    def over(self, other: _Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )  # fmt: skip


def _labels(points: Sequence[_Point], width: float) -> list[Markup]:
    """A label for each point, as near as there is room: it covers neither a point nor another label.

    A label without room anywhere is left out, and so is that of a point on another one of the same scheme. The titles
    of the points and the table have all names.
    """
    taken = [
        _Box(each.x - each.radius, each.y - each.radius, each.x + each.radius, each.y + each.radius) for each in points
    ]
    named: list[_Point] = []
    labels = []
    for point in points:
        words = point.row.scheme
        css = "label" if point.row.front else "tick"
        same = any(each.row.scheme == words and math.hypot(each.x - point.x, each.y - point.y) < 8 for each in named)
        found = None if same else _room(point, _CHARACTER * len(words), taken, width)
        if found is None:
            labels.append(Markup(""))
            continue
        taken.append(found)
        named.append(point)
        y = (found.top + found.bottom) / 2
        near = found.left if found.left > point.x else min(point.x, found.right)
        lead = (
            line(point.x, near, point.y, y, "lead")
            if math.hypot(near - point.x, y - point.y) > point.radius + _FAR and near != point.x
            else Markup("")
        )
        if found.right <= point.x:
            labels.append(lead + caption(found.right, y + 4, words, f"{css} end"))
        elif found.left >= point.x:
            labels.append(lead + caption(found.left, y + 4, words, css))
        else:
            labels.append(caption((found.left + found.right) / 2, y + 4, words, f"{css} middle"))
    return labels


def _room(point: _Point, long: float, taken: Sequence[_Box], width: float) -> _Box | None:
    """The nearest free box beside, above or below a point."""
    for across, down in _MOVES:
        beside = point.radius + _GAP + across
        lefts = [point.x + beside, point.x - beside - long]
        if across == 0 and _LABEL < abs(down) < 2 * _LABEL:
            lefts.append(point.x - long / 2)
        for left in lefts:
            top = point.y + down - _LABEL / 2
            box = _Box(left, top, left + long, top + _LABEL)
            inside = left >= _LEFT and box.right <= width and top >= 0 and box.bottom <= _HEIGHT - _BOTTOM
            if inside and not any(box.over(each) for each in taken):
                return box
    return None
