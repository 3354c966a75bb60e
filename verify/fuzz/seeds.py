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
from verify.sound.runtime import PROGRAMS

_DELEGATED = ("made-images-per-channel-delegated", "made-lines-per-channel-delegated", "types-layer-half-delegated")
"""Sound programs of small layers, quantized and in half precision."""


class Elementwise(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Nodes with one or two inputs."""

    def forward(self, x: Any, y: Any) -> Any:
        """Two tensors of one shape."""
        a = torch.sigmoid(x) + y.abs() * torch.clamp(x, -1, 1)
        b = nn.functional.hardswish(a) - nn.functional.leaky_relu(y, 0.1)
        c = torch.maximum(torch.sqrt(a * a), torch.tanh(b)) / (nn.functional.elu(x) + 9)
        return torch.cat([c, b.neg(), torch.exp(a)], 1), torch.softmax(b, -1), c.transpose(1, 2)


class Image(nn.Module):  # type: ignore[misc]
    """Convolutions and what belongs to them."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.slope = nn.PReLU(2)

    def forward(self, x: Any) -> Any:
        """``[1, 2, 8, 8]`` down and up again."""
        y = torch.relu(self.depthwise(self.first(x)))
        z = self.slope(self.up(nn.functional.max_pool2d(y, 2)))
        wide = nn.functional.interpolate(z, size=(6, 6), mode="bilinear")
        return nn.functional.pad(nn.functional.avg_pool2d(wide, 2), (1, 0, 0, 1)), y.mean((2, 3)), z[:, :, 1:3]


class Attention(nn.Module):  # type: ignore[misc]
    """Products of what is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 12)

    def forward(self, x: Any) -> Any:
        """``[1, 3, 4]`` attends to itself."""
        q, k, v = self.layer(x).split(4, -1)
        return torch.bmm(torch.softmax(torch.bmm(q, k.transpose(1, 2)) / 2, -1), v)


@shortcuts.in_torch()
def _delegated(module: nn.Module, inputs: tuple[Any, ...]) -> bytes:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    exported = torch.export.export(module, inputs, strict=False)
    return bytes(to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer)


def make(folder: Path) -> None:
    """Write all of them."""
    torch.manual_seed(0)
    image, sequence = (torch.randn(1, 2, 8, 8),), (torch.randn(1, 3, 4),)
    pair = (torch.randn(1, 2, 3), torch.randn(1, 2, 3))
    sound = table.programs()
    programs = {
        name: build().buffer
        for name, build in (PROGRAMS | {one: sound[one] for one in (*table.EACH, *_DELEGATED)}).items()
    }
    programs |= {name: getattr(written, name)().program() for name in ("numbers", "calls", "chance")}
    programs |= {name: attacks.program(name)[0] for name in attacks.WRONG}
    programs["d-elementwise"] = _delegated(Elementwise().eval(), pair)
    programs["d-image"] = _delegated(Image().eval(), image)
    programs["d-attention"] = _delegated(Attention().eval(), sequence)
    for name, buffer in programs.items():
        (folder / f"{name}.pte").write_bytes(buffer)
