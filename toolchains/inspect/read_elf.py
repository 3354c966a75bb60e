"""Facts of an ELF file, read by pyelftools."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import BuildError
from toolchains.inspect.archives import Binary, FloatAbi, newest, number

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_386": "i686"}
# Tag_CPU_arch of the Arm ABI's build attributes (addenda32, "The CPU architecture"): 6 to 12 are ARMv6 and kin.
_ARM_V7 = 10
_ARM_V6 = frozenset({6, 7, 8, 9, 11, 12})
_HARD_FLOAT, _SOFT_FLOAT = 0x400, 0x200
"""``EF_ARM_ABI_FLOAT_HARD`` and ``_SOFT`` in an ELF header's flags."""
_EXECUTABLE, _WRITABLE, _ALLOCATED = 1, 2, 2
"""``PF_X`` and ``PF_W`` of a segment's flags, ``SHF_ALLOC`` of a section's."""
_BIND_NOW, _NOW, _PIE = 0x8, 0x1, 0x08000000
"""``DF_BIND_NOW`` of ``DT_FLAGS``; ``DF_1_NOW`` and ``DF_1_PIE`` of ``DT_FLAGS_1``."""
_DAMAGE = (OSError, ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)
"""What pyelftools raises besides its own errors when a file's numbers make no sense."""
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


def _level(elf: Any) -> str:
    """The level of x86-64 that the file says it needs; empty if it says nothing."""
    section = elf.get_section_by_name(".note.gnu.property")
    notes = [note for note in section.iter_notes() if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0"] if section else []
    parts = (part for note in notes for part in note["n_desc"])
    # One bit a level, from baseline to v4 (x86-64 psABI, "program property").
    bits = next((part["pr_data"] for part in parts if part["pr_type"] == "GNU_PROPERTY_X86_ISA_1_NEEDED"), 0)
    return _LEVELS[min(bits.bit_length(), len(_LEVELS)) - 1] if bits else ""


def _hardening(elf: Any, flags: Mapping[str, int], segments: Sequence[Any], exec_stack: bool) -> Iterator[str]:
    """What a program or library has of the properties that `toolchains.inspect.checks` names."""
    if elf.header["e_type"] != "ET_EXEC":
        yield "pie"
    if any(part["p_type"] == "PT_GNU_RELRO" and part["p_memsz"] for part in segments):
        yield "relro"
    if "DT_BIND_NOW" in flags or flags.get("DT_FLAGS", 0) & _BIND_NOW or flags.get("DT_FLAGS_1", 0) & _NOW:
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


def newest_defined(path: Path, family: str) -> str:
    """The newest version of the symbols of ``family`` that a library defines: ``2.36`` of ``GLIBC``; or empty."""
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        section = ELFFile(file).get_section_by_name(".gnu.version_d")
        names = [next(iter(auxiliaries)).name for _, auxiliaries in section.iter_versions()] if section else []
    # The first one is the library's own name, and GLIBC_PRIVATE has no number.
    return newest(name.removeprefix(f"{family}_") for name in names if re.fullmatch(rf"{family}_[0-9.]+", name))


def _inside(elf: Any, texts: Sequence[str]) -> Iterator[str]:
    """Which of ``texts`` are in what is in memory at run time."""
    for section in elf.iter_sections() if texts else ():
        if section["sh_flags"] & _ALLOCATED and section["sh_type"] != "SHT_NOBITS":
            content = section.data()
            yield from (text for text in texts if text.encode() in content)


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
        if elf.header["e_shoff"] + elf.header["e_shnum"] * elf.header["e_shentsize"] > len(data):
            raise ELFError("its list of sections is cut off")
        facts = _linked(elf) if elf.header["e_type"] != "ET_REL" else {"kind": "object"}
        name = elf.header["e_machine"]
        machine, float_abi = (
            _arm(elf, _attributes(elf)) if name == "EM_ARM" else (_MACHINES.get(name, str(name)), "none")
        )
        with_level = b".note.gnu.property" in data and name in {"EM_X86_64", "EM_386"}
        return Binary(
            path,
            machine,
            float_abi,
            member=member,
            level=_level(elf) if with_level else "",
            paths=tuple(sorted(set(_inside(elf, [text for text in here if text.encode() in data])))),
            **facts,
        )
    except (ELFError, *_DAMAGE) as error:
        what = f"{path}({member})" if member else path
        raise BuildError(f"{what} is not a whole ELF file.", str(error), "build it again with --force") from error


def _linked(elf: Any) -> dict[str, Any]:
    """Facts of a program or shared library."""
    segments = list(elf.iter_segments())
    dynamic = elf.get_section_by_name(".dynamic")
    tags = list(dynamic.iter_tags()) if dynamic else []
    flags = {tag.entry.d_tag: tag.entry.d_val for tag in tags}
    texts = [(str(tag.entry.d_tag), str(value)) for tag in tags if (value := _text(tag))]
    interpreter = next((part.get_interp_name() for part in segments if part["p_type"] == "PT_INTERP"), "")
    fixed = elf.header["e_type"] == "ET_EXEC"
    program = fixed or bool(interpreter) or bool(flags.get("DT_FLAGS_1", 0) & _PIE)
    # Without the header a program gets an executable stack on most machines.
    stack = next((part["p_flags"] for part in segments if part["p_type"] == "PT_GNU_STACK"), None)
    exec_stack = program if stack is None else bool(stack & _EXECUTABLE)
    return {
        "kind": "program" if program else "library",
        "interpreter": interpreter,
        "soname": next((text for tag, text in texts if tag == "DT_SONAME"), ""),
        "needed": tuple(text for tag, text in texts if tag == "DT_NEEDED"),
        "runpath": tuple(
            part for tag, text in texts if tag in ("DT_RUNPATH", "DT_RPATH") for part in text.split(":") if part
        ),
        "versions": _versions(elf),
        "alignment": min((part["p_align"] for part in segments if part["p_type"] == "PT_LOAD"), default=0),
        "exec_stack": exec_stack,
        "hardening": tuple(_hardening(elf, flags, segments, exec_stack)),
        "relocatable": not fixed,
    }


def _text(tag: Any) -> str:
    """The text of one of the dynamic section's entries, if it has one."""
    return next((getattr(tag, key) for key in ("needed", "soname", "runpath", "rpath") if hasattr(tag, key)), "")
