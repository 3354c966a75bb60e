"""The binary interface of libslipway's C API, compared by abidiff with the one that was promised.

The promise is ``runtime/bindings/abi/``: one dump of libabigail's for each ``SLIPWAY_ABI_VERSION``, of linux-x86_64.
Libraries are built without debug information, so the interface is read from a library that is compiled from the
header, with an empty body for each function. The header's declarations are also those of the real functions: C has no
overloads, and compilers refuse a second type. That the real library exports just these names is a test of its own.

    python -m verify.abi             compare
    python -m verify.abi --update    put added functions into the dump
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from core.errors import BuildError, HostError, SlipwayError
from core.paths import ROOT
from core.processes.commands import run
from toolchains.compilers.families import family
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.debian.tree import own_loader_argv
from toolchains.targets import get_target
from toolchains.tools import table

HEADER = ROOT / "runtime" / "include" / "slipway" / "slipway.h"
EXPORTS = ROOT / "runtime" / "library" / "exports.map"
TARGET = "linux-x86_64"
_FOLDER = ROOT / "runtime" / "bindings" / "abi"
_CHANGED, _FAILED = 4, 3
"""Bits of abidiff's exit status: the interfaces differ; it could not compare (libabigail's manual)."""


@dataclass(frozen=True)
class Difference:
    """How a header's interface differs from the promised one."""

    broken: str
    """abidiff's report of what was changed or removed; empty when programs compiled before still run."""
    added: str
    """abidiff's report when functions were added."""


def dump(header: Path = HEADER) -> Path:
    """The file of the promised interface of the header's ``SLIPWAY_ABI_VERSION``."""
    found = re.search(r"^#define SLIPWAY_ABI_VERSION (\d+)$", header.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise BuildError(f"{header} has no SLIPWAY_ABI_VERSION.", "", "git diff runtime/include")
    return _FOLDER / f"slipway-{found[1]}-{TARGET}.xml"


def _abigail(name: str) -> list[str]:
    """The words that start a program of libabigail: Debian's, fetched if it is not in the cache; else the system's.

    Raises:
        HostError: it is not available here.
    """
    reason = debian.runnable()
    if not reason:
        pinned = table()["abigail"]
        package = f"abigail-tools={pinned['version']}"
        root = debian.tree(pinned["suite"], host_arch(), [package], closure=True, name="abigail")
        return own_loader_argv(root, f"usr/bin/{name}")
    if installed := shutil.which(name):
        return [installed]
    raise HostError(f"There is no {name} on this machine.", reason, "install libabigail")


def _library(header: Path, folder: Path) -> Path:
    """A shared library with the header's functions, and with debug information."""
    text = re.sub(
        r"^(SLIPWAY_API[^;]*);", r"\1 { __builtin_trap(); }", header.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    (folder / "slipway.c").write_text(text, encoding="utf-8")
    made = folder / "libslipway.so.1"
    words = ["-std=c11", "-gdwarf-4", "-O0", "-fPIC", "-shared", f"-Wl,--version-script={EXPORTS}"]
    compiler = family("zig").ensure(get_target(TARGET)).cc
    argv: list[str | Path] = [compiler, *words, "-Wl,-soname,libslipway.so.1", "slipway.c", "-o", made]
    run(argv, cwd=folder, what=f"Compiling {header.name}")
    return made


def write(file: Path, header: Path = HEADER) -> None:
    """Write the dump of a header's interface.

    Raises:
        HostError: libabigail is not available here.
        BuildError: the header does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-abi-") as name:
        library = _library(header, Path(name))
        words = ["--no-corpus-path", "--no-comp-dir-path", "--no-show-locs", "--type-id-style", "hash"]
        file.parent.mkdir(parents=True, exist_ok=True)
        run([*_abigail("abidw"), *words, "--out-file", file, library], what="Reading the C API")


def compare(promised: Path, header: Path = HEADER) -> Difference:
    """Compare a header's interface with a dump.

    Raises:
        HostError: libabigail is not available here, or cannot read the dump.
        BuildError: the header does not compile.
    """
    with tempfile.TemporaryDirectory(prefix="slipway-abi-") as name:
        library = _library(header, Path(name))
        return Difference(_differ(promised, library, "--no-added-syms"), _differ(promised, library))


def _differ(promised: Path, library: Path, *words: str) -> str:
    done = run([*_abigail("abidiff"), "--no-show-locs", *words, promised, library], error=None)
    if done.returncode & _FAILED:
        raise HostError("abidiff cannot compare the C API.", done.stderr.strip(), "python -m verify.abi --update")
    return done.stdout if done.returncode & _CHANGED else ""


def main(words: list[str]) -> int:
    """Compare, or update the dump when nothing is broken.

    Raises:
        BuildError: the interface differs.
    """
    promised = dump()
    if not promised.is_file():
        write(promised)
        return 0
    found = compare(promised)
    if found.broken:
        raise BuildError(
            "The C API is no longer that of its SLIPWAY_ABI_VERSION.",
            found.broken,
            "undo the change, or give slipway.h and the library's name the next version",
        )
    if "--update" in words:
        write(promised)
    elif found.added:
        raise BuildError(f"{promised.name} lacks functions.", found.added, "python -m verify.abi --update")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SlipwayError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
