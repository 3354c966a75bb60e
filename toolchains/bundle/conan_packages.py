"""Build the packages that Conan lacks, one at a time, so that different builds do not wait for each other; ours last.

Several ``./inv`` write to Conan's home. This is safe: its database is SQLite and waits for other writers; a package is
built in a folder of its own and enters the database when it is complete. This is not safe: two processes that export or
remove recipes, fetch the sources of one recipe, or build the same package at the same time. Hence four locks:

- `conan.LOCK`: short, around all that reads or writes recipes and the graph;
- one for each recipe's sources, while a package's sources are got ready;
- one for each package, while it is built;
- ``conan-builders``: shared by all builds; a process that removes sources or recipes, or replaces packages that others
  compile with, waits for all of them.
"""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import BuildError
from core.files import locked, locks, write_atomic
from core.paths import ROOT, cache_dir
from toolchains.bundle import conan, inputs
from toolchains.bundle.making import Steps
from toolchains.targets import Target

BUILDERS = "conan-builders"
"""Name of the lock that all builds share."""

WAITING = "      waiting for Conan"

_SOURCES_READY = ("Calling generate()", "Calling build()")
"""Conan's message about a package whose sources are there."""

Heard = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """The packages to have, and how to build them."""

    subject: Sequence[str]
    """A folder with a ``conanfile.py``, or ``--requires=...``."""
    words: Sequence[str]
    """Profiles, lockfile, options, remote."""
    log: Path
    what: str
    """The purpose, for an error's first line."""
    force: Sequence[str] = ()
    """Names of recipes whose packages are built again. If others compile with these, call `again` first."""


@dataclass(frozen=True)
class _Missing:
    """A package that has to be built."""

    reference: str
    """``xnnpack/cci.20241108#revision``."""
    package_id: str
    arguments: tuple[str, ...]
    """Conan's arguments for this package with these options, without those that build it."""


@contextlib.contextmanager
def building(choice: str = "", log: Path | None = None) -> Iterator[None]:
    """While the block runs, sources, recipes and packages are not removed.

    Args:
        choice: where recipes take their sources from, ``debian`` or ``git``; while it stays, all build with the same.
    """
    while True:
        with locked(BUILDERS, "      waiting: sources or recipes are being removed", shared=True):
            if not choice or log is None or conan.sources_are(choice):
                yield
                return
        # Conan keeps one folder of sources a recipe, wherever they came from: it is emptied when the choice changes.
        with alone("      waiting: others build with sources from elsewhere"):
            conan.sources(choice, log)


@contextlib.contextmanager
def alone(waiting: str) -> Iterator[None]:
    """While the block runs, no other process works in Conan's home."""
    with locked(BUILDERS, waiting), locked(conan.LOCK, waiting):
        yield


def forget(reference: str, log: Path) -> None:
    """Remove all other revisions of a recipe, unless another process builds: then the next build does it.

    Args:
        reference: with its revision, ``slipway-runtime/0.1.0#revision``. Nothing is done when it was the last to stay.
    """
    name, _, _ = reference.partition("/")
    only = cache_dir("conan-profiles") / f"only-{name}"
    if only.is_file() and only.read_text(encoding="utf-8") == reference:
        return
    with locks.attempt(cache_dir("locks") / f"{BUILDERS}.lock") as free:
        if free:
            with locked(conan.LOCK):
                conan.forget(f"{name}/*", log)
                write_atomic(only, reference)


def _missing(request: Request) -> list[_Missing]:
    """The packages to build, each after those that it needs."""
    build = ["--build=missing", *(f"--build={name}/*" for name in request.force)]
    argv = [*request.subject, *request.words, *build]
    with locked(conan.LOCK, WAITING):
        text = conan.conan(
            ["graph", "build-order", *argv, "--order-by=configuration", "--reduce", "--format=json"],
            log=request.log,
            what=request.what,
        )
    found: list[_Missing] = []
    for level in json.loads(text)["order"]:
        for item in level:
            # With its revision: Conan leaves it out and takes the latest, which may be another checkout's.
            whole, short = item["ref"], item["ref"].partition("#")[0]
            arguments = tuple(
                f"{word.removesuffix(short)}{whole}" if word.endswith(f"requires={short}") else word
                for word in shlex.split(item["build_args"])
                if not word.startswith("--build=")
            )
            found.append(_Missing(item["ref"], item["package_id"], arguments))
    return found


def _build(request: Request, package: _Missing, heard: Heard | None) -> None:
    name = package.reference.partition("/")[0]
    forced = name in request.force
    pattern = package.reference.partition("#")[0]
    how = f"--build={pattern}" if forced else f"--build=missing:{pattern}"
    mine = f"conan-{name}-{package.package_id[:16]}"
    sources = f"conan-sources-{name}"
    waiting = f"      waiting: {name} is being built already"
    with contextlib.ExitStack() as until_ready, locked(mine, waiting):
        until_ready.enter_context(locked(sources, f"      waiting: the sources of {name} are being fetched"))

        def hear(line: str) -> None:
            if any(words in line for words in _SOURCES_READY):
                until_ready.close()
            if heard:
                heard(line)

        argv = ["install", *package.arguments, *request.words, how, "--envs-generation=false"]
        conan.conan(argv, log=request.log, what=request.what, heard=hear)
        # Thousands of object files that are not needed any more; other builds remove their own.
        conan.conan(["cache", "clean", f"{package.reference}:{package.package_id}", "--build"], log=request.log)


