"""What a file is: facts of one binary of any format, and static archives (``ar``) as all toolchains write them.

Formats: ar(5) of the BSDs; System V ABI, chapter 7; Microsoft's PE specification, "Archive (Library) File Format".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from core.errors import BuildError

FloatAbi = Literal["hard", "soft", "none"]
Kind = Literal["program", "library", "object"]


@dataclass(frozen=True)
class Binary:
    """A program, a shared library or an object file, on its own or in an archive."""

    path: Path
    machine: str
    """``uname -m`` family, or the file format's name of an architecture that no target has."""
    float_abi: FloatAbi
    interpreter: str = ""
    """The loader it asks for; empty for libraries and static programs."""
    soname: str = ""
    needed: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    """Newest symbol version needed of each family: ``{"GLIBC": "2.17", "GLIBCXX": "3.4.21"}``."""
    member: str = ""
    """The archive's member that it is."""
    format: Literal["elf", "pe", "coff", "mach-o"] = "elf"
    kind: Kind = "library"
    level: str = ""
    """The level of x86-64 that the file itself says it needs: ``x86-64-v3``."""
    alignment: int = 0
    """The least alignment of its loadable segments in bytes; 0 where the format has none."""
    exec_stack: bool = False
    relocatable: bool = True
    """Whether a program can be loaded anywhere (position independent, static or not)."""
    system: str = ""
    """The operating system that the file names (``macos``, ``ios``); empty where the format names none."""
    system_version: str = ""
    """The least version of that system."""
    hardening: tuple[str, ...] = ()
    """What it has of the properties that `toolchains.compilers.hardening` names."""
    paths: tuple[str, ...] = ()
    """Paths of this machine in what is loaded at run time."""

    @property
    def name(self) -> str:
        """As messages call it: ``libXNNPACK.a(f32-vadd-avx-u16.c.o)``."""
        return f"{self.path.name}({self.member})" if self.member else self.path.name


def number(version: str) -> tuple[int, ...]:
    """``2.28`` as something that compares."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def newest(versions: Iterable[str]) -> str:
    """The newest of several version numbers; empty when there is none."""
    return max(versions, key=number, default="")


MAGIC = b"!<arch>\n"
_THIN = b"!<thin>\n"
_HEADER = 60
Format = Literal["archive", "elf", "pe", "coff", "mach-o", ""]
_MACHO = (0xFEEDFACE, 0xFEEDFACF, 0xCAFEBABE, 0xCEFAEDFE, 0xCFFAEDFE, 0xBEBAFECA)
_COFF = (0x14C, 0x8664, 0xAA64, 0x1C4)
"""Machines of a COFF object: x86, x86-64, arm64, Arm."""
_INDEXES = ("/", "//", "/SYM64/", "/<ECSYMBOLS>/", "/<XFGHASHMAP>/", "__.SYMDEF", "__.SYMDEF SORTED", "__.SYMDEF_64")
"""Members that hold no file: lists of symbols and of long names."""


@dataclass(frozen=True)
class Member:
    """One file of an archive."""

    name: str
    data: memoryview


def format_of(data: bytes | memoryview) -> Format:
    """The kind of a file that begins with ``data``; empty if it cannot have code."""
    head = bytes(data[:8])
    if head in {MAGIC, _THIN}:
        return "archive"
    if head[:4] == b"\x7fELF":
        return "elf"
    if head[:2] == b"MZ":
        return "pe"
    if int.from_bytes(head[:4], "big") in _MACHO:
        return "mach-o"
    # The second case is an object with more sections than 16 bits count.
    if int.from_bytes(head[:2], "little") in _COFF or (head[:4] == b"\0\0\xff\xff" and head[4:5] == b"\2"):
        return "coff"
    return ""


def labelled(path: Path, member: str) -> Path:
    """How messages call a file, or the member of an archive."""
    return path.with_name(f"{path.name}({member.replace('/', '_')})") if member else path


def broken(path: Path, why: str) -> BuildError:
    """The error for a binary that cannot be read."""
    return BuildError(f"{path} is damaged.", why, "build it again with --force")


def _long_name(table: bytes, offset: str) -> str:
    """A name kept in the archive's table of long names; GNU ends one with ``/`` and a newline, Microsoft with NUL."""
    start = int(offset)
    if not 0 <= start < len(table):
        raise ValueError(f"a name at {start} of a table of {len(table)} bytes")
    ends = [end for end in (table.find(b"/\n", start), table.find(b"\n", start), table.find(b"\0", start)) if end >= 0]
    return table[start : min(ends, default=len(table))].decode(errors="replace")


def members(path: Path, data: bytes) -> Iterator[Member]:
    """The files of the archive ``data``, indexes left out, in the archive's order.

    Raises:
        BuildError: truncated or damaged, or a thin archive, which holds names alone.
    """
    if data.startswith(_THIN):
        raise BuildError(f"{path} is a thin archive.", "it names files and does not hold them", "ar without T")
    if not data.startswith(MAGIC):
        raise broken(path, "it does not begin as an archive does")
    view, names, position = memoryview(data), b"", len(MAGIC)
    while position < len(data):
        header = data[position : position + _HEADER]
        start = position + _HEADER
        if len(header) < _HEADER or header[58:60] != b"`\n":
            raise broken(path, f"no member's header at byte {position}")
        name, size = header[:16].decode("latin-1").rstrip(), header[48:58].strip()
        if not size.isdigit() or start + int(size) > len(data):
            raise broken(path, f"the member {name!r} at byte {position} is cut off")
        end = start + int(size)
        position = end + end % 2
        try:
            if name == "//":
                names = data[start:end]
            elif name.startswith("#1/"):
                length = int(name[3:])
                if not 0 <= length <= end - start:
                    raise ValueError(f"a name of {length} bytes")
                name = data[start : start + length].rstrip(b"\0").decode(errors="replace")
                start += length
            elif name.startswith("/") and name[1:].isdigit():
                name = _long_name(names, name[1:])
        except ValueError as error:
            raise broken(path, f"a member's name: {error}") from error
        if name not in _INDEXES:
            yield Member(name.removesuffix("/"), view[start:end])


def objects(path: Path, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The object files in ``data``: an archive's members by name, or ``data`` itself under no name.

    Libraries for linking against a DLL hold short imports besides, which have no code; they are left out.
    """
    if format_of(data) != "archive":
        yield "", data
        return
    for member in members(path, data):
        if bytes(member.data[:4]) != b"\0\0\xff\xff" or format_of(member.data) == "coff":
            yield member.name, bytes(member.data)
