"""The lab's plots, drawn with the pieces of the matrix's: inline SVG without script."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from deploy.matrix.plots import (
    ROW,
    Frame,
    Scale,
    axis,
    both,
    element,
    figure,
    hit,
    line,
    log_scale,
    rows,
    ruled,
    svg,
)  # fmt: skip
from verify.layers import words
from verify.layers.model import LayerCell, Peak

_PAIR = 0.7 * ROW
"""Height of one of a layer's two ways."""
_CSS = {"faster": "faster", "slower": "slower"}


def _names(cells: Sequence[LayerCell]) -> list[str]:
    return [f"{cell.device} · {cell.layer} · {cell.scheme}" for cell in cells]


def ratios(cells: Sequence[LayerCell]) -> Markup:
    """Ratios with their intervals around 1, on a logarithmic scale."""
    shown = [cell for cell in cells if cell.ratio and cell.low and cell.high]
    return both(lambda frame: _ratios(frame, shown)) if shown else Markup("")


def _ratios(frame: Frame, shown: Sequence[LayerCell]) -> Markup:
    reach = max(1.1, *(max(cell.high or 1, 1 / (cell.low or 1)) for cell in shown)) * 1.05
    scale = Scale(1 / reach, reach, frame=frame)
    places = rows(frame, _names(shown), [ROW] * len(shown))
    ticks = _around_one(reach, 1 if frame.above else 2)
    marks = [ruled(scale.at(x), places.bottom, f"{x:.3g}", "one" if x == 1 else "grid") for x in ticks]
    marks += places.marks
    for top, cell in zip(places.tops, shown, strict=True):
        y = top + ROW / 2
        low, middle, high = (scale.at(value or 1) for value in (cell.low, cell.ratio, cell.high))
        title = f"{cell.key}: {cell.ratio:.3f} [{cell.low:.3f}, {cell.high:.3f}], p {cell.p:.2g}: {cell.compared}"
        marks.append(
            element(
                "g",
                element("title", title),
                hit(frame, top, ROW),
                line(low, high, y, y, "whisker"),
                element("circle", cx=f"{middle:.1f}", cy=f"{y:.1f}", r=4, class_="dot"),
                figure(frame, y, f"{cell.ratio:.3f}"),
                class_=_CSS.get(cell.compared, "none"),
            )
        )
    return svg(frame, places.height, "Time of the first way in parts of the second's", *marks)


def _around_one(reach: float, each_side: int) -> list[float]:
    steps = (1.02, 1.05, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)
    inside = [step for step in steps if step <= reach][-each_side:]
    return sorted({1.0, *inside, *(1 / step for step in inside)})


def latencies(cells: Sequence[LayerCell]) -> Markup:
    """Both ways of each layer: a line from p10 to p90, a mark at p50."""
    shown = [cell for cell in cells if cell.first and cell.second and cell.first.p50 and cell.second.p50]
    return both(lambda frame: _latencies(frame, shown)) if shown else Markup("")


def _latencies(frame: Frame, shown: Sequence[LayerCell]) -> Markup:
    ways = [way for cell in shown for way in cell.ways]
    scale = log_scale([value for way in ways for value in (way.p10 or 0, way.p90 or 0)], frame)
    places = rows(frame, _names(shown), [2 * _PAIR] * len(shown))
    marks = [*axis(scale, places.bottom, unit="ms"), *places.marks]
    for top, cell in zip(places.tops, shown, strict=True):
        for which, (way, css) in enumerate(zip(cell.ways, ("first", "second"), strict=True)):
            y = top + (which + 0.5) * _PAIR
            low, middle, high = (scale.at(value or 0) for value in (way.p10, way.p50, way.p90))
            title = f"{cell.key}, {way.name}: p10 {way.p10:.4g}, p50 {way.p50:.4g}, p90 {way.p90:.4g} ms"
            marks.append(
                element(
                    "g",
                    element("title", title),
                    line(low, high, y, y, "whisker"),
                    element("circle", cx=f"{middle:.1f}", cy=f"{y:.1f}", r=3.5, class_="dot"),
                    figure(frame, y, f"{way.p50:.3g} ms"),
                    class_=css,
                )
            )
    return svg(frame, places.height, "Latency of both ways in milliseconds", *marks)


def speeds(cells: Sequence[LayerCell], peaks: Mapping[str, Peak]) -> Markup:
    """Operations a second of both ways, with a line at the device's peak in float32."""
    shown = [cell for cell in cells if cell.first and cell.second and cell.first.gflops and cell.second.gflops]
    return both(lambda frame: _speeds(frame, shown, peaks)) if shown else Markup("")


def _speeds(frame: Frame, shown: Sequence[LayerCell], peaks: Mapping[str, Peak]) -> Markup:
    values = [way.gflops or 0.0 for cell in shown for way in cell.ways]
    scale = log_scale([*values, *(peaks[cell.device].gflops for cell in shown if cell.device in peaks)], frame)
    places = rows(frame, _names(shown), [ROW] * len(shown))
    marks = [*axis(scale, places.bottom, unit="GFLOP/s"), *places.marks]
    for top, cell in zip(places.tops, shown, strict=True):
        y = top + ROW / 2
        for way, css in zip(cell.ways, ("first", "second"), strict=True):
            value = way.gflops or math.nan
            title = element("title", f"{cell.key}, {way.name}: {words.speed(cell, way, peaks.get(cell.device))}")
            dot = element("circle", cx=f"{scale.at(value):.1f}", cy=f"{y:.1f}", r=4, class_="dot")
            marks.append(element("g", title, dot, class_=css))
        if peak := peaks.get(cell.device):
            x = scale.at(peak.gflops)
            title = element("title", f"{cell.device}: {words.peak(peak)}, measured in float32")
            marks.append(element("g", title, line(x, x, y - 8, y + 8, "limit")))
    return svg(frame, places.height, "Operations a second of both ways", *marks)
