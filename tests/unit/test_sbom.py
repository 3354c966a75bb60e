"""The bill of materials: valid CycloneDX 1.6 that names versions, licences, sources and digests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from core.formats.bundle import FileEntry
from tests.unit.test_native import PIN, graph_of, package
from toolchains.bundle import sbom

FILES = (FileEntry(path="lib/libXNNPACK.a", size=1, sha256="b" * 64),)
GIT = {"place": "git", "url": "https://example.org/cpuinfo.git", "commit": "c" * 40}


def problems(document: dict[str, Any]) -> str:
    """What CycloneDX's own schema has against the document; empty when nothing."""
    found = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    return str(found or "")


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
    assert xnnpack["licenses"] == [{"license": {"id": "BSD-3-Clause"}}]
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
