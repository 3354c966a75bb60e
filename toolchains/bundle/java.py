"""The Java API over libslipway: its classes, compiled by a JDK, and the C header that its native side must fit."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from core.errors import BuildError, HostError
from core.paths import ROOT
from core.processes.commands import run
from toolchains.debian import packages as debian
from toolchains.debian.host import host_arch
from toolchains.tools import table

SOURCES = ROOT / "runtime" / "bindings" / "java" / "org" / "slipway"
_RELEASE = "8"
"""The version of Java whose language and classes every Android can be given."""
_OLDEST = 11
"""The oldest JDK that is tried: older ones do not know --release."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that zip knows: the same files make the same bytes."""


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


def compile_classes(folder: Path, sources: Path = SOURCES) -> Classes:
    """Compile the API into ``folder``, which is empty.

    Raises:
        HostError: there is no JDK.
        BuildError: javac refused the sources; warnings count.
    """
    files = sorted(sources.glob("*.java"))
    classes, headers = folder / "classes", folder / "headers"
    words = ["--release", _RELEASE, "-encoding", "UTF-8", "-g:source,lines", "-Xlint:all,-options", "-Werror"]
    run(
        [jdk() / "bin" / "javac", *words, "-h", headers, "-d", classes, *files],
        error=BuildError,
        what="Compiling org.slipway",
        hint="fix runtime/bindings/java",
    )
    contents = {file.relative_to(classes).as_posix(): file.read_bytes() for file in sorted(classes.rglob("*.class"))}
    manifest = b"Manifest-Version: 1.0\r\nCreated-By: slipway\r\n\r\n"
    return Classes(zipped({"META-INF/MANIFEST.MF": manifest, **contents}), headers)


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip archive of these files, the same bytes for the same files."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, data in contents.items():
            item = zipfile.ZipInfo(name, _EPOCH)
            item.compress_type = zipfile.ZIP_DEFLATED
            item.external_attr = 0o100644 << 16
            archive.writestr(item, data)
    return packed.getvalue()
