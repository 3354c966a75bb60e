"""The table faults x phases in ``docs/proofs.md``: how each deploy ended.

``SLIPWAY_RECORD_FAULTS=1 ./inv test -k faults`` writes it anew; else every outcome must be one that stands there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

from core.errors import SlipwayError
from core.files import locked
from verify.tables import Table

FAULTS = Table("docs/proofs.md", "faults")
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


def rows() -> dict[tuple[str, str], tuple[int, set[str]]]:
    """The table: by fault and phase, the number of places and the outcomes that were seen."""
    found = {}
    for row in FAULTS.rows():
        for phase, cell in row.items():
            points, _, outcomes = cell.partition(": ")
            if phase != "fault" and outcomes:
                found[row["fault"], phase] = (int(points), set(outcomes.split(", ")))
    return found


def check(fault: str, phase: str, seen: Counter[str]) -> None:
    """Hold what was seen against the table, or write it there."""
    if os.environ.get("SLIPWAY_RECORD_FAULTS"):
        with locked("faults-record"):
            known_faults = {row["fault"]: row for row in FAULTS.rows()}
            new = {**dict.fromkeys(next(iter(known_faults.values())), ""), "fault": fault}
            row = {**known_faults.get(fault, new), phase: f"{seen.total()}: {', '.join(sorted(seen))}"}
            FAULTS.put([row], ("fault",), order=lambda one: one["fault"])
        return
    known = rows()
    if fault in _ALSO:
        ever = (outcomes for (name, _), (_, outcomes) in known.items() if name == fault)
        assert set(seen) <= _ALSO[fault].union(*ever), (fault, phase, seen)
        return
    points, outcomes = known[fault, phase]
    assert seen.total() == points, (fault, phase)
    assert set(seen) <= outcomes, (fault, phase, seen)
