"""Sections of code and the symbols in them: ELF, COFF, PE and Mach-O, little-endian.

Formats: System V ABI, chapter 4, and ELF for the Arm Architecture, 5.5.5 (mapping symbols); Microsoft's PE
specification; ``mach-o/loader.h`` and ``mach-o/nlist.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Mode = Literal["a32", "t32", "a64", "x86", "x64", "data"]

_ELF_MODES: dict[int, Mode] = {3: "x86", 40: "a32", 62: "x64", 183: "a64"}
_COFF_MODES: dict[int, Mode] = {0x14C: "x86", 0x8664: "x64", 0xAA64: "a64"}
_MACHO_MODES: dict[int, Mode] = {7: "x86", 0x01000007: "x64", 0x0100000C: "a64"}
_MAPPING: dict[str, Mode] = {"$a": "a32", "$t": "t32", "$x": "a64", "$d": "data"}


@dataclass
class Section:
    """A section of code, with what the symbols say about places in it."""

    name: str
    address: int
    code: bytes
    mode: Mode
    starts: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Names of the functions that begin at an address, each with its source file where that is known."""
    modes: dict[int, Mode] = field(default_factory=dict)
    """Where the instruction set changes, or data begins."""

    def start(self, address: int, name: str, file: str = "") -> None:
        """A function begins at ``address``; one outside the section is ignored."""
        if self.address <= address < self.address + len(self.code):
            self.starts.setdefault(address, []).append((name, file))


@dataclass(frozen=True)
class Symbols:
    """The code of one object, library or program."""

    sections: list[Section]
    named: bool
    """Whether there is a table of symbols."""


def _part(data: bytes, offset: int, size: int) -> bytes:
    """A piece of the file that must be there.

    Raises:
        ValueError: it is not.
    """
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ValueError(f"{size} bytes at {offset} lie outside of it")
    return data[offset : offset + size]


def _table(data: bytes, offset: int, count: int, form: str) -> list[Any]:
    return list(struct.iter_unpack(form, _part(data, offset, count * struct.calcsize(form))))


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)].decode(errors="replace")


def _bare(name: str, cut: bool) -> str:
    """A C name without the underscore that some systems put before it."""
    return name[1:] if cut and name.startswith("_") else name


# -- ELF ------------------------------------------------------------------------------------------------------------


