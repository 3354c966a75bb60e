"""The SDK's folder and archive: what is read back, what is refused, and that the same files make the same bytes."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from commands.requests import Build
from core.errors import BundleError, NotSupportedError, UsageError
from core.files import write_json
from core.formats.bundle import MANIFEST, Checks
from toolchains.bundle import sdk, wheel
from toolchains.bundle.layout import entries
from toolchains.targets import get_target


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sdk.Sdk:
    """An SDK of three files, one of them a link, as a build would leave it."""
    folder = tmp_path / "linux-arm64" / "sdk"
    (folder / "lib").mkdir(parents=True)
    (folder / "include").mkdir()
    (folder / "lib/libslipway.so.1").write_bytes(b"library")
    (folder / "lib/libslipway.so").symlink_to("libslipway.so.1")
    (folder / "include/slipway.h").write_bytes(b"header")
    manifest = sdk.SdkManifest(
        version="0.1.0", target="linux-arm64", toolchain="zig 0.17.0", created="2026-01-01T00:00:00Z", libc="glibc",
        isa_floor="Armv8-A", shared=True, checks=Checks(floor="Armv8-A", code=()), files=entries(folder),
    )  # fmt: skip
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    # zstd may be Debian's: what is packed does not depend on it here.
    copy = tmp_path / "zstd"
    copy.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nexec cp "$3" "$2"\n', encoding="utf-8")
    copy.chmod(0o755)
    monkeypatch.setattr(sdk, "_zstd", lambda: [str(copy)])
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
    assert not list(copy.parent.glob("*.tar"))


def test_damage_is_named(built: sdk.Sdk) -> None:
    (built.path / "include/slipway.h").write_bytes(b"other")
    with pytest.raises(BundleError, match="not those that were built") as caught:
        sdk.Sdk.load(built.path)
    assert "include/slipway.h: changed" in str(caught.value.cause)
    assert caught.value.hint == "./inv build --target linux-arm64 --sdk"


def test_an_archive_that_is_damaged_or_missing_is_named(built: sdk.Sdk) -> None:
    built.archive.write_bytes(b"x")
    with pytest.raises(BundleError, match="not those that were built"):
        sdk.Sdk.load(built.path)
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
    (built.path / "licenses/xnnpack").mkdir(parents=True)
    (built.path / "licenses/xnnpack/LICENSE").write_bytes(b"terms")
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
