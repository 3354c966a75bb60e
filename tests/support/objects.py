"""Small object files, programs and archives, written byte by byte: what the checks on binaries are tested with."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "i686": 3, "arm": 40}
COFF_MACHINES = {"x86_64": 0x8664, "aarch64": 0xAA64, "i686": 0x14C}
MACHO_MACHINES = {"x86_64": 0x01000007, "aarch64": 0x0100000C}

Functions = Mapping[str, bytes]


def words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def arm_attributes(cpu_arch: int, vfp_args: int | None, enum_size: int | None = 2) -> bytes:
    """Section .ARM.attributes: Tag_CPU_arch (6), Tag_ABI_enum_size (26), Tag_ABI_VFP_args (28)."""
    tags = bytes([6, cpu_arch])
    tags += bytes([26, enum_size]) if enum_size is not None else b""
    tags += bytes([28, vfp_args]) if vfp_args is not None else b""
    file = bytes([1]) + struct.pack("<I", 5 + len(tags)) + tags
    vendor = b"aeabi\0" + file
    return b"A" + struct.pack("<I", 4 + len(vendor)) + vendor


HARD_V6 = arm_attributes(6, 1)


@dataclass(frozen=True)
class _Part:
    name: str
    kind: int
    flags: int
    data: bytes
    link: int = 0
    entry: int = 0


def elf(
    machine: str,
    functions: Functions,
    *,
    marks: Sequence[tuple[int, str]] = (),
    attributes: bytes = b"",
    thumb: bool = False,
    stripped: bool = False,
    kind: int = 1,
) -> bytes:
    """An ELF object (or, by ``kind``, program) with ``functions`` one after the other in .text.

    Args:
        marks: mapping symbols, by their offset in .text.
        thumb: the functions are Thumb code.
    """
    wide = machine in {"x86_64", "aarch64"}
    text, strings = b"".join(functions.values()), b"\0"
    symbols = [(0, 0, 0, 0)]
    for offset, name in marks:
        symbols.append((len(strings), 0, offset, 1))
        strings += name.encode() + b"\0"
    offset = 0
    for name, code in functions.items():
        symbols.append((len(strings), 0x12, offset + thumb, 1))
        strings += name.encode() + b"\0"
        offset += len(code)
    form = "<IBBHQQ" if wide else "<IIIBBH"
    rows = [
        (name, info, 0, index, value, 0) if wide else (name, value, 0, info, 0, index)
        for name, info, value, index in symbols
    ]
    table = b"".join(struct.pack(form, *row) for row in rows)
    parts = [_Part("", 0, 0, b""), _Part(".text", 1, 6, text)]
    if not stripped:
        parts += [_Part(".symtab", 2, 0, table, link=3, entry=struct.calcsize(form)), _Part(".strtab", 3, 0, strings)]
    if attributes:
        parts.append(_Part(".ARM.attributes", 0x70000003, 0, attributes))
    return _elf_file(ELF_MACHINES[machine], wide, parts, kind)


def _elf_file(machine: int, wide: bool, parts: list[_Part], kind: int) -> bytes:
    names = b"".join(part.name.encode() + b"\0" for part in parts) + b".shstrtab\0"
    parts = [*parts, _Part(".shstrtab", 3, 0, names)]
    head = 64 if wide else 52
    body, table, name = b"", b"", 0
    for part in parts:
        row = (name, part.kind, part.flags, 0, head + len(body), len(part.data), part.link, 0, 1, part.entry)
        table += struct.pack("<IIQQQQIIQQ" if wide else "<IIIIIIIIII", *row)
        body += part.data
        name += len(part.name) + 1
    ident = b"\x7fELF" + bytes([2 if wide else 1, 1, 1]) + bytes(9)
    where = head + len(body)
    row_size = 64 if wide else 40
    flags = 0x5000000 if machine == ELF_MACHINES["arm"] else 0
    form = "<HHIQQQIHHHHHH" if wide else "<HHIIIIIHHHHHH"
    fields = (kind, machine, 1, 0, 0, where, flags, head, 0, 0, row_size, len(parts), len(parts) - 1)
    return ident + struct.pack(form, *fields) + body + table


def coff(machine: str, functions: Functions, *, bss: int = 0) -> bytes:
    """A COFF object with ``functions`` one after the other in .text, and ``bss`` bytes of nothing in .bss."""
    text = b"".join(functions.values())
    strings, table, offset, sections = b"", b"", 0, 1 + bool(bss)
    for name, code in functions.items():
        table += struct.pack("<IIIhHBB", 0, 4 + len(strings), offset, 1, 0x20, 2, 0)
        strings += (b"_" if machine == "i686" else b"") + name.encode() + b"\0"
        offset += len(code)
    start = 20 + 40 * sections
    head = struct.pack("<HHIIIHH", COFF_MACHINES[machine], sections, 0, start + len(text), len(functions), 0, 0)
    rows = struct.pack("<8sIIIIIIHHI", b".text", 0, 0, len(text), start, 0, 0, 0, 0, 0x60000020)
    rows += struct.pack("<8sIIIIIIHHI", b".bss", 0, 0, bss, 0, 0, 0, 0, 0, 0xC0000080) if bss else b""
    return head + rows + text + table + struct.pack("<I", 4 + len(strings)) + strings


def macho(
    machine: str,
    functions: Functions,
    *,
    minimum: tuple[int, int] = (11, 0),
    pools: Sequence[tuple[int, int]] = (),
    underscore: str = "_",
    linked: bool = False,
) -> bytes:
    """A Mach-O object, or program, for macOS with ``functions`` one after the other in __text.

    Args:
        minimum: the least macOS.
        pools: offset and length of data between the instructions.
        underscore: what stands before the names.
        linked: a program, where places of data are offsets in the file; in an object they are addresses.
    """
    text, strings, table, offset = b"".join(functions.values()), b"\0", b"", 0
    for name, code in functions.items():
        table += struct.pack("<IBBHQ", len(strings), 0x0F, 1, 0, offset)
        strings += underscore.encode() + name.encode() + b"\0"
        offset += len(code)
    start = 32 + 152 + 24 + 24 + 16
    data = b"".join(struct.pack("<IHH", where + start * linked, length, 1) for where, length in pools)
    at = start + len(text)
    segment = struct.pack("<II16sQQQQIIII", 0x19, 152, b"", 0, len(text), start, len(text), 7, 7, 1, 0)
    segment += struct.pack("<16s16sQQIIIIIIII", b"__text", b"__TEXT", 0, len(text), start, 2, 0, 0, 0x80000400, 0, 0, 0)
    build = struct.pack("<IIIIII", 0x32, 24, 1, minimum[0] << 16 | minimum[1] << 8, 0, 0)
    strings_at = at + len(data) + len(table)
    symtab = struct.pack("<IIIIII", 2, 24, at + len(data), len(functions), strings_at, len(strings))
    inside = struct.pack("<IIII", 0x29, 16, at, len(data))
    commands = segment + build + symtab + inside
    head = struct.pack(
        "<IIIIIIII", 0xFEEDFACF, MACHO_MACHINES[machine], 3, 2 if linked else 1, 4, len(commands), 0x2000, 0
    )
    return head + commands + text + data + table + strings


def pe(machine: str, code: bytes, libraries: Sequence[str] = ()) -> bytes:
    """A 64-bit program for Windows with an import from each of ``libraries``; one section holds everything."""
    base = 0x1000
    imports = len(code) + -len(code) % 16
    rows, tail = b"", b""
    behind = imports + 20 * (len(libraries) + 1)
    for name in libraries:
        at = base + behind + len(tail)
        # Lookup table, the same again as address table, one function by name, the library's name
        tail += struct.pack("<QQQQ", at + 32, 0, at + 32, 0) + b"\0\0fun\0" + name.encode() + b"\0"
        rows += struct.pack("<IIIII", at, 0, 0, at + 38, at + 16)
    body = code.ljust(imports, b"\xcc") + rows + bytes(20) + tail
    size = len(body) + -len(body) % 512
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, size, 0, 0, base, base)
    optional += struct.pack("<QIIHHHHHHIIIIHH", 0x140000000, 4096, 512, 6, 0, 0, 0, 6, 0, 0, 0x3000, 512, 0, 3, 0x8140)
    optional += struct.pack("<QQQQII", 1 << 20, 4096, 1 << 20, 4096, 0, 16)
    directories = [(0, 0)] * 16
    directories[1] = (base + imports, 20 * (len(libraries) + 1)) if libraries else (0, 0)
    optional += b"".join(struct.pack("<II", *entry) for entry in directories)
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 64) + b"PE\0\0"
    head += struct.pack("<HHIIIHH", COFF_MACHINES[machine], 1, 0, 0, 0, len(optional), 0x22)
    head += optional + struct.pack("<8sIIIIIIHHI", b".text", len(body), base, size, 512, 0, 0, 0, 0, 0xE0000020)
    return head.ljust(512, b"\0") + body.ljust(size, b"\0")


def _header(name: bytes, size: int) -> bytes:
    return name.ljust(16) + b"0".ljust(12) + b"0".ljust(6) * 2 + b"644".ljust(8) + str(size).encode().ljust(10) + b"`\n"


def _member(name: bytes, data: bytes) -> bytes:
    return _header(name, len(data)) + data + b"\n" * (len(data) % 2)


def archive(files: Mapping[str, bytes], flavour: str = "gnu") -> bytes:
    """A static archive, with an index and long names, as ``gnu``, ``bsd`` or ``coff`` tools write it."""
    if flavour == "bsd":
        body = _member(b"__.SYMDEF SORTED", bytes(8))
        for name, data in files.items():
            long = name.encode() + bytes(-len(name) % 8)
            body += _member(f"#1/{len(long)}".encode(), long + data)
        return b"!<arch>\n" + body
    end = b"\0" if flavour == "coff" else b"/\n"
    names, body = b"", b""
    for name, data in files.items():
        if len(name) > 15:
            body += _member(f"/{len(names)}".encode(), data)
            names += name.encode() + end
        else:
            body += _member(name.encode() + b"/", data)
    index = _member(b"/", bytes(4)) + (_member(b"/", bytes(8)) if flavour == "coff" else b"")
    return b"!<arch>\n" + index + (_member(b"//", names) if names else b"") + body
