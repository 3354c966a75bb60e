"""Functions of a user's own file, named ``path/to/file.py:function``: of samples, of a measure of accuracy."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.errors import ConfigError, ExportError


def is_function(text: str) -> bool:
    """Whether ``text`` names a function of a file."""
    return ".py:" in text


@contextmanager
def users_code(file: Path, doing: str) -> Iterator[None]:
    """Turn every exception of the user's code into an error with its line.

    Raises:
        ExportError: the code in the block failed.
    """
    sys.path.insert(0, os.fspath(file.parent))
    try:
        yield
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == os.fspath(file)]
        where = f", line {lines[-1]}" if lines else ""
        cause = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        raise ExportError(f"{doing} {file}{where} failed.", cause, "fix the file, and run the same command") from error
    finally:
        sys.path.remove(os.fspath(file.parent))


def file_of(text: str) -> Path:
    """The file.

    Raises:
        ConfigError: there is none.
    """
    path = Path(text.rpartition(":")[0]).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.", f"named by {text}", "path/to/file.py:function", [text])
    return path.resolve()


def function_of(text: str) -> tuple[Path, Callable[..., Any]]:
    """The file, and its function.

    Raises:
        ConfigError: there is no such file or function. ExportError: the file cannot be imported.
    """
    path, name = file_of(text), text.rpartition(":")[2]
    spec = importlib.util.spec_from_file_location(f"slipway_own_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported.", "", "give it a name that ends in .py", [text])
    module = importlib.util.module_from_spec(spec)
    with users_code(path, "Importing"):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        has = ", ".join(one for one, value in vars(module).items() if callable(value) and not one.startswith("_"))
        raise ConfigError(f"{path} has no function {name!r}.", f"it has {has or 'none'}", f"{path}:NAME", [name])
    return path, function
