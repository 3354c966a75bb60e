"""The table of targets as typed data."""

from __future__ import annotations

import dataclasses
import functools
import platform
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.cli.near import did_you_mean, near, nearest
from core.errors import ConfigError, HostError, NotSupportedError
from toolchains import ndk_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = Path(__file__).with_name("targets.toml")
WORKS = "works"
EMBEDDED = "in libslipway"
"""The engine works, but only inside of other people's programs: the system runs no ``pte_runner``."""
WITH_NDK = "with the NDK"
"""The engine works in programs that the NDK's compilers make: its libraries are for Android's own C library."""
ENGINES = ("executorch", "lean", "onnxruntime")
"""Every engine of the plan, in the order of preference on a target that has several."""

_CHOICES: Mapping[str, frozenset[str]] = {
    "os": frozenset({"linux", "android", "windows", "macos", "ios"}),
    "machine": frozenset({"x86_64", "aarch64", "armv7l", "armv6l", "i686"}),
    "float_abi": frozenset({"hard", "soft", "none"}),
    "libc": frozenset({"glibc", "musl", "static", "bionic", "msvcrt", "system"}),
}

_SIMULATOR = "-simulator"
_SYSTEMS = {"linux": "linux", "darwin": "macos", "windows": "windows"}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64", "armv8l": "armv7l", "i386": "i686"}
"""The table's names of what `platform` calls this system and this machine, where they differ."""


