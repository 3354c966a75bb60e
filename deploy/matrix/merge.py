"""Matrices of several jobs as one: the same cells and figures, in one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from core.console.units import counted
from core.errors import ConfigError, UsageError
from deploy.matrix import shards
from deploy.matrix.model import Matrix, load_matrix

FILE = "matrix.json"


def files(words: Iterable[str], besides: Path) -> list[Path]:
    """The ``matrix.json`` that ``words`` name: files, or folders that hold them at any depth.

    Args:
        besides: the folder of the result, which may lie in one of them.

    Raises:
        UsageError: a word names nothing, or a folder without a matrix.
    """
    found: dict[Path, None] = {}
    for word in words:
        path = Path(word)
        inside = [path] if path.is_file() else sorted(path.rglob(FILE)) if path.is_dir() else []
        inside = [file for file in inside if file.parent.resolve() != besides.resolve()]
        if not inside:
            raise UsageError(
                f"--merge {word}: there is no {FILE}.", "each job leaves one in dist/matrix/NAME",
                "./inv matrix --merge FOLDER, with the reports' folders of all jobs in it",
            )  # fmt: skip
        found |= dict.fromkeys(file.resolve() for file in inside)
    return list(found)


def merged(parts: Sequence[Matrix], name: str, command: str) -> Matrix:
    """One matrix of all ``parts``; of a cell that several have, the latest result.

    Raises:
        ConfigError: the parts were compared with different baselines or limits.
    """
    parts = sorted(parts, key=lambda part: part.finished)
    limits = {(part.baseline, part.threshold) for part in parts if part.baseline}
    if len(limits) > 1:
        known = ", ".join(f"{base} ({limit or 0:.0%})" for base, limit in sorted(limits, key=str))
        raise ConfigError("The matrices were compared with different baselines.", known, "merge those of one run")
    baseline, threshold = limits.pop() if limits else ("", None)
    # A cell that one job did not reach may have run in another.
    ran = {cell.key: cell for part in parts for cell in part.cells if cell.outcome != "not run"}
    cells = {cell.key: ran.get(cell.key, cell) for part in parts for cell in part.cells}
    latest = {cell.key: part for part in parts for cell in part.cells if cells[cell.key] is cell}
    return Matrix(
        name=name,
        only=" | ".join(dict.fromkeys(f"({part.only})" for part in parts if part.only)),
        created=min(part.created for part in parts),
        finished=max(part.finished for part in parts),
        seconds=round(sum(part.seconds for part in parts), 2),
        jobs=sum(part.jobs for part in parts),
        interrupted=any(part.interrupted for part in parts),
        command=command,
        commit=", ".join(dict.fromkeys(part.commit for part in parts if part.commit)),
        host=_hosts(parts),
        settings=next((part.settings for part in parts), {}),
        cells=tuple(cells.values()),
        impossible=tuple({one.key: one for part in parts for one in part.impossible if one.key not in cells}.values()),
        baseline=baseline,
        threshold=threshold,
        changes=tuple(
            change for part in parts for change in part.changes if latest.get(change.key, part) is part
        ),
    )  # fmt: skip


def _hosts(parts: Sequence[Matrix]) -> str:
    hosts = list(dict.fromkeys(part.host for part in parts if part.host))
    return ", ".join(hosts) if len(hosts) <= 2 else counted(len(hosts), "host")


def load(words: Iterable[str], name: str, command: str, besides: Path) -> Matrix:
    """`merged` of the files that ``words`` name.

    Raises:
        UsageError: there are none. ConfigError: a file is not a matrix, or they do not fit together; or they are
            parts (``--shard``) of different plans or commits, or not all of them.
    """
    parts = [load_matrix(file) for file in files(words, besides)]
    shards.check(parts)
    return merged(parts, name, command)
