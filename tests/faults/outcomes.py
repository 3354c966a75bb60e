"""The table faults x phases: what the tests saw, kept in ``docs/data/faults.json``, shown in ``docs/faults.md``.

``SLIPWAY_RECORD_FAULTS=1 ./inv test -k faults`` writes the file anew; else every outcome must be one on record.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

from core.errors import SlipwayError
from core.files import locked, write_json
from core.paths import ROOT

FILE = ROOT / "docs" / "data" / "faults.json"
_ALSO: dict[str, set[str]] = {
    # Of these, chance decides how they end, and in which step.
    # A changed length keeps either side waiting for what never comes, or not, as chance has it.
    "byte changed": {"unreachable", "deadline"},
    # Whether the deadline or the pulse is the first to notice.
    "link stalls": {"unreachable", "deadline"},
    # How far the command got before it was killed.
    "command killed": {"unreachable", "transfer", "run", "done"},
    "second deploy, not waiting": {"device-busy", "done"},
}
DONE = "done"
"""The fault was overcome: the deploy ended well all the same."""


def outcome(action: Callable[[], object]) -> str:
    """``done``, or the kind of the error."""
    try:
        action()
    except SlipwayError as error:
        return error.kind
    return DONE


def rows() -> list[dict[str, Any]]:
    """The table: fault, phase, number of places, and how often each outcome was seen."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else []
    return found


def check(fault: str, phase: str, seen: Counter[str]) -> None:
    """Hold what was seen against the record, or record it."""
    with locked("faults-record"):
        table = rows()
        if os.environ.get("SLIPWAY_RECORD_FAULTS"):
            table = [row for row in table if (row["fault"], row["phase"]) != (fault, phase)]
            found = dict(sorted(seen.items()))
            table.append({"fault": fault, "phase": phase, "points": seen.total(), "outcomes": found})
            write_json(FILE, sorted(table, key=lambda row: (row["fault"], row["phase"])))
            return
    same = [row for row in table if row["fault"] == fault]
    if fault in _ALSO:
        assert set(seen) <= _ALSO[fault].union(*(row["outcomes"] for row in same)), (fault, phase, seen)
        return
    (row,) = [row for row in same if row["phase"] == phase]
    assert seen.total() == row["points"], (fault, phase)
    assert set(seen) <= set(row["outcomes"]), (fault, phase, seen)
