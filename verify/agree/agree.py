"""What ``./inv self.agree`` does: run programs on the lean engine wherever it runs here, and compare with upstream's.

It is a sweep (`core.processes.sweep`). ``--update`` puts the counts into the table of ``docs/proofs.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pydantic import BaseModel, ConfigDict

from core import console
from core.errors import BundleError, ConfigError, HostError, MismatchError, NotSupportedError, UsageError
from core.formats.bundle import Bundle
from core.paths import bundle_dir
from core.processes import sweep as sweeping
from core.processes.sweep import Journal
from toolchains.emulation import platforms
from toolchains.targets import get_target, load_targets
from verify.agree import on_device
from verify.agree.kept import ZOO, Cell, Column, cell_name, of_zoo, places, publish, rows, summarize, text
from verify.agree.look import Executor, look
from verify.agree.programs import Compared, chosen, prepare, table

ENGINE = "lean"
ALL = "all"


def executors_for(target: str, cpu: str) -> list[Executor]:
    """The executors to compare: of one target, built if needed, or of every built target; on one CPU model or on all.

    Raises:
        UsageError: ``--cpu`` with all targets. ConfigError: unknown target or CPU model.
    """
    if target == ALL:
        if cpu:
            raise UsageError("--cpu goes with one target.", "every target has CPUs of its own", "./inv self.agree")
        return [executor for name in load_targets() for executor in _built(name)]
    from toolchains.bundle.builder import build

    cpus = places(get_target(target))
    if not cpus or cpu not in ("", *cpus):
        raise ConfigError(
            f"Programs for {target} are not run on {cpu!r}." if cpu else f"Nothing here runs programs for {target}.",
            f"CPU models are {', '.join(cpus)}" if cpus else get_target(target).proof,
            "./inv self.agree --target linux-arm64",
        )
    return _at(build(target, ENGINE), (cpu,) if cpu else cpus)


def _built(target: str) -> list[Executor]:
    cpus = places(get_target(target))
    try:
        return _at(Bundle.load(bundle_dir(target, ENGINE)), cpus) if cpus else []
    except BundleError as error:
        console.note(f"{target}: left out: {error.what} {error.hint}")
        return []


def _at(bundle: Bundle, cpus: Sequence[str]) -> list[Executor]:
    return [executor for cpu in cpus if (executor := _executor(bundle, cpu))]


def _executor(bundle: Bundle, cpu: str) -> Executor | None:
    """The bundle on a platform; ``None`` if this machine does not have that platform."""
    target = get_target(bundle.manifest.target)
    try:
        if cpu in on_device.DEVICES:
            return Executor.of(bundle, on_device.platform_of(target, cpu))
        return Executor.of(bundle, platforms.platform_for(target, cpu))
    except (HostError, NotSupportedError) as error:
        console.note(f"{bundle.manifest.target} on {cpu}: left out: {error.what} {error.cause}")
        return None


def _how(executor: Executor, features: Sequence[str]) -> str:
    """How programs ran there; on this machine's own x86, with the highest feature level that kernels use."""
    if (
        not features
        or executor.platform.cpu != platforms.NATIVE
        or executor.platform.target.machine not in ("x86_64", "i686")
    ):
        return executor.platform.how
    level = next((word for name, word in (("avx512f", "AVX512"), ("avx2", "AVX2")) if name in features), "SSE")
    return f"{executor.platform.how} ({level})"


class Compare(BaseModel):
    """A cell of the sweep: one program on one executor."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cell: Cell
    how: str
    """How it ran there."""


def journal() -> Journal[Compare]:
    """What was compared on this machine."""
    return Journal.of("agree", Compare)


def _compared(executor: Executor, program: Compared) -> Compare:
    seen = look(executor, program)
    return Compare(cell=seen.cell, how=_how(executor, seen.features))


def sweep(executors: Sequence[Executor], programs: Sequence[Compared], again: bool = False) -> list[Column]:
    """Compare all programs on all executors, cheap programs first.

    Raises:
        HostError: an emulator that runs programs here is missing.
    """
    cells = [
        sweeping.Cell(
            cell_name(executor.target, executor.platform.cpu, program.about.name),
            executor.cell_key(program),
            partial(_compared, executor, program),
        )
        for program in sorted(programs, key=lambda one: one.file.stat().st_size)
        for executor in executors
    ]
    sweeping.sweep("comparing", cells, journal(), again=again, remark=_remark)
    return found(executors, [program.about.name for program in programs])


def _remark(seen: Compare) -> str:
    return "" if seen.cell.good else f"{text(seen.cell)} {seen.cell.why}"


def found(executors: Sequence[Executor], names: Sequence[str]) -> list[Column]:
    """The last results of these executors and programs."""
    seen = dict(journal().all())
    columns = []
    for executor in executors:
        at = {name: seen.get(cell_name(executor.target, executor.platform.cpu, name)) for name in names}
        cells = {name: one.cell for name, one in at.items() if one}
        if cells:
            # A program that did not run says nothing of the CPU's features.
            hows = [one.how for one in at.values() if one and one.cell.good] or [executor.platform.how]
            how = hows[-1]
            columns.append(Column(target=executor.target, cpu=executor.platform.cpu, how=how, cells=cells))
    return columns


def run(target: str, cpu: str, expression: str, as_json: bool, update: bool, again: bool = False) -> None:
    """Compare programs on executors.

    Args:
        target: one, or `ALL`.
        cpu: one of its `places`; all when empty.
        expression: which programs, as `chosen` reads it.
        update: put the counts of places where all programs ran into the docs' table.
        again: run also cells that have a result.

    Raises:
        MismatchError: some do not agree.
    """
    from core.environment import ensure_export

    abouts = chosen(expression)
    executors = executors_for(target, cpu)
    ensure_export()
    programs = list(prepare(abouts))
    try:
        columns = sweep(executors, programs, again)
    finally:
        if update:
            publish(of_zoo(found(executors, list(table()))))
    show(columns, programs, as_json)
    wrong = [
        f"{name} on {one.target} {one.cpu}"
        for one in columns
        for name, cell in one.cells.items()
        if cell.outcome in ("differs", "failed")
    ]
    if wrong:
        count = sum(len(one.cells) for one in columns)
        raise MismatchError(
            f"{len(wrong)} of {count} comparisons do not agree with upstream's runtime.",
            ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else ""),
            "./inv self.agree --target TARGET --cpu CPU --program NAME",
            wrong,
        )


def show(columns: Sequence[Column], programs: Sequence[Compared], as_json: bool) -> None:
    """Print a table with a line for each program, or for each executor if there are many; or JSON."""
    if as_json:
        console.print_json(
            {
                "engine": ENGINE,
                "programs": {
                    one.about.name: {name: getattr(one, name) for name in ("kernels", "delegates", "allowed")}
                    for one in programs
                },
                "columns": [one.model_dump(mode="json") for one in columns],
            }
        )
        return
    heads = [f"{one.target} {one.cpu}" for one in columns]
    title = f"Engine {ENGINE} against upstream's runtime: the same bits, or the largest difference"
    if len(columns) <= 4:
        lines = []
        for one in programs:
            cells = [text(column.cells.get(one.about.name)) for column in columns]
            lines.append([one.about.name, f"{one.allowed:.1g}", *cells])
        console.table(title, ["program", "allowed", *heads], lines)
        return
    console.table(title, *rows(summarize({ZOO: [one.about.name for one in programs]}, columns)))
