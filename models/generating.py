"""Greedy generation inside a program: each execution reads one token and chooses the next. Imports torch.

The program keeps its position, the last token and a cache of keys and values as state, so it generates without any code
around it: N executions give N tokens (docs/models.md has an example). With two methods, ``prefill`` reads the prompt at
once and ``decode`` generates.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from core.errors import ExportError
from models.methods import Methods


class Greedy(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A causal language model that continues a prompt by its likeliest tokens, one for each execution.

    While the prompt lasts, an execution reads the prompt's next token. Its output is all that was generated so far,
    ``[1, length]`` int64, with zeros for what is to come.
    """

    def __init__(self, step: Any, prompt: int, length: int, prefill: bool) -> None:
        super().__init__()
        self.step = step
        self.generation = (prompt, length)
        self.executions = length - 1 if prefill else prompt - 1 + length
        self.strict = isinstance(step, _WithCache)  # transformers' caches need that
        self.register_buffer("position", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("token", torch.zeros(1, 1, dtype=torch.int64))
        self.register_buffer("tokens", torch.zeros(1, length, dtype=torch.int64))

    def forward(self, prompt: Any) -> Any:
        """Read one token.

        Args:
            prompt: ``[1, tokens]`` int64, the same in every execution.
        """
        last = prompt.shape[1] - 1
        given = prompt.index_select(1, self.position.clamp(max=last))
        return self._generate(torch.where(self.position <= last, given, self.token))

    def _generate(self, token: Any, end: Any = None) -> Any:
        prompt, length = self.generation
        # Executions after the last token have no room in the cache: they repeat themselves.
        place = self.position.clamp(max=prompt + length - 2)
        best = self.step(token, place)[:, -1].argmax(-1, keepdim=True)
        if end is not None:
            best = torch.where(token == end, token, best)
        number = self.position - (prompt - 1)
        at = number.clamp(0, length - 1)
        now = (number >= 0) & (number < length)
        self.tokens.index_copy_(1, at, torch.where(now, best, self.tokens.index_select(1, at)))
        self.token.copy_(best)
        self.position.add_(1)
        return self.tokens + 0

    def prefill(self, prompt: Any) -> Any:
        """Read all of the prompt and choose the first token.

        Args:
            prompt: ``[1, tokens]`` int64.
        """
        count = prompt.shape[1]
        best = self.step(prompt, torch.arange(count))[:, -1].argmax(-1, keepdim=True)
        self.tokens.index_copy_(1, torch.zeros(1, dtype=torch.int64), best)
        self.token.copy_(best)
        self.position.fill_(count)
        return self.tokens + 0

    def decode(self, end: Any) -> Any:
        """Choose the next token.

        Args:
            end: ``[1]`` int64, the token that ends a text: after it everything is the same. -1: there is none.
        """
        return self._generate(self.token + 0, end)


class _WithCache(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A model of transformers with a static cache, called by position."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__()
        from transformers.integrations.executorch import (  # type: ignore[import-not-found,unused-ignore]
            TorchExportableModuleWithStaticCache,
        )

        model.generation_config.use_cache = True
        model.generation_config.cache_implementation = "static"
        self.net = TorchExportableModuleWithStaticCache(model, batch_size=1, max_cache_len=length)

    def forward(self, token: Any, position: Any) -> Any:
        return self.net(input_ids=token, cache_position=position)


def greedy(model: Any, prompt: Any, length: int = 64, prefill: bool = False) -> tuple[Any, Any]:
    """A model with its inputs, as a model function returns them, that generates ``length`` tokens after ``prompt``.

    Args:
        model: a causal language model of transformers; or any module that is called with a token ``[1, 1]`` and its
            position ``[1]``, both int64, keeps what it needs of earlier tokens in buffers, and returns scores
            ``[1, 1, vocabulary]``; with ``prefill`` it is also called with several tokens ``[1, n]`` and their
            positions ``[n]``.
        prompt: ``[1, tokens]`` int64, at least one token.
        prefill: make two methods that share their state, ``prefill`` for the prompt and ``decode`` for each token.

    Raises:
        ExportError: the prompt has another shape or type, or the length is not positive.
    """
    if prompt.dim() != 2 or prompt.shape[0] != 1 or not prompt.numel() or prompt.dtype != torch.int64 or length < 1:
        raise ExportError(
            "greedy() takes a prompt of shape [1, tokens] of int64, and a length of at least 1.",
            f"the prompt is {list(prompt.shape)} of {prompt.dtype}, the length is {length}",
            "torch.tensor([[1, 15, 27]])",
        )
    model = model.eval()
    known = any(kind.__name__ == "PreTrainedModel" for kind in type(model).__mro__)
    step = _WithCache(model, prompt.shape[1] + length) if known else model
    module = Greedy(step, prompt.shape[1], length, prefill)
    return module, Methods(prefill=(prompt,), decode=(torch.tensor([-1]),)) if prefill else (prompt,)
