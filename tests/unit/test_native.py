"""Native packages: when something is built, what comes of it, its bill of materials; and what shared builds get."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from core.errors import BuildError, BundleError
from core.files import write_atomic
from core.formats.bundle import SBOM, Checks, FileEntry, Native
from toolchains.bundle import conan, inputs, native, sbom
from toolchains.bundle.making import Job
from toolchains.compilers import ccache, families
from toolchains.debian import packages as debian
from toolchains.inspect import checks

PIN = {"place": "debian", "file": "xnnpack.tar.xz", "sha256": "a" * 64, "suite": "forky", "package": "xnnpack"}


def package(folder: Path, name: str, *files: str, source: dict[str, str] | None = None) -> dict[str, Any]:
    """A Conan package in ``folder``, and its node in a graph."""
    root = folder / name
    for file in (*files, "licenses/LICENSE"):
        write_atomic(root / file, name)
    if source:
        (root / sbom.RECORD).write_text(json.dumps(source), encoding="utf-8")
    return {
        "ref": f"{name}/1.0#abc", "name": name, "version": "1.0", "rrev": "abc", "package_id": "def", "context": "host",
        "test": False, "license": "BSD-3-Clause", "homepage": f"home of {name}", "package_folder": str(root),
        "dependencies": {}, "description": name, "author": None, "package_type": "static-library", "settings": {},
    }  # fmt: skip


def graph_of(*nodes: dict[str, Any]) -> dict[str, Any]:
    numbered = {str(number): node for number, node in enumerate(nodes, 1)}
    root: dict[str, Any] = {"ref": "conanfile", "name": None, "context": "host", "test": False, "license": None}
    root["dependencies"] = {number: {"build": False} for number in numbered}
    return {"nodes": {"0": root, **numbered}}


@pytest.fixture
def made(dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The builds that were really made; packages that take no time."""
    found: list[str] = []
    write_atomic(tmp_path / "checkout/recipes/xnnpack/config.yml", "1")
    monkeypatch.setattr(inputs, "ROOT", tmp_path / "checkout")
    node = package(tmp_path / "conan", "xnnpack", "lib/libXNNPACK.a", "include/xnnpack.h", source=PIN)

    def packages(job: Job, steps: Any) -> dict[str, Any]:
        found.append(f"{job.target.name} {job.toolchain} {job.facts[0]}{' again' if job.force else ''}")
        return graph_of(node)

    ready = SimpleNamespace(family="zig", version="0.17.0")
    fake = SimpleNamespace(ensure=lambda target: ready, usable=lambda target: "")
    monkeypatch.setattr(native, "_packages", packages)
    monkeypatch.setattr(checks, "check_native", lambda target, folder: Checks(floor="Armv8-A", code=()))
    monkeypatch.setattr(families, "family", lambda name: fake)
    monkeypatch.setattr(debian, "available", lambda: "")
    return found


def test_what_decides_is_watched(made: list[str], tmp_path: Path) -> None:
    first = native.build_native("linux-arm64", "zig")
    assert native.build_native("linux-arm64", "zig") == first
    assert made == ["linux-arm64 zig debian"]
    (tmp_path / "checkout/recipes/xnnpack/config.yml").write_text("2", encoding="utf-8")
    native.build_native("linux-arm64", "zig")
    native.build_native("linux-arm64", "zig", sources="git")
    native.build_native("linux-arm64", "gnu", sources="git")
    native.build_native("linux-arm64", "gnu", sources="git", force=True)
    assert made == [
        "linux-arm64 zig debian", "linux-arm64 zig debian", "linux-arm64 zig git", "linux-arm64 gnu git",
        "linux-arm64 gnu git again",
    ]  # fmt: skip


def test_two_files_of_one_name_and_no_library_are_refused(tmp_path: Path) -> None:
    nodes = [package(tmp_path, name, "lib/libx.a") for name in ("a", "b")]
    with pytest.raises(BuildError, match=r"Two packages have lib/libx\.a"):
        native.collect(graph_of(*nodes), tmp_path / "out")
    with pytest.raises(BuildError, match="no library"):
        native.collect(graph_of(package(tmp_path, "fxdiv", "include/fxdiv.h")), tmp_path / "none")


