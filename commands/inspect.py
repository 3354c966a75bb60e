"""``./inv inspect``: the operators of a run that ``./inv deploy --etdump`` made."""

from __future__ import annotations

import fnmatch
import glob
import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from commands.requests import Inspect
from core import console
from core.console import shown
from core.errors import ConfigError, NotSupportedError, ProgramError, UsageError, near
from core.files import sha256_file
from core.formats.program import DESCRIPTION, load_program
from core.paths import programs_dir, results_dir
from core.strict_json import JsonError, parse_json
from deploy.run.result import Result
from deploy.run.runner import ETDUMP, VALUES, Kernel
from models.inspection import dump
from models.inspection.dump import Execution, Part, parts
from models.inspection.origins import Origin
from models.inspection.origins import find as find_origins

_RECORD = "model.etrecord"


@dataclass(frozen=True)
class Source:
    """The files of a run."""

    dump: Path
    result: Result
    record: Path | None = None
    program: Path | None = None
    """The ``.pte``, if the one that ran is at hand."""
    values: Path | None = None
    """The tensors that the ETDump names."""


@dataclass(frozen=True)
class Times:
    """Milliseconds over several executions. A percentile is of the nearest rank: always a measured time."""

    count: int
    min: float
    p10: float
    p50: float
    p90: float
    max: float
    total: float

    @classmethod
    def of(cls, nanoseconds: Sequence[int]) -> Times | None:
        """The figures of at least one measured time."""
        if not nanoseconds:
            return None
        ordered = sorted(each / 1e6 for each in nanoseconds)

        def quantile(share: float) -> float:
            return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        return cls(len(ordered), ordered[0], quantile(0.1), quantile(0.5), quantile(0.9), ordered[-1], sum(ordered))


