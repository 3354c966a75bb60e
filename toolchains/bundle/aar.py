"""The AAR: libslipway for Android apps, with the Java API over it and headers for apps with native code (prefab).

It holds shared libraries for Android's own C library, which only the NDK's compilers build. The folder's layout:
https://developer.android.com/studio/projects/android-library#aar-contents, and of prefab https://google.github.io/prefab.
Nothing here was run against a real NDK.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.cli.request import words
from core.errors import BuildError, ConfigError, HostError, NotSupportedError
from core.files import disk_errors, sha256_file, write_atomic
from core.paths import ROOT, dist_part
from core.processes.commands import run
from toolchains.bundle.sdk import Sdk, below, build_sdk, zipped
from toolchains.bundle.toolchain_file import ABIS
from toolchains.compilers import families, ndk
from toolchains.compilers.families import Compilers, family
from toolchains.debian import packages as debian
from toolchains.debian.sources import host_arch
from toolchains.inspect import checks
from toolchains.targets import Target, get_target, load_targets
from toolchains.tools import named, table

_FOLDER = ROOT / "runtime" / "bindings" / "java"
SOURCES = _FOLDER / "org" / "slipway"
NATIVE = "libslipway_jni.so"
_STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror")
"""With other parameters than its declaration's, a function would be an overload: it is refused for want of one."""
_RELEASE = "8"
"""The version of Java whose language and classes every Android can be given."""


@dataclass(frozen=True)
class Classes:
    """What javac made."""

    jar: bytes
    headers: Path
    """The folder of ``org_slipway_Native.h``."""


def jdk() -> Path:
    """The folder of a JDK, 11 or newer: JAVA_HOME's, this system's, or Debian's, which is fetched once (about 120 MB).

    Raises:
        HostError: Debian's packages cannot be had here.
    """
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    if found := shutil.which("javac"):
        return Path(found).resolve().parent.parent
    if why := debian.runnable():
        raise HostError("There is no JDK on this machine.", why, "install one, 11 or newer, or set JAVA_HOME")
    pinned = table()["jdk"]
    root = debian.tree(pinned["suite"], host_arch(), tuple(pinned["packages"]))
    return next(path.parent.parent for path in sorted(root.glob("usr/lib/jvm/*/bin/javac")))


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
    hard = families.hardening(target)
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


PACKAGE = "org.slipway"
_LIBRARY = "libslipway.so"
_FAMILY = "ndk"


@dataclass(frozen=True)
class Abi:
    """The libraries of one of Android's ABIs: the SDK's folder, and `NATIVE`, wherever it was built."""

    target: Target
    sdk: Path
    glue: Path

    @property
    def name(self) -> str:
        """Android's name of it: ``arm64-v8a``."""
        return ABIS[self.target.arch]


@dataclass(frozen=True)
class Aar:
    """What a build left."""

    path: Path
    version: str
    abis: tuple[str, ...]
    ndk: str
    """The NDK's version."""


def targets_of(names: str) -> list[Target]:
    """The targets of an AAR: ``android-arm64,android-x86_64``; all of Android's for an empty text.

    Raises:
        ConfigError: a target is unknown.
        NotSupportedError: it is not Android's.
    """
    chosen = [get_target(word) for word in dict.fromkeys(words(names))]
    for target in chosen:
        if target.os != "android":
            raise NotSupportedError(
                f"There is no AAR for {target.name}.", "it is an archive for Android apps", "./inv build --aar"
            )
    return chosen or [target for target in load_targets().values() if target.os == "android"]


def build_aar(names: str = "", toolchain: str = "", force: bool = False) -> Aar:
    """Build the SDK of each target with the NDK, the Java API and its native side, and pack them.

    Raises:
        ConfigError, NotSupportedError: a target is unknown or not Android's; another compiler family was named.
        HostError: there is no NDK, or no JDK.
        BuildError: compiling or a check failed.
    """
    targets = [target.built_with(_FAMILY) for target in targets_of(names)]
    if toolchain not in ("", _FAMILY):
        raise ConfigError(
            f"The toolchain {toolchain!r} does not build an AAR.",
            "an app loads shared libraries for Android's own C library; zig's programs for Android are static",
            "./inv build --aar --toolchain ndk",
        )
    require_ndk(targets)
    jdk()  # before minutes of compiling
    with tempfile.TemporaryDirectory(prefix="slipway-aar-") as name:
        scratch = Path(name)
        classes = compile_classes(scratch)
        abis = []
        for target in targets:
            sdk = build_sdk(target.name, _FAMILY, force)
            folder = scratch / target.name
            folder.mkdir()
            glue = build_native(target, family(_FAMILY).ensure(target), sdk.path, classes.headers, folder)
            check(target, glue, sdk.path / "lib" / _LIBRARY)
            abis.append(Abi(target, sdk.path, glue))
        return pack(sdk, classes.jar, abis, ndk.version(Path(named())))


