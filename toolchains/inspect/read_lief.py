"""Facts of Windows' and Apple's binaries, read by lief."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolchains.inspect import symbols
from toolchains.inspect.archives import Binary, Format, Kind, broken, labelled
from toolchains.inspect.symbols import lief

_MACHINES = {"AMD64": "x86_64", "I386": "i686", "ARM64": "aarch64", "X86_64": "x86_64", "X86": "i686"}
_KINDS: dict[str, Kind] = {"EXECUTE": "program", "OBJECT": "object"}
_BOTH = 0x6
"""``VM_PROT_WRITE`` and ``VM_PROT_EXECUTE``."""
_PE_BOTH = 0xA0000000
"""``IMAGE_SCN_MEM_WRITE`` and ``IMAGE_SCN_MEM_EXECUTE``."""
_GUARD = b"stack smashing detected"
"""What a program for Windows says when its stack was overwritten: it has no symbols to look at."""
_NO_CONTENT = 0x80
"""``IMAGE_SCN_CNT_UNINITIALIZED_DATA``."""
_DEBUG = ("__DWARF", ".debug", "/")
"""Segments and sections with debugging information; those of PE and COFF with long names begin with a slash."""


def read(path: Path, data: bytes, member: str, here: tuple[str, ...], kind: Format) -> list[Binary]:
    """One PE, COFF or Mach-O file; of a universal one every architecture.

    Raises:
        BuildError: it is damaged.
    """
    try:
        with symbols.quietly():
            found = _read(path, data, member, here, kind)
    except (AttributeError, LookupError, MemoryError, RuntimeError, ValueError) as error:
        raise broken(labelled(path, member), str(error)) from error
    if not found:
        raise broken(labelled(path, member), "it is not whole")
    return found


def _read(path: Path, data: bytes, member: str, here: tuple[str, ...], kind: Format) -> list[Binary]:
    if kind == "mach-o":
        fat = lief.MachO.parse(data)
        parts = [fat.at(index) for index in range(fat.size)] if fat is not None else []
        return [_macho(path, part, member, here) for part in parts if part is not None]
    read = _pe if kind == "pe" else _coff
    item = (lief.PE if kind == "pe" else lief.COFF).parse(data)
    return [read(path, item, member, here)] if item is not None else []


def _known(value: Any) -> str:
    """The name of one of lief's constants; a plain number, which it gives for those it does not know, as text."""
    return str(getattr(value, "name", value))


def _name(machine: Any) -> str:
    name = _known(machine)
    return _MACHINES.get(name, name)


def _inside(sections: Any, here: tuple[str, ...]) -> tuple[str, ...]:
    found: set[str] = set()
    for section in sections:
        # lief gives .bss, which has no content, whatever the file begins with.
        empty = int(getattr(section, "characteristics", 0)) & _NO_CONTENT
        if not empty and not str(getattr(section, "segment_name", section.name)).startswith(_DEBUG):
            content = bytes(section.content)
            found.update(text for text in here if text.encode() in content)
    return tuple(sorted(found))


def _version(numbers: Any) -> str:
    """``[10, 15, 0]`` as ``10.15``."""
    parts = [int(number) for number in numbers]
    while len(parts) > 2 and not parts[-1]:
        parts.pop()
    return ".".join(map(str, parts))


def _macho_hardening(item: Any, kind: Kind) -> Iterator[str]:
    """What a program or library has of the properties that `toolchains.inspect.checks` names."""
    if kind == "library" or item.is_pie:
        yield "pie"
    if item.has_nx_stack and not any(part.init_protection & _BOTH == _BOTH for part in item.segments):
        yield "nx"
    names = {str(symbol.name).removeprefix("_") for symbol in item.symbols}
    if "__stack_chk_fail" in names:
        yield "stack_protector"
    if any(name.startswith("__") and name.endswith("_chk") for name in names):
        yield "fortify"


def _macho(path: Path, item: Any, member: str, here: tuple[str, ...]) -> Binary:
    system, version = "", ""
    if item.has_build_version:
        system = _known(item.build_version.platform).lower()
        version = _version(item.build_version.minos)
    elif item.has_version_min:
        command = _known(item.version_min.command)
        system = "macos" if "MACOSX" in command else "ios" if "IPHONE" in command else command.lower()
        version = _version(item.version_min.version)
    kind = _KINDS.get(_known(item.header.file_type), "library")
    own = [str(library.name) for library in item.libraries if _known(library.command) == "ID_DYLIB"]
    return Binary(
        path,
        _name(item.header.cpu_type),
        "none",
        interpreter=str(item.dylinker.name) if item.has_dylinker else "",
        soname=own[0] if own else "",
        needed=tuple(str(library.name) for library in item.libraries if _known(library.command) != "ID_DYLIB"),
        runpath=tuple(str(rpath.path) for rpath in item.rpaths),
        member=member,
        format="mach-o",
        kind=kind,
        relocatable=kind != "program" or bool(item.is_pie),
        hardening=() if kind == "object" else tuple(_macho_hardening(item, kind)),
        system=system,
        system_version=version,
        paths=_inside(item.sections, here),
    )


def _pe_hardening(item: Any) -> Iterator[str]:
    flags, header = lief.PE.OptionalHeader.DLL_CHARACTERISTICS, item.optional_header
    # Without a table of relocations the flag alone moves nothing.
    if header.has(flags.DYNAMIC_BASE) and item.has_relocations:
        yield "pie"
    if header.has(flags.HIGH_ENTROPY_VA):
        yield "high_entropy"
    if header.has(flags.NX_COMPAT) and not any(
        int(part.characteristics) & _PE_BOTH == _PE_BOTH for part in item.sections
    ):
        yield "nx"
    if any(_GUARD in bytes(part.content) for part in item.sections if not int(part.characteristics) & _NO_CONTENT):
        yield "stack_protector"


def _pe(path: Path, item: Any, member: str, here: tuple[str, ...]) -> Binary:
    library = item.header.has_characteristic(lief.PE.Header.CHARACTERISTICS.DLL)
    flags = lief.PE.OptionalHeader.DLL_CHARACTERISTICS
    return Binary(
        path,
        _name(item.header.machine),
        "none",
        needed=tuple(dict.fromkeys(str(part.name) for part in (*item.imports, *item.delay_imports))),
        member=member,
        format="pe",
        kind="library" if library else "program",
        exec_stack=not item.optional_header.has(flags.NX_COMPAT),
        relocatable=item.optional_header.has(flags.DYNAMIC_BASE),
        hardening=tuple(_pe_hardening(item)),
        paths=_inside(item.sections, here),
    )


def _coff(path: Path, item: Any, member: str, here: tuple[str, ...]) -> Binary:
    return Binary(
        path, _name(item.header.machine), "none",
        member=member, format="coff", kind="object", paths=_inside(item.sections, here),
    )  # fmt: skip
