"""The functions inside an object file, library or program: names, instruction sets and bytes.

ELF, COFF, PE and Mach-O through lief. Literal pools and jump tables count as data: Arm's mapping symbols ``$a``,
``$t``, ``$x`` and ``$d`` say where they are (ELF for the Arm Architecture, 5.5.5), Mach-O's LC_DATA_IN_CODE likewise.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from toolchains.archives import broken, format_of

Mode = Literal["a32", "t32", "a64", "x86", "x64", "data"]

_ELF_MODES: dict[str, Mode] = {"ARM": "a32", "AARCH64": "a64", "I386": "x86", "X86_64": "x64"}
_COFF_MODES: dict[str, Mode] = {"ARM64": "a64", "I386": "x86", "AMD64": "x64"}
_MACHO_MODES: dict[str, Mode] = {"ARM64": "a64", "X86": "x86", "X86_64": "x64"}
_MAPPING: dict[str, Mode] = {"$a": "a32", "$t": "t32", "$x": "a64", "$d": "data"}
_CODE = 0x20
"""``IMAGE_SCN_CNT_CODE`` of a COFF section."""
_NO_FUNCTION = re.compile(r"ltmp\d+|[lL]\w*_?\d*$|\.")
"""Labels that assemblers for Mach-O and COFF leave beside functions."""


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


@dataclass
class _Section:
    """A section of code, with what the symbols say about places in it."""

    name: str
    address: int
    code: bytes
    mode: Mode
    starts: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    modes: dict[int, Mode] = field(default_factory=dict)

    def start(self, address: int, name: str, file: str) -> None:
        """A function begins at ``address``; one outside the section is ignored."""
        if self.address <= address < self.address + len(self.code):
            self.starts.setdefault(address, []).append((name, file))

    def functions(self, file: str) -> Iterator[Function]:
        """The section cut at the functions' addresses."""
        end = self.address + len(self.code)
        starts = sorted(self.starts)
        if not starts or starts[0] != self.address:
            starts.insert(0, self.address)
        switches = sorted(self.modes)
        for begin, stop in zip(starts, [*starts[1:], end], strict=True):
            known = self.starts.get(begin, [(f"({self.name})", "")])
            runs = tuple(self._runs(begin, stop, switches))
            if runs:
                yield Function(tuple(dict.fromkeys(name for name, _ in known)), known[0][1] or file, runs)

    def _runs(self, begin: int, stop: int, switches: list[int]) -> Iterator[Run]:
        first = bisect.bisect_right(switches, begin)
        mode = self.modes[switches[first - 1]] if first else self.mode
        places = [begin, *switches[first : bisect.bisect_left(switches, stop)], stop]
        for start, end in itertools.pairwise(places):
            mode = self.modes.get(start, mode)
            if mode != "data" and end > start:
                yield Run(mode, start, self.code[start - self.address : end - self.address])


def _elf(binary: Any) -> tuple[list[_Section], bool]:
    mode = _ELF_MODES.get(binary.header.machine_type.name)
    if mode is None:
        return [], True
    sections: dict[int, _Section] = {}
    for index, part in enumerate(binary.sections):
        # SHF_EXECINSTR, SHT_PROGBITS
        if int(part.flags) & 4 and part.type.name == "PROGBITS" and part.size:
            sections[index] = _Section(part.name, part.virtual_address, bytes(part.content), mode)
    file, named = "", False
    for symbol in binary.symtab_symbols:
        kind, name, value = symbol.type.name, symbol.name, symbol.value
        named = named or bool(name)
        if kind == "FILE":
            file = name
            continue
        section = sections.get(symbol.shndx)
        if section is None or not name:
            continue
        if kind == "NOTYPE" and name[:2] in _MAPPING and (len(name) == 2 or name[2] == "."):
            section.modes[value] = _MAPPING[name[:2]]
        elif kind in {"FUNC", "GNU_IFUNC"} or (kind == "NOTYPE" and symbol.binding.name != "LOCAL"):
            thumb = mode == "a32" and value & 1
            value -= thumb
            section.start(value, name, file if symbol.binding.name == "LOCAL" else "")
            if thumb:
                section.modes.setdefault(value, "t32")
    return list(sections.values()), named


