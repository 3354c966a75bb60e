"""The smallest linear layer: nearly all of one forward() of it is overhead."""

from __future__ import annotations

import torch


def smallest() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """One linear layer, float32 ``[1, 1] -> [1, 1]``."""
    torch.manual_seed(0)
    return torch.nn.Linear(1, 1), (torch.randn(1, 1),)
