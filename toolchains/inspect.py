"""What binaries ask of a device, read from the binaries themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.bundle import Needs
from core.errors import BuildError
from toolchains.targets import Target

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_386": "i686"}
# Tag_CPU_arch of the Arm ABI's build attributes (addenda32, "The CPU architecture"): 6 to 12 are ARMv6 and kin.
_ARM_V7 = 10
_ARM_V6 = frozenset({6, 7, 8, 9, 11, 12})
_HARD_FLOAT, _SOFT_FLOAT = 0x400, 0x200
"""``EF_ARM_ABI_FLOAT_HARD`` and ``_SOFT`` in an ELF header's flags."""

_SYSTEM = frozenset(
    {
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "librt.so.1",
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "ld-linux-aarch64.so.1",
        "ld-linux-x86-64.so.2",
        "ld-linux-armhf.so.3",
        "ld-linux.so.2",
    }
)
"""Libraries that every system with glibc and C++ programs has."""

FloatAbi = Literal["hard", "soft", "none"]
Libc = Literal["glibc", "musl", "static", "bionic", "msvcrt", "system"]


@dataclass(frozen=True)
class Binary:
    """An ELF program or shared library."""

    path: Path
    machine: str
    """``uname -m`` family, or the ELF name of an architecture that no target has."""
    float_abi: FloatAbi
    interpreter: str
    """The loader it asks for; empty for libraries and static programs."""
    soname: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: Mapping[str, str]
    """Newest symbol version needed of each family: ``{"GLIBC": "2.17", "GLIBCXX": "3.4.21"}``."""


def number(version: str) -> tuple[int, ...]:
    """``2.28`` as something that compares."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def newest(versions: Iterable[str]) -> str:
    """The newest of several version numbers; empty when there is none."""
    return max(versions, key=number, default="")


def _arm(elf: Any) -> tuple[str, FloatAbi]:
    """Machine and calling convention of a 32-bit Arm file."""
    architecture, passes_in_vfp = 0, False
    section = elf.get_section_by_name(".ARM.attributes")
    for subsection in section.iter_subsections() if section else ():
        for block in subsection.iter_subsubsections():
            for attribute in block.iter_attributes():
                if attribute.tag == "TAG_CPU_ARCH":
                    architecture = attribute.value
                passes_in_vfp |= attribute.tag == "TAG_ABI_VFP_ARGS" and attribute.value == 1
    machine = "armv6l" if architecture in _ARM_V6 else "armv7l" if architecture >= _ARM_V7 else "arm"
    flags = elf.header["e_flags"]
    hard = bool(flags & _HARD_FLOAT) or (passes_in_vfp and not flags & _SOFT_FLOAT)
    return machine, "hard" if hard else "soft"


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


def read(path: Path) -> Binary:
    """Read one ELF file.

    Raises:
        BuildError: it is none, or is damaged.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            name = elf.header["e_machine"]
            machine, float_abi = _arm(elf) if name == "EM_ARM" else (_MACHINES.get(name, str(name)), "none")
            interpreter = next(
                (part.get_interp_name() for part in elf.iter_segments() if part.header["p_type"] == "PT_INTERP"), ""
            )
            tags: dict[str, list[str]] = {}
            dynamic = elf.get_section_by_name(".dynamic")
            for tag in dynamic.iter_tags() if dynamic else ():
                text = next(
                    (str(getattr(tag, key)) for key in ("needed", "soname", "runpath", "rpath") if hasattr(tag, key)),
                    None,
                )
                if text is not None:
                    tags.setdefault(tag.entry.d_tag, []).append(text)
            paths = [*tags.get("DT_RUNPATH", []), *tags.get("DT_RPATH", [])]
            return Binary(
                path,
                machine,
                float_abi,
                interpreter,
                next(iter(tags.get("DT_SONAME", [])), ""),
                tuple(tags.get("DT_NEEDED", [])),
                tuple(part for item in paths for part in item.split(":") if part),
                _versions(elf),
            )
    except (ELFError, OSError, AttributeError, KeyError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} is not a whole ELF file.", str(error), "build it again with --force") from error


def closure(program: Path, folder: Path) -> list[Path]:
    """The libraries of ``folder`` that ``program`` needs, directly or through one another, by file name."""
    found: dict[str, Path] = {}
    waiting = list(read(program).needed)
    while waiting:
        name = waiting.pop()
        library = folder / name
        if name not in found and library.is_file():
            found[name] = library
            waiting += read(library).needed
    return sorted(found.values())


def _libc(binaries: Sequence[Binary]) -> Libc:
    loaders = [item.interpreter for item in binaries if item.interpreter]
    if not loaders:
        return "static"
    name = loaders[0].rsplit("/", 1)[-1]
    return "musl" if name.startswith("ld-musl") else "bionic" if name.startswith("linker") else "glibc"


def needs(target: Target, binaries: Sequence[Binary]) -> Needs:
    """What all ``binaries`` together ask of a device; the first one's architecture stands for all (see `problems`)."""
    own = {item.soname or item.path.name for item in binaries} | {item.path.name for item in binaries}
    libraries = {name for item in binaries for name in item.needed} - own
    return Needs(
        os=target.os,
        machine=binaries[0].machine,
        float_abi=binaries[0].float_abi,
        libc=_libc(binaries),
        glibc=newest(item.versions["GLIBC"] for item in binaries if "GLIBC" in item.versions),
        glibcxx=newest(item.versions["GLIBCXX"] for item in binaries if "GLIBCXX" in item.versions),
        loader=next((item.interpreter for item in binaries if item.interpreter), ""),
        libraries=tuple(sorted(libraries)),
        cpu_features=target.cpu_features,
    )


def too_new(binaries: Sequence[Binary], bounds: Mapping[str, str]) -> list[str]:
    """Which file needs a symbol version beyond its family's bound: ``bin/x needs GLIBC 2.34 (at most 2.28)``."""
    return [
        f"{item.path.name} needs {family} {item.versions[family]} (at most {bound})"
        for item in binaries
        for family, bound in bounds.items()
        if number(item.versions.get(family, "0")) > number(bound)
    ]


def problems(target: Target, binaries: Sequence[Binary]) -> list[str]:
    """What makes ``binaries`` no bundle for ``target``: architecture, float ABI, C library, paths of this machine."""
    found = []
    for item in binaries:
        name = item.path.name
        if item.machine != target.machine:
            found.append(f"{name} is for {item.machine}, not {target.machine}")
        if item.float_abi != target.float_abi:
            found.append(f"{name} has the float ABI {item.float_abi}, not {target.float_abi}")
        found += [
            f"{name} looks for libraries in {part}, a path of this machine"
            for part in item.runpath
            if part.startswith("/")
        ]
    missing = sorted(set(needs(target, binaries).libraries) - _SYSTEM)
    if missing:
        found.append(f"{', '.join(missing)} would have to be on the device: neither the bundle nor its system has it")
    if _libc(binaries) != target.libc:
        found.append(f"{binaries[0].path.name} uses the C library {_libc(binaries)}, not {target.libc}")
    return found
