"""The results of a matrix, as ``matrix.json`` keeps them; and one cell, as the journal keeps it meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError

from core.console.units import elapsed
from core.errors import ConfigError, SlipwayError
from core.files import sha256_bytes, sha256_file
from core.formats.bundle import Bundle
from core.formats.program import load_program
from core.strict_json import parse_json
from deploy.matrix.plan import Cell
from deploy.run.compare import Kept
from deploy.run.generate import speeds
from deploy.run.needs import bundle_digest
from deploy.run.result import Result, tolerance_text
from deploy.run.settings import Settings

Outcome = Literal["passed", "differs", "failed", "not run"]
"""``differs``: it ran, and an output differs from the reference. ``failed``: an earlier step failed."""


PATIENCE = ("timeout", "wait", "retries")
"""Settings that decide whether there is a result, not what it is."""
LARGE = 256 << 20
"""Bytes of a matrix or a baseline at most."""


class Problem(Kept):
    """An error, as every command's ``--json`` has it."""

    error: str
    exit_code: int
    what: str
    cause: str = ""
    hint: str = Field(default="", alias="try")
    names: tuple[str, ...] = ()

    model_config = ConfigDict(populate_by_name=True, serialize_by_alias=True)

    @classmethod
    def of(cls, error: SlipwayError) -> Problem:
        """From an error that was caught."""
        return cls.model_validate(error.to_json())

    def short(self, program: str) -> str:
        """What happened and the first line of the cause, without the name of the program."""
        return f"{self.what.removeprefix(f'{program}: ')} {self.cause.partition(chr(10))[0]}".strip()


class Times(Kept):
    """Milliseconds over the timed executions."""

    count: int
    warmup: int
    load: float
    min: float
    p50: float
    p90: float
    p99: float
    mean: float


class Round(Kept):
    """One process of a cell on a real device. The rounds of all cells take turns."""

    p50: float
    """Milliseconds, as ``min``."""
    min: float
    load: float | None = None
    """The device's load average of one minute before it; ``None``: unknown."""
    hottest_c: float | None = None
    """Degrees Celsius of its warmest zone before it."""


class Output(Kept):
    """One output: its digest, and its difference from the reference."""

    name: str
    sha256: str
    verdict: str
    max_abs: float | None = None
    tolerance: str = ""
    atol: float | None = None


class CellResult(Kept):
    """One cell of the matrix. Sizes in bytes."""

    key: str
    """``pi/linux-arm64/lean/mlp-qs8``."""
    inputs: str = ""
    """Digest of everything that decides the result: bundle, program, reference, device, settings."""
    reused: bool = False
    """Whether an earlier run left it, and this one found nothing changed."""
    device: str
    title: str = ""
    tags: tuple[str, ...] = ()
    target: str
    engine: str
    engine_version: str = ""
    program: str
    model: str
    scheme: str
    emulated: bool
    outcome: Outcome
    problem: Problem | None = None
    created: str = ""
    """UTC, ISO 8601."""
    seconds: float = 0.0
    """Wall time of the deploy, all its steps."""
    attempts: int = 0
    latency: Times | None = None
    """Of a real device only; with several rounds, of one near their median."""
    rounds: tuple[Round, ...] = ()
    emulated_time: Times | None = None
    """Of an emulated device only: it is not a latency figure."""
    throttled: tuple[str, ...] = ()
    """Signs that the device throttled itself: then its latency is ignored."""
    cpu: str = ""
    board: str = ""
    kernel: str = ""
    governor: str = ""
    threads: int = 0
    program_bytes: int = 0
    program_sha256: str = ""
    bundle_bytes: int = 0
    bundle_digest: str = ""
    uploaded_bytes: int = 0
    peak_rss_bytes: int = 0
    outputs: tuple[Output, ...] = ()
    pace: dict[str, float] = Field(default_factory=dict)
    """Of a language model on a real device: tokens a second that it reads and writes, ``pp128`` and ``tg32``."""

    @property
    def max_abs(self) -> float | None:
        """Largest error of any output."""
        return max((output.max_abs for output in self.outputs if output.max_abs is not None), default=None)


class Impossible(Kept):
    """A combination that was selected and cannot be run."""

    key: str
    device: str
    target: str
    engine: str
    program: str
    why: str

    @classmethod
    def of(cls, cell: Cell) -> Impossible:
        """From a cell of the plan."""
        return cls(key=cell.key, device=cell.device.name, target=cell.target, engine=cell.engine,
                   program=cell.program.name, why=cell.why_not)  # fmt: skip


class Change(Kept):
    """A figure against the baseline's."""

    key: str
    what: str
    """``latency p50``, ``program size``, ``error of output0``, ``digest of output0``."""
    before: str
    now: str
    ratio: float | None = None
    verdict: Literal["worse", "better", "same", "cannot tell", "not compared"]
    """``cannot tell``: it looks worse, and the measurement does not show that it is."""
    why: str = ""


