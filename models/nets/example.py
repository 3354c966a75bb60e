"""An example of a model of your own: docs/models.md explains it line by line."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def make_model() -> tuple[Any, ...]:
    """A small classifier of 1 to 32 rows of 96 features."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(96, 64), nn.GELU(), nn.Linear(64, 5))
    example_inputs = (torch.randn(4, 96),)
    dynamic_shapes = ({0: torch.export.Dim("rows", min=1, max=32)},)
    calibration = [(torch.randn(4, 96),) for _ in range(8)]
    return module, example_inputs, dynamic_shapes, calibration
