"""All of our sound programs by name: ``sizes-linear-delegated``, the family first."""

from __future__ import annotations

from collections.abc import Callable

from verify.operators.lowering import Program
from verify.operators.programs import PROGRAMS
from verify.sound import flow, made, sizes, state, types

EACH = (
    "flow-branch-of-layers", "flow-each", "flow-carried", "state-written", "state-methods", "state-methods-delegated",
    "made-lines-weights-apart",
)  # fmt: skip
"""One of each kind that the family ``runtime`` leaves to others: branches, loops, state, methods, files of weights."""


def programs() -> dict[str, Callable[[], Program]]:
    """Each is made when it is called."""
    families = {
        "sizes": sizes.PROGRAMS, "state": state.PROGRAMS, "flow": flow.PROGRAMS, "types": types.PROGRAMS,
        "made": made.PROGRAMS, "runtime": PROGRAMS,
    }  # fmt: skip
    return {f"{family}-{name}": make for family, found in families.items() for name, make in found.items()}
