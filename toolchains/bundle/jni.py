"""The native side of the Java API: ``libslipway_jni.so`` over ``libslipway.so``."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from core.errors import BuildError
from core.paths import ROOT
from core.processes.commands import run
from toolchains.compilers import hardening
from toolchains.compilers.families import Compilers
from toolchains.inspect import checks
from toolchains.targets import Target

SOURCE = ROOT / "runtime" / "bindings" / "java" / "jni" / "slipway_jni.cpp"
NAME = "libslipway_jni.so"
_STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror")
"""With other parameters than its declaration's, a function would be an overload: it is refused for want of one."""


def build_jni(
    target: Target, compilers: Compilers, sdk: Path, headers: Path, folder: Path, jdk: Sequence[Path] = ()
) -> Path:
    """Compile the native side against the SDK's shared library; its path in ``folder``.

    The C compiler links it, so that it needs no C++ library.

    Args:
        headers: the folder of what ``javac -h`` wrote. A function that does not fit it does not compile.
        jdk: folders of ``jni.h`` and what it includes; the NDK has its own.

    Raises:
        BuildError: the compiler or the linker refused it.
    """
    hard = hardening.flags(target)
    flags = [*compilers.flags, *(word for word in hard.compile if word != "-fPIE"), *hard.optimized]
    flags += ["-O2", "-fPIC", "-fvisibility=hidden", f"-ffile-prefix-map={ROOT}=."]
    includes = [f"-I{path}" for path in (headers, sdk / "include")]
    # Warnings are about our own file; a JDK's headers are its own affair.
    includes += [word for path in jdk for word in ("-isystem", str(path))]
    item, library = folder / "slipway_jni.o", folder / NAME
    words = [*flags, "-std=c++17", "-fno-exceptions", "-fno-rtti", *_STRICT, *includes]
    what = f"Building {NAME} for {target.name}"
    hint = "fix runtime/bindings/java: native functions are declared in Native.java"
    run([compilers.cxx, *words, "-c", SOURCE, "-o", item], error=BuildError, what=what, hint=hint)
    # The check of instructions reads the table of symbols: debug information alone is dropped.
    link = [*hard.link, f"-Wl,-soname,{NAME}", "-Wl,--no-undefined", "-Wl,-S"]
    shared: list[str | Path] = ["-shared", item, f"-L{sdk / 'lib'}", "-lslipway", *link, "-o", library]
    run([compilers.cc, *compilers.flags, *shared], error=BuildError, what=what, hint=hint)
    item.unlink()
    return library


def check(target: Target, library: Path, slipway: Path) -> None:
    """Compare the native side, with the SDK's shared library beside it, with what the target's devices load.

    Raises:
        BuildError: another machine, C library or alignment, a missing hardening, an instruction above the floor.
    """
    beside = library.parent / slipway.name
    shutil.copyfile(slipway, beside)
    checks.check_files(target, [library, beside], library.parent)
