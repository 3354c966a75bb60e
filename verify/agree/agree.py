"""What ``./inv self.agree`` does: run programs on the lean engine wherever it runs here, and compare with upstream's.

It is a sweep (`core.processes.sweep`). ``--update`` puts the counts into the table of ``docs/proofs.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from commands.own import Agree
from core import console
from core.errors import BundleError, ConfigError, HostError, MismatchError, NotSupportedError, UsageError
from core.formats.bundle import Bundle
from core.paths import build_dir
from core.processes.sweep import Cell as Work
from core.processes.sweep import Journal, sweep
from toolchains.emulation import platforms
from toolchains.targets import get_target, load_targets
from verify.agree import sound
from verify.agree.kept import ZOO, Column, Families, counts, publish, text
from verify.agree.look import Executor, look
from verify.agree.programs import Cell, Compared, chosen, prepare, table

ENGINE = "lean"
ALL = "all"
MANY = 80
"""Programs, above which a table counts them."""


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

    cpus = platforms.cpus(get_target(target))
    if not cpus or cpu not in ("", *cpus):
        raise ConfigError(
            f"Programs for {target} are not run on {cpu!r}." if cpu else f"Nothing here runs programs for {target}.",
            f"CPU models are {', '.join(cpus)}" if cpus else get_target(target).proof,
            "./inv self.agree --target linux-arm64",
        )
    return _at(build(target, ENGINE), (cpu,) if cpu else cpus)


def _built(target: str) -> list[Executor]:
    cpus = platforms.cpus(get_target(target))
    try:
        return _at(Bundle.load(build_dir(target, ENGINE)), cpus) if cpus else []
    except BundleError as error:
        console.note(f"{target}: left out: {error.what} {error.hint}")
        return []


def _at(bundle: Bundle, cpus: Sequence[str]) -> list[Executor]:
    return [executor for cpu in cpus if (executor := _executor(bundle, cpu))]


def _executor(bundle: Bundle, cpu: str) -> Executor | None:
    """The bundle on a platform; ``None`` if this machine does not have that platform."""
    target = get_target(bundle.manifest.target)
    try:
        return Executor.of(bundle, platforms.platform_for(target, cpu))
    except (HostError, NotSupportedError) as error:
        console.note(f"{bundle.manifest.target} on {cpu}: left out: {error.what} {error.cause}")
        return None


@dataclass(frozen=True)
class Subject:
    """What is compared, and the families that it counts in."""

    programs: Sequence[Compared]
    look: Callable[[Executor, Any], Cell]
    families: Families
    journal: str
    """Its name."""
    again: str
    """The command that compares one of them."""


def of_zoo(programs: Sequence[Compared]) -> Subject:
    """Programs of the zoo and the architectures, cheap ones first."""
    ordered = sorted(programs, key=lambda one: one.file.stat().st_size)
    return Subject(ordered, look, {ZOO: list(table())}, "agree", "./inv self.agree")


def of_sound(chosen: Sequence[str]) -> Subject:
    """Sound programs of ours."""
    cases = [case for made in sound.collect(chosen).values() for case in made]
    return Subject(cases, sound.look_at, sound.families(chosen, cases), "sound", "./inv self.agree --sound")


def _name(executor: Executor, program: str) -> str:
    return f"{executor.platform.target.name} {executor.platform.cpu}: {program}"


def compare(subject: Subject, executors: Sequence[Executor]) -> list[Column]:
    """Compare all programs on all executors.

    Raises:
        HostError: an emulator that runs programs here is missing.
    """
    cells = [
        Work(_name(executor, one.about.name), f"{one.digest}-{executor.key}", partial(subject.look, executor, one))
        for one in subject.programs
        for executor in executors
    ]
    journal = Journal.of(subject.journal, Cell)
    sweep("comparing", cells, journal, remark=lambda cell: "" if cell.good else f"{text(cell)} {cell.why}")
    return columns(subject.journal, executors, [one.about.name for one in subject.programs])


def columns(journal: str, executors: Sequence[Executor], names: Sequence[str]) -> list[Column]:
    """The last results of these executors and programs."""
    seen = dict(Journal.of(journal, Cell).all())
    found = []
    for executor in executors:
        cells = {name: seen[at] for name in names if (at := _name(executor, name)) in seen}
        # A program that did not run says nothing of the CPU's features.
        how = next((cell.how for cell in reversed(cells.values()) if cell.good and cell.how), executor.platform.how)
        if cells:
            found.append(Column(executor.platform.target.name, executor.platform.cpu, how, cells))
    return found


def run(request: Agree) -> None:
    """Compare programs on executors, show the results, and with ``--update`` keep the counts for the docs.

    Raises:
        MismatchError: some do not agree, and nothing says that lean is right.
    """
    from core.environment import ensure_export

    abouts = [] if request.sound else chosen(request.program)
    ensure_export()
    executors = executors_for(request.target, request.cpu)
    if request.sound:
        subject = of_sound(sound.choose(request.program, whole=request.update))
    else:
        subject = of_zoo(list(prepare(abouts)))
    try:
        found = compare(subject, executors)
    finally:
        if request.update:
            names = [name for family in subject.families.values() for name in family]
            publish(subject.families, columns(subject.journal, executors, names))
    show(found, subject)
    wrong = [f"{name} on {one.target} {one.cpu}" for one in found for name, cell in one.cells.items() if cell.wrong]
    if wrong:
        count = sum(len(one.cells) for one in found)
        raise MismatchError(
            f"{len(wrong)} of {count} comparisons do not agree with upstream's runtime.",
            ", ".join(wrong[:8]) + (", ..." if len(wrong) > 8 else ""),
            f"{subject.again} --target TARGET --cpu CPU --program NAME",
            wrong,
        )


def show(found: Sequence[Column], subject: Subject) -> None:
    """Print a table with a line for each program, or for each family and executor if there are many."""
    title = f"Engine {ENGINE} against upstream's runtime: the same bits, or the largest difference"
    names = [one.about.name for one in subject.programs]
    if len(found) <= 4 and len(names) <= MANY:
        lines = [[name, *(text(column.cells.get(name)) for column in found)] for name in names]
        console.table(title, ["program", *(f"{one.target} {one.cpu}" for one in found)], lines)
        return
    families = {family: [name for name in every if name in {*names}] for family, every in subject.families.items()}
    if rows := counts({family: some for family, some in families.items() if some}, found):
        console.table(title, list(rows[0]), [list(row.values()) for row in rows])
