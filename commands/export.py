"""``./inv export`` and ``./inv models``, and the exports that other commands need."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from commands.requests import Deploy, Export, Models
from core import console
from core.cli.request import words
from core.console.units import size
from core.errors import SlipwayError, UsageError

if TYPE_CHECKING:
    from core.formats.program import Program
    from deploy.matrix.plan import Exportable
    from models.request import Request as ExportRequest
    from models.request import Row


def run(request: Export) -> None:
    """Export what the arguments of ``./inv export`` name, and print it."""
    from models.text.source import is_language

    if is_language(request.model):
        from commands.answer import exported as exported_language

        program = exported_language(request)
        if request.json:
            console.print_json({"path": str(program.parent), "file": program.name, "size": program.stat().st_size})
        return
    requests = fetched(partial(requested, request, request.format))
    _print_programs(exported(requests, request.force, request.jobs), request.json)


def add_packages(request: Models) -> None:
    """Do ``./inv models --add``, and print the versions.

    Raises:
        UsageError: no model's file. ConfigError, HostError: as `models.users.packages.add`.
    """
    from core.environment import ensure_export
    from models.users.packages import add, pins, wanted

    packages, model = request.add, request.model
    source = Path(model.rpartition(":")[0] if ".py:" in model else model).expanduser()
    if source.suffix != ".py" or not source.is_file():
        raise UsageError(
            f"There is no model's file {model!r}.",
            "the packages are for a file of yours, and requirements.txt beside it lists them",
            f"./inv models --add {packages} --model path/to/file.py",
            [model],
        )
    ensure_export()
    file = add(words(packages), source.resolve())
    found = pins(wanted(source.resolve()))
    if request.json:
        console.print_json({"requirements": str(file), "packages": found})
    else:
        console.table(
            f"Packages for {console.shown(source)}", ["package", "version"], sorted(map(list, found.items())),
            f"{console.shown(file)} lists those that were asked for",
        )  # fmt: skip


def requested(request: Export | Deploy, format: str) -> list[ExportRequest]:  # noqa: A002
    """What is to be exported. An unknown model, scheme or option is refused now: a build may take minutes.

    Raises:
        ConfigError, ExportError: as `models.request.resolve`.
    """
    from models.request import resolve
    from models.zoo import combinations

    sets, options = divided(request)
    return [
        resolve(*each, partitioners=names, options=options, format=format)
        for each in combinations(request.model, request.scheme, format)
        for names in sets
    ]


def fetched(find: Callable[[], list[ExportRequest]]) -> list[ExportRequest]:
    """What ``find`` gives once the models' trained weights are here, which the names of programs tell."""
    from models.zoo import trained

    requests = find()
    return find() if trained.fetch(dict.fromkeys(request.model for request in requests)) else requests


def exported(requests: Sequence[ExportRequest], force: bool = False, at_once: int = 1) -> list[Path]:
    """Export those that are outdated; the folders of all.

    Args:
        at_once: how many exports run together.
    """
    if failures := _attempt(requests, force, at_once):
        from models.export import raise_failures

        raise_failures(failures, len(requests))
    return [request.folder for request in requests]


def divided(request: Export | Deploy) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """The lists of partitioners, each once, and the options with ``--samples`` among them."""
    from models.request.options import pairs

    options = pairs(request.options)
    sets = tuple(dict.fromkeys(names for one in request.partitioners.split(";") if (names := words(one))))
    return sets or ((),), {**options, "samples": request.samples} if request.samples else options


def _attempt(requests: Sequence[ExportRequest], force: bool = False, at_once: int = 1) -> dict[str, SlipwayError]:
    """Export the outdated programs; the failures by the requests' names. Torch comes only if there are any."""
    from models.request import current

    outdated = [request for request in requests if force or not current(request)]
    if not outdated:
        return {}
    from core.environment import ensure_export, ensure_onnx, idle_threads_sleep
    from models.warm import attempt

    (ensure_onnx if outdated[0].format == "onnx" else ensure_export)()
    idle_threads_sleep()
    return attempt(outdated, force, at_once)


@contextlib.contextmanager
def installed_beside(find: Callable[[], list[ExportRequest]], device: str) -> Iterator[list[ExportRequest]]:
    """Install what exporting needs, if anything must be exported, while a deploy builds and then exports.

    Args:
        find: gives what is to be exported; the block gets it once the weights are here.
        device: the virtual device that is used, which is started beside it, too; empty: none.

    Raises:
        HostError: it could not be installed. The block was interrupted: PyTorch may be missing, a build take minutes.
    """
    from core.console import live
    from core.environment import beside, running, venv
    from core.environment.bootstrap import is_installed
    from models.request import current

    if is_installed(venv(), "export") or all(map(current, find())):
        yield fetched(find)
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(live.first())
        stack.enter_context(beside("export"))
        if device:
            stack.enter_context(running("devices.start", device))
        with live.part("weights"):
            requests = fetched(find)
        yield requests


def _language(one: Exportable) -> Path | SlipwayError:
    """The file of a language model's program."""
    from models.text.source import exported, find

    try:
        return exported(find(one.source or one.model, one.scheme))
    except SlipwayError as error:
        return error


