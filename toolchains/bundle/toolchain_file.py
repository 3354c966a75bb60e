"""What other people's builds read: CMake's toolchain file of a target, and for Xcode an XCFramework.

With the first one, CMake compiles other people's programs as it compiles libslipway.
"""

from __future__ import annotations

import plistlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from toolchains.compilers import families
from toolchains.compilers.families import Compilers
from toolchains.targets import Target
from toolchains.tools import CONF

NAME = "toolchain.cmake"

_SYSTEMS = {"linux": "Linux", "android": "Linux", "windows": "Windows", "macos": "Darwin", "ios": "iOS"}
"""CMake's names of systems; Android's programs that zig builds are static programs for Linux."""
ABIS = {"arm64": "arm64-v8a", "armv7": "armeabi-v7a", "x86": "x86", "x86_64": "x86_64"}
"""Android's names of architectures."""


def text(target: Target, compilers: Compilers) -> str:
    """The file's text. It names programs of this machine, so it stays here."""
    lines = [f"# CMake for {target.name} with {compilers.family} {compilers.version} of this machine."]
    if CONF in compilers.conf:
        lines += [
            f"set(ANDROID_ABI {ABIS[target.arch]})",
            f"set(ANDROID_PLATFORM android-{target.android_api})",
            "set(ANDROID_STL c++_static)",
            f'include("{compilers.conf[CONF]}/build/cmake/android.toolchain.cmake")',
        ]
        return "\n".join([*lines, ""])
    lines += [f"set(CMAKE_SYSTEM_NAME {_SYSTEMS[target.os]})", f"set(CMAKE_SYSTEM_PROCESSOR {target.cmake_processor})"]
    programs = {
        "CMAKE_C_COMPILER": compilers.cc,
        "CMAKE_CXX_COMPILER": compilers.cxx,
        "CMAKE_AR": compilers.ar,
        "CMAKE_RANLIB": compilers.ranlib,
        **compilers.variables,
    }
    lines += [f'set({name} "{path}")' for name, path in programs.items()]
    lines += _flags(target, compilers)
    if "tools.apple:sdk_path" in compilers.conf:
        lines += [
            f'set(CMAKE_OSX_SYSROOT "{compilers.conf["tools.apple:sdk_path"]}")',
            f"set(CMAKE_OSX_ARCHITECTURES {target.cmake_processor})",
            f"set(CMAKE_OSX_DEPLOYMENT_TARGET {target.os_version})",
        ]
    if target.os == "ios":  # where CMake looks into the SDK alone
        lines += ["set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)"]
    # Programs that run while something is built are this machine's; packages are those that CMAKE_PREFIX_PATH names.
    lines += ["set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)"]
    return "\n".join([*lines, ""])


def _flags(target: Target, compilers: Compilers) -> list[str]:
    """What hardens libslipway hardens the programs, too; the caller's own flags come behind."""
    hard = families.hardening(target)
    # -fPIE is for programs alone, and CMake gives -fPIC to shared libraries instead.
    always = [*compilers.flags, *(word for word in hard.compile if word != "-fPIE")]
    static = ["-static"] if compilers.family == "gnu" and target.os == "windows" else []
    values = {
        **{f"CMAKE_{language}_FLAGS_INIT": always for language in ("C", "CXX")},
        **{f"CMAKE_{language}_FLAGS_RELEASE_INIT": hard.optimized for language in ("C", "CXX")},
        "CMAKE_SHARED_LINKER_FLAGS_INIT": hard.link,
        "CMAKE_EXE_LINKER_FLAGS_INIT": [*hard.link, *hard.program, *static],
    }
    independent = ["set(CMAKE_POSITION_INDEPENDENT_CODE ON)"] if "-fPIE" in hard.compile else []
    return [*independent, *(f'set({name} "{" ".join(words)}")' for name, words in values.items() if words)]


XCFRAMEWORK = "slipway.xcframework"
_HEADERS = "Headers"
_ARCHITECTURES = {"aarch64": "arm64", "x86_64": "x86_64"}
_MODULE_MAP = """\
module slipway {
  header "slipway.h"
  link "c++"
  export *
}
"""
"""For ``import slipway`` in Swift and ``@import slipway;`` in Objective-C: the C API. In the folder of the module's
name, so that two XCFrameworks of an app do not overwrite each other's."""


def write_xcframework(folder: Path, libraries: Sequence[tuple[Target, Path]], headers: Path) -> list[Path]:
    """Write `XCFRAMEWORK` into ``folder``; the paths of its libraries.

    Args:
        libraries: one for each platform.
        headers: the folder that programs have on their include path; it holds ``slipway/slipway.h``.
    """
    top, rows, written = folder / XCFRAMEWORK, [], []
    for target, library in libraries:
        architecture = _ARCHITECTURES[target.machine]
        variant = {"SupportedPlatformVariant": "simulator"} if target.platform != target.os else {}
        identifier = "-".join([target.os, architecture, *variant.values()])
        inside = top / identifier
        shutil.copytree(headers, inside / _HEADERS)
        (inside / _HEADERS / "slipway" / "module.modulemap").write_text(_MODULE_MAP, encoding="utf-8")
        written.append(shutil.copyfile(library, inside / library.name))
        rows.append(
            {
                "BinaryPath": library.name,
                "HeadersPath": _HEADERS,
                "LibraryIdentifier": identifier,
                "LibraryPath": library.name,
                "SupportedArchitectures": [architecture],
                "SupportedPlatform": target.os,
                **variant,
            }
        )
    listed = {"AvailableLibraries": rows, "CFBundlePackageType": "XFWK", "XCFrameworkFormatVersion": "1.0"}
    (top / "Info.plist").write_bytes(plistlib.dumps(listed))
    return written
