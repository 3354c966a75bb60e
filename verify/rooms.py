"""The modules and their imports, from the code, and the table of packages of ``docs/architecture.md``."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

from core.paths import ROOT

ROOMS = ("core", "toolchains", "models", "deploy", "commands", "verify")
"""The packages of Python, from the lowest level up."""


def module_of(file: Path) -> str:
    """The name by which ``file`` is imported."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def modules() -> Mapping[str, Path]:
    """Every module of ours, tests included, by its name."""
    files = [file for room in (*ROOMS, "tests") for file in sorted((ROOT / room).rglob("*.py"))]
    return {module_of(file): file for file in (*files, ROOT / "tasks.py")}


@functools.cache
def imports(file: Path) -> frozenset[str]:
    """Every name that ``file`` imports, at its top or inside a function."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            # A package that only lends its name to its modules is not used itself.
            found |= names if names <= modules().keys() else names | {node.module}
    return frozenset(found)


@functools.cache
def ours(module: str) -> frozenset[str]:
    """The modules of ours that ``module`` imports."""
    known = modules()
    return frozenset(name for name in imports(known[module]) if name in known) - {module}


def sentences() -> str:
    """The table of packages: each with the first line of its docstring."""
    lines = ["| package | what is in it |\n", "|---|---|\n"]
    for room in ROOMS:
        for file in sorted((ROOT / room).rglob("__init__.py"), key=lambda found: found.parent.parts):
            text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
            name = file.parent.relative_to(ROOT).as_posix()
            lines.append(f"| `{name}/` | {text.splitlines()[0] if text else ''} |\n")
    return "".join(lines)
