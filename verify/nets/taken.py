"""What ``./inv self.bench --nets --device NAMES`` does, and its table: each net through its export and onto devices."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from core import console
from core.errors import ConfigError, DeadlineError
from core.formats.program import load_program
from verify.nets.deploying import SECONDS, Deployed, Place, cell_name, journal, places, sweep
from verify.nets.exporting import Export, export, folder_of
from verify.nets.exporting import journal as exports
from verify.nets.table import Exported, choose
from verify.tables import Table, table_of

DEVICES = Table("docs/speed.md", "devices")
NOT_RUN = "not run"
_ISSUE = re.compile(r"\b([\w.-]+/[\w.-]+)#(\d+)")
_FIRST = ["net", "package", "scheme", "export", "size"]
_WORDS = {"identical": "identical", "agrees": "agrees", "differs": "DIFFERS"}

Row = dict[str, Any]


def run(devices: str, only: str, again: bool, as_json: bool, update: bool, minutes: float = 0.0) -> None:
    """Export what is missing, deploy it everywhere, print; with ``update`` keep the table for the docs.

    With ``update`` and ``only``, what earlier commands exported and deployed from this checkout is kept, too.

    Args:
        minutes: after so many nothing new begins, neither export nor deploy; 0: everything is done.

    Raises:
        ConfigError: ``only`` names nothing, or nothing could be exported. UnreachableError: a device is away.
    """
    from toolchains.bundle.builder import build

    chosen, where = choose(only), places(devices)
    until = time.monotonic() + minutes * 60 if minutes else math.inf
    made = export(chosen, again, until)
    ready = [one for one in chosen if one.name in made and not made[one.name].error]
    if not ready:
        why = next((one.error for one in made.values()), "the time was over")
        raise ConfigError("The export of every net failed.", why, "--only resnet18")
    bundles = {(one.target, one.engine): build(one.target, one.engine) for one in where}
    seen = sweep([(one, bundles[one.target, one.engine]) for one in where], ready, again, until)
    result = rows(chosen, where, made, seen)
    if update:
        keep(where, chosen)
    if as_json:
        console.print_json({"places": [one.name for one in where], "rows": result})
    else:
        head = headings([one.name for one in where])
        console.table("Nets on devices", head, [_filled(line(one), len(head)) for one in result])


def rows(
    programs: Sequence[Exported], where: Sequence[Place], made: Mapping[str, Export], seen: Mapping[str, Deployed]
) -> list[Row]:
    """What is kept of each program: its export, and what became of it in each place."""
    found = []
    for one in programs:
        exported = made.get(one.name)
        row: Row = {"net": one.net.name, "package": one.net.package, "scheme": one.scheme}
        if exported is None:
            row["error"] = NOT_RUN
        elif exported.error:
            row |= {"seconds": exported.seconds, "error": _why(one, exported.error)}
        else:
            size = load_program(folder_of(one), verify=False).size
            cells = [seen.get(cell_name(place, one)) for place in where]
            row |= {
                "seconds": exported.seconds,
                "size": size,
                "cells": [cell.model_dump(mode="json") if cell else None for cell in cells],
            }
        found.append(row)
    return found


def _why(program: Exported, error: str) -> str:
    """What the table says of an export that failed: what is known of the net, or the error without folders."""
    known = program.net.fails and f"{program.net.fails} ({program.net.issue})"
    return known or re.sub(r"\s*The whole log is in \S+|(?:/[^\s,:]+)+/", "", error)


def keep(where: Sequence[Place], programs: Sequence[Exported] = ()) -> None:
    """Write the table of all that this checkout has exported, and of ``programs``."""
    made = dict(exports().all())
    named = {one.name for one in programs}
    every = [one for one in choose("") if one.name in made or one.name in named]
    result = rows(every, where, made, dict(journal().all()))
    DEVICES.write(markdown({"places": [one.name for one in where], "rows": result}))


def headings(names: Sequence[str]) -> list[str]:
    """Of the table: a column for each place."""
    return [*_FIRST, *names]


def line(row: Row) -> list[str]:
    """A row of the table."""
    cells = [str(row["net"]), str(row["package"]), str(row["scheme"])]
    if "cells" not in row:
        why = str(row["error"]).replace("\n", " ")
        return [*cells, NOT_RUN if why == NOT_RUN else f"no: {why}", ""]  # its other columns stay empty
    words = [_cell(one) for one in row["cells"]]
    return [*cells, f"{row['seconds']:.0f} s", f"{row['size'] / 1e6:.1f} MB", *words]


def _filled(cells: list[str], count: int) -> list[str]:
    """A row with all its columns: one that was not exported ends early."""
    return [*cells, *[""] * (count - len(cells))]


def _cell(kept: dict[str, Any] | None) -> str:
    if kept is None:
        return NOT_RUN
    seen = Deployed.model_validate(kept)
    if seen.kind == DeadlineError.kind:
        return f"over {SECONDS / 60:.0f} min"
    if seen.error:
        return seen.kind
    if seen.why:
        return f"{_WORDS[seen.verdict]} (together)"
    return _WORDS[seen.verdict] + (f" ({seen.largest:.2g})" if seen.largest else "")


def _summary(kept: dict[str, Any]) -> str:
    found = kept["rows"]
    good = [one for one in found if "cells" in one]
    nets = {one["net"] for one in good}
    lines = [f"{len(nets)} nets of {len({one['net'] for one in found})} exported, in {len(good)} programs."]
    for place, name in enumerate(kept["places"]):
        cells = [one["cells"][place] for one in good if one["cells"][place] is not None]
        same = sum(one.get("verdict") in ("identical", "agrees") for one in cells)
        lines.append(f"{name}: {same} of {len(cells)} agree, {len(good) - len(cells)} were not run.")
    return " ".join(lines)


def markdown(kept: dict[str, Any]) -> str:
    """The table for the docs, behind a summary of it."""
    heads = headings(kept["places"])
    rows = [_filled(line(one), len(heads)) for one in kept["rows"]]
    linked = [[_ISSUE.sub(r"[\1#\2](https://github.com/\1/issues/\2)", cell) for cell in row] for row in rows]
    return f"{_summary(kept)}\n\n{table_of(heads, linked)}"
