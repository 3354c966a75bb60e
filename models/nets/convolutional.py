"""Convolutional networks, each with its own kind of block, narrow enough to export in seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

SEED = 20


class MatMul(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """``a @ b`` for batches of matrices."""

    def forward(self, a: Any, b: Any) -> Any:
        """``[n, i, k] x [n, k, j] -> [n, i, j]``."""
        return torch.matmul(a, b)


def _samples(count: int, *shape: int) -> list[tuple[Any, ...]]:
    """``count`` calibration samples of one normally distributed input."""
    return [(torch.randn(*shape),) for _ in range(count)]


def made(module: Any, *inputs: Any) -> tuple[Any, ...]:
    """``module`` in eval mode, with its batch norms as if they had learned something, and its inputs."""
    for layer in module.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            # A fresh one has mean 0 and variance 1: an engine that ignores them would go unseen.
            nn.init.normal_(layer.running_mean, std=0.2)
            nn.init.uniform_(layer.running_var, 0.5, 1.5)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
    return module.eval(), inputs


def linear() -> tuple[Any, ...]:
    """One linear layer, float32 ``[32, 256] -> [32, 128]``."""
    torch.manual_seed(SEED)
    return nn.Linear(256, 128), (torch.randn(32, 256),), None, _samples(8, 32, 256)


def conv() -> tuple[Any, ...]:
    """One 3x3 convolution, float32 ``[1, 16, 32, 32] -> [1, 32, 32, 32]``."""
    torch.manual_seed(SEED)
    return nn.Conv2d(16, 32, 3, padding=1), (torch.randn(1, 16, 32, 32),), None, _samples(8, 1, 16, 32, 32)


def conv1x1() -> tuple[Any, ...]:
    """One 1x1 convolution, float32 ``[1, 64, 28, 28] -> [1, 96, 28, 28]``."""
    torch.manual_seed(SEED)
    return nn.Conv2d(64, 96, 1), (torch.randn(1, 64, 28, 28),), None, _samples(8, 1, 64, 28, 28)


def matmul() -> tuple[Any, ...]:
    """Batched matrix product, float32 ``[4, 32, 64] x [4, 64, 48] -> [4, 32, 48]``."""
    torch.manual_seed(SEED)
    return MatMul(), (torch.randn(4, 32, 64), torch.randn(4, 64, 48))


def mlp() -> tuple[Any, ...]:
    """Three linear layers with ReLU between, float32 ``[8, 64] -> [8, 10]``."""
    torch.manual_seed(SEED)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    return net, (torch.randn(8, 64),), None, _samples(16, 8, 64)


def _conv(inputs: int, outputs: int, kernel: int, activation: Any = None, stride: int = 1, groups: int = 1) -> Any:
    """Convolution that keeps the size, batch norm, activation."""
    layers = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if activation is None else [activation]))


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
    blocks += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(64, 10)]
    return made(nn.Sequential(*blocks), torch.randn(2, 3, 64, 64))


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


# MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018). Layers and names of
# parameters are torchvision's, so that its published weights load. Expansion, output channels, repeats, first stride:
# the paper's table 2.
_ROWS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_STEM, _LAST = 32, 1280


def _relu6() -> Any:
    return nn.ReLU6(inplace=True)


class InvertedResidual(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Expand (1x1), filter (3x3 depthwise), project (1x1, linear); residual when the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        layers = [] if expansion == 1 else [_conv(inputs, hidden, 1, _relu6())]
        layers += [
            _conv(hidden, hidden, 3, _relu6(), stride, hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)

    def forward(self, x: Any) -> Any:
        """``[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]``."""
        return x + self.conv(x) if self.residual else self.conv(x)


class MobileNetV2(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Width 1.0, 1000 classes."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers = [_conv(3, _STEM, 3, _relu6(), 2)]
        channels = _STEM
        for expansion, outputs, repeats, first in _ROWS:
            for index in range(repeats):
                layers.append(InvertedResidual(channels, outputs, first if index == 0 else 1, expansion))
                channels = outputs
        layers.append(_conv(channels, _LAST, 1, _relu6()))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(_LAST, classes))

    def forward(self, x: Any) -> Any:
        """``[n, 3, 224, 224] -> [n, classes]`` scores."""
        x = functional.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(torch.flatten(x, 1))


def _settle(net: Any) -> None:
    """Random weights whose activations are sane.

    Layers start as He et al. (2015) prescribe; batch norm's statistics are those of seeded noise. Residual branches
    start small, so that rounding does not grow from block to block as it would not in a trained network.
    """
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
        elif isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # average over all the batches below
        elif isinstance(layer, InvertedResidual) and layer.residual:
            nn.init.constant_(layer.conv[-1].weight, 0.3)
    nn.init.normal_(net.classifier[1].weight, std=0.05)
    nn.init.zeros_(net.classifier[1].bias)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net.features(torch.randn(2, 3, 224, 224))
    net.eval()


def mobilenet_v2(state_dict: dict[str, Any] | None = None) -> tuple[Any, ...]:
    """The network on one 224x224 image; ``state_dict``: trained weights under torchvision's names."""
    torch.manual_seed(22)
    net = MobileNetV2()
    if state_dict is None:
        _settle(net)
    else:
        net.load_state_dict(state_dict)
    return net, (torch.randn(1, 3, 224, 224),), None, [(torch.randn(1, 3, 224, 224),) for _ in range(4)]
