"""The layers of the lab: families, shapes as parameters, and the model that each one is exported from. No torch here.

Each layer is a Python file of its own, so that its export is found again by the file's digest, and anybody can read
what was measured.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
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
    schemes: tuple[str, ...]
    """Those in which exporters write it."""
    code: str
    """What the file's function returns; ``{a}``, ``{b}``, ``{c}`` are the shape, ``{n}`` the number of matrices."""
    operations: Callable[[int, int, int], int]
    """Multiplications and additions of one execution."""
    elements: Callable[[int, int, int], tuple[int, int, int]]
    """Elements of the activations, of the weights (or the second input) and of the output."""
    of: str = "rows x depth x outputs"


def _conv(kernel: int, stride: int) -> tuple[Callable[[int, int, int], int], Callable[..., tuple[int, int, int]]]:
    def out(side: int) -> int:
        return math.ceil(side / stride)

    return (
        lambda side, a, b: 2 * out(side) ** 2 * kernel * kernel * a * b,
        lambda side, a, b: (side * side * a, kernel * kernel * a * b, out(side) ** 2 * b),
    )


_ALL = ("fp32", "fp16", "qs8", "qd8_qc8w", "qd8_qb4w")
_PRODUCTS = ("fp32", "fp16")
_CONVOLUTION = "nn.Conv2d({b}, {c}, {k}{more}), (torch.randn(1, {b}, {a}, {a}),)"
_SIDE = "side x channels in x channels out"


def _convolution(name: str, title: str, kernel: int, stride: int, schemes: tuple[str, ...]) -> Family:
    more = (f", stride={stride}" if stride > 1 else "") + (f", padding={kernel // 2}" if kernel > 1 else "")
    code = _CONVOLUTION.replace("{k}", str(kernel)).replace("{more}", more)
    return Family(name, title, (28, 64, 128), schemes, code, *_conv(kernel, stride), of=_SIDE)


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "linear", "fully connected", (32, 256, 256), _ALL, "nn.Linear({b}, {c}), (torch.randn({a}, {b}),)",
            lambda rows, depth, outputs: 2 * rows * depth * outputs,
            lambda rows, depth, outputs: (rows * depth, depth * outputs, rows * outputs),
        ),
        _convolution("conv1x1", "1x1 convolution", 1, 1, _ALL[:4]),
        _convolution("conv", "3x3 convolution", 3, 1, _ALL[:4]),
        _convolution("conv-stride", "3x3 convolution, every second pixel", 3, 2, _ALL[:4]),
        Family(
            "depthwise", "3x3 depthwise convolution", (28, 128, 128), _ALL[:3],
            "nn.Conv2d({b}, {b}, 3, padding=1, groups={b}), (torch.randn(1, {b}, {a}, {a}),)",
            lambda side, channels, _same: 2 * side * side * 9 * channels,
            lambda side, channels, _same: (side * side * channels, 9 * channels, side * side * channels), of=_SIDE,
        ),
        Family(
            "bmm", "batched matrix product by a constant", (32, 64, 64), _PRODUCTS,
            "ByConstant({n}, {b}, {c}), (torch.randn({n}, {a}, {b}),)",
            lambda rows, depth, outputs: 2 * BATCHES * rows * depth * outputs,
            lambda rows, depth, outputs: (BATCHES * rows * depth, BATCHES * depth * outputs, BATCHES * rows * outputs),
        ),
        Family(
            "bmm2", "batched matrix product of two inputs", (32, 64, 64), _PRODUCTS,
            "OfTwo(), (torch.randn({n}, {a}, {b}), torch.randn({n}, {b}, {c}))",
            lambda rows, depth, outputs: 2 * BATCHES * rows * depth * outputs,
            lambda rows, depth, outputs: (BATCHES * rows * depth, BATCHES * depth * outputs, BATCHES * rows * outputs),
        ),
    )
}  # fmt: skip
_BITS = {
    "fp32": (32, 32, 32),
    "fp16": (16, 16, 16),
    "qs8": (32, 8, 32),
    "qd8_qc8w": (32, 8, 32),
    "qd8_qb4w": (32, 4, 32),
}
"""Bits of an element of activations, weights and output, as they lie in memory; a scheme's scales are not counted."""

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

    @property
    def operations(self) -> int:
        """Multiplications and additions of one execution."""
        return self.family.operations(*self.shape)

    def bytes_moved(self, scheme: str) -> int:
        """Activations, weights and output, each once."""
        bits = zip(self.family.elements(*self.shape), _BITS[scheme], strict=True)
        return sum(count * each for count, each in bits) // 8

    def why_not(self, scheme: str) -> str:
        """Why it has no such scheme; empty if it has."""
        if scheme not in self.family.schemes:
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
        if layer.family.elements(*layer.shape)[1] > _LARGEST:
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
