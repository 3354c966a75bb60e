"""The compiler family ``zig``: clang, lld and every C library's headers in one wheel, for all targets."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from core import console
from core.console.live import Step
from core.environment.installer import pip_words
from core.errors import HostError
from core.files import keep_text, sealed, sha256_bytes
from core.paths import cache_dir, portable
from core.processes.commands import run
from toolchains.compilers import linked_in
from toolchains.compilers.families import Compilers, cross_conf, refuse, require
from toolchains.compilers.libstdcxx import sysroot
from toolchains.targets import Target
from toolchains.tools import table

_BODY = Path(__file__).with_name("zig_wrapper.sh")


def _host() -> str:
    return f"{platform.system()}-{platform.machine()}"


def usable(target: Target) -> str:
    """Why zig cannot build for ``target`` on this machine; empty when it can (it is fetched when needed)."""
    if reason := refuse("zig", target):
        return reason
    if _host() not in table()["ziglang"]["sha256"]:
        known = ", ".join(table()["ziglang"]["sha256"])
        return f"no zig is pinned for {_host()} (only for {known}): add its wheel's sha256 to toolchains/tools.toml"
    if target.libc != "glibc":
        return ""  # zig brings the C and the C++ library of every other target
    from toolchains.debian import packages as debian

    reason = debian.available()
    return f"{reason.replace(': ', ', ')}: {debian.fix()}" if reason else ""


def caches() -> dict[str, str]:
    """Environment variables that move zig's caches from the user's home and the source folder into ours."""
    folder = os.fspath(cache_dir("zig"))
    return {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}


def pinned_version() -> str:
    """The version of zig that ``tools.toml`` pins."""
    return str(table()["ziglang"]["version"])


def program_path() -> Path:
    """The path of the zig program, installed or not.

    Raises:
        HostError: none is pinned for this machine.
    """
    if (digest := table()["ziglang"]["sha256"].get(_host())) is None:
        raise HostError(f"There is no pinned zig for {_host()}.", "", "add its wheel's sha256 to toolchains/tools.toml")
    return cache_dir("tools") / f"ziglang-{pinned_version()}-{digest[:12]}" / "ziglang" / "zig"


def program() -> Path:
    """The zig program, installed through pip the first time.

    Raises:
        HostError: none is pinned for this machine, or it could not be fetched.
    """
    zig, pinned = program_path(), table()["ziglang"]

    def make(new: Path) -> None:
        with console.step(f"fetching zig {pinned['version']} (about {pinned['megabytes']} MB, once)") as shown:
            _install(new, f"ziglang=={pinned['version']}", pinned["sha256"][_host()], shown)
            shown.outcome = f"zig {pinned['version']} is ready"

    sealed.made(zig.parent.parent, "tools-ziglang", make)
    return zig


def _install(folder: Path, requirement: str, digest: str, shown: Step) -> None:
    """Install one pinned wheel into ``folder``, without what it depends on."""
    with tempfile.TemporaryDirectory(prefix="slipway-zig-") as scratch, console.growing(shown, Path(scratch)):
        pinned = Path(scratch, "requirements.txt")
        pinned.write_text(f"{requirement} --hash=sha256:{digest}\n", encoding="utf-8")
        run(
            [*pip_words(Path(sys.executable)), "--quiet", "--target", folder, "-r", pinned],
            # pip downloads into TMPDIR.
            env={**os.environ, "TMPDIR": scratch, "PIP_CONSTRAINT": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            error=HostError,
            what=f"Fetching {requirement}",
            hint="check the network and pip's index (pip config list), then again",
            log=cache_dir("logs") / "ziglang.log",
        )
    (folder / "ziglang" / "zig").chmod(0o755)


_DROP = {"no_debug": "*(.debug_*)", "no_symbols": "*(.debug_*) *(.symtab) *(.strtab)"}
"""What linker scripts drop, by the wrapper's name of them. zig has no strip and no working objcopy, and its ``-s``
makes it build its run-time libraries a second time."""


def _scripts(target: Target) -> dict[str, str]:
    """Paths of the linker scripts for a target whose programs are ELF, else nothing."""
    found = dict.fromkeys(_DROP, "")
    for name, sections in _DROP.items() if target.os in ("linux", "android") else ():
        text = f"SECTIONS {{ /DISCARD/ : {{ {sections} }} }} INSERT AFTER .text;\n"
        file = cache_dir("toolchains") / f"{name}-{sha256_bytes(text.encode())[:8]}.ld"
        keep_text(file, text)
        found[name] = os.fspath(file)
    return found


def wrapper(tool: str, zig: Path, target: Target, *, before: list[str], after: list[str], link: list[str]) -> str:
    """The text of a compiler wrapper, a POSIX shell script.

    Args:
        tool: ``cc`` or ``c++``.
        before, after: arguments ahead of the caller's and behind them.
        link: what is added behind everything when the call links.
    """
    settings = {
        "zig": os.fspath(zig),
        "tool": tool,
        "target": target.zig_triple,
        "cpu": target.zig_cpu,
        "before": shlex.join(before),
        "after": shlex.join(after),
        "link": shlex.join(link),
        **_scripts(target),
    }
    lines = [f"{name}={shlex.quote(value)}" for name, value in settings.items()]
    lines += [f'export {name}="${{{name}:-{value}}}"' for name, value in caches().items()]
    return "\n".join(["#!/bin/sh", "set -eu", *lines, _body(target)])


_FOR_IOS = {
    "*-macos*": "*-macos* | *-ios*",
    "-mmacosx-version-min=* | -mmacos-version-min=*) if": (
        "-mmacosx-version-min=* | -mmacos-version-min=* | -miphoneos-version-min=* | -mios-simulator-version-min=*)\n"
        "            if"
    ),
}


def _body(target: Target) -> str:
    """The wrapper's part that does not change; for iOS it knows Apple's flags for iOS, too.

    These words are not in the script itself: its text counts in the identity of every target's packages, and a change
    compiles all of them again.
    """
    text = _BODY.read_text(encoding="utf-8")
    for old, new in _FOR_IOS.items() if target.os == "ios" else ():
        text = text.replace(old, new)
    return text


_COMMON = ["-fno-sanitize=undefined", "-g0"]
"""zig's own defaults are for its language: it looks for undefined behaviour and keeps debug information."""

