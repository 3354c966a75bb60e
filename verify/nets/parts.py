"""Nets of packages that need more than a call with settings: a part of one, or several settings in one another.

Imports torch and the packages.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class _Heads(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A detector up to its heads; the search for boxes after them has no fixed number of results."""

    def __init__(self, detector: Any) -> None:
        super().__init__()
        self.backbone = detector.backbone
        self.head = detector.head

    def forward(self, x: Any) -> Any:
        return self.head(list(self.backbone(x).values()))


def ssdlite() -> Any:
    """torchvision's SSDlite with MobileNetV3: backbone and heads."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    return _Heads(ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None))


def clip() -> Any:
    """A small CLIP: both towers."""
    from transformers import CLIPConfig, CLIPModel

    small = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 4}
    text = {**small, "vocab_size": 8192, "max_position_embeddings": 16, "eos_token_id": 8191}
    return CLIPModel(CLIPConfig(text_config=text, vision_config={**small, "patch_size": 16}, projection_dim=256))


class _Frames(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A net that is also told how many frames there are: all."""

    def __init__(self, net: Any) -> None:
        super().__init__()
        self.net = net

    def forward(self, input: Any) -> Any:  # noqa: A002  # the name in the net
        return self.net(input, torch.full((input.shape[0],), input.shape[1], dtype=torch.int64))[0]


def conformer() -> Any:
    """torchaudio's Conformer, four layers."""
    from torchaudio.models import Conformer

    return _Frames(Conformer(80, num_heads=4, ffn_dim=256, num_layers=4, depthwise_conv_kernel_size=31))


def transformer_encoder() -> Any:
    """torch's own encoder, four layers."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def ds_cnn() -> Any:
    """The keyword spotter of MLPerf Tiny: 49 frames of 10 coefficients to 12 words."""

    def block(inputs: int, kernel: tuple[int, int], stride: int, groups: int = 1) -> list[Any]:
        padding = (kernel[0] // 2, (kernel[1] - 1) // 2)
        layer = nn.Conv2d(inputs, 64, kernel, stride, padding, groups=groups, bias=False)
        return [layer, nn.BatchNorm2d(64), nn.ReLU()]

    separable = [layer for _ in range(4) for layer in (*block(64, (3, 3), 1, 64), *block(64, (1, 1), 1))]
    layers = [*block(1, (10, 4), 2), *separable, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12)]
    return nn.Sequential(*layers)
