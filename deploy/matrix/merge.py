"""A matrix in parts, and matrices of several jobs as one.

``--shard 2/5`` runs the second of five parts, and ``--merge`` makes one report of all of them. A part is a run of
neighbours in the plan's order, which goes by device: so it boots few devices and builds few bundles. Each part's
``matrix.json`` says which one it is, and of which plan.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.console.units import counted
from core.errors import ConfigError, UsageError
from deploy.matrix.model import Matrix, load_matrix
from deploy.matrix.plan import Plan, Shard

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
    check_parts(parts)
    return merged(parts, name, command)


def parse_shard(text: str) -> tuple[int, int] | None:
    """``2/5`` as (2, 5); nothing for an empty text.

    Raises:
        UsageError: it is not a part of a whole.
    """
    if not text:
        return None
    found = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(
            f"--shard {text!r} is not of the form PART/PARTS.", "", "--shard 2/5, the second of five parts"
        )
    return int(found[1]), int(found[2])


def part(plan: Plan, of: tuple[int, int], settings: Mapping[str, Any]) -> Plan:
    """The cells of one part.

    Raises:
        UsageError: there are more parts than cells.
    """
    index, count = of
    total = len(plan.cells)
    if count > total:
        raise UsageError(
            f"--shard {index}/{count}: the matrix has {counted(total, 'cell')} only.", "", f"--shard 1/{total}"
        )
    cells = plan.cells[(index - 1) * total // count : index * total // count]
    keys = [cell.key for cell in plan.cells]
    facts = {"cells": keys, "impossible": [cell.key for cell in plan.impossible], "settings": dict(settings)}
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return Plan(cells, plan.impossible, Shard(index=index, count=count, plan=digest, cells=total))


def check_parts(parts: Sequence[Matrix]) -> None:
    """Refuse parts that are not the whole of one plan at one commit. Matrices that are not parts are left alone.

    Raises:
        ConfigError: it names the parts that are missing, double, or of another plan or commit.
    """
    shards = [each.shard for each in parts if each.shard]
    if not shards:
        return
    if len(shards) < len(parts):
        other = next(each for each in parts if not each.shard)
        raise ConfigError(
            f"{_name(other)} is not a part of a matrix, and others are.", "", "merge only what ran with --shard"
        )
    _same(parts, {each.shard.plan for each in parts if each.shard}, "plan", "other cells or settings")
    _same(
        parts, {each.commit for each in parts}, "commit", ", ".join(sorted({each.commit or "none" for each in parts}))
    )
    count = shards[0].count
    seen = Counter(each.index for each in shards)
    if double := [index for index, times in sorted(seen.items()) if times > 1]:
        names = [_name(each) for each in parts if each.shard and each.shard.index in double]
        raise ConfigError(
            f"{_numbers(double)} of {count} is there more than once.", "; ".join(names), "name each part once", names
        )
    if missing := [index for index in range(1, count + 1) if index not in seen]:
        raise ConfigError(
            f"{_numbers(missing)} of {count} {'is' if len(missing) == 1 else 'are'} missing.",
            f"{counted(sum(len(each.cells) for each in parts), 'cell')} of {shards[0].cells} are there",
            f"./inv matrix --shard {missing[0]}/{count} with the same words, then merge all",
            [f"{index}/{count}" for index in missing],
        )


def _same(parts: Sequence[Matrix], values: set[str], what: str, cause: str) -> None:
    if len(values) > 1:
        raise ConfigError(
            f"The parts are of {len(values)} different {what}s.", cause,
            f"run all of them at one {what}" if what == "commit" else "run all of them with the same words",
            [_name(each) for each in parts],
        )  # fmt: skip


def _numbers(indices: Sequence[int]) -> str:
    return f"Part{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"


def _name(found: Matrix) -> str:
    which = f" {found.shard.index}/{found.shard.count}" if found.shard else ""
    return f"{found.name}{which} of {found.created} on {found.host or 'an unknown host'}"
