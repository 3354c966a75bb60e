"""Facts of Windows' and Apple's binaries, read by lief."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from toolchains.archives import Format, broken
from toolchains.binary import Binary, Kind

_MACHINES = {"AMD64": "x86_64", "I386": "i686", "ARM64": "aarch64", "X86_64": "x86_64", "X86": "i686"}
_KINDS: dict[str, Kind] = {"EXECUTE": "program", "OBJECT": "object"}
_NO_CONTENT = 0x80
"""``IMAGE_SCN_CNT_UNINITIALIZED_DATA``."""
_DEBUG = ("__DWARF", ".debug", "/")
"""Segments and sections with debugging information; those of PE and COFF with long names begin with a slash."""


def read(path: Path, data: bytes, member: str, here: tuple[str, ...], kind: Format) -> list[Binary]:
    """One PE, COFF or Mach-O file; of a universal one every architecture.

    Raises:
        BuildError: it is damaged.
    """
    where = path.with_name(f"{path.name}({member.replace('/', '_')})") if member else path
    try:
        with warnings.catch_warnings():
            # lief warns of numbers that it has no name for.
            warnings.simplefilter("ignore", RuntimeWarning)
            found = _read(path, data, member, here, kind)
    except (AttributeError, LookupError, MemoryError, RuntimeError, ValueError) as error:
        raise broken(where, str(error)) from error
    if not found:
        raise broken(where, "it is not whole")
    return found


def _read(path: Path, data: bytes, member: str, here: tuple[str, ...], kind: Format) -> list[Binary]:
    import lief

    lief.logging.disable()
    if kind == "mach-o":
        fat = lief.MachO.parse(data)
        parts = [fat.at(index) for index in range(fat.size)] if fat is not None else []
        return [_macho(path, part, member, here) for part in parts if part is not None]
    if kind == "pe":
        program = lief.PE.parse(data)
        return [_pe(path, program, member, here)] if program is not None else []
    item = lief.COFF.parse(data)
    return [_coff(path, item, member, here)] if item is not None else []


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
        str(item.dylinker.name) if item.has_dylinker else "",
        own[0] if own else "",
        tuple(str(library.name) for library in item.libraries if _known(library.command) != "ID_DYLIB"),
        tuple(str(rpath.path) for rpath in item.rpaths),
        {},
        member=member,
        format="mach-o",
        kind=kind,
        relocatable=kind != "program" or bool(item.is_pie),
        system=system,
        system_version=version,
        paths=_inside(item.sections, here),
    )


def _pe(path: Path, item: Any, member: str, here: tuple[str, ...]) -> Binary:
    import lief

    library = item.header.has_characteristic(lief.PE.Header.CHARACTERISTICS.DLL)
    flags = lief.PE.OptionalHeader.DLL_CHARACTERISTICS
    imports = [*item.imports, *item.delay_imports]
    return Binary(
        path,
        _name(item.header.machine),
        "none",
        "",
        "",
        tuple(dict.fromkeys(str(part.name) for part in imports)),
        (),
        {},
        member=member,
        format="pe",
        kind="library" if library else "program",
        exec_stack=not item.optional_header.has(flags.NX_COMPAT),
        relocatable=item.optional_header.has(flags.DYNAMIC_BASE),
        paths=_inside(item.sections, here),
    )


def _coff(path: Path, item: Any, member: str, here: tuple[str, ...]) -> Binary:
    return Binary(
        path, _name(item.header.machine), "none", "", "", (), (), {},
        member=member, format="coff", kind="object", paths=_inside(item.sections, here),
    )  # fmt: skip
