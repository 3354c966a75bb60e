"""``./inv self.lab``: what its words mean, and the steps in their order: export, build, run, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from commands.own import Lab as LabRequest
from core import console
from core.cli.request import words
from core.errors import ConfigError, MatrixError, SlipwayError
from core.files import locked
from core.formats.bundle import Bundle
from core.paths import dist_part
from core.processes.sweep import Journal
from deploy.devices.inventory import Device, get_device
from deploy.matrix.matrix import named
from deploy.matrix.model import Problem
from deploy.matrix.plan import Exportable
from deploy.run.result import now
from deploy.run.settings import Settings
from models.zoo.schemes import load_schemes, scheme_of, schemes_of, type_of
from toolchains.targets import get_target, host_target
from verify.layers import report
from verify.layers.families import FUNCTION, Layer, layers_of
from verify.layers.model import Lab, LayerCell
from verify.layers.running import LayerRunner, Todo
from verify.layers.ways import Pair, pair_for

JOURNAL = "cells.jsonl"
LAYERS = "_layers"
"""Folder of the layers' files, for labs of every name: none is exported twice."""
DEFAULT_LAYERS = "linear,conv1x1,conv,bmm"

Build = Callable[[str, str], Bundle]


@dataclass(frozen=True)
class Subject:
    """What is exported: a layer of the lab's, or a model of the user's."""

    name: str
    source: str
    """The export's name of the model."""
    layer: Layer | None = None


@dataclass(frozen=True)
class Plan:
    """All cells, and what is to be done for those that are possible."""

    cells: tuple[LayerCell, ...]
    possible: tuple[tuple[LayerCell, Device, Subject, Pair], ...]


def run(request: LabRequest) -> None:
    """Do what ``./inv self.lab`` was called for.

    Raises:
        MatrixError: cells failed. UsageError, ConfigError: a senseless name, layer or type.
    """
    name = named(request.name)
    settings = Settings.parse({**vars(request), "cpu_threads": request.cpu_threads or 1}, weights_cache=False)
    folder = dist_part("lab") / name
    plan = planned(request, folder)
    if request.list:
        if request.json:
            console.print_json([cell.model_dump(mode="json", exclude_defaults=True) for cell in plan.cells])
        else:
            heads = ["device", "layer", "type", "scheme", ""]
            rows = [[cell.device, cell.layer, cell.type, cell.scheme, cell.why_not] for cell in plan.cells]
            console.table("To be run", heads, rows)
        return
    with locked(f"lab-{name}", "waiting: another lab of this name is running"):
        found = _fill(plan, request, folder, settings)
    report.printed(found, folder, request.json)
    if request.update:
        report.keep(found)
    check(found, folder)


def check(found: Lab, folder: Path) -> None:
    """Raise an error if cells failed, or gave outputs that differ from the reference.

    Raises:
        MatrixError: names them.
    """
    if found.wrong:
        first = found.wrong[0]
        raise MatrixError(
            f"{len(found.wrong)} of {len(found.cells)} cells failed or have outputs that differ from the reference.",
            f"{first.key}: {first.why}",
            f"{console.shown(folder / report.MARKDOWN)}; ./inv self.lab --name {found.name} --resume with the same "
            "words runs only cells that were not measured",
            [cell.key for cell in found.wrong],
        )


def planned(request: LabRequest, folder: Path) -> Plan:
    """The cells that the request selects; exports and builds nothing, but writes the layers' files."""
    subjects = _subjects(request, folder.parent / LAYERS)
    schemes = _schemes(words(request.types))
    cells: list[LayerCell] = []
    possible = []
    for device in _devices(words(request.device)):
        target = get_target(device.target)
        pair = pair_for(target, request.against)
        engines = {way.engine for way in pair.ways} - set(target.working_engines)
        for subject in subjects:
            for scheme in schemes:
                why = f"{', '.join(engines)} does not run on {target.name}" if engines else ""
                why = why or (subject.layer.why_not(scheme) if subject.layer else "")
                cell = LayerCell(
                    key=f"{device.name}/{subject.name}-{scheme}", device=device.name, emulated=device.emulated,
                    target=device.target, layer=subject.name, scheme=scheme, type=type_of(scheme),
                    outcome="impossible" if why else "not run", why_not=why,
                )  # fmt: skip
                cells.append(cell)
                if not why:
                    possible.append((cell, device, subject, pair))
    if not possible:
        raise ConfigError(
            "The selected layers cannot run.",
            "; ".join(dict.fromkeys(cell.why_not for cell in cells)),
            "./inv self.lab --list",
        )
    return Plan(tuple(cells), tuple(possible))