def require_ndk(targets: Sequence[Target]) -> None:
    """Say what is missing before anything is built.

    Raises:
        HostError: there is no NDK, or it lacks a target's compilers.
    """
    for target in targets:
        if reason := ndk.usable(target):
            why, _, fix = reason.rpartition(": ")
            raise HostError(
                "An AAR needs Google's Android NDK, r25 or newer.",
                f"{why}; apps load shared libraries for Android's own C library, which only the NDK has",
                fix,
            )


def pack(sdk: Sdk, classes: bytes, abis: Sequence[Abi], ndk_version: str) -> Aar:
    """Write the AAR to ``dist/android`` with its SHA-256, the same bytes for the same files."""
    version = sdk.manifest.version
    path = dist_part("android") / f"slipway-{version}.aar"
    path.parent.mkdir(parents=True, exist_ok=True)
    with disk_errors(f"writing {path}"):
        write_atomic(path, zipped(_contents(version, classes, abis, ndk_version)))
        write_atomic(path.with_name(f"{path.name}.sha256"), f"{sha256_file(path)}  {path.name}\n")
    return Aar(path, version, tuple(abi.name for abi in abis), ndk_version)


def _contents(version: str, classes: bytes, abis: Sequence[Abi], ndk_version: str) -> dict[str, bytes]:
    texts = {
        "AndroidManifest.xml": (
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="{PACKAGE}">\n'
            f'  <uses-sdk android:minSdkVersion="{abis[0].target.android_api}"/>\n'
            "</manifest>\n"
        ),
        "R.txt": "",
        # The native side finds these by name.
        "proguard.txt": (
            f"-keep class {PACKAGE}.Native {{ native <methods>; }}\n"
            f"-keep class {PACKAGE}.SlipwayException {{ <init>(int, byte[], byte[]); }}\n"
        ),
        "META-INF/com/android/build/gradle/aar-metadata.properties": (
            "aarFormatVersion=1.0\naarMetadataVersion=1.0\nminCompileSdk=1\nminCompileSdkExtension=0\n"
            "minAndroidGradlePluginVersion=1.0.0\ncoreLibraryDesugaringEnabled=false\n"
        ),
        "prefab/prefab.json": _json({"name": "slipway", "schema_version": 2, "dependencies": [], "version": version}),
        "prefab/modules/slipway/module.json": _json({"export_libraries": [], "library_name": "libslipway"}),
    }
    contents = {name: text.encode() for name, text in texts.items()}
    contents["classes.jar"] = classes
    contents |= below(abis[0].sdk / "include", "prefab/modules/slipway/include")
    contents |= below(abis[0].sdk / "licenses", "META-INF/slipway/licenses")
    for abi in abis:
        contents |= _libraries(abi, ndk_version)
    return dict(sorted(contents.items()))


def _libraries(abi: Abi, ndk_version: str) -> dict[str, bytes]:
    library = (abi.sdk / "lib" / _LIBRARY).read_bytes()
    # libc++ is linked into the library and hidden, so an app may have any of its own: "none".
    ndk_release = int(ndk_version.partition(".")[0])
    facts = {"abi": abi.name, "api": int(abi.target.android_api), "ndk": ndk_release, "stl": "none", "static": False}
    module = f"prefab/modules/slipway/libs/android.{abi.name}"
    return {
        f"jni/{abi.name}/{_LIBRARY}": library,
        f"jni/{abi.name}/{NATIVE}": abi.glue.read_bytes(),
        f"{module}/abi.json": _json(facts).encode(),
        f"{module}/{_LIBRARY}": library,
        f"META-INF/slipway/{abi.name}/sbom.cdx.json": (abi.sdk / "sbom.cdx.json").read_bytes(),
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
