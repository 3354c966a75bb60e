"""The Java API over libslipway: its classes, compiled by a JDK, and its native side, ``libslipway_jni.so``."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import BuildError, HostError
from core.paths import ROOT
from core.processes.commands import run
from toolchains.bundle.sdk import zipped
from toolchains.compilers import hardening
from toolchains.compilers.families import Compilers
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.inspect import checks
from toolchains.targets import Target
from toolchains.tools import table

_FOLDER = ROOT / "runtime" / "bindings" / "java"
SOURCES = _FOLDER / "org" / "slipway"
NATIVE = "libslipway_jni.so"
_STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror")
"""With other parameters than its declaration's, a function would be an overload: it is refused for want of one."""
_RELEASE = "8"
"""The version of Java whose language and classes every Android can be given."""
_OLDEST = 11
"""The oldest JDK that is tried: older ones do not know --release."""


@dataclass(frozen=True)
class Classes:
    """What javac made."""

    jar: bytes
    """The archive of the classes."""
    headers: Path
    """The folder of ``org_slipway_Native.h``."""


def jdk() -> Path:
    """The folder of a JDK: JAVA_HOME's, this system's, or Debian's, which is fetched once (about 120 MB).

    Raises:
        HostError: JAVA_HOME names something else, or Debian's packages cannot be had here.
    """
    if named := os.environ.get("JAVA_HOME"):
        if _version(Path(named)) < _OLDEST:
            raise HostError(
                f"JAVA_HOME={named} is not a JDK {_OLDEST} or newer.",
                "its bin/javac is missing or too old",
                "unset JAVA_HOME, or name another one",
            )
        return Path(named)
    if found := shutil.which("javac"):
        own = Path(found).resolve().parent.parent
        if _version(own) >= _OLDEST:
            return own
    if why := debian.runnable():
        raise HostError(f"There is no JDK {_OLDEST} or newer on this machine.", why, "install one, or set JAVA_HOME")
    pinned = table()["jdk"]
    root = debian.tree(pinned["suite"], host_arch(), tuple(pinned["packages"]))
    return next(path.parent.parent for path in sorted(root.glob("usr/lib/jvm/*/bin/javac")))


def _version(home: Path) -> int:
    """The JDK's feature release, 17; 0 if the folder has no javac that runs."""
    javac = home / "bin" / "javac"
    if not javac.is_file():
        return 0
    found = re.search(r"javac (\d+)", run([javac, "-version"], error=None).stdout)
    return int(found[1]) if found else 0


def compile_classes(folder: Path) -> Classes:
    """Compile the API into ``folder``, which is empty.

    Raises:
        HostError: there is no JDK.
        BuildError: javac refused the sources; warnings count.
    """
    classes, headers = folder / "classes", folder / "headers"
    words = ["--release", _RELEASE, "-encoding", "UTF-8", "-g:source,lines", "-Xlint:all,-options", "-Werror"]
    argv: list[str | Path] = [jdk() / "bin" / "javac", *words, "-h", headers, "-d", classes]
    argv += sorted(SOURCES.glob("*.java"))
    run(argv, error=BuildError, what="Compiling org.slipway", hint="fix runtime/bindings/java")
    contents = {file.relative_to(classes).as_posix(): file.read_bytes() for file in sorted(classes.rglob("*.class"))}
    manifest = b"Manifest-Version: 1.0\r\nCreated-By: slipway\r\n\r\n"
    return Classes(zipped({"META-INF/MANIFEST.MF": manifest, **contents}), headers)


def build_native(
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
    flags += ["-O2", "-fPIC", "-fvisibility=hidden", f"-ffile-prefix-map={ROOT}=.", "-std=c++17", "-fno-exceptions"]
    # Warnings are about our own file; a JDK's headers are its own affair.
    includes = [f"-I{headers}", f"-I{sdk / 'include'}", *(word for path in jdk for word in ("-isystem", str(path)))]
    source, item, library = _FOLDER / "jni" / "slipway_jni.cpp", folder / "slipway_jni.o", folder / NATIVE
    # The check of instructions reads the table of symbols: debug information alone is dropped.
    link = [f"-L{sdk / 'lib'}", "-lslipway", *hard.link, f"-Wl,-soname,{NATIVE}", "-Wl,--no-undefined", "-Wl,-S"]
    hint = "fix runtime/bindings/java: native functions are declared in Native.java"
    compiling: list[str | Path] = [compilers.cxx, *flags, "-fno-rtti", *_STRICT, *includes, "-c", source, "-o", item]
    linking: list[str | Path] = [compilers.cc, *compilers.flags, "-shared", item, *link, "-o", library]
    for argv in (compiling, linking):
        run(argv, error=BuildError, what=f"Building {NATIVE} for {target.name}", hint=hint)
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
