"""Data flows one way, between rooms and between folders of C++; modules stay short, and errors say what to do next."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import pytest

from core import errors
from core.paths import ROOT
from verify.house import ROOMS, passages


def _within(room: str, packages: str) -> list[str]:
    return [f"{room}.{package}" for package in packages.split()]


# A room's own name stands for the modules of the folder itself.
LEVELS = (
    "core",  # errors, paths
    *_within("core", "console files processes environment cli formats"),
    "toolchains",  # the tables
    *_within("toolchains", "debian compilers inspect emulation bundle doctor"),
    *_within("models", "zoo users request methods loading lowering reference samples onnx"),
    "models",  # export, and what users import
    *_within("deploy", "scripts transport transport.adb transport.ssh virtual devices lab store run matrix upkeep"),
    "deploy",  # tasks, and what pytest loads
    "commands",
    *_within("verify", "tables programs suite sound operators bench fuzz agree site"),
    "verify",  # tasks, and the docs' tables
    *("tasks", "tests"),
)
"""Packages from the ground up: each imports only those before it, and itself."""
ONLY = {"core": ("core",), "toolchains": ("core", "toolchains"), "models": ("core", "models")}
"""Rooms that import fewer than the levels below them."""
NOT_FOR_DEPLOY = {"models", "toolchains.bundle.builder", "toolchains.bundle.conan", "conan", "torch", "executorch"}
ONLY_MODELS = {"torch", "torchao", "executorch"}
KINDS = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
"""Classes of errors."""


def module_of(file: Path) -> str:
    """The name by which ``file`` is imported."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _files(room: str) -> list[Path]:
    return sorted((ROOT / room).rglob("*.py"))


MODULES = {module_of(file): file for room in (*ROOMS, "tests") for file in _files(room)} | {"tasks": ROOT / "tasks.py"}
"""Every module of ours, tests included, by its name."""


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
            found |= names if names <= MODULES.keys() else names | {node.module}
    return frozenset(found)


@functools.cache
def ours(module: str) -> frozenset[str]:
    """The modules of ours that ``module`` imports."""
    return frozenset(name for name in imports(MODULES[module]) if name in MODULES) - {module}


def _level(module: str) -> int:
    """Of the package that the module is filed in, by its longest name that is a level."""
    name = module
    while name not in LEVELS:
        name = name.rpartition(".")[0]
    return LEVELS.index(name)


@pytest.mark.parametrize("room", ROOMS)
def test_a_package_imports_only_what_lies_below_it(room: str) -> None:
    assert _files(room)
    for module in (name for name in MODULES if name.partition(".")[0] == room):
        for name in ours(module):
            assert _level(name) <= _level(module), f"{module} imports {name}"
            assert name.partition(".")[0] in ONLY.get(room, (name.partition(".")[0],)), f"{module} imports {name}"


def test_no_module_imports_itself_by_way_of_others() -> None:
    packages = {name for name, file in MODULES.items() if file.name == "__init__.py"}
    graph = {module: ours(module) - packages for module in MODULES}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"a circle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("room", ROOMS)
def test_large_libraries_stay_in_their_room(room: str) -> None:
    for file in _files(room):
        for name in imports(file):
            top = name.partition(".")[0]
            assert room in ("models", "verify") or top not in ONLY_MODELS, f"{file.relative_to(ROOT)} imports {name}"
            assert room != "deploy" or not {top, name} & NOT_FOR_DEPLOY, f"{file.relative_to(ROOT)} imports {name}"


def test_only_tests_import_tests_and_the_docs_hold_no_code() -> None:
    for module, file in MODULES.items():
        if not module.startswith("tests"):
            assert not any(name.startswith("tests") for name in imports(file)), module
    assert not list((ROOT / "docs").rglob("*.py"))


@pytest.mark.parametrize("room", [*ROOMS, "tests"])
def test_modules_stay_short(room: str) -> None:
    for file in _files(room):
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 500, file.relative_to(ROOT)


def _without(source: str) -> list[int]:
    """Lines where an error is made without a hint, or with an empty one."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS):
            continue
        if any(isinstance(each, ast.Starred) for each in node.args):
            continue
        hints = [*node.args[2:3], *(word.value for word in node.keywords if word.arg == "hint")]
        if not hints or (isinstance(hints[0], ast.Constant) and not hints[0].value):
            found.append(node.lineno)
    return found


def test_no_error_is_made_without_a_next_step() -> None:
    calls = ['"a", "b"', '"a", "b", ""', '"a", "b", "c"', '"a", hint="c"', "*all"]
    assert _without("\n".join(f"RunError({words})" for words in calls)) == [1, 2]
    sources = {name: file for name, file in MODULES.items() if not name.startswith("tests")}
    lacking = {name: lines for name, file in sources.items() if (lines := _without(file.read_text(encoding="utf-8")))}
    assert lacking == {}
    assert module_of(ROOT / "deploy/run/npy.py") in sources


def test_a_repeated_passage_counts_once_however_long_it_is() -> None:
    lines = [f"line {number}" for number in range(9)]
    assert list(passages({"a": lines, "b": ["other", "", *lines[2:]]})) == [(("a", 2), ("b", 1))]
    assert list(passages({"a": lines[:5], "b": lines[:5]})) == []


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
