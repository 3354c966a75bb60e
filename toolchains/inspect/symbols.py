"""The functions of a file: its sections of code, and the symbols in them.

ELF and Mach-O, little-endian, are read by lief; COFF is not, as lief finds no name that is the end of another one.

Files come whole from a build: a section that is not in the file is an error, other damage is not looked for. Meanings:
System V ABI, chapter 4; ELF for the Arm Architecture, 5.5.5 (mapping symbols); ``mach-o/loader.h``, ``mach-o/nlist.h``.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import itertools
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import lief

from toolchains.inspect.archives import broken, format_of, labelled

__all__ = ["lief"]

lief.disable_leak_warning()


Mode = Literal["a32", "t32", "a64", "x86", "x64", "data"]

_MODES: dict[str, Mode] = {
    "I386": "x86", "ARM": "a32", "X86_64": "x64", "AARCH64": "a64",  # ELF
    "X86": "x86", "ARM64": "a64",  # Mach-O
}  # fmt: skip
_MAPPING: dict[str, Mode] = {"$a": "a32", "$t": "t32", "$x": "a64", "$d": "data"}
_INSTRUCTIONS = 0x80000400
"""``S_ATTR_PURE_INSTRUCTIONS`` and ``S_ATTR_SOME_INSTRUCTIONS`` of a Mach-O section's flags."""
_STAB, _TYPE, _IN_SECTION = 0xE0, 0x0E, 0x0E
"""``N_STAB`` and ``N_TYPE``, masks of a Mach-O symbol's type, and ``N_SECT``."""


@dataclass
class Section:
    """A section of code, with what the symbols say about addresses in it."""

    name: str
    address: int
    code: bytes
    mode: Mode
    starts: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Names of the functions that begin at an address, each with its source file where that is known."""
    modes: dict[int, Mode] = field(default_factory=dict)
    """Addresses at which the instruction set changes, or data begins."""

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


def part_of(data: bytes, offset: int, size: int) -> bytes:
    """A piece of the file that must be there.

    Raises:
        ValueError: it is not.
    """
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ValueError(f"{size} bytes at {offset} lie outside of it")
    return data[offset : offset + size]


def _mode(machine: Any) -> Mode | None:
    """How the machine's code is read; ``None`` for those that no target has."""
    return _MODES.get(str(getattr(machine, "name", machine)))


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without lief's warnings of numbers that it has no name for."""
    lief.logging.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


@functools.cache
def _elf_config() -> Any:
    config = lief.ELF.ParserConfig()
    config.parse_relocations = config.parse_dyn_symbols = config.parse_symbol_versions = False
    config.parse_notes = config.parse_overlay = False
    return config


def elf(data: bytes) -> Symbols:
    """Sections and symbols of an ELF file.

    Raises:
        ValueError: damaged; or another error of lief's.
    """
    with quietly():
        if (item := lief.ELF.parse(data, _elf_config())) is None:
            raise ValueError("its headers make no sense")
        return _elf(data, item)


def _elf(data: bytes, item: Any) -> Symbols:
    head, kinds = item.header, lief.ELF.Section.TYPE
    mode = _mode(head.machine_type)
    if mode is None or head.identity_data != lief.ELF.Header.ELF_DATA.LSB:
        return Symbols([], named=True)
    sections: dict[int, Section] = {}
    for index, row in enumerate(item.sections):
        if row.type == kinds.PROGBITS and row.has(lief.ELF.Section.FLAGS.EXECINSTR) and row.size:
            sections[index] = Section(
                str(row.name), row.virtual_address, part_of(data, row.file_offset, row.size), mode
            )
    symbols = list(item.symtab_symbols)
    _elf_symbols(sections, symbols)
    return Symbols(list(sections.values()), named=len(symbols) > 1)


