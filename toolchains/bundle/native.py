"""Build a target's native packages: XNNPACK and what it needs, from source, into ``dist/<target>/native``."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core import console
from core.errors import ConfigError, HostError
from core.files import new_folder
from core.files.locks import Clock
from core.formats.bundle import Native
from core.paths import cache_dir, native_dir
from toolchains import tools
from toolchains.bundle import inputs
from toolchains.bundle.making import Making
from toolchains.bundle.steps import Steps
from toolchains.compilers.families import family
from toolchains.targets import Target, get_target

if TYPE_CHECKING:
    from toolchains.bundle import conan_packages

SOURCES = ("auto", "debian", "git")

Source = Literal["debian", "git"]


@dataclass(frozen=True)
class _Job:
    """The native packages to build."""

    target: Target
    toolchain: str
    sources: Source
    force: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        return native_dir(self.target.name)

    @property
    def log(self) -> Path:
        return cache_dir("logs") / f"native-{self.target.name}.log"


def choose_source(sources: str) -> Source:
    """The origin of the sources: ``auto`` is Debian's archive if this machine can read it, else upstream's git.

    Raises:
        ConfigError: unknown source.
    """
    if sources not in SOURCES:
        known = f"sources are {', '.join(SOURCES)}"
        raise ConfigError(f"There are no sources {sources!r}.", known, "INVOKE_SLIPWAY_SOURCES=auto")
    if sources == "auto":
        from toolchains.debian import packages as debian

        return "git" if debian.available() else "debian"
    return "git" if sources == "git" else "debian"


def why_not(target: Target, toolchain: str) -> str:
    """Why the compiler family cannot build for ``target`` here; empty when it can."""
    try:
        return family(toolchain).usable(target)
    except HostError as error:
        return error.cause or error.what


def build_native(
    target_name: str, toolchain: str = "", sources: str = "auto", force: bool = False, *, quiet: bool = False
) -> Native:
    """The native packages of ``target_name``, built if they are missing or outdated.

    Packages that Conan has already are used as they are; two builds at once take turns; an
    interrupted one leaves the previous packages as they were.

    Args:
        toolchain: the target's default when empty.
        sources: ``auto``, ``debian`` or ``git``.
        force: compile and check again although nothing has changed.
        quiet: no lines about the steps.

    Raises:
        ConfigError: the target, the toolchain or the sources are unknown.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    target = get_target(target_name)
    family_name = target.toolchain(toolchain)
    job = _Job(target.built_with(family_name), family_name, choose_source(sources), force, quiet)
    digest = inputs.digest(inputs.NATIVE, job.target, job.toolchain, job.sources)
    making = Making(job.folder, digest, Native.load)
    return making.ensure(lambda: _build(job, digest), "waiting: these packages are being built already", force=force)


def _build(job: _Job, digest: str) -> None:
    from toolchains.bundle import conan_packages, native_layout
    from toolchains.inspect import checks

    clock = Clock()
    job.log.write_text("", encoding="utf-8")
    key = f"native {job.target.name} {job.toolchain}"
    with Steps(4, quiet=job.quiet, key=key) as steps, tempfile.TemporaryDirectory(prefix="slipway-native-") as scratch:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        compilers = family(job.toolchain).ensure(job.target)
        origin = native_layout.Origin(job.target, f"{compilers.family} {compilers.version}", job.sources, digest)
        steps.begin(f"building the packages (sources: {job.sources})")
        if job.force:
            conan_packages.again(partial(_request, job, force=True), job.sources, job.log, steps.heard)
        with new_folder(job.folder) as new:
            with conan_packages.building(job.sources, job.log):
                graph = _packages(job, steps, Path(scratch))
                steps.begin("collecting libraries, headers and licences")
                native_layout.collect(graph, new)
            steps.begin("reading the binaries: architecture, C library, instructions")
            checked = checks.check_native(job.target, new)
            native_layout.describe(origin, new, graph, checked)
    if not job.quiet:
        console.note(f"built {job.folder} in {clock}")


def _request(job: _Job, force: bool) -> conan_packages.Request:
    """All packages of the target; with ``force`` they are built again."""
    from toolchains.bundle import conan_packages

    references: list[str] = tools.table()["native"]["requires"]
    return conan_packages.Request(
        [f"--requires={reference}" for reference in references],
        conan_packages.words(job.target, job.toolchain, job.log, job.sources),
        job.log,
        f"Building the native packages for {job.target.name}",
        [reference.partition("/")[0] for reference in references] if force else [],
    )


def _packages(job: _Job, steps: Steps, scratch: Path) -> dict[str, Any]:
    """Build the packages that Conan lacks; Conan's graph."""
    from toolchains.bundle import conan_packages

    request = _request(job, force=False)
    graph = conan_packages.install(request, [f"--output-folder={scratch / 'install'}"], steps.heard, steps.heard)
    inputs.hold_against(inputs.NATIVE, graph)
    return graph
