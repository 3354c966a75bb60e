"""A run as a trace for Perfetto (ui.perfetto.dev) and chrome://tracing: Chrome's Trace Event Format, JSON.

Complete events (``"ph": "X"``) with microseconds; each execution, instruction and operator of a delegate is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models.inspection.dump import DELEGATE, METHOD, NATIVE, OPERATOR, Execution
from models.inspection.rows import Row

_LANES = {1: "executions", 2: "instructions", 3: "operators of delegates"}


def trace(
    executions: Sequence[Execution], timed: int, rows: Sequence[Row], title: str, other: Mapping[str, Any]
) -> dict[str, Any]:
    """The trace, to be written as JSON.

    Args:
        timed: how many executions at the end are timed.
        other: facts about the run.
    """
    by_name = {row.name: row for row in rows}
    begin = min((event.start for each in executions for event in each.events), default=0)
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": title}},
        *(
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": lane, "args": {"name": name}}
            for lane, name in _LANES.items()
        ),
    ]
    for number, execution in enumerate(executions):
        warmup = number < len(executions) - timed
        kind = "warm-up" if warmup else "timed"
        kernel = ""
        for event in execution.events:
            if event.name.startswith(NATIVE):
                kernel = event.name.removeprefix(NATIVE)
                continue
            if event.name == METHOD:
                lane, name, row = 1, f"execution {number + 1} ({kind})", by_name.get(METHOD)
            elif event.name in (DELEGATE, OPERATOR) or event.delegated:
                lane, name = (3 if event.delegated else 2), event.name
                if event.name == OPERATOR and kernel:
                    name, kernel = kernel, ""
                row = by_name.get(f"{name} @{event.instruction}")
            else:
                continue
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": lane,
                    "name": name,
                    "cat": kind,
                    "ts": (event.start - begin) / 1e3,
                    "dur": event.took / 1e3,
                    "args": _arguments(row, number + 1),
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": dict(other)}


def _arguments(row: Row | None, execution: int) -> dict[str, Any]:
    found: dict[str, Any] = {"execution": execution}
    if row is None:
        return found
    if row.instruction >= 0 and row.provider != "runtime":
        found["instruction"] = row.instruction
    if row.origin:
        found |= {
            "module": row.origin.module,
            "source": row.origin.source,
            "operators": ", ".join(row.origin.operators),
        }
    if row.kernel:
        found |= {"kernel": row.kernel.name, "library": row.kernel.library}
    return {name: value for name, value in found.items() if value != ""}