def elf(data: bytes) -> Symbols:
    """Sections and symbols of an ELF file."""
    wide = data[4:5] == b"\2"
    head = struct.unpack_from("<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH", data, 16)
    mode = _ELF_MODES.get(head[1])
    if mode is None or data[5:6] != b"\1":
        return Symbols([], named=True)
    rows = _table(data, head[5], head[11], "<IIQQQQIIQQ" if wide else "<IIIIIIIIII")
    names = _part(data, rows[head[12]][4], rows[head[12]][5]) if head[12] < len(rows) else b""
    sections: dict[int, Section] = {}
    for index, (name, kind, flags, address, offset, size, *_) in enumerate(rows):
        # SHT_PROGBITS and SHF_EXECINSTR
        if kind == 1 and flags & 4 and size:
            sections[index] = Section(_text(names, name), address, _part(data, offset, size), mode)
    named = False
    for _, kind, _, _, offset, size, link, *_ in rows:
        if kind == 2 and link < len(rows):  # SHT_SYMTAB
            form = "<IBBHQQ" if wide else "<IIIBBH"
            table = _table(data, offset, size // struct.calcsize(form), form)
            strings = _part(data, rows[link][4], rows[link][5])
            named = named or len(table) > 1
            _elf_symbols(sections, table, strings, wide)
    return Symbols(list(sections.values()), named)


def _elf_symbols(sections: dict[int, Section], table: list[Any], strings: bytes, wide: bool) -> None:
    file = ""
    for row in table:
        if wide:
            offset, info, _, index, value, _ = row
        else:
            offset, value, _, info, _, index = row
        kind, local = info & 15, info >> 4 == 0
        if kind == 4:  # STT_FILE: what follows comes from it
            file = _text(strings, offset)
        section = sections.get(index)
        name = _text(strings, offset) if section else ""
        if section is None or not name:
            continue
        if kind == 0 and name[:2] in _MAPPING and (len(name) == 2 or name[2] == "."):
            section.modes[value] = _MAPPING[name[:2]]
        elif kind in {2, 10} or (kind == 0 and not local):  # STT_FUNC, STT_GNU_IFUNC, or assembly's plain labels
            thumb = section.mode == "a32" and value & 1
            section.start(value - thumb, name, file if local else "")
            if thumb:
                section.modes.setdefault(value - 1, "t32")


# -- COFF and PE ----------------------------------------------------------------------------------------------------


def coff(data: bytes) -> Symbols:
    """Sections and symbols of a COFF object, the kind with many sections included."""
    if data[:4] == b"\0\0\xff\xff":
        (machine,) = struct.unpack_from("<H", data, 6)
        count, table, number = struct.unpack_from("<III", data, 44)
        return _coff(data, machine, 56, count, (table, number, "<8sIiHBB"))
    machine, count, _, table, number, skip, _ = struct.unpack_from("<HHIIIHH", data)
    return _coff(data, machine, 20 + skip, count, (table, number, "<8sIhHBB"))


def pe(data: bytes) -> Symbols:
    """Sections and symbols of a program or DLL for Windows; most linkers write no symbols."""
    (start,) = struct.unpack_from("<I", data, 0x3C)
    if _part(data, start, 4) != b"PE\0\0":
        raise ValueError("no PE header")
    machine, count, _, table, number, skip, _ = struct.unpack_from("<HHIIIHH", data, start + 4)
    return _coff(data, machine, start + 24 + skip, count, (table, number, "<8sIhHBB"))


def _coff(data: bytes, machine: int, offset: int, count: int, symbols: tuple[int, int, str]) -> Symbols:
    mode = _COFF_MODES.get(machine)
    if mode is None:
        return Symbols([], named=True)
    sections: dict[int, Section] = {}
    for index, row in enumerate(_table(data, offset, count, "<8sIIIIIIHHI"), 1):
        name, virtual, address, size, where, *_, flags = row
        if flags & 0x20 and size:  # IMAGE_SCN_CNT_CODE
            # What is behind a program's section in the file pads a page.
            size = min(size, virtual) if virtual else size
            sections[index] = Section(_text(name, 0), address, _part(data, where, size), mode)
    table, number, form = symbols
    rows = _table(data, table, number, form) if table else []
    strings = data[table + number * struct.calcsize(form) :]
    left = 0
    for row in rows:
        if left:  # auxiliary rows of the symbol before
            left -= 1
            continue
        short, value, index, kind, storage, left = row
        section = sections.get(index)
        # A function's type, or an external symbol
        if section is not None and (kind >> 4 == 2 or storage == 2):
            long = short[:4] == b"\0\0\0\0"
            name = _text(strings, int.from_bytes(short[4:], "little")) if long else _text(short, 0)
            if name and not name.startswith("."):  # sections' own symbols, and labels
                section.start(section.address + value, _bare(name, mode == "x86"))
    return Symbols(list(sections.values()), bool(rows))


# -- Mach-O ---------------------------------------------------------------------------------------------------------


def macho(data: bytes) -> Symbols:
    """Sections and symbols of a Mach-O file; of a universal one, of all architectures."""
    if data[:4] != b"\xca\xfe\xba\xbe":
        return _macho(data)
    (count,) = struct.unpack_from(">I", data, 4)
    parts = [_macho(_part(data, row[2], row[3])) for row in _table(data, 8, count, ">IIIII")]
    return Symbols([section for part in parts for section in part.sections], all(part.named for part in parts))


def _commands(data: bytes, offset: int, count: int) -> Iterator[tuple[int, int]]:
    """Kind and place of every load command."""
    for _ in range(count):
        kind, size = struct.unpack_from("<II", data, offset)
        if size < 8:
            raise ValueError(f"a load command of {size} bytes")
        yield kind, offset
        offset += size


def _macho(data: bytes) -> Symbols:
    magic, cpu, _, filetype, count = struct.unpack_from("<IIIII", data)
    mode = _MACHO_MODES.get(cpu)
    if magic not in {0xFEEDFACE, 0xFEEDFACF}:
        raise ValueError("it is big-endian, or no Mach-O file")
    if mode is None:
        return Symbols([], named=True)
    wide = magic == 0xFEEDFACF
    sections: dict[int, Section] = {}
    offsets: dict[int, int] = {}
    number, table, pools = 0, (0, 0, 0, 0), (0, 0)
    for kind, at in _commands(data, 32 if wide else 28, count):
        if kind == (0x19 if wide else 1):  # LC_SEGMENT_64, LC_SEGMENT
            for row in _macho_sections(data, at, wide):
                number += 1
                name, _, address, size, offset, _, _, _, flags, *_ = row
                # S_ATTR_PURE_INSTRUCTIONS or S_ATTR_SOME_INSTRUCTIONS, and S_REGULAR: stubs are the linker's own
                if flags & 0x80000400 and not flags & 0xFF and size:
                    sections[number] = Section(_text(name, 0), address, _part(data, offset, size), mode)
                    offsets[number] = offset
        elif kind == 2:  # LC_SYMTAB
            table = struct.unpack_from("<IIII", data, at + 8)
        elif kind == 0x29:  # LC_DATA_IN_CODE
            pools = struct.unpack_from("<II", data, at + 8)
    rows = _table(data, table[0], table[1], "<IBBHQ" if wide else "<IBBHI")
    _macho_symbols(sections, rows, _part(data, table[2], table[3]))
    for begin, length, _ in _table(data, pools[0], pools[1] // 8, "<IHH"):
        for index, section in sections.items():
            # An offset in the file, for the linker's work; in an object file (MH_OBJECT) LLVM writes an address.
            start = begin if filetype == 1 else section.address + begin - offsets[index]
            if section.address <= start < section.address + len(section.code):
                section.modes[start] = "data"
                section.modes.setdefault(start + length, mode)
    return Symbols(list(sections.values()), bool(rows))


def _macho_sections(data: bytes, command: int, wide: bool) -> list[Any]:
    (count,) = struct.unpack_from("<I", data, command + (64 if wide else 48))
    return _table(data, command + (72 if wide else 56), count, "<16s16sQQIIIIIIII" if wide else "<16s16sIIIIIIIII")


def _macho_symbols(sections: dict[int, Section], rows: list[Any], strings: bytes) -> None:
    for offset, kind, index, _, value in rows:
        # Not N_STAB, and N_TYPE is N_SECT
        if not kind & 0xE0 and kind & 0x0E == 0x0E and index in sections:
            name = _text(strings, offset)
            if name and name[0] not in "lL":  # labels; the names of C's functions begin with an underscore
                sections[index].start(value, _bare(name, cut=True))
