"""``./inv inspect``: the operators of a run that ``./inv deploy --etdump`` made."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.requests import Inspect
from core.console import shown
from core.errors import ConfigError, MismatchError, NotSupportedError, ProgramError, UsageError, near
from core.files import sha256_file
from core.formats.program import DESCRIPTION, load_program
from core.paths import programs_dir, results_dir
from core.strict_json import JsonError, parse_json
from deploy.run.result import Result
from deploy.run.runner import ETDUMP, VALUES

if TYPE_CHECKING:
    from models.inspection.dump import Execution
    from models.inspection.report import Row
    from models.inspection.values import Gap

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

    @property
    def name(self) -> str:
        """For titles."""
        return self.result.key

    @property
    def emulated(self) -> bool:
        """Whether its times say nothing about speed."""
        return self.result.emulated


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
            "run": self.source.name,
            "etdump": str(self.source.dump),
            "etrecord": str(self.source.record) if self.source.record else None,
            "engine": result.bundle.engine,
            "device": result.device,
            "program": result.program.name,
            "sha256": result.program.sha256,
            "emulated": self.source.emulated,
            "executions": {"timed": self.timed, "warmup": len(self.executions) - self.timed},
            "notes": self.notes,
        }


def run(request: Inspect) -> None:
    """Print a run's operators: those that took longest first; without times, in the order in which they ran.

    Raises:
        SlipwayError: no such run, a run without ETDump, a damaged file, an ETRecord of another program.
    """
    patterns = request.only.replace(",", " ").split()
    source = find(request.run, Path(request.etrecord) if request.etrecord else None)
    if request.values:
        _values(request, source, patterns)
        return
    _print(request, read(source), patterns)


def _print(request: Inspect, first: Run, patterns: list[str]) -> None:
    from models.inspection import report
    from models.inspection.report import matches

    rows = sorted((row for row in first.rows if matches(row, patterns)), key=lambda row: -(row.share or 0.0))
    caption = _caption(first, len(rows))
    report.show(request.json, rows, _title(first), caption, first.facts, times=not first.source.emulated)


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
    again = _deploy(result)
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


def _never_written(source: Source) -> bool:
    """Whether the run's program has no ETRecord because upstream could not write it."""
    folder = programs_dir() / source.result.program.name
    return (folder / DESCRIPTION).is_file() and not load_program(folder, verify=False).etrecord


def _deploy(result: Result) -> str:
    """The command that makes this result again, with an ETDump."""
    program = result.program
    what = ["--model", program.model, "--scheme", program.scheme] if program.model else ["--model", program.file]
    words = ["./inv", "deploy", "--device", result.device, *what, "--engine", result.bundle.engine, "--etdump"]
    return shlex.join(words)


def read(source: Source) -> Run:
    """Read a run with upstream's Inspector, which is installed first if it is missing.

    Raises:
        AnswerError: the ETDump is damaged. ProgramError: the ETRecord is damaged, or of another program.
    """
    from core.environment import ensure_export
    from models.inspection import dump

    dump.check(source.dump.read_bytes(), shown(source.dump))
    ensure_export()
    from models.inspection.origins import find as find_origins
    from models.inspection.report import Kernel, rows
    from models.lowering.progress import Stages, log_path, quiet

    runner, method = source.result.runner, source.result.program.method
    notes = []
    origins = {}
    with quiet(log_path("inspect")) as terminal:
        stages = Stages(source.name, terminal)
        try:
            stages.show("reading the ETDump")
            executions = dump.read(source.dump)
            if source.record is None:
                notes.append("without an ETRecord (--etrecord FILE), modules and lines are unknown")
            elif method != "forward":
                notes.append(f"upstream's Inspector finds modules of the method forward only, not of {method}")
            else:
                stages.show("reading the ETRecord")
                origins = find_origins(source.dump, executions, source.record, source.program)
                if source.program is None:
                    notes.append("without the program beside the ETRecord, operators in delegates have no module")
        finally:
            stages.close()
    timed = min(runner.latency_ms.count, len(executions))
    kernels = {one.node: Kernel(one.kernel, one.library, one.feature) for one in runner.kernels}
    found = rows(executions, timed, origins, kernels, emulated=source.emulated)
    return Run(source, executions, timed, found, notes)


