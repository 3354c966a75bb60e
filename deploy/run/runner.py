"""The runner on the device: its command line, its answer, and the meaning of its exit codes."""

from __future__ import annotations

import signal
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from core import errors
from core.plain import one_line, plain_values, says
from core.strict_json import JsonError, parse_json, validated
from deploy.run.npy import RANK

RESULT = "result.json"
OUTPUT = "output"
"""Prefix of the output files."""
ETDUMP = "run.etdp"
VALUES = "run.values"
"""The tensors that the ETDump names."""
MODEL = "model"
"""The program's name in the run's folder, before its own suffix."""


RESULT_LIMIT = 16 << 20
"""Bytes of its JSON: a million times and the nodes of the largest graphs fit in."""
_MOST_OUTPUTS = 4096
_COUNT = 1 << 62

Count = Annotated[int, Field(ge=0, le=_COUNT)]
Milliseconds = Annotated[float, Field(ge=0, le=1e15)]


class _Answer(BaseModel):
    """A part of the runner's JSON; keys that this version does not know are kept for the result's file."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)


class EngineInfo(_Answer):
    """Which engine it was."""

    name: str
    version: str


class Latency(_Answer):
    """Milliseconds over the timed executions."""

    count: Count
    warmup: Count = 0
    min: Milliseconds
    p50: Milliseconds
    p90: Milliseconds
    p99: Milliseconds
    mean: Milliseconds


class Instructions(_Answer):
    """Instructions that the device counted: of programs, in each timed execution."""

    all: tuple[Count, ...] = Field(min_length=1)


class Tensor(_Answer):
    """An input or output: NumPy's dtype name, shape, and SHA-256 of its raw bytes."""

    dtype: str
    shape: tuple[Count, ...] = Field(max_length=RANK)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Placement(_Answer):
    """The providers on which the nodes of a graph ran."""

    coverage: dict[str, Count] = {}
    """Nodes by provider."""
    hints: tuple[str, ...] = ()
    """Advice to make it faster."""


class Kernel(_Answer):
    """The function that computes a layer on that processor."""

    node: str
    kernel: str
    library: str
    """The library of the function: ``XNNPACK`` or ``KleidiAI``."""
    feature: str
    """CPU features that it needs; ``scalar``: none."""


class Fallback(_Answer):
    """A change that the engine made to the program because the processor lacks a feature."""

    where: str
    wanted: str
    used: str
    why: str


class WeightsCache(_Answer):
    """The file of packed weights that the runner was given."""

    state: str
    """``used``: all was in it; ``made`` or ``extended``: it was written; ``none``: there is none now."""
    why: str = ""
    """Why it was made, or is not there."""
    found: Count = 0
    """Blocks that were found in it."""
    packing_load_ms: Milliseconds = 0.0
    """The load time of the run that packed them; 0 if this run did."""


class Weights(_Answer):
    """Packed weights."""

    cache: WeightsCache | None = None


class ProfileRow(_Answer):
    """An operator's executions under one provider, summed up."""

    name: str
    operator: str
    provider: str = ""
    count: Count
    total_ms: Milliseconds


class Generated(_Answer):
    """What a language model wrote after its prompt."""

    prompt_tokens: Count
    prompt_ms: Milliseconds
    """From the prompt's first token to the choice of the text's first."""
    tokens: tuple[Count, ...] = Field(min_length=1)
    token_ms: tuple[Milliseconds, ...] = ()
    """Of each token but the first."""
    ended: str = ""
    """Why it wrote no more: ``stop``, ``length`` or ``context``."""
    context: Count = 0
    """Tokens that the program's cache holds; 0: unknown."""


class FileDigest(_Answer):
    """SHA-256 of a file that ran, as the runner read it."""

    path: str
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Digests(_Answer):
    """Digests of the program and its files of weights; no files if they would have cost too much."""

    files: tuple[FileDigest, ...] = Field(default=(), max_length=_MOST_OUTPUTS)


class RunnerResult(_Answer):
    """What the runner measured; times in milliseconds, memory in bytes."""

    engine: EngineInfo
    method: str
    load_ms: Milliseconds
    latency_ms: Latency
    instructions: Instructions | None = None
    """``None`` unless requested, and where nothing counts them."""
    peak_rss_bytes: Count
    threads: Count
    inputs: tuple[Tensor, ...] = Field(max_length=_MOST_OUTPUTS)
    outputs: tuple[Tensor, ...] = Field(max_length=_MOST_OUTPUTS)
    backends: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    settings: dict[str, str] = {}
    """Settings of the engine that were in effect: providers and thread pools of ``onnxruntime``."""
    placement: Placement | None = None
    kernels: tuple[Kernel, ...] = ()
    """Kernels of every matrix product, linear layer and convolution, from engines that report them."""
    fallbacks: tuple[Fallback, ...] = ()
    weights: Weights | None = None
    generated: Generated | None = None
    digests: Digests | None = None
    """``None`` from runners that do not compute digests."""
    profile: tuple[ProfileRow, ...] = ()
    """By operator, the costliest first; empty unless requested."""


