"""The compiler family ``gnu``: GCC as the system has it, native or Debian's cross compilers.

What it builds needs the C library it was built against: Debian 12's g++ gives programs that want GLIBC 2.34, which
the build refuses for targets that promise less unless told to allow it. zig is the default for that reason.
"""

from __future__ import annotations

import platform
import shutil

from core.commands import run
from core.errors import HostError
from core.files import sha256_bytes
from toolchains.compilers import Compilers
from toolchains.targets import Target


def _programs(target: Target) -> dict[str, str]:
    """Paths of the compiler's programs; empty when it is not installed."""
    prefixes = [f"{target.gnu_triple}-"]
    if (platform.system().lower(), platform.machine()) == (target.os, target.machine):
        prefixes.append("")
    for prefix in prefixes:
        found = {tool: shutil.which(prefix + tool) for tool in ("gcc", "g++", "ar", "ranlib")}
        if all(found.values()):
            return {tool: str(path) for tool, path in found.items()}
    return {}


def usable(target: Target) -> str:
    """Why GCC cannot build for ``target`` here, and the command that mends it; empty when it can."""
    if "gnu" not in target.toolchains:
        return f"gnu does not build for {target.name}; {', '.join(target.toolchains)} does"
    if _programs(target):
        return ""
    package = f"g++-{target.gnu_triple.replace('_', '-')}"
    if not shutil.which("apt-get"):
        return f"{target.gnu_triple}-g++ is not installed: your distribution's GCC cross compiler for {target.machine}"
    return f"{target.gnu_triple}-g++ is not installed: sudo apt-get install {package}"


def ensure(target: Target) -> Compilers:
    """GCC for ``target``; it is never installed by us.

    Raises:
        HostError: it is not there.
    """
    reason = usable(target)
    if reason:
        name, _, command = reason.partition(": ")
        raise HostError(f"gnu cannot build for {target.name} here.", name, command)
    found = _programs(target)
    version = run([found["g++"], "-dumpfullversion"], what="Asking g++ for its version").stdout.strip()
    key = sha256_bytes("\n".join([version, *found.values()]).encode())[:16]
    settings = {"compiler": "gcc", "compiler.version": version.split(".")[0], "compiler.libcxx": "libstdc++11"}
    return Compilers(
        "gnu", version, f"gnu-{version}-{key}", found["gcc"], found["g++"], found["ar"], found["ranlib"], settings
    )
