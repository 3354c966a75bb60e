"""The lab's plots, drawn with the pieces of the matrix's: inline SVG without script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from deploy.matrix.plots import Scale, axis, caption, element, log_scale, row_label, svg
from verify.lab import words
from verify.lab.model import LabCell, Peak

_LABEL, _WIDTH, _RIGHT, _ROW = 290, 860, 96, 22
_CSS = {"faster": "faster", "slower": "slower"}


def _name(cell: LabCell) -> str:
    return f"{cell.device} · {cell.layer} · {cell.scheme}"


def ratios(cells: Sequence[LabCell]) -> Markup:
    """Ratios with their intervals around 1, on a logarithmic scale."""
    shown = [cell for cell in cells if cell.ratio and cell.low and cell.high]
    if not shown:
        return Markup("")
    reach = max(1.1, *(max(cell.high or 1, 1 / (cell.low or 1)) for cell in shown)) * 1.05
    scale = Scale(1 / reach, reach)
    height = len(shown) * _ROW + 34
    marks = []
    for tick in _around_one(reach):
        x = f"{scale.at(tick):.1f}"
        css = "one" if tick == 1 else "grid"
        marks.append(element("line", x1=x, x2=x, y1=4, y2=f"{height - 22:.1f}", class_=css))
        marks.append(caption(scale.at(tick), height - 8, f"{tick:.3g}", "tick middle"))
    for row, cell in enumerate(shown):
        y = row * _ROW + 16.0
        low, middle, high = (scale.at(value or 1) for value in (cell.low, cell.ratio, cell.high))
        title = f"{cell.key}: {cell.ratio:.3f} [{cell.low:.3f}, {cell.high:.3f}], p {cell.p:.2g}: {cell.compared}"
        marks += [
            row_label(y, _name(cell)),
            element(
                "g",
                element("title", title),
                element("rect", x=_LABEL, y=f"{y - _ROW / 2:.1f}", width=_WIDTH - _LABEL, height=_ROW, class_="hit"),
                element("line", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=y, y2=y, class_="whisker"),
                element("circle", cx=f"{middle:.1f}", cy=y, r=4, class_="dot"),
                caption(_WIDTH - _RIGHT + 8, y + 4, f"{cell.ratio:.3f}", "value"),
                class_=_CSS.get(cell.compared, "none"),
            ),
        ]
    return svg(height, "Time of the first way in parts of the second's", *marks)


def _around_one(reach: float) -> list[float]:
    steps = (1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
    inside = [step for step in steps if step <= reach][-2:]
    return sorted({1.0, *inside, *(1 / step for step in inside)})


def latencies(cells: Sequence[LabCell]) -> Markup:
    """Both ways of each layer: a line from p10 to p90, a mark at p50."""
    shown = [cell for cell in cells if cell.first and cell.second and cell.first.p50 and cell.second.p50]
    if not shown:
        return Markup("")
    ways = [way for cell in shown for way in cell.ways]
    scale = log_scale([value for way in ways for value in (way.p10 or 0, way.p90 or 0)])
    height = len(shown) * 2 * _ROW * 0.7 + 34
    marks = axis(scale, height, "ms")
    for row, cell in enumerate(shown):
        marks.append(row_label(row * 2 * _ROW * 0.7 + 20.0, _name(cell)))
        for which, (way, css) in enumerate(zip(cell.ways, ("first", "second"), strict=True)):
            y = (row * 2 + which) * _ROW * 0.7 + 12.0
            low, middle, high = (scale.at(value or 0) for value in (way.p10, way.p50, way.p90))
            title = f"{cell.key}, {way.name}: p10 {way.p10:.4g}, p50 {way.p50:.4g}, p90 {way.p90:.4g} ms"
            marks.append(
                element(
                    "g",
                    element("title", title),
                    element("line", x1=f"{low:.1f}", x2=f"{high:.1f}", y1=y, y2=y, class_="whisker"),
                    element("circle", cx=f"{middle:.1f}", cy=y, r=3.5, class_="dot"),
                    caption(_WIDTH - _RIGHT + 8, y + 4, f"{way.p50:.3g} ms", "value"),
                    class_=css,
                )
            )
    return svg(height, "Latency of both ways in milliseconds", *marks)


def speeds(cells: Sequence[LabCell], peaks: Mapping[str, Peak]) -> Markup:
    """Operations a second of both ways, with a line at the device's peak in float32."""
    shown = [cell for cell in cells if cell.first and cell.second and cell.first.gflops and cell.second.gflops]
    if not shown:
        return Markup("")
    values = [way.gflops or 0.0 for cell in shown for way in cell.ways]
    scale = log_scale([*values, *(peaks[cell.device].gflops for cell in shown if cell.device in peaks)])
    height = len(shown) * _ROW + 34
    marks = axis(scale, height, "GFLOP/s")
    for row, cell in enumerate(shown):
        y = row * _ROW + 16.0
        marks.append(row_label(y, _name(cell)))
        for way, css in zip(cell.ways, ("first", "second"), strict=True):
            value = way.gflops or math.nan
            title = element("title", f"{cell.key}, {way.name}: {words.speed(cell, way, peaks.get(cell.device))}")
            dot = element("circle", cx=f"{scale.at(value):.1f}", cy=y, r=4, class_="dot")
            marks.append(element("g", title, dot, class_=css))
        if peak := peaks.get(cell.device):
            x = f"{scale.at(peak.gflops):.1f}"
            title = element("title", f"{cell.device}: {words.peak(peak)}, measured in float32")
            marks.append(element("g", title, element("line", x1=x, x2=x, y1=y - 8, y2=y + 8, class_="limit")))
    return svg(height, "Operations a second of both ways", *marks)
