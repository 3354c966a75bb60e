"""A run of all tests in parts: ``--shard 2/6`` runs the files of the second of six machines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.errors import UsageError
from verify.suite import times


def parse(text: str) -> tuple[int, int]:
    """``2/6`` as (2, 6).

    Raises:
        UsageError: it is not a part of a whole.
    """
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"--shard {text!r} is not of the form PART/PARTS.", "", "./inv test --all --shard 2/6")
    return int(found[1]), int(found[2])


def _guess(file: str) -> float:
    """Seconds of a file whose times nobody kept."""
    return 1.0 if file.startswith("tests/unit/") else 30.0


def part(files: Sequence[str], number: int, count: int) -> list[str]:
    """Those of the ``files`` that are in part ``number`` of ``count``, counted from 1.

    Each file is in one part. The longest comes first, and goes where least is to be done; a checkout gives the same
    parts on every machine.
    """
    known = times.seconds()
    took = {file: known.get(file, _guess(file)) for file in files}
    loads = [0.0] * count
    mine = []
    for file in sorted(took, key=lambda name: (-took[name], name)):
        least = loads.index(min(loads))
        loads[least] += took[file]
        if least == number - 1:
            mine.append(file)
    return sorted(mine)
