"""From Conan packages to ``dist/<target>/native``: what goes in, the checks on it, the manifest."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import BuildError
from core.files import write_json
from core.formats.bundle import MANIFEST, SBOM, Checks, NativeManifest, NativePackage
from toolchains.bundle import sbom
from toolchains.bundle.layout import copy, entries
from toolchains.targets import Target

LIBRARIES = (".a", ".lib", ".so", ".dylib", ".dll")


@dataclass(frozen=True)
class Origin:
    """The inputs and the purpose of native packages."""

    target: Target
    toolchain: str
    """The compilers, for the manifest: ``zig 0.17.0``."""
    sources: Literal["debian", "git"]
    digest: str
    """Of everything they were made from."""


def collect(graph: sbom.Graph, out: Path) -> None:
    """Copy libraries, headers and licences of every package of the graph to ``out``.

    Raises:
        BuildError: two packages have a file of the same name, or there are no libraries.
    """
    for node in sbom.host_nodes(graph):
        package = Path(node["package_folder"])
        for file in sorted(package.rglob("*")):
            inside = file.relative_to(package)
            top = inside.parts[0]
            if not file.is_file() or top not in ("lib", "include", "licenses"):
                continue
            if top == "lib" and file.suffix not in LIBRARIES:
                continue
            target = out / (Path("licenses", node["name"], *inside.parts[1:]) if top == "licenses" else inside)
            if target.exists():
                raise BuildError(f"Two packages have {inside}.", f"one is {node['ref']}", "fix the recipe")
            copy(file, target, 0o644)
    if not (out / "lib").is_dir():
        raise BuildError("The packages have no library.", "Conan's graph is empty", "./inv build --packages --force")


def kleidiai(target: Target, graph: sbom.Graph) -> tuple[bool, str]:
    """The KleidiAI version that XNNPACK was built with, or why there is none."""
    for node in sbom.host_nodes(graph):
        if node["name"] == "kleidiai":
            prebuilt = sbom.origin(node).get("place") == "debian"
            how = "as Debian compiled it" if prebuilt else "compiled from upstream's git"
            return True, f"kleidiai/{node['version']}, {how}"
    if target.machine != "aarch64":
        return False, "KleidiAI is for 64-bit Arm"
    return False, f"Debian's KleidiAI is for Linux; for {target.os} INVOKE_SLIPWAY_SOURCES=git compiles upstream's"


def notes(target: Target, toolchain: str) -> tuple[str, ...]:
    """What a user must know about these packages."""
    if target.os == "android" and toolchain.partition(" ")[0] != "ndk":
        return ("Android without an NDK: static programs with musl, not bionic; they use no library of Android's",)
    return ()


def describe(origin: Origin, folder: Path, graph: sbom.Graph, checked: Checks | None = None) -> NativeManifest:
    """Write the bill of materials and the manifest of what is in ``folder``."""
    target = origin.target
    delivered = entries(folder)
    name = f"slipway-native-{target.name}"
    document = sbom.write(graph, name, origin.digest[:16], delivered)
    write_json(folder / SBOM, document)
    with_kleidiai, why = kleidiai(target, graph)
    manifest = NativeManifest(
        target=target.name,
        toolchain=origin.toolchain,
        created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        isa_floor=target.isa_floor,
        libc=target.libc,
        sources=origin.sources,
        kleidiai=with_kleidiai,
        kleidiai_note=why,
        notes=notes(target, origin.toolchain),
        checks=checked,
        packages=tuple(
            NativePackage(
                name=node["name"],
                version=node["version"],
                license=str(node["license"]),
                revision=node["rrev"],
                package_id=node["package_id"],
                source=sbom.origin(node),
            )
            for node in sbom.host_nodes(graph)
        ),
        files=entries(folder),
    )
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
    return manifest
