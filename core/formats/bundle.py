"""The bundle's manifest: what a build leaves in ``dist/<target>/<engine>/manifest.json``.

Written by the build, read by everything that deploys. Paths are POSIX and relative to the bundle;
nothing in a manifest is trusted before `Bundle.load` has checked it.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar

from pydantic import Field, ValidationError, field_validator

from core.errors import BundleError, UsageError
from core.files import sha256_file
from core.paths import dist_dir
from core.strict_json import Frozen, parse_json

MANIFEST = "manifest.json"
SBOM = "sbom.cdx.json"
"""The bill of materials beside it, CycloneDX 1.6."""
RUNNER = "bin/pte_runner"
REAL_RUNNER = "bin/pte_runner.real"
"""The program itself in bundles whose `RUNNER` is a script that chooses the loader."""


class FileEntry(Frozen):
    """One file of the bundle."""

    path: str
    size: int = Field(ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    executable: bool = False

    @field_validator("path")
    @classmethod
    def _inside(cls, value: str) -> str:
        parts = PurePosixPath(value).parts
        if not parts or value.startswith("/") or ".." in parts or "\\" in value or "\n" in value:
            raise ValueError(f"path {value!r} leaves the bundle")
        return value


class Needs(Frozen):
    """What the binaries require of a device, as read from the binaries themselves."""

    os: str
    """``linux``, ``android``, ``windows``, ``macos``."""
    machine: str
    """As ``uname -m`` family: ``x86_64``, ``aarch64``, ``armv7l``, ``armv6l``, ``i686``."""
    float_abi: Literal["hard", "soft", "none"] = "none"
    """32-bit Arm's calling convention; ``none`` elsewhere."""
    libc: Literal["glibc", "musl", "static", "bionic", "msvcrt", "system"] = "glibc"
    glibc: str = ""
    """Newest GLIBC symbol version needed, ``2.28``; empty when static."""
    glibcxx: str = ""
    """Newest GLIBCXX symbol version needed, ``3.4.22``; empty when there is none."""
    loader: str = ""
    """ELF interpreter, ``/lib/ld-linux-aarch64.so.1``; empty when static."""
    libraries: tuple[str, ...] = ()
    """Shared libraries that the device must have (those in the bundle left out)."""
    cpu_features: tuple[str, ...] = ()
    """CPU features of the target's ISA floor, as ``/proc/cpuinfo`` names them."""
    own_loader: str = ""
    """The bundle's own loader, ``lib/glibc/ld-linux-aarch64.so.1``, used on devices whose C library is older than
    ``own_glibc_from``: then loader, C and C++ library of the device do not matter. Empty: it has none."""
    own_glibc_from: str = ""
    """GLIBC version from which on the device's own C library serves the bundle."""
    kernel: str = ""
    """Oldest Linux that the bundle's own C library runs on, ``3.7.0``."""


class Offers(Frozen):
    """What the runner reports about itself (``pte_runner --capabilities``)."""

    engine: str
    engine_version: str
    backends: tuple[str, ...]
    operators: tuple[str, ...]
    kleidiai: bool
    verified: str
    """How the runner was run to learn this: ``native``, ``qemu-aarch64 -cpu cortex-a72``, or ``not run: why``."""

    programs: tuple[str, ...] = ()
    """The only programs that a selective bundle was linked for; empty: it has all of the engine's operators."""


class CodeCheck(Frozen):
    """What the scan for instructions above the ISA floor found in one file."""

    path: str
    functions: int = Field(ge=0)
    kernels: int = Field(ge=0)
    """Functions that use more than the floor and are chosen at run time."""
    instructions: int = Field(ge=0)
    features: tuple[str, ...] = ()
    """CPU features that those kernels use."""
    note: str = ""
    """Why the file could not be checked like the others; empty when it was."""


class HardeningCheck(Frozen):
    """The hardening of one program or shared library: what makes a fault in it harder to exploit."""

    path: str
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    """Hardening that it lacks although our own files must have it: only files that others compiled may lack any."""


class Checks(Frozen):
    """What was checked after the build; a file that fails a check never gets into a manifest."""

    floor: str
    """The minimal CPU, on which all code outside the kernels runs."""
    code: tuple[CodeCheck, ...]
    hardening: tuple[HardeningCheck, ...] = ()


class Listing(Frozen):
    """What every manifest has."""

    schema_version: Literal[1] = 1
    target: str
    toolchain: str
    created: str
    """UTC, ISO 8601."""
    checks: Checks | None = None
    files: tuple[FileEntry, ...]


class Manifest(Listing):
    """A bundle's."""

    engine: str
    needs: Needs
    offers: Offers