def _coff(binary: Any) -> tuple[list[_Section], bool]:
    mode = _COFF_MODES.get(binary.header.machine.name)
    if mode is None:
        return [], True
    sections: dict[int, _Section] = {}
    for index, part in enumerate(binary.sections, 1):
        if int(part.characteristics) & _CODE and part.content:
            sections[index] = _Section(str(part.name), part.virtual_address, bytes(part.content), mode)
    named = False
    for symbol in binary.symbols:
        section = sections.get(symbol.section_idx)
        name = str(symbol.name or "")
        named = named or bool(name)
        if section is None or not name or name == section.name or _NO_FUNCTION.match(name):
            continue
        if symbol.is_function or symbol.is_external:
            section.start(section.address + symbol.value, _bare(name, mode == "x86"), "")
    return list(sections.values()), named


def _macho(binary: Any) -> tuple[list[_Section], bool]:
    mode = _MACHO_MODES.get(binary.header.cpu_type.name)
    if mode is None:
        return [], True
    sections: dict[int, _Section] = {}
    for index, part in enumerate(binary.sections, 1):
        # S_ATTR_PURE_INSTRUCTIONS, S_ATTR_SOME_INSTRUCTIONS; stubs are the linker's own
        if int(part.flags) & 0x80000400 and part.size and part.type.name == "REGULAR":
            sections[index] = _Section(part.name, part.virtual_address, bytes(part.content), mode)
    offsets = {index: part.offset for index, part in enumerate(binary.sections, 1)}
    named = False
    for symbol in binary.symbols:
        # N_STAB, N_TYPE and N_SECT of mach-o/nlist.h
        if symbol.raw_type & 0xE0 or symbol.raw_type & 0x0E != 0x0E:
            continue
        section = sections.get(symbol.numberof_sections)
        name = str(symbol.name)
        named = named or bool(name)
        if section is not None and name and not _NO_FUNCTION.match(name):
            section.start(symbol.value, _bare(name, cut=True), "")
    for entry in binary.data_in_code.entries if binary.has_data_in_code else ():
        for index, section in sections.items():
            begin = section.address + entry.offset - offsets[index]
            if section.address <= begin < section.address + len(section.code):
                section.modes[begin] = "data"
                section.modes.setdefault(begin + entry.length, mode)
    return list(sections.values()), named


def _bare(name: str, cut: bool) -> str:
    """A C name without the underscore that some systems put before it."""
    return name[1:] if cut and name.startswith("_") else name


def _parsed(path: Path, name: str, data: bytes) -> Iterable[Any]:
    """What lief makes of a file: one binary, or several of a universal Mach-O."""
    import lief

    lief.logging.disable()
    where = path.with_name(f"{path.name}({name})") if name else path
    if data[:4] in {b"BC\xc0\xde", b"\xde\xc0\x17\x0b"}:
        raise broken(where, "it holds LLVM bitcode, whose instructions the linker chooses: build without -flto")
    kind = format_of(data)
    if kind == "mach-o":
        fat = lief.MachO.parse(data)
        if fat is not None and fat.size:
            return [fat.at(index) for index in range(fat.size)]
    elif kind in {"elf", "pe", "coff"}:
        parse: Any = {"elf": lief.ELF.parse, "pe": lief.PE.parse, "coff": lief.COFF.parse}[kind]
        binary = parse(data)
        if binary is not None:
            return [binary]
    raise broken(where, "it is no whole ELF, PE, COFF or Mach-O file")


def functions(path: Path, name: str, data: bytes) -> tuple[list[Function], bool]:
    """All functions of one object file, library or program, and whether it has a table of symbols.

    Args:
        path: the file, for messages.
        name: the member of an archive that ``data`` is; empty for a file of its own.

    Raises:
        BuildError: damaged, or none of the formats.
    """
    import lief

    found: list[Function] = []
    named = False
    try:
        for binary in _parsed(path, name, data):
            if isinstance(binary, lief.ELF.Binary):
                sections, has = _elf(binary)
            elif isinstance(binary, lief.MachO.Binary):
                sections, has = _macho(binary)
            else:
                sections, has = _coff(binary)
            named = named or has
            for section in sections:
                found += section.functions(name)
    except (IndexError, MemoryError, OverflowError, RuntimeError, UnicodeError) as error:
        raise broken(path, f"{name or path.name}: {error}") from error
    return found, named
