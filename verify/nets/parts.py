"""Nets of packages that need more than a call with settings: a part of one, or several settings in one another.

Imports torch and the packages.
"""

from __future__ import annotations

from typing import Any

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


def transformer_encoder() -> Any:
    """torch's own encoder, four layers."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