def test_a_manifest_says_where_everything_came_from(made: list[str]) -> None:
    built = native.build_native("linux-arm64", "zig")
    assert built.manifest.packages == ("xnnpack/1.0",)
    assert {entry.path for entry in built.manifest.files} >= {SBOM, "lib/libXNNPACK.a", "include/xnnpack.h"}
    with pytest.raises(BundleError, match="There are no native packages"):
        Native.load(built.path.parent / "nowhere")


def test_nothing_is_shared_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLIPWAY_CCACHE", "SLIPWAY_CCACHE_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CCACHE_REMOTE_STORAGE", "redis://elsewhere")
    monkeypatch.setenv("CONAN_PASSWORD", "secret")
    assert "CONAN_PASSWORD" not in conan._environment()
    assert "CCACHE_REMOTE_STORAGE" not in {**conan._environment(), **ccache.environment(Path("log"))}


FILES = (FileEntry(path="lib/libXNNPACK.a", size=1, sha256="b" * 64),)
GIT = {"place": "git", "url": "https://example.org/cpuinfo.git", "commit": "c" * 40}


def problems(document: dict[str, Any]) -> str:
    """What CycloneDX's own schema has against the document; empty when nothing."""
    return str(JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document)) or "")


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    xnnpack = package(tmp_path, "xnnpack", "lib/libXNNPACK.a", source=PIN)
    cpuinfo = package(tmp_path, "cpuinfo", "lib/libcpuinfo.a", source=GIT)
    tool = {**package(tmp_path, "cmake"), "context": "build"}
    wheel = package(tmp_path, "executorch", "lib/libexecutorch.so")
    wheel |= {
        "settings": {"arch": "armv8"},
        "conandata": {"wheels": {"1.0": {"armv8": {"file": "a.whl", "sha256": "d" * 64}, "x86_64": {"file": "x.whl"}}}},
    }
    xnnpack["dependencies"] = {
        "2": {"build": False, "direct": True}, "3": {"build": True, "direct": True},
        "4": {"build": False, "direct": False},
    }  # fmt: skip
    return sbom.write(graph_of(xnnpack, cpuinfo, tool, wheel), "slipway-native-linux-arm64", "0123", FILES)


def component(document: dict[str, Any], name: str) -> dict[str, Any]:
    (found,) = (item for item in document["components"] if item["name"] == name)
    return dict(found)


def test_it_is_what_the_schema_says(document: dict[str, Any]) -> None:
    assert document["specVersion"] == "1.6"
    assert problems(document) == ""
    document["components"][0]["hashes"] = "none"
    assert "hashes" in problems(document) or "none" in problems(document)


def test_it_names_versions_licences_sources_and_files(document: dict[str, Any]) -> None:
    xnnpack = component(document, "xnnpack")
    assert (xnnpack["version"], xnnpack["purl"]) == ("1.0", "pkg:conan/xnnpack@1.0?rrev=abc")
    assert xnnpack["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert xnnpack["properties"] == [{"name": "conan:package_id", "value": "def"}]
    assert document["metadata"]["component"]["name"] == "slipway-native-linux-arm64"
    assert document["metadata"]["component"]["version"] == "0123"
    (_, tarball) = component(document, "xnnpack")["externalReferences"]
    assert (tarball["type"], tarball["comment"]) == ("source-distribution", "xnnpack.tar.xz")
    assert tarball["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    (_, git) = component(document, "cpuinfo")["externalReferences"]
    assert (git["type"], git["url"], git["comment"]) == ("vcs", GIT["url"], f"commit {'c' * 40}")
    (_, wheel) = component(document, "executorch")["externalReferences"]
    assert (wheel["type"], wheel["comment"]) == ("distribution", "a.whl")
    assert wheel["hashes"] == [{"alg": "SHA-256", "content": "d" * 64}]
    file = component(document, "lib/libXNNPACK.a")
    assert (file["type"], file["hashes"]) == ("file", [{"alg": "SHA-256", "content": "b" * 64}])
    assert "cmake" not in {item["name"] for item in document["components"]}
    edges = {item["ref"]: item.get("dependsOn", []) for item in document["dependencies"]}
    assert edges["pkg:conan/xnnpack@1.0?rrev=abc"] == ["pkg:conan/cpuinfo@1.0?rrev=abc"]
