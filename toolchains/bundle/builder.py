"""Build a bundle: compilers, Conan, checks, ``dist/<target>/<engine>``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from core import console
from core.errors import NotSupportedError
from core.files import new_folder, write_json
from core.files.locks import Clock
from core.formats.bundle import SBOM, Bundle
from core.paths import bundle_dir, cache_dir
from toolchains.bundle import inputs
from toolchains.bundle.inputs import Selection
from toolchains.bundle.making import Making, Steps
from toolchains.targets import Target, get_target

if TYPE_CHECKING:
    from toolchains.bundle import conan_packages

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
    chosen = target.engine(engine or ("lean" if selection else ""), family_name)
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


def _request(job: _Job) -> conan_packages.RuntimeRequest:
    from toolchains.bundle import conan_packages

    what = f"Building pte_runner for {job.target.name}"
    compiling = f"compiling pte_runner with the engine {job.engine}"
    options = (f"engine={job.engine}", *(job.selection.options if job.selection else ()))
    return conan_packages.RuntimeRequest(
        job.target, job.toolchain, job.engine, job.log, what, compiling, options, force=job.force
    )


def _build(job: _Job, digest: str) -> None:
    from toolchains.bundle import conan_packages, layout, sbom
    from toolchains.compilers.families import family

    clock = Clock()
    job.log.write_text("", encoding="utf-8")
    with Steps(_STEPS, key=f"bundle {job.engine} {job.target.name} {job.toolchain}") as steps:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        chosen = family(job.toolchain)
        compilers = chosen.ensure(job.target)
        origin = layout.Origin(
            job.target, job.engine, f"{compilers.family} {compilers.version}", job.allow_newer_glibc, job.selection
        )
        with new_folder(job.folder) as new:
            with conan_packages.building():
                package, graph = conan_packages.make(_request(job), steps)
                steps.begin("reading the binaries: architecture, C library, libraries, instructions")
                layout.collect(package, new)
            conan_packages.forget(conan_packages.reference(graph), job.log)
            binaries = layout.check(origin, new)
            checked = layout.scan(origin, new, binaries)
            steps.begin("running pte_runner --capabilities, if it runs here")
            offered = layout.offers(origin, new)
            name = f"slipway-{job.engine}-{job.target.name}"
            linked = layout.linked_into(binaries, chosen.linked(job.target), new)
            delivered = layout.entries(new)
            write_json(new / SBOM, sbom.write(graph, name, digest[:16], delivered, linked, origin.toolchain))
            layout.describe(origin, new, binaries, offered, checked)
    console.note(f"built {job.folder} in {clock}")
