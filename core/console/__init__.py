"""Output: tables and messages for people, JSON for machines.

Output for people (progress, notes) goes to stderr; a command's result (tables, JSON) goes to stdout.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.console.live import begin, growing, paused, step
from core.console.marks import cell, err, line, out
from core.plain import json_text, plain

__all__ = [
    "begin", "documents", "err", "grouped", "growing", "note", "out", "paused", "print_json", "say", "shown", "step",
    "table",
]  # fmt: skip

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def note(message: str) -> None:
    """One line for people, on stderr."""
    err().print(line(message), soft_wrap=True)


def say(message: str) -> None:
    """A sentence of a command's result on stdout, folded between words; one with a command stays on a line."""
    import textwrap

    # A word that is longer than the line, as a path, stays whole.
    width = sys.maxsize if "./inv " in message else out().width
    for part in textwrap.wrap(message, width, break_long_words=False, break_on_hyphens=False):
        out().print(line(part), soft_wrap=True)


def shown(path: Path | str) -> str:
    """The path for people: relative if it is below the current folder, with ``~`` if it is below the home folder."""
    from pathlib import Path as Real

    full = Real(path)
    for base, prefix in ((Real.cwd(), ""), (Real.home(), "~/")):
        with contextlib.suppress(ValueError):
            return prefix + str(full.relative_to(base))
    return str(full)


documents = [0]
"""How many JSON documents this process has printed."""


def print_json(value: Any) -> None:
    """Indented JSON on stdout."""
    documents[0] += 1
    sys.stdout.write(json_text(value) + "\n")


_READABLE = 24
"""A column of text may fold, but not to fewer characters."""


def _left_out(columns: Sequence[str], rows: Sequence[Sequence[str]], optional: Sequence[str], width: int) -> list[str]:
    """The columns to leave out, so that the others fit side by side."""
    widths = {
        column: min(max(len(column), *(len(row[index]) for row in rows)) if rows else len(column), _READABLE) + 3
        for index, column in enumerate(columns)
    }
    gone: list[str] = []
    for column in optional:
        if sum(widths.values()) <= width:
            break
        if widths.pop(column, 0):
            gone.append(column)
    return gone


def _print(console: Console, grid: Table, caption: str) -> None:
    """Print a table; a pipe or a file gets it without the blanks that end or fill its lines.

    The caption stays on one line: it may hold a command or a path, to be copied as a whole.
    """
    from rich.text import Text

    if console.is_terminal:
        console.print(grid)
    else:
        with console.capture() as made:
            console.print(grid)
        console.file.write("".join(f"{line.rstrip()}\n" for line in made.get().splitlines()))
    if caption:
        console.print(Text(plain(caption), style="table.caption"), soft_wrap=True)


def _cells(console: Console, columns: Sequence[str], row: Sequence[str]) -> list[Text]:
    """A row's cells, which a terminal shows with marks and colours."""
    from rich.text import Text

    return [
        cell(one, column) if console.is_terminal else Text(plain(one)) for column, one in zip(columns, row, strict=True)
    ]


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    caption: str = "",
    stderr: bool = False,
    optional: Sequence[str] = (),
) -> None:
    """A table on stdout (or stderr). All of it is plain text: markup and control characters are shown, not obeyed.

    Args:
        optional: columns that a narrow terminal may leave out, the first one first. The caption names them then.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = err() if stderr else out()
    rows = list(rows)
    if gone := _left_out(columns, rows, optional, console.width):
        kept = [index for index, column in enumerate(columns) if column not in gone]
        columns, rows = [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]
        narrow = f"not shown in {console.width} columns, but with --json: {', '.join(gone)}"
        caption = f"{caption}; {narrow}" if caption else narrow
    grid = Table(
        title=Text(plain(title), style="table.title") if title else None,
        box=SIMPLE_HEAD,
        title_justify="left",
        pad_edge=False,
    )
    for column in columns:
        grid.add_column(Text(plain(column)), overflow="fold")
    for row in rows:
        grid.add_row(*_cells(console, columns, row))
    _print(console, grid, caption)


def grouped(groups: Mapping[str, Sequence[Sequence[str]]], columns: Sequence[str], caption: str = "") -> None:
    """Rows below headings, as a compact table on stdout. ``columns`` are not shown: their names say what has marks."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for _ in columns:
        grid.add_column(overflow="fold")
    for heading, rows in groups.items():
        grid.add_row(Text(plain(heading), style="bold"))
        for row in rows:
            cells = _cells(out(), columns, row)
            grid.add_row(Text.assemble("  ", cells[0]), *cells[1:])
    _print(out(), grid, caption)
