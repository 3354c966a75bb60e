"""Read a user's samples: a ``.npz`` file, a folder of ``.npy`` files, or a function. With NumPy, without torch."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import UsageError
from models.samples import functions

LABELS = "labels"
_FORMS = (
    "--data FILE.npz (arrays inputs and labels), a folder of .npy files with a folder for each class, or "
    "FILE.py:FUNCTION; docs/compare.md shows each"
)


@dataclass(frozen=True)
class Raw:
    """A sample as it was read."""

    inputs: tuple[Any, ...]
    label: Any = None
    rows: int = 0
    """Rows of the first axis that count; 0: all."""


@dataclass(frozen=True)
class Found:
    """The samples taken, and how many there are."""

    each: list[Raw]
    of: int


def check(data: str) -> None:
    """Whether samples can be read from ``data``: a cheap look before the exporter is installed and loaded.

    Raises:
        UsageError: it is neither a file nor a folder of samples. ConfigError: there is no such file of a function.
    """
    if functions.is_function(data):
        functions.file_of(data)
    elif data and not _is_npz(path := Path(data).expanduser()) and not path.is_dir():
        raise _absent(data)


def _is_npz(path: Path) -> bool:
    return path.suffix == ".npz" and path.is_file()


def _absent(data: str) -> UsageError:
    return UsageError(f"There is no data {data!r}.", "it is neither a .npz file nor a folder", _FORMS, [data])


def read(data: str, examples: Sequence[Any], most: int) -> Found:
    """Up to ``most`` samples of a ``.npz`` file or a folder.

    Args:
        examples: the model's example inputs, as arrays: samples get their types and shapes.

    Raises:
        UsageError: it is neither, or does not fit the model.
    """
    path = Path(data).expanduser()
    if path.is_dir():
        return _folder(path, examples, most)
    if _is_npz(path):
        return _npz(path, examples, most)
    raise _absent(data)


def pairs(source: str, value: Any, examples: Sequence[Any], of: int = 0) -> Found:
    """Samples that a function gave: pairs of inputs and a label.

    Args:
        of: how many it has in all, if that is known.

    Raises:
        UsageError: it gave something else, or nothing.
    """
    if not isinstance(value, (list, tuple)):
        raise _refused(source, f"it returned a {type(value).__name__}")
    found = []
    for number, pair in enumerate(value):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise _refused(source, f"item {number} is not a pair (inputs, label)")
        inputs, label = pair
        arrays = [_array(one) for one in (inputs if isinstance(inputs, (tuple, list)) else (inputs,))]
        found.append(Raw(_fitting(arrays, examples, f"sample {number} of {source}"), _label(label)))
    if not found:
        raise _refused(source, "it gave no sample")
    return Found(found, max(of, len(found)))


def _array(value: Any) -> Any:
    """An array of a tensor, of an array or of numbers."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


def _label(value: Any) -> Any:
    return _array(value) if hasattr(value, "detach") else value


def _refused(source: str, why: str) -> UsageError:
    return UsageError(
        f"{source} gives no samples.",
        why,
        "return a list of pairs: [((input0, input1), label), ...], with None where there is no label",
        [source],
    )


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"{path} cannot be read.", str(error).splitlines()[0], "save it with numpy.save or numpy.savez", [str(path)]
        ) from error


