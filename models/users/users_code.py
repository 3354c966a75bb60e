"""Importing and calling what users wrote, with their own line in the error when it fails. Without torch."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from core.aside import aside
from core.errors import ConfigError, ExportError, did_you_mean, near
from core.paths import IMPORTS
from models.users import packages
from models.users.watching import Watch

_ADVICE = ("For more debugging", "For more information", "For C++ stack", "TORCHDYNAMO_", "TORCH_LOGS", "draft_export")


def last_lines(error: BaseException) -> str:
    """The first line of an exception's message and its last ones, without torch's advice to its own developers."""
    said = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in said if not any(word in line for word in _ADVICE)]
    return "\n".join(lines[:1] + lines[1:][-4:]) or type(error).__name__


def _line_of(error: BaseException, file: Path) -> str:
    """``line 12`` of the user's file, when the error passed through it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


def _lacking(path: Path) -> str:
    """Why ``path`` may not be there: a misspelt name, or another folder."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    found = near(path.name, sorted(file.name for file in folder.glob("*.py")))
    return did_you_mean(found) or f"{folder.resolve()} has no file of this name"


def is_function(text: str) -> bool:
    """Whether ``text`` names a function of a file."""
    return ".py:" in text


def function_in(named: str, option: str = "--model ") -> tuple[Path, str]:
    """File and function of ``path/to/file.py:function``; nothing of it runs.

    Args:
        option: what the name stands behind.

    Raises:
        ConfigError: there is no such file, or no such function in it. ExportError: it is not Python.
    """
    text, _, function = named.rpartition(":")
    if named.endswith(".py"):
        text, function = named, ""
    path = Path(text).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.", _lacking(path), f"{option}path/to/file.py:function", [text])
    try:
        code = path.read_bytes()
        tree = ast.parse(code, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        raise ExportError(f"{path} is not Python{line}.", str(error), f"python3 -m py_compile {path}") from error
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    # Whether a name is bound, only running the file would tell; one that is nowhere in it is not.
    if not function or not re.search(rf"\b{re.escape(function)}\b|import \*", code.decode(errors="replace")):
        has = f"it has {', '.join(functions)}" if functions else "it has no function"
        better = functions[0] if functions else "make_model"
        hint = f"{option}{path}:{better}"
        if not functions and (classes := [node.name for node in tree.body if isinstance(node, ast.ClassDef)]):
            has = f"it has only classes: {', '.join(classes)}"
            hint = (
                f"add def make_model(): return {classes[-1]}().eval(), (torch.randn(SHAPE),), "
                f"with the shape of its input, then {hint}"
            )
        what = f"{path} has no function {function!r}." if function else f"{named} does not say which function."
        raise ConfigError(what, has, hint, [function])
    return path.resolve(), function


class Side:
    """What a user's file can import, and has imported: modules of its folder, whatever their names.

    Python knows them only while `entered` is open: everything that may run code of the user's belongs there. Another
    user's file beside it, which is entered meanwhile, has modules of its own.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.watch: Watch
        """Begins when it is entered for the first time."""
        self._folders = _folders(source)
        self._path: list[str] = []
        self._before: list[str] = []
        self._modules: dict[str, ModuleType] = {}
        self.files: dict[Path, ModuleType] = {}
        """What `opened` has imported."""

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let imports find the user's modules while the block runs."""
        global _active  # noqa: PLW0603  # Python's table of modules is one for the process, too
        outer = _active
        if outer is self:
            yield
            return
        with aside():
            if outer is not None:
                outer._leave()
            self._enter()
            _active = self
            try:
                yield
            finally:
                self._leave()
                _active = outer
                if outer is not None:
                    outer._enter()

    def add(self, source: Path) -> None:
        """Let it import modules beside another file, too."""
        fresh = [one for one in _folders(source) if one not in sys.path]
        self._folders += fresh
        sys.path[len(self._folders) - len(fresh) : 0] = fresh

    def sources(self) -> list[Path]:
        """The files of the modules that were imported so far, but for the user's own file."""
        modules = self.watch.modules() if _active is self else self._modules
        files = [getattr(module, "__file__", None) for module in modules.values()]
        paths = {Path(file).resolve() for file in files if file}
        return [path for path in sorted(paths) if path != self.source and path.is_file()]

    def _enter(self) -> None:
        self._before = list(sys.path)
        if not self._path:
            self.watch = Watch(self.source)
            self._path = [*self._folders, *(one for one in sys.path if one != os.fspath(IMPORTS))]
        sys.path[:] = self._path
        sys.modules.update(self._modules)
        self._modules = {}
        for known in ("modulesbyfile", "_filesbymodname"):  # of names that belong to others now
            getattr(inspect, known, {}).clear()

    def _leave(self) -> None:
        self._path, self._modules = list(sys.path), self.watch.modules()
        sys.path[:] = self._before
        for name in self._modules:
            del sys.modules[name]


_active: Side | None = None


def _package(source: Path) -> list[Path]:
    """Folders of the packages that a file is in, the innermost first: as many as its relative imports speak of."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):  # importing it says so
        nodes = ast.walk(ast.parse(source.read_bytes()))
        count = max((node.level for node in nodes if isinstance(node, ast.ImportFrom)), default=0)
        while count and (source.parents[count] / "__init__.py").is_file():
            count += 1
        return list(source.parents[:count])
    return []


def _folders(source: Path) -> list[str]:
    """Where a file's imports look first: its own folder; for relative ones the folder that its package is in."""
    return [os.fspath(source.parent), *(os.fspath(one.parent) for one in _package(source)[-1:])]


@contextlib.contextmanager
def users_code(file: Path, doing: str) -> Iterator[None]:
    """Turn every exception of the user's code into an `ExportError` that names the file and the line."""
    try:
        yield
    except ExportError:
        raise
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        cause = f"{type(error).__name__}: {last_lines(error)}"
        hint = packages.advice(error, file) or "fix the file, and run the same command"
        raise ExportError(f"{doing} {file}{_line_of(error, file)} failed.", cause, hint) from error


def import_file(path: Path) -> ModuleType:
    """Import a file by path under a name that hides no module; for a `Side` that is entered.

    In a package it is a module of that package, so that it can import others of it relatively.
    """
    name = ".".join([*(one.name for one in reversed(_package(path))), f"slipway_model_{path.stem}"])
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ExportError(f"{path} cannot be imported.", "", "give it a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_sides: dict[Path, Side] = {}
"""By their folders: files that lie together share the modules that they import."""


@contextlib.contextmanager
def opened(named: str) -> Iterator[Callable[..., Any]]:
    """The user's function ``path/to/file.py:function``, for a block that calls it. Its file is imported once.

    It shares the modules of a model that is `Side.entered`.

    Raises:
        ConfigError: as `function_in`. ExportError: the file or the block fails.
    """
    file, name = function_in(named)
    side = _active or _sides.setdefault(file.parent, Side(file))
    with side.entered(), users_code(file, f"Calling {name}() of"):
        side.add(file)
        if file not in side.files:
            side.files[file] = import_file(file)
        yield getattr(side.files[file], name)


Made = TypeVar("Made")


def made(named: str, kind: type[Made], what: str) -> Made:
    """The object that the user's function returns, which messages call ``what``: ``quantizer``.

    Raises:
        ExportError: it fails, or the object is not of that kind.
    """
    with opened(named) as function:
        found = function()
    if not isinstance(found, kind):
        raise ExportError(
            f"{named} returned {type(found).__name__}, not a {what}.",
            f"a {what} is an object of a class derived from {kind.__module__}.{kind.__name__}",
            "return one of upstream's to see it work",
        )
    return found
