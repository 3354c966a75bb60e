"""``./inv export``, and the exports that other commands need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.requests import Deploy, Export, Models
from core.errors import SlipwayError, UsageError

if TYPE_CHECKING:
    from deploy.matrix.plan import Exportable
    from models.request import Request as ExportRequest


def run(request: Export) -> None:
    """Export what the arguments of ``./inv export`` name, and print it."""
    from models.request import report

    folders = exported(request, request.format, request.force, request.jobs)
    report.programs(folders, request.json)


def add_packages(request: Models) -> None:
    """Do ``./inv models --add``, and print the versions.

    Raises:
        UsageError: no model's file. ConfigError, HostError: as `models.users.packages.add`.
    """
    from core import console
    from core.environment import ensure_export
    from models.request.options import words
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
    from models.zoo import combinations

    return _resolved(combinations(request.model, request.scheme, format), *divided(request), format)


def _resolved(
    jobs: list[tuple[str, str]],
    sets: Sequence[Sequence[str]],
    options: dict[str, str],
    format: str,  # noqa: A002
) -> list[ExportRequest]:
    from models.request import resolve

    return [resolve(*job, partitioners=names, options=options, format=format) for job in jobs for names in sets]


def exported(
    request: Export | Deploy,
    format: str,  # noqa: A002
    force: bool = False,
    at_once: int = 1,
) -> list[Path]:
    """Export what ``--model`` and ``--scheme`` name, ``all`` included, for each list of partitioners; the folders.

    Args:
        at_once: how many exports run together.
    """
    from models.zoo import combinations

    return together(
        combinations(request.model, request.scheme, format), *divided(request), force, format, at_once=at_once
    )


def divided(request: Export | Deploy) -> tuple[tuple[tuple[str, ...], ...], dict[str, str]]:
    """The lists of partitioners, each once, and the options with ``--samples`` among them."""
    from models.request.options import pairs, words

    options = pairs(request.options)
    sets = tuple(dict.fromkeys(names for one in request.partitioners.split(";") if (names := words(one))))
    return sets or ((),), {**options, "samples": request.samples} if request.samples else options


def together(
    jobs: list[tuple[str, str]],
    sets: Sequence[Sequence[str]] = ((),),
    options: dict[str, str] | None = None,
    force: bool = False,
    format: str = "pte",  # noqa: A002
    at_once: int = 1,
) -> list[Path]:
    """Export the outdated programs together; torch is installed and imported only if there are any.

    Args:
        sets: lists of partitioners: each makes a program of each job.
        at_once: how many exports run together.
    """
    from models.export import raise_failures
    from models.zoo import trained

    trained.fetch(dict.fromkeys(model for model, _ in jobs))
    requests = _resolved(jobs, sets, options or {}, format)
    failures = _attempt(requests, format, force, at_once)
    if failures:
        raise_failures(failures, len(requests))
    return [request.folder for request in requests]


def _attempt(
    requests: Sequence[ExportRequest],
    format: str,  # noqa: A002
    force: bool = False,
    at_once: int = 1,
) -> dict[str, SlipwayError]:
    """Export the outdated programs; the failures by the requests' names."""
    from models.request.current import current

    if not force and all(current(request) for request in requests):
        return {}
    from core.environment import idle_threads_sleep
    from models import warm

    _install(format)
    idle_threads_sleep()
    return warm.attempt(requests, force, at_once)


def _install(format: str) -> None:  # noqa: A002
    from core.environment import ensure_export, ensure_onnx

    (ensure_onnx if format == "onnx" else ensure_export)()


@contextlib.contextmanager
def installed_beside(requests: Sequence[ExportRequest], *, deploy: bool = False, device: str = "") -> Iterator[None]:
    """Install what exporting needs, if anything must be exported, while the block builds and then exports.

    Args:
        deploy: the block is a deploy, which is shown as a whole.
        device: the virtual device that it uses, which is started beside it, too.

    Raises:
        HostError: it could not be installed. The block was interrupted: PyTorch may be missing, a build take minutes.
    """
    from core.console import live
    from core.environment import beside, running, venv
    from core.environment.bootstrap import is_installed
    from models.request.current import current
    from models.zoo import trained

    if is_installed(venv(), "export") or all(current(request) for request in requests):
        yield
        return
    with contextlib.ExitStack() as stack:
        if deploy:
            stack.enter_context(live.first())
        stack.enter_context(beside("export"))
        if device:
            stack.enter_context(running("devices.start", device))
        with live.part("weights"):
            trained.fetch(dict.fromkeys(request.model for request in requests))
        yield


def each(programs: Sequence[Exportable]) -> dict[Exportable, Path | SlipwayError]:
    """The folder of each program of a matrix, or the error that it ended with."""
    from models.request import resolve
    from models.request.variants import chosen
    from models.zoo import trained

    trained.fetch(dict.fromkeys(one.model for one in programs))
    found: dict[Exportable, Path | SlipwayError] = {}
    for kind, variant in dict.fromkeys((one.format, one.variant) for one in programs):
        # Those of a kind together, since the exporter takes long to load.
        requests: dict[Exportable, ExportRequest] = {}
        for one in programs:
            if (one.format, one.variant) != (kind, variant):
                continue
            try:
                names, options = chosen(variant)
                requests[one] = resolve(
                    one.source or one.model, one.scheme, partitioners=names, options=options, format=kind
                )
            except SlipwayError as error:
                found[one] = error
        try:
            failures = _attempt(list(requests.values()), kind)
        except SlipwayError as error:
            failures = {request.name: error for request in requests.values()}
        found |= {one: failures.get(request.name, request.folder) for one, request in requests.items()}
    return {one: found[one] for one in programs}