def parse_result(raw: bytes) -> RunnerResult:
    """The runner's answer, checked; texts in it are `plain`.

    Raises:
        AnswerError: it is not an answer of the runner.
    """
    try:
        return validated(RunnerResult, plain_values(parse_json(raw, limit=RESULT_LIMIT)))
    except JsonError as error:
        raise errors.AnswerError(
            "The runner's result cannot be read.", str(error)[:600], "./inv build --force"
        ) from error


def error_in(raw: bytes | str) -> dict[str, Any]:
    """The ``error`` object of a failed runner's JSON, or an empty one; texts in it are `plain`."""
    try:
        answer = parse_json(raw, limit=RESULT_LIMIT)
    except JsonError:
        return {}
    found = answer.get("error") if isinstance(answer, dict) else None
    return plain_values(found) if isinstance(found, dict) else {}


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

_EXITS: dict[int, tuple[type[errors.SlipwayError], str, str]] = {
    2: (errors.RunError, "The runner does not know one of its arguments",
        "./inv build --force, which makes the runner and what calls it one version again"),
    3: (errors.ProgramError, "The program cannot be loaded",
        "./inv export --model NAME --force, or a bundle of the engine that wrote the program"),
    4: (errors.MissingOperatorError, "The bundle lacks operators of the program",
        "./inv build with an engine that has them, or without --ops-from"),
    5: (errors.MissingOperatorError, "The bundle lacks a backend of the program",
        "export with a partitioner that the bundle has, or ./inv build with another engine"),
    6: (errors.UsageError, "The inputs do not fit the program", "--inputs as the program declares them"),
    7: (errors.RunError, "The program failed while it ran", _SMALLER),
    8: (errors.RunError, "The outputs could not be written", ""),
    9: (errors.RunError, "Memory ran out", "end other programs on the device, or a smaller model"),
    10: (errors.CrashError, "The runner crashed", _REPORT),
    11: (errors.RunError, "The run reached a limit", "a program that needs less; docs/runner.md says what is limited"),
    126: (errors.RunError, "The runner is not allowed to run", ""),
    127: (errors.RunError, "The runner, or the loader that it names, is missing", ""),
}  # fmt: skip
"""By the runner's exit code, with our advice: a device's own suggestion is shown as a quotation."""

_NAMES = 1000
"""Number of names that a device may list."""


def failure(
    code: int, stderr: str, answer: dict[str, Any], device_name: str, *, here: bool = False
) -> errors.SlipwayError:
    """The error for a runner that ended with ``code`` (128 + n: signal n).

    Args:
        answer: the ``error`` object of its JSON, if it wrote one.
        device_name: completes "... on".
        here: it ran on this machine from our own bundle, so that its advice is ours.
    """
    message = _text(answer, "message") or "\n".join(stderr.strip().splitlines()[-6:])
    fix = _text(answer, "fix")
    found = answer.get("names")
    listed = found[:_NAMES] if isinstance(found, list) else []
    names = tuple(one_line(name) for name in listed if isinstance(name, str))
    said = message if here else says(device_name, message)
    if fix and not here:
        said += f'\n{device_name} suggests: "{one_line(fix)}"' if said else says(device_name, fix)
    if code > 128:
        try:
            number = signal.Signals(code - 128)
        except ValueError:
            return errors.RunError(f"The runner on {device_name} was ended by signal {code - 128}.", said, _SMALLER)
        meaning = _SIGNALS.get(number, number.name)
        kind, advice = (errors.CrashError, _REPORT) if number in _CRASHES else (errors.RunError, _SMALLER)
        return kind(
            f"The runner on {device_name} was ended by {number.name}.",
            meaning + (f"; {said}" if said else ""),
            "./inv targets, for what each target needs of a CPU" if number == signal.SIGILL else advice,
        )
    error, failed, advice = _EXITS.get(code, (errors.RunError, "The runner failed", ""))
    what = f"{failed} on {device_name} (exit {code})."
    if code == 8 and "space" in message.lower():
        return errors.DeviceFullError(what, said, "free some space there, or set another root in devices.toml")
    return error(what, said, fix if here and fix else advice, names)


def _text(answer: dict[str, Any], name: str) -> str:
    """A text of the ``error`` object; empty if it is not a text."""
    found = answer.get(name)
    return found.strip() if isinstance(found, str) else ""
