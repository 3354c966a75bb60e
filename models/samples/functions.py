"""Functions of a user's own file, named ``path/to/file.py:function``: of samples, of a measure of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from models.request.sample_files import file_of
from models.users.users_code import Side, import_file
from models.users.users_code import users_code as failing

_sides: dict[Path, Side] = {}
"""By their folders: files that lie together share the modules that they import."""


@contextmanager
def users_code(file: Path, doing: str) -> Iterator[None]:
    """Let the user's code in the block import from its folder, and turn every exception into an error with its line.

    Raises:
        ExportError: the code in the block failed.
    """
    side = _sides.setdefault(file.parent, Side(file))
    with side.entered(), failing(file, doing, "fix the file, and run the same command"):
        yield


def function_of(text: str) -> tuple[Path, Callable[..., Any]]:
    """The file, and its function.

    Raises:
        ConfigError: there is no such file or function. ExportError: the file cannot be imported.
    """
    path, name = file_of(text), text.rpartition(":")[2]
    with users_code(path, "Importing"):
        module = import_file(path)
    function = getattr(module, name, None)
    if not callable(function):
        has = ", ".join(one for one, value in vars(module).items() if callable(value) and not one.startswith("_"))
        raise ConfigError(f"{path} has no function {name!r}.", f"it has {has or 'none'}", f"{path}:NAME", [name])
    return path, function
