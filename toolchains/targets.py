"""The table of targets as typed data."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from core.errors import ConfigError, HostError, NotSupportedError, did_you_mean, near
from toolchains import tools

TABLE = Path(__file__).with_name("targets.toml")
WORKS = "works"
EMBEDDED = "in libslipway"
"""The engine works, but only inside of other people's programs: the system runs no ``pte_runner``."""
WITH_NDK = "with the NDK"
"""The engine works in programs that the NDK's compilers make: its libraries are for Android's own C library."""
ENGINES = ("executorch", "lean", "onnxruntime")
"""Every engine of the plan, in the order of preference on a target that has several."""

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
        return others[0] if first == "ndk" and others and not tools.named() else first

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
        return {"ios": "iphoneos", "ios_simulator": "iphonesimulator"}.get(self.platform, "")

    def simulator(self) -> Target:
        """iOS as Xcode's simulator on an Arm Mac runs it: the same instructions, another platform in each file."""
        return replace(self, name=f"{self.name}-simulator", zig_triple=f"{self.zig_triple}{_SIMULATOR}")

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
        return replace(self, libc="bionic", float_abi=float_abi, qemu="", qemu_cpu="", qemu_cpus=(), proof=proof)

    def with_shared_libraries(self) -> Target:
        """The target as its shared libraries are made: another C library where its programs are static."""
        return replace(self, **{**self.shared, "shared": {}}) if self.shared else self  # type: ignore[arg-type]

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
            how = f"an NDK: export {tools.VARIABLE}=/path/to/android-ndk-r27c (or newer)"
            return "" if self._works(engine, self.default_toolchain) else how
        return "" if text in (WORKS, EMBEDDED) else text

    def engine(self, requested: str = "", toolchain: str = "") -> str:
        """The engine to build with a compiler family: ``requested``, or the default where one of them is empty.

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
    targets = load_targets()
    nearest = targets[near(name, [other for other in targets if targets[other].working_engines], 1, 0)[0]]
    return f"./inv build --target {nearest.name} --engine {nearest.working_engines[0]}"


@functools.cache
def load_targets() -> dict[str, Target]:
    """All targets by name, in the table's order. tests/unit/test_targets.py checks the rows."""
    rows: dict[str, dict[str, Any]] = dict(tools.read(TABLE))
    systems, architectures, emulators = (rows.pop(key) for key in ("system", "architecture", "emulator"))
    found = {}
    for name, own in rows.items():
        system, _, arch = name.partition("-")
        shared = dict(systems[system])
        emulator = emulators.get(arch, {}) if shared.pop("emulated", False) else {}
        row = {**shared, **architectures.get(arch, {}), **emulator, **own}
        lists = {key: tuple(one) for key, one in row.items() if isinstance(one, list)}
        found[name] = Target(name, system, arch, **{**row, **lists})
    return found


def get_target(name: str) -> Target:
    """The target ``name``.

    Raises:
        ConfigError: there is none; the message names near ones.
    """
    targets = load_targets()
    if name in targets:
        return targets[name]
    # What works first, and before others what two swapped letters make of it.
    meant = sorted(near(name, targets), key=lambda one: (not targets[one].working_engines, sorted(one) != sorted(name)))
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
