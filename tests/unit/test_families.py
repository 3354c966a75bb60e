"""The compiler families besides zig; the stubs of an old libstdc++; and CMake's toolchain file for each family."""

from __future__ import annotations

import dataclasses
import platform
import shutil
from pathlib import Path

import pytest

from core.errors import HostError, NotSupportedError
from toolchains import ndk_folder
from toolchains.bundle import conan, toolchain_file
from toolchains.compilers import families as compilers
from toolchains.compilers import gnu, ndk
from toolchains.compilers.families import Compilers
from toolchains.compilers.libstdcxx import Symbol, stub_sources
from toolchains.ndk_folder import CONF
from toolchains.targets import get_target, load_targets

ANDROID = [target for target in load_targets().values() if target.os == "android"]


def programs(folder: Path, *names: str, version: str = "12.2.0") -> None:
    """Programs that only their names are asked of."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\necho {version}\n", encoding="utf-8")
        (folder / name).chmod(0o755)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders and names as the NDK r27 has them; nothing in them is a compiler."""
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in (ndk_folder.VARIABLE, "CONAN_HOME"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "android-ndk-r27c"
    triples = ("aarch64-linux-android", "armv7a-linux-androideabi", "i686-linux-android", "x86_64-linux-android")
    clangs = [f"{triple}24-clang{plus}" for triple in triples for plus in ("", "++")]
    prebuilt = root / "toolchains/llvm/prebuilt/linux-x86_64"
    programs(prebuilt / "bin", *clangs, "llvm-ar", "llvm-ranlib")
    (prebuilt / "lib/clang/18").mkdir(parents=True)
    (root / "source.properties").write_text("Pkg.Desc = Android NDK\nPkg.Revision = 27.2.12479018\n", encoding="utf-8")
    return root


@pytest.mark.parametrize("target", ANDROID, ids=lambda target: target.name)
def test_an_ndk_is_found_and_described(made_up: Path, monkeypatch: pytest.MonkeyPatch, target: object) -> None:
    monkeypatch.setenv(ndk_folder.VARIABLE, str(made_up))
    chosen = get_target(getattr(target, "name"))  # noqa: B009
    assert ndk.usable(chosen) == ""
    assert chosen.toolchain() == "ndk"
    found = ndk.ensure(chosen)
    assert (found.family, found.version) == ("ndk", "27.2.12479018")
    assert Path(found.cc).is_file()
    assert found.cxx == f"{found.cc}++"
    text = conan.render(chosen, found).splitlines()
    for line in ("os=Android", "os.api_level=24", "compiler=clang", "compiler.version=18",
                 "compiler.libcxx=c++_static", f"tools.android:ndk_path={made_up}",
                 "tools.android:cmake_legacy_toolchain=False"):  # fmt: skip
        assert line in text
    assert not [line for line in text if line.startswith("tools.cmake.cmaketoolchain:system_name")]


def test_onnx_runtime_is_built_for_android_where_an_ndk_is_named(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = get_target("android-arm64")
    assert "onnxruntime" not in target.working_engines
    assert target.needs("onnxruntime").startswith("an NDK: export ANDROID_NDK_HOME=")
    with pytest.raises(NotSupportedError, match="needs an NDK: export"):
        target.engine("onnxruntime")
    monkeypatch.setenv(ndk_folder.VARIABLE, str(made_up))
    assert "onnxruntime" in target.working_engines
    assert (target.engine(), target.engine("onnxruntime"), target.needs("onnxruntime")) == ("lean", "onnxruntime", "")
    with pytest.raises(NotSupportedError, match="needs --toolchain ndk: zig makes programs without"):
        target.engine("onnxruntime", "zig")


def test_without_an_ndk_android_is_built_with_zig(made_up: Path) -> None:
    target = get_target("android-arm64")
    assert target.toolchain() == "zig"
    assert "export ANDROID_NDK_HOME=" in ndk.usable(target)
    with pytest.raises(HostError, match="no NDK is named") as caught:
        ndk.ensure(target)
    assert caught.value.hint.startswith("export ANDROID_NDK_HOME=")


@pytest.mark.parametrize("where", ["cache/conan", "home/.conan2"])
def test_conans_configuration_may_name_it(made_up: Path, where: str) -> None:
    file = made_up.parent / where / "global.conf"
    file.parent.mkdir(parents=True)
    file.write_text(f"core:x = 1\n tools.android:ndk_path = {made_up} \n", encoding="utf-8")
    assert ndk_folder.named() == str(made_up)
    assert get_target("android-x86").toolchain() == "ndk"


def test_a_wrong_folder_is_not_passed_over(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names an NDK wants bionic: a static musl program instead would be a surprise."""
    target = get_target("android-arm64")
    monkeypatch.setenv(ndk_folder.VARIABLE, str(made_up / "toolchains"))
    assert target.toolchain() == "ndk"
    assert "lacks source.properties" in ndk.usable(target)
    monkeypatch.setenv(ndk_folder.VARIABLE, str(made_up))
    (made_up / "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android24-clang++").unlink()
    assert "lacks" in ndk.usable(target)
    assert ndk.usable(get_target("android-x86")) == ""


def test_gcc_for_windows_is_the_one_with_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = get_target("windows-x86_64")
    plain = [f"x86_64-w64-mingw32-{tool}" for tool in ("gcc", "g++", "ar", "ranlib", "windres")]
    programs(tmp_path, *plain)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(gnu, "_native", lambda target: False)
    programs(tmp_path / "more", "x86_64-w64-mingw32-gcc-posix", "x86_64-w64-mingw32-g++-posix", version="12-posix")
    monkeypatch.setattr(shutil, "which", lambda name, which=shutil.which: which(name, path=str(tmp_path)))
    assert "g++-posix is not installed" in gnu.usable(target)
    for file in (tmp_path / "more").iterdir():
        file.rename(tmp_path / file.name)
    text = conan.render(target, gnu.ensure(target)).splitlines()
    for line in ("os=Windows", "compiler=gcc", "compiler.version=12", "compiler.threads=posix",
                 'tools.build:exelinkflags=["-static"]', "tools.cmake.cmaketoolchain:system_name=Windows"):  # fmt: skip
        assert line in text


def test_every_reason_ends_with_what_to_type(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/apt-get" if name == "apt-get" else None)
    for target in load_targets().values():
        for name in target.toolchains:
            if name != "zig":
                reason, _, command = compilers.family(name).usable(target).partition(": ")
                assert reason
                assert command, (target.name, name)


NEWEST = {"GLIBCXX": "3.4.25", "CXXABI": "1.3.11"}


def test_the_newest_version_within_the_bound_is_taken_and_data_keeps_its_kind() -> None:
    found = [
        Symbol("wait", "GLIBCXX_3.4.11", "function", 9),
        Symbol("wait", "GLIBCXX_3.4.30", "function", 9),
        Symbol("grow", "GLIBCXX_3.4", "function", 9),
        Symbol("grow", "GLIBCXX_3.4.21", "function", 9),
        Symbol("to_chars", "GLIBCXX_3.4.29", "function", 9),
    ]
    assembly, script = stub_sources(iter(found), NEWEST)
    assert "GLIBCXX_3.4.11 { global: wait; };" in script
    assert "GLIBCXX_3.4.21 { global: grow; };" in script
    assert "3.4.30" not in script
    assert "to_chars" not in script + assembly
    found = [Symbol("cout", "GLIBCXX_3.4", "object", 272), Symbol("call", "GLIBCXX_3.4.11", "tls_object", 8)]
    assembly, _ = stub_sources(iter(found), NEWEST)
    assert ".type cout, %object\n.size cout, 272\ncout: .zero 272" in assembly
    assert '.section .tbss,"awT",%nobits\n.globl call' in assembly


PLAIN = Compilers("zig", "1", "key", "/t/cc", "/t/c++", "/t/ar", "/t/ranlib", conan={})


@pytest.mark.parametrize("name", list(load_targets()))
def test_every_target_has_a_system_and_compilers(name: str) -> None:
    target = get_target(name)
    text = toolchain_file.text(target, PLAIN)
    system = {"windows": "Windows", "macos": "Darwin", "ios": "iOS"}.get(target.os, "Linux")
    assert f"set(CMAKE_SYSTEM_NAME {system})\n" in text
    assert f"set(CMAKE_SYSTEM_PROCESSOR {target.cmake_processor})\n" in text
    assert 'set(CMAKE_CXX_COMPILER "/t/c++")\n' in text
    assert 'set(CMAKE_AR "/t/ar")\n' in text


def test_what_families_need_besides() -> None:
    ndk = dataclasses.replace(PLAIN, family="ndk", conf={CONF: "/ndk"})
    text = toolchain_file.text(get_target("android-armv7"), ndk)
    assert text.index("set(ANDROID_ABI armeabi-v7a)") < text.index('"/ndk/build/cmake/android.toolchain.cmake"')
    assert "CMAKE_C_COMPILER" not in text
    gnu = dataclasses.replace(PLAIN, family="gnu", flags=("-msse2", "-mfpmath=sse"))
    assert 'set(CMAKE_CXX_FLAGS_INIT "-msse2 -mfpmath=sse -f' in toolchain_file.text(get_target("linux-x86"), gnu)
    assert '-static")\nset(CMAKE_FIND' in toolchain_file.text(get_target("windows-x86_64"), gnu)
    assert "-static" not in toolchain_file.text(get_target("windows-x86_64"), PLAIN)
    apple = dataclasses.replace(PLAIN, conf={"tools.apple:sdk_path": "/sdk"})
    text = toolchain_file.text(get_target("ios-arm64"), apple)
    assert 'set(CMAKE_OSX_SYSROOT "/sdk")' in text
    assert "set(CMAKE_OSX_DEPLOYMENT_TARGET 15.0)" in text
    assert "set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)" in text
