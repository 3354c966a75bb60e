"""Build a target's native packages: XNNPACK and what it needs, from source, into ``dist/<target>/native``."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from core import console
from core.bundle import MANIFEST, Native
from core.errors import BundleError, ConfigError, HostError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.locks import Clock
from core.paths import ROOT, cache_dir, native_dir
from toolchains import tools
from toolchains.build.builder import MODULES
from toolchains.build.steps import Steps
from toolchains.compilers.families import family
from toolchains.targets import Target, get_target

_ROOM = ROOT / "toolchains"
_MODULES = (*MODULES, "build/native.py", "build/native_layout.py")
SOURCES = ("auto", "debian", "git")
PROOF = "runtime/proof"
"""Folder of the program that proves the packages."""

Place = Literal["debian", "git"]


@dataclass(frozen=True)
class _Job:
    """What is to be built."""

    target: Target
    toolchain: str
    sources: Place
    force: bool
    quiet: bool

    @property
    def folder(self) -> Path:
        return native_dir(self.target.name)

    @property
    def stamp(self) -> Path:
        """Beside the packages: the digest of what they were made from."""
        return self.folder.parent / ".native.built.json"

    @property
    def log(self) -> Path:
        return cache_dir("logs") / f"native-{self.target.name}.log"


def place(sources: str) -> Place:
    """Where sources come from: ``auto`` is Debian's archive where this machine can read it, else upstream's git.

    Raises:
        ConfigError: no such place.
    """
    if sources not in SOURCES:
        raise ConfigError(f"There are no sources {sources!r}.", f"sources are {', '.join(SOURCES)}", "--sources auto")
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


def _recipes() -> Iterator[tuple[str, Path]]:
    """Every file that native packages are made from, with the name it goes by."""
    names = {reference.partition("/")[0] for reference in tools.table()["native"]["requires"]}
    names |= {"cpuinfo", "fxdiv", "kleidiai", "pthreadpool", "slipway_sources"}
    for folder in (PROOF, *(f"recipes/{name}" for name in names)):
        for file in (ROOT / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file.relative_to(ROOT).as_posix(), file
    for name in _MODULES:
        yield f"toolchains/{name}", _ROOM / name


def _inputs(job: _Job) -> str:
    """Digest of everything that decides what a build makes; the same digest means nothing to do."""
    facts = [repr(job.target), json.dumps(tools.table(), sort_keys=True), job.toolchain, job.sources]
    facts += [f"{name} {version(name)}" for name in ("conan", "cmake", "ninja")]
    facts += [f"{name} {sha256_file(file)}" for name, file in sorted(_recipes())]
    return sha256_bytes("\n".join(facts).encode())


def _current(job: _Job, digest: str) -> Native | None:
    """The packages that are there, if they are whole and were made from these very inputs."""
    if job.force:
        return None
    try:
        stamp = json.loads(job.stamp.read_text(encoding="utf-8"))
        if stamp != {"inputs": digest, "manifest": sha256_file(job.folder / MANIFEST)}:
            return None
        return Native.load(job.folder)
    except (OSError, ValueError, BundleError):
        return None


def build_native(
    target_name: str, toolchain: str = "", sources: str = "auto", force: bool = False, *, quiet: bool = False
) -> Native:
    """The native packages of ``target_name``, built if they are not there or something they are made from changed.

    Packages that Conan has already are taken as they are, whoever built them; two builds at once take turns; an
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
    job = _Job(target.built_with(family_name), family_name, place(sources), force, quiet)
    digest = _inputs(job)
    if found := _current(job, digest):
        return found
    name = f"native-{sha256_bytes(str(job.folder).encode())[:16]}"
    with locked(name, "waiting: these packages are being built already"):
        return _current(job, digest) or _build(job, digest)


def _build(job: _Job, digest: str) -> Native:
    from toolchains.build import conan_packages, native_layout

    clock = Clock()
    job.log.write_text("", encoding="utf-8")
    with Steps(5, quiet=job.quiet) as steps, tempfile.TemporaryDirectory(prefix="slipway-native-") as scratch:
        steps.begin(f"preparing {job.toolchain} for {job.target.name}")
        compilers = family(job.toolchain).ensure(job.target)
        origin = native_layout.Origin(job.target, f"{compilers.family} {compilers.version}", job.sources, digest)
        with new_folder(job.folder) as new:
            with conan_packages.building(job.sources, job.log):
                graph, proof = _packages(job, steps, Path(scratch))
                steps.begin("collecting libraries, headers and licences")
                native_layout.collect(graph, new, proof)
            steps.begin("reading the binaries: architecture, C library, instructions")
            checked = native_layout.check(origin, new)
            native_layout.describe(origin, new, graph, checked)
    write_json(job.stamp, {"inputs": digest, "manifest": sha256_file(job.folder / MANIFEST)})
    if not job.quiet:
        console.note(f"built {job.folder} in {clock}")
    return Native.load(job.folder)


def _packages(job: _Job, steps: Steps, scratch: Path) -> tuple[dict[str, Any], Path | None]:
    """Build the packages that Conan lacks, and the program that proves them; Conan's graph and that program."""
    from toolchains.build import conan, conan_packages

    wanted = tools.table()["native"]
    what = f"Building the native packages for {job.target.name}"
    host, own = conan.profile(job.target, job.toolchain), conan.build_profile()
    with locked(conan.LOCK, "      waiting for Conan"):
        words = [f"--profile:host={host}", f"--profile:build={own}", *conan.sources(job.sources, job.log)]
        words += [f"--lockfile={conan.lockfile(job.log)}", "--lockfile-partial", f"--remote={conan.remote()}"]
    steps.begin(f"building the packages (sources: {job.sources})")
    requires = [f"--requires={reference}" for reference in wanted["requires"]]
    force = [reference.partition("/")[0] for reference in wanted["requires"]] if job.force else []
    conan_packages.prepare(conan_packages.Wanted(requires, words, job.log, what, force), steps.heard)
    with locked(conan.LOCK, "      waiting for Conan"):
        extra = [f"--output-folder={scratch / 'install'}", "--format=json"]
        text = conan.conan(["install", *requires, *words, *extra], log=job.log, what=what, heard=steps.heard)
    steps.begin("building the program that proves them")
    proof = _proof(job, steps, words, scratch)
    graph: dict[str, Any] = json.loads(text)["graph"]
    return graph, proof


def _proof(job: _Job, steps: Steps, words: list[str], scratch: Path) -> Path | None:
    """The proof program of ``runtime/proof``, linked with the packages and with its symbols kept."""
    from toolchains.build import conan

    reference: str = tools.table()["native"]["proof"]
    out = scratch / "proof"
    out.mkdir()
    confs = {
        "tools.cmake.cmake_layout:test_folder": scratch,
        "tools.cmake.cmaketoolchain:user_presets": "",
        "user.slipway:proof_out": out,
    }
    conan.conan(
        ["test", ROOT / PROOF, reference, *words, *(f"--conf={name}={value}" for name, value in confs.items())],
        log=job.log,
        what=f"Building the proof program for {job.target.name}",
        heard=steps.heard,
    )
    return next((file for file in sorted(out.iterdir()) if file.is_file()), None)
