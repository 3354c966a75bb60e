"""Build a target's native packages: XNNPACK and what it needs, from source, into ``dist/<target>/native``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from core.errors import BuildError, ConfigError
from core.formats.bundle import Native, NativeManifest
from core.paths import build_dir
from toolchains import tools
from toolchains.bundle import inputs, sbom
from toolchains.bundle.layout import bill, copy, describe
from toolchains.bundle.making import Job, Steps
from toolchains.targets import Target, get_target

LIBRARIES = (".a", ".lib", ".so", ".dylib", ".dll")


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


def kleidiai(target: Target, graph: sbom.Graph) -> str:
    """The KleidiAI version that XNNPACK was built with, or why there is none."""
    for node in sbom.host_nodes(graph):
        if node["name"] == "kleidiai":
            prebuilt = sbom.origin(node).get("place") == "debian"
            how = "as Debian compiled it" if prebuilt else "compiled from upstream's git"
            return f"kleidiai/{node['version']}, {how}"
    if target.machine != "aarch64":
        return "KleidiAI is for 64-bit Arm"
    return f"Debian's KleidiAI is for Linux; for {target.os} INVOKE_SLIPWAY_SOURCES=git compiles upstream's"


SOURCES = ("auto", "debian", "git")

Source = Literal["debian", "git"]


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
    family_name, source = target.toolchain(toolchain), choose_source(sources)
    folder = build_dir(target.name, inputs.NATIVE)
    job = Job(target.built_with(family_name), family_name, inputs.NATIVE, folder, force, facts=(source,))
    return job.ensure(Native.load, _build)


def _build(job: Job) -> None:
    from toolchains.bundle import conan_packages
    from toolchains.inspect import checks

    (source,) = job.facts
    with job.begun(4) as (steps, new, toolchain):
        steps.begin(f"building the packages (sources: {source})")
        with conan_packages.building():
            graph = _packages(job, steps)
            steps.begin("collecting libraries, headers and licences")
            collect(graph, new)
        steps.begin("reading the binaries: architecture, C library, instructions")
        checked = checks.check_native(job.target, new)
        bill(job, graph, new, (), toolchain)
        describe(
            NativeManifest, job, new, toolchain=toolchain, isa_floor=job.target.isa_floor, libc=job.target.libc,
            sources=source, kleidiai=kleidiai(job.target, graph), checks=checked,
            packages=tuple(f"{node['name']}/{node['version']}" for node in sbom.host_nodes(graph)),
        )  # fmt: skip


def _packages(job: Job, steps: Steps) -> dict[str, Any]:
    """Build the packages that Conan lacks; Conan's graph."""
    from toolchains.bundle import conan_packages

    references: list[str] = tools.table()["native"]["requires"]
    graph = conan_packages.install(
        [f"--requires={reference}" for reference in references],
        conan_packages.words(job.target, job.toolchain, job.log, str(*job.facts)),
        job.log,
        f"Building the native packages for {job.target.name}",
        force=[reference.partition("/")[0] for reference in references] if job.force else [],
        heard=steps.heard,
    )
    inputs.hold_against(inputs.NATIVE, graph)
    return graph
