"""Build a bundle: compilers, Conan, checks, ``dist/<target>/<engine>``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core import console
from core.bundle import MANIFEST, SBOM, Bundle
from core.errors import BuildError, BundleError, NotSupportedError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.locks import Clock
from core.paths import ROOT, bundle_dir, cache_dir
from toolchains import tools
from toolchains.build.selection import Selection
from toolchains.build.steps import Steps
from toolchains.targets import Target, get_target

_ROOM = ROOT / "toolchains"
MODULES = (
    *(f"build/{name}.py" for name in ("builder", "conan", "conan_packages", "layout", "offers", "own_loader")),
    *(f"build/{name}.py" for name in ("sbom", "selection", "steps")),
    *(f"compilers/{name}.py" for name in ("families", "gnu", "hardening", "libstdcxx", "ndk", "sysroot", "xcode")),
    *(f"compilers/{name}" for name in ("zig.py", "zig_wrapper.sh", "libstdcxx_compat.cpp")),
    "debian/fetch_source.py",
    *(f"inspect/{name}.py" for name in ("archives", "binary", "checks", "code", "hardening", "isa", "isa_scan")),
    *(f"inspect/{name}.py" for name in ("isa_x86", "needs", "read_elf", "read_lief", "symbols")),
    *("inspect/isa.toml", "ndk_folder.py", "systems.py", "systems.toml"),
)
"""Files of this room that a bundle depends on; the other tables count by the rows that are used."""

_STEPS = 5
_WAITING = "      waiting for Conan"


@dataclass(frozen=True)
class _Job:
    """What is to be built."""

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
    def stamp(self) -> Path:
        """Beside the bundle, not in it: the digest of what it was made from."""
        return self.folder.parent / f".{self.folder.name}.built.json"


def _sources() -> Iterator[tuple[str, Path]]:
    """Every file that a bundle is made from, with the name it goes by."""
    for name in ("conanfile.py", "LICENSE"):
        yield name, ROOT / name
    for folder in (ROOT / "runtime", ROOT / "recipes"):
        for file in folder.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), file
    for name in MODULES:
        yield f"toolchains/{name}", _ROOM / name


def _inputs(job: _Job) -> str:
    """Digest of everything that decides what a build makes; the same digest means nothing to do."""
    facts = [repr(job.target), json.dumps(tools.table(), sort_keys=True)]
    facts += [job.engine, job.toolchain, str(job.allow_newer_glibc), repr(job.selection)]
    facts += [f"{name} {version(name)}" for name in ("conan", "cmake", "ninja")]
    facts += [f"{name} {sha256_file(file)}" for name, file in sorted(_sources())]
    return sha256_bytes("\n".join(facts).encode())


def _current(job: _Job, digest: str) -> Bundle | None:
    """The bundle that is there, if it is whole and was made from these very inputs."""
    if job.force:
        return None
    try:
        stamp = json.loads(job.stamp.read_text(encoding="utf-8"))
        if stamp != {"inputs": digest, "manifest": sha256_file(job.folder / MANIFEST)}:
            return None
        return Bundle.load(job.folder)
    except (OSError, ValueError, BundleError):
        return None


def build(
    target_name: str,
    engine: str = "",
    toolchain: str = "",
    force: bool = False,
    *,
    allow_newer_glibc: bool = False,
    selection: Selection | None = None,
) -> Bundle:
    """The bundle of ``target_name``, built if it is not there or something it is made from has changed.

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
    digest = _inputs(job)
    if found := _current(job, digest):
        return found
    with locked(f"bundle-{sha256_bytes(str(job.folder).encode())[:16]}", "waiting: this bundle is being built already"):
        return _current(job, digest) or _build(job, digest)


def _build(job: _Job, digest: str) -> Bundle:
    from toolchains.build import conan_packages, layout, sbom
    from toolchains.compilers.families import family

    clock = Clock()
    log = cache_dir("logs") / f"build-{job.target.name}-{job.engine}.log"
    log.write_text("", encoding="utf-8")
    with Steps(_STEPS) as steps:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        compilers = family(job.toolchain).ensure(job.target)
        origin = layout.Origin(
            job.target, job.engine, f"{compilers.family} {compilers.version}", job.allow_newer_glibc, job.selection
        )
        with new_folder(job.folder) as new:
            with conan_packages.building():
                package, graph = _package(job, steps, log)
                steps.begin("reading the binaries: architecture, C library, libraries, instructions")
                layout.collect(package, new)
            conan_packages.forget("slipway-runtime/*", log)
            binaries = layout.check(origin, new)
            checked = layout.scan(origin, new, binaries)
            steps.begin("asking pte_runner what it offers, where it can be run")
            offered = layout.offers(origin, new)
            name = f"slipway-{job.engine}-{job.target.name}"
            write_json(new / SBOM, sbom.write(graph, name, digest[:16], layout.entries(new)))
            layout.describe(origin, new, binaries, offered, checked)
    write_json(job.stamp, {"inputs": digest, "manifest": sha256_file(job.folder / MANIFEST)})
    console.note(f"built {job.folder} in {clock}")
    return Bundle.load(job.folder)


def _package(job: _Job, steps: Steps, log: Path) -> tuple[Path, dict[str, Any]]:
    """Build the runner's Conan package unless Conan has this very one; its folder in Conan's cache, Conan's graph."""
    from toolchains.build import conan, conan_packages

    compiling = f"compiling pte_runner with the engine {job.engine}"

    def heard(line: str) -> None:
        if line.startswith("Building from source slipway-runtime/"):
            steps.begin(compiling)
        else:
            steps.heard(line)

    steps.begin("packaging the libraries of recipes/")
    host, own = conan.profile(job.target, job.toolchain), conan.build_profile()
    what = f"Building pte_runner for {job.target.name}"
    with locked(conan.LOCK, _WAITING):
        words = [f"--profile:host={host}", f"--profile:build={own}"]
        words += [f"--options=slipway-runtime/*:engine={job.engine}"]
        words += job.selection.words if job.selection else []
        words += [f"--lockfile={conan.lockfile(log)}", "--lockfile-partial", f"--remote={conan.remote()}"]
        exported = json.loads(conan.conan(["export", ROOT, "--format=json"], log=log, what=what))
    subject = [f"--requires={exported['reference']}"]
    force = ("slipway-runtime",) if job.force else ()
    conan_packages.prepare(conan_packages.Wanted(subject, words, log, what, force), heard)
    with locked(conan.LOCK, _WAITING):
        argv = ["install", *subject, *words, "--envs-generation=false", "--format=json"]
        text = conan.conan(argv, log=log, what=what, heard=steps.heard)
    steps.begin(compiling)
    graph: dict[str, Any] = json.loads(text)["graph"]
    nodes = graph["nodes"].values()
    folder = next((node["package_folder"] for node in nodes if node["name"] == "slipway-runtime"), None)
    if not folder:
        raise BuildError("Conan made no package of pte_runner.", "", f"less {log}")
    return Path(folder), graph
