"""The Conan package of ``runtime/``: the runner of an engine, or libslipway."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import BuildError
from core.files import locked
from core.paths import ROOT
from toolchains.bundle import conan, conan_packages, inputs
from toolchains.bundle.steps import Steps
from toolchains.targets import Target

_NAME = "slipway-runtime"


@dataclass(frozen=True)
class Request:
    """The package to have."""

    target: Target
    toolchain: str
    engine: str
    log: Path
    what: str
    """The purpose, for an error's first line."""
    compiling: str
    """What the step is called in which the compiler runs."""
    options: tuple[str, ...]
    """The recipe's options, ``engine=lean``."""
    conf: tuple[str, ...] = ()
    """Conan's configuration for this package alone, ``tools.build:sharedlinkflags=[]``."""
    force: bool = False


def make(request: Request, steps: Steps) -> tuple[Path, dict[str, Any]]:
    """Build the package unless Conan has this very one; its folder in Conan's cache, Conan's graph.

    Raises:
        BuildError, HostError: as `conan.conan`.
    """

    def heard(line: str) -> None:
        if line.startswith(f"Building from source {_NAME}/"):
            steps.begin(request.compiling)
        else:
            steps.heard(line)

    steps.begin("packaging the libraries of recipes/")
    words = conan_packages.words(request.target, request.toolchain, request.log)
    words += [f"--options={_NAME}/*:{option}" for option in request.options]
    words += [f"--conf={_NAME}/*:{conf}" for conf in request.conf]
    with locked(conan.LOCK, conan_packages.WAITING):
        exported = json.loads(conan.conan(["export", ROOT, "--format=json"], log=request.log, what=request.what))
    subject = [f"--requires={exported['reference']}"]
    force = (_NAME,) if request.force else ()
    wanted = conan_packages.Request(subject, words, request.log, request.what, force)
    graph = conan_packages.install(wanted, ["--envs-generation=false"], heard, steps.heard)
    inputs.hold_against(request.engine, graph)
    steps.begin(request.compiling)
    nodes = graph["nodes"].values()
    folder = next((node["package_folder"] for node in nodes if node.get("name") == _NAME), None)
    if not folder:
        raise BuildError("Conan made no package of runtime/.", "", f"less {request.log}")
    return Path(folder), graph


def reference(graph: dict[str, Any]) -> str:
    """The package's recipe in Conan's graph, with its revision."""
    nodes = graph["nodes"].values()
    return next(str(node["ref"]) for node in nodes if node.get("name") == _NAME)
