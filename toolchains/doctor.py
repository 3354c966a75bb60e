"""The state of this machine: what works, what is missing, and the command that fixes it."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass

from core import console
from core.errors import HostError
from core.paths import cache_dir
from toolchains.targets import Target

_LEAST_FREE = 4e9
"""Bytes: compilers 0.5, Debian's libraries and emulators 0.4, the exporter 1.5, Conan's home and programs 0.5."""


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    """The command that fixes it; empty if it works."""
    optional: bool = False
    """It is optional."""


def _python() -> Check:
    found = f"{platform.python_version()} in {sys.prefix}"
    if sys.prefix == sys.base_prefix:
        return Check("Python", False, f"{found}: not a virtual environment", "./inv, which makes .venv")
    return Check(
        "Python", sys.version_info >= (3, 10), found, "" if sys.version_info >= (3, 10) else "Python 3.10 or newer"
    )


def _disk() -> Check:
    folder = cache_dir()
    free = shutil.disk_usage(folder).free
    detail = f"{free / 1e9:.0f} GB free for the cache in {folder}"
    if free < _LEAST_FREE:
        return Check(
            "disk",
            False,
            f"{detail}; a first run takes {_LEAST_FREE / 1e9:.0f} GB",
            "free some space, or set SLIPWAY_CACHE to a folder on a larger disk",
        )
    return Check("disk", True, detail)


def _pip() -> Check:
    import importlib.metadata

    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        return Check("pip", False, "not in this environment", f"{sys.executable} -m ensurepip")
    return Check(
        "pip", True, f"{version}, with your own settings (pip config list); its index is asked only when needed"
    )


def _debian() -> Check:
    from toolchains.debian import packages as debian

    reason = debian.available()
    if not reason:
        return Check("Debian packages", True, "fetched through apt without root, from this system's own mirror")
    try:
        from toolchains.debian import apt as debian_apt

        debian_apt.require()
        fix = "fix apt's sources"
    except HostError as error:
        fix = error.hint
    return Check("Debian packages", False, reason, fix)


def _zig() -> Check:
    from toolchains.compilers import zig

    try:
        found = zig.installed()
    except HostError as error:
        return Check("zig", False, error.what, error.hint)
    pinned = zig.pinned_version()
    return Check("zig", True, f"{pinned} in {found}" if found else f"{pinned} is fetched by the first build")


def _ccache() -> Check:
    from toolchains.compilers import ccache

    used, detail = ccache.describe()
    fix = f"unset {ccache.SWITCH}" if ccache.off() else "install your distribution's ccache"
    return Check("ccache", used, detail, "" if used else fix, optional=True)


def _conan() -> Check:
    from toolchains.build import conan

    try:
        return Check("Conan, CMake, Ninja", True, conan.available())
    except HostError as error:
        return Check("Conan, CMake, Ninja", False, error.what, error.hint)


def _made(target: Target, family: str) -> str:
    """A description of a compiler family's programs for the target."""
    if family == "ndk":
        return f"for Android's own C library, API level {target.android_api} and newer; never run by Slipway's tests"
    if family == "xcode":
        return "with Apple's SDK; never run by Slipway's tests"
    if target.os == "android":
        return "static executables with musl: they run on Android's kernel and do without its C library"
    if family == "gnu" and target.libc == "glibc":
        return "for the glibc of the compiler, which a bundle may not need newer than the target promises"
    libraries = {"glibc": f"for glibc {target.max_glibc} and newer", "static": "static executables with musl"}
    return libraries.get(target.libc, "the C library is the system's, the C++ library is linked in")


def _toolchains() -> list[Check]:
    """Every compiler family that can build each target. Only the default of what has a working engine must be there."""
    from toolchains.compilers.families import family
    from toolchains.targets import load_targets

    found = []
    for target in load_targets().values():
        for name in target.toolchains:
            reason, _, fix = family(name).usable(target).partition(": ")
            optional = name != target.default_toolchain or not target.working_engines
            found.append(Check(f"{target.name} with {name}", not reason, reason or _made(target, name), fix, optional))
    return found


def _emulators() -> list[Check]:
    """How each target of today is run here."""
    from toolchains.debian import apt as debian_apt
    from toolchains.debian import packages as debian
    from toolchains.emulation import emulators, wine
    from toolchains.targets import load_targets

    found = []
    for target in load_targets().values():
        if not target.working_engines:
            continue
        name = f"running {target.name}"
        if emulators.is_native(target):
            found.append(Check(name, True, "this machine"))
        elif not target.qemu and not wine.runs(target):
            # Nothing waits for it: what is built is checked by its headers.
            fix = "a machine of that kind as a device (docs/devices.md)"
            found.append(Check(name, False, f"not run here: {target.proof}", fix, optional=True))
        elif not target.qemu:
            why = debian.available()
            detail = why or "Wine, from Debian's packages, in namespaces of this user's own"
            found.append(Check(name, not why, detail, debian_apt.NOT_DEBIAN if why else "", optional=True))
        elif not debian.available():
            found.append(Check(name, True, f"{target.qemu}, from Debian's packages"))
        elif path := shutil.which(target.qemu) or shutil.which(f"{target.qemu}-static"):
            found.append(Check(name, True, f"{path}, this system's own"))
        else:
            found.append(Check(name, False, f"no {target.qemu}", "install your distribution's qemu-user, 8 or newer"))
    return found


def checks() -> list[Check]:
    """All findings, the most important first. Uses no network."""
    single: list[Callable[[], Check]] = [_python, _disk, _pip, _debian, _zig, _ccache, _conan]
    return [*(check() for check in single), *_toolchains(), *_emulators()]


def report(as_json: bool) -> None:
    """Print the findings.

    Raises:
        HostError: this machine lacks something that Slipway needs.
    """
    found = checks()
    if as_json:
        console.print_json([dataclasses.asdict(check) for check in found])
    else:
        states = {True: "ok", False: "MISSING"}
        console.table(
            "This machine",
            ["what", "state", "finding", "to fix it"],
            [[c.name, "optional" if c.optional and not c.ok else states[c.ok], c.detail, c.fix] for c in found],
        )
    bad = [check for check in found if not check.ok and not check.optional]
    if bad:
        raise HostError(
            f"This machine lacks {', '.join(check.name for check in bad)}.",
            "; ".join(check.detail for check in bad),
            bad[0].fix,
            [check.name for check in bad],
        )
