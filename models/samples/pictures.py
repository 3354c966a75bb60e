"""Pictures as a model's input: decoded, resized, cut out in the centre, normalized. With Pillow, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import UsageError


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