def _title(found: Run) -> str:
    return f"{found.source.name}: operators" + (", times in µs" if not found.source.emulated else "")


def _caption(found: Run, count: int) -> str:
    warmup = len(found.executions) - found.timed
    parts = [f"{count} of {len(found.rows)} rows", f"{found.timed} timed execution" + "s" * (found.timed != 1)]
    if found.source.emulated:
        parts.append("emulated: times are not shown, because they are the emulator's")
    elif warmup:
        parts.append(f"{warmup} before them are apart (warm-up: their median)")
    if any(row.origin and not row.origin.sure for row in found.rows):
        parts.append("?: the delegate has fused nodes, so this module is likely, not certain")
    return "; ".join([*parts, *found.notes])


def _values(request: Inspect, source: Source, patterns: list[str]) -> None:
    """Print how far each operator is from PyTorch; then raise `MismatchError` if one is beyond its tolerance."""
    from models.inspection import report
    from models.inspection.report import contains

    gaps = gaps_of(source)
    wrong = [gap for gap in gaps if not gap.ok]
    shown_gaps = [gap for gap in gaps if contains((gap.name, gap.origin.module, gap.origin.source), patterns)]
    facts = {"run": source.name, "first": wrong[0].name if wrong else None}
    report.gaps(request.json, shown_gaps, source.name, len(gaps), facts)
    if wrong:
        first = wrong[0]
        raise MismatchError(
            f"{first.name} is the first operator beyond its tolerance: {first.origin.module or 'no module'}, "
            f"{first.origin.source or 'no line'}.",
            f"its relative error is {first.error:.3g}, and {first.limit:.3g} is allowed; "
            f"{len(wrong)} of {len(gaps)} operators are beyond theirs, also those that only compute with wrong inputs",
            "look at its weights, and at its scheme with ./inv export",
            [gap.name for gap in wrong],
        )


def gaps_of(source: Source) -> tuple[Gap, ...]:
    """How far each operator of a run is from PyTorch.

    Raises:
        UsageError: the run has no values, or there is no ETRecord. ProgramError, AnswerError: as `read`.
    """
    from core.environment import ensure_export

    again = _deploy(source.result)
    if source.values is None:
        raise UsageError(
            f"{source.name} has no intermediate values.",
            "it was deployed without --values",
            again.replace("--etdump", "--values"),
        )
    if source.record is None:
        never = _never_written(source)
        raise UsageError(
            f"The ETRecord of {source.name} is not known.",
            f"PyTorch's values come from it{', and upstream could not write it for this program' if never else ''}",
            f"./inv inspect {source.name}, for operators and their times" if never else "--etrecord FILE",
        )
    if source.result.program.method != "forward":
        raise NotSupportedError(
            "Only values of the method forward are compared.",
            "ETRecords have the inputs of that one only",
            again.replace("--etdump", "--values --method forward"),
        )
    from models.inspection import dump
    from models.lowering.progress import Stages, log_path, quiet

    dump.check(source.dump.read_bytes(), shown(source.dump))
    ensure_export()
    with quiet(log_path("inspect")) as terminal:
        stages = Stages(source.name, terminal)
        try:
            stages.show("reading the values")
            given = dump.values(source.dump, source.values)
            executions = dump.read(source.dump)
            from models.inspection.origins import check, load
            from models.inspection.values import compare

            check(executions, load(source.record), source.record)
            stages.show("computing with PyTorch")
            gaps = compare(given, dump.names(executions), source.record, source.program)
        finally:
            stages.close()
    if not gaps:
        raise NotSupportedError(
            f"{source.name} has no value of an operator to compare.",
            "upstream's ETDump keeps no float16, and the engine executorch no values inside of delegates",
            again.replace("--etdump", "--values").replace("--engine executorch", "--engine lean"),
        )
    return gaps
