"""A sweep: many cells, each one piece of work with one result, kept as soon as it is known.

``./inv self.agree``, ``self.fuzz``, ``self.bench`` and ``matrix`` are sweeps. Each has a
`Journal` with a digest of everything that decides them: the same command goes on where it was interrupted, and runs a
cell again only if its program, its runner or its CPU has changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from core import console
from core.files import disk_errors
from core.paths import dist_part
from core.processes import commands

Result = TypeVar("Result", bound=BaseModel)


class Journal(Generic[Result]):
    """Results by the names of their cells: one file with a line of JSON for each; a cell's last line counts.

    A line is written by one call and synced at once. What a killed process leaves of one counts as absent, and the next
    line begins anew. Several processes may write to one file.
    """

    def __init__(self, file: Path, model: type[Result]) -> None:
        self._file = file
        self._model = model
        self._known: dict[str, tuple[str, str]] | None = None
        self._thread = threading.Lock()

    @classmethod
    def of(cls, name: str, model: type[Result]) -> Journal[Result]:
        """``dist/sweeps/<name>.jsonl``."""
        return cls(dist_part("sweeps") / f"{name}.jsonl", model)

    def find(self, name: str, key: str) -> Result | None:
        """A cell's result, if it was recorded with the same ``key``."""
        kept = self._lines().get(name)
        return self._result(kept[1]) if kept and kept[0] == key else None

    def all(self) -> Iterator[tuple[str, Result]]:
        """Every cell's name and last result, also those that would be run again."""
        for name, (_, text) in self._lines().items():
            if (result := self._result(text)) is not None:
                yield name, result

    def keep(self, name: str, key: str, result: Result) -> None:
        """Add a cell's result.

        Raises:
            HostError: the disk is full or read-only.
        """
        text = result.model_dump_json(exclude_defaults=True)
        line = f'{json.dumps({"cell": name, "key": key})[:-1]}, "result": {text}}}\n'.encode()
        known = self._lines()
        with self._thread, disk_errors(f"writing {self._file.name}"):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab", buffering=0) as file:
                file.write(b"\n" + line)
                os.fsync(file.fileno())
            known[name] = (key, text)

    def forget(self) -> None:
        """Remove all."""
        self._file.unlink(missing_ok=True)
        self._known = None

    def _lines(self) -> dict[str, tuple[str, str]]:
        """By cell: its key and its result as JSON."""
        if self._known is None:
            self._known = _read(self._file)
        return self._known

    def _result(self, text: str) -> Result | None:
        try:
            return self._model.model_validate_json(text)
        except ValidationError:  # an older Slipway's: it is run again
            return None


def _read(file: Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    try:
        # Not splitlines(): JSON has U+2028 and U+0085 as they are, inside of texts.
        lines = file.read_bytes().decode("utf-8", "replace").split("\n")
    except FileNotFoundError:
        return found
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # half a line, or not ours
            value = json.loads(line)
            found[str(value["cell"])] = str(value["key"]), json.dumps(value["result"])
    return found


@dataclass(frozen=True)
class Cell(Generic[Result]):
    """One piece of work of a sweep."""

    name: str
    """Unique in the sweep, and the same in the next one."""
    key: str
    """Digest of everything that decides the result."""
    work: Callable[[], Result]
    size: int = 1
    """What the progress bar counts it as."""
    label: str = ""
    """What the progress bar shows; the name when empty."""


def sweep(
    what: str,
    cells: Sequence[Cell[Result]],
    journal: Journal[Result],
    *,
    jobs: int = 1,
    holds: Callable[[Result], bool] = lambda _: True,
    remark: Callable[[Result], str] = lambda _: "",
) -> dict[str, Result]:
    """Run every cell that the journal does not have, and keep each result at once.

    Args:
        what: begins the progress bar, as "comparing".
        jobs: cells at once, in threads of this process; 1: one after another, in the order of ``cells``.
        holds: whether a kept result still counts; if not, its cell runs again.
        remark: what to print about a result, after its cell's name; nothing if empty.

    Returns:
        The result of every cell that was or is run, in the order of ``cells``. An exception of a cell ends the sweep,
        as Ctrl-C does: what was finished before is kept.
    """
    kept = {cell.name: journal.find(cell.name, cell.key) for cell in cells}
    found = {name: result for name, result in kept.items() if result is not None and holds(result)}
    rest = [cell for cell in cells if cell.name not in found]
    with console.step(what, announce=False) as step:
        step.count(0, sum(cell.size for cell in rest))

        def begin(cell: Cell[Result]) -> Result:
            step.now(cell.label or cell.name)
            return cell.work()

        for number, (cell, result) in enumerate(_results(rest, begin, jobs), 1):
            journal.keep(cell.name, cell.key, result)
            found[cell.name] = result
            step.one(cell.size)
            said = remark(result)
            if said or not step.live:
                console.note(f"[{number}/{len(rest)}] {cell.label or cell.name}{': ' if said else ''}{said}")
    return {cell.name: found[cell.name] for cell in cells}


def _results(
    cells: Iterable[Cell[Result]], begin: Callable[[Cell[Result]], Result], jobs: int
) -> Iterator[tuple[Cell[Result], Result]]:
    """Cells with their results, as they come."""
    if jobs == 1:
        for cell in cells:
            yield cell, begin(cell)
        return
    with ThreadPoolExecutor(jobs) as pool:
        running: dict[Future[Result], Cell[Result]] = {pool.submit(begin, cell): cell for cell in cells}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in running):
                commands.end_all()
                time.sleep(0.05)
            raise
