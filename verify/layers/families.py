"""The layers of the lab: families, shapes as parameters, and the model that each one is exported from. No torch here.

Each layer is a Python file of its own, so that its export is found again by the file's digest, and anybody can read
what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.cli.near import nearest
from core.errors import UsageError
from core.files import write_atomic

FUNCTION = "layer"
BATCHES = 4
"""Matrices of a batched product."""
LLM = ("1x2048x2048", "128x2048x2048", "1x4096x4096", "128x4096x4096")
"""What ``--shape llm`` stands for: a token and a prompt of 128, and depths of language models."""
_MOST = 16384
_LARGEST = 1 << 27
"""Weights of a layer at most."""

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Family:
    """A kind of layer. A shape is rows x depth x outputs, or for convolutions side x channels in x channels out."""

    name: str
    title: str
    usual: Shape
    schemes: int
    """How many of `_SCHEMES` exporters write it in."""
    code: str
    """What the file's function returns; ``{a}``, ``{b}``, ``{c}`` are the shape, ``{n}`` the number of matrices."""
    weights: int = 1
    """For each input channel and output."""
    of: str = "rows x depth x outputs"


_SCHEMES = ("fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w")
_SIDE = "side x channels in x channels out"
_IMAGE = "(torch.randn(1, {b}, {a}, {a}),)"
_CONVOLUTION = (28, 64, 128)
FAMILIES = {
    family.name: family
    for family in (
        Family("linear", "fully connected", (32, 256, 256), 5, "nn.Linear({b}, {c}), (torch.randn({a}, {b}),)"),
        Family("conv1x1", "1x1 convolution", _CONVOLUTION, 4, f"nn.Conv2d({{b}}, {{c}}, 1), {_IMAGE}", 1, _SIDE),
        Family(
            "conv", "3x3 convolution", _CONVOLUTION, 4, f"nn.Conv2d({{b}}, {{c}}, 3, padding=1), {_IMAGE}", 9, _SIDE
        ),
        Family(
            "conv-stride", "3x3 convolution, every second pixel", _CONVOLUTION, 4,
            f"nn.Conv2d({{b}}, {{c}}, 3, stride=2, padding=1), {_IMAGE}", 9, _SIDE,
        ),
        Family(
            "depthwise", "3x3 depthwise convolution", (28, 128, 128), 3,
            f"nn.Conv2d({{b}}, {{b}}, 3, padding=1, groups={{b}}), {_IMAGE}", 0, _SIDE,
        ),
        Family(
            "bmm", "batched matrix product by a constant", (32, 64, 64), 2,
            "ByConstant({n}, {b}, {c}), (torch.randn({n}, {a}, {b}),)", BATCHES,
        ),
        Family(
            "bmm2", "batched matrix product of two inputs", (32, 64, 64), 2,
            "OfTwo(), (torch.randn({n}, {a}, {b}), torch.randn({n}, {b}, {c}))", BATCHES,
        ),
    )
}  # fmt: skip

_FILE = '''"""{title}: {of} {shape}. Written by ./inv self.lab."""

import torch
from torch import nn


class ByConstant(nn.Module):
    def __init__(self, count, depth, outputs):
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(count, depth, outputs) / depth**0.5)

    def forward(self, x):
        return torch.bmm(x, self.matrices)


class OfTwo(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def {function}():
    torch.manual_seed(20)
    module, inputs = {code}
    samples = [tuple(torch.randn(*one.shape) for one in inputs) for _ in range(4)]
    return module.eval(), inputs, None, samples
'''


@dataclass(frozen=True)
class Layer:
    """A family with a shape."""

    family: Family
    shape: Shape

    @property
    def name(self) -> str:
        """``linear_1x256x256``."""
        return f"{self.family.name}_{shape_text(self.shape)}".replace("-", "_")

    def why_not(self, scheme: str) -> str:
        """Why it has no such scheme; empty if it has."""
        if scheme not in _SCHEMES[: self.family.schemes]:
            return f"exporters write no {self.family.title} as {scheme}"
        if scheme == "qd8_qb4w" and self.shape[1] % 32:
            return f"blocks of 32 need a multiple of 32 input features, not {self.shape[1]}"
        return ""

    def write(self, folder: Path) -> Path:
        """Its file, ``<name>.py`` in ``folder``, which is rewritten only if it changes."""
        a, b, c = self.shape
        code = self.family.code.format(a=a, b=b, c=c, n=BATCHES)
        text = _FILE.format(
            title=self.family.title.capitalize(), of=self.family.of, shape=shape_text(self.shape), code=code,
            function=FUNCTION,
        )  # fmt: skip
        file = folder / f"{self.name}.py"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(file, text)
        return file


def shape_text(shape: Shape) -> str:
    """``1x256x256``."""
    return "x".join(map(str, shape))


def layers_of(families: Sequence[str], shapes: Sequence[str]) -> list[Layer]:
    """Every family in every shape; without shapes each in its usual one.

    Raises:
        UsageError: an unknown family, a shape that cannot be read, or one that is too large.
    """
    names = [*FAMILIES] if "all" in families else list(dict.fromkeys(families))
    for name in names:
        if name not in FAMILIES:
            raise UsageError(
                f"There are no layers {name!r}.",
                f"they are {', '.join(FAMILIES)}, or all",
                f"--layers {nearest(name, FAMILIES, 0)}",
                [name],
            )
    words = [each for word in shapes for each in (LLM if word == "llm" else (word,))]
    chosen = [_shape(word) for word in dict.fromkeys(words)]
    found = [Layer(FAMILIES[name], shape) for name in names for shape in chosen or [FAMILIES[name].usual]]
    for layer in found:
        if layer.family.weights * layer.shape[1] * layer.shape[2] > _LARGEST:
            raise UsageError(
                f"{layer.name} has more than {_LARGEST:,} weights.", "the export would take minutes and gigabytes",
                "--shape 128x4096x4096",
            )  # fmt: skip
    return found


def _shape(word: str) -> Shape:
    sizes = [int(size) for size in word.split("x")] if re.fullmatch(r"[0-9]{1,6}(x[0-9]{1,6}){2}", word) else []
    if len(sizes) != 3 or not all(1 <= size <= _MOST for size in sizes):
        raise UsageError(
            f"--shape {word!r} is not a shape.",
            f"it has three sizes to {_MOST}: rows x depth x outputs, for convolutions side x channels x channels",
            "--shape 1x256x256, or --shape llm",
            [word],
        )
    return sizes[0], sizes[1], sizes[2]
