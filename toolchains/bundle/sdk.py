"""Build a target's SDK, for other people's programs: a folder in ``dist/<target>``, and the same as an archive.

``sdk`` is libslipway. An engine whose libraries come compiled has ``sdk-<engine>``: its bundle, with headers and a
package for CMake. Beside them is CMake's toolchain file of the target.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from core.errors import BundleError
from core.files import sha256_file, write_atomic
from core.formats.bundle import Checks, Listing, read_manifest
from core.formats.program import ENGINES
from core.paths import build_dir
from core.strict_json import Frozen
from toolchains.bundle import toolchain_file
from toolchains.bundle.inputs import Selection
from toolchains.bundle.making import Job, Steps
from toolchains.targets import Target, get_target

if TYPE_CHECKING:
    from toolchains.inspect.needs import Binary

ENGINE = "lean"
"""The engine in libslipway."""
_LIBSLIPWAY = ("include", "lib", "licenses")
_FOR_CMAKE = ("include", "lib/cmake", "res")
"""What an SDK has besides a bundle's files."""


class SdkManifest(Listing):
    """What a build leaves in ``dist/<target>/sdk/manifest.json``."""

    kind: Literal["sdk"] = "sdk"
    engine: str = ENGINE
    version: str
    """Of libslipway, or of the engine."""
    isa_floor: str
    libc: str
    shared: bool
    """Whether there is a shared library, too: not for systems whose programs are static."""
    programs: tuple[str, ...] = ()
    """Names of the programs that it is for alone; empty: it runs all."""
    checks: Checks


class Sdk(Frozen):
    """A target's SDK on this machine."""

    path: Path
    archive: Path
    """The same as ``.tar.xz``; beside it a file with its SHA-256."""
    manifest: SdkManifest

    @property
    def toolchain_file(self) -> Path:
        """CMake's toolchain file beside the folder: it names this machine's compilers, so it is not in the archive."""
        return self.path.parent / toolchain_file.NAME

    @classmethod
    def load(cls, path: Path) -> Sdk:
        """Read and check the folder ``path``.

        Raises:
            BundleError: the manifest is missing or malformed, a file is missing or changed, or there is no archive.
        """
        kind = path.name.removeprefix("sdk-")
        again = f"./inv build --target {path.parent.name} --sdk{f' --engine {kind}' if kind in ENGINES else ''}"
        manifest = read_manifest(path, SdkManifest, "is no SDK", again)
        archive = _archive(path, manifest)
        if not archive.is_file():
            raise BundleError(f"There is no SDK in {path}.", f"{archive.name} is missing", again)
        return cls(path=path, archive=archive, manifest=manifest)


def build_sdk(
    target_name: str,
    toolchain: str = "",
    force: bool = False,
    *,
    engine: str = ENGINE,
    shared: bool = False,
    selection: Selection | None = None,
) -> Sdk:
    """The SDK of an engine for ``target_name``, built if it is missing or outdated: libslipway by default.

    Two builds at once take turns; an interrupted one leaves the previous SDK as it was.

    Args:
        toolchain: the target's default when empty.
        force: compile and check again although nothing has changed.
        engine: of another engine than libslipway's, its own libraries; without the arguments below.
        shared: it must have a shared library: where programs are static, an SDK of its own has it, for another C
            library.
        selection: link only what some programs need, into an SDK of its own; not with ``shared``.

    Raises:
        ConfigError, NotSupportedError: the target or toolchain is unknown, or the engine does not work there yet.
        HostError: this machine lacks something.
        BuildError: compiling or a check failed.
    """
    from toolchains.compilers.families import family

    target = get_target(target_name)
    family_name = target.toolchain(toolchain)
    if engine not in target.embedded_engines:
        target.engine(engine, family_name)
    target = target.built_with(family_name)
    kind = "" if engine == ENGINE else engine
    if shared and target.shared:
        target = target.with_shared_libraries()
        kind = target.libc
    elif selection:
        kind = selection.name
        # The linker of the application would have to leave out the kernels of other types.
        selection = replace(selection, types=())
    folder = build_dir(target.name, "sdk", kind)
    job = Job(target, family_name, engine, folder, force, selection=selection, facts=("sdk",))
    sdk = job.ensure(Sdk.load, _build)
    if kind != target.libc:
        write_atomic(sdk.toolchain_file, toolchain_file.text(target, family(family_name).ensure(target)))
    return sdk


def _loads_shared(target: Target) -> bool:
    """Whether the target's programs load shared libraries at all."""
    return target.os == "windows" or target.libc in ("glibc", "bionic")


def _targets(target: Target) -> tuple[Target, ...]:
    """The target, and for iOS also Xcode's simulator."""
    return (target, target.simulator()) if target.os == "ios" else (target,)


