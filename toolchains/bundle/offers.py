"""The offers of a bundle: reported by its runner, under an emulator if needed, or read from it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import BuildError
from core.formats.bundle import REAL_RUNNER, Needs, Offers, runner_argv, runner_in
from core.paths import ROOT
from core.processes.commands import quote, run
from toolchains.compilers.libstdcxx import sysroot
from toolchains.emulation import emulators, wine
from toolchains.inspect import needs as inspect
from toolchains.inspect.read_elf import newest_defined
from toolchains.targets import Target

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
        for section in ELFFile(file).iter_sections("SHT_NOTE"):
            for note in section.iter_notes():
                if note["n_type"] == "NT_GNU_ABI_TAG":
                    return "{abi_major}.{abi_minor}.{abi_tiny}".format_map(note["n_desc"])
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
    found = inspect.too_new(binaries, {"GLIBC": read(folder).version})
    newer = inspect.too_new(binaries, {"GLIBC": probed(folder)})
    return found + [f"{item} although glibc_probe accepts that C library" for item in newer]


def probed(folder: Path) -> str:
    """The GLIBC version from which on the probe accepts a device's C library: what it and its libraries need."""
    probe = folder / _PROBE
    loaded = [probe, *inspect.closure(probe, folder / "lib")]
    return inspect.newest(inspect.read(file).versions.get("GLIBC", "") for file in loaded)


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


_SPACES = rb"(?:aten|dim_order_ops|et_copy|executorch_prim|llama|quantized_decomposed)"
_KERNEL = re.compile(
    rb"(?:(?<=[^ -~])|(?<=[^ -~][!-~])|(?<=[^ -~][!-~]{2})|(?<=[^ -~][!-~]{3}))"
    rb"(?<![ '\"(`])(" + _SPACES + rb"::[A-Za-z_0-9]+(?:\.[A-Za-z_0-9]+)?)(?=\0)"
)
"""How an operator's name stands in a program: ``aten::add.out`` up to a zero byte, and not within a text. A linker may
put numbers before it, whose last bytes look like up to three letters: ``00 00 00 45`` ends in an E."""


def ask(target: Target, engine: str, folder: Path, backends: tuple[str, ...]) -> Offers:
    """The capabilities that the runner in ``folder`` reports.

    Args:
        backends: those that the engine always has, for a runner that nothing here can run.

    Raises:
        BuildError: it does not run, or does not print its capabilities.
    """
    argv, env, how = _start(target, folder)
    if not argv:
        return _read(engine, folder, backends, how)
    words = [*argv, "--capabilities", "--json"]
    done = run(
        words,
        env=env,
        timeout=300,
        error=BuildError,
        what=f"Running pte_runner for {target.name}",
        hint=f"./inv build --target {target.name} --engine {engine} --force",
    )
    try:
        said: dict[str, Any] = json.loads(done.stdout)
        return Offers(
            engine=said["engine"]["name"],
            engine_version=said["engine"]["version"],
            backends=tuple(said["backends"]),
            operators=tuple(said["operators"]),
            kleidiai=said["kleidiai"],
            verified=how,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BuildError(
            "pte_runner --capabilities did not print what it should.",
            f"{quote(words)}: {done.stdout[:200]!r}",
            "./inv test",
        ) from error


def _start(target: Target, folder: Path) -> tuple[list[str], Mapping[str, str], str]:
    """Argv that starts the runner, its environment, and how it is run; no argv when nothing here runs it."""
    # The caller's environment must not give the runner a library that the bundle lacks.
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LD_", "QEMU_"))}
    if target.os == "windows" and wine.runs(target):
        return wine.argv(target, folder / runner_in(folder)), wine.environment(target), "wine"
    native = emulators.is_native(target)
    if not native and not target.qemu:
        return [], {}, f"not run: {target.proof}"
    own = read(folder).loader if present(folder) else ""
    root = None if native or own or target.libc == "static" else sysroot(target)
    started = runner_argv(folder, "" if native else own)
    return [*emulators.user_argv(target, sysroot=root), *started], env, emulators.describe(target)


def _read(engine: str, folder: Path, backends: tuple[str, ...], how: str) -> Offers:
    """What a runner that cannot be run here offers, from the names in it and the version of its sources."""
    (program,) = (folder / "bin").glob("pte_runner*")
    # An engine whose libraries come compiled is in these.
    libraries = b"".join(file.read_bytes() for file in sorted((folder / "lib").glob("lib*.so")))
    data = libraries or program.read_bytes()
    version = re.search(rb"VERS_([\d.]+)\0", libraries)
    return Offers(
        engine=engine,
        engine_version=version[1].decode() if version else _version(),
        backends=tuple(name for name in backends if name.encode() in data),
        operators=() if libraries else operators_in(data),
        kleidiai=b"kai_run_" in data,
        verified=how,
    )


def operators_in(program: bytes) -> tuple[str, ...]:
    """Names of the operators that a runner of the engine ``lean`` has kernels for, sorted."""
    return tuple(sorted({name.decode() for name in _KERNEL.findall(program)}))


def _version() -> str:
    """The runtime's version, as ``runtime/CMakeLists.txt`` gives it."""
    text = (ROOT / "runtime" / "CMakeLists.txt").read_text(encoding="utf-8")
    found = re.search(r"project\(slipway_runtime VERSION ([\d.]+)", text)
    return found[1] if found else ""
