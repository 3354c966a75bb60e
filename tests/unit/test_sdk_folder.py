"""The SDK: its folder, archive and wheel; the XCFramework and the AAR; and what is said without an NDK."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import plistlib
import shutil
import tarfile
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import pytest

from commands.requests import Build
from core.errors import BundleError, ConfigError, HostError, NotSupportedError, UsageError
from core.files import write_atomic, write_json
from core.formats.bundle import MANIFEST, Checks
from core.paths import ROOT
from toolchains.bundle import aar, sdk, toolchain_file, wheel
from toolchains.bundle.layout import entries
from toolchains.bundle.sdk import Sdk, SdkManifest, zipped
from toolchains.targets import get_target
from toolchains.tools import VARIABLE


def manifest_of(folder: Path, target: str) -> SdkManifest:
    return SdkManifest(
        version="0.1.0", target=target, toolchain="zig 0.17.0", created="2026-01-01T00:00:00Z", libc="glibc",
        isa_floor="Armv8-A", shared=True, checks=Checks(floor="Armv8-A", code=()), files=entries(folder),
    )  # fmt: skip


@pytest.fixture
def built(tmp_path: Path) -> sdk.Sdk:
    """An SDK of three files, one of them a link, as a build would leave it."""
    folder = tmp_path / "linux-arm64" / "sdk"
    write_atomic(folder / "lib/libslipway.so.1", "library")
    (folder / "lib/libslipway.so").symlink_to("libslipway.so.1")
    write_atomic(folder / "include/slipway.h", "header")
    manifest = manifest_of(folder, "linux-arm64")
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    sdk._pack(folder, sdk._archive(folder, manifest))
    return sdk.Sdk.load(folder)


def test_the_archive_has_the_folder_with_its_links(built: sdk.Sdk) -> None:
    top = "slipway-sdk-0.1.0-linux-arm64"
    with tarfile.open(built.archive) as tar:
        names = {item.name: item for item in tar.getmembers()}
    assert names[f"{top}/lib/libslipway.so"].linkname == "libslipway.so.1"
    assert f"{top}/{MANIFEST}" in names
    assert {(item.mtime, item.uid, item.uname) for item in names.values()} == {(0, 0, "")}
    assert built.archive.with_name(f"{built.archive.name}.sha256").read_text().endswith(f"  {built.archive.name}\n")


def test_the_same_files_make_the_same_bytes(built: sdk.Sdk, tmp_path: Path) -> None:
    copy = tmp_path / "again" / "sdk"
    shutil.copytree(built.path, copy, symlinks=True)
    for file in copy.rglob("*"):
        os.utime(file, (1, 1), follow_symlinks=False)
    (copy / "include/slipway.h").chmod(0o600)
    archive = sdk._archive(copy, built.manifest)
    sdk._pack(copy, archive)
    assert archive.read_bytes() == built.archive.read_bytes()
    assert not list(copy.parent.glob("*.new"))


def test_damage_is_named(built: sdk.Sdk) -> None:
    (built.path / "include/slipway.h").write_bytes(b"other")
    with pytest.raises(BundleError, match="not those that were built") as caught:
        sdk.Sdk.load(built.path)
    assert "include/slipway.h: changed" in str(caught.value.cause)
    assert caught.value.hint == "./inv build --target linux-arm64 --sdk"
    (built.path / "include/slipway.h").write_bytes(b"header")
    built.archive.unlink()
    with pytest.raises(BundleError, match="There is no SDK"):
        sdk.Sdk.load(built.path)


def test_another_engines_sdk_is_asked_for_by_its_name(tmp_path: Path) -> None:
    assert Build(sdk=True, engine="executorch").engine == "executorch"
    assert Build(wheel=True, engine="lean").wheel
    for words in ({"wheel": True}, {"sdk": True, "ops_from": "model.pte"}):
        with pytest.raises(UsageError, match="cannot be used with --engine executorch"):
            Build(engine="executorch", **words)
    with pytest.raises(NotSupportedError, match="linux-armv7"):
        sdk.build_sdk("linux-armv7", engine="executorch")
    with pytest.raises(BundleError) as caught:
        sdk.Sdk.load(tmp_path / "linux-arm64/sdk-onnxruntime")
    assert caught.value.hint == "./inv build --target linux-arm64 --sdk --engine onnxruntime"


def test_a_wheel_is_what_its_record_says(built: sdk.Sdk, dist: Path) -> None:
    write_atomic(built.path / "licenses/xnnpack/LICENSE", "terms")
    (built.path / "sbom.cdx.json").write_bytes(b"{}")
    written = wheel.write_wheel(built)
    assert written == dist / "wheels/slipway_runtime-0.1.0-py3-none-manylinux_2_28_aarch64.whl"
    first = written.read_bytes()
    assert wheel.write_wheel(built).read_bytes() == first
    with zipfile.ZipFile(written) as file:
        contents = {name: file.read(name) for name in file.namelist()}
    record = contents.pop("slipway_runtime-0.1.0.dist-info/RECORD").decode().splitlines()
    listed = {line.split(",")[0]: line.split(",")[1:] for line in record}
    assert listed.pop("slipway_runtime-0.1.0.dist-info/RECORD") == ["", ""]
    assert listed == {name: [f"sha256={_digest(data)}", str(len(data))] for name, data in contents.items()}
    assert contents["slipway_runtime/libslipway.so.1"] == b"library"
    assert contents["slipway_runtime-0.1.0.dist-info/licenses/xnnpack/LICENSE"] == b"terms"
    assert {"slipway_runtime/__init__.py", "slipway_runtime/py.typed"} <= set(contents)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("linux-x86_64", "manylinux_2_28_x86_64"),
        ("linux-armv7", "manylinux_2_28_armv7l"),
        ("linux-armv6", "linux_armv6l"),
        ("linux-x86", "manylinux_2_28_i686"),
        ("windows-x86_64", "win_amd64"),
    ],
)
def test_wheels_name_their_platform(target: str, name: str) -> None:
    assert wheel.tag(get_target(target)) == name


@pytest.mark.parametrize("name", ["android-arm64", "macos-arm64"])
def test_targets_without_a_shared_library_have_no_wheel(name: str) -> None:
    with pytest.raises(NotSupportedError, match=f"no wheels for {name}"):
        wheel.tag(get_target(name))


NAMESPACE = "{http://schemas.android.com/apk/res/android}"


def test_an_xcframework_has_a_slice_for_each_platform(tmp_path: Path) -> None:
    write_atomic(tmp_path / "include/slipway/slipway.h", "/* header */")
    phone = get_target("ios-arm64")
    slices = []
    for target in (phone, phone.simulator()):
        library = tmp_path / target.name / "libslipway.a"
        write_atomic(library, target.name)
        slices.append((target, library))
    toolchain_file.write_xcframework(tmp_path, slices, tmp_path / "include")
    top = tmp_path / toolchain_file.XCFRAMEWORK
    listed = plistlib.loads((top / "Info.plist").read_bytes())
    first, second = listed["AvailableLibraries"]
    assert "SupportedPlatformVariant" not in first
    assert second["SupportedPlatformVariant"] == "simulator"
    assert {row["SupportedPlatform"] for row in (first, second)} == {"ios"}
    for row, text in ((first, "ios-arm64"), (second, "ios-arm64-simulator")):
        assert (top / row["LibraryIdentifier"] / row["LibraryPath"]).read_text() == text


@pytest.fixture
def packed(tmp_path: Path) -> tuple[aar.Aar, zipfile.ZipFile]:
    """An AAR of two ABIs. What its libraries hold is not looked at here: only an NDK makes real ones."""
    folder = tmp_path / "sdk"
    for name in ("include/slipway/slipway.h", "include/slipway/slipway.hpp", "lib/libslipway.so", "sbom.cdx.json",
                 "licenses/xnnpack/LICENSE", "libslipway_jni.so"):  # fmt: skip
        write_atomic(folder / name, name)
    sdk = Sdk(path=folder, archive=folder, manifest=manifest_of(folder, "android-arm64"))
    targets = (get_target(name) for name in ("android-arm64", "android-x86_64"))
    abis = [aar.Abi(target, folder, folder / "libslipway_jni.so") for target in targets]
    classes = zipped({"org/slipway/Program.class": b"class"})
    found = aar.pack(sdk, classes, abis, "27.2.12479018")
    data = found.path.read_bytes()
    assert aar.pack(sdk, classes, abis, "27.2.12479018") == found
    assert found.path.read_bytes() == data
    return found, zipfile.ZipFile(io.BytesIO(data))


def test_an_aar_has_what_android_projects_take(packed: tuple[aar.Aar, zipfile.ZipFile]) -> None:
    found, archive = packed
    assert found.abis == ("arm64-v8a", "x86_64")
    assert found.path.parent.name == "android"
    names = set(archive.namelist())
    libraries = {f"jni/{abi}/{name}" for abi in found.abis for name in ("libslipway.so", "libslipway_jni.so")}
    assert names >= {"AndroidManifest.xml", "R.txt", "classes.jar", "proguard.txt", *libraries}
    assert "META-INF/slipway/licenses/xnnpack/LICENSE" in names
    root = ET.fromstring(archive.read("AndroidManifest.xml"))  # noqa: S314 - ours
    (uses,) = root.findall("uses-sdk")
    assert (root.get("package"), uses.get(f"{NAMESPACE}minSdkVersion")) == ("org.slipway", "24")
    with zipfile.ZipFile(io.BytesIO(archive.read("classes.jar"))) as jar:
        assert jar.namelist() == ["org/slipway/Program.class"]


def test_native_code_finds_header_and_library_through_prefab(packed: tuple[aar.Aar, zipfile.ZipFile]) -> None:
    found, archive = packed
    module = "prefab/modules/slipway"
    assert json.loads(archive.read("prefab/prefab.json"))["schema_version"] == 2
    assert json.loads(archive.read(f"{module}/module.json"))["library_name"] == "libslipway"
    assert f"{module}/include/slipway/slipway.h" in archive.namelist()
    for abi in found.abis:
        facts = json.loads(archive.read(f"{module}/libs/android.{abi}/abi.json"))
        assert facts == {"abi": abi, "api": 24, "ndk": 27, "stl": "none", "static": False}
        assert archive.read(f"{module}/libs/android.{abi}/libslipway.so") == archive.read(f"jni/{abi}/libslipway.so")


def test_rules_for_proguard_keep_what_the_native_side_looks_up(packed: tuple[aar.Aar, zipfile.ZipFile]) -> None:
    rules = packed[1].read("proguard.txt").decode()
    glue = (ROOT / "runtime/bindings/java/jni/slipway_jni.cpp").read_text(encoding="utf-8")
    assert 'FindClass("org/slipway/SlipwayException")' in glue
    assert '"<init>", "(I[B[B)V"' in glue
    assert glue.count("FindClass(") == glue.count("GetMethodID(") == 1
    assert "-keep class org.slipway.SlipwayException { <init>(int, byte[], byte[]); }" in rules
    assert "-keep class org.slipway.Native { native <methods>; }" in rules


def test_the_java_api_has_the_numbers_of_the_header() -> None:
    header = (ROOT / "runtime/include/slipway/slipway.h").read_text(encoding="utf-8")
    sources = {file.stem: file.read_text(encoding="utf-8") for file in aar.SOURCES.glob("*.java")}
    for name, value in (line.split(" = ") for line in header.splitlines() if line.startswith("  SLIPWAY_")):
        number = value.split(",")[0].split()[0]
        plain = name.strip().removeprefix("SLIPWAY_")
        both = sources["DType"] + sources["SlipwayException"]
        kinds = sources["TensorSpec"]
        assert f"  {plain}({number}" in both or plain == "OK" or plain in kinds, plain
    assert "READ_BEHIND = 64" in sources["Tensor"] and "SLIPWAY_READ_BEHIND 64" in header
    assert "ABI_VERSION = 1;" in sources["Native"] and "SLIPWAY_ABI_VERSION 1" in header
    assert "OUTPUT_NUMBERS = 2 + 16" in sources["Native"] and "SLIPWAY_MAX_DIMS 16" in header


def test_without_an_ndk_it_says_what_it_needs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CONAN_HOME", str(tmp_path))
    with pytest.raises(HostError, match="needs Google's Android NDK") as caught:
        aar.build_aar("android-arm64")
    assert caught.value.exit_code == 4
    assert caught.value.hint.startswith(f"export {VARIABLE}=")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(HostError, match="is not an NDK"):
        aar.build_aar("android-arm64")


def test_which_targets_an_aar_is_for() -> None:
    for text, names in (
        ("android-x86,android-arm64,android-x86", ["android-x86", "android-arm64"]),
        ("", ["android-arm64", "android-armv7", "android-x86", "android-x86_64"]),
    ):
        assert [target.name for target in aar.targets_of(text)] == names
    with pytest.raises(NotSupportedError, match="no AAR for linux-arm64"):
        aar.targets_of("android-arm64,linux-arm64")
    with pytest.raises(ConfigError, match="no target"):
        aar.targets_of("android")
    with pytest.raises(ConfigError, match="does not build an AAR"):
        aar.build_aar("android-arm64", "zig")
