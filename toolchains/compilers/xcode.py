"""The compiler family ``xcode``: Apple's clang and SDKs, on a Mac.

It was never run: this project is developed without a Mac. Its calls of ``xcrun`` and its settings for Conan follow
Apple's and Conan's documentation.
"""

from __future__ import annotations

import platform
import shutil

from core.errors import HostError, NotSupportedError
from core.files import sha256_bytes
from core.processes.commands import run
from toolchains.compilers import linked_in
from toolchains.compilers.families import Compilers, refuse
from toolchains.targets import Target


def usable(target: Target) -> str:
    """Why Xcode cannot build for ``target`` here, and the command that fixes it; empty when it can."""
    if reason := refuse("xcode", target):
        return reason
    if platform.system() != "Darwin":
        instead = f"./inv build --target {target.name} --toolchain zig" if "zig" in target.toolchains else "use a Mac"
        return f"Xcode runs on a Mac only, and this is {platform.system()}: {instead}"
    return "" if shutil.which("xcrun") else "Xcode's command line tools are not installed: xcode-select --install"


def _xcrun(sdk: str, *words: str) -> str:
    return run(["xcrun", "--sdk", sdk, *words], what="Asking Xcode", hint="xcode-select --install").stdout.strip()


def _compiler(target: Target) -> tuple[str, str]:
    """The first line of what Apple's clang says of itself, and its version in there."""
    first = _xcrun(target.apple_sdk or "macosx", "clang", "--version").splitlines()[0]
    return first, next((word for word in first.split() if word[:1].isdigit()), "")


def linked(target: Target) -> tuple[linked_in.LinkedIn, ...]:
    """What Apple's clang links in; all else is the system's."""
    return tuple(linked_in.of_llvm(_compiler(target)[1], ["compiler-rt"]))


def ensure(target: Target) -> Compilers:
    """Apple's clang for ``target`` with the SDK that Xcode has.

    Raises:
        NotSupportedError: this machine is not a Mac.
        HostError: Xcode is not installed.
    """
    reason, _, command = usable(target).partition(": ")
    if reason:
        kind = HostError if platform.system() == "Darwin" else NotSupportedError
        raise kind(f"{target.name} cannot be built with Xcode here.", reason, command)
    sdk = target.apple_sdk or "macosx"
    found = {tool: _xcrun(sdk, "--find", tool) for tool in ("clang", "clang++", "ar", "ranlib")}
    first, version = _compiler(target)
    sdk_version, path = _xcrun(sdk, "--show-sdk-version"), _xcrun(sdk, "--show-sdk-path")
    settings = {"compiler": "apple-clang", "compiler.version": version.split(".")[0], "compiler.libcxx": "libc++"}
    if target.os == "ios":
        settings["os.sdk"] = sdk
    key = sha256_bytes(f"{target.name} {first} {sdk_version}".encode())[:16]
    return Compilers(
        "xcode",
        version,
        f"xcode-{version}-{key}",
        found["clang"],
        found["clang++"],
        found["ar"],
        found["ranlib"],
        conan=settings,
        conf={"tools.apple:sdk_path": path},
    )
