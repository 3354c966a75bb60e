"""Build a bundle: compilers, Conan, checks, ``dist/<target>/<engine>``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import console
from core.bundle import SBOM, Bundle
from core.errors import BuildError, NotSupportedError
from core.files import locked, new_folder, write_json
from core.locks import Clock
from core.paths import ROOT, bundle_dir, cache_dir
from toolchains.build import inputs
from toolchains.build.making import Making
from toolchains.build.selection import Selection
from toolchains.build.steps import Steps
from toolchains.targets import Target, get_target

_STEPS = 5


@dataclass(frozen=True)
class _Job:
    """The bundle to build."""

    target: Target
    engine: str
    toolchain: str
    force: bool
    allow_newer_glibc: bool
    selection: Selection | None = None

    @property
    def folder(self) -> Path:
        return bundle_dir(self.target.name, self.engine, self.selection.name if self.selection else "")

    @property
    def log(self) -> Path:
        return cache_dir("logs") / f"build-{self.target.name}-{self.engine}.log"


def build(
    target_name: str,
    engine: str = "",
    toolchain: str = "",
    force: bool = False,
    *,
    allow_newer_glibc: bool = False,
    selection: Selection | None = None,
) -> Bundle:
    """The bundle of ``target_name``, built if it is missing or outdated.

    Two builds at once take turns; an interrupted one leaves the previous bundle as it was.

    Args:
        engine, toolchain: the target's default when empty.
        force: compile and check again although nothing has changed.
        allow_newer_glibc: accept binaries that need a newer C or C++ library than the target promises
            (the manifest says which, and the preflight holds it against the device).
        selection: link only what some programs need, into a bundle of their own; the engine ``lean`` alone can.

    Raises:
        ConfigError, NotSupportedError: the target, engine or toolchain is unknown or does not work yet.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    target = get_target(target_name)
    family_name = target.toolchain(toolchain)
    chosen = target.engine(engine or ("lean" if selection else ""))
    if selection and chosen != "lean":
        raise NotSupportedError(
            f"The engine {chosen} cannot be linked for some programs only.",
            "its libraries come compiled from upstream",
            f"./inv build --target {target_name} --engine lean --ops-from model.pte",
        )
    job = _Job(target.built_with(family_name), chosen, family_name, force, allow_newer_glibc, selection)
    digest = inputs.digest(job.engine, job.target, job.toolchain, job.allow_newer_glibc, job.selection)
    making = Making(job.folder, digest, Bundle.load)
    return making.ensure(lambda: _build(job, digest), "waiting: this bundle is being built already", force=job.force)


def _build(job: _Job, digest: str) -> None:
    from toolchains.build import conan_packages, layout, sbom
    from toolchains.compilers.families import family

    clock = Clock()
    job.log.write_text("", encoding="utf-8")
    with Steps(_STEPS) as steps:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        compilers = family(job.toolchain).ensure(job.target)
        origin = layout.Origin(
            job.target, job.engine, f"{compilers.family} {compilers.version}", job.allow_newer_glibc, job.selection
        )
        with new_folder(job.folder) as new:
            with conan_packages.building():
                package, graph = _package(job, steps)
                steps.begin("reading the binaries: architecture, C library, libraries, instructions")
                layout.collect(package, new)
            conan_packages.forget(_reference(graph), job.log)
            binaries = layout.check(origin, new)
            checked = layout.scan(origin, new, binaries)
            steps.begin("running pte_runner --capabilities, if it runs here")
            offered = layout.offers(origin, new)
            name = f"slipway-{job.engine}-{job.target.name}"
            write_json(new / SBOM, sbom.write(graph, name, digest[:16], layout.entries(new)))
            layout.describe(origin, new, binaries, offered, checked)
    console.note(f"built {job.folder} in {clock}")


def _package(job: _Job, steps: Steps) -> tuple[Path, dict[str, Any]]:
    """Build the runner's Conan package unless Conan has this very one; its folder in Conan's cache, Conan's graph."""
    from toolchains.build import conan, conan_packages

    compiling = f"compiling pte_runner with the engine {job.engine}"

    def heard(line: str) -> None:
        if line.startswith("Building from source slipway-runtime/"):
            steps.begin(compiling)
        else:
            steps.heard(line)

    steps.begin("packaging the libraries of recipes/")
    what = f"Building pte_runner for {job.target.name}"
    words = conan_packages.words(job.target, job.toolchain, job.log)
    words += [f"--options=slipway-runtime/*:engine={job.engine}", *(job.selection.words if job.selection else [])]
    with locked(conan.LOCK, conan_packages.WAITING):
        exported = json.loads(conan.conan(["export", ROOT, "--format=json"], log=job.log, what=what))
    subject = [f"--requires={exported['reference']}"]
    force = ("slipway-runtime",) if job.force else ()
    request = conan_packages.Request(subject, words, job.log, what, force)
    graph = conan_packages.install(request, ["--envs-generation=false"], heard, steps.heard)
    inputs.hold_against(job.engine, graph)
    steps.begin(compiling)
    nodes = graph["nodes"].values()
    folder = next((node["package_folder"] for node in nodes if node.get("name") == "slipway-runtime"), None)
    if not folder:
        raise BuildError("Conan made no package of pte_runner.", "", f"less {job.log}")
    return Path(folder), graph


def _reference(graph: dict[str, Any]) -> str:
    """The recipe of pte_runner in Conan's graph, with its revision."""
    nodes = graph["nodes"].values()
    return next(str(node["ref"]) for node in nodes if node.get("name") == "slipway-runtime")
