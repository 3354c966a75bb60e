"""The C++ of ``runtime``: includes lead to lower floors only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from core.paths import ROOT

_LEAN = tuple(f"engines/lean/{floor}" for floor in ("data", "kernels", "xnnpack", "kleidiai", "method"))
# Folders, the lowest first. A file may include what a row has before its own folder; tests may include everything.
_FLOORS = (
    ("include", "base", "program", *_LEAN, "engines/lean", "text", "library"),
    ("include", "base", "program", "engines/executorch"),
    ("include", "base", "engines/onnxruntime"),
    ("include", "base", "program", "fuzz"),
    ("include", "base", "text", "runner", "fuzz"),
)
_SEARCHED = ("", "include", "engines", "program")
"""Folders that files are included from by their path, besides the including file's own."""

_INCLUDE = re.compile(r'^#\s*include ["<]([\w./]+)[">]', re.MULTILINE)


def floor(name: str) -> str:
    """The folder of ``_FLOORS`` that a file lies in."""
    return max((one for row in _FLOORS for one in row if name.startswith(f"{one}/")), key=len)


def included(name: str, files: Mapping[str, str]) -> set[str]:
    """The files among ``files`` that the one of that name includes."""
    folders = (PurePosixPath(name).parent, *map(PurePosixPath, _SEARCHED))
    paths = {str(folder / what) for what in _INCLUDE.findall(files[name]) for folder in folders}
    return paths & files.keys()


def upward(files: Mapping[str, str]) -> list[str]:
    """The includes that do not point down, of sources by their path in ``runtime/``."""
    found = []
    for name in files:
        own = floor(name)
        lower = {own}.union(*(row[: row.index(own)] for row in _FLOORS if own in row))
        found += [f"{name}: {what}" for what in sorted(included(name, files)) if floor(what) not in lower]
    return found


def test_includes_point_down() -> None:
    runtime = ROOT / "runtime"
    paths = [path for path in runtime.rglob("*") if path.suffix in {".cpp", ".h", ".hpp"}]
    files = {path.relative_to(runtime).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    files = {name: text for name, text in files.items() if not name.startswith(("bindings/", "examples/", "tests/"))}
    assert sum(len(included(name, files)) for name in files) > 400  # the pattern still matches
    assert upward(files) == []


@pytest.mark.parametrize(
    ("name", "include", "points_down"),
    [
        ("engines/lean/kernels/copy.cpp", '"lean/data/evalue.h"', True),
        ("engines/lean/data/evalue.h", '"lean/kernels/copy.cpp"', False),
        ("base/text.h", '"runner/json.h"', False),
        ("runner/json.h", "<slipway/slipway.h>", True),
        ("runner/json.h", '"program_file.h"', False),
        ("library/program.cpp", '"runner/json.h"', False),
    ],
)
def test_an_include_that_points_up_is_found(name: str, include: str, points_down: bool) -> None:
    others = ("engines/lean/data/evalue.h", "engines/lean/kernels/copy.cpp", "runner/json.h", "program/program_file.h")
    files = {**dict.fromkeys((*others, "include/slipway/slipway.h"), ""), name: f"#include {include}\n"}
    assert (upward(files) == []) is points_down
