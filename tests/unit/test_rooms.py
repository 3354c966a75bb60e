"""Data flows one way: which room may import which."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from core.paths import ROOT

ROOMS = {
    "core": {"core"},
    "toolchains": {"core", "toolchains"},
    "models": {"core", "models"},
    "deploy": {"core", "toolchains", "deploy"},
}
EVERYWHERE = {"core", "toolchains", "models", "deploy", "tests", "docs", "tasks"}
NOT_FOR_DEPLOY = {"toolchains.builder", "toolchains.conan", "conan", "torch", "executorch"}
ONLY_MODELS = {"torch", "torchao", "executorch"}
LONGEST = 500
"""Lines a module may have."""


def _imports(file: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_before_it(room: str) -> None:
    assert _files(room)
    for file in _files(room):
        for name in _imports(file):
            top = name.partition(".")[0]
            assert top not in EVERYWHERE or top in ROOMS[room], f"{file.relative_to(ROOT)} imports {name}"
            assert room == "models" or top not in ONLY_MODELS, f"{file.relative_to(ROOT)} imports {name}"
            assert room != "deploy" or name not in NOT_FOR_DEPLOY, f"{file.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize("room", [*ROOMS, "tests", "docs"])
def test_modules_stay_short(room: str) -> None:
    for file in _files(room):
        assert len(file.read_text(encoding="utf-8").splitlines()) <= LONGEST, file.relative_to(ROOT)
