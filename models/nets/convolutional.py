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


class SqueezeExcite(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Channels weighted by what the whole image says of them."""

    def __init__(self, channels: int, inner: int, activation: Any, gate: Any) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, inner, 1), activation, nn.Conv2d(inner, channels, 1), gate
        )

    def forward(self, x: Any) -> Any:
        """``[n, c, h, w]`` to the same."""
        return x * self.layers(x)


class Inverted(nn.Module):  # type: ignore[misc]
    """Expand, filter per channel, weigh channels, project; residual where the shape stays."""

    def __init__(
        self, inputs: int, outputs: int, expand: int, kernel: int, stride: int, activation: Any, gate: Any
    ) -> None:
        super().__init__()
        wide = inputs * expand
        self.residual = stride == 1 and inputs == outputs
        self.layers = nn.Sequential(
            _conv(inputs, wide, 1, activation),
            _conv(wide, wide, kernel, activation, stride, wide),
            *([] if gate is None else [SqueezeExcite(wide, max(4, wide // 4), nn.ReLU(), gate)]),
            _conv(wide, outputs, 1),
        )

    def forward(self, x: Any) -> Any:
        """``[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]``."""
        return x + self.layers(x) if self.residual else self.layers(x)


def _classifier(channels: int, classes: int = 10) -> list[Any]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(channels, classes)]


def mobilenet_v3() -> tuple[Any, ...]:
    """MobileNetV3's blocks: hard swish, hard sigmoid gates, kernels of 3 and 5."""
    swish, gate = nn.Hardswish(), nn.Hardsigmoid()
    return made(
        nn.Sequential(
            _conv(3, 16, 3, swish, 2),
            Inverted(16, 16, 1, 3, 2, nn.ReLU(), gate),
            Inverted(16, 24, 4, 3, 2, nn.ReLU(), None),
            Inverted(24, 24, 3, 3, 1, nn.ReLU(), None),
            Inverted(24, 40, 4, 5, 2, swish, gate),
            Inverted(40, 40, 6, 5, 1, swish, gate),
            _conv(40, 96, 1, swish),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(96, 64),
            nn.Hardswish(),
            nn.Linear(64, 10),
        ),
        torch.randn(1, 3, 64, 64),
    )


def efficientnet() -> tuple[Any, ...]:
    """EfficientNet-B0's blocks: SiLU and sigmoid gates."""
    silu, gate = nn.SiLU(), nn.Sigmoid()
    return made(
        nn.Sequential(
            _conv(3, 16, 3, silu, 2),
            Inverted(16, 8, 1, 3, 1, silu, gate),
            Inverted(8, 12, 6, 3, 2, silu, gate),
            Inverted(12, 12, 6, 3, 1, silu, gate),
            Inverted(12, 20, 6, 5, 2, silu, gate),
            Inverted(20, 20, 6, 5, 1, silu, gate),
            _conv(20, 64, 1, silu),
            *_classifier(64),
        ),
        torch.randn(1, 3, 48, 48),
    )


class Residual(nn.Module):  # type: ignore[misc]
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


class Shuffle(nn.Module):  # type: ignore[misc]
    """ShuffleNetV2's block: half the channels pass, the other half is filtered, then they are mixed."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.layers = nn.Sequential(
            _conv(half, half, 1, nn.ReLU()), _conv(half, half, 3, None, 1, half), _conv(half, half, 1, nn.ReLU())
        )

    def forward(self, x: Any) -> Any:
        """``[n, channels, h, w]`` to the same."""
        kept, changed = x.chunk(2, 1)
        n, c, h, w = x.shape
        x = torch.cat([kept, self.layers(changed)], 1)
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> tuple[Any, ...]:
    """ShuffleNetV2's blocks."""
    return made(
        nn.Sequential(
            _conv(3, 24, 3, nn.ReLU(), 2), nn.MaxPool2d(3, 2, 1), Shuffle(24), Shuffle(24),
            _conv(24, 48, 3, nn.ReLU(), 2), Shuffle(48), *_classifier(48),
        ),
        torch.randn(1, 3, 56, 56),
    )  # fmt: skip


class Dense(nn.Module):  # type: ignore[misc]
    """DenseNet's block: every layer reads all that came before it."""

    def __init__(self, inputs: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(inputs + i * growth),
                nn.ReLU(),
                nn.Conv2d(inputs + i * growth, growth, 3, padding=1, bias=False),
            )
            for i in range(layers)
        )

    def forward(self, x: Any) -> Any:
        """``[n, inputs, h, w] -> [n, inputs + layers * growth, h, w]``."""
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def densenet() -> tuple[Any, ...]:
    """Two dense blocks with a transition between them."""
    return made(
        nn.Sequential(
            _conv(3, 16, 3, nn.ReLU(), 2), Dense(16, 8, 3), _conv(40, 20, 1, nn.ReLU()), nn.AvgPool2d(2),
            Dense(20, 8, 3), nn.BatchNorm2d(44), nn.ReLU(), *_classifier(44),
        ),
        torch.randn(1, 3, 40, 40),
    )  # fmt: skip


class ConvNext(nn.Module):  # type: ignore[misc]
    """ConvNeXt's block: a wide filter per channel, layer norm over channels, two linear layers, a learned share."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.filter = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.share = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x: Any) -> Any:
        """``[n, width, h, w]`` to the same."""
        y = self.norm(self.filter(x).permute(0, 2, 3, 1))
        y = self.share * self.down(functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> tuple[Any, ...]:
    """A patch layer and two blocks."""
    return made(
        nn.Sequential(nn.Conv2d(3, 24, 4, 4), ConvNext(24), ConvNext(24), *_classifier(24)), torch.randn(1, 3, 48, 48)
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
