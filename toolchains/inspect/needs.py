"""The needs of binaries, read from the binaries themselves: ELF, PE, Mach-O, alone or in static archives."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from core.errors import BuildError
from core.formats.bundle import Needs
from toolchains.inspect import archives, isa
from toolchains.inspect.archives import Binary, newest, number
from toolchains.targets import Target
from toolchains.tools import systems

__all__ = ["Binary", "closure", "needs", "newest", "number", "problems", "read", "read_all", "too_new"]

Libc = Literal["glibc", "musl", "static", "bionic", "msvcrt", "system"]
_FORMATS = {"elf": "ELF", "pe": "PE", "coff": "COFF", "mach-o": "Mach-O"}


def _here() -> tuple[str, ...]:
    """Paths of this machine that binaries must not contain: the checkout's and the cache's."""
    from core.paths import ROOT, cache_dir

    return tuple(f"{path}/" for path in dict.fromkeys((ROOT, cache_dir())) if len(path.parts) > 2)


def read(path: Path) -> Binary:
    """Read one program, library or object file; of a universal one the first architecture.

    Raises:
        BuildError: it is not a binary, or is damaged.
    """
    return next(read_all(path))


def read_all(path: Path) -> Iterator[Binary]:
    """Read every binary in ``path``: an archive's members, a universal file's architectures, or the one it is.

    Raises:
        BuildError: it is not a binary, or is damaged, or is an archive without any object.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BuildError(f"{path} cannot be read.", str(error), "build it again with --force") from error
    here, count = _here(), 0
    for member, content in archives.objects(path, data):
        count += 1
        kind = archives.format_of(content)
        if kind in {"pe", "coff", "mach-o"}:
            from toolchains.inspect import read_lief

            yield from read_lief.read(path, content, member, here, kind)
        else:
            from toolchains.inspect import read_elf

            yield read_elf.read(path, content, member, here)
    if not count:
        raise BuildError(f"{path} has no object file in it.", "an empty archive", "build it again with --force")


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
    if any(item.format in {"pe", "coff"} for item in binaries):
        return "msvcrt"
    if any(item.format == "mach-o" for item in binaries):
        return "system"
    if not (loaders := [item.interpreter for item in binaries if item.interpreter]):
        # A program without a loader is static; objects of an archive say nothing of their C library.
        if not all(item.soname or item.member for item in binaries):
            return "static"
        # Shared libraries without a program name their C library as each other library.
        needed = {name for item in binaries for name in item.needed}
        return "glibc" if "libc.so.6" in needed else "bionic" if "libc.so" in needed else "static"
    name = loaders[0].rsplit("/", 1)[-1]
    return "musl" if name.startswith("ld-musl") else "bionic" if name.startswith("linker") else "glibc"


def needs(target: Target, binaries: Sequence[Binary]) -> Needs:
    """The needs of all ``binaries`` together; the first one's architecture stands for all (see `problems`)."""
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
        f"{item.name} needs {family} {item.versions[family]} (at most {bound})"
        for item in binaries
        for family, bound in bounds.items()
        if number(item.versions.get(family, "0")) > number(bound)
    ]


def problems(target: Target, binaries: Sequence[Binary]) -> list[str]:
    """Why ``binaries`` do not fit ``target``: format, architecture, float ABI, C library, libraries, segments."""
    found = [text for item in binaries for text in _of_one(target, item)]
    patterns = [pattern.lower() for pattern in systems()[target.os]["libraries"]]
    missing = [
        name
        for name in needs(target, binaries).libraries
        if not any(fnmatch.fnmatchcase(name.lower(), pattern) for pattern in patterns)
    ]
    if missing:
        found.append(f"{', '.join(missing)} would have to be on the device: neither the bundle nor its system has it")
    if any(item.kind != "object" for item in binaries) and _libc(binaries) != target.libc:
        found.append(f"{binaries[0].name} uses the C library {_libc(binaries)}, not {target.libc}")
    return found


def _of_one(target: Target, item: Binary) -> Iterator[str]:
    system = systems()[target.os]
    if item.format not in system["formats"]:
        yield f"{item.name} is {_FORMATS[item.format]}, which {target.os} does not load"
    else:
        yield from _of_another_target(target, item)
        yield from _not_loadable(target, item, system)


def _of_another_target(target: Target, item: Binary) -> Iterator[str]:
    """Architecture, float ABI, levels of the CPU and version of the system."""
    if not _fits(target, item):
        yield f"{item.name} is for {item.machine}, not {target.machine}"
    if item.float_abi != target.float_abi and not (item.kind == "object" and item.float_abi == "none"):
        yield f"{item.name} has the float ABI {item.float_abi}, not {target.float_abi}"
    if item.level not in ("", "x86-64"):
        yield f"{item.name} says that it needs {item.level}, not {target.isa_floor}"
    if target.os == "ios" and not item.system:
        # Xcode's linker tells an iPhone's file from the simulator's by nothing else.
        yield f"{item.name} names no platform, and {target.platform} is one of several for the same machine"
    if item.system not in {"", target.platform}:
        yield f"{item.name} is for {item.system}, not {target.platform}"
    if target.os_version and number(item.system_version) > number(target.os_version):
        yield f"{item.name} needs {item.system} {item.system_version} (at most {target.os_version})"


def _not_loadable(target: Target, item: Binary, system: Mapping[str, Any]) -> Iterator[str]:
    """Paths, loader, segments and stack."""
    for part in item.runpath:
        if part.startswith("/"):
            yield f"{item.name} looks for libraries in {part}, a path of this machine"
    for part in item.paths:
        yield f"{item.name} has {part} in it, a path of this machine"
    loader = system.get("loaders", {}).get(target.machine)
    if item.interpreter and loader and _libc([item]) == target.libc and item.interpreter != loader:
        yield f"{item.name} asks for the loader {item.interpreter}, not {loader}"
    least = system.get("alignment", {}).get(target.machine, 0)
    if item.alignment and item.alignment < least:
        yield f"{item.name} is aligned to {item.alignment} bytes: kernels with pages of {least} do not load it"
    if item.exec_stack:
        yield f"{item.name} asks for an executable stack"
    if target.os == "android" and item.interpreter and not item.relocatable:
        yield f"{item.name} is not position independent, and Android starts nothing else"


def _fits(target: Target, item: Binary) -> bool:
    """Whether the target's machines run it: its own architecture, or, in an object, an older ARM.

    A kernel that is chosen at run time may say that it is for a later one: the scan looks at its instructions.
    """
    if item.machine == target.machine or item.kind != "object":
        return item.machine == target.machine
    arms = ("arm", "armv6l", "armv7l")
    if target.machine not in arms or item.machine not in arms:
        return False
    older = arms.index(item.machine) < arms.index(target.machine)
    return older or isa.table().allowed("a32", (), item.member) is not None
