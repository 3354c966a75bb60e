"""The lab as one HTML file, in the look of the matrix's report: plots and a table to sort, nothing external."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from deploy.matrix import html as matrix_html
from verify.layers import plots, words
from verify.layers.model import Lab, LayerCell
from verify.layers.operators import COLUMNS, operator_row

TEMPLATE = Path(__file__).with_name("lab.html.j2")
_CSS = {"no difference seen": "none", "the same kernels": "same-kernels", "other kernels": "other-kernels"}


def text(found: Lab) -> str:
    """The page."""
    rows = [_row(cell, found) for cell in found.cells]
    names = dict.fromkeys(tuple(way.name for way in cell.ways) for cell in found.measured)
    first = next(iter(names), ("", ""))
    return matrix_html.template(TEMPLATE).render(
        found=found,
        tiles=_tiles(found),
        ratios=plots.ratios(found.cells),
        latencies=plots.latencies(found.cells),
        speeds=plots.speeds(found.cells, {each: peak for each in found.peaks if (peak := found.peak(each))}),
        peaks=[(device, [words.peak(point) for point in points]) for device, points in found.peaks.items()],
        legend=list(zip(("teal", "blue"), first, strict=True)),
        rows=rows,
        columns=COLUMNS[3:],
        answers=list(dict.fromkeys(row.answer for row in rows)),
        about=words.about(found),
    )


def _row(cell: LayerCell, found: Lab) -> SimpleNamespace:
    answer = words.answer(cell)
    return SimpleNamespace(
        cell=cell,
        answer=answer,
        css=_CSS.get(answer, answer.replace(" ", "-")),
        ratio=words.ratio(cell),
        executed=[words.executed(way) for way in cell.ways],
        first=words.kernels(cell.first),
        second=words.kernels(cell.second),
        agreement=words.agreement(cell),
        speeds=[words.speed(cell, way, found.peak(cell.device)) for way in cell.ways],
        why=words.why(cell),
        operators=[operator_row(pair) for pair in cell.operators],
    )


def _tiles(found: Lab) -> list[tuple[str, str, str]]:
    tiles = [(str(len(found.measured)), "layers measured", "")]
    for verdict, css in (("faster", "good"), ("slower", "bad"), ("no difference seen", "")):
        if found.count(verdict):
            tiles.append((str(found.count(verdict)), verdict, css))
    differing = sum(bool(cell.differing) for cell in found.cells)
    tiles += [(str(differing), "with wrong outputs", "bad")] if differing else []
    for outcome, css in (("failed", "bad"), ("not run", "warn"), ("impossible", "")):
        number = sum(cell.outcome == outcome for cell in found.cells)
        tiles += [(str(number), outcome, css)] if number else []
    devices = len({cell.device for cell in found.cells})
    tiles.append((str(devices), "device" if devices == 1 else "devices", ""))
    return tiles
