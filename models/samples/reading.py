"""Read a user's samples: a ``.npz`` file, a folder of pictures or arrays, or a function. With NumPy, without torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import UsageError
from models.request.options import FORMS, absent, chosen_files, is_npz, natural
from models.users.users_code import is_function, opened


@dataclass(frozen=True)
class Preparation:
    """How a picture becomes an input, as torchvision's and timm's weights describe it."""

    resize: int = 0
    """Pixels of the shorter side before the centre is cut out; 0: 8/7 of the input's, as 256 for 224."""
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    """Of each channel, for pixels from 0 to 1."""
    known: bool = False
    """Whether the model says so; else these are ImageNet's."""

    @classmethod
    def of(cls, module: Any) -> Preparation:
        """What a model's attribute ``pictures`` says, or timm's ``pretrained_cfg``.

        Raises:
            UsageError: it says something else.
        """
        own = getattr(module, "pictures", None)
        timm = getattr(module, "pretrained_cfg", None)
        try:
            if isinstance(own, Mapping):
                lists = {name: tuple(float(one) for one in own[name]) for name in ("mean", "std") if name in own}
                return cls(resize=int(own.get("resize", 0)), **lists, known=True)
            if isinstance(timm, Mapping) and "mean" in timm and "std" in timm:
                resize = round(timm["input_size"][-1] / timm["crop_pct"]) if timm.get("crop_pct") else 0
                return cls(resize, tuple(map(float, timm["mean"])), tuple(map(float, timm["std"])), known=True)
        except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
            raise UsageError(
                "The model does not say how a picture becomes its input.",
                f"its attribute pictures is {own!r}: {error}",
                "model.pictures = {'resize': 256, 'mean': (0.485, 0.456, 0.406), 'std': (0.229, 0.224, 0.225)}",
            ) from error
        return cls()


def decode(file: Path, example: Any, how: Preparation) -> Any:
    """The picture in the shape and type of the example input, whose channels come first or last.

    Whole numbers are the pixels, 0 to 255; other numbers are normalized.

    Raises:
        UsageError: not a picture, or the model does not take one.
    """
    from PIL import Image, ImageOps

    shape = example.shape[1:] if example.ndim == 4 and example.shape[0] == 1 else example.shape
    place = next((at for at in (0, 2) if len(shape) == 3 and shape[at] in (1, 3)), None)
    if place is None:
        raise UsageError(
            f"{file} is a picture, and the model does not take one.",
            f"its input is {'x'.join(map(str, example.shape)) or 'a number'}; a picture is 1x3xHEIGHTxWIDTH, with one "
            "or three channels, first or last",
            "save the inputs with numpy.save, one .npy for each sample",
            [str(file)],
        )
    channels = shape[place]
    height, width = shape[1:] if place == 0 else shape[:2]
    try:
        with Image.open(file) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UsageError(
            f"{file} cannot be read as a picture.", str(error), "move it out of the folder", [str(file)]
        ) from error
    scale = (how.resize or round(min(height, width) * 8 / 7)) / min(height, width)
    scale = max(scale, 1.0) * max(height / picture.height, width / picture.width)
    large = (max(width, int(picture.width * scale + 1e-6)), max(height, int(picture.height * scale + 1e-6)))
    left, top = round((large[0] - width) / 2), round((large[1] - height) / 2)
    picture = picture.resize(large, Image.Resampling.BILINEAR).crop((left, top, left + width, top + height))
    pixels = np.asarray(picture).reshape(height, width, channels)
    if example.dtype.kind in "iu":
        array = pixels.astype(example.dtype)
    else:
        mean, std = (
            np.asarray(one if len(one) == channels else [sum(one) / len(one)] * channels, np.float32)
            for one in (how.mean, how.std)
        )
        array = ((pixels.astype(np.float32) / np.float32(255) - mean) / std).astype(np.float32)
    if place == 0:
        array = array.transpose(2, 0, 1)
    return np.ascontiguousarray(array).reshape(example.shape)


LABELS = "labels"
_USUAL = Preparation()


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


def read(data: str, examples: Sequence[Any], most: int, how: Preparation = _USUAL, names: Sequence[str] = ()) -> Found:
    """Up to ``most`` samples of a ``.npz`` file, a folder or a function.

    Args:
        examples: the model's example inputs, as arrays: samples get their types and shapes.
        how: pictures become inputs.
        names: the classes', which folders may have as theirs.

    Raises:
        UsageError: it is neither, or does not fit the model. ConfigError, ExportError: the user's function.
    """
    if is_function(data):
        with opened(data) as function:
            given = function()
            items = list(itertools.islice(given, most)) if isinstance(given, Iterable) else given
        return pairs(data, items, examples, len(given) if hasattr(given, "__len__") else 0)
    path = Path(data).expanduser()
    if path.is_dir():
        return _folder(path, examples, most, how, names)
    if is_npz(path):
        return _npz(path, examples, most)
    raise absent(data)


def pairs(source: str, value: Any, examples: Sequence[Any], of: int = 0) -> Found:
    """Samples that a function gave: pairs of inputs and a label; ``of``: how many it has in all, if that is known.

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
        label = _array(label) if hasattr(label, "detach") else label
        found.append(Raw(_fitting(arrays, examples, f"sample {number} of {source}"), label))
    if not found:
        raise _refused(source, "it gave no sample")
    return Found(found, max(of, len(found)))


def _array(value: Any) -> Any:
    """An array of a tensor, of an array or of numbers."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)


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
    return [found[name] for name in sorted(found, key=natural)], labels


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


def _folder(path: Path, examples: Sequence[Any], most: int, how: Preparation, names: Sequence[str]) -> Found:
    """A sample for each picture or array; files in folders have the folder's number, name or place as their class."""
    chosen, of = chosen_files(path, most, names)
    if not chosen:
        raise UsageError(f"{path} has no picture, .npy or .npz file.", "", FORMS, [str(path)])
    found = []
    for file, label in chosen:
        own = None
        if file.suffix.lower() == ".npz":
            arrays, own = _arrays(file)
        elif file.suffix.lower() == ".npy":
            arrays = [_load(file)]
        else:
            arrays = [decode(file, examples[0], how)]
        if len(arrays) == len(examples):
            # A file without the batch's axis, as datasets have it.
            arrays = [
                array[None] if array.ndim == example.ndim - 1 and len(example) == 1 else array
                for array, example in zip(arrays, examples, strict=True)
            ]
        found.append(Raw(_fitting(arrays, examples, str(file)), label if own is None else own))
    return Found(found, of)


def _fitting(arrays: Sequence[Any], examples: Sequence[Any], what: str) -> tuple[Any, ...]:
    """The arrays in the example inputs' types.

    Raises:
        UsageError: other numbers of inputs or of axes, or types that cannot be converted without loss of meaning.
    """
    if len(arrays) != len(examples):
        raise UsageError(f"{what} has {len(arrays)} inputs, the model takes {len(examples)}.", "", FORMS, [what])
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
