"""The C++ of ``runtime``: names without linkage are in one file of a target, and includes lead to lower floors only."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from core.paths import ROOT

RUNTIME = ROOT / "runtime"

_COMMON = ("base", "runner", "runner/files", "runner/report")

# The folders of each target's files.
_TARGETS = {
    "common": _COMMON,
    "common-windows": _COMMON,
    "common-macos": _COMMON,
    "program": ("program",),
    "executorch": ("engines/executorch",),
    "lean": tuple(f"engines/lean{floor}" for floor in ("", "/data", "/kernels", "/kleidiai", "/method", "/xnnpack")),
    "library": ("library",),
    "onnxruntime": ("engines/onnxruntime",),
    "fuzz-parts": ("fuzz",),
    "fuzz-sweep": ("fuzz",),
    "tests-executorch": ("tests", "tests/program", "tests/executorch"),
    "tests-lean": ("tests", "tests/program", "tests/lean"),
    "tests-onnxruntime": ("tests", "tests/onnxruntime"),
    "tests-tails": ("tests/tails",),
}
# Files for other systems, and those that are compiled alone.
_OTHERS = {
    "common": re.compile(r"_(windows|macos)\.cpp$"),
    "common-windows": re.compile(r"_(posix|linux|macos)\.cpp$"),
    "common-macos": re.compile(r"_(windows|linux)\.cpp$"),
    "fuzz-parts": re.compile(r"^(?!exercise|fields)"),
    "fuzz-sweep": re.compile(r"^(?!sweep|guarded_memory)"),
    "lean": re.compile(r"^(dynamic8|half|single|static8)\.cpp$"),
}

_UNNAMED = re.compile(r"^namespace \{$(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(
    r"^(?:template <[^\n]*>\n)?(?!template|static_assert|using|return)\w[\w:<>,&* ]*[ *&](\w+)\(", re.MULTILINE
)


def functions(source: str) -> set[str]:
    """Names of functions in the unnamed namespaces of a file that clang-format has formatted."""
    return {name for part in _UNNAMED.findall(source) for name in _FUNCTION.findall(part)}


def test_functions_of_an_unnamed_namespace_are_found() -> None:
    template = "template <typename T>\nconst T* three() {\n}\n"
    source = f"namespace {{\nint one(int a) {{\n  return two(a);\n}}\n{template}}}  // namespace\nint four();\n"
    assert functions(source) == {"one", "three"}


@pytest.mark.parametrize("target", sorted(_TARGETS))
def test_a_function_without_linkage_is_in_one_file_of_a_target(target: str) -> None:
    files = defaultdict(set)
    for folder in _TARGETS[target]:
        for path in (RUNTIME / folder).glob("*.cpp"):
            if not (target in _OTHERS and _OTHERS[target].search(path.name)):
                for name in functions(path.read_text(encoding="utf-8")):
                    files[name].add(path.name)
    assert sum(len(found) for found in files.values()) > 5  # the pattern still matches
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


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
