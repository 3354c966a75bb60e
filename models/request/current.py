"""Whether an export is still good, and the zoo's. Answers in milliseconds: no torch, no pydantic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.errors import SlipwayError
from models.request import Request, key, resolve
from models.users.watching import changed
from models.zoo import load_zoo

DESCRIPTION = "program.json"  # core.formats.program has it too, but costs pydantic's import


def _same_files(folder: Path, sizes: Mapping[str, int]) -> bool:
    """Whether all files exist with their sizes."""
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def stale(request: Request) -> str:
    """Why the request's folder does not have the complete and current result of the export; empty if it has."""
    try:
        found = json.loads((request.folder / DESCRIPTION).read_text(encoding="utf-8"))
        if not found["files"] or not _same_files(request.folder, found["files"]):
            return "files of the export are missing or have another size"
        if found["export_key"] != key(request):
            return "its model, options, packages or exporter have changed"
        return changed(found.get("depends", {}))
    except FileNotFoundError:
        return "it was not exported"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "its description cannot be read"


def current(request: Request) -> bool:
    """Whether the request's folder has the complete and current result of the export."""
    return not stale(request)


def state(model: str, scheme: str, format: str = "pte") -> tuple[str, Path, int]:  # noqa: A002
    """``current``, ``outdated`` or ``not exported``; the folder; the program's size in bytes."""
    request = resolve(model, scheme, format=format)
    file = request.folder / request.file
    if not file.is_file():
        return "not exported", request.folder, 0
    try:
        word = "current" if current(request) else "outdated"
    except SlipwayError:
        word = "outdated"
    return word, request.folder, file.stat().st_size


@dataclass(frozen=True)
class Row:
    """A line of ``./inv models``."""

    model: str
    title: str
    format: str
    scheme: str
    state: str
    """``current``, ``outdated`` or ``not exported``."""
    folder: str
    size: int
    """Size of the program in bytes; 0 if it does not exist."""


def listing() -> list[Row]:
    """The zoo with the state of its exports, one row for each model, format and scheme."""
    rows = []
    for model in load_zoo().values():
        for format in ("pte", "onnx"):  # noqa: A001
            for scheme in model.schemes_of(format):
                word, folder, size = state(model.name, scheme, format)
                rows.append(Row(model.name, model.title, format, scheme, word, str(folder), size))
    return rows
