"""The compiler family ``gnu``: GCC as the system has it, native or Debian's cross compilers.

What it builds for Linux needs the C library it was built against: Debian 12's g++ gives programs that want GLIBC
2.34, which the build refuses for targets that promise less unless it is told to allow them. zig is the default for
that reason, and for another: GCC 12 knows no AMX-FP16 or AVX-VNNI-INT8; recipes see the compiler and its version in
Conan's settings.
"""

from __future__ import annotations

import shutil

from core.files import sha256_bytes
from core.processes.commands import run
from toolchains.compilers import linked_in
from toolchains.compilers.families import Compilers, cross_conf, is_own, refuse, require
from toolchains.targets import Target

_TOOLS = ("gcc", "g++", "ar", "ranlib")


def _names(target: Target, prefix: str) -> dict[str, str]:
    """Names of the programs. mingw-w64 has two kinds of g++: only the one with POSIX threads has ``std::thread``."""
    kind = "-posix" if target.os == "windows" else ""
    found = {tool: prefix + tool + (kind if tool in ("gcc", "g++") else "") for tool in _TOOLS}
    return {**found, "windres": f"{prefix}windres"} if target.os == "windows" else found


def _programs(target: Target) -> dict[str, str]:
    """Paths of the compiler's programs; empty when it is not installed."""
    for prefix in (f"{target.gnu_triple}-", *([""] if is_own(target) else [])):
        found = {tool: shutil.which(name) for tool, name in _names(target, prefix).items()}
        if all(found.values()):
            return {tool: str(path) for tool, path in found.items()}
    return {}


def package(target: Target) -> str:
    """Debian's package of the compiler: ``g++-aarch64-linux-gnu``, ``g++-mingw-w64-x86-64-posix``."""
    machine, _, rest = target.gnu_triple.replace("_", "-").rpartition("-w64-mingw32")
    return f"g++-mingw-w64-{machine}-posix" if machine else f"g++-{rest}"


def usable(target: Target) -> str:
    """Why GCC cannot build for ``target`` here, and the command that fixes it; empty when it can."""
    if reason := refuse("gnu", target):
        return reason
    if _programs(target):
        return ""
    missing = _names(target, f"{target.gnu_triple}-")["g++"]
    if not shutil.which("apt-get"):
        return f"{missing} is not installed: your distribution's GCC cross compiler for {target.os} on {target.machine}"
    return f"{missing} is not installed: sudo apt-get install {package(target)}"


def _version(program: str) -> str:
    text = run([program, "-dumpfullversion"], what="Reading the version of g++").stdout.strip()
    return text.partition("-")[0]  # mingw-w64's says 12-posix


def linked(target: Target) -> tuple[linked_in.LinkedIn, ...]:
    """What GCC links in."""
    found = _programs(target)
    return linked_in.of_gnu(_version(found["g++"]), found["gcc"], target)


def ensure(target: Target) -> Compilers:
    """GCC for ``target``; it is never installed by us.

    Raises:
        HostError: it is not installed.
    """
    require("gnu", target, usable(target))
    found = _programs(target)
    version = _version(found["g++"])
    key = sha256_bytes("\n".join([version, *found.values()]).encode())[:16]
    settings = {"compiler": "gcc", "compiler.version": version.split(".")[0], "compiler.libcxx": "libstdc++11"}
    conf = cross_conf(target)
    if target.os == "windows":
        settings["compiler.threads"] = "posix"
        conf["tools.build:exelinkflags"] = '["-static"]'  # it has none of GCC's run-time libraries
    return Compilers(
        "gnu",
        version,
        f"gnu-{version}-{key}",
        found["gcc"],
        found["g++"],
        found["ar"],
        found["ranlib"],
        conan=settings,
        conf=conf,
        variables={"CMAKE_RC_COMPILER": found["windres"]} if "windres" in found else {},
        # They lift GCC's own floor to the target's; no file's own flags are in their way.
        flags=("-msse2", "-mfpmath=sse") if target.machine == "i686" else (),
    )
