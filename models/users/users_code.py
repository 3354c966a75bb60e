"""Importing and calling what users wrote, with their own line in the error when it fails. Without torch."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from core.aside import aside
from core.errors import ExportError
from core.paths import IMPORTS
from models.users import packages
from models.users.watching import Watch

_ADVICE = ("For more debugging", "For more information", "For C++ stack", "TORCHDYNAMO_", "TORCH_LOGS", "draft_export")


def last_lines(error: BaseException, count: int = 4) -> str:
    """The first line of an exception's message and its last ones, without torch's advice to its own developers."""
    said = [line.rstrip() for line in str(error).splitlines() if line.strip()]
    lines = [line for line in said if not any(word in line for word in _ADVICE)]
    return "\n".join(lines[:1] + lines[1:][-count:]) or type(error).__name__


def _line_of(error: BaseException, file: Path) -> str:
    """``line 12`` of the user's file, when the error passed through it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f", line {lines[-1]}" if lines else ""


class Side:
    """What a user's file can import, and has imported: modules of its folder, whatever their names.

    Python knows them only while `entered` is open: everything that may run code of the user's belongs there. Another
    user's file beside it, which is entered meanwhile, has modules of its own.

    Args:
        source: the user's file.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.watch: Watch
        """Begins when it is entered for the first time."""
        self._folders = _folders(source)
        self._path: list[str] = []
        self._before: list[str] = []
        self._modules: dict[str, ModuleType] = {}

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
    package = _package(source)
    return [os.fspath(source.parent), *(os.fspath(one.parent) for one in package[-1:])]


@contextlib.contextmanager
def users_code(file: Path, doing: str, otherwise: str = "fix the file and export again") -> Iterator[None]:
    """Turn every exception of the user's code into an `ExportError` that names the file and the line.

    Args:
        otherwise: what to do if it is not a package that is missing.
    """
    try:
        yield
    except ExportError:
        raise
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        cause = f"{type(error).__name__}: {last_lines(error)}"
        hint = packages.advice(error, file) or otherwise
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


def call(file: Path, function: str) -> Any:
    """What a function of another file of the user's returns.

    Raises:
        ExportError: it fails.
    """
    side = _active or Side(file)
    with side.entered(), users_code(file, f"Calling {function}() of"):
        side.add(file)
        return getattr(import_file(file), function)()