def _elf_symbols(sections: dict[int, Section], symbols: list[Any]) -> None:
    kinds, file = lief.ELF.Symbol.TYPE, ""
    for symbol in symbols:
        kind, local = symbol.type, symbol.binding == lief.ELF.Symbol.BINDING.LOCAL
        if kind == kinds.FILE:  # what follows comes from it
            file = str(symbol.name)
        section = sections.get(symbol.shndx)
        name = str(symbol.name) if section else ""
        if section is None or not name:
            continue
        value = symbol.value
        if kind == kinds.NOTYPE and name[:2] in _MAPPING and (len(name) == 2 or name[2] == "."):
            section.modes[value] = _MAPPING[name[:2]]
        elif kind in {kinds.FUNC, kinds.GNU_IFUNC} or (kind == kinds.NOTYPE and not local):  # or assembly's labels
            thumb = section.mode == "a32" and value & 1
            section.start(value - thumb, name, file if local else "")
            if thumb:
                section.modes.setdefault(value - 1, "t32")


def macho(data: bytes) -> Symbols:
    """Sections and symbols of a Mach-O file; of a universal one, of all architectures.

    Raises:
        ValueError: damaged; or another error of lief's.
    """
    with quietly():
        if (file := lief.MachO.parse(data, lief.MachO.ParserConfig.quick)) is None:
            raise ValueError("its headers make no sense")
        # Its parts live as long as it does.
        read = [_macho(data, file.at(index)) for index in range(file.size)]
    if not read:
        raise ValueError("it holds no architecture")
    return Symbols([section for part in read for section in part.sections], all(part.named for part in read))


def _macho(data: bytes, item: Any) -> Symbols:
    mode, base = _mode(item.header.cpu_type), item.fat_offset
    if mode is None:
        return Symbols([], named=True)
    sections: dict[int, Section] = {}
    offsets: dict[int, int] = {}
    for number, row in enumerate(item.sections, 1):
        # S_REGULAR: stubs are the linker's own
        if row.flags.value & _INSTRUCTIONS and row.type == lief.MachO.Section.TYPE.REGULAR and row.size:
            code = part_of(data, base + row.offset, row.size)
            sections[number] = Section(str(row.name), row.virtual_address, code, mode)
            offsets[number] = row.offset
    named = item.has_symbol_command and bool(item.symbol_command.numberof_symbols)
    for symbol in item.symbols:
        section = sections.get(symbol.numberof_sections)
        if section is not None and not symbol.raw_type & _STAB and symbol.raw_type & _TYPE == _IN_SECTION:
            name = str(symbol.name)
            if name and name[0] not in "lL":  # labels; the names of C's functions begin with an underscore
                section.start(symbol.value, name.removeprefix("_"))
    pools = [(entry.offset, entry.length) for entry in item.data_in_code.entries] if item.has_data_in_code else []
    for begin, length in pools:
        for index, section in sections.items():
            # An offset in the file, for the linker's work; in an object file LLVM writes an address.
            linked = item.header.file_type != lief.MachO.Header.FILE_TYPE.OBJECT
            start = section.address + begin - offsets[index] if linked else begin
            if section.address <= start < section.address + len(section.code):
                section.modes[start] = "data"
                section.modes.setdefault(start + length, mode)
    return Symbols(list(sections.values()), named)


_COFF_MODES: dict[int, Mode] = {0x14C: "x86", 0x8664: "x64", 0xAA64: "a64"}


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
    if (mode := _COFF_MODES.get(machine)) is None:
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
                # 32-bit Windows puts an underscore before C's names.
                section.start(section.address + value, name.removeprefix("_") if mode == "x86" else name)
    return Symbols(list(sections.values()), bool(rows))


_READERS = {"elf": elf, "coff": coff, "pe": pe, "mach-o": macho}
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
    label = labelled(path, member)
    if data[:4] in _BITCODE:
        raise broken(label, "it holds LLVM bitcode, whose instructions the linker chooses: build without -flto")
    if (reader := _READERS.get(format_of(data))) is None:
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
        if runs := tuple(_runs(section, begin, stop, switches)):
            yield Function(tuple(dict.fromkeys(name for name, _ in known)), known[0][1] or file, runs)


def _runs(section: Section, begin: int, stop: int, switches: list[int]) -> Iterator[Run]:
    first = bisect.bisect_right(switches, begin)
    mode = section.modes[switches[first - 1]] if first else section.mode
    bounds = [begin, *switches[first : bisect.bisect_left(switches, stop)], stop]
    for start, end in itertools.pairwise(bounds):
        mode = section.modes.get(start, mode)
        if mode != "data" and end > start:
            yield Run(mode, start, section.code[start - section.address : end - section.address])
