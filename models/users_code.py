"""Importing and calling what users wrote, with their own line in the error when it fails."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from core.errors import ExportError
from models import packages

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


@contextlib.contextmanager
def users_code(file: Path, doing: str) -> Iterator[None]:
    """Turn every exception of the user's code into an `ExportError` that names the file and the line."""
    try:
        yield
    except ExportError:
        raise
    except (Exception, SystemExit) as error:  # the user's code can raise anything
        cause = f"{type(error).__name__}: {last_lines(error)}"
        hint = packages.advice(error, file) or "fix the file and export again"
        raise ExportError(f"{doing} {file}{_line_of(error, file)} failed.", cause, hint) from error


def import_file(path: Path) -> ModuleType:
    """Import a file by path, with its folder importable meanwhile, under a name that hides no module."""
    name = f"slipway_model_{path.stem}"
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
    with users_code(file, f"Calling {function}() of"):
        return getattr(import_file(file), function)()
