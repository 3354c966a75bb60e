"""The Java API of the AAR: compiled and run on this machine, where its native side is built for this machine's JDK."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import lief
import pytest

from core.errors import BuildError
from core.paths import ROOT
from core.processes.commands import Done, run
from tests.support import language
from toolchains.bundle import aar
from toolchains.bundle.sdk import Sdk, build_sdk
from toolchains.compilers.families import family
from toolchains.debian import packages as debian
from toolchains.emulation import emulators
from toolchains.targets import get_target

from .test_libslipway import expected, spoken

pytestmark = [pytest.mark.build, pytest.mark.export]

TARGET = "linux-x86_64"
CHECK = Path(__file__).parent / "test_java" / "Check.java"
ANDROID_7 = CHECK.with_name("android_7.txt")


@dataclass(frozen=True)
class Built:
    """The API and its native side, for a target; the command of its JVM, if that is not this machine's."""

    sdk: Sdk
    classes: aar.Classes
    jar: Path
    library: Path
    jvm: tuple[str | Path, ...] = ()

    def java(self, folder: Path, source: Path, *words: str | Path) -> Done:
        """Compile a program against the API, out of the checkout, and run it."""
        home = aar.jdk()
        shutil.copy(source, folder)
        run([home / "bin/javac", "--release", "8", "-Xlint:-options", "-cp", self.jar, source.name], cwd=folder)
        argv: list[str | Path] = [
            *(self.jvm or (home / "bin/java",)), "-Xcheck:jni", "-Xmx256m",
            f"-Djava.library.path={self.library.parent}",
            "--add-opens=java.base/java.io=ALL-UNNAMED", "-cp", f"{self.jar}{os.pathsep}{folder}", source.stem, *words,
        ]  # fmt: skip
        env = {**os.environ, "LD_LIBRARY_PATH": str(self.sdk.path / "lib")}
        return run(argv, env=env, cwd=folder, error=None, timeout=300)


def includes() -> Sequence[Path]:
    return [aar.jdk() / "include", aar.jdk() / "include/linux"]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return made(TARGET, tmp_path_factory.mktemp("java"))


def made(name: str, folder: Path, jvm: tuple[str | Path, ...] = ()) -> Built:
    target, sdk = get_target(name).with_shared_libraries(), build_sdk(name, shared=True)
    classes = aar.compile_classes(folder)
    jar = folder / "classes.jar"
    jar.write_bytes(classes.jar)
    compilers = family("zig").ensure(target)
    library = aar.build_native(target, compilers, sdk.path, classes.headers, folder, includes())
    return Built(sdk, classes, jar, library, jvm)


def test_the_example_computes_what_the_runner_computes(built: Built, tmp_path: Path) -> None:
    want = expected(TARGET, tmp_path)
    example = ROOT / "runtime/examples/RunOnce.java"
    done = built.java(tmp_path, example, "model.pte", "in.bin", "java.bin")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert (tmp_path / "java.bin").read_bytes() == want
    done = built.java(tmp_path, example, "none.pte", "in.bin", "java.bin")
    assert done.returncode == 3
    assert "none.pte" in done.stderr


def test_the_language_example_writes_what_the_runner_writes(built: Built, tmp_path: Path) -> None:
    want = spoken(TARGET, tmp_path)
    done = built.java(tmp_path, ROOT / "runtime/examples/Generate.java", "speaker.pte", "ids.txt", "12")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, want, "")


@pytest.mark.long
def test_the_language_example_writes_the_same_on_another_processor(tmp_path: Path) -> None:
    """By Debian's JVM for 64-bit Arm, under QEMU."""
    name = "linux-arm64"
    root = debian.tree("bookworm", "arm64", ["openjdk-17-jre-headless"], closure=True)
    qemu = emulators.user_argv(get_target(name).with_shared_libraries(), sysroot=root)
    built = made(name, tmp_path / "java", (*qemu, root / "usr/lib/jvm/java-17-openjdk-arm64/bin/java", "-Xint"))
    want = spoken(name, tmp_path / "run")
    done = built.java(tmp_path / "run", ROOT / "runtime/examples/Generate.java", "speaker.pte", "ids.txt", "12")
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, want, "")