@dataclass(frozen=True)
class Target:
    """One target. The fields are explained at the head of ``targets.toml``."""

    name: str
    os: str
    arch: str
    machine: str
    isa_floor: str
    libc: str
    cmake_processor: str
    conan_os: str
    conan_arch: str
    toolchains: tuple[str, ...]
    proof: str
    cpu_features: tuple[str, ...] = ()
    float_abi: str = "none"
    max_glibc: str = ""
    zig_triple: str = ""
    zig_cpu: str = ""
    gnu_triple: str = ""
    debian_arch: str = ""
    android_api: str = ""
    os_version: str = ""
    qemu: str = ""
    qemu_cpu: str = ""
    qemu_cpus: tuple[str, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)
    not_built_with: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)

    @property
    def default_toolchain(self) -> str:
        """The default compiler family.

        Android's is the NDK only where the environment or Conan's configuration names one.
        """
        first, *others = self.toolchains
        if first == "ndk" and others:
            return first if ndk_folder.named() else others[0]
        return first

    @property
    def bits(self) -> int:
        """How wide its addresses are."""
        return 64 if self.machine in ("x86_64", "aarch64") else 32

    @property
    def platform(self) -> str:
        """What Apple's files name as their system: the table's name of it, or ``ios_simulator``."""
        return f"{self.os}_simulator" if self.zig_triple.endswith(_SIMULATOR) else self.os

    @property
    def apple_sdk(self) -> str:
        """Apple's name of the SDK for iOS, ``iphoneos``; empty for other systems."""
        names = {"ios": "iphoneos", "ios_simulator": "iphonesimulator"}
        return names.get(self.platform, "")

    def simulator(self) -> Target:
        """iOS as Xcode's simulator on an Arm Mac runs it: the same instructions, another platform in each file."""
        return dataclasses.replace(self, name=f"{self.name}-simulator", zig_triple=f"{self.zig_triple}{_SIMULATOR}")

    @property
    def multiarch(self) -> str:
        """Debian's name of the folders that hold this architecture's libraries: ``i386-linux-gnu``."""
        return self.gnu_triple.replace("i686-", "i386-")

    def built_with(self, toolchain: str) -> Target:
        """The target as the compilers ``toolchain`` make it.

        The table describes what the compilers that need nothing make: for Android, static executables with musl.
        The NDK's use the system's own C library and its calling convention, and no emulator here has that library.
        """
        if self.os != "android" or toolchain != "ndk":
            return self
        proof = "not run: it needs a device, for Android's C library is not emulated here"
        float_abi = "soft" if self.float_abi == "hard" else self.float_abi
        return dataclasses.replace(
            self, libc="bionic", float_abi=float_abi, qemu="", qemu_cpu="", qemu_cpus=(), proof=proof
        )

    def with_shared_libraries(self) -> Target:
        """The target as its shared libraries are made: another C library where its programs are static."""
        return dataclasses.replace(self, **{**self.shared, "shared": {}}) if self.shared else self  # type: ignore[arg-type]

    @property
    def working_engines(self) -> tuple[str, ...]:
        """Engines that can be built for it by the default compilers, the default first."""
        return tuple(engine for engine in ENGINES if self._works(engine, self.default_toolchain))

    @property
    def embedded_engines(self) -> tuple[str, ...]:
        """Engines that work inside of libslipway alone."""
        return tuple(engine for engine in ENGINES if self.engines.get(engine) == EMBEDDED)

    def _works(self, engine: str, toolchain: str) -> bool:
        return self.engines.get(engine) in ((WORKS, WITH_NDK) if toolchain == "ndk" else (WORKS,))

    def needs(self, engine: str) -> str:
        """What ``engine`` still needs on this target; empty when it needs nothing."""
        text = self.engines.get(engine, "a plan: it is not meant for this target")
        if text == WITH_NDK:
            how = f"an NDK: export {ndk_folder.VARIABLE}=/path/to/android-ndk-r27c (or newer)"
            return "" if self._works(engine, self.default_toolchain) else how
        return "" if text in (WORKS, EMBEDDED) else text

    def engine(self, requested: str = "", toolchain: str = "") -> str:
        """The engine to build: ``requested``, or the default if it is empty.

        Args:
            toolchain: the compilers; the default ones when empty.

        Raises:
            ConfigError: no engine has that name.
            NotSupportedError: the engine does not run on this target, or not yet.
        """
        if requested and requested not in ENGINES:
            raise ConfigError(
                f"There is no engine {requested!r}.", f"engines are {', '.join(ENGINES)}", "./inv targets"
            )
        toolchain = toolchain or self.default_toolchain
        if requested and self._works(requested, toolchain):
            return requested
        if not requested and self.working_engines:
            return self.working_engines[0]
        instead = _instead(self.name)
        if requested in self.embedded_engines or (not requested and self.embedded_engines):
            raise NotSupportedError(
                f"There is no pte_runner for {self.name}.",
                f"its system runs apps: the engine {self.embedded_engines[0]} is in libslipway, which they link",
                f"./inv build --target {self.name} --sdk",
            )
        if requested:
            needs = self.needs(requested) or f"--toolchain ndk: {toolchain} makes programs without Android's C library"
            raise NotSupportedError(
                f"The engine {requested} cannot be built for {self.name} yet.", f"it still needs {needs}", instead
            )
        needs = "; ".join(f"{engine}: {text}" for engine, text in self.engines.items())
        raise NotSupportedError(f"{self.name} cannot be built yet.", f"still needed: {needs}", instead)

    def toolchain(self, requested: str = "") -> str:
        """The compiler family: ``requested`` or the default.

        Raises:
            ConfigError: that family does not build this target.
        """
        if requested and requested not in self.toolchains:
            why = self.not_built_with.get(requested)
            raise ConfigError(
                f"The toolchain {requested!r} does not build {self.name}.",
                f"what does: {', '.join(self.toolchains)}" + (f"; {why}" if why else ""),
                f"./inv build --target {self.name} --toolchain {self.default_toolchain}",
            )
        return requested or self.default_toolchain


def _instead(name: str) -> str:
    """The hint to build the nearest target that can be built instead."""
    working = [other for other in load_targets().values() if other.working_engines]
    same = [t for t in working if t.name == name] or near(name, [t.name for t in working], 1, 0)
    if not same:
        return "./inv targets"
    nearest = same[0] if isinstance(same[0], Target) else load_targets()[same[0]]
    return f"./inv build --target {nearest.name} --engine {nearest.working_engines[0]}"


def _bad(name: str, why: str, source: Path) -> ConfigError:
    return ConfigError(f"{source.name}: [{name}]: {why}.", "the table of targets is wrong", f"fix {source}")