class Matrix(Kept):
    """All of it."""

    schema_version: Literal[1] = 1
    name: str
    only: str = ""
    created: str
    finished: str
    seconds: float
    """Of a merged matrix: the sum over its jobs."""
    jobs: int = 1
    """Matrices of jobs that were merged into it."""
    interrupted: bool = False
    command: str = ""
    commit: str = ""
    """Of the folder where it was typed, as ``git describe`` has it; empty outside a repository."""
    host: str = ""
    """The machine that ran the matrix: name, processor cores, system."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Executions, warm-up, threads and other settings, as requested."""
    cells: tuple[CellResult, ...]
    impossible: tuple[Impossible, ...] = ()
    baseline: str = ""
    """The baseline's file name; empty without one."""
    threshold: float | None = None
    """The fraction by which a figure may be worse than the baseline."""
    changes: tuple[Change, ...] = ()
    shard: str = ""
    """``2/5``: the second part of five of what `plan` is the digest of; empty if it is all of it."""
    plan: str = ""

    @property
    def took(self) -> str:
        """How long it ran, for people; jobs may have run side by side."""
        return elapsed(self.seconds) + (f" (sum over {self.jobs} jobs)" if self.jobs > 1 else "")

    @property
    def failures(self) -> list[CellResult]:
        """Cells that ran and did not pass."""
        return [cell for cell in self.cells if cell.outcome in {"differs", "failed"}]

    @property
    def regressions(self) -> list[Change]:
        """Figures worse than the baseline allows."""
        return [change for change in self.changes if change.verdict == "worse"]

    @property
    def uncertain(self) -> list[Change]:
        """Figures that look worse than the baseline allows, and may not be."""
        return [change for change in self.changes if change.verdict == "cannot tell"]


def load_matrix(path: Path) -> Matrix:
    """Read a ``matrix.json``; a baseline is one, too.

    Raises:
        ConfigError: it is not a matrix.
    """
    try:
        return Matrix.model_validate(parse_json(path.read_bytes(), limit=LARGE))
    except (OSError, ValueError, ValidationError) as error:
        what = f"There is no {path}." if isinstance(error, FileNotFoundError) else f"{path} is not a matrix."
        hint = "./inv matrix writes one to dist/matrix, and with --save-baseline to a file of another name"
        raise ConfigError(what, str(error), hint) from error


def inputs_of(cell: Cell, bundle: Bundle, path: Path, settings: Settings) -> str:
    """Digest of everything that decides the cell's result."""
    facts = {
        "bundle": bundle_digest(bundle),
        "device": cell.device.model_dump(mode="json", exclude={"title", "tags", "fixtures", "targets", "timeout"}),
        "settings": settings.model_dump(mode="json", exclude={*PATIENCE, "text"}),
    }
    if not cell.program.text:
        program = load_program(path, verify=False)
        facts["program"] = program.model_dump(mode="json", exclude={"seconds", "depends"})
        path = path / program.file
    facts["file"] = sha256_file(path)
    return sha256_bytes(json.dumps(facts, sort_keys=True).encode())


def unfilled(cell: Cell, outcome: Outcome = "not run", error: Problem | None = None, **known: Any) -> CellResult:
    """A cell without a run: not reached, or its bundle, its program or its deploy failed."""
    return CellResult(
        key=cell.key, device=cell.device.name, title=cell.device.title, tags=cell.device.tags, target=cell.target,
        engine=cell.engine, program=cell.program.name, model=cell.program.model, scheme=cell.program.scheme,
        emulated=cell.device.emulated, outcome=outcome, problem=error, **known,
    )  # fmt: skip


def filled(cell: Cell, bundle: Bundle, result: Result, inputs: str) -> CellResult:
    """A cell from the result of its run."""
    latency, before = result.runner.latency_ms, result.conditions.before
    times = Times(load=result.runner.load_ms, **latency.model_dump(include=set(Times.model_fields)))
    measured = Round(p50=times.p50, min=times.min, load=before.load1, hottest_c=before.hottest_c)
    digests = [tensor.sha256 for tensor in result.runner.outputs]
    outputs = tuple(
        Output(
            name=output.name,
            sha256=digests[index] if index < len(digests) else "",
            verdict=output.verdict,
            max_abs=output.max_abs,
            tolerance=tolerance_text(output),
            atol=output.tolerance.atol if output.tolerance else None,
        )
        for index, output in enumerate(result.outputs)
    )
    problem = None
    try:
        result.check()
    except SlipwayError as error:
        problem = Problem.of(error)
    return unfilled(
        cell, "differs" if problem else "passed", problem, inputs=inputs, created=result.created,
        engine_version=result.bundle.engine_version, seconds=round(sum(result.seconds.values()), 3),
        attempts=result.attempts, latency=None if result.emulated else times,
        rounds=() if result.emulated else (measured,),
        emulated_time=times if result.emulated else None, throttled=result.conditions.throttled,
        cpu=result.facts.cpu, board=result.facts.board, kernel=result.facts.kernel,
        governor=", ".join(result.conditions.after.governors),
        threads=result.runner.threads, program_bytes=result.program.size, program_sha256=result.program.sha256,
        bundle_bytes=sum(entry.size for entry in bundle.manifest.files), bundle_digest=result.bundle.digest,
        uploaded_bytes=result.upload.bytes, peak_rss_bytes=result.runner.peak_rss_bytes, outputs=outputs,
        pace=speeds(result.runner.generated) if result.runner.generated and not result.emulated else {},
    )  # fmt: skip


def joined(cell: CellResult, again: CellResult) -> CellResult:
    """A cell with one more round. If that failed or its outputs differ, so does the cell."""
    if again.outcome != "passed" or again.latency is None or cell.latency is None:
        return again
    rounds = (*cell.rounds, *again.rounds)
    middle = sorted(each.p50 for each in rounds)[(len(rounds) - 1) // 2]
    nearest = min((cell.latency, again.latency), key=lambda times: abs(times.p50 - middle))
    return cell.model_copy(
        update={
            "rounds": rounds, "latency": nearest, "seconds": round(cell.seconds + again.seconds, 3),
            "throttled": tuple(dict.fromkeys((*cell.throttled, *again.throttled))), "reused": False,
            "peak_rss_bytes": max(cell.peak_rss_bytes, again.peak_rss_bytes),
        }
    )  # fmt: skip


AWAY = ("unreachable", "authentication", "host-key")
"""Errors of the device, not of the cell."""
