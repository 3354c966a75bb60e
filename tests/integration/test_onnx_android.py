"""ONNX Runtime for Android: the runner, linked against Microsoft's library, and that library for every phone.

zig and musl's headers are in the place of the NDK's: nothing that they make runs on a phone.
"""

from __future__ import annotations

import struct
import tarfile
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from core.formats.bundle import Bundle
from core.paths import cache_dir
from toolchains import tools
from toolchains.bundle.builder import build
from toolchains.compilers import ndk, zig
from toolchains.inspect import needs
from toolchains.targets import get_target
from toolchains.tools import hardening, systems

# It fetches 150 MB and builds zig's C++ library. The sample that CI runs is the engine for Linux, in test_onnx.py.
pytestmark = [pytest.mark.build, pytest.mark.long]

ABIS = {"arm64": "arm64-v8a", "armv7": "armeabi-v7a", "x86": "x86", "x86_64": "x86_64"}
PROMISES = tuple(hardening("bionic")["promises"])
CMAKE = """\
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(ANDROID TRUE)
if(NOT DEFINED ANDROID_USE_LEGACY_TOOLCHAIN_FILE OR ANDROID_USE_LEGACY_TOOLCHAIN_FILE)
  set(CMAKE_CXX_FLAGS "" CACHE STRING "")
  set(CMAKE_EXE_LINKER_FLAGS "" CACHE STRING "")
endif()
"""
"""As the NDK's own file: unless it is told otherwise, what others gave the compilers is lost."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """The bundle that a folder laid out as the NDK's makes."""
    root, target = tmp_path_factory.mktemp("ndk"), get_target("android-arm64")
    texts = {f"llvm-{name}": f'#!/bin/sh\nexec {zig.program()} {name} "$@"\n' for name in ("ar", "ranlib")}
    link = ["-pie", "-dynamic", "-Wl,--dynamic-linker=/system/bin/linker64"]
    for name, tool in (("clang", "cc"), ("clang++", "c++")):
        text = zig.wrapper(tool, zig.program(), target, before=[], after=[], link=link)
        texts[f"aarch64-linux-android{target.android_api}-{name}"] = text
    prebuilt = root / "toolchains/llvm/prebuilt" / ndk._host_tag()
    for folder in (prebuilt / "lib/clang/20", prebuilt / "bin", root / "build/cmake"):
        folder.mkdir(parents=True)
    for name, text in texts.items():
        (prebuilt / "bin" / name).write_text(text, encoding="utf-8")
        (prebuilt / "bin" / name).chmod(0o755)
    (root / "build/cmake/android.toolchain.cmake").write_text(CMAKE, encoding="utf-8")
    (root / "source.properties").write_text("Pkg.Revision = 0.0.1\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(tools.VARIABLE, str(root))
        patch.setenv("SLIPWAY_DIST", str(tmp_path_factory.mktemp("dist")))
        # musl has no functions that check sizes.
        patch.setitem(systems()["hardening"]["bionic"], "promises", [one for one in PROMISES if one != "fortify"])
        yield build(target.name, "onnxruntime")


def test_the_runner_is_linked_against_microsofts_library_and_has_it_beside_it(bundle: Bundle) -> None:
    manifest, offers = bundle.manifest, bundle.manifest.offers
    assert manifest.toolchain == "ndk 0.0.1"
    paths = {entry.path for entry in manifest.files}
    assert {"bin/pte_runner", "lib/libonnxruntime.so", "licenses/onnxruntime/LICENSE"} <= paths
    assert (manifest.needs.libc, manifest.needs.own_loader) == ("bionic", "")
    assert (offers.engine_version, offers.kleidiai) == ("1.29.0", True)
    assert offers.backends == ("CPUExecutionProvider", "XnnpackExecutionProvider")
    assert offers.verified.startswith("not run: ")
    runner = needs.read(bundle.path / "bin/pte_runner")
    assert runner.needed == ("libonnxruntime.so", "libc.so")
    assert "$ORIGIN/../lib" in ":".join(runner.runpath)
    assert runner.alignment == 16384


def packed(name: str) -> bytes:
    """A file of the package that the build has fetched."""
    (kept,) = cache_dir("wheels").glob("com.github.asus4.onnxruntime-*.tgz")
    with tarfile.open(kept) as package:
        member = package.extractfile(f"package/Plugins/{name}")
        assert member
        return member.read()


@pytest.mark.usefixtures("bundle")
def test_the_archives_libraries_fit_every_phone(tmp_path: Path) -> None:
    archive = zipfile.ZipFile(BytesIO(packed("Android/onnxruntime.aar")))
    for arch, abi in ABIS.items():
        library = tmp_path / abi / "libonnxruntime.so"
        library.parent.mkdir()
        library.write_bytes(data := archive.read(f"jni/{abi}/{library.name}"))
        target, read = get_target(f"android-{arch}").built_with("ndk"), needs.read(library)
        # Architecture, calling convention, the libraries that Android has, and pages of 16 KiB.
        assert needs.problems(target, [read]) == []
        assert needs.problems(get_target("linux-arm64"), [read])
        assert (read.soname, read.alignment) == (library.name, 16384)
        assert all(word in data for word in (b"OrtGetApiBase\0", b"XnnpackExecutionProvider\0", b"VERS_1.29.0\0"))
        assert (b"kai_run_" in data) is (arch == "arm64")


@pytest.mark.usefixtures("bundle")
def test_the_xcframeworks_library_is_for_iphones_and_has_the_provider(tmp_path: Path) -> None:
    data = packed("iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/onnxruntime")
    # A universal file with one architecture.
    _, count, _, _, start, size, _ = struct.unpack(">7I", data[:28])
    assert count == 1
    library = tmp_path / "libonnxruntime.a"
    library.write_bytes(data[start : start + size])
    found = {(item.machine, item.system, item.system_version) for item in needs.read_all(library)}
    assert found == {("aarch64", "ios", "15.1")}
    assert b"_OrtGetApiBase\0" in data
    assert b"XnnpackExecutionProvider\0" in data