_NO_TOOL = """#!/bin/sh
echo "install_name_tool is Apple's: it renames a shared library after linking, which needs Xcode on a Mac" >&2
exit 1
"""


_DARWIN = "lib/libc/include/any-darwin-any"
"""zig's headers of Apple's C library, one set for all of Apple's systems; zig takes them for macOS alone by itself."""
_AVAILABILITY = ["-U_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS", "-D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=1"]
"""libc++ is the device's own: with these, its headers use nothing that the C++ library of the least iOS lacks. zig
turns that off, because it links its own libc++ elsewhere."""
_NO_SDK = (
    "CMake compiles for iOS only with a folder of this name. It is empty: the headers are zig's own, and programs are "
    "linked by\nXcode with Apple's SDK.\n"
)


def _sdk_folder(target: Target) -> str:
    return "iPhoneSimulator.sdk" if target.platform == "ios_simulator" else "iPhoneOS.sdk"


class _Wrappers(NamedTuple):
    """The wrappers of one target."""

    texts: dict[str, str]
    """By name."""
    library: str
    """The C++ library they use, as Conan calls it."""
    key: str
    """What else decides on their results."""
    static: tuple[Path, ...]
    """What takes the place of the device's C++ library in a program that gets its own; empty: all get their own."""


def _wrappers(zig: Path, target: Target) -> _Wrappers:
    library, key, static = "libc++", "", tuple[Path, ...]()
    before, after, link, headers = list(_COMMON), list[str](), list[str](), list[str]()
    if target.libc == "glibc":
        from toolchains.compilers import libstdcxx

        adapted = libstdcxx.adapted(zig, target, caches())
        library, key, static = "libstdc++11", adapted.key, adapted.static
        before.append("-nostdinc++")
        after = [f"-I{folder}" for folder in adapted.includes]
        link = ["-nostdlib++", *map(str, adapted.inputs)]
    if target.os == "ios":
        headers = ["-idirafter", os.fspath(zig.parent / _DARWIN)]
        before += [*headers, *_AVAILABILITY]
    plain = {tool: f'#!/bin/sh\nexec {shlex.quote(os.fspath(zig))} {tool} "$@"\n' for tool in ("ar", "ranlib")}
    if target.os == "windows":
        plain["rc"] = f'#!/bin/sh\nexec {shlex.quote(os.fspath(zig))} rc "$@"\n'
    if target.os in ("macos", "ios"):
        plain["install_name_tool"] = _NO_TOOL
    if target.os == "ios":
        plain[f"{_sdk_folder(target)}/README"] = _NO_SDK
    compilers = {
        "cc": wrapper("cc", zig, target, before=[*_COMMON, *headers], after=[], link=[]),
        "c++": wrapper("c++", zig, target, before=before, after=after, link=link),
    }
    return _Wrappers({**compilers, **plain}, library, key, static)


