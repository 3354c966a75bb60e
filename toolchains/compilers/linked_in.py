"""What compilers put into every program and shared library that they link: start files and run-time libraries.

A bill of materials names them, as parts of them are delivered; their licences' texts are delivered where the compilers
bring them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from core.processes.commands import run
from toolchains.targets import Target

LLVM = "Apache-2.0 WITH LLVM-exception"
GCC = "GPL-3.0-or-later WITH GCC-exception-3.1"


@dataclass(frozen=True)
class LinkedIn:
    """A library, or the start files of a C library."""

    name: str
    version: str
    license: str
    """SPDX's expression. GCC's exception asks for no notice in what is linked; the texts of the others are here."""
    homepage: str
    texts: tuple[Path, ...] = ()
    """Files with the licence's text."""
    instead_of: str = ""
    """A shared library: what needs that one at run time has nothing of this one inside."""

    @property
    def purl(self) -> str:
        """Its package URL."""
        return f"pkg:generic/{quote(self.name, safe='')}@{quote(self.version, safe='')}"


def within(linked: Iterable[LinkedIn], needed: Iterable[str]) -> tuple[LinkedIn, ...]:
    """Those of ``linked`` that are in files which need the shared libraries ``needed`` at run time."""
    shared = set(needed)
    return tuple(one for one in linked if one.instead_of not in shared)


def _defined(text: str, pattern: str) -> str:
    """The number that a header defines; empty when it does not."""
    found = re.search(pattern, text)
    return found[1] if found else ""


def _libcxx(library: Path) -> str:
    """``22.1.8``, which libc++'s header calls 220108."""
    text = (library / "libcxx/include/__config").read_text(encoding="utf-8")
    number = int(_defined(text, r"_LIBCPP_VERSION (\d+)") or 0)
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""


def _mingw(text: str) -> str:
    parts = (_defined(text, rf"__MINGW64_VERSION_{part} (\d+)") for part in ("MAJOR", "MINOR", "BUGFIX"))
    return ".".join(part for part in parts if part)


def gcc_library(name: str, version: str, instead_of: str = "") -> LinkedIn:
    """``libstdc++`` or ``libgcc`` of a GCC."""
    return LinkedIn(name, version, GCC, "https://gcc.gnu.org", instead_of=instead_of)


def _glibc(version: str, texts: tuple[Path, ...]) -> LinkedIn:
    # The start files and libc_nonshared.a: the rest is the device's.
    return LinkedIn("glibc", version, "LGPL-2.1-or-later", "https://sourceware.org/glibc/", texts)


def _mingw_w64(version: str, texts: tuple[Path, ...]) -> LinkedIn:
    return LinkedIn("mingw-w64", version, "ZPL-2.1", "https://www.mingw-w64.org", texts)


def of_llvm(version: str, names: Iterable[str], texts: tuple[Path, ...] = ()) -> list[LinkedIn]:
    """Libraries of LLVM of one version."""
    return [LinkedIn(name, version, LLVM, "https://llvm.org", texts) for name in names]


def of_zig(version: str, library: Path, target: Target, gcc: str) -> tuple[LinkedIn, ...]:
    """What zig links in.

    Args:
        library: the folder ``lib`` of its distribution.
        gcc: version of the libstdc++ that some programs have in place of the device's; empty where the C library is not
            glibc.
    """
    own = LinkedIn("zig-compiler-rt", version, "MIT", "https://ziglang.org", (library.parent / "LICENSE",))
    found = [own]
    if target.libc == "glibc":
        found.append(_glibc(target.max_glibc, (library / "libc/glibc/LICENSES",)))
        found.append(gcc_library("libstdc++", gcc, "libstdc++.so.6"))
        return tuple(found)
    if target.os == "windows":
        header = (library / "libc/include/any-windows-any/_mingw_mac.h").read_text(encoding="utf-8")
        found.append(_mingw_w64(_mingw(header), (library / "libc/mingw/COPYING",)))
    elif target.libc in ("musl", "static"):
        musl = (library / "libc/musl/src/internal/version.h").read_text(encoding="utf-8")
        number = _defined(musl, r'VERSION "([^"]+)"')
        found.append(LinkedIn("musl", number, "MIT", "https://musl.libc.org", (library / "libc/musl/COPYRIGHT",)))
    # A Mac has the unwinder itself.
    for name in ("libc++", "libc++abi", *(() if target.os in ("macos", "ios") else ("libunwind",))):
        folder = {"libc++": "libcxx", "libc++abi": "libcxxabi"}.get(name, name)
        found += of_llvm(_libcxx(library), [name], (library / folder / "LICENSE.TXT",))
    return tuple(found)


def _said(compiler: str, header: str) -> str:
    """The macros that a compiler has after a header of its C library."""
    words = [compiler, "-E", "-dM", "-include", header, "-x", "c", os.devnull]
    return run(words, what=f"Reading the C library's version from {compiler}").stdout


def of_gnu(version: str, compiler: str, target: Target) -> tuple[LinkedIn, ...]:
    """What Debian's GCC links in.

    Args:
        version: the compiler's.
    """
    found = [gcc_library("libgcc", version)]
    if target.os == "windows":
        text = Path("/usr/share/doc/mingw-w64-common/copyright")
        found.append(gcc_library("libstdc++", version))
        mingw = _mingw_w64(_mingw(_said(compiler, "_mingw_mac.h")), (text,) if text.is_file() else ())
        return (*found, mingw)
    said = _said(compiler, "features.h")
    numbers = (_defined(said, rf"__{name}__ (\d+)") for name in ("GLIBC", "GLIBC_MINOR"))
    text = Path("/usr/share/doc/libc6-dev/copyright")
    return (*found, _glibc(".".join(numbers), (text,) if text.is_file() else ()))
