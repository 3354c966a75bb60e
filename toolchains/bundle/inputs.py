"""The inputs of a build: the files that count, and their digest.

Files count by their folder and their suffix, so that a stray file (of an editor or a compiler) does not cause a
rebuild. Git is not used: a newcomer's machine need not have it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from core.errors import BuildError, UsageError
from core.files import sha256_bytes, sha256_file
from core.paths import ROOT
from toolchains import tools
from toolchains.targets import Target

XNNPACK = "XnnpackBackend"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*::[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_LONGEST = 48


@dataclass(frozen=True)
class Selection:
    """What some programs need of the engine ``lean``."""

    programs: tuple[str, ...]
    """Names of the programs, for people and for the folder's name."""
    operators: tuple[str, ...]
    backends: tuple[str, ...]
    types: tuple[str, ...] = ()
    """Types that the kernels of delegates compute with (``xnnpack::f32_layers``); empty: all."""

    @property
    def name(self) -> str:
        """What the bundle's folder has after the engine's name: ``mlp-fp32``, or ``a+b``; the same at every build."""
        joined = "+".join(re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.") or "program" for name in self.programs)
        digest = sha256_bytes(joined.encode())[:8]
        return joined if len(joined) <= _LONGEST else f"{joined[: _LONGEST - 9]}-{digest}"

    @property
    def options(self) -> tuple[str, ...]:
        """The recipe's options for it. Neither ``:`` nor ``,`` may be in them."""
        operators = "+".join(name.replace("::", "/") for name in self.operators) or "none"
        backends = "+".join(self.backends) or "none"
        types = "+".join(name.replace("::", "/") for name in self.types) or "all"
        return (f"operators={operators}", f"backends={backends}", f"types={types}")


def select(
    programs: Iterable[str], operators: Iterable[str], backends: Iterable[str], types: Iterable[str] = ()
) -> Selection:
    """The selection for programs that need these operators, backends, and types of their kernels (none: all).

    Raises:
        UsageError: no program is given, or a name in one is not an operator's.
    """
    chosen = Selection(
        tuple(programs), tuple(sorted(set(operators))), tuple(sorted(set(backends))), tuple(sorted(set(types)))
    )
    if not chosen.programs:
        raise UsageError("--ops-from does not name a program.", "", "./inv build --ops-from model.pte")
    if strange := [name for name in (*chosen.operators, *chosen.types) if not _NAME.fullmatch(name)]:
        raise UsageError(f"{strange[0]!r} is not an operator's name.", "the program is damaged", "export it again")
    return chosen


NATIVE = "native"
"""The kind of build that makes native packages; the other kinds are engines, which make bundles."""

_XNNPACK = ("cpuinfo", "flatbuffers", "fxdiv", "kleidiai", "pthreadpool", "slipway_sources", "xnnpack")
RECIPES: Mapping[str, tuple[str, ...]] = {
    NATIVE: _XNNPACK,
    "lean": (*_XNNPACK, "executorch", "xnnpack_internals"),
    "executorch": ("executorch", "flatbuffers", "slipway_sources"),
    "onnxruntime": ("onnxruntime", "slipway_sources"),
}
"""Folders of ``recipes/`` that a build takes packages from; `hold_against` compares them with Conan's graph."""

_RUNNER = ("runtime/CMakeLists.txt", "runtime/base", "runtime/include", "runtime/runner", "runtime/text")
SOURCES: Mapping[str, tuple[str, ...]] = {
    NATIVE: (),
    "lean": (*_RUNNER, "runtime/program", "runtime/engines/lean", "runtime/library", "conanfile.py", "LICENSE"),
    "executorch": (*_RUNNER, "runtime/program", "runtime/engines/executorch", "conanfile.py", "LICENSE"),
    "onnxruntime": (*_RUNNER, "runtime/engines/onnxruntime", "conanfile.py", "LICENSE"),
}
"""Files and folders of the checkout, besides recipes, that go into a build."""

KINDS = frozenset({".c", ".cmake", ".cpp", ".h", ".hpp", ".in", ".ld", ".map", ".patch", ".py", ".sh", ".toml", ".yml"})
"""Suffixes of the files that count within a folder, besides every ``CMakeLists.txt``."""

_OURS = (
    *(f"toolchains/{name}" for name in ("bundle", "compilers", "inspect", "tools.py", "systems.toml")),
    "toolchains/debian/fetch_source.py",
    "core/formats/bundle.py",
)
"""Modules and tables that decide a build's result, the manifest's schema among them. Of the other tables, the used rows
count."""
_TOOLS: Mapping[str, tuple[str, ...]] = {NATIVE: ("libstdcxx", "native", "ziglang")}
_RUNNERS_TOOLS = ("libstdcxx", "ziglang")


def files(kind: str) -> Iterator[tuple[str, Path]]:
    """Every file that a build of a kind (`NATIVE`, or an engine) is made from, with its path in the checkout."""
    for name in (*SOURCES[kind], *(f"recipes/{recipe}" for recipe in RECIPES[kind]), *_OURS):
        top = ROOT / name
        for file in [top] if top.is_file() else top.rglob("*"):
            path = file.relative_to(ROOT)
            if file.is_file() and (file == top or _counts(path)):
                yield path.as_posix(), file


def _counts(path: Path) -> bool:
    known = path.suffix in KINDS or path.name == "CMakeLists.txt"
    return known and not {"__pycache__", "test_package"} & set(path.parts)


def digest(kind: str, target: Target, *facts: object) -> str:
    """The digest of everything that decides a build's result; an unchanged digest means nothing to do.

    Args:
        facts: what else was chosen: compilers, options.
    """
    rows = {name: tools.table()[name] for name in _TOOLS.get(kind, _RUNNERS_TOOLS)}
    said = [kind, repr(target), json.dumps(rows, sort_keys=True), *map(repr, facts)]
    said += [f"{name} {version(name)}" for name in ("conan", "cmake", "ninja")]
    said += [f"{name} {sha256_file(file)}" for name, file in sorted(files(kind))]
    return sha256_bytes("\n".join(said).encode())


def hold_against(kind: str, graph: Mapping[str, Any]) -> None:
    """Compare `RECIPES` with the graph that Conan built.

    Raises:
        BuildError: a package comes from a recipe whose changes would build nothing again.
    """
    nodes = [node for node in graph["nodes"].values() if node.get("name")]
    names = {node["name"] for node in nodes}
    names |= {str(ref).partition("/")[0] for node in nodes for ref in node.get("python_requires") or ()}
    if missing := sorted(names - set(RECIPES[kind]) - {"slipway-runtime"}):
        raise BuildError(
            f"The digest of {kind} does not count recipes/{missing[0]}.",
            "a recipe requires a package that it did not require before",
            f"add {', '.join(missing)} to RECIPES in toolchains/bundle/inputs.py",
            missing,
        )