def _natural(name: str) -> list[Any]:
    """``input10`` after ``input9``."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _arrays(path: Path) -> tuple[list[Any], Any]:
    """The inputs in a ``.npz`` file, in the order of their names, and the labels."""
    with _load(path) as file:
        try:
            found = {name: file[name] for name in file.files}
        except ValueError as error:
            raise UsageError(
                f"{path} holds Python objects.", str(error), "numpy.savez with arrays of numbers"
            ) from error
    labels = found.pop(LABELS, None)
    return [found[name] for name in sorted(found, key=_natural)], labels


def _npz(path: Path, examples: Sequence[Any], most: int) -> Found:
    """Samples along the first axis: one more axis than the model's input, or the rows of its batches."""
    arrays, labels = _arrays(path)
    if len(arrays) != len(examples):
        raise UsageError(
            f"{path} has {len(arrays)} inputs, the model takes {len(examples)}.",
            "every array but labels is an input, in the order of their names",
            "numpy.savez(file, input0=..., input1=..., labels=...)",
            [str(path)],
        )
    more = {array.ndim - example.ndim for array, example in zip(arrays, examples, strict=True)}
    counts = {len(array) if array.ndim else 0 for array in arrays}
    if more not in ({0}, {1}) or len(counts) != 1 or 0 in counts:
        shapes = ", ".join("x".join(map(str, array.shape)) or "scalar" for array in arrays)
        wants = ", ".join("x".join(map(str, example.shape)) or "scalar" for example in examples)
        raise UsageError(
            f"The arrays in {path} do not fit the model.",
            f"they are {shapes}; the model takes {wants}, and all inputs need the same number of samples",
            "one sample along the first axis for each execution, or rows that batches are made of",
            [str(path)],
        )
    total = counts.pop()
    if labels is not None and (labels.ndim == 0 or len(labels) != total):
        raise UsageError(
            f"{path} has {labels.size} labels for {total} samples.", "", "one label for each sample", [str(path)]
        )
    step = 1 if more == {1} else max(len(example) for example in examples)
    found: list[Raw] = []
    for begin in itertools.islice(range(0, total, step), most):
        rows = min(step, total - begin)
        if more == {1}:
            cut, label, whole = [array[begin] for array in arrays], None if labels is None else labels[begin], 0
        else:
            # The last batch is filled up with copies of its last row: programs have fixed sizes.
            at = np.minimum(np.arange(begin, begin + step), total - 1)
            cut, label = [array[at] for array in arrays], None if labels is None else labels[begin : begin + rows]
            whole = rows if rows < step else 0
        found.append(Raw(_fitting(cut, examples, f"sample {len(found)} of {path}"), label, whole))
    return Found(found, -(-total // step))


def _folder(path: Path, examples: Sequence[Any], most: int) -> Found:
    """A sample for each ``.npy`` or ``.npz`` file; files in folders have the folder's place as their class."""
    classes = sorted((one for one in path.iterdir() if one.is_dir()), key=lambda one: _natural(one.name))
    numbered = bool(classes) and all(one.name.isdigit() for one in classes)
    files: list[tuple[Path, int | None]] = [
        (file, int(folder.name) if numbered else place)
        for place, folder in enumerate(classes)
        for file in _samples(folder)
    ]
    files = files or [(file, None) for file in _samples(path)]
    if not files:
        raise UsageError(f"{path} has no .npy or .npz file.", "images have to be decoded first", _FORMS, [str(path)])
    # Of each class alike, whatever the number: every n-th file.
    chosen = [files[index * len(files) // min(most, len(files))] for index in range(min(most, len(files)))]
    found = []
    for file, label in chosen:
        if file.suffix == ".npz":
            arrays, own = _arrays(file)
        else:
            arrays, own = [_load(file)], None
        if len(arrays) == len(examples):
            # A file without the batch's axis, as datasets have it.
            arrays = [
                array[None] if array.ndim == example.ndim - 1 and len(example) == 1 else array
                for array, example in zip(arrays, examples, strict=True)
            ]
        found.append(Raw(_fitting(arrays, examples, str(file)), label if own is None else own))
    return Found(found, len(files))


def _samples(folder: Path) -> list[Path]:
    files = (one for one in folder.iterdir() if one.suffix in (".npy", ".npz"))
    return sorted(files, key=lambda file: _natural(file.name))


def _fitting(arrays: Sequence[Any], examples: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The arrays in the example inputs' types.

    Raises:
        UsageError: other numbers of inputs or of axes, or types that cannot be converted without loss of meaning.
    """
    if len(arrays) != len(examples):
        raise UsageError(f"{what} has {len(arrays)} inputs, the model takes {len(examples)}.", "", _FORMS, [what])
    found = []
    for index, (array, example) in enumerate(zip(arrays, examples, strict=True)):
        kinds = ("f" if array.dtype.kind == "f" else "i", "f" if example.dtype.kind in "fV" else "i")
        if array.ndim != example.ndim or kinds == ("f", "i") or array.dtype.kind not in "fiub":
            raise UsageError(
                f"Input {index} of {what} does not fit: it is {array.dtype} {'x'.join(map(str, array.shape))}.",
                f"the model takes {example.dtype} {'x'.join(map(str, example.shape))}",
                "give it the type and the number of axes of the model's example input",
                [what],
            )
        if example.dtype.kind == "V":  # bfloat16: the float model's owner converts it
            found.append(np.ascontiguousarray(array, np.float32))
        else:
            found.append(np.ascontiguousarray(array.astype(example.dtype)).reshape(array.shape))
    return tuple(found)
