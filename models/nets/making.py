"""What all architectures share."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


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


def attention(query: Any, key: Any, value: Any, heads: int, mask: Any = None) -> Any:
    """Heads side by side in the last dimension: ``[n, tokens, width]`` each, to the query's shape."""

    def split(x: Any) -> Any:
        return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)

    mixed = torch.nn.functional.scaled_dot_product_attention(split(query), split(key), split(value), attn_mask=mask)
    return mixed.transpose(1, 2).reshape(query.shape)
