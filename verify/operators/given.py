"""Programs whose inputs a runtime may read where they are, if it sees who else reads and writes there."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from verify.operators.lowering import Program, Run, flat, lower


class Written(nn.Module):  # type: ignore[misc]
    """An input that the method writes to, one that only a delegate reads, and one that is also a result."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, written: Any, read: Any, passed: Any) -> Any:
        """All ``[64, 64]``."""
        result = self.layer(read) + written
        written.add_(self.layer(passed))
        return result, written * 2, passed, passed.sin()


def inputs_written() -> Program:
    """One execution, and three in a row with the same inputs."""
    module = Written().requires_grad_(False)
    given = tuple(torch.randn(64, 64) for _ in range(3))
    exported = torch.export.export(module, tuple(one.clone() for one in given), strict=False)
    after = tuple(one.clone() for one in given)
    # What was written to an input comes first among the outputs.
    results = flat((after[0], *module(*after)))
    return lower(exported, (Run(given, results), Run(given, results, 3)), delegate=True)


class Viewed(nn.Module):  # type: ignore[misc]
    """An input that only a view of it is read of: the exporter leaves the view out, as a value in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 8)

    def forward(self, rows: Any) -> Any:
        """``[2, 12]`` to ``[6, 4, 8]``."""
        return self.table(rows.view(-1, 4))


def input_viewed() -> Program:
    """One execution, and three in a row with the same input."""
    module = Viewed().requires_grad_(False)
    rows = torch.randint(1, 50, (2, 12))
    runs = tuple(Run((rows,), (module(rows),), executions) for executions in (1, 3))
    return lower(torch.export.export(module, (rows,), strict=False), runs, delegate=True)
