"""Single layers and a small MLP: the smallest programs that reach each kind of microkernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

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
