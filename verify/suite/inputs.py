"""What the tests of a file depend on: the files of the checkout that can change their result.

A file of tests says it by what it imports and what it names. From the modules that it imports, and from those of the
commands that it types, the imports are followed. Packages that an address or a format chooses at run time
(`CHOSEN`) count for a file that has one of their words. A folder beside a module counts with it. What cannot be told
from a text is in the tables below; ``tests/unit/test_suite.py`` holds them against the modules that the
commands of each file really loaded.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from core.files import sha256_file

EVERYWHERE = (
    ".ci",
    ".github",
    "core/environment/bootstrap.py",
    "inv",
    "locks",
    "pyproject.toml",
    "recipes",
)
"""Files and folders that count for all tests."""

TASKS = ("tasks.py",)
"""The tasks: of their functions, only those that a file of tests types are followed."""

_REMOTE = ("ssh", "board", "server")
_ANDROID = ("android", "adb", "phone")
_LEAN = ("lean", "armv6", "armv7", "pi2", "pi-zero", "sdk", "slipway_runtime", "windows", "sweep_program", *_ANDROID)
CHOSEN: Mapping[str, tuple[str, ...]] = {
    "deploy.lab": ("lab",),
    "deploy.transport.adb": _ANDROID,
    "deploy.transport.ssh": _REMOTE,
    "deploy.virtual": ("virtual",),
    "models.onnx": ("onnx",),
}
"""Packages that others import only where an address or a format asks for them, and the words that do. The name
of a virtual device is a word of ssh, adb and virtual, too."""

_DEVICES = ("deploy.transport.adb", "deploy.transport.ssh", "deploy.virtual")

FOLDERS: Mapping[str, tuple[str, ...]] = {
    "runtime/engines/lean": _LEAN,
    "runtime/engines/onnxruntime": ("onnx",),
    "runtime/library": _LEAN,
    "runtime/fuzz": ("fuzz",),
    "runtime/tests": ('"runtime"', "cpp_tests"),
    "runtime/bindings": ("bindings", "java", "aar", "wheel", "slipway_runtime", "python_package"),
    "runtime/examples": ("example",),
    "templates": ("template",),
    "action.yml": ("action",),
    "docs": ("docs", ".md", "readme"),
}
"""Folders without Python of ours, and the words of the files of tests that they count for."""

BUILDS = ("runtime", "conanfile.py")
"""What counts, besides `FOLDERS`, for tests that build: those that import `BUILDER`, or type a command that does."""

BUILDER = "toolchains.bundle"

ALL = ("tests/integration/test_readme.py", "tests/integration/test_tutorials.py")
"""Tests of commands that pages name: everything counts."""

_NO_MODULES = ("conanfile.py", "recipes", "runtime")
_ROOTED = re.compile(r'ROOT / "([\w.-]+)"')
_TYPED = re.compile(r"\binv(?:oke)? ([\w.-]+)")


def tracked(root: Path) -> dict[str, str]:
    """Digest of each file below ``root`` that git tracks or would, by its name.

    Raises:
        OSError, subprocess.CalledProcessError: it is not a checkout, or git is not there.
    """
    argv = ["git", "-C", os.fspath(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(argv, check=True, capture_output=True).stdout.decode(errors="surrogateescape")
    found: dict[str, str] = {}
    for name in sorted(set(listed.split("\0")) - {""}):
        path = root / name
        if path.is_symlink():
            found[name] = os.fspath(path.readlink())
        elif path.is_file():  # one that was deleted and not committed is listed, too
            found[name] = sha256_file(path) + ("x" if os.access(path, os.X_OK) else "")
    return found


def _below(name: str, folders: Iterable[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


@dataclass(frozen=True)
class Filed:
    """Where a file that is not a module of Python lies.

    Attributes:
        top: its first folder; empty for a file at the top of the checkout.
        folder: the entry of `FOLDERS` that it belongs to, or an empty text.
        loose: it lies at the top, in no table: it counts for all tests.
        built: it counts for all tests that build.
        parts: below ``tests/`` what a text may call it by, elsewhere its folders.
    """

    top: str
    folder: str
    loose: bool
    built: bool
    parts: frozenset[str]


def _filed(name: str) -> Filed:
    path = PurePosixPath(name)
    top = path.parts[0] if len(path.parts) > 1 else ""
    if top == "tests":
        parts = {part.partition(".")[0] for part in path.parts[2:] if not part.startswith("__")}
    else:
        parts = {os.fspath(parent) for parent in path.parents}
    folder = next((one for one in FOLDERS if _below(name, (one,))), "")
    if not top and path.suffix in {".md", ".svg"}:
        folder = "docs"
    built = _below(name, BUILDS)
    return Filed(top, folder, not (top or folder or built), built, frozenset(parts))


class Tree:
    """The modules of a checkout, and which imports which."""

    def __init__(self, root: Path, files: Iterable[str]) -> None:
        """Look at ``files``, named from ``root``."""
        self.root = root
        self.files = frozenset(files)
        names = {name for name in self.files if name.endswith(".py") and not _below(name, _NO_MODULES)}
        self.modules = {name[:-3].replace("/", ".").removesuffix(".__init__"): name for name in names}
        deep = {name for name in names if name.startswith("tests/") and name.count("/") > 2}  # a test names it
        self.others = {name: _filed(name) for name in sorted(self.files - names | deep)}
        self.everywhere = {name for name in self.files if _below(name, EVERYWHERE)}
        self._parsed: dict[str, ast.Module] = {}
        self._uses: dict[str, set[str]] = {}

    def text(self, name: str) -> str:
        """A file as text."""
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def parsed(self, name: str) -> ast.Module:
        """A file of Python."""
        if name not in self._parsed:
            self._parsed[name] = ast.parse(self.text(name))
        return self._parsed[name]

    def imported(self, node: ast.AST) -> set[str]:
        """Modules of the checkout that a piece of code imports, at its top or inside a function."""
        found: set[str] = set()
        for one in ast.walk(node):
            if isinstance(one, ast.Import):
                found |= {alias.name for alias in one.names}
            elif isinstance(one, ast.ImportFrom) and one.module:
                found |= {one.module} | {f"{one.module}.{alias.name}" for alias in one.names}
        return found & self.modules.keys()

    @cached_property
    def tasks(self) -> dict[str, set[str]]:
        """The modules that each task imports when it runs, by every word that it is called by."""
        found: dict[str, set[str]] = {}
        for file in sorted(self.files & set(TASKS)):
            for node in self.parsed(file).body:
                if isinstance(node, ast.FunctionDef):
                    for word in {node.name, node.name.replace("_", "-"), *_given_names(node)}:
                        found.setdefault(word, set()).update(self.imported(node))
        return found

    def uses(self, module: str) -> set[str]:
        """The modules that ``module`` imports; of a file of tasks, those that every task needs."""
        if module not in self._uses:
            file = self.modules[module]
            parsed = self.parsed(file)
            if file in TASKS:
                parsed = ast.Module([node for node in parsed.body if not isinstance(node, ast.FunctionDef)], [])
            self._uses[module] = self.imported(parsed)
        return self._uses[module]

    def closure(self, modules: Iterable[str], barred: Iterable[str] = ()) -> set[str]:
        """``modules``, and all that they import, but for packages that are ``barred``."""
        closed = tuple(barred)
        found: set[str] = set()
        ahead = set(modules)
        while ahead:
            module = ahead.pop()
            found.add(module)
            parents = {module.rpartition(".")[0]} & self.modules.keys()
            for used in (self.uses(module) | parents) - found:
                inside = next((one for one in closed if used == one or used.startswith(f"{one}.")), None)
                if inside is None or module.startswith(inside):
                    ahead.add(used)
        return found


def _given_names(node: ast.FunctionDef) -> Iterator[str]:
    """``add`` of ``@task(name="add")``."""
    for call in (one for one in node.decorator_list if isinstance(one, ast.Call)):
        for keyword in call.keywords:
            if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                yield str(keyword.value.value)


def _strings(node: ast.AST) -> Iterator[str]:
    return (one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str))


class Suite:
    """A file of tests: the files below ``tests/`` that it consists of, and what it names."""

    def __init__(self, tree: Tree, file: str) -> None:
        """Read ``file`` and what it imports of ``tests/``."""
        self.tree = tree
        folders = [os.fspath(parent / "conftest.py") for parent in PurePosixPath(file).parents]
        shared = {name[:-3].replace("/", ".") for name in folders if name in tree.files}
        own = {file[:-3].replace("/", ".")} | shared - {"tests.conftest"}
        ahead = set(own)
        while ahead:
            module = ahead.pop()
            found = {one for one in tree.uses(module) if one.startswith("tests.")} - own - {"tests.conftest"}
            own |= found
            ahead |= found
        self.modules = own
        self.own = {tree.modules[module] for module in own}
        self.text = "\n".join(tree.text(name) for name in sorted(self.own))
        self.strings = {text for name in self.own for text in _strings(tree.parsed(name))}
        self._has: dict[tuple[str, ...], bool] = {}

    def has(self, words: tuple[str, ...]) -> bool:
        """Whether a word of the texts begins with one of these, in any case."""
        if words not in self._has:
            some = rf"(?<![a-z])(?:{'|'.join(map(re.escape, words))})"
            self._has[words] = bool(re.search(some, self.text, re.IGNORECASE))
        return self._has[words]

    def python(self) -> set[str]:
        """The modules outside ``tests/`` that its tests may run."""
        tree = self.tree
        roots = set().union(*(tree.uses(module) for module in self.modules))
        roots |= {text for text in self.strings if "." in text and text in tree.modules}
        if re.search(r"\binv\b", self.text):
            words = self.strings | {word for text in self.strings for word in _TYPED.findall(text)}
            typed = {word.rpartition(".")[2] for word in words} & tree.tasks.keys()
            roots |= {"tasks"} & tree.modules.keys()
            roots |= set().union(*(tree.tasks[word] for word in typed or tree.tasks))
        if "native_packages" in self.text:  # a fixture of tests/conftest.py
            roots |= {"verify.suite.shared"} & tree.modules.keys()
        return tree.closure({one for one in roots if not one.startswith("tests")}, self._barred(roots))

    def _barred(self, roots: set[str]) -> list[str]:
        named = self._devices & {word for text in self.strings for word in re.split(r"[\s,]+", text)}
        return [
            package
            for package, words in CHOSEN.items()
            if not (self.has(words) or (named and package in _DEVICES))
            and not any(one == package or one.startswith(f"{package}.") for one in roots)
        ]

    @cached_property
    def _devices(self) -> set[str]:
        table = "deploy/virtual/virtual.toml"
        text = self.tree.text(table) if table in self.tree.files else ""
        return set(re.findall(r"^\[device\.([\w-]+)\]", text, re.MULTILINE))

    def needs(self) -> set[str]:
        """Every file that counts."""
        if self.tree.files & set(ALL) & self.own:
            return set(self.tree.files)
        modules = self.python()
        found = {self.tree.modules[module] for module in modules} | self.own | self.tree.everywhere
        folders = {name.rpartition("/")[0] for name in found - self.own} - {""}
        rooted = set(_ROOTED.findall(self.text))
        builds = any(module.startswith(BUILDER) for module in modules)
        chosen = {folder for folder, words in FOLDERS.items() if self.has(words)}
        if not builds:
            chosen -= {folder for folder in chosen if folder.startswith("runtime")}
        for name, filed in self.tree.others.items():
            if filed.top in rooted:
                found.add(name)
            elif filed.top == "tests":
                if any(part in self.text for part in filed.parts):
                    found.add(name)
            elif filed.folder:
                if filed.folder in chosen:
                    found.add(name)
            elif filed.loose or (builds and filed.built) or not folders.isdisjoint(filed.parts):
                found.add(name)
        return found