def test_what_the_java_api_promises(built: Built, tmp_path: Path) -> None:
    """Sources, errors, threads, closing, sessions; the JVM checks every call of its interface (-Xcheck:jni)."""
    expected(TARGET, tmp_path)
    shutil.copytree(language.programs(), tmp_path, dirs_exist_ok=True)
    done = built.java(tmp_path, CHECK, "model.pte", tmp_path)
    assert done.stdout == "0 failures\n", done.stdout + done.stderr
    assert not re.search(r"WARNING|FATAL", done.stderr), done.stderr


def test_the_native_side_has_every_native_function_and_no_other_library(built: Built) -> None:
    """By javac's header; it is checked as it is before it goes into an AAR."""
    header = (built.classes.headers / "org_slipway_Native.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"Java_org_slipway_Native_\w+", header))
    library = lief.ELF.parse(str(built.library))
    assert library is not None
    assert {str(symbol.name) for symbol in library.exported_symbols} == declared
    assert len(declared) > 20
    assert {str(name) for name in library.libraries} == {"libslipway.so.1", "libc.so.6"}
    aar.check(get_target(TARGET), built.library, built.sdk.path / "lib/libslipway.so.1")


@pytest.mark.parametrize(
    ("old", "new"), [("long load(byte[] path,", "long load(String path,"), ("int count(", "long count(")]
)
def test_a_native_function_that_does_not_fit_java_does_not_compile(
    built: Built, tmp_path: Path, old: str, new: str
) -> None:
    text = (aar.SOURCES / "Native.java").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "Native.java").write_text(text.replace(old, new), encoding="utf-8")
    run([aar.jdk() / "bin/javac", "-h", tmp_path / "h", "-d", tmp_path / "c", tmp_path / "Native.java"])
    compilers = family("zig").ensure(get_target(TARGET))
    with pytest.raises(BuildError, match=aar.NATIVE):
        aar.build_native(get_target(TARGET), compilers, built.sdk.path, tmp_path / "h", tmp_path, includes())


def test_the_classes_use_nothing_that_android_7_lacks(built: Built) -> None:
    """Each use of Java's library is in a list that was compared with Android's reference: `Added in API level`."""
    with zipfile.ZipFile(built.jar) as jar:
        names = [name.removesuffix(".class") for name in jar.namelist() if name.endswith(".class")]
    said = run([aar.jdk() / "bin/javap", "-c", "-p", "-cp", built.jar, *names]).stdout
    used = set(re.findall(r"// (?:InterfaceMethod|Method|Field) (java/\S+)", said))
    assert used == set(ANDROID_7.read_text(encoding="utf-8").split())


def test_the_steps_of_an_aar(built: Built, dist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With this machine's compilers and C library in the place of the NDK's: what is packed is what was built here."""
    target = dataclasses.replace(get_target(TARGET), android_api="24")
    compilers = family("zig").ensure(target)
    jni_h = tuple(word for path in includes() for word in ("-isystem", str(path)))
    ensure = SimpleNamespace(ensure=lambda _: dataclasses.replace(compilers, flags=jni_h))
    monkeypatch.setattr(aar, "targets_of", lambda names: [target])
    monkeypatch.setattr(aar, "require_ndk", lambda targets: None)
    monkeypatch.setattr(aar, "build_sdk", lambda *_: built.sdk)
    monkeypatch.setattr(aar, "family", lambda name: ensure)
    monkeypatch.setattr(aar, "ndk", SimpleNamespace(version=lambda root: "27.2.12479018"))
    found = aar.build_aar()
    assert (found.path.parent, found.abis) == (dist / "android", ("x86_64",))
    with zipfile.ZipFile(found.path) as archive:
        assert archive.testzip() is None
        library = (built.sdk.path / "lib/libslipway.so.1").read_bytes()
        assert archive.read("jni/x86_64/libslipway.so") == library
        assert archive.read("classes.jar") == built.jar.read_bytes()
        assert archive.read(f"jni/x86_64/{aar.NATIVE}")[:4] == b"\x7fELF"
