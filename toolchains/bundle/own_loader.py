"""Bundles that bring a loader and a C library of their own, because their libraries need a newer one than devices have.

Such a bundle holds, besides ``bin/pte_runner.real`` and ``lib/``: the script ``bin/pte_runner``, which chooses the
loader on the device; ``lib/glibc/`` with the loader and the C library; and ``lib/glibc/glibc_probe``, the program by
which the script finds out whether the device's own C library is new enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import BuildError
from core.formats.bundle import REAL_RUNNER, Needs
from toolchains.inspect import needs as inspect
from toolchains.inspect.read_elf import newest_defined

FOLDER = "lib/glibc"
_PROBE = f"{FOLDER}/glibc_probe"

_KERNELS = {"aarch64": "4.11.0"}
"""Oldest Linux by machine where it is newer than the C library's: from 4.11 on programs may read the registers that
describe the CPU, which ONNX Runtime's fixed library does (see its recipe)."""


def present(folder: Path) -> bool:
    """Whether a package or bundle has its own loader."""
    return (folder / REAL_RUNNER).is_file()


def files(package: Path) -> Iterator[tuple[str, int]]:
    """Path and mode of what such a bundle has beside the runner's script, its libraries and the licences."""
    yield REAL_RUNNER, 0o755
    for file in sorted((package / FOLDER).iterdir()):
        yield f"{FOLDER}/{file.name}", 0o755 if file.name.startswith("ld-") or file.name == "glibc_probe" else 0o644


@dataclass(frozen=True)
class OwnLibc:
    """The bundle's own C library."""

    loader: str
    version: str
    """Newest GLIBC symbol version that it defines."""
    kernel: str
    """Oldest Linux that it runs on."""


def _kernel(path: Path) -> str:
    """The oldest kernel of a C library: the note ``NT_GNU_ABI_TAG`` that glibc puts into it."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        notes: list[Any] = [
            note for section in ELFFile(file).iter_sections("SHT_NOTE") for note in section.iter_notes()
        ]
    for note in notes:
        if note["n_type"] == "NT_GNU_ABI_TAG":
            tag = note["n_desc"]
            return f"{tag['abi_major']}.{tag['abi_minor']}.{tag['abi_tiny']}"
    return ""


def read(folder: Path) -> OwnLibc:
    """The C library in ``lib/glibc`` of a bundle.

    Raises:
        BuildError: it or the loader is missing.
    """
    loaders = sorted((folder / FOLDER).glob("ld-linux*"))
    libc = folder / FOLDER / "libc.so.6"
    if len(loaders) != 1 or not libc.is_file():
        raise BuildError(
            "The bundle has no loader and C library of its own, and its libraries need one.",
            f"{FOLDER} holds {', '.join(file.name for file in sorted((folder / FOLDER).glob('*'))) or 'nothing'}",
            "./inv build --force",
        )
    return OwnLibc(loaders[0].relative_to(folder).as_posix(), newest_defined(libc, "GLIBC"), _kernel(libc))


def problems(folder: Path, binaries: Sequence[inspect.Binary]) -> list[str]:
    """Reasons why such a bundle would not start: with its own C library, or with a device's that the probe accepts."""
    own = read(folder)
    found = inspect.too_new(binaries, {"GLIBC": own.version})
    accepted = probed(folder)
    found += [
        f"{item} although glibc_probe accepts that C library" for item in inspect.too_new(binaries, {"GLIBC": accepted})
    ]
    return found


def probed(folder: Path) -> str:
    """The GLIBC version from which on the probe accepts a device's C library: what it and its libraries need."""
    probe = folder / _PROBE
    loaded = [probe, *inspect.closure(probe, folder / "lib")]
    versions = (inspect.read(file).versions.get("GLIBC", "") for file in loaded)
    return inspect.newest(version for version in versions if version)


def needs(folder: Path, plain: Needs) -> Needs:
    """The bundle's needs, derived from those of its binaries."""
    own = read(folder)
    return plain.model_copy(
        update={
            "glibc": "", "glibcxx": "", "loader": "", "libraries": (),
            "own_loader": own.loader, "own_glibc_from": probed(folder),
            "kernel": inspect.newest([own.kernel, _KERNELS.get(plain.machine, "")]),
        }
    )  # fmt: skip
