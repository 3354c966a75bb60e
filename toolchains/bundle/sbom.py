"""The bill of materials of what a build leaves: CycloneDX 1.6, written by Conan's own tool from the build's graph.

Conan names packages, versions, licences and what depends on what; added here are where the sources came from with
their digests, the packages' revisions, and every file that is delivered with its SHA-256.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
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
    file = Path(folder, RECORD) if folder else None
    if file is not None and file.is_file():
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


def _node(key: str, node: Mapping[str, Any]) -> SimpleNamespace:
    """A node as Conan's tool reads one."""
    reference, _, revision = node["ref"].partition("#")
    name, _, version = reference.partition("/")
    facts = {key: node.get(key) for key in ("author", "description", "homepage", "license", "package_type")}
    ref = SimpleNamespace(name=name, version=version, revision=revision.partition("%")[0], user=None, channel=None)
    conanfile = SimpleNamespace(**facts, output=SimpleNamespace(warning=lambda *_, **__: None))
    return SimpleNamespace(
        key=key, name=name, ref=ref, conanfile=conanfile, context=node["context"], test=node["test"], edges=[]
    )


def _direct(edge: Mapping[str, Any]) -> bool:
    """Whether a package itself asks for the other, to be in what is delivered."""
    return bool(edge.get("direct", True)) and not edge.get("build")


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
        name: of what was built: ``slipway native linux-arm64``.
        version: the digest of what it was made from stands for a version.
        files: what is delivered.
        linked: what the compilers, ``toolchain``, put into it.
    """
    from conan.tools.sbom import cyclonedx_1_6

    kept = {
        "0": graph["nodes"]["0"],
        **{key: node for key, node in graph["nodes"].items() if node in host_nodes(graph)},
    }
    nodes = {key: _node(key, node) for key, node in kept.items()}
    for key, node in kept.items():
        direct = (other for other, edge in node["dependencies"].items() if other in nodes and _direct(edge))
        nodes[key].edges = [SimpleNamespace(dst=nodes[other]) for other in direct]
    root = nodes["0"]
    # Whatever the consumer is called in Conan, the document is about what was built from it.
    root.ref.revision = ""
    extra = {}
    for key, node in kept.items():
        if key == "0":
            continue
        website = [{"type": "website", "url": node["homepage"]}] if node.get("homepage") else []
        extra[f"{nodes[key].name}/{nodes[key].ref.version}"] = {
            "purl": f"pkg:conan/{nodes[key].name}@{nodes[key].ref.version}?rrev={nodes[key].ref.revision}",
            "externalReferences": [*website, *_sources(node)],
            "properties": [{"name": "conan:package_id", "value": str(node.get("package_id"))}],
        }
        # Conan's tool takes any text for the id of one licence.
        if " AND " in str(node.get("license")):
            extra[f"{nodes[key].name}/{nodes[key].ref.version}"]["licenses"] = [{"expression": node["license"]}]
    consumer = SimpleNamespace(
        subgraph=SimpleNamespace(root=root, nodes=list(nodes.values())), author=None, package_type="library"
    )
    document: dict[str, Any] = cyclonedx_1_6(consumer, name=name, extra_info=extra)
    document["metadata"]["component"]["version"] = version
    inside = [_linked(one, toolchain) for one in linked]
    document.setdefault("components", []).extend(inside)
    of = {item["ref"]: item for item in document.setdefault("dependencies", [])}
    if inside:
        of[document["metadata"]["component"]["bom-ref"]].setdefault("dependsOn", []).extend(
            one["bom-ref"] for one in inside
        )
        document["dependencies"].extend({"ref": one["bom-ref"]} for one in inside)
    document["components"].extend(
        {
            "type": "file",
            "bom-ref": f"file:{entry.path}",
            "name": entry.path,
            "hashes": [{"alg": "SHA-256", "content": entry.sha256}],
        }
        for entry in files
    )
    return document
