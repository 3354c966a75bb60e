"""A run of all tests in parts: ``--shard 2/6`` runs the files of the second of six machines."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.errors import UsageError

MINUTES = {
    "readme": 8, "zoo": 8, "export": 7, "virtual_machines": 5, "onnx": 4, "cuts": 3, "deploy_pi": 3, "architectures": 2,
    "inv": 2, "toolchain_everywhere": 2, "build_faults": 2, "lean_programs": 2,
}  # fmt: skip
"""Of the files of tests that take longest, on two cores; the parts are balanced by them."""


def parse(text: str) -> tuple[int, int]:
    """``2/6`` as (2, 6).

    Raises:
        UsageError: it is not a part of a whole.
    """
    found = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise UsageError(f"--shard {text!r} is not of the form PART/PARTS.", "", "./inv test --all --shard 2/6")
    return int(found[1]), int(found[2])


def part(files: Sequence[str], number: int, count: int) -> list[str]:
    """Those of the ``files`` that are in part ``number`` of ``count``, counted from 1.

    Each file is in one part. The longest comes first, and goes where least is to be done; a checkout gives the same
    parts on every machine.
    """
    took = {file: _minutes(file) for file in files}
    loads = [0.0] * count
    mine = []
    for file in sorted(took, key=lambda name: (-took[name], name)):
        least = loads.index(min(loads))
        loads[least] += took[file]
        if least == number - 1:
            mine.append(file)
    return sorted(mine)


def _minutes(file: str) -> float:
    folder, _, name = file.rpartition("/test_")
    return 0.02 if folder == "tests/unit" else MINUTES.get(name.removesuffix(".py"), 0.5)
