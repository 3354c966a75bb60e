"""Small programs that fuzzing begins with: little data, as much structure as a program can have.

Upstream's exporter makes all of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from models.lowering import shortcuts
from verify.operators import attacks, written
from verify.sound import table
from verify.sound.making import Program, made, sound
from verify.sound.runtime import PROGRAMS

_DELEGATED = ("made-images-per-channel-delegated", "made-lines-per-channel-delegated", "types-layer-half-delegated")
"""Sound programs of small layers, quantized and in half precision."""


def _elementwise(m: Any, x: Any, y: Any) -> Any:
    """Nodes with one or two inputs, of one shape."""
    a = torch.sigmoid(x) + y.abs() * torch.clamp(x, -1, 1)
    b = nn.functional.hardswish(a) - nn.functional.leaky_relu(y, 0.1)
    c = torch.maximum(torch.sqrt(a * a), torch.tanh(b)) / (nn.functional.elu(x) + 9)
    return torch.cat([c, b.neg(), torch.exp(a)], 1), torch.softmax(b, -1), c.transpose(1, 2)


def _image(m: Any, x: Any) -> Any:
    """``[1, 2, 8, 8]`` down and up again, through convolutions and what belongs to them."""
    y = torch.relu(m.depthwise(m.first(x)))
    z = m.slope(m.up(nn.functional.max_pool2d(y, 2)))
    wide = nn.functional.interpolate(z, size=(6, 6), mode="bilinear")
    return nn.functional.pad(nn.functional.avg_pool2d(wide, 2), (1, 0, 0, 1)), y.mean((2, 3)), z[:, :, 1:3]


def _attention(m: Any, x: Any) -> Any:
    """``[1, 3, 4]`` attends to itself: products of what is computed."""
    q, k, v = m.layer(x).split(4, -1)
    return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 2, -1), v)


@shortcuts.in_torch()
def _delegated() -> dict[str, Program]:
    """Small networks whose nodes are all in a delegate."""
    convolutions = {
        "first": nn.Conv2d(2, 4, 3, stride=2, padding=1), "depthwise": nn.Conv2d(4, 4, 3, padding=1, groups=4),
        "up": nn.ConvTranspose2d(4, 2, 2, stride=2), "slope": nn.PReLU(2),
    }  # fmt: skip
    pair = (torch.randn(1, 2, 3), torch.randn(1, 2, 3))
    return {
        "d-elementwise": sound(made(_elementwise), pair, delegate=True),
        "d-image": sound(made(_image, **convolutions), (torch.randn(1, 2, 8, 8),), delegate=True),
        "d-attention": sound(made(_attention, layer=nn.Linear(4, 12)), (torch.randn(1, 3, 4),), delegate=True),
    }


def make(folder: Path) -> None:
    """Write all of them."""
    torch.manual_seed(0)
    every = table.programs()
    some = PROGRAMS | {one: every[one] for one in (*table.EACH, *_DELEGATED)}
    programs = {name: build().buffer for name, build in some.items()}
    programs |= {name: one.buffer for name, one in _delegated().items()}
    programs |= {name: getattr(written, name)().program() for name in ("numbers", "calls", "chance")}
    programs |= {name: attacks.program(name)[0] for name in attacks.WRONG}
    for name, buffer in programs.items():
        (folder / f"{name}.pte").write_bytes(buffer)
