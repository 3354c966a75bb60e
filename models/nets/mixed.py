"""A transformer block over token numbers: linear layers for the delegate, the rest for portable kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

SEED = 21
VOCABULARY, WIDTH, HEADS, TOKENS = 500, 64, 4, 16


class Block(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """Embedding, self-attention and a feed-forward layer, both residual behind a layer norm; scores per token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def _heads(self, x: Any) -> Any:
        """``[n, tokens, WIDTH] -> [n, HEADS, tokens, WIDTH / HEADS]``."""
        return x.reshape(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2)

    def forward(self, tokens: Any) -> Any:
        """``int64 [n, tokens] -> float [n, tokens, VOCABULARY]``."""
        x = self.embedding(tokens)
        y = self.norm1(x)
        y = functional.scaled_dot_product_attention(
            self._heads(self.query(y)), self._heads(self.key(y)), self._heads(self.value(y))
        )
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        x = x + self.down(functional.gelu(self.up(self.norm2(x))))
        return self.head(x)


def mixed() -> tuple[Any, ...]:
    """The block on 16 tokens."""
    torch.manual_seed(SEED)
    return Block(), (torch.randint(0, VOCABULARY, (1, TOKENS)),)
