"""Sections of code and the symbols in them: COFF objects, and programs and DLLs for Windows.

Read here and not by lief, which loses a name that is the tail of another one in the table of names (lief 1.0.0; LLVM
writes such tables), and with it which kernel a function is. Format: Microsoft's PE specification.
"""

from __future__ import annotations

import struct
from typing import Any

from toolchains.inspect.symbols import Mode, Section, Symbols, bare, part_of

_MODES: dict[int, Mode] = {0x14C: "x86", 0x8664: "x64", 0xAA64: "a64"}


def _table(data: bytes, offset: int, count: int, form: str) -> list[Any]:
    return list(struct.iter_unpack(form, part_of(data, offset, count * struct.calcsize(form))))


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)].decode(errors="replace")


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
    if part_of(data, start, 4) != b"PE\0\0":
        raise ValueError("no PE header")
    machine, count, _, table, number, skip, _ = struct.unpack_from("<HHIIIHH", data, start + 4)
    return _coff(data, machine, start + 24 + skip, count, (table, number, "<8sIhHBB"))


def _coff(data: bytes, machine: int, offset: int, count: int, symbols: tuple[int, int, str]) -> Symbols:
    mode = _MODES.get(machine)
    if mode is None:
        return Symbols([], named=True)
    sections: dict[int, Section] = {}
    for index, row in enumerate(_table(data, offset, count, "<8sIIIIIIHHI"), 1):
        name, virtual, address, size, offset_in_file, *_, flags = row
        if flags & 0x20 and size:  # IMAGE_SCN_CNT_CODE
            # What is behind a program's section in the file pads a page.
            size = min(size, virtual) if virtual else size
            sections[index] = Section(_text(name, 0), address, part_of(data, offset_in_file, size), mode)
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
                section.start(section.address + value, bare(name, mode == "x86"))
    return Symbols(list(sections.values()), bool(rows))
