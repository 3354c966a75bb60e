"""ONNX Runtime for Android: Microsoft's archive, and a runner that is linked against it.

Compilers of this machine are in the place of the NDK's, with musl's headers: nothing that they make runs on a phone.
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
from toolchains import ndk_folder
from toolchains.bundle.builder import build
from toolchains.compilers import ndk, zig
from toolchains.inspect import needs
from toolchains.targets import get_target

# It fetches 150 MB and builds zig's C++ library. The sample that CI runs is the engine for Linux, in test_onnx.py.
pytestmark = [pytest.mark.build, pytest.mark.long]

ABIS = {"arm64": "arm64-v8a", "armv7": "armeabi-v7a", "x86": "x86", "x86_64": "x86_64"}
CLANG = """\
#!/bin/sh
case " $* " in *" -c "*) link= ;; *) link="-pie -dynamic -Wl,--dynamic-linker=/system/bin/linker64" ;; esac
exec {zig} {tool} -target aarch64-linux-musl -fPIE $link "$@"
"""
CMAKE = "set(CMAKE_SYSTEM_NAME Linux)\nset(CMAKE_SYSTEM_PROCESSOR aarch64)\nset(ANDROID TRUE)\n"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    """The bundle that a folder laid out as the NDK's makes, whose clang is zig's."""
    root = tmp_path_factory.mktemp("ndk")
    prebuilt = root / "toolchains/llvm/prebuilt" / ndk._host_tag()
    for folder in (prebuilt / "lib/clang/20", prebuilt / "bin", root / "build/cmake"):
        folder.mkdir(parents=True)
    texts = {f"aarch64-linux-android24-clang{plus}": (f"c{plus or 'c'}", CLANG) for plus in ("", "++")}
    texts |= {f"llvm-{name}": (name, '#!/bin/sh\nexec {zig} {tool} "$@"\n') for name in ("ar", "ranlib")}
    for name, (tool, text) in texts.items():
        file = prebuilt / "bin" / name
        file.write_text(text.format(zig=zig.program(), tool=tool), encoding="utf-8")
        file.chmod(0o755)
    (root / "build/cmake/android.toolchain.cmake").write_text(CMAKE, encoding="utf-8")
    (root / "source.properties").write_text("Pkg.Revision = 29.0.1\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ndk_folder.VARIABLE, str(root))
        for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
            patch.setenv(name, str(cache_dir("zig")))
        patch.setenv("SLIPWAY_DIST", str(tmp_path_factory.mktemp("dist")))
        yield build("android-arm64", "onnxruntime")


def test_the_runner_is_linked_against_microsofts_library_and_has_it_beside_it(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert manifest.toolchain == "ndk 29.0.1"
    paths = {entry.path for entry in manifest.files}
    assert {"bin/pte_runner", "lib/libonnxruntime.so", "licenses/onnxruntime/LICENSE"} <= paths
    assert (manifest.needs.libc, manifest.needs.own_loader) == ("bionic", "")
    offers = manifest.offers
    assert (offers.engine, offers.engine_version, offers.kleidiai) == ("onnxruntime", "1.29.0", True)
    assert offers.backends == ("CPUExecutionProvider", "XnnpackExecutionProvider")
    assert offers.verified.startswith("not run: ")
    runner = needs.read(bundle.path / "bin/pte_runner")
    assert "libonnxruntime.so" in runner.needed
    assert "$ORIGIN/../lib" in ":".join(runner.runpath)


def packed(name: str) -> bytes:
    """A file of the package that the build has fetched."""
    (kept,) = cache_dir("wheels").glob("com.github.asus4.onnxruntime-*.tgz")
    with tarfile.open(kept) as package:
        member = package.extractfile(f"package/Plugins/{name}")
        assert member
        return member.read()


@pytest.mark.parametrize("arch", ABIS)
def test_the_archives_library_fits_every_phone(bundle: Bundle, arch: str, tmp_path: Path) -> None:
    archive = zipfile.ZipFile(BytesIO(packed("Android/onnxruntime.aar")))
    data = archive.read(f"jni/{ABIS[arch]}/libonnxruntime.so")
    library = tmp_path / "libonnxruntime.so"
    library.write_bytes(data)
    target = get_target(f"android-{arch}").built_with("ndk")
    read = needs.read(library)
    # Architecture, calling convention, pages of 16 KiB, and the libraries that Android has.
    assert needs.problems(target, [read]) == []
    assert needs.problems(get_target("linux-arm64"), [read])
    assert b"OrtGetApiBase\0" in data
    assert b"XnnpackExecutionProvider\0" in data
    assert b"VERS_1.29.0\0" in data
    assert (b"kai_run_" in data) is (arch == "arm64")


def test_the_xcframeworks_library_is_for_iphones_and_has_the_provider(bundle: Bundle, tmp_path: Path) -> None:
    data = packed("iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/onnxruntime")
    # A universal file with one architecture.
    _, count, _, _, start, size, _ = struct.unpack(">7I", data[:28])
    assert count == 1
    library = tmp_path / "libonnxruntime.a"
    library.write_bytes(data[start : start + size])
    read = needs.read_all(library)
    assert {(item.machine, item.system, item.system_version) for item in read} == {("aarch64", "ios", "15.1")}
    assert b"_OrtGetApiBase\0" in data
    assert b"XnnpackExecutionProvider\0" in data
