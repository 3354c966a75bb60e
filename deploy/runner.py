"""The runner on the device: its command line, its answer, and what its end means."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import (
    CrashError,
    DeviceFullError,
    MissingOperatorError,
    ProgramError,
    RunError,
    SlipwayError,
    TransferError,
    UsageError,
)

RESULT = "result.json"
OUTPUT = "output"
"""Prefix of the output files."""
ETDUMP = "run.etdp"
MODEL = "model"
"""The program's name in the run's folder, before its own suffix."""


class _Answer(BaseModel):
    """A part of the runner's JSON; keys that this version does not know are kept for the result's file."""

    model_config = ConfigDict(frozen=True, extra="allow")


class EngineInfo(_Answer):
    """Which engine it was."""

    name: str
    version: str


class Latency(_Answer):
    """Milliseconds over the timed executions."""

    count: int
    warmup: int = 0
    min: float
    p50: float
    p90: float
    p99: float
    mean: float
    all: tuple[float, ...] = ()


class Tensor(_Answer):
    """An input or output: NumPy's dtype name, shape, SHA-256 of its raw bytes, and its file's name."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    file: str = ""


class Node(_Answer):
    """An operator of a graph that its runtime divides between providers."""

    name: str
    operator: str
    provider: str
    why: str = ""
    """Why the provider asked for did not take it."""


class Placement(_Answer):
    """Where the nodes ran."""

    nodes: tuple[Node, ...] = ()
    coverage: dict[str, int] = {}
    """Nodes by provider."""
    hints: tuple[str, ...] = ()
    """What could make it faster."""


class Kernel(_Answer):
    """The function that computes a layer on that processor."""

    node: str
    kernel: str
    library: str
    """Whose it is: ``XNNPACK`` or ``KleidiAI``."""
    feature: str
    """What it wants of the processor; ``scalar``: nothing."""


class Fallback(_Answer):
    """What the engine did otherwise than the program says, because that processor cannot."""

    where: str
    wanted: str
    used: str
    why: str


class Weights(_Answer):
    """Packed weights in memory: bytes, blocks, and how often and with how many bytes one was used again."""

    bytes: int
    blocks: int
    shared: int
    shared_bytes: int


class ProfileRow(_Answer):
    """An operator's executions under one provider, summed up."""

    name: str
    operator: str
    provider: str = ""
    count: int
    total_ms: float


class RunnerResult(_Answer):
    """What the runner measured; times in milliseconds, memory in bytes."""

    engine: EngineInfo
    method: str
    load_ms: float
    latency_ms: Latency
    peak_rss_bytes: int
    threads: int
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    backends: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """Settings of the engine that were in effect: providers and thread pools of ``onnxruntime``."""
    placement: Placement | None = None
    kernels: tuple[Kernel, ...] = ()
    """Of every matrix product, linear layer and convolution, from engines that tell."""
    fallbacks: tuple[Fallback, ...] = ()
    weights: Weights | None = None
    profile: tuple[ProfileRow, ...] = ()
    """By operator, the costliest first; empty when none was asked for."""


def command(
    runner: str,
    *,
    model: str,
    inputs: Sequence[str],
    shapes: str,
    method: str,
    executions: int,
    warmup: int,
    threads: int,
    etdump: bool,
    engine_flags: Sequence[str] = (),
) -> list[str]:
    """The runner's argv, to be run inside the run's folder.

    Args:
        model: the program's name there.
        engine_flags: those that only some engines have: ``--provider=cpu``.
    """
    argv = [
        runner,
        f"--model_path={model}",
        f"--json={RESULT}",
        f"--output_file={OUTPUT}",
        f"--method_name={method}",
        f"--num_executions={executions}",
        f"--warmup={warmup}",
    ]
    if inputs:
        argv.append(f"--inputs={','.join(inputs)}")
    if shapes:
        argv.append(f"--input_shapes={shapes}")
    if threads:
        argv.append(f"--cpu_threads={threads}")
    if etdump:
        argv.append(f"--etdump_path={ETDUMP}")
    return [*argv, *engine_flags]


def parse_result(raw: bytes) -> RunnerResult:
    """The runner's answer, checked.

    Raises:
        TransferError: it is none.
    """
    try:
        return RunnerResult.model_validate(json.loads(raw))
    except (ValueError, ValidationError) as error:
        raise TransferError("The runner's result cannot be read.", str(error)[:600], "./inv build --force") from error


def error_in(raw: bytes | str) -> dict[str, Any]:
    """The ``error`` object of a failed runner's JSON, or an empty one."""
    try:
        found = json.loads(raw)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


_CLASSES: dict[int, type[SlipwayError]] = {
    2: RunError, 3: ProgramError, 4: MissingOperatorError, 5: MissingOperatorError, 6: UsageError, 7: RunError,
    8: RunError, 9: RunError, 10: CrashError, 11: RunError,
}  # fmt: skip

_WHAT = {
    2: "The runner does not know one of its arguments",
    3: "The program cannot be loaded",
    4: "The bundle lacks operators of the program",
    5: "The bundle lacks a backend of the program",
    6: "The inputs do not fit the program",
    7: "The program failed while it ran",
    8: "The outputs could not be written",
    9: "Memory ran out",
    10: "The runner crashed",
    11: "The run reached a limit",
    126: "The runner is not allowed to run",
    127: "The runner, or the loader it names, is not there",
}

_SIGNALS = {
    signal.SIGILL: "illegal instruction: the bundle needs CPU features which this device lacks",
    signal.SIGKILL: "killed: most likely the device ran out of memory",
    signal.SIGSEGV: "segmentation fault: a defect of Slipway, of the engine or of the device",
    signal.SIGBUS: "bus error: memory of the device could not be read, or its disk failed",
    signal.SIGFPE: "division by zero: a defect of Slipway or of the engine",
    signal.SIGABRT: "aborted: a check inside the engine failed",
    signal.SIGTERM: "ended by someone on the device",
}
_SMALLER = "the same with --cpu-threads 1 and --num-executions 1"
_CRASHES = (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS)
_REPORT = "run it once more and on another device; if it crashes there too, report it with the program and this message"


def failure(code: int, stderr: str, answer: dict[str, Any], where: str) -> SlipwayError:
    """The error for a runner that ended with ``code`` (128 + n: signal n).

    Args:
        stderr: what it said last.
        answer: the ``error`` object of its JSON, if it got that far.
        where: completes "... on".
    """
    message = str(answer.get("message") or "").strip() or "\n".join(stderr.strip().splitlines()[-6:])
    fix = str(answer.get("fix") or "").strip()
    listed = answer.get("names")
    names = tuple(str(name) for name in listed) if isinstance(listed, list) else ()
    if code > 128:
        try:
            number = signal.Signals(code - 128)
        except ValueError:
            return RunError(f"The runner on {where} was ended by signal {code - 128}.", message)
        meaning = _SIGNALS.get(number, number.name)
        kind, advice = (CrashError, _REPORT) if number in _CRASHES else (RunError, _SMALLER)
        return kind(
            f"The runner on {where} was ended by {number.name}.",
            meaning + (f"; it said: {message}" if message else ""),
            "./inv targets, for what each target needs of a CPU" if number == signal.SIGILL else advice,
        )
    what = f"{_WHAT.get(code, 'The runner failed')} on {where} (exit {code})."
    if code == 8 and "space" in message.lower():
        return DeviceFullError(what, message, "free some space there, or set another root in devices.toml")
    return _CLASSES.get(code, RunError)(what, message, fix, names)