def parse_target(name: str, row: Mapping[str, Any], source: Path = TABLE) -> Target:
    """One row of the table, checked: every key known, every type and choice right.

    Raises:
        ConfigError: names the row, the key and what is wrong.
    """
    hints = typing.get_type_hints(Target)
    fields = {item.name: item for item in dataclasses.fields(Target) if item.name != "name"}
    values: dict[str, Any] = {}
    for key, value in row.items():
        if key not in fields:
            meant = nearest(key, fields)
            raise _bad(name, f"unknown key {key!r}" + (f" (did you mean {meant!r}?)" if meant else ""), source)
        if hints[key] is str:
            good = isinstance(value, str)
        elif key in ("engines", "not_built_with", "shared"):
            good = isinstance(value, dict) and all(isinstance(text, str) and text for text in value.values())
        else:
            good = isinstance(value, list) and all(isinstance(item, str) for item in value)
            value = tuple(value) if good else value  # noqa: PLW2901
        if not good:
            raise _bad(name, f"{key} has the wrong type ({type(value).__name__})", source)
        if key in _CHOICES and value not in _CHOICES[key]:
            raise _bad(name, f"{key} is {value!r}, not one of {', '.join(sorted(_CHOICES[key]))}", source)
        values[key] = value
    missing = [
        key
        for key, item in fields.items()
        if key not in values and item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise _bad(name, f"{', '.join(missing)} missing", source)
    target = Target(name=name, **values)
    for key, value in target.shared.items():
        if hints.get(key) is not str or value not in _CHOICES.get(key, {value}):
            raise _bad(name, f"shared.{key} is unknown or has a wrong value", source)
    problem = _inconsistent(target) or _inconsistent(target.with_shared_libraries())
    if problem:
        raise _bad(name, problem, source)
    return target


def _inconsistent(target: Target) -> str:
    """A contradiction within a row; empty if there is none."""
    zig = "zig" in target.toolchains
    apple = target.os in ("macos", "ios")
    unknown = [engine for engine in target.engines if engine not in ENGINES]
    faults = {
        "no toolchain can build it": not target.toolchains,
        "zig is among the toolchains and zig_triple is empty": zig and not target.zig_triple,
        'max_glibc goes with libc = "glibc", and only with it': (target.libc == "glibc") != bool(target.max_glibc),
        'android_api goes with os = "android", and only with it': (target.os == "android") != bool(target.android_api),
        "os_version goes with macos and ios, and only with them": apple != bool(target.os_version),
        "zig_triple and os_version differ": zig and apple and not target.zig_triple.endswith(f".{target.os_version}"),
        "qemu_cpu is not one of qemu_cpus": bool(target.qemu) and target.qemu_cpu not in target.qemu_cpus,
        f"unknown engine {next(iter(unknown), '')!r}": bool(unknown),
    }
    return next((text for text, wrong in faults.items() if wrong), "")


@functools.cache
def load_targets() -> dict[str, Target]:
    """All targets by name, in the table's order."""
    with TABLE.open("rb") as file:
        rows = tomllib.load(file)
    return {name: parse_target(name, row) for name, row in rows.items()}


def get_target(name: str) -> Target:
    """The target ``name``.

    Raises:
        ConfigError: there is none; the message names near ones.
    """
    targets = load_targets()
    if name in targets:
        return targets[name]
    # What works first, and before others what two swapped letters make of it.
    meant = sorted(
        near(name, targets),
        key=lambda other: (not targets[other].working_engines, sorted(other) != sorted(name)),
    )
    cause = did_you_mean(meant) or f"targets are {', '.join(targets)}"
    raise ConfigError(f"There is no target {name!r}.", cause, "./inv targets")


def host_target() -> Target:
    """The target that this machine itself is.

    Raises:
        HostError: the table has none for such a machine.
    """
    system = _SYSTEMS.get(platform.system().lower(), "")
    machine = platform.machine().lower()
    for target in load_targets().values():
        if (target.os, target.machine) == (system, _MACHINES.get(machine, machine)):
            return target
    raise HostError(
        f"This machine ({platform.system()} on {platform.machine()}) is not one of Slipway's targets.",
        f"targets are {', '.join(load_targets())}",
        "a machine, a container or a virtual machine with Debian 12 or newer on x86_64 or arm64",
    )