def _build(job: Job) -> None:
    from toolchains.bundle import conan_packages, layout

    embedded = job.kind == ENGINE
    with job.begun(5) as (steps, new, toolchain):
        with conan_packages.building():
            made = [_make(job, target, steps) for target in _targets(job.target)]
            package, graph = made[0]
            steps.begin("reading the libraries: architecture, C library, instructions")
            if embedded:
                binaries, checked = _libslipway(job, [folder for folder, _ in made], new)
            else:
                layout.collect(package, new)
                binaries, checked = layout.check(job, new)
                # The libraries' own package has headers and files for CMake, too.
                for folder in (package, Path(conan_packages.node(graph, job.kind)["package_folder"])):
                    layout.copy_folders(folder, new, _FOR_CMAKE)
        layout.bill(job, graph, new, binaries, toolchain)
        named = conan_packages.node(graph, "slipway-runtime" if embedded else job.kind)
        manifest = layout.describe(
            SdkManifest, job, new, engine=job.kind, version=named["version"], toolchain=toolchain,
            isa_floor=job.target.isa_floor, libc=job.target.libc, shared=_loads_shared(job.target),
            programs=job.selection.programs if job.selection else (), checks=checked,
        )  # fmt: skip
        steps.begin("packing the archive")
        _pack(new, _archive(job.folder, manifest))


def _make(job: Job, target: Target, steps: Steps) -> tuple[Path, dict[str, Any]]:
    """Conan's package of libslipway, or of another engine's runner; its folder, Conan's graph."""
    from toolchains.bundle import conan_packages
    from toolchains.compilers import families

    if job.kind != ENGINE:
        return conan_packages.make(job, steps, f"pte_runner with the engine {job.kind}")
    options = [f"library={'both' if _loads_shared(job.target) else 'static'}"]
    # The check of instructions reads the table of symbols, which Conan's profile has shared libraries lose.
    conf = f"tools.build:sharedlinkflags={json.dumps(['-Wl,-S', *families.hardening(target).link])}"
    return conan_packages.make(job, steps, "libslipway", target, options=options, conf=conf)


def _libslipway(job: Job, packages: Sequence[Path], new: Path) -> tuple[list[Binary], Checks]:
    """Fill the folder ``new`` from the Conan packages of the job's targets, and check it."""
    from toolchains.bundle.layout import copy, copy_folders
    from toolchains.inspect import checks
    from toolchains.inspect.needs import read

    copy_folders(packages[0], new, _LIBSLIPWAY)
    if job.target.os == "windows":
        for file in sorted((packages[0] / "bin").glob("*.dll")):
            copy(file, new / "bin" / file.name, 0o755)
    checked = checks.check_native(job.target, new)
    if job.target.os == "ios":
        targets, libraries = _targets(job.target), [package / "lib" / "libslipway.a" for package in packages]
        written = toolchain_file.write_xcframework(new, list(zip(targets, libraries, strict=True)), new / "include")
        for target, file in zip(targets, written, strict=True):
            also = checks.check_files(target, [file], new)
            checked = checked.model_copy(update={"code": (*checked.code, *also.code)})
    return list(map(read, _shared(new))), checked


def _shared(folder: Path) -> list[Path]:
    """The shared libraries of the SDK: what links the static ones has its own compilers' parts inside."""
    found = [*(folder / "lib").glob("*.so*"), *(folder / "lib").glob("*.dylib"), *(folder / "bin").glob("*.dll")]
    return sorted(file for file in found if not file.is_symlink())


def _archive(folder: Path, manifest: SdkManifest) -> Path:
    return folder.parent / f"slipway-{folder.name}-{manifest.version}-{manifest.target}.tar.xz"


def _pack(folder: Path, archive: Path) -> None:
    """Write the archive, the same bytes for the same files, and its SHA-256 as ``sha256sum`` reads it."""
    top = archive.name.removesuffix(".tar.xz")
    packed = archive.with_name(f"{archive.name}.new")
    try:
        with tarfile.open(packed, "w:xz", format=tarfile.PAX_FORMAT) as tar:
            for file in sorted(folder.rglob("*")):
                tar.add(file, f"{top}/{file.relative_to(folder).as_posix()}", recursive=False, filter=_plain)
        packed.replace(archive)
    finally:
        packed.unlink(missing_ok=True)
    write_atomic(archive.with_name(f"{archive.name}.sha256"), f"{sha256_file(archive)}  {archive.name}\n")


def _plain(item: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without what differs between machines: owner, time, the user's umask."""
    item.uid = item.gid = 0
    item.uname = item.gname = ""
    item.mtime = 0
    item.mode = 0o755 if item.isdir() or item.mode & 0o100 else 0o644
    return item


def below(folder: Path, inside: str) -> dict[str, bytes]:
    """The files below ``folder``, by their paths in an archive that has them in its folder ``inside``."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {f"{inside}/{file.relative_to(folder).as_posix()}": file.read_bytes() for file in files}


def zipped(contents: Mapping[str, bytes], programs: tuple[str, ...] = ()) -> bytes:
    """A zip archive of these files, the same bytes for the same files.

    Args:
        programs: endings of the names of executable files.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in contents.items():
            item = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))  # the earliest time that zip knows
            item.compress_type = zipfile.ZIP_DEFLATED
            item.external_attr = (0o100755 if name.endswith(programs) else 0o100644) << 16
            archive.writestr(item, data)
    return packed.getvalue()
