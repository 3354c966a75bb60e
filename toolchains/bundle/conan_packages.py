"""Conan's packages: those that a build needs, made where Conan lacks them, and the package of ``runtime/``.

Several ``./inv`` share Conan's home, which is not made for two writers at once: hold `building` around all of this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from core.errors import BuildError
from core.files import locked, write_atomic
from core.paths import ROOT, cache_dir
from toolchains.bundle import conan, inputs
from toolchains.bundle.making import BUILDING, Job, Steps
from toolchains.targets import Target

_NAME = "slipway-runtime"

Heard = Callable[[str], None]


def building() -> AbstractContextManager[None]:
    """While the block runs, no other process works in Conan's home."""
    return locked(conan.LOCK, "      waiting: Conan is building for another process")


def forget(reference: str, log: Path) -> None:
    """Remove all other revisions of a recipe, and what was left of building it.

    Args:
        reference: with its revision, ``slipway-runtime/0.1.0#revision``. Nothing is done when it was the last to stay.
    """
    name, _, _ = reference.partition("/")
    only = cache_dir("conan-profiles") / f"only-{name}"
    if not only.is_file() or only.read_text(encoding="utf-8") != reference:
        conan.conan(["remove", f"{name}/*#!latest", "--confirm"], log=log)
        conan.conan(["cache", "clean", f"{name}/*", "--build", "--source", "--temp"], log=log)
        write_atomic(only, reference)


def words(target: Target, toolchain: str, log: Path, sources: str = "") -> list[str]:
    """Profiles, lockfile and remote: the words of every command that builds for ``target``.

    Args:
        sources: where recipes take their sources from, ``debian`` or ``git``; the recipes' own default when empty.
    """
    host, own = conan.profile(target, toolchain), conan.build_profile()
    chosen = conan.sources(sources, log) if sources else []
    pinned = [f"--lockfile={conan.lockfile(log)}", "--lockfile-partial", f"--remote={conan.remote()}"]
    return [f"--profile:host={host}", f"--profile:build={own}", *chosen, *pinned]


def install(
    subject: Sequence[str],
    words: Sequence[str],
    log: Path,
    what: str,
    *,
    force: Sequence[str] = (),
    heard: Heard | None = None,
) -> dict[str, Any]:
    """Build packages that Conan lacks, and install all of them; Conan's graph.

    Args:
        subject: a folder with a ``conanfile.py``, or ``--requires=...``.
        words: profiles, lockfile, options, remote.
        what: the purpose, for an error's first line.
        force: names of recipes whose packages are built again.
        heard: called with every line of Conan's messages.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """
    built: list[str] = []

    def hear(line: str) -> None:
        if line.startswith(BUILDING):
            built.append(line)
        if heard:
            heard(line)

    build = ["--build=missing", *(f"--build={name}/*" for name in force)]
    argv = ["install", *subject, *words, *build, "--envs-generation=false", "--format=json"]
    text = conan.conan(argv, log=log, what=what, heard=hear)
    if built:  # thousands of object files that are not needed any more
        conan.conan(["cache", "clean", "*", "--build"], log=log)
    graph: dict[str, Any] = json.loads(text)["graph"]
    return graph


def make(
    job: Job, steps: Steps, product: str, target: Target | None = None, *, options: Sequence[str] = (), conf: str = ""
) -> tuple[Path, dict[str, Any]]:
    """Build the package of ``runtime/`` unless Conan has this very one; its folder in Conan's cache, Conan's graph.

    Args:
        product: what of it is built, for messages.
        target: the job's when there is none.
        options: the recipe's options besides the engine and what is linked.
        conf: Conan's configuration for this package alone, ``tools.build:sharedlinkflags=[]``.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """
    target = target or job.target
    compiling, what = f"compiling {product}", f"Building {product} for {target.name}"

    def heard(line: str) -> None:
        if line.startswith(f"{BUILDING}{_NAME}/"):
            steps.begin(compiling)
        else:
            steps.heard(line)

    steps.begin("packaging the libraries of recipes/")
    chosen = [f"engine={job.kind}", *(job.selection.options if job.selection else ()), *options]
    given = [*words(target, job.toolchain, job.log), *(f"--options={_NAME}/*:{option}" for option in chosen)]
    given += [f"--conf={_NAME}/*:{conf}"] if conf else []
    exported = json.loads(conan.conan(["export", ROOT, "--format=json"], log=job.log, what=what))
    # With its revision: without, Conan takes the latest, which may be another checkout's.
    subject = [f"--requires={exported['reference']}"]
    graph = install(subject, given, job.log, what, force=(_NAME,) if job.force else (), heard=heard)
    inputs.hold_against(job.kind, graph)
    steps.begin(compiling)
    if not (folder := node(graph, _NAME).get("package_folder")):
        raise BuildError("Conan made no package of runtime/.", "", f"less {job.log}")
    forget(node(graph, _NAME)["ref"], job.log)
    return Path(folder), graph


def node(graph: dict[str, Any], name: str) -> dict[str, Any]:
    """A package of Conan's graph."""
    return next(node for node in graph["nodes"].values() if node.get("name") == name)


LOCKED = ROOT / "locks" / "conan.lock"
"""Which recipes of the checkout its packages are made by, to the last byte; the same on every machine. Builds pin the
revisions that the files have at that moment (`conan.lockfile`); this one is for those who use the recipes with Conan
itself, and in it a review sees which packages a change makes anew. ``python -m toolchains.bundle.conan_packages``
writes it again."""


def current() -> str:
    """The content that `LOCKED` must have for the current recipes."""
    with building():
        return conan.lockfile(cache_dir("logs") / "lock.log").read_text(encoding="utf-8")


if __name__ == "__main__":
    write_atomic(LOCKED, current())
