"""Facts about one binary of any format, and the comparison of versions in binaries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

FloatAbi = Literal["hard", "soft", "none"]
Kind = Literal["program", "library", "object"]


@dataclass(frozen=True)
class Binary:
    """A program, a shared library or an object file, on its own or in an archive."""

    path: Path
    machine: str
    """``uname -m`` family, or the file format's name of an architecture that no target has."""
    float_abi: FloatAbi
    interpreter: str
    """The loader it asks for; empty for libraries and static programs."""
    soname: str
    needed: tuple[str, ...]
    runpath: tuple[str, ...]
    versions: Mapping[str, str]
    """Newest symbol version needed of each family: ``{"GLIBC": "2.17", "GLIBCXX": "3.4.21"}``."""
    member: str = ""
    """The archive's member that it is."""
    format: Literal["elf", "pe", "coff", "mach-o"] = "elf"
    kind: Kind = "library"
    cpu: Mapping[str, str] = field(default_factory=dict)
    """What the file itself says about the CPU: Arm's build attributes, the ISA levels of x86's GNU property."""
    alignment: int = 0
    """The least alignment of its loadable segments in bytes; 0 where the format has none."""
    exec_stack: bool = False
    relocatable: bool = True
    """Whether a program can be loaded anywhere (position independent, static or not)."""
    system: str = ""
    """The operating system that the file names (``macos``, ``ios``); empty where the format names none."""
    system_version: str = ""
    """The least version of that system."""
    hardening: tuple[str, ...] = ()
    """What it has of the properties that `toolchains.compilers.hardening` names."""
    paths: tuple[str, ...] = ()
    """Paths of this machine in what is loaded at run time."""

    @property
    def name(self) -> str:
        """As messages call it: ``libXNNPACK.a(f32-vadd-avx-u16.c.o)``."""
        return f"{self.path.name}({self.member})" if self.member else self.path.name


def number(version: str) -> tuple[int, ...]:
    """``2.28`` as something that compares."""
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def newest(versions: Iterable[str]) -> str:
    """The newest of several version numbers; empty when there is none."""
    return max(versions, key=number, default="")
