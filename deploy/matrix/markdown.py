"""A matrix as Markdown, for the page that a CI system shows about its run: short, and with the failures first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.console.units import counted, duration, size
from core.plain import plain
from deploy.matrix.html import headline
from deploy.matrix.model import CellResult, Matrix
from deploy.matrix.people import disturbed, engines, exact, failures

MOST = 900_000
"""Characters at most; GitHub takes 1 MiB for a step. What is beyond is left out by rows."""
_MARKS = {"passed": "✅ passed", "differs": "❌ differs", "failed": "❌ failed", "not run": "⚪ not run"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>!|~&])")


def text(found: Matrix) -> str:
    """The summary: a headline, the failures by cause, regressions, and a table of the cells.

    Device names, errors and commands are quoted: nothing in them becomes HTML, a picture or a link with another text.
    """
    lines = [f"## {quoted(headline(found))}", "", _about(found), ""]
    for group in failures(found.cells):
        problem = group.problem
        lines.append(f"- ❌ **{quoted(group.what)}** ({counted(len(group.keys), 'cell')})")
        if problem and problem.cause:
            # Not a new line: what begins one might become a heading or a list.
            cause = "<br>".join(quoted(line) for line in problem.cause.splitlines() if line.strip())
            lines.append(f"    - Cause: {cause}")
        if problem and problem.hint:
            lines.append(f"    - Try: {code(problem.hint)}")
        keys = ", ".join(code(key) for key in group.keys[:5])
        lines.append(f"    - {keys}" + (f" and {len(group.keys) - 5} more" if len(group.keys) > 5 else ""))
    judged = [*found.regressions, *found.uncertain] if found.baseline else []
    if judged:
        lines += ["", f"Against {code(found.baseline)}:", ""]
        rows = [
            [code(each.key, cell=True), quoted(each.what), quoted(exact(each.before)), quoted(exact(each.now)),
             f"{each.ratio:.2f}" if each.ratio else "", each.verdict]
            for each in judged
        ]  # fmt: skip
        lines += table(["cell", "figure", "before", "now", "ratio", "verdict"], rows)
    heads = ["device", "engine", "program", "outcome", "latency p50", "largest error", "program size"]
    name = engines(found.cells)
    lines += [
        "",
        *_limited(table(heads, [_row(cell, name(cell)) for cell in found.cells]), MOST - sum(map(len, lines))),
    ]
    if found.impossible:
        lines += ["", f"{counted(len(found.impossible), 'combination')} cannot be run; the report says why."]
    return "\n".join(lines).rstrip() + "\n"


def _about(found: Matrix) -> str:
    parts = [f"in {found.took}", quoted(f"on {found.host}") if found.host else ""]
    parts += [f"at {code(found.commit)}" if found.commit else "", f"by {code(found.command)}" if found.command else ""]
    return "Run " + " ".join(part for part in parts if part) + "." + (" It was interrupted." * found.interrupted)


def _row(cell: CellResult, engine: str) -> list[str]:
    notes = ", ".join((*(["throttled"] if cell.throttled else []), *disturbed(cell)))
    time = duration(cell.latency.p50) + (f" ({quoted(notes)})" if notes else "") if cell.latency else ""
    device = quoted(cell.device) + (" (emulated)" if cell.emulated else "")
    error = "" if cell.max_abs is None else f"{cell.max_abs:.2g}"
    program = code(cell.program, cell=True)
    return [device, quoted(engine), program, _MARKS[cell.outcome], time, error, size(cell.program_bytes)]


def _limited(lines: Sequence[str], room: int) -> list[str]:
    """As many lines as fit, and how many were left out."""
    kept: list[str] = []
    for index, line in enumerate(lines):
        room -= len(line) + 1
        if room < 0:
            return [*kept, "", f"{len(lines) - index} more rows are in the report."]
        kept.append(line)
    return kept


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table, of cells that are `quoted` or `code`."""
    return [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]


def quoted(words: str) -> str:
    """Any text as Markdown that shows it, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(plain(words).split()))


def code(words: str, *, cell: bool = False) -> str:
    """Any text as code in a line; in a table's ``cell`` a bar would end it."""
    shown = " ".join(plain(words).split())
    shown = shown.replace("|", "\\|") if cell else shown
    ticks = "`" * (1 + max((len(run) for run in re.findall(r"`+", shown)), default=0))
    pad = " " if "`" in shown else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}" if shown else ""
