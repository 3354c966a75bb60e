"""Build a target's native packages: XNNPACK and what it needs, from source, into ``dist/<target>/native``."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core import console
from core.errors import BuildError, ConfigError
from core.files import new_folder, write_json
from core.files.locks import Clock
from core.formats.bundle import MANIFEST, SBOM, Checks, Native, NativeManifest, NativePackage
from core.paths import cache_dir, native_dir
from toolchains import tools
from toolchains.bundle import inputs, sbom
from toolchains.bundle.layout import copy, entries
from toolchains.bundle.making import Making, Steps
from toolchains.compilers.families import family
from toolchains.targets import Target, get_target

if TYPE_CHECKING:
    from toolchains.bundle import conan_packages

LIBRARIES = (".a", ".lib", ".so", ".dylib", ".dll")


@dataclass(frozen=True)
class Origin:
    """The inputs and the purpose of native packages."""

    target: Target
    toolchain: str
    """The compilers, for the manifest: ``zig 0.17.0``."""
    sources: Literal["debian", "git"]
    digest: str
    """Of everything they were made from."""


def collect(graph: sbom.Graph, out: Path) -> None:
    """Copy libraries, headers and licences of every package of the graph to ``out``.

    Raises:
        BuildError: two packages have a file of the same name, or there are no libraries.
    """
    for node in sbom.host_nodes(graph):
        package = Path(node["package_folder"])
        for file in sorted(package.rglob("*")):
            inside = file.relative_to(package)
            top = inside.parts[0]
            if not file.is_file() or top not in ("lib", "include", "licenses"):
                continue
            if top == "lib" and file.suffix not in LIBRARIES:
                continue
            target = out / (Path("licenses", node["name"], *inside.parts[1:]) if top == "licenses" else inside)
            if target.exists():
                raise BuildError(f"Two packages have {inside}.", f"one is {node['ref']}", "fix the recipe")
            copy(file, target, 0o644)
    if not (out / "lib").is_dir():
        raise BuildError("The packages have no library.", "Conan's graph is empty", "./inv build --packages --force")


def kleidiai(target: Target, graph: sbom.Graph) -> tuple[bool, str]:
    """The KleidiAI version that XNNPACK was built with, or why there is none."""
    for node in sbom.host_nodes(graph):
        if node["name"] == "kleidiai":
            prebuilt = sbom.origin(node).get("place") == "debian"
            how = "as Debian compiled it" if prebuilt else "compiled from upstream's git"
            return True, f"kleidiai/{node['version']}, {how}"
    if target.machine != "aarch64":
        return False, "KleidiAI is for 64-bit Arm"
    return False, f"Debian's KleidiAI is for Linux; for {target.os} INVOKE_SLIPWAY_SOURCES=git compiles upstream's"


def notes(target: Target, toolchain: str) -> tuple[str, ...]:
    """What a user must know about these packages."""
    if target.os == "android" and toolchain.partition(" ")[0] != "ndk":
        return ("Android without an NDK: static programs with musl, not bionic; they use no library of Android's",)
    return ()


def describe(origin: Origin, folder: Path, graph: sbom.Graph, checked: Checks | None = None) -> NativeManifest:
    """Write the bill of materials and the manifest of what is in ``folder``."""
    target = origin.target
    delivered = entries(folder)
    name = f"slipway-native-{target.name}"
    document = sbom.write(graph, name, origin.digest[:16], delivered)
    write_json(folder / SBOM, document)
    with_kleidiai, why = kleidiai(target, graph)
    manifest = NativeManifest(
        target=target.name,
        toolchain=origin.toolchain,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        isa_floor=target.isa_floor,
        libc=target.libc,
        sources=origin.sources,
        kleidiai=with_kleidiai,
        kleidiai_note=why,
        notes=notes(target, origin.toolchain),
        checks=checked,
        packages=tuple(
            NativePackage(
                name=node["name"],
                version=node["version"],
                license=str(node["license"]),
                revision=node["rrev"],
                package_id=node["package_id"],
                source=sbom.origin(node),
            )
            for node in sbom.host_nodes(graph)
        ),
        files=entries(folder),
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return manifest


SOURCES = ("auto", "debian", "git")

Source = Literal["debian", "git"]


@dataclass(frozen=True)
class _Job:
    """The native packages to build."""

    target: Target
    toolchain: str
    sources: Source
    force: bool

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


def build_native(target_name: str, toolchain: str = "", sources: str = "auto", force: bool = False) -> Native:
    """The native packages of ``target_name``, built if they are missing or outdated.

    Packages that Conan has already are used as they are; two builds at once take turns; an
    interrupted one leaves the previous packages as they were.

    Args:
        toolchain: the target's default when empty.
        sources: ``auto``, ``debian`` or ``git``.
        force: compile and check again although nothing has changed.

    Raises:
        ConfigError: the target, the toolchain or the sources are unknown.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    target = get_target(target_name)
    family_name = target.toolchain(toolchain)
    job = _Job(target.built_with(family_name), family_name, choose_source(sources), force)
    digest = inputs.digest(inputs.NATIVE, job.target, job.toolchain, job.sources)
    making = Making(job.folder, digest, Native.load)
    return making.ensure(lambda: _build(job, digest), "waiting: these packages are being built already", force=force)


def _build(job: _Job, digest: str) -> None:
    from toolchains.bundle import conan_packages
    from toolchains.inspect import checks

    clock = Clock()
    job.log.write_text("", encoding="utf-8")
    key = f"native {job.target.name} {job.toolchain}"
    with Steps(4, key=key) as steps, tempfile.TemporaryDirectory(prefix="slipway-native-") as scratch:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        compilers = family(job.toolchain).ensure(job.target)
        origin = Origin(job.target, f"{compilers.family} {compilers.version}", job.sources, digest)
        steps.begin(f"building the packages (sources: {job.sources})")
        if job.force:
            conan_packages.again(partial(_request, job, force=True), job.sources, job.log, steps.heard)
        with new_folder(job.folder) as new:
            with conan_packages.building(job.sources, job.log):
                graph = _packages(job, steps, Path(scratch))
                steps.begin("collecting libraries, headers and licences")
                collect(graph, new)
            steps.begin("reading the binaries: architecture, C library, instructions")
            checked = checks.check_native(job.target, new)
            describe(origin, new, graph, checked)
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
