"""Whether an export is still good. Answers in milliseconds: no torch, no pydantic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import SlipwayError
from core.files import sha256_file
from models.options import Options
from models.request import Request, key, resolve

DESCRIPTION = "program.json"  # core.program has it too, but costs pydantic's import


def _same_files(folder: Path, sizes: Mapping[str, int]) -> bool:
    """Whether all files exist with their sizes."""
    return all((folder / name).is_file() and (folder / name).stat().st_size == size for name, size in sizes.items())


def _same_sources(digests: Mapping[str, str]) -> bool:
    """Whether the modules that the user's file imported are unchanged."""
    return all(Path(name).is_file() and sha256_file(Path(name)) == digest for name, digest in digests.items())


def current(request: Request) -> bool:
    """Whether the request's folder has the complete and current result of the export."""
    try:
        found = json.loads((request.folder / DESCRIPTION).read_text(encoding="utf-8"))
        return bool(
            found["files"]
            and found["export_key"] == key(request)
            and _same_files(request.folder, found["files"])
            and _same_sources(found["sources"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def is_current(
    model: str,
    scheme: str = "fp32",
    *,
    partitioners: Sequence[str] = (),
    options: Options | Mapping[str, Any] | None = None,
    out: Path | None = None,
    format: str = "pte",  # noqa: A002
) -> bool:
    """Whether `models.export.export` with the same arguments would find nothing to do.

    Raises:
        ConfigError: as `models.request.resolve`.
    """
    return current(resolve(model, scheme, partitioners=partitioners, options=options, out=out, format=format))


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
