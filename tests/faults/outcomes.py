"""The table faults x phases: what the tests saw, kept in ``docs/faults.json``, shown in ``docs/faults.md``.

``SLIPWAY_RECORD_FAULTS=1 ./inv test -k faults`` writes the file anew; else every outcome must be one on record.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable

from core.errors import SlipwayError
from core.files import locked, write_json
from core.paths import ROOT

FILE = ROOT / "docs" / "faults.json"
DONE = "done"
"""The fault was overcome: the deploy ended well all the same."""


def outcome(action: Callable[[], object]) -> str:
    """``done``, or the kind of the error."""
    try:
        action()
    except SlipwayError as error:
        return error.kind
    return DONE


def check(fault: str, phase: str, seen: Counter[str]) -> None:
    """Hold what was seen against the record, or record it."""
    with locked("faults-record"):
        rows = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else []
        if os.environ.get("SLIPWAY_RECORD_FAULTS"):
            rows = [row for row in rows if (row["fault"], row["phase"]) != (fault, phase)]
            rows.append(
                {"fault": fault, "phase": phase, "points": seen.total(), "outcomes": dict(sorted(seen.items()))}
            )
            write_json(FILE, sorted(rows, key=lambda row: (row["fault"], row["phase"])))
            return
    (row,) = [row for row in rows if (row["fault"], row["phase"]) == (fault, phase)]
    assert seen.total() == row["points"], (fault, phase)
    assert set(seen) <= set(row["outcomes"]), (fault, phase, seen)
