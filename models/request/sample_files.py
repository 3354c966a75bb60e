"""Where samples are: the files of a folder, a ``.npz``, or a function. Without NumPy, and without reading any."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import ConfigError, UsageError

PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
MOST = 128
"""Samples that an export reads."""
FORMS = (
    "FILE.npz (arrays inputs and labels), a folder of pictures or .npy files with a folder for each class, or "
    "FILE.py:FUNCTION; docs/compare.md shows each"
)


def is_function(text: str) -> bool:
    """Whether ``text`` names a function of a file."""
    return ".py:" in text


def file_of(text: str) -> Path:
    """The file.

    Raises:
        ConfigError: there is none.
    """
    path = Path(text.rpartition(":")[0]).expanduser()
    if not path.is_file():
        raise ConfigError(f"There is no file {path}.", f"named by {text}", "path/to/file.py:function", [text])
    return path.resolve()


def check(data: str) -> None:
    """Whether samples can be read from ``data``: a cheap look before the exporter is installed and loaded.

    Raises:
        UsageError: it is neither a file nor a folder of samples. ConfigError: there is no such file of a function.
    """
    if is_function(data):
        file_of(data)
    elif data and not is_npz(path := Path(data).expanduser()) and not path.is_dir():
        raise absent(data)


def is_npz(path: Path) -> bool:
    """Whether it is a file of arrays."""
    return path.suffix == ".npz" and path.is_file()


def absent(data: str) -> UsageError:
    """What is said of data that are not there."""
    return UsageError(f"There is no data {data!r}.", "it is neither a .npz file nor a folder", FORMS, [data])


def natural(name: str) -> list[Any]:
    """``input10`` after ``input9``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def files(data: str, most: int = MOST) -> list[Path]:
    """The files of a ``.npz`` or a folder that `read` would read."""
    path = Path(data).expanduser()
    return [file for file, _ in chosen_files(path, most)[0]] if path.is_dir() else [path]


def chosen_files(path: Path, most: int, names: Sequence[str] = ()) -> tuple[list[tuple[Path, int | None]], int]:
    """Up to ``most`` files with their classes, and how many the folder has."""
    classes = sorted((one for one in path.iterdir() if one.is_dir()), key=lambda one: natural(one.name))
    number = {folder: place for place, folder in enumerate(classes)}
    if classes and all(one.name.isdigit() for one in classes):
        number = {folder: int(folder.name) for folder in classes}
    elif classes and all(names.count(one.name) == 1 for one in classes):
        number = {folder: names.index(folder.name) for folder in classes}
    every: list[tuple[Path, int | None]] = [(file, number[folder]) for folder in classes for file in _samples(folder)]
    every = every or [(file, None) for file in _samples(path)]
    # Of each class alike, whatever the number: every n-th file.
    count = min(most, len(every))
    return [every[index * len(every) // count] for index in range(count)], len(every)


def _samples(folder: Path) -> list[Path]:
    suffixes = (".npy", ".npz", *PICTURES)
    found = (one for one in folder.iterdir() if one.suffix.lower() in suffixes and not one.name.startswith("."))
    return sorted(found, key=lambda file: natural(file.name))
