"""ETDump: the executions of a run and their events, as upstream's reader has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import AnswerError
from core.plain import one_line

EXECUTE = "Execute"
METHOD = "Method::execute"
DELEGATE = "DELEGATE_CALL"
OPERATOR = "OPERATOR_CALL"
NATIVE = "native_call_"
_MAGIC = b"ED00"
_HEAD = 12
"""Bytes: the size of what follows (4), an offset (4), the identifier (4)."""


@dataclass(frozen=True)
class Event:
    """Something that took time. ``start`` and ``end`` are nanoseconds of the device's clock."""

    name: str
    delegated: bool
    """``name`` is the delegate's own word for a part of its work."""
    instruction: int
    start: int
    end: int

    @property
    def took(self) -> int:
        """Nanoseconds."""
        return max(0, self.end - self.start)


@dataclass(frozen=True)
class Execution:
    """One execution of a method. An event stands behind those that are inside of it."""

    events: tuple[Event, ...]


@dataclass(frozen=True)
class Part:
    """One row of a profile in one execution."""

    event: Event
    row: str
    """Its name in a profile: ``Fully Connected (NC, F32) GEMM #1 @3``."""
    operator: str
    provider: str
    own: int
    """Nanoseconds without those of the rows inside of it."""


def check(data: bytes, name: str) -> None:
    """Refuse what is not a whole ETDump, before upstream's reader fails on it.

    Raises:
        AnswerError: it is too short, or another kind of file.
    """
    again = "the same deploy with --etdump again"
    if len(data) >= _HEAD and data[8:_HEAD] != _MAGIC:
        raise AnswerError(f"{name} is not an ETDump.", f"it begins with {data[:_HEAD].hex(' ')}", again)
    whole = int.from_bytes(data[:4], "little") + 4
    if len(data) < max(_HEAD, whole):
        raise AnswerError(f"{name} is truncated.", f"it has {len(data):,} of {max(_HEAD, whole):,} bytes", again)


def _runs(path: Path) -> list[Any]:
    """The executions in upstream's words."""
    data = path.read_bytes()
    check(data, path.name)
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    try:
        dump = deserialize_from_etdump_flatcc(data)
    except Exception as error:  # flatc's exit code, or whatever its JSON leads to
        raise AnswerError(
            f"{path.name} is damaged.",
            f"upstream's reader fails: {one_line(str(error))}",
            "the same deploy with --etdump again",
        ) from error
    return [run for run in dump.run_data or () if run.name == EXECUTE]


def read(path: Path) -> tuple[Execution, ...]:
    """Every execution in the file, in order. Imports the exporter's packages.

    Raises:
        AnswerError: the file is truncated, or not an ETDump.
    """
    found = tuple(Execution(tuple(_events(run))) for run in _runs(path))
    if not any(execution.events for execution in found):
        raise AnswerError(
            f"{path.name} holds no execution.",
            "it is damaged, or the program only was loaded",
            "the same deploy with --etdump again",
        )
    return found


def _events(run: object) -> Iterator[Event]:
    for each in getattr(run, "events", None) or ():
        event = each.profile_event
        if event is None:
            continue
        text, number = event.delegate_debug_id_str, event.delegate_debug_id_int
        delegated = bool(text) or number not in (None, -1)
        name = (text or f"operator {number}") if delegated else event.name or ""
        yield Event(name, delegated, event.instruction_id, event.start_time, event.end_time)


def names(executions: tuple[Execution, ...]) -> dict[int, str]:
    """The operator of each instruction that ran, or `DELEGATE`."""
    found: dict[int, str] = {}
    for execution in executions:
        for event in execution.events:
            if event.name == DELEGATE or event.name.startswith(NATIVE):
                found[event.instruction] = event.name.removeprefix(NATIVE)
    return found


@dataclass(frozen=True)
class Value:
    """Tensors that an operator gave."""

    name: str
    instruction: int
    node: int
    """Index in the delegate's graph; -1: what the instruction itself gave, or was given."""
    tensor: Any
    """PyTorch's."""


def values(path: Path, buffer: Path) -> tuple[Value, ...]:
    """What the last execution's instructions gave, in order. Imports the exporter's packages.

    Args:
        path: the ETDump. buffer: the file with the bytes.

    Raises:
        AnswerError: one of the files is truncated or damaged.
    """
    from executorch.devtools.inspector._inspector_utils import inflate_runtime_output

    runs, raw, found = _runs(path), buffer.read_bytes(), []
    try:
        for each in (runs[-1].events if runs else None) or ():
            event = each.debug_event
            entry = event.debug_entry if event is not None else None
            if entry is None or (entry.output and entry.output.bool_val):
                continue
            given = inflate_runtime_output(entry, raw)
            node = -1 if event.delegate_debug_id_int is None else event.delegate_debug_id_int
            tensors = given if isinstance(given, list) else [given]
            if entry.tensor is not None:
                tensors = [_ordered(given, entry.tensor)]
            elif entry.tensor_list is not None:
                tensors = [_ordered(*pair) for pair in zip(tensors, entry.tensor_list.tensors, strict=True)]
            found += [Value(event.name or "", event.instruction_id, node, tensor) for tensor in tensors]
    except Exception as error:
        raise AnswerError(
            f"{buffer.name} does not hold what {path.name} names.",
            f"upstream's reader fails: {one_line(str(error))}",
            "the same deploy with --values again",
        ) from error
    return tuple(found)


def _ordered(tensor: Any, stored: Any) -> Any:
    """The tensor by the strides of the ETDump's own, ``stored``, which upstream's reader takes for row-major."""
    reach = sum((size - 1) * stride for size, stride in zip(stored.sizes, stored.strides or (), strict=False))
    if len(stored.strides or ()) != tensor.dim() or reach + 1 != tensor.numel():
        return tensor
    return tensor.flatten().as_strided(stored.sizes, stored.strides)


def parts(execution: Execution) -> Iterator[Part]:
    """The rows of one execution; their own times add up to the method's.

    The names are those that ``pte_runner --profile`` gives.
    """
    call = method = 0
    kernel = ""
    for event in execution.events:
        row = f"{event.name} @{event.instruction}"
        if event.delegated:
            call += event.took
            yield Part(event, row, event.name.rpartition(" #")[0] or event.name, "XnnpackBackend", event.took)
        elif event.name.startswith(NATIVE):
            kernel = event.name.removeprefix(NATIVE)
        elif event.name == OPERATOR:
            name = kernel or OPERATOR
            kernel = ""
            method += event.took
            yield Part(event, f"{name} @{event.instruction}", name, "portable", event.took)
        elif event.name == DELEGATE:
            method += event.took
            yield Part(event, row, "around the delegate's operators", "runtime", max(0, event.took - call))
            call = 0
        elif event.name == METHOD:
            yield Part(event, METHOD, "around the instructions", "runtime", max(0, event.took - method))
