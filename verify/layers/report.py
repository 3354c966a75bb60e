"""What the lab leaves: ``lab.json``, tables of layers and operators, ``report.html``, and the table on the screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from core import console
from core.files import write_atomic
from verify.layers import html, operators
from verify.layers.model import Lab, LayerCell, Peak, Way
from verify.layers.words import about, agreement, answer, executed, kernels, peak, ratio, why
from verify.tables import table_of

JSON, TSV, MARKDOWN, HTML, OPERATORS = "lab.json", "lab.tsv", "lab.md", "report.html", "operators.tsv"
COLUMNS = (
    *("device", "layer", "type", "scheme", "outcome", "compared", "ratio", "low", "high", "p"),
    *(f"{which}_{what}" for which in ("first", "second") for what in (
        "name", "kernels", "p10_ms", "p50_ms", "p90_ms", "spread", "gflops", "gbytes_per_s", "verdict", "max_abs",
        "instructions", "instructions_median", "instructions_most",
    )),
    *("peak_gflops", "peak_gbytes_per_s", "instructions_ratio", "same_outputs"),
    *("governors", "warmest_c", "throttled", "why"),
)  # fmt: skip


def write(found: Lab, folder: Path) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / JSON, found.model_dump_json(indent=1) + "\n")
    write_atomic(folder / TSV, tsv(found))
    write_atomic(folder / OPERATORS, operators.tsv(found))
    write_atomic(folder / MARKDOWN, markdown(found))
    write_atomic(folder / HTML, html.text(found))


def _number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def _counts(way: Way) -> list[int | None]:
    counted = way.instructions
    return [counted.least, counted.median, counted.most] if counted else [None] * 3


def _headings(found: Lab) -> list[str]:
    timed = any(cell.ratio is not None for cell in found.cells)
    return [
        *("device", "layer", "type", "kernel", "other way's kernel", "agreement"),
        *(("instructions", "other way's", "their ratio") if found.counted else ()),
        *(("p50 ms", "other p50", "ratio", "answer") if timed else ("answer",)),
    ]


def rows(found: Lab) -> list[list[str]]:
    """The table for people; times only where a real device was measured."""
    timed = any(cell.ratio is not None for cell in found.cells)
    return [
        [
            cell.device, cell.layer, f"{cell.type or cell.scheme}", kernels(cell.first),
            "the same" if cell.same_kernels else kernels(cell.second), agreement(cell),
            *([executed(cell.first), executed(cell.second), _number(cell.instructions)] if found.counted else []),
            *([_number(cell.first.p50 if cell.first else None), _number(cell.second.p50 if cell.second else None),
               ratio(cell)] if timed else []),
            answer(cell) if not cell.why_not else cell.why_not,
        ]
        for cell in found.cells
    ]  # fmt: skip


def printed(found: Lab, folder: Path, as_json: bool) -> None:
    """Print it: JSON, or the table, the count and where the reports are."""
    if as_json:
        console.print_json(found.model_dump(mode="json"))
        return
    console.table("The lab", _headings(found), rows(found), caption=about(found))
    console.note(f"{summary(found)}. Reports: {console.shown(folder / HTML)}, {JSON}, {TSV}, {OPERATORS}, {MARKDOWN}")


def summary(found: Lab) -> str:
    """``12 measured: 5 faster, 1 slower, 6 without a difference seen; 2 impossible``."""
    text = f"{len(found.measured)} measured"
    timed = [cell for cell in found.measured if cell.compared]
    if timed:
        text += (
            f": {found.count('faster')} faster, {found.count('slower')} slower, "
            f"{found.count('no difference seen')} without a difference seen"
        )
    differing = sum(bool(cell.differing) for cell in found.cells)
    text += f"; {differing} with outputs that differ from the reference" if differing else ""
    for outcome in ("failed", "not run", "impossible"):
        number = sum(cell.outcome == outcome for cell in found.cells)
        text += f"; {number} {outcome}" if number else ""
    return text


def planned(cells: Sequence[LayerCell], as_json: bool) -> None:
    """``--list``."""
    if as_json:
        console.print_json([cell.model_dump(mode="json", exclude_defaults=True) for cell in cells])
        return
    console.table(
        "To be run", ["device", "layer", "type", "scheme", ""],
        [[cell.device, cell.layer, cell.type, cell.scheme, cell.why_not] for cell in cells],
    )  # fmt: skip


def tsv(found: Lab) -> str:
    """A line for each cell."""
    return operators.separated(COLUMNS, (_values(cell, found.peak(cell.device)) for cell in found.cells))


def _values(cell: LayerCell, most: Peak | None) -> list[object]:
    state = cell.state
    ways: list[object] = []
    for way in (cell.first, cell.second):
        ways += (
            [way.name, ",".join(one.kernel or one.node for one in way.kernels), way.p10, way.p50, way.p90,
             way.spread, way.gflops, way.gbytes_per_s, way.verdict, way.max_abs, *_counts(way)]
            if way else [None] * 13
        )  # fmt: skip
    return [
        cell.device, cell.layer, cell.type, cell.scheme, cell.outcome, cell.compared, cell.ratio, cell.low,
        cell.high, cell.p, *ways, *([most.gflops, most.gbytes_per_s] if most else [None] * 2), cell.instructions,
        cell.same_outputs, ",".join(state.governors), state.warmest, ",".join(state.throttled), why(cell),
    ]  # fmt: skip


def markdown(found: Lab) -> str:
    """The tables, for a page of documentation."""
    text = f"# Lab {found.name}\n\n{about(found)}\n\n{table_of(_headings(found), rows(found))}"
    for device, points in found.peaks.items():
        text += f"\n{device} can do at most, as measured: {'; '.join(map(peak, points))}.\n"
    return text + operators.markdown(found)
