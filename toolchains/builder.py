"""Build a bundle: compilers, Conan, checks, ``dist/<target>/<engine>``."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from core import console
from core.bundle import MANIFEST, Bundle
from core.errors import BuildError, BundleError
from core.files import locked, new_folder, sha256_bytes, sha256_file, write_json
from core.paths import ROOT, bundle_dir, cache_dir
from toolchains import tools
from toolchains.targets import Target, get_target

_ROOM = Path(__file__).parent
_MODULES = ("builder", "compilers", "conan", "fetch_source", "gnu", "inspect", "layout", "libstdcxx", "sysroot", "zig")
"""Modules of this room that a bundle depends on; the tables count by the rows that are used."""


def _sources() -> Iterator[Path]:
    """Every file of the checkout that a bundle is made from."""
    yield ROOT / "conanfile.py"
    yield ROOT / "LICENSE"
    for folder in (ROOT / "runtime", ROOT / "recipes"):
        yield from (file for file in folder.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    yield from (_ROOM / f"{name}.py" for name in _MODULES)
    yield from (_ROOM / name for name in ("zig_wrapper.sh", "libstdcxx_compat.cpp"))


def inputs(target: Target, engine: str, toolchain: str, allow_newer_glibc: bool) -> str:
    """Digest of everything that decides what a build makes; the same digest means nothing to do."""
    facts = [repr(target), json.dumps(tools.table(), sort_keys=True), engine, toolchain, str(allow_newer_glibc)]
    facts += [f"{name} {version(name)}" for name in ("conan", "cmake", "ninja")]
    facts += [
        f"{file.relative_to(ROOT).as_posix()} {sha256_file(file)}" for file in sorted(_sources()) if file.is_file()
    ]
    return sha256_bytes("\n".join(facts).encode())


def _stamp(folder: Path) -> Path:
    """Beside the bundle, not in it: the digest of what it was made from."""
    return folder.parent / f".{folder.name}.built.json"


def _current(folder: Path, digest: str) -> Bundle | None:
    """The bundle in ``folder`` if it is whole and was made from these very inputs."""
    try:
        stamp = json.loads(_stamp(folder).read_text(encoding="utf-8"))
        if stamp != {"inputs": digest, "manifest": sha256_file(folder / MANIFEST)}:
            return None
        return Bundle.load(folder)
    except (OSError, ValueError, BundleError):
        return None


def build(
    target_name: str, engine: str = "", toolchain: str = "", force: bool = False, *, allow_newer_glibc: bool = False
) -> Bundle:
    """The bundle of ``target_name``, built if it is not there or something it is made from has changed.

    Two builds at once take turns; an interrupted one leaves the previous bundle as it was.

    Args:
        engine, toolchain: the target's default when empty.
        force: build although nothing has changed.
        allow_newer_glibc: accept binaries that need a newer C or C++ library than the target promises
            (the manifest says which, and the preflight holds it against the device).

    Raises:
        ConfigError, NotSupportedError: the target, engine or toolchain is unknown or does not work yet.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    target = get_target(target_name)
    engine = target.engine(engine)
    toolchain = target.toolchain(toolchain)
    folder = bundle_dir(target.name, engine)
    digest = inputs(target, engine, toolchain, allow_newer_glibc)
    found = None if force else _current(folder, digest)
    if found is not None:
        return found
    with locked(f"bundle-{sha256_bytes(str(folder).encode())[:16]}"):
        found = None if force else _current(folder, digest)
        return found or _build(target, engine, toolchain, digest, allow_newer_glibc)


class _Steps:
    """Numbered lines for people, one when a step begins."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._begin = total, 0, time.monotonic()

    def next(self, text: str) -> None:
        self._done += 1
        console.note(f"[{self._done}/{self._total}] {text}")

    def seconds(self) -> float:
        return time.monotonic() - self._begin


def _build(target: Target, engine: str, toolchain: str, digest: str, allow_newer_glibc: bool) -> Bundle:
    from toolchains import emulators, layout
    from toolchains.compilers import family

    steps = _Steps(5)
    log = cache_dir("logs") / f"build-{target.name}-{engine}.log"
    log.write_text("", encoding="utf-8")
    steps.next(f"preparing {toolchain} for {target.name}")
    compilers = family(toolchain).ensure(target)
    package = _package(target, engine, toolchain, steps, log)
    origin = layout.Origin(target, engine, f"{compilers.family} {compilers.version}", allow_newer_glibc)
    folder = bundle_dir(target.name, engine)
    with new_folder(folder) as new:
        steps.next("reading the binaries: architecture, C library, libraries")
        layout.collect(package, new)
        binaries = layout.check(origin, new)
        steps.next(f"running pte_runner ({emulators.describe(target)})")
        layout.describe(origin, new, binaries, layout.offers(origin, new))
    write_json(_stamp(folder), {"inputs": digest, "manifest": sha256_file(folder / MANIFEST)})
    console.note(f"built {folder} in {steps.seconds():.0f} s")
    return Bundle.load(folder)


def _package(target: Target, engine: str, toolchain: str, steps: _Steps, log: Path) -> Path:
    """Build the runner's Conan package; its folder in Conan's cache."""
    from toolchains import conan

    def heard(line: str) -> None:
        found = re.match(r"-+ Installing package (\S+?)/", line)
        if found and found[1] == "slipway-runtime":
            steps.next(f"compiling pte_runner with the engine {engine}")
        elif line.startswith("Building from source ") and "slipway-runtime" not in line:
            console.note(f"      {line.removeprefix('Building from source ').partition(':')[0]}")

    with locked(conan.LOCK):
        steps.next("packaging the libraries of recipes/")
        host, own = conan.profile(target, toolchain), conan.profile(conan.host_target())
        text = conan.conan(
            [
                "create",
                ROOT,
                f"--profile:host={host}",
                f"--profile:build={own}",
                f"--lockfile={conan.lockfile(log)}",
                "--lockfile-partial",
                f"--remote={conan.remote()}",
                "--build=missing:*",
                f"--options=&:engine={engine}",
                "--format=json",
            ],
            log=log,
            what=f"Building pte_runner for {target.name}",
            heard=heard,
        )
        conan.forget("slipway-runtime/*", log)
    nodes = json.loads(text)["graph"]["nodes"].values()
    folder = next((node["package_folder"] for node in nodes if node["name"] == "slipway-runtime"), None)
    if not folder:
        raise BuildError("Conan made no package of pte_runner.", "", f"less {log}")
    return Path(folder)
