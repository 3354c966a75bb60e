"""Samples for ``./inv compare``, and a measure of accuracy: docs/compare.md explains them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from models.nets.example import make_model


def make_samples() -> list[tuple[Any, Any]]:
    """25 batches of 4 rows, each row with its class. The classes are those that the float model chooses."""
    module, *_ = make_model()
    torch.manual_seed(1)
    batches = [torch.randn(4, 96) for _ in range(25)]
    with torch.no_grad():
        return [(batch, module(batch).argmax(dim=1)) for batch in batches]


def lead(outputs: Sequence[tuple[Any, ...]], labels: Sequence[Any]) -> float:
    """How far the right class leads on average: its score less the best of the others."""
    leads = []
    for (scores,), classes in zip(outputs, labels, strict=True):
        for row, right in zip(scores, classes, strict=True):
            leads.append(float(row[right]) - max(float(one) for place, one in enumerate(row) if place != right))
    return sum(leads) / len(leads)
