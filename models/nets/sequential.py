"""Networks over sequences: transformers, recurrent layers, sound; and two that compute without rounding."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from models.nets.convolutional import made

WORDS = 100
BUCKETS = 32


def attention(query: Any, key: Any, value: Any, heads: int, mask: Any = None) -> Any:
    """Heads side by side in the last dimension: ``[n, tokens, width]`` each, to the query's shape."""

    def split(x: Any) -> Any:
        return x.reshape(x.shape[0], x.shape[1], heads, x.shape[2] // heads).transpose(1, 2)

    mixed = torch.nn.functional.scaled_dot_product_attention(split(query), split(key), split(value), attn_mask=mask)
    return mixed.transpose(1, 2).reshape(query.shape)


class Block(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """A transformer's layer, normalised before (as GPT-2 and ViT) or after (as BERT)."""

    def __init__(self, width: int, heads: int, before: bool, activation: Any) -> None:
        super().__init__()
        self.heads, self.before, self.activation = heads, before, activation
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def _attend(self, x: Any, mask: Any) -> Any:
        query, key, value = self.joint(x).chunk(3, -1)
        return self.out(attention(query, key, value, self.heads, mask))

    def _feed(self, x: Any) -> Any:
        return self.down(self.activation(self.up(x)))

    def forward(self, x: Any, mask: Any = None) -> Any:
        """``[n, tokens, width]`` to the same."""
        if self.before:
            x = x + self._attend(self.norm1(x), mask)
            return x + self._feed(self.norm2(x))
        x = self.norm1(x + self._attend(x, mask))
        return self.norm2(x + self._feed(x))


class Encoder(nn.Module):  # type: ignore[misc]
    """BERT's encoder with its mask of padding, pooler and probabilities."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 32, padding_idx=0)
        self.places = nn.Embedding(16, 32)
        self.kinds = nn.Embedding(2, 32)
        self.norm = nn.LayerNorm(32, eps=1e-12)
        self.blocks = nn.ModuleList(Block(32, 4, False, nn.GELU()) for _ in range(2))
        self.pooler = nn.Linear(32, 32)
        self.head = nn.Linear(32, 3)

    def forward(self, tokens: Any, kinds: Any) -> Any:
        """``int64 [n, tokens]`` twice, 0 for padding, to log probabilities ``[n, 3]`` and states."""
        mask = (tokens != 0)[:, None, None, :]
        mask = torch.zeros_like(mask, dtype=torch.float32).masked_fill(~mask, -1e9)
        places = torch.arange(tokens.shape[1]).unsqueeze(0)
        x = self.norm(self.words(tokens) + self.places(places) + self.kinds(kinds))
        for block in self.blocks:
            x = block(x, mask)
        return functional.log_softmax(self.head(torch.tanh(self.pooler(x[:, 0]))), -1), x


def bert() -> tuple[Any, ...]:
    """BERT, two layers of 32."""
    tokens = torch.randint(1, WORDS, (2, 12))
    tokens[1, 8:] = 0
    return made(Encoder(), tokens, torch.randint(0, 2, (2, 12)))


class Cached(nn.Module):  # type: ignore[misc]
    """Llama's attention: rotated by place, fewer keys than queries, keys and values kept from token to token."""

    def __init__(self, width: int, heads: int, groups: int, most: int) -> None:
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, groups * self.size, bias=False)
        self.value = nn.Linear(width, groups * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, groups, most, self.size))
        self.register_buffer("values", torch.zeros(1, groups, most, self.size))

    @staticmethod
    def _rotate(x: Any, turn: Any) -> Any:
        cos, sin = turn
        first, second = x.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def forward(self, x: Any, place: Any, turn: Any) -> Any:
        """``[1, 1, width]`` at ``place`` (``int64 [1]``) to the same."""
        query = self._rotate(self.query(x).view(1, 1, self.heads, self.size).transpose(1, 2), turn)
        key = self._rotate(self.key(x).view(1, 1, self.groups, self.size).transpose(1, 2), turn)
        self.keys[:, :, place] = key
        self.values[:, :, place] = self.value(x).view(1, 1, self.groups, self.size).transpose(1, 2)
        repeats = self.heads // self.groups
        keys = self.keys.repeat_interleave(repeats, 1)
        values = self.values.repeat_interleave(repeats, 1)
        seen = torch.arange(self.keys.shape[2]) <= place
        scores = query @ keys.transpose(-1, -2) / self.size**0.5
        scores = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        return self.out((scores @ values).transpose(1, 2).reshape(x.shape))


