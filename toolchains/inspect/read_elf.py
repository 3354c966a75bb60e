"""Facts of an ELF file, read by pyelftools."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from core.errors import BuildError
from toolchains.inspect.needs import Binary, FloatAbi, Kind, newest, number

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_386": "i686"}
# Tag_CPU_arch of the Arm ABI's build attributes (addenda32, "The CPU architecture"): 6 to 12 are ARMv6 and kin.
_ARM_V7 = 10
_ARM_V6 = frozenset({6, 7, 8, 9, 11, 12})
_HARD_FLOAT, _SOFT_FLOAT = 0x400, 0x200
"""``EF_ARM_ABI_FLOAT_HARD`` and ``_SOFT`` in an ELF header's flags."""
_ARM_TAGS = ("TAG_CPU_NAME", "TAG_CPU_ARCH", "TAG_FP_ARCH", "TAG_ADVANCED_SIMD_ARCH")
_KINDS: dict[str, Kind] = {"ET_EXEC": "program", "ET_REL": "object"}
_EXECUTABLE, _WRITABLE, _ALLOCATED = 1, 2, 2
"""``PF_X`` and ``PF_W`` of a segment's flags, ``SHF_ALLOC`` of a section's."""
_BIND_NOW, _NOW, _PIE = 0x8, 0x1, 0x08000000
"""``DF_BIND_NOW`` of ``DT_FLAGS``; ``DF_1_NOW`` and ``DF_1_PIE`` of ``DT_FLAGS_1``."""
_DAMAGE = (OSError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What pyelftools raises besides its own errors when a file's numbers make no sense."""
_X86_NEEDED = 0xC0008002
"""``GNU_PROPERTY_X86_ISA_1_NEEDED``: one bit a level, from baseline to v4 (x86-64 psABI, "program property")."""
_LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def _attributes(elf: Any) -> dict[str, Any]:
    """Arm's build attributes by tag; of several, the greatest."""
    found: dict[str, Any] = {}
    section = elf.get_section_by_name(".ARM.attributes")
    for subsection in section.iter_subsections() if section else ():
        for block in subsection.iter_subsubsections():
            for attribute in block.iter_attributes():
                old = found.get(attribute.tag)
                found[attribute.tag] = attribute.value if old is None else max(old, attribute.value)
    return found


def _arm(elf: Any, attributes: dict[str, Any]) -> tuple[str, FloatAbi]:
    """Machine and calling convention of a 32-bit Arm file."""
    architecture = attributes.get("TAG_CPU_ARCH", 0)
    machine = "armv6l" if architecture in _ARM_V6 else "armv7l" if architecture >= _ARM_V7 else "arm"
    flags = elf.header["e_flags"]
    passes_in_vfp = attributes.get("TAG_ABI_VFP_ARGS") == 1
    if flags & _HARD_FLOAT or (passes_in_vfp and not flags & _SOFT_FLOAT):
        return machine, "hard"
    # Compilers state the size of enums beside it; assembly, which passes nothing, states neither.
    silent = elf.header["e_type"] == "ET_REL" and not flags & _SOFT_FLOAT and "TAG_ABI_ENUM_SIZE" not in attributes
    return machine, "none" if silent else "soft"


def _versions(elf: Any) -> dict[str, str]:
    """Newest needed symbol version of each family."""
    found: dict[str, list[str]] = {}
    section = elf.get_section_by_name(".gnu.version_r")
    for _, auxiliaries in section.iter_versions() if section else ():
        for auxiliary in auxiliaries:
            family, _, version = auxiliary.name.rpartition("_")
            if number(version):
                found.setdefault(family, []).append(version)
    return {family: newest(versions) for family, versions in found.items()}


def _levels(elf: Any) -> Iterator[str]:
    """The levels of x86-64 that the file says it needs."""
    section = elf.get_section_by_name(".note.gnu.property")
    data = section.data() if section else b""
    position, step = 16, 4 if elf.elfclass == 32 else 8
    while position + 12 <= len(data):
        kind = int.from_bytes(data[position : position + 4], "little")
        size = int.from_bytes(data[position + 4 : position + 8], "little")
        if kind == _X86_NEEDED:
            bits = int.from_bytes(data[position + 8 : position + 12], "little")
            yield from (level for index, level in enumerate(_LEVELS) if bits >> index & 1)
        position += 8 + -(-size // step) * step


def _tags(elf: Any) -> dict[str, list[str]]:
    """The dynamic section's texts."""
    tags: dict[str, list[str]] = {}
    dynamic = elf.get_section_by_name(".dynamic")
    for tag in dynamic.iter_tags() if dynamic else ():
        text = next(
            (str(getattr(tag, key)) for key in ("needed", "soname", "runpath", "rpath") if hasattr(tag, key)), None
        )
        if text is not None:
            tags.setdefault(tag.entry.d_tag, []).append(text)
        elif tag.entry.d_tag == "DT_FLAGS_1" and tag.entry.d_val & _PIE:
            tags["PIE"] = ["yes"]
        if (tag.entry.d_tag, tag.entry.d_val & _NOW) == ("DT_FLAGS_1", _NOW) or _binds_now(tag.entry):
            tags["NOW"] = ["yes"]
    return tags


def _binds_now(entry: Any) -> bool:
    return entry.d_tag == "DT_BIND_NOW" or (entry.d_tag == "DT_FLAGS" and bool(entry.d_val & _BIND_NOW))


def _hardening(elf: Any, tags: dict[str, list[str]], segments: Sequence[Any], exec_stack: bool) -> Iterator[str]:
    """What a program or library has of the properties that `toolchains.compilers.hardening` names."""
    if elf.header["e_type"] != "ET_EXEC":
        yield "pie"
    if any(part["p_type"] == "PT_GNU_RELRO" and part["p_memsz"] for part in segments):
        yield "relro"
    if "NOW" in tags:
        yield "bind_now"
    both = _WRITABLE | _EXECUTABLE
    loads = [part["p_flags"] for part in segments if part["p_type"] == "PT_LOAD"]
    if not exec_stack and not any(flags & both == both for flags in loads):
        yield "nx"
    tables = (elf.get_section_by_name(name) for name in (".dynsym", ".symtab"))
    names = {symbol.name for table in tables if table for symbol in table.iter_symbols()}
    if "__stack_chk_fail" in names:
        yield "stack_protector"
    if any(name.startswith("__") and name.endswith("_chk") for name in names):
        yield "fortify"
    if any("__glibcxx_assert_fail" in name for name in names):
        yield "assertions"


def _cpu(elf: Any, attributes: dict[str, Any], properties: bool) -> dict[str, str]:
    facts = {tag: str(attributes[tag]) for tag in _ARM_TAGS if tag in attributes}
    levels = list(_levels(elf)) if properties and elf.header["e_machine"] in {"EM_X86_64", "EM_386"} else []
    return facts | ({"needed": levels[-1]} if levels else {})


def newest_defined(path: Path, family: str) -> str:
    """The newest version of the symbols of ``family`` that a library defines: ``2.36`` of ``GLIBC``; or empty."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_d")
        names = [next(iter(auxiliaries)).name for _, auxiliaries in section.iter_versions()] if section else []
    # The first one is the library's own name, and GLIBC_PRIVATE has no number.
    return newest(name.removeprefix(f"{family}_") for name in names if re.fullmatch(rf"{family}_[0-9.]+", name))


def loaded(elf: Any) -> Iterator[bytes]:
    """The contents that are in memory at run time."""
    for section in elf.iter_sections():
        if section["sh_flags"] & _ALLOCATED and section["sh_type"] != "SHT_NOBITS":
            yield section.data()


def read(path: Path, data: bytes, member: str, here: tuple[str, ...]) -> Binary:
    """One ELF file.

    Args:
        here: paths of this machine to look for.

    Raises:
        BuildError: it is none, or is damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        elf = ELFFile(io.BytesIO(data))
        name, form = elf.header["e_machine"], elf.header["e_type"]
        if elf.header["e_shoff"] + elf.header["e_shnum"] * elf.header["e_shentsize"] > len(data):
            raise ELFError("its list of sections is cut off")
        attributes = _attributes(elf) if name == "EM_ARM" else {}
        machine, float_abi = _arm(elf, attributes) if attributes or name == "EM_ARM" else (_name(name), "none")
        segments = [] if form == "ET_REL" else list(elf.iter_segments())
        interpreter = next((part.get_interp_name() for part in segments if part["p_type"] == "PT_INTERP"), "")
        tags = {} if form == "ET_REL" else _tags(elf)
        program = form == "ET_EXEC" or bool(interpreter) or "PIE" in tags
        stack = next((part["p_flags"] for part in segments if part["p_type"] == "PT_GNU_STACK"), None)
        paths = [*tags.get("DT_RUNPATH", []), *tags.get("DT_RPATH", [])]
        suspects = [text for text in here if text.encode() in data]
        inside = {text for content in loaded(elf) for text in suspects if text.encode() in content} if suspects else ()
        # Without the header a program gets an executable stack on most machines.
        exec_stack = bool(stack & _EXECUTABLE) if stack is not None else program
        hardening = () if form == "ET_REL" else tuple(_hardening(elf, tags, segments, exec_stack))
        return Binary(
            path,
            machine,
            float_abi,
            interpreter,
            next(iter(tags.get("DT_SONAME", [])), ""),
            tuple(tags.get("DT_NEEDED", [])),
            tuple(part for item in paths for part in item.split(":") if part),
            {} if form == "ET_REL" else _versions(elf),
            member=member,
            kind=_KINDS.get(form, "program" if program else "library"),
            cpu=_cpu(elf, attributes, b".note.gnu.property" in data),
            alignment=min((part["p_align"] for part in segments if part["p_type"] == "PT_LOAD"), default=0),
            exec_stack=exec_stack,
            hardening=hardening,
            relocatable=form != "ET_EXEC",
            paths=tuple(sorted(inside)),
        )
    except (ELFError, *_DAMAGE) as error:
        what = f"{path}({member})" if member else path
        raise BuildError(f"{what} is not a whole ELF file.", str(error), "build it again with --force") from error


def _name(machine: object) -> str:
    return _MACHINES.get(str(machine), str(machine))