def each(programs: Sequence[Exportable]) -> dict[Exportable, Path | SlipwayError]:
    """The folder of each program of a matrix, or the error that it ended with."""
    from models.request import resolve
    from models.request.partitioners import chosen
    from models.zoo import trained

    trained.fetch(dict.fromkeys(one.model for one in programs if not one.text))
    found: dict[Exportable, Path | SlipwayError] = {one: _language(one) for one in programs if one.text}
    for kind, variant in dict.fromkeys((one.format, one.variant) for one in programs if not one.text):
        # Those of a kind together, since the exporter takes long to load.
        requests: dict[Exportable, ExportRequest] = {}
        for one in programs:
            if one in found or (one.format, one.variant) != (kind, variant):
                continue
            try:
                names, options = chosen(variant)
                requests[one] = resolve(
                    one.source or one.model, one.scheme, partitioners=names, options=options, format=kind
                )
            except SlipwayError as error:
                found[one] = error
        try:
            failures = _attempt(list(requests.values()))
        except SlipwayError as error:
            failures = {request.name: error for request in requests.values()}
        found |= {one: failures.get(request.name, request.folder) for one, request in requests.items()}
    return {one: found[one] for one in programs}


def print_zoo(as_json: bool) -> None:
    """The zoo: a row for each model and format; as JSON an object for each scheme, too."""
    from models.request import listing
    from models.text import source
    from models.zoo import load_zoo
    from models.zoo.schemes import load_schemes, type_of
    from models.zoo.trained import load_trained

    rows, languages = listing(), source.listing()
    weights = {model: row.weights.described(row.about, model) for model, row in load_trained().items()}
    if as_json:
        described = load_zoo()
        console.print_json(
            [
                {
                    **dataclasses.asdict(row),
                    "description": described[row.model].description,
                    "trained": weights.get(row.model),
                    "arms_name": type_of(row.scheme),
                }
                for row in rows
            ]
            + list(languages)
        )
        return
    lines: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        lines.setdefault((row.model, row.format), []).append(row)
    console.table(
        "The model zoo",
        ["model", "format", "schemes", "exported", "what it is"],
        [
            [model, format_, ", ".join(row.scheme for row in some), ", ".join(_exported(some)), some[0].title]
            for (model, format_), some in lines.items()
        ],
        caption="Export one with ./inv export --model NAME --scheme SCHEME",
        optional=("what it is",),
    )
    console.table(
        "Language models",
        ["model", "schemes", "exported", "what it is"],
        [[one["model"], ", ".join(one["schemes"]), ", ".join(one["exported"]), one["title"]] for one in languages],
        caption='Talk with one by ./inv chat --model NAME, or ask it once: ./inv deploy --model NAME --prompt "..."',
        optional=("what it is",),
    )
    console.table(
        "Trained weights",
        ["model", "file", "SHA-256", "here", "get them with"],
        [
            [model, one["file"], one["sha256"], "yes" if one["here"] else "no", one["get"]]
            for model, one in {**weights, **{each["model"]: each["trained"] for each in languages}}.items()
        ],
        caption="The other models are small ones of Slipway's own: nobody trained them, and their weights are random",
        optional=("SHA-256", "here"),
    )
    console.table(
        "Arm's names, which --scheme takes too",
        ["name", "scheme", "activations", "weights"],
        [[one.arm, one.name, one.activations, one.weights] for one in load_schemes().values() if one.arm],
    )


def _exported(rows: Sequence[Row]) -> list[str]:
    """``fp32 (14 MB)`` for each program that is there; an outdated one says so."""
    return [
        f"{row.scheme} ({size(row.size)}{', outdated' if row.state == 'outdated' else ''})" for row in rows if row.size
    ]


def _print_programs(folders: Sequence[Path], as_json: bool) -> None:
    """The results of exports: one table for several programs, all details for a single one."""
    from core.formats.program import load_program

    found = [(folder, load_program(folder, verify=False)) for folder in folders]
    if as_json:
        rows = [
            {"path": str(folder), "taken": _taken(program), **program.model_dump(mode="json")}
            for folder, program in found
        ]
        console.print_json(rows[0] if len(rows) == 1 else rows)
    elif len(found) == 1:
        _print_program(*found[0])
    else:
        console.table(
            "Programs",
            ["program", "size", "backends", "delegate calls", "operators in them", "warnings"],
            [
                [
                    program.name,
                    f"{program.size / 1e6:.2f} MB",
                    ", ".join(one.removesuffix("Backend") for one in program.backends) or _nobody(program),
                    str(program.delegates or ""),
                    "{operators} of {of} ({share:.0%})".format(**_taken(program)) if program.format == "pte" else "",
                    str(len(program.warnings) or ""),
                ]
                for _, program in found
            ],
        )


def _taken(program: Program) -> dict[str, float]:
    """How many of the program's operators its backends took."""
    taken, left = (sum(one.count for one in some) for some in (program.delegated, program.undelegated))
    return {"operators": taken, "of": taken + left, "share": taken / max(taken + left, 1)}


def _nobody(program: Program) -> str:
    """Who decides on backends if the program names none."""
    return "none" if program.format == "pte" else "ONNX Runtime's, chosen when it is loaded"


def _print_program(folder: Path, program: Program) -> None:
    inside = ", ".join(f"{one.name} ×{one.count}" for one in program.delegated)
    delegated = [["delegate calls", str(program.delegates)], ["delegated", inside or "nothing"]]
    console.table(
        f"Program {program.name}",
        ["", ""],
        [
            ["folder", console.shown(folder)],
            ["size", f"{program.size / 1e6:.2f} MB"],
            ["backends", ", ".join(program.backends) or _nobody(program)],
            *(delegated if program.format == "pte" else ()),
            ["reference", program.reference_engine],
            ["warnings", "\n".join(program.warnings) or "none"],
        ],
    )
    if program.undelegated:
        left = [[one.name, str(one.count), one.why] for one in program.undelegated]
        console.table("Outside the delegates", ["operator", "count", "why"], left)