def _subjects(request: LabRequest, folder: Path) -> list[Subject]:
    if request.model:
        return [Subject(Path(one.replace(":", "-")).name, one) for one in words(request.model)]
    found = layers_of(words(request.layers or DEFAULT_LAYERS), words(request.shape))
    return [Subject(layer.name, f"{layer.write(folder)}:{FUNCTION}", layer) for layer in found]


def _schemes(types: Sequence[str]) -> tuple[str, ...]:
    known = load_schemes()
    if not types or "all" in types:
        return tuple(known)
    for each in types:
        if scheme_of(each) not in known:
            from models.zoo.schemes import get_scheme

            get_scheme(each)
    return schemes_of(types)


def _devices(names: Sequence[str]) -> Iterator[Device]:
    for name in dict.fromkeys(names or ("local",)):
        device = get_device(name)
        yield device.model_copy(update={"target": host_target().name}) if device.target == "host" else device


def _fill(plan: Plan, request: LabRequest, folder: Path, settings: Settings) -> Lab:
    created = now()
    journal: Journal[LayerCell] = Journal(folder / JOURNAL, LayerCell)
    if not request.resume:
        journal.forget()
    programs, failed = _programs(plan)
    todo = [
        Todo(cell, device, pair, programs[subject.source, cell.scheme])
        for cell, device, subject, pair in plan.possible
        if (subject.source, cell.scheme) in programs
    ]
    wanted = {(each.cell.target, way.engine): None for each in todo for way in each.pair.ways}
    bundles = {key: _build(*key) for key in wanted}
    runner = LayerRunner(
        todo, bundles, request.rounds, settings, journal=journal, resume=request.resume, jobs=request.jobs,
    )  # fmt: skip
    runner.results |= {
        cell.key: cell.model_copy(update={"outcome": "failed", "problem": failed[subject.source, cell.scheme]})
        for cell, _device, subject, _pair in plan.possible
        if (subject.source, cell.scheme) in failed
    }
    interrupted = True
    try:
        runner.go()
        interrupted = False
    finally:
        abouts = dict.fromkeys(pair.about for _cell, _device, _subject, pair in plan.possible)
        found = Lab(
            name=folder.name, created=created, finished=now(), against="; ".join(abouts), rounds=request.rounds,
            threads=settings.threads, interrupted=interrupted,
            cells=tuple(runner.results.get(cell.key, cell) for cell in plan.cells),
            settings={name: value for name in request.fields if (value := getattr(request, name))},
        )  # fmt: skip
        report.write(found, folder)
        if interrupted:
            console.note("The cells that are done are kept; the same with --resume goes on from here.")
    return found


def _build(target: str, engine: str) -> Bundle:
    from toolchains.bundle.builder import build

    return build(target, engine)


def _programs(plan: Plan) -> tuple[dict[tuple[str, str], Path], dict[tuple[str, str], Problem]]:
    """The folder of each export, or the error with which it ended."""
    from commands.export import each

    programs = {
        (subject.source, cell.scheme): Exportable(subject.source, subject.source, cell.scheme, "pte")
        for cell, _device, subject, _pair in plan.possible
    }
    made = each(list(programs.values()))
    failed = {job: Problem.of(found) for job, one in programs.items() if isinstance(found := made[one], SlipwayError)}
    return {job: found for job, one in programs.items() if isinstance(found := made[one], Path)}, failed
