"""The functions inside an object file, library or program: names, instruction sets and bytes.

Literal pools and jump tables between instructions are left out where the file says that they are data.
"""

from __future__ import annotations

import bisect
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolchains.inspect import symbols, symbols_coff
from toolchains.inspect.archives import broken, format_of
from toolchains.inspect.symbols import Mode, Section

_READERS = {"elf": symbols.elf, "coff": symbols_coff.coff, "pe": symbols_coff.pe, "mach-o": symbols.macho}
_BITCODE = (b"BC\xc0\xde", b"\xde\xc0\x17\x0b")


@dataclass(frozen=True)
class Run:
    """Instructions of one kind in a row."""

    mode: Mode
    address: int
    code: bytes


@dataclass(frozen=True)
class Function:
    """One function; where symbols are missing, whatever lies before the first one."""

    names: tuple[str, ...]
    """All names it goes by; the section's in brackets where there is none."""
    file: str
    """The object or source file it came from, if that is known."""
    runs: tuple[Run, ...]


def functions(path: Path, member: str, data: bytes) -> tuple[list[Function], bool]:
    """All functions of one object file, library or program, and whether it has a table of symbols.

    Args:
        path: the file, for messages.
        member: the member of an archive that ``data`` is; empty for a file of its own.

    Raises:
        BuildError: damaged, or none of the formats.
    """
    label = path.with_name(f"{path.name}({member.replace('/', '_')})") if member else path
    if data[:4] in _BITCODE:
        raise broken(label, "it holds LLVM bitcode, whose instructions the linker chooses: build without -flto")
    reader = _READERS.get(format_of(data))
    if reader is None:
        raise broken(label, "it is not an ELF, PE, COFF or Mach-O file")
    try:
        read = reader(data)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, SystemError, ValueError, struct.error) as error:
        raise broken(label, str(error)) from error
    return [function for section in read.sections for function in _cut(section, member)], read.named


def _cut(section: Section, file: str) -> Iterator[Function]:
    """The section cut at the functions' addresses."""
    end = section.address + len(section.code)
    starts = sorted(section.starts)
    if not starts or starts[0] != section.address:
        starts.insert(0, section.address)
    switches = sorted(section.modes)
    for begin, stop in zip(starts, [*starts[1:], end], strict=True):
        known = section.starts.get(begin, [(f"({section.name})", "")])
        runs = tuple(_runs(section, begin, stop, switches))
        if runs:
            yield Function(tuple(dict.fromkeys(name for name, _ in known)), known[0][1] or file, runs)


def _runs(section: Section, begin: int, stop: int, switches: list[int]) -> Iterator[Run]:
    first = bisect.bisect_right(switches, begin)
    mode = section.modes[switches[first - 1]] if first else section.mode
    bounds = [begin, *switches[first : bisect.bisect_left(switches, stop)], stop]
    for start, end in itertools.pairwise(bounds):
        mode = section.modes.get(start, mode)
        if mode != "data" and end > start:
            yield Run(mode, start, section.code[start - section.address : end - section.address])