class Bundle(Frozen):
    """A bundle on this machine."""

    path: Path
    manifest: Manifest

    @classmethod
    def load(cls, path: Path, verify: bool = True) -> Bundle:
        """Read and check the bundle in folder ``path``.

        Raises:
            BundleError: the manifest is missing or malformed, or a file is missing or changed.
        """
        # A selective bundle's folder has the names of its programs after the engine's.
        again = f"./inv build --target {path.parent.name} --engine {path.name.partition('-')[0]}"
        return cls(path=path, manifest=read_manifest(path, Manifest, "is no bundle", again, verify))

    @property
    def emulated_argv(self) -> list[str]:
        """Words that start the runner under user-mode emulation."""
        return runner_argv(self.path, self.manifest.needs.own_loader)


Listed = TypeVar("Listed", bound=Listing)


def read_manifest(path: Path, kind: type[Listed], nothing: str, again: str, verify: bool = True) -> Listed:
    """The manifest in the folder ``path``, with which its files are compared.

    Args:
        nothing: what is said of an empty folder, as ``is no bundle``.
        again: the command that builds it.

    Raises:
        BundleError: the manifest is missing or malformed, or a file is missing or changed.
    """
    source = path / MANIFEST
    try:
        manifest = kind.model_validate(parse_json(source.read_bytes()))
    except FileNotFoundError as error:
        raise BundleError(f"There {nothing} in {path}.", "it was not built, or was removed", again) from error
    except (ValueError, ValidationError) as error:
        raise BundleError(f"{source} is not a manifest.", str(error), again) from error
    if wrong := differences(path, manifest.files) if verify else []:
        raise BundleError(f"The files in {path} are not those that were built.", "; ".join(wrong), again, wrong)
    return manifest


def differences(folder: Path, files: tuple[FileEntry, ...]) -> list[str]:
    """Which of ``files`` are not in ``folder`` as a manifest lists them, each with a word of why."""
    wrong: list[str] = []
    for entry in files:
        file = folder / entry.path
        if not file.is_file():
            wrong.append(f"{entry.path}: missing")
        elif file.stat().st_size != entry.size or sha256_file(file) != entry.sha256:
            wrong.append(f"{entry.path}: changed")
    return wrong


def find_bundle(word: str, target: str) -> Bundle:
    """The bundle in folder ``word``, or the one of that name in ``dist/<target>``: ``lean-mlp-fp32``.

    Raises:
        UsageError: neither exists. BundleError: it is damaged.
    """
    folder = Path(word) if (Path(word) / MANIFEST).is_file() else dist_dir() / target / word
    if not word or not (folder / MANIFEST).is_file():
        there = sorted(file.parent.name for file in (dist_dir() / target).glob(f"*/{MANIFEST}"))
        there = [name for name in there if not name.startswith(("native", "sdk"))]
        raise UsageError(
            f"There is no bundle {word or 'without a name'}.",
            f"for {target} there are: {', '.join(there) or 'none'}",
            f"./inv build --target {target} --ops-from model.pte",
            [word],
        )
    return Bundle.load(folder)


class NativeManifest(Listing):
    """What a build of the native packages leaves in ``dist/<target>/native/manifest.json``."""

    kind: Literal["native"] = "native"
    isa_floor: str
    libc: str
    sources: Literal["debian", "git"]
    """Which of the two was chosen; the bill of materials says it for each package."""
    kleidiai: str
    """The KleidiAI version, or why it is left out."""
    packages: tuple[str, ...]
    """``xnnpack/cci.20241108``; the bill of materials has their licences, sources and revisions."""


class Native(Frozen):
    """Native packages on this machine: libraries and headers."""

    path: Path
    manifest: NativeManifest

    @classmethod
    def load(cls, path: Path) -> Native:
        """Read and check the native packages in folder ``path``.

        Raises:
            BundleError: the manifest is missing or malformed, or a file is missing or changed.
        """
        again = f"./inv build --target {path.parent.name} --packages"
        return cls(path=path, manifest=read_manifest(path, NativeManifest, "are no native packages", again))


def runner_in(folder: Path) -> str:
    """The runner's path in a package or bundle: with ``.exe`` in one for Windows."""
    windows = f"{RUNNER}.exe"
    return windows if (folder / windows).is_file() else RUNNER


def runner_argv(folder: Path, own_loader: str) -> list[str]:
    """Words that start the runner of the bundle in ``folder`` under user-mode emulation.

    An emulator runs programs, not scripts: if the bundle has its own loader, the loader starts the runner.
    """
    if not own_loader:
        return [os.fspath(folder / runner_in(folder))]
    loader = folder / own_loader
    libraries = f"{loader.parent}:{loader.parent.parent}"
    return [os.fspath(loader), "--inhibit-cache", "--library-path", libraries, os.fspath(folder / REAL_RUNNER)]
