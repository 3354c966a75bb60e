"""A history file (``./inv matrix --history FILE``): a line of JSON for each matrix, and a page that plots all of them.

The file is the user's: in a repository, or kept by CI from run to run. It holds figures only, so that it stays small.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import ConfigError
from core.files import locked, sha256_bytes, write_atomic
from core.strict_json import parse_json
from deploy.matrix import html, plots
from deploy.matrix.model import LARGE, CellResult, Matrix

TEMPLATE = Path(__file__).with_name("history.html.j2")
PAGE = "history.html"


class Figures(BaseModel):
    """Of one cell that passed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    latency_ms: float | None = None
    """Median over the rounds; only of a real device that did not throttle."""
    program_bytes: int = 0
    bundle_bytes: int = 0


class Point(BaseModel):
    """One matrix."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    created: str
    name: str
    commit: str = ""
    host: str = ""
    cells: dict[str, Figures]


def load(path: Path) -> list[Point]:
    """The points of a file, the oldest first; none if there is no file.

    Raises:
        ConfigError: a line is not a point.
    """
    if not path.is_file():
        return []
    points: list[Point] = []
    try:
        for line in path.read_bytes().splitlines():
            points.append(Point.model_validate(parse_json(line, limit=LARGE)))  # noqa: PERF401 - it counts for the error
    except (ValueError, ValidationError) as error:
        what = f"{path}: line {len(points) + 1} is not a line of a history."
        raise ConfigError(what, str(error), "--history with another file") from error
    return points


def append(path: Path, found: Matrix) -> list[Point]:
    """Add a matrix to the file, unless it is there already.

    Returns:
        All points, the new one last.

    Raises:
        ConfigError: see `load`.
    """
    point = Point(
        created=found.created, name=found.name, commit=found.commit, host=found.host,
        cells={cell.key: _figures(cell) for cell in found.cells if cell.outcome == "passed"},
    )  # fmt: skip
    with locked(f"history-{sha256_bytes(str(path.resolve()).encode())[:16]}"):
        points = [each for each in load(path) if each.created != point.created] + [point]
        write_atomic(path, "".join(each.model_dump_json() + "\n" for each in points))
    return points


def text(points: Sequence[Point]) -> str:
    """The page: a plot of each cell's latency, and of its program's and its bundle's size, over the matrices."""
    notes = tuple(f"{each.created[:10]} {each.commit}".strip() for each in points)
    keys = list(dict.fromkeys(key for each in points for key in each.cells))
    sections = []
    for title, unit, field in (
        ("Latency", "ms", "latency_ms"),
        ("Sizes of programs", "B", "program_bytes"),
        ("Sizes of bundles", "B", "bundle_bytes"),
    ):
        series = []
        for key in keys:
            values = tuple(
                value if each.cells.get(key) and (value := getattr(each.cells[key], field)) else None for each in points
            )
            if any(values):
                engine = key.split("/")[2] if key.count("/") > 2 else ""
                series.append(plots.Series(key, unit, values, None, f"e-{engine}", notes))
        if series:
            sections.append((title, [plots.history(each) for each in series]))
    return html.template(TEMPLATE).render(points=points, sections=sections)


def _figures(cell: CellResult) -> Figures:
    latency = None
    if cell.latency and not cell.throttled:
        latency = statistics.median([each.p50 for each in cell.rounds] or [cell.latency.p50])
    return Figures(latency_ms=latency, program_bytes=cell.program_bytes, bundle_bytes=cell.bundle_bytes)