def _conan(target: Target, library: str) -> dict[str, str]:
    """Conan's settings. Android's static programs are Linux programs, and their calling convention is Linux'."""
    settings = {"compiler": "clang", "compiler.version": table()["ziglang"]["clang"], "compiler.libcxx": library}
    if target.os == "android":
        settings["os"] = "Linux"
        if target.arch == "armv7":
            settings["arch"] = "armv7hf"
    return settings


def linked(target: Target) -> tuple[linked_in.LinkedIn, ...]:
    """What zig links in, and Debian's libstdc++, which is in the programs that do not use the device's."""
    gcc = ""
    if target.libc == "glibc":
        from toolchains.debian import packages as debian

        pinned = table()["libstdcxx"]["gcc"]
        gcc = debian.versions(sysroot(target)).get(f"libstdc++-{pinned}-dev", pinned)
    return linked_in.of_zig(pinned_version(), program().parent / "lib", target, gcc)


def ensure(target: Target) -> Compilers:
    """zig as ``cc``, ``c++``, ``ar`` and ``ranlib`` of one target.

    C++ is built against libstdc++ with its C++11 ABI where the C library is glibc, else against zig's own libc++.

    Raises:
        HostError: zig or the sysroot cannot be had here.
    """
    require("zig", target, usable(target))
    texts, library, library_key, static = _wrappers(program(), target)
    key = sha256_bytes(portable("\0".join([library_key, *texts.values()])).encode())[:16]
    folder = cache_dir("toolchains") / f"zig-{target.name}-{key}"
    for name, text in texts.items():  # again in a cache that was moved: they have paths in them
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        keep_text(folder / name, text, 0o755)
    version = pinned_version()
    paths = {name: os.fspath(folder / name) for name in texts}
    more = {"tools.gnu:disable_flags": '["arch", "libcxx"]'}  # the wrapper knows both
    others = {"rc": "CMAKE_RC_COMPILER", "install_name_tool": "CMAKE_INSTALL_NAME_TOOL"}
    variables = {variable: paths[name] for name, variable in others.items() if name in paths}
    if target.os == "ios":
        more["tools.apple:sdk_path"] = os.fspath(folder / _sdk_folder(target))
        variables["CMAKE_TRY_COMPILE_TARGET_TYPE"] = "STATIC_LIBRARY"  # the compilers link nothing
    if static:
        more["user.slipway:static_cxx"] = json.dumps([os.fspath(path) for path in static])
    return Compilers(
        "zig",
        version,
        f"zig-{version}-{key}",
        paths["cc"],
        paths["c++"],
        paths["ar"],
        paths["ranlib"],
        conan=_conan(target, library),
        conf={**cross_conf(target), **more},
        variables=variables,
    )
