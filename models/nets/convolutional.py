"""Convolutional networks, each with its own kind of block, narrow enough to export in seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from models.nets.layers import made


def _conv(inputs: int, outputs: int, kernel: int, activation: Any = None, stride: int = 1, groups: int = 1) -> Any:
    """Convolution that keeps the size, batch norm, activation."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation]))


def _classifier(channels: int, classes: int = 10) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, classes)]


class Residual(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_conv(inputs, outputs, 3, nn.ReLU(), stride), _conv(outputs, outputs, 3))
        self.shortcut = nn.Identity() if inputs == outputs else _conv(inputs, outputs, 1, None, stride)

    def forward(self, x: Any) -> Any:
        """``[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]``."""
        return functional.relu(self.layers(x) + self.shortcut(x))


def resnet18() -> tuple[Any, ...]:
    """ResNet-18, an eighth as wide."""
    widths = (8, 8, 16, 32, 64)
    blocks: list[Any] = [_conv(3, 8, 7, nn.ReLU(), 2), nn.MaxPool2d(3, 2, 1)]
    for i in range(4):
        blocks += [Residual(widths[i], widths[i + 1], 1 if i == 0 else 2), Residual(widths[i + 1], widths[i + 1], 1)]
    return made(nn.Sequential(*blocks, *_classifier(64)), torch.randn(2, 3, 64, 64))


class Fire(nn.Module):  # type: ignore[misc]
    """SqueezeNet's block: few channels, then kernels of 1 and 3 side by side."""

    def __init__(self, inputs: int, few: int, many: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, few, 1)
        self.one = nn.Conv2d(few, many, 1)
        self.three = nn.Conv2d(few, many, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """``[n, inputs, h, w] -> [n, 2 many, h, w]``."""
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.one(x)), functional.relu(self.three(x))], 1)


def squeezenet() -> tuple[Any, ...]:
    """SqueezeNet 1.1, narrower; its pooling rounds sizes up."""
    return made(
        nn.Sequential(
            nn.Conv2d(3, 16, 3, 2),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(16, 8, 16),
            Fire(32, 8, 16),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(32, 16, 32),
            nn.Dropout(),
            nn.Conv2d(64, 10, 1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        ),
        torch.randn(1, 3, 61, 61),
    )


class UNet(nn.Module):  # type: ignore[misc]
    """Down twice, up twice, with what was seen on the way down."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._twice(3, width), self._twice(width, 2 * width)])
        self.bottom = self._twice(2 * width, 4 * width)
        self.wide = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.joined = self._twice(4 * width, 2 * width)
        self.resized = nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(2 * width, width, 1))
        self.last = self._twice(2 * width, width)
        self.classes = nn.Conv2d(width, 4, 1)

    @staticmethod
    def _twice(inputs: int, outputs: int) -> Any:
        return nn.Sequential(_conv(inputs, outputs, 3, nn.ReLU()), _conv(outputs, outputs, 3, nn.LeakyReLU(0.1)))

    def forward(self, x: Any) -> Any:
        """``[n, 3, h, w]``, sizes divisible by 4, to scores ``[n, 4, h, w]`` and the best class of each pixel."""
        first = self.down[0](x)
        second = self.down[1](functional.max_pool2d(first, 2))
        x = self.wide(self.bottom(functional.max_pool2d(second, 2)))
        x = self.joined(torch.cat([x, second], 1))
        x = self.classes(self.last(torch.cat([self.resized(x), first], 1)))
        return x, x.argmax(1)


def unet() -> tuple[Any, ...]:
    """A small U-Net with both ways of enlarging."""
    return made(UNet(8), torch.randn(1, 3, 32, 40))
