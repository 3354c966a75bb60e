"""Small language models as upstream's exporters write them: tokens and positions in, scores out, a cache between."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

from core.files import write_atomic
from core.paths import dist_dir

CONTEXT, WIDTH, VOCABULARY = 40, 32, 64
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

    class Decoder(Speaker):
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


SESSIONS = """
import numpy as np
import slipway_runtime
from slipway_runtime import Error, InputError, Session


def after(session, ids, count):
    found = []
    for _ in range(count):
        session.feed(ids)
        ids = [session.sample()]
        found += ids
    return found


def fails(code, said, call, *words):
    try:
        call(*words)
    except Error as error:
        assert error.code == code and said in error.message, (error.code, error.message)
        assert isinstance(error, InputError) == (code == 6)
    else:
        raise AssertionError(said)


prompt = [1, 15, 27]
program = slipway_runtime.load("speaker.pte")
with Session(program) as session:
    assert (session.position, session.context, session.width, session.logits) == (0, 40, 0, None)
    text = after(session, prompt, 12)
    assert session.logits.dtype == np.float32 and session.logits.shape == (64,)
    session.truncate(3)
    assert after(session, np.array(text[:1], np.uint8), 11) == text[1:]
    fails(2, "cannot go back to 15", session.truncate, 15)
    fails(2, "already", Session, program)
    fails(2, "no embeddings", session.feed_embeddings, np.zeros((1, 32)))
    for ids, said in (([64], "Token 64"), ([], "no token"), ([1] * 27, "A text of 41"), ([0.5], "whole numbers")):
        fails(6, said, session.feed, ids)
    session.reset()
    session.feed(prompt + text[:4])
    session.save("text.saved")
    saved = session.to_bytes()
    assert open("text.saved", "rb").read() == saved
    fails(3, "damaged", session.restore, saved[:-1])
    fails(3, "Cannot read", session.restore, "none.saved")
fails(2, "closed", session.feed, prompt)
with Session(slipway_runtime.load("other.pte")) as other:
    other.feed(prompt)
    logits = other.logits
    fails(6, "another program", other.restore, "text.saved")
    assert other.position == 3 and np.array_equal(other.logits, logits)
for source in (saved, "text.saved"):
    with Session(program, "forward") as session:  # the second one on this program
        fails(2, "no scores", session.sample)
        session.restore(source)
        assert session.position == 7
        assert [session.sample(), *after(session, text[4:5], 7)] == text[4:]
        session.reset()
        fails(2, "Sampling needs", session.set_sampling, -1)
        session.set_sampling(temperature=2, seed=1)
        drawn = after(session, prompt, 12)
        session.reset()
        session.set_sampling(temperature=2, seed=1)
        assert after(session, prompt, 12) == drawn != text
fails(2, "does not read tokens", Session, slipway_runtime.load("model.pte"))
several = slipway_runtime.load("several.pte")
with Session(several) as session:
    (rows,) = several.execute("token_embedding", np.array([prompt]), copy=True)
    session.feed_embeddings(rows[0])
    assert [session.sample(), *after(session, text[:1], 11)] == text
    fails(6, "rows of 32", session.feed_embeddings, rows)
"""
"""A program that tries sessions of the package slipway_runtime, in a folder with these programs and `model.pte`."""
