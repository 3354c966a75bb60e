"""Small language models as upstream's exporters write them: tokens and positions in, scores out, a cache between."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

from core.files import write_atomic
from core.paths import dist_dir

CONTEXT, WIDTH = 40, 32
STOPS = [63, 62]
PROMPT = [1, 15, 27]
"""Five tokens follow, the last of them a stop."""


@functools.cache
def programs() -> Path:
    """A folder with ``speaker.pte``, ``other.pte``, the same with other weights, and ``several.pte``, whose
    ``text_decoder`` reads what its ``token_embedding`` makes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # upstream's exporter has many
        return _programs()


def _programs() -> Path:
    import torch
    from torch import nn

    from models.nets.talking import Speaker

    class Decoder(Speaker):  # type: ignore[misc,unused-ignore]
        """The part that reads embeddings."""

        def __init__(self, speaker: Any) -> None:
            super().__init__()
            self.load_state_dict(speaker.state_dict())
            self.embedding = nn.Identity()
            self.requires_grad_(False)

    folder = dist_dir() / "tests" / "language"
    position, count = torch.arange(4), torch.export.Dim("n", min=1, max=16)
    for seed, name in enumerate(("speaker", "other")):
        torch.manual_seed(seed)
        speaker = Speaker().eval().requires_grad_(False)
        tokens = torch.zeros(1, 4, dtype=torch.int64)
        _write(folder / f"{name}.pte", {"forward": (speaker, (tokens, position), ({1: count}, {0: count}))})
        if name == "speaker":
            rows = torch.zeros(1, 4, WIDTH)
            decoder = (Decoder(speaker), (rows, position), ({1: count}, {0: count}))
            embedding = (speaker.embedding, (tokens,), ({1: count},))
            _write(folder / "several.pte", {"token_embedding": embedding, "text_decoder": decoder})
    return folder


def _write(path: Path, methods: dict[str, tuple[Any, ...]]) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    lowered = to_edge_transform_and_lower(
        {
            name: torch.export.export(module, inputs, dynamic_shapes=dynamic, strict=False)
            for name, (module, inputs, dynamic) in methods.items()
        },
        partitioner=[XnnpackPartitioner()],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
        constant_methods={"get_max_context_len": CONTEXT, "get_eos_ids": STOPS},
    )
    write_atomic(path, bytes(lowered.to_executorch().buffer))