@dataclass(frozen=True)
class Row:
    """An operator at one place of the program."""

    name: str
    """As in a profile: ``Fully Connected (NC, F32) GEMM #1 @3``; the number behind ``@`` is the instruction."""
    operator: str
    provider: str
    """``XnnpackBackend``, ``portable``, or ``runtime`` for the time around operators."""
    instruction: int
    count: int
    """Timed calls of it."""
    times: Times | None
    """``None`` if it ran only in warm-up executions, and on an emulated device."""
    warmup: Times | None
    share: float | None
    """Of the time of all timed executions, 0 to 1."""
    origin: Origin | None
    kernel: Kernel | None

    @property
    def delegated(self) -> bool:
        """Whether a delegate ran it."""
        return self.provider not in ("portable", "runtime")

    @property
    def words(self) -> tuple[str, ...]:
        """What a filter looks at."""
        origin = self.origin or Origin()
        kernel = (self.kernel.kernel, self.kernel.library) if self.kernel else ()
        inside = "delegated" if self.delegated else "undelegated"
        return (self.name, self.provider, inside, *origin.operators, origin.module, origin.source, *kernel)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``; times in milliseconds."""
        one = self.kernel
        kernel = one and {"name": one.kernel, "library": one.library, "feature": one.feature}
        return {**asdict(self), "kernel": kernel, "delegated": self.delegated}


def rows(
    executions: Sequence[Execution],
    timed: int,
    origins: Mapping[tuple[int, str], Origin],
    kernels: Sequence[Kernel],
    *,
    emulated: bool = False,
) -> tuple[Row, ...]:
    """One row for each operator, in the order in which they first ran.

    Args:
        timed: how many executions at the end are timed; those before them are warm-up.
    """
    kernel_of = {one.node: one for one in kernels}
    first = len(executions) - timed
    spent: dict[str, tuple[list[int], list[int]]] = {}
    seen: dict[str, Part] = {}
    for number, execution in enumerate(executions):
        for part in parts(execution):
            spent.setdefault(part.row, ([], []))[number >= first].append(part.own)
            seen.setdefault(part.row, part)
    whole = sum(sum(warm) for _, warm in spent.values())
    found = []
    for name, part in seen.items():
        cold, warm = ([], []) if emulated else spent[name]
        event, share = part.event, sum(warm) / whole if whole and not emulated else None
        of = event.name if event.delegated or part.provider == "runtime" else part.operator
        origin = None if name == event.name else origins.get((event.instruction, of))
        found.append(
            Row(
                name, part.operator, part.provider, event.instruction, len(spent[name][1]), Times.of(warm),
                Times.of(cold), share, origin, kernel_of.get(name),
            )
        )  # fmt: skip
    return tuple(found)


def contains(texts: Sequence[str], patterns: Sequence[str]) -> bool:
    """Whether a word contains one of the patterns, or matches one with ``*``; upper case is lower case."""
    words = [word.lower() for word in texts]
    return not patterns or any(
        fnmatch.fnmatchcase(word, pattern.lower() if "*" in pattern else f"*{glob.escape(pattern.lower())}*")
        for pattern in patterns
        for word in words
    )


_FIGURES = ("min", "p10", "p50", "p90", "max")
_MODULES = 3
_PLACE = ("module", "line", "kernel")


def _figures(times: Times | None, names: Sequence[str]) -> list[str]:
    """In microseconds."""
    return [f"{getattr(times, name) * 1e3:.1f}" if times else "" for name in names]


def _place(row: Row) -> list[str]:
    """For a table: some of a delegate's modules, the file's name without its folders, and the kernel."""
    origin = row.origin or Origin()
    module = (origin.module + ("" if origin.sure else " ?")).strip()
    several = module.split(", ")
    if len(several) > _MODULES:
        module = f"{', '.join(several[:_MODULES])} and {len(several) - _MODULES} more"
    return [module, origin.source.rpartition("/")[2], row.kernel.kernel if row.kernel else ""]


def _cells(row: Row, times: bool) -> list[str]:
    cells = [row.name, row.provider.removesuffix("Backend"), *_place(row), str(row.count)]
    if times:
        cells += [*_figures(row.times, _FIGURES), "" if row.share is None else f"{100 * row.share:.1f}"]
        cells += _figures(row.warmup, ["p50"])
    return cells


@dataclass(frozen=True)
class Run:
    """A run, read."""

    source: Source
    executions: tuple[Execution, ...]
    timed: int
    rows: tuple[Row, ...]
    notes: list[str] = field(default_factory=list)

    @property
    def facts(self) -> dict[str, Any]:
        """For JSON."""
        result = self.source.result
        return {
            "run": result.key,
            "etdump": str(self.source.dump),
            "etrecord": str(self.source.record) if self.source.record else None,
            "engine": result.bundle.engine,
            "device": result.device,
            "program": result.program.name,
            "sha256": result.program.sha256,
            "emulated": result.emulated,
            "executions": {"timed": self.timed, "warmup": len(self.executions) - self.timed},
            "notes": self.notes,
        }


def run(request: Inspect) -> None:
    """Print a run's operators: those that took longest first; without times, in the order in which they ran.

    Raises:
        SlipwayError: no such run, a run without ETDump, a damaged file, an ETRecord of another program.
    """
    patterns = request.only.replace(",", " ").split()
    found = read(find(request.run, Path(request.etrecord) if request.etrecord else None))
    some = sorted((row for row in found.rows if contains(row.words, patterns)), key=lambda row: -(row.share or 0.0))
    if request.json:
        console.print_json({**found.facts, "rows": [row.to_json() for row in some]})
        return
    times = not found.source.result.emulated
    console.table(
        f"{found.source.result.key}: operators" + (", times in µs" if times else ""),
        ["operator", "in", *_PLACE, "count", *([*_FIGURES, "%", "warm-up"] if times else [])],
        [_cells(row, times) for row in some],
        _caption(found, len(some)),
        optional=("p10", "min", "max", "warm-up", "in", "count", "kernel", "p90", "module"),
    )


def find(name: str, record: Path | None) -> Source:
    """The files of the run that ``name`` means: a result's name or file, its folder, or its ETDump.

    Args:
        record: the ETRecord to take instead of the program's own.

    Raises:
        ConfigError: there is no such run. UsageError: it has no ETDump. NotSupportedError: it never has one.
    """
    if not name.strip():
        raise UsageError("No run is named.", "", "./inv inspect local-mlp-fp32-lean, after a deploy with --etdump")
    path = Path(name)
    if record is not None and not record.is_file():
        raise ConfigError(f"There is no ETRecord {record}.", "", "--etrecord dist/programs/NAME/model.etrecord")
    folder = path.parent if path.name == ETDUMP else path
    if folder.is_dir():
        path = folder.resolve().parent / f"{folder.resolve().name}.json"
    elif not path.is_file():
        path = results_dir() / f"{name.removesuffix('.json')}.json"
    if not path.is_file():
        raise ConfigError(f"There is no run {name}.", _near(name), "./inv deploy --etdump, then ./inv inspect NAME")
    return _of_result(path, record)


def _near(name: str) -> str:
    """What there is instead."""
    there = sorted(path.stem for path in results_dir().glob("*.json"))
    some = near(Path(name).stem, there, 3, 0.3) or there[:5]
    return f"{shown(results_dir())} has {', '.join(some)}" if some else f"{shown(results_dir())} has no results yet"


def _of_result(path: Path, record: Path | None) -> Source:
    try:
        result = Result.model_validate(parse_json(path.read_bytes()))
    except (JsonError, ValueError) as error:
        raise ConfigError(
            f"{shown(path)} is not the result of a run.", str(error)[:300], "./inv deploy --etdump"
        ) from error
    again = deploy_again(result)
    if result.bundle.engine == "onnxruntime":
        raise NotSupportedError(
            f"{path.stem} has no ETDump.",
            "ONNX Runtime records a profile of its own form",
            again.replace("--etdump", "--profile"),
        )
    kept = next((name for name in result.files if Path(name).name == ETDUMP), "")
    if not kept:
        raise UsageError(f"{path.stem} has no profile.", "it was deployed without --etdump", again)
    latest = path.parent
    if latest.name == "history":
        latest = latest.parent
        now = latest / f"{result.key}.json"
        if not now.is_file() or parse_json(now.read_bytes()).get("created") != result.created:
            raise UsageError(f"The ETDump of {path.stem} is gone.", "a later run has replaced it", again)
    if not (latest / kept).is_file():
        raise UsageError(f"The profile of {path.stem} is gone.", f"{shown(latest / kept)} was removed", again)
    own = programs_dir() / result.program.name / _RECORD
    if record is None and own.is_file():
        record = own
    values = next((latest / name for name in result.files if Path(name).name == VALUES), None)
    return Source(latest / kept, result, record, _beside(record, result.program.sha256), values)


def _beside(record: Path | None, sha256: str) -> Path | None:
    """The program beside an ETRecord, if it is the one that ran.

    Args:
        sha256: of the program that ran.

    Raises:
        ProgramError: the ETRecord is of another program.
    """
    if record is None or not (record.parent / DESCRIPTION).is_file():
        return None
    program = load_program(record.parent, verify=False)
    file = record.parent / program.file
    if program.sha256 != sha256:
        raise ProgramError(
            f"{shown(record)} is the ETRecord of another program.",
            f"the run's program has the SHA-256 {sha256[:12]}…, this one {program.sha256[:12]}…: "
            "it was exported again since, or is another model",
            "the deploy again, or --etrecord FILE",
        )
    return file if file.is_file() and sha256_file(file) == program.sha256 else None


def deploy_again(result: Result) -> str:
    """The command that makes this result again, with an ETDump."""
    program = result.program
    what = ["--model", program.model, "--scheme", program.scheme] if program.model else ["--model", program.file]
    words = ["./inv", "deploy", "--device", result.device, *what, "--engine", result.bundle.engine, "--etdump"]
    return shlex.join(words)


def read(source: Source) -> Run:
    """Read a run with upstream's readers, which are installed first if they are missing.

    Raises:
        AnswerError: the ETDump is damaged. ProgramError: the ETRecord is damaged, or of another program.
    """
    from core.environment import ensure_export

    dump.check(source.dump.read_bytes(), shown(source.dump))
    ensure_export()
    from models.lowering.progress import Stages, log_path, quiet

    result, runner = source.result, source.result.runner
    notes = []
    origins = {}
    with quiet(log_path("inspect")) as terminal, closing(Stages(result.key, terminal)) as stages:
        stages.show("reading the ETDump")
        executions = dump.read(source.dump)
        if source.record is None:
            notes.append("without an ETRecord (--etrecord FILE), modules and lines are unknown")
        elif result.program.method != "forward":
            notes.append(f"an ETRecord has the modules of the method forward only, not of {result.program.method}")
        else:
            stages.show("reading the ETRecord")
            origins = find_origins(executions, source.record, source.program)
            if source.program is None:
                notes.append("without the program beside the ETRecord, operators in delegates have no module")
    timed = min(runner.latency_ms.count, len(executions))
    found = rows(executions, timed, origins, runner.kernels, emulated=result.emulated)
    return Run(source, executions, timed, found, notes)


def _caption(found: Run, count: int) -> str:
    warmup = len(found.executions) - found.timed
    parts = [f"{count} of {len(found.rows)} rows", f"{found.timed} timed execution" + "s" * (found.timed != 1)]
    if found.source.result.emulated:
        parts.append("emulated: times are not shown, because they are the emulator's")
    elif warmup:
        parts.append(f"{warmup} before them are apart (warm-up: their median)")
    if any(row.origin and not row.origin.sure for row in found.rows):
        parts.append("?: the delegate has fused nodes, so this module is likely, not certain")
    return "; ".join([*parts, *found.notes])
