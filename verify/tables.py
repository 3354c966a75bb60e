"""Tables of the docs that are their own record: a command's ``--update`` replaces the rows that it measured.

A table stands in its page between ``<!-- name -->`` and ``<!-- /name -->``. Its text has no other source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from core import console
from core.errors import ConfigError
from core.files import locked, write_atomic
from core.paths import ROOT

Row = dict[str, str]


@dataclass(frozen=True)
class Table:
    """A table between the markers ``name`` of ``page``, a path in the checkout: ``docs/proofs.md``."""

    page: str
    name: str

    def text(self) -> str:
        """What stands between the markers.

        Raises:
            ConfigError: the page lacks a marker.
        """
        return _parts(self, (ROOT / self.page).read_text(encoding="utf-8"))[1]

    def within(self, page: str, text: str) -> str:
        """The page's text with ``text`` between the markers.

        Raises:
            ConfigError: the page lacks a marker.
        """
        before, _, after = _parts(self, page)
        return before + text + after

    def rows(self) -> list[Row]:
        """The rows of its first table by their headings; none while there is none.

        Raises:
            ConfigError: a row has other columns than the headings.
        """
        text = self.text()
        lines = text[max(text.find("|"), 0) :].splitlines()
        found = [_cells(line) for line in itertools.takewhile(lambda line: line.startswith("|"), lines)]
        for cells in found:
            if len(cells) != len(found[0]):
                raise ConfigError(
                    f"A row of {self.page} has other columns than its table.", " | ".join(cells), "git diff"
                )
        return [dict(zip(found[0], cells, strict=True)) for cells in found[2:]]

    def write(self, text: str) -> None:
        """Put ``text`` between the markers."""
        with locked("docs"):
            self._write(text)

    def _write(self, text: str) -> None:
        file = ROOT / self.page
        write_atomic(file, self.within(file.read_text(encoding="utf-8"), text))
        console.note(f"kept in {self.page}")

    def put(
        self,
        rows: Iterable[Row],
        keys: Sequence[str],
        order: Callable[[Row], object] | None = None,
        keep: Callable[[Row], bool] = lambda row: True,
    ) -> None:
        """Replace the rows that ``rows`` have anew, add the others.

        Args:
            keys: headings that tell rows apart.
            order: the rows' order; without it new rows come last.
            keep: says of an earlier row whether it still stands for something.
        """
        with locked("docs"):
            found = {tuple(row[key] for key in keys): row for row in self.rows() if keep(row)}
            found |= {tuple(row[key] for key in keys): row for row in rows}
            ordered = list(found.values())
            if order is not None:
                ordered.sort(key=order)  # type: ignore[arg-type]  # what it returns can be compared
            self._write(table_of_rows(ordered))


def _parts(table: Table, page: str) -> tuple[str, str, str]:
    before, start, rest = page.partition(f"<!-- {table.name} -->\n")
    inside, end, after = rest.partition(f"<!-- /{table.name} -->")
    if not end:
        raise ConfigError(
            f"{table.page} has no room for its table {table.name}.", f"<!-- {table.name} --> is gone", "git diff"
        )
    return before + start, inside, end + after


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\0", "|") for cell in line.replace("\\|", "\0").strip().strip("|").split("|")]


def table_of_rows(rows: Sequence[Mapping[str, str]]) -> str:
    """A table of rows that have the same headings."""
    return table_of(list(rows[0]), [list(row.values()) for row in rows]) if rows else "Nothing is kept yet.\n"


def table_of(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of headings and cells."""
    every = [heads, ["---"] * len(heads), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in every)
