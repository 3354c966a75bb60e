"""From a Conan package to a bundle: what goes in, the checks on it, the manifest."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from core.errors import BuildError
from core.files import sha256_file, write_json
from core.formats.bundle import MANIFEST, REAL_RUNNER, SBOM, Checks, FileEntry, Needs, Offers, runner_in
from toolchains.bundle import offers as libraries_of_own
from toolchains.bundle import sbom
from toolchains.bundle.making import Job
from toolchains.bundle.offers import ask
from toolchains.compilers import families
from toolchains.compilers.linked_in import LinkedIn, within
from toolchains.inspect import checks
from toolchains.inspect import needs as inspect

M = TypeVar("M", bound=BaseModel)

BACKENDS: Mapping[str, tuple[str, ...]] = {
    "executorch": ("XnnpackBackend",),
    "lean": ("XnnpackBackend",),
    "onnxruntime": ("CPUExecutionProvider", "XnnpackExecutionProvider"),
}
"""Backends that a bundle of an engine is worthless without."""


def collect(package: Path, out: Path) -> None:
    """Copy the runner, the libraries it needs and all licences from the Conan package to ``out``."""
    name = runner_in(package)
    runner = package / name
    if not runner.is_file():
        raise BuildError("The build left no bin/pte_runner.", f"nothing at {runner}", "./inv build --force")
    copy(runner, out / name, 0o755)
    program = runner
    if libraries_of_own.present(package):
        program = package / REAL_RUNNER
        for path, mode in libraries_of_own.files(package):
            copy(package / path, out / path, mode)
    for library in inspect.closure(program, package / "lib"):
        copy(library, out / "lib" / library.name, 0o644)
    for text in sorted((package / "licenses").rglob("*")):
        if text.is_file():  # also through a link, as GPL to GPL-3
            copy(text, out / "licenses" / text.relative_to(package / "licenses"), 0o644)


def linked_into(binaries: Sequence[inspect.Binary], linked: Iterable[LinkedIn], out: Path) -> tuple[LinkedIn, ...]:
    """What of ``linked`` the compilers put into programs and shared libraries; its licences are copied to ``out``."""
    found = within(linked, (name for binary in binaries for name in binary.needed)) if binaries else ()
    for one in found:
        for text in one.texts:
            copy(text, out / "licenses" / one.name / text.name, 0o644)
    return found


def copy(source: Path, target: Path, mode: int) -> None:
    """Copy a file to a path whose folders may not be there yet."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def copy_folders(package: Path, out: Path, folders: Sequence[str]) -> None:
    """Copy some folders of a Conan package to ``out``."""
    for name in folders:
        for file in sorted((package / name).rglob("*")):
            inside = out / file.relative_to(package)
            if file.is_symlink():
                inside.parent.mkdir(parents=True, exist_ok=True)
                inside.symlink_to(file.readlink())
            elif file.is_file():
                copy(file, inside, 0o644)


def check(job: Job, folder: Path) -> tuple[list[inspect.Binary], Checks]:
    """Read every binary of the bundle and refuse what the target's devices would; what was read and checked.

    The engine's libraries come compiled and stripped from upstream: what they lack is noted.

    Raises:
        BuildError: wrong architecture or float ABI, too new a C or C++ library, a path of this machine inside; the
            runner has an instruction outside the kernels that are chosen at run time, or is not hardened.
    """
    own = libraries_of_own.present(folder)
    program = folder / (REAL_RUNNER if own else runner_in(folder))
    all_libraries = sorted(file for file in (folder / "lib").rglob("*") if file.is_file())
    libraries = [file for file in all_libraries if file.parent == folder / "lib"]
    binaries = checks.check_binaries(
        job.target, [program, *libraries], {} if own or job.allow_newer_glibc else checks.bounds(job.target)
    )
    if own and (found := libraries_of_own.problems(folder, binaries)):
        raise checks.unfit(job.target, found)
    hardened = checks.check_hardening(job.target, binaries, folder, prebuilt=libraries)
    checked = checks.check_code(job.target, [program, *all_libraries], folder, prebuilt=all_libraries)
    return binaries, checked.model_copy(update={"hardening": hardened})


def needs(job: Job, folder: Path, binaries: list[inspect.Binary]) -> Needs:
    """What the bundle in ``folder`` asks of a device."""
    plain = inspect.needs(job.target, binaries)
    return libraries_of_own.needs(folder, plain) if libraries_of_own.present(folder) else plain


def offers(job: Job, folder: Path) -> Offers:
    """Run the runner, emulated where needed, and take down what it says of itself.

    Raises:
        BuildError: it does not run, or the linker dropped a backend that the engine must have.
    """
    backends = job.selection.backends if job.selection else BACKENDS[job.kind]
    result = ask(job.target, job.kind, folder, backends)
    if dropped := [name for name in backends if name not in result.backends]:
        raise BuildError(
            f"The bundle has no {' and no '.join(dropped)}.",
            "the linker dropped the library that registers it, as nothing refers to its symbols "
            f"(registered: {', '.join(result.backends) or 'none'})",
            "link the runner against executorch_backends of recipes/executorch, which keeps it",
            dropped,
        )
    return result.model_copy(update={"programs": job.selection.programs}) if job.selection else result


def entries(folder: Path) -> tuple[FileEntry, ...]:
    """Every file in ``folder`` but its manifest, with size and digest."""
    return tuple(
        FileEntry(
            path=file.relative_to(folder).as_posix(),
            size=file.stat().st_size,
            sha256=sha256_file(file),
            executable=os.access(file, os.X_OK),
        )
        for file in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    )


def bill(job: Job, graph: sbom.Graph, folder: Path, binaries: Sequence[inspect.Binary], toolchain: str) -> None:
    """Write the bill of materials of what is in ``folder``.

    Args:
        graph: Conan's, of what was built.
        binaries: the programs and shared libraries, into which the compilers ``toolchain`` put parts of their own.
    """
    linked = linked_into(binaries, families.family(job.toolchain).linked(job.target), folder) if binaries else ()
    document = sbom.write(graph, f"slipway-{job.name}", job.digest[:16], entries(folder), linked, toolchain)
    write_json(folder / SBOM, document)


def describe(kind: type[M], job: Job, folder: Path, **facts: object) -> M:
    """Write the manifest of what is in ``folder``.

    Args:
        kind: the class of the manifest; ``facts`` are its fields besides those that every one has.
    """
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    manifest = kind(target=job.target.name, created=created, files=entries(folder), **facts)
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return manifest