class Root(nn.Module):  # type: ignore[misc]
    """Llama's norm: by the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        """``[..., width]`` to the same."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


class Decoder(nn.Module):  # type: ignore[misc]
    """Llama's decoder, a token a call; it counts its calls itself.

    The same token again and again would leave no trace in the cache (all values the same), so each call takes another.
    """

    def __init__(self, width: int = 64, most: int = 16) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.attend = nn.ModuleList(Cached(width, 4, 2, most) for _ in range(2))
        self.norms = nn.ModuleList(Root(width) for _ in range(4))
        self.gate = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.up = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(2 * width, width, bias=False) for _ in range(2))
        self.head = nn.Linear(width, WORDS, bias=False)
        self.register_buffer("place", torch.zeros(1, dtype=torch.int64))
        angles = torch.outer(torch.arange(most), 10000.0 ** -(torch.arange(8) / 8))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, token: Any) -> Any:
        """``int64 [1, 1] -> [1, 1, WORDS]``; each call is one place further on."""
        x = self.words((token + 7 * self.place) % WORDS)
        turn = self.cos[self.place], self.sin[self.place]
        for i in range(2):
            x = x + self.attend[i](self.norms[2 * i](x), self.place, turn)
            y = self.norms[2 * i + 1](x)
            x = x + self.down[i](functional.silu(self.gate[i](y)) * self.up[i](y))
        scores = self.head(x)
        self.place += 1
        return scores


def llama() -> tuple[Any, ...]:
    """Llama with a cache of 16 places."""
    # Its cache is written from what the weights give: without gradients, or the cache would want one, too.
    return made(Decoder().requires_grad_(False), torch.randint(0, WORDS, (1, 1)))


