"""MobileNetV2 (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018, table 2).

The layers and the parameters' names are torchvision's, so that its published weights load.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

SEED = 22
PARAMETERS = 3_504_872

# Expansion, output channels, repeats, first stride: the paper's table 2.
_ROWS = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
_STEM, _LAST = 32, 1280


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> Any:
    """Convolution, batch norm, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class InvertedResidual(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Expand (1x1), filter (3x3 depthwise), project (1x1, linear); residual when the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.residual = stride == 1 and inputs == outputs
        layers = [] if expansion == 1 else [_conv_bn(inputs, hidden, 1)]
        layers += [
            _conv_bn(hidden, hidden, 3, stride, groups=hidden),
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
        layers = [_conv_bn(3, _STEM, 3, 2)]
        channels = _STEM
        for expansion, outputs, repeats, first in _ROWS:
            for index in range(repeats):
                layers.append(InvertedResidual(channels, outputs, first if index == 0 else 1, expansion))
                channels = outputs
        layers.append(_conv_bn(channels, _LAST, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(_LAST, classes))

    def forward(self, x: Any) -> Any:
        """``[n, 3, 224, 224] -> [n, classes]`` scores."""
        x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
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
    torch.manual_seed(SEED)
    net = MobileNetV2()
    if state_dict is None:
        _settle(net)
    else:
        net.load_state_dict(state_dict)
    return net, (torch.randn(1, 3, 224, 224),), None, [(torch.randn(1, 3, 224, 224),) for _ in range(4)]
