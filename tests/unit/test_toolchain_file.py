"""CMake's toolchain file for each compiler family; tests/integration/test_libslipway.py builds with zig's."""

from __future__ import annotations

import dataclasses

import pytest

from toolchains.bundle import toolchain_file
from toolchains.compilers.families import Compilers
from toolchains.ndk_folder import CONF
from toolchains.targets import get_target, load_targets

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