class Window(nn.Module):  # type: ignore[misc]
    """Swin's block: attention in windows that the image is rolled under, with learned distances."""

    def __init__(self, width: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.norm = nn.LayerNorm(width)
        self.block = Block(width, 2, True, nn.GELU())
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2))
        places = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        apart = (places[:, :, None] - places[:, None]) + window - 1
        self.register_buffer("apart", apart[0] * (2 * window - 1) + apart[1])

    def forward(self, x: Any) -> Any:
        """``[n, h, w, width]``, sizes divisible by the window, to the same."""
        n, h, w, c = x.shape
        k = self.window
        y = torch.roll(self.norm(x), (-self.shift, -self.shift), (1, 2))
        y = y.view(n, h // k, k, w // k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, k * k, c)
        y = self.block(y, self.bias[self.apart])
        y = y.view(n, h // k, w // k, k, k, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        return x + torch.roll(y, (self.shift, self.shift), (1, 2))


class Swin(nn.Module):  # type: ignore[misc]
    """Two windows, a merge of patches, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.blocks = nn.Sequential(Window(16, 4, 0), Window(16, 4, 2))
        self.merge = nn.Linear(64, 32, bias=False)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        """``[n, 3, 32, 32] -> [n, 10]``."""
        x = self.blocks(self.patches(x).permute(0, 2, 3, 1))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.head(self.merge(torch.cat(parts, -1)).mean((1, 2)))


def swin() -> tuple[Any, ...]:
    """Swin, one stage and a merge."""
    return made(Swin(), torch.randn(1, 3, 32, 32))


class Recurrent(nn.Module):  # type: ignore[misc]
    """Recurrent layers over vectors, their last states too."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(12, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(32, 8, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        """``[n, steps, 12] -> [n, steps, 5]``, and the LSTM's hidden states."""
        x, (hidden, _) = self.lstm(x)
        x, _ = self.gru(x)
        return self.head(x).softmax(-1), hidden


def lstm() -> tuple[Any, ...]:
    """Two layers in both directions, and a GRU."""
    return made(Recurrent(), torch.randn(2, 6, 12))


class Sound(nn.Module):  # type: ignore[misc]
    """A sound's recogniser: strided filters over samples, gated dilated ones, attention's sum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 10, 5, 3)
        self.norm = nn.GroupNorm(4, 16)
        self.gated = nn.ModuleList(nn.Conv1d(16, 32, 3, padding=2**i, dilation=2**i) for i in range(3))
        self.batch = nn.BatchNorm1d(16)
        self.small = nn.Conv1d(16, 24, 8, 4, groups=4)
        self.back = nn.ConvTranspose1d(24, 8, 4, 2, 1)
        self.score = nn.Conv1d(8, 1, 1)
        self.head = nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        """``[n, 1, samples] -> [n, 6]``."""
        x = functional.gelu(self.norm(self.first(x)))
        for layer in self.gated:
            x = x + functional.glu(layer(x), 1)
        x = functional.elu(self.small(self.batch(x)))
        x = functional.leaky_relu(self.back(x))
        weights = self.score(x).softmax(-1)
        return self.head((x * weights).sum(-1)), torch.log1p(x.abs()).amax(-1)


def audio() -> tuple[Any, ...]:
    """Filters over 400 samples."""
    return made(Sound(), torch.randn(2, 1, 400))


class Moved(nn.Module):  # type: ignore[misc]  # torch's types are not read here
    """An image cut, rolled, shuffled, padded and picked from, as vision transformers and upscalers do; no sums."""

    def forward(self, x: Any, rows: Any) -> tuple[Any, ...]:
        """``[n, 4, 8, 8]`` and ``int64 [picked]``, rows of windows, to six rearrangements."""
        n = x.shape[0]
        windows = x.roll((2, 2), (2, 3)).reshape(n, 4, 2, 4, 2, 4).permute(0, 2, 4, 3, 5, 1).reshape(4 * n, 16, 4)
        padded = functional.pad(functional.pixel_shuffle(x, 2), (1, 2, 0, 3), value=1.5)
        first, second = x.flip([3]).split(2, 1)
        swapped = torch.cat([second, first.transpose(2, 3)], 1)
        woven = torch.stack([x[:, :, ::2], x[:, :, 1::2]], 3).flatten(2)
        picked = windows.index_select(0, rows).repeat(1, 2, 1)
        larger = torch.where(x > x.flip([1]), x, x.flip([1]))
        return windows, padded, swapped, woven, picked, larger


def moved() -> tuple[Any, ...]:
    """Two images, and five of their windows."""
    return made(Moved(), torch.randn(2, 4, 8, 8), torch.tensor([7, 0, 3, 3, 5]))


class Hashed(nn.Module):  # type: ignore[misc]
    """Words to counts of hashed pairs, as classifiers of text on small devices do: whole numbers throughout."""

    def forward(self, words: Any) -> tuple[Any, ...]:
        """``int64 [n, tokens]``, 0 for padding, to codes, counts ``[n, BUCKETS]``, their sums, and who is there."""
        codes = (words * 31 + words.roll(1, 1) * 17 + 7) % 1009
        mixed = torch.bitwise_xor(codes, torch.bitwise_right_shift(codes, 3))
        buckets = torch.bitwise_and(mixed, BUCKETS - 1)
        present = words != 0
        counts = torch.zeros(words.shape[0], BUCKETS, dtype=torch.int64).scatter_add(1, buckets, present.long())
        share = torch.div(counts * 255, words.shape[1], rounding_mode="floor").to(torch.uint8)
        busiest = counts.amax(1).to(torch.int32)
        return codes, counts, counts.cumsum(1), share, busiest, torch.logical_and(present, buckets > 8).any(1)


def hashed() -> tuple[Any, ...]:
    """Two texts, one of them shorter."""
    words = torch.randint(1, 30_000, (2, 24))
    words[1, 15:] = 0
    return made(Hashed(), words)
