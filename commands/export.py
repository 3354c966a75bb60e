"""``./inv export``, and the exports that other commands need."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.cli.task import Words
from core.errors import SlipwayError, UsageError

if TYPE_CHECKING:
    from deploy.matrix.plan import Exportable
    from models.request import Request


def run(words: Words) -> None:
    """Export what the arguments of ``./inv export`` name, and print it."""
    from commands.given import options_of
    from models.request import report

    chosen = options_of(words)
    if words["per_op_mode"]:
        chosen["per_op_mode"] = "true"
    if words["config_precisions"]:
        chosen["config_precisions"] = words["config_precisions"]
    folders = combined(
        words["model"], words["scheme"], words["partitioners"], chosen, words["force"], format=words["format"],
        at_once=words["jobs"], keep=not words["no_warm"],
    )  # fmt: skip
    report.programs(folders, words["json"])


def add_packages(packages: str, model: str, as_json: bool) -> None:
    """Do ``./inv models.add-package``, and print the versions.

    Raises:
        UsageError: no model's file. ConfigError, HostError: as `models.users.packages.add`.
    """
    from core import console
    from core.environment import ensure_export
    from models.request.options import words
    from models.users.packages import add, pins, wanted

    source = Path(model.rpartition(":")[0] if ".py:" in model else model).expanduser()
    if source.suffix != ".py" or not source.is_file():
        raise UsageError(
            f"There is no model's file {model!r}.",
            "the packages are for a file of yours, and requirements.txt beside it lists them",
            f"./inv models.add-package {packages} --model path/to/file.py",
            [model],
        )
    ensure_export()
    file = add(words(packages), source.resolve())
    found = pins(wanted(source.resolve()))
    if as_json:
        console.print_json({"requirements": str(file), "packages": found})
    else:
        console.table(
            f"Packages for {console.shown(source)}", ["package", "version"], sorted(map(list, found.items())),
            f"{console.shown(file)} lists those that were asked for",
        )  # fmt: skip


def combined(
    model: str,
    scheme: str,
    partitioners: str = "",
    options: dict[str, str] | None = None,
    force: bool = False,
    format: str = "pte",  # noqa: A002
    at_once: int = 1,
    keep: bool = True,
) -> list[Path]:
    """Export what ``--model`` and ``--scheme`` name, ``all`` included; the folders.

    Args:
        at_once: how many exports run together.
        keep: use an exporter that waits in memory.
    """
    from models.request.options import words
    from models.zoo import combinations

    names = words(partitioners)
    return together(combinations(model, scheme, format), names, options, force, format, at_once=at_once, keep=keep)


def together(
    jobs: list[tuple[str, str]],
    names: tuple[str, ...] = (),
    options: dict[str, str] | None = None,
    force: bool = False,
    format: str = "pte",  # noqa: A002
    at_once: int = 1,
    keep: bool = True,
) -> list[Path]:
    """Export the outdated programs together; torch is installed and imported only if there are any.

    Args:
        at_once: how many exports run together.
        keep: use an exporter that waits in memory.
    """
    from models.export import raise_failures
    from models.request import resolve
    from models.zoo import trained

    if at_once < 1:
        raise UsageError(
            f"--jobs must be at least 1, not {at_once}.", "it is the number of exports that run at once", "--jobs 2"
        )
    trained.fetch(dict.fromkeys(model for model, _ in jobs))
    requests = [resolve(*job, partitioners=names, options=options, format=format) for job in jobs]
    failures = _attempt(requests, format, force, at_once, keep)
    if failures:
        raise_failures(failures, len(requests))
    return [request.folder for request in requests]


def _attempt(
    requests: Sequence[Request],
    format: str,  # noqa: A002
    force: bool = False,
    at_once: int = 1,
    keep: bool = True,
) -> dict[str, SlipwayError]:
    """Export the outdated programs; the failures by the requests' names."""
    from models.request.current import current

    if not force and all(current(request) for request in requests):
        return {}
    from core.environment import idle_threads_sleep
    from models import warm

    _install(format)
    idle_threads_sleep()
    return warm.attempt(requests, force, at_once, keep)


def _install(format: str) -> None:  # noqa: A002
    from core.environment import ensure_export, ensure_onnx

    (ensure_onnx if format == "onnx" else ensure_export)()


@contextlib.contextmanager
def installed_beside(requests: Sequence[Request], *, deploy: bool = False, device: str = "") -> Iterator[None]:
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
        requests: dict[Exportable, Request] = {}
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