def words(target: Target, toolchain: str, log: Path, sources: str = "") -> list[str]:
    """Profiles, lockfile and remote: the words of every command that builds for ``target``.

    Args:
        sources: where recipes take their sources from, ``debian`` or ``git``; the recipes' own default when empty.
    """
    host, own = conan.profile(target, toolchain), conan.build_profile()
    with locked(conan.LOCK, WAITING):
        chosen = conan.sources(sources, log) if sources else []
        lockfile = conan.lockfile(log)
    pinned = [f"--lockfile={lockfile}", "--lockfile-partial", f"--remote={conan.remote()}"]
    return [f"--profile:host={host}", f"--profile:build={own}", *chosen, *pinned]


def install(request: Request, extra: Sequence[str], building: Heard, installing: Heard) -> dict[str, Any]:
    """Build the requested packages that Conan lacks, then install all of them; return Conan's graph.

    Args:
        extra: words of the installation alone.
        building, installing: called with every line of Conan's messages in either part.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """
    prepare(request, building)
    with locked(conan.LOCK, WAITING):
        argv = ["install", *request.subject, *request.words, *extra, "--format=json"]
        text = conan.conan(argv, log=request.log, what=request.what, heard=installing)
    graph: dict[str, Any] = json.loads(text)["graph"]
    return graph


def prepare(request: Request, heard: Heard | None = None) -> None:
    """Build every requested package that Conan lacks.

    Do not hold `conan.LOCK`.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """
    with building():
        _build_all(request, heard)


def again(request: Callable[[], Request], sources: str, log: Path, heard: Heard | None = None) -> None:
    """Build the packages of ``request().force`` again, and what Conan lacks, while no other process builds.

    Conan removes a package before it writes it anew: who compiles with it meanwhile does not find its headers. Hold
    neither `building` nor `conan.LOCK`.

    Args:
        request: called while no other process builds.
        sources: where recipes take their sources from, ``debian`` or ``git``.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """
    with locked(BUILDERS, "      waiting: others compile with the packages that are to be built again"):
        with locked(conan.LOCK, WAITING):
            conan.sources(sources, log)
        _build_all(request(), heard)


def _build_all(request: Request, heard: Heard | None) -> None:
    for package in _missing(request):
        _build(request, package, heard)


_NAME = "slipway-runtime"


@dataclass(frozen=True)
class RuntimeRequest:
    """The package to have."""

    target: Target
    toolchain: str
    engine: str
    log: Path
    what: str
    """The purpose, for an error's first line."""
    compiling: str
    """What the step is called in which the compiler runs."""
    options: tuple[str, ...]
    """The recipe's options, ``engine=lean``."""
    conf: tuple[str, ...] = ()
    """Conan's configuration for this package alone, ``tools.build:sharedlinkflags=[]``."""
    force: bool = False


def make(request: RuntimeRequest, steps: Steps) -> tuple[Path, dict[str, Any]]:
    """Build the package unless Conan has this very one; its folder in Conan's cache, Conan's graph.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """

    def heard(line: str) -> None:
        if line.startswith(f"Building from source {_NAME}/"):
            steps.begin(request.compiling)
        else:
            steps.heard(line)

    steps.begin("packaging the libraries of recipes/")
    given = [
        *words(request.target, request.toolchain, request.log),
        *(f"--options={_NAME}/*:{option}" for option in request.options),
        *(f"--conf={_NAME}/*:{conf}" for conf in request.conf),
    ]
    with locked(conan.LOCK, WAITING):
        exported = json.loads(conan.conan(["export", ROOT, "--format=json"], log=request.log, what=request.what))
    subject = [f"--requires={exported['reference']}"]
    force = (_NAME,) if request.force else ()
    wanted = Request(subject, given, request.log, request.what, force)
    graph = install(wanted, ["--envs-generation=false"], heard, steps.heard)
    inputs.hold_against(request.engine, graph)
    steps.begin(request.compiling)
    nodes = graph["nodes"].values()
    folder = next((node["package_folder"] for node in nodes if node.get("name") == _NAME), None)
    if not folder:
        raise BuildError("Conan made no package of runtime/.", "", f"less {request.log}")
    return Path(folder), graph


def reference(graph: dict[str, Any]) -> str:
    """The package's recipe in Conan's graph, with its revision."""
    nodes = graph["nodes"].values()
    return next(str(node["ref"]) for node in nodes if node.get("name") == _NAME)


LOCKED = ROOT / "locks" / "conan.lock"
"""Which recipes of the checkout its packages are made by, to the last byte; the same on every machine. Builds pin the
revisions that the files have at that moment (`conan.lockfile`); this one is for those who use the recipes with Conan
itself, and in it a review sees which packages a change makes anew. ``python -m toolchains.bundle.conan_packages``
writes it again."""


def current() -> str:
    """The content that `LOCKED` must have for the current recipes."""
    with locked(conan.LOCK):
        return conan.lockfile(cache_dir("logs") / "lock.log").read_text(encoding="utf-8")


if __name__ == "__main__":
    write_atomic(LOCKED, current())
