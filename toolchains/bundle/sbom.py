"""The bill of materials of what a build leaves: CycloneDX 1.6, from Conan's graph of the build.

It names packages with version, revision and licence, what depends on what, where the sources came from with their
digests, and every file that is delivered with its SHA-256.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from core.formats.bundle import FileEntry
from toolchains.compilers.linked_in import LinkedIn

Graph = Mapping[str, Any]
"""``graph`` of what ``conan install --format=json`` and its like print."""

RECORD = "licenses/source.json"
"""Where recipes/slipway_sources leaves in a package what its sources were."""


def host_nodes(graph: Graph) -> list[Mapping[str, Any]]:
    """The packages that are built for the target, without the consumer itself and what only tests it."""
    nodes = (node for key, node in graph["nodes"].items() if key != "0")
    return [node for node in nodes if node["context"] == "host" and not node["test"]]


def origin(node: Mapping[str, Any]) -> dict[str, str]:
    """Where a package's sources came from: ``place`` and its pins; empty when nothing is on record."""
    folder = node.get("package_folder")
    if folder and (file := Path(folder, RECORD)).is_file():
        return {key: str(value) for key, value in json.loads(file.read_text(encoding="utf-8")).items()}
    return {}


def _pinned_files(value: Any) -> list[tuple[str, str]]:
    """``(file, sha256)`` of every pin anywhere in a recipe's conandata.yml."""
    if not isinstance(value, Mapping):
        return []
    if isinstance(value.get("file"), str) and isinstance(value.get("sha256"), str):
        return [(value["file"], value["sha256"])]
    found = [(key, item) for key, item in value.items() if isinstance(item, str) and len(item) == 64]
    return found + [pin for item in value.values() for pin in _pinned_files(item)]


def _sources(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """CycloneDX's external references to a package's sources."""
    pins = origin(node)
    if pins.get("place") == "git":
        return [{"type": "vcs", "url": pins["url"], "comment": f"commit {pins['commit']}"}]
    if pins.get("place") == "debian":
        files = [(pins["file"], pins["sha256"])]
    else:
        arch = str((node.get("settings") or {}).get("arch", ""))
        version = ((node.get("conandata") or {}).values(), node.get("version"))
        rows = [row.get(version[1], {}) for row in version[0] if isinstance(row, Mapping)]
        files = [pin for row in rows for pin in _pinned_files(row.get(arch, row) if isinstance(row, Mapping) else row)]
    return [
        {
            "type": "distribution" if file.endswith((".deb", ".whl")) else "source-distribution",
            "url": f"urn:sha256:{digest}",
            "comment": file,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }
        for file, digest in files
    ]


def _purl(node: Mapping[str, Any]) -> str:
    return f"pkg:conan/{node['name']}@{node['version']}?rrev={node['rrev']}"


def _package(node: Mapping[str, Any]) -> dict[str, Any]:
    licence = node["license"]
    website = [{"type": "website", "url": node["homepage"]}] if node.get("homepage") else []
    return {
        "type": "library",
        "bom-ref": _purl(node),
        "name": node["name"],
        "version": node["version"],
        "description": node.get("description") or "",
        "purl": _purl(node),
        "licenses": [{"expression": licence if isinstance(licence, str) else " AND ".join(licence)}],
        "externalReferences": [*website, *_sources(node)],
        "properties": [{"name": "conan:package_id", "value": str(node.get("package_id"))}],
    }


def _linked(one: LinkedIn, toolchain: str) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "licenses": [{"expression": one.license}],
        "externalReferences": [{"type": "website", "url": one.homepage}],
        "properties": [{"name": "slipway:linked_in_by", "value": toolchain}],
    }


def _file(entry: FileEntry) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": entry.sha256}]
    return {"type": "file", "bom-ref": f"file:{entry.path}", "name": entry.path, "hashes": hashes}


def write(
    graph: Graph,
    name: str,
    version: str,
    files: Iterable[FileEntry],
    linked: Iterable[LinkedIn] = (),
    toolchain: str = "",
) -> dict[str, Any]:
    """The document as CycloneDX 1.6.

    Args:
        name: of what was built: ``slipway-native-linux-arm64``.
        version: the digest of what it was made from stands for a version.
        files: what is delivered.
        linked: what the compilers, ``toolchain``, put into it.
    """
    nodes = host_nodes(graph)
    packages = {key: node for key, node in graph["nodes"].items() if node in nodes}

    def direct(node: Mapping[str, Any]) -> list[str]:
        """The packages that one itself asks for, to be in what is delivered."""
        edges = ((packages.get(key), edge) for key, edge in node["dependencies"].items())
        return [_purl(other) for other, edge in edges if other and edge.get("direct", True) and not edge.get("build")]

    inside = [_linked(one, toolchain) for one in linked]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "component": {"type": "library", "bom-ref": name, "name": name, "version": version},
        },
        "components": [*map(_package, packages.values()), *inside, *map(_file, files)],
        "dependencies": [
            {"ref": name, "dependsOn": [*direct(graph["nodes"]["0"]), *(one["bom-ref"] for one in inside)]},
            *({"ref": _purl(node), "dependsOn": direct(node)} for node in packages.values()),
            *({"ref": one["bom-ref"]} for one in inside),
        ],
    }
