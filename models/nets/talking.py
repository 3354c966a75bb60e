"""An example of a model that generates text: docs/models.md explains it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from models.generating import greedy

WIDTH, CONTEXT, VOCABULARY = 32, 40, 64


class Speaker(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """One layer of attention over a cache of keys and values, called with tokens and their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, VOCABULARY))
        self.register_buffer("keys", torch.zeros(1, CONTEXT, WIDTH))
        self.register_buffer("values", torch.zeros(1, CONTEXT, WIDTH))

    def forward(self, token: Any, position: Any) -> Any:
        """Scores ``[1, tokens, vocabulary]`` of the next ones."""
        x = self.embedding(token) + self.places(position)
        self.keys.index_copy_(1, position, self.key(x))
        self.values.index_copy_(1, position, self.value(x))
        scores = self.query(x) @ self.keys.transpose(1, 2) / WIDTH**0.5
        later = torch.arange(CONTEXT) > position.unsqueeze(-1)
        return self.head(x + scores.masked_fill(later, float("-inf")).softmax(-1) @ self.values)


def make_model() -> tuple[Any, ...]:
    """A model with random weights that continues three tokens by 32."""
    torch.manual_seed(0)
    return greedy(Speaker(), torch.tensor([[1, 15, 27]]), length=32)


def make_methods() -> tuple[Any, ...]:
    """The same with two methods: one reads the prompt at once, the other generates."""
    torch.manual_seed(0)
    return greedy(Speaker(), torch.tensor([[1, 15, 27]]), length=32, prefill=True)
