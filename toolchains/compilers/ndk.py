"""The compiler family ``ndk``: Google's Android NDK, where the user has one; its programs use Android's own C library.

Nothing here was run against a real NDK: where its programs are follows Google's description of its layout
(https://developer.android.com/ndk/guides/other_build_systems).
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from core.files import sha256_bytes
from toolchains.compilers import linked_in
from toolchains.compilers.families import Compilers, refuse, require
from toolchains.targets import Target
from toolchains.tools import CONF, VARIABLE, named

_TRIPLES = {
    "arm64": "aarch64-linux-android",
    "armv7": "armv7a-linux-androideabi",
    "x86": "i686-linux-android",
    "x86_64": "x86_64-linux-android",
}
"""What the compilers' names begin with, by the target's architecture."""


def _host_tag() -> str:
    """How the NDK names the machines it runs on; Apple's ARM Macs run the x86_64 programs' folder, which has both."""
    return f"{platform.system().lower()}-x86_64"


def _programs(target: Target, root: Path) -> list[str]:
    """Paths of the compilers for C and C++, of ar and of ranlib for ``target``, there or not."""
    folder = root / "toolchains/llvm/prebuilt" / _host_tag() / "bin"
    compiler = f"{_TRIPLES[target.arch]}{target.android_api}-clang"
    return [os.fspath(folder / name) for name in (compiler, f"{compiler}++", "llvm-ar", "llvm-ranlib")]


def version(root: Path) -> str:
    """The NDK's version, ``27.2.12479018``; empty when the folder does not say one."""
    try:
        text = (root / "source.properties").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^Pkg\.Revision\s*=\s*(\S+)", text, re.MULTILINE)
    return found[1] if found else ""


def _clang(root: Path) -> str:
    """Major version of the NDK's clang, which its own library folder is named by; empty when it is unknown."""
    folders = (root / "toolchains/llvm/prebuilt" / _host_tag()).glob("lib*/clang/*")
    majors = [int(folder.name.split(".")[0]) for folder in folders if folder.name.split(".")[0].isdigit()]
    return str(max(majors)) if majors else ""


def usable(target: Target) -> str:
    """Why the NDK cannot build for ``target`` here, and the command that fixes it; empty when it can."""
    if reason := refuse("ndk", target):
        return reason
    if not (folder := named()):
        return f"no NDK is named: export {VARIABLE}=/path/to/android-ndk-r27c (or newer)"
    root = Path(folder)
    if not version(root):
        return f"{folder} is not an NDK: it lacks source.properties: export {VARIABLE}=/path/to/android-ndk"
    if missing := [path for path in _programs(target, root) if not Path(path).is_file()]:
        return f"the NDK {version(root)} lacks {missing[0]}: export {VARIABLE}=/path/to/a-newer-android-ndk"
    return "" if _clang(root) else f"the NDK {version(root)} does not tell its clang's version: a newer NDK"


def linked(target: Target) -> tuple[linked_in.LinkedIn, ...]:  # noqa: ARG001, as every family's
    """What the NDK links in, for every target the same; the terms of all of it are in its one file of notices."""
    root = Path(named())
    text = root / "toolchains/llvm/prebuilt" / _host_tag() / "NOTICE"
    names = ("compiler-rt", "libc++", "libc++abi", "libunwind")
    return tuple(linked_in.part(name, _clang(root), text) for name in names)


def ensure(target: Target) -> Compilers:
    """The NDK's clang for ``target`` at the API level of the table.

    Raises:
        HostError: there is no NDK, or not a whole one.
    """
    require("ndk", target, usable(target))
    root = Path(named()).absolute()
    cc, cxx, ar, ranlib = _programs(target, root)
    number = version(root)
    settings = {
        "compiler": "clang",
        "compiler.version": _clang(root),
        "compiler.libcxx": "c++_static",
        "os.api_level": target.android_api,
    }
    key = sha256_bytes(f"{target.name} {target.android_api} {number}".encode())[:16]
    return Compilers(
        "ndk",
        number,
        f"ndk-{number}-{key}",
        cc,
        cxx,
        ar,
        ranlib,
        conan=settings,
        # The older of its two toolchain files loses the flags that Conan gives it.
        conf={CONF: os.fspath(root), "tools.android:cmake_legacy_toolchain": "False"},
    )
