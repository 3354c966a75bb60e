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


_ABOUT = {
    "zig-compiler-rt": ("MIT", "https://ziglang.org", "../LICENSE"),
    # The start files and libc_nonshared.a: the rest is the device's.
    "glibc": ("LGPL-2.1-or-later", "https://sourceware.org/glibc/", "libc/glibc/LICENSES"),
    "musl": ("MIT", "https://musl.libc.org", "libc/musl/COPYRIGHT"),
    "mingw-w64": ("ZPL-2.1", "https://www.mingw-w64.org", "libc/mingw/COPYING"),
    "libc++": (LLVM, "https://llvm.org", "libcxx/LICENSE.TXT"),
    "libc++abi": (LLVM, "https://llvm.org", "libcxxabi/LICENSE.TXT"),
    "libunwind": (LLVM, "https://llvm.org", "libunwind/LICENSE.TXT"),
    "compiler-rt": (LLVM, "https://llvm.org", ""),
    "libstdc++": (GCC, "https://gcc.gnu.org", ""),
    "libgcc": (GCC, "https://gcc.gnu.org", ""),
}
"""By name: licence, home page, and the licence's text in zig's folder of libraries."""


def part(name: str, version: str, text: Path | None = None, zig: Path | None = None, instead_of: str = "") -> LinkedIn:
    """One of the libraries that compilers link in.

    Args:
        text: a file with its licence, which need not be there.
        zig: zig's folder of libraries, when it comes from there.
    """
    licence, homepage, inside = _ABOUT[name]
    if zig and inside:
        text = zig / inside
    return LinkedIn(name, version, licence, homepage, (text,) if text and text.is_file() else (), instead_of)


def of_zig(version: str, library: Path, target: Target, gcc: str) -> tuple[LinkedIn, ...]:
    """What zig links in.

    Args:
        library: the folder ``lib`` of its distribution.
        gcc: version of the libstdc++ that some programs have in place of the device's; empty where the C library is not
            glibc.
    """
    versions = {"zig-compiler-rt": version}
    if target.libc == "glibc":
        versions["glibc"] = target.max_glibc
    elif target.os == "windows":
        header = library / "libc/include/any-windows-any/_mingw_mac.h"
        versions["mingw-w64"] = _mingw(header.read_text(encoding="utf-8"))
    elif target.libc in ("musl", "static"):
        musl = (library / "libc/musl/src/internal/version.h").read_text(encoding="utf-8")
        versions["musl"] = _defined(musl, r'VERSION "([^"]+)"')
    if target.libc != "glibc":
        # A Mac has the unwinder itself.
        names = ("libc++", "libc++abi", *(() if target.os in ("macos", "ios") else ("libunwind",)))
        versions |= dict.fromkeys(names, _libcxx(library))
    found = tuple(part(name, number, zig=library) for name, number in versions.items())
    return (*found, part("libstdc++", gcc, instead_of="libstdc++.so.6")) if target.libc == "glibc" else found


def _said(compiler: str, header: str) -> str:
    """The macros that a compiler has after a header of its C library."""
    words = [compiler, "-E", "-dM", "-include", header, "-x", "c", os.devnull]
    return run(words, what=f"Reading the C library's version from {compiler}").stdout


def of_gnu(version: str, compiler: str, target: Target) -> tuple[LinkedIn, ...]:
    """What Debian's GCC of this version links in."""
    docs, gcc = Path("/usr/share/doc"), part("libgcc", version)
    if target.os == "windows":
        mingw = _mingw(_said(compiler, "_mingw_mac.h"))
        return (gcc, part("libstdc++", version), part("mingw-w64", mingw, docs / "mingw-w64-common/copyright"))
    said = _said(compiler, "features.h")
    numbers = (_defined(said, rf"__{name}__ (\d+)") for name in ("GLIBC", "GLIBC_MINOR"))
    return (gcc, part("glibc", ".".join(numbers), docs / "libc6-dev/copyright"))
