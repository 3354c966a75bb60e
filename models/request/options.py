"""The options of an export besides model and scheme. Without torch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.cli.request import words
from core.errors import ConfigError, UsageError, nearest, suggestion
from models.users.users_code import function_in, is_function


@dataclass(frozen=True)
class Options:
    """Options of an export."""

    per_op_mode: bool = False
    """One delegate of XNNPACK's for each operator instead of the largest possible ones."""
    weights: str = ""
    """``random`` instead of the trained weights of a zoo's model."""
    samples: str = ""
    """Real inputs, for the reference and to calibrate with: a folder, ``FILE.npz`` or ``FILE.py:FUNCTION``."""
    group: int = 0
    """Input features that share a weight's scale in a scheme with blocks; 0: the scheme's own number."""
    layers: tuple[str, ...] = ()
    """``PATTERN:KIND``: layers whose names match are kept in ``float`` or get weights in ``int8`` or ``int4``."""
    quantizer: str = ""
    """A PT2E quantizer of the user's own: ``path/to/file.py:function``, which returns it."""
    strict: bool = False
    """Export with torch.export's strict mode: it reads the code of the model instead of following one execution."""

    def to_json(self) -> dict[str, Any]:
        """Those that differ from the defaults, for the record."""
        return {
            field.name: value if not isinstance(value := getattr(self, field.name), tuple) else list(value)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }


def pairs(text: str) -> dict[str, str]:
    """``"per_op_mode=true; group=64"`` as names and values; the values are checked by `parse`.

    Raises:
        UsageError: a part without ``=`` or without a value, or the same name twice.
    """
    names = [field.name for field in dataclasses.fields(Options)]
    found: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(";"))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name or not value:
            better = nearest(name, names) or names[0]
            raise UsageError(
                f"--options {part!r} is not KEY=VALUE.",
                f"{suggestion(name, [each for each in names if each != name])}the options are {', '.join(names)}",
                f"--options '{better}=true'",
                [part],
            )
        if name in found:
            raise UsageError(f"--options has {name} twice.", "", f"--options '{name}={value}'", [name])
        found[name] = value
    return found


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in ("1", "true", "yes", "on"):
        return True
    if text in ("0", "false", "no", "off", ""):
        return False
    raise ConfigError(f"Option {name} must be true or false, not {value!r}.", "", f"{name}=true", [name])


def _whole(name: str, value: Any) -> int:
    text = str(value).strip()
    if text.isascii() and text.isdigit():
        return int(text)
    raise ConfigError(f"Option {name} must be a whole number, not {value!r}.", "", f"{name}=64", [text])


def parse(value: Options | Mapping[str, Any] | None) -> Options:
    """`Options` from a mapping of names to values or to their texts (``"head:float,body:int8"``, ``"true"``).

    Raises:
        ConfigError: an unknown name or a value that does not fit.
    """
    if value is None:
        return Options()
    if isinstance(value, Options):
        return value
    fields = {field.name: field for field in dataclasses.fields(Options)}
    chosen: dict[str, Any] = {}
    for name, given in value.items():
        if name not in fields:
            raise ConfigError(
                f"There is no export option {name!r}.",
                f"{suggestion(name, fields)}the options are {', '.join(fields)}",
                "./inv --help export",
                [name],
            )
        if name == "layers":
            chosen[name] = words(given)
        elif name in ("weights", "quantizer", "samples"):
            chosen[name] = str(given)
        elif name == "group":
            chosen[name] = _whole(name, given)
        else:
            chosen[name] = _flag(name, given)
    return Options(**chosen)


PICTURES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
MOST = 128
"""Samples that an export reads."""
FORMS = (
    "FILE.npz (arrays inputs and labels), a folder of pictures or .npy files with a folder for each class, or "
    "FILE.py:FUNCTION; docs/compare.md shows each"
)


def check(data: str) -> None:
    """Whether samples can be read from ``data``: a cheap look before the exporter is installed and loaded.

    Raises:
        UsageError: it is neither a file nor a folder of samples. ConfigError: there is no such file of a function.
    """
    if is_function(data):
        function_in(data, "--samples ")
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
