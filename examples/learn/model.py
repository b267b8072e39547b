"""A small transformer in plain torch, and how it is sampled: a batch of prompts at once, with a key-value cache.

Invariant: the log-probability that is handed out with a sampled token is that of the distribution it was drawn from,
so that a trainer which computes it again over the whole sequence finds the same number, within float error.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from examples.learn.spoken import Spoken


@dataclass(frozen=True)
class Shape:
    """How large a model is."""

    vocabulary: int
    width: int = 64
    heads: int = 4
    layers: int = 2


class Cache:
    """Keys and values of the sequences of one batch, layer by layer; positions that were not written hold zeros."""

    def __init__(self, shape: Shape, batch: int, length: int) -> None:
        size = (batch, shape.heads, length, shape.width // shape.heads)
        self.keys = [torch.zeros(size) for _ in range(shape.layers)]
        self.values = [torch.zeros(size) for _ in range(shape.layers)]

    def write(self, layer: int, positions: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
        """Put keys and values (batch, heads, tokens, size) at each sequence's own positions (batch, tokens)."""
        index = positions[:, None, :, None].expand_as(key)
        self.keys[layer].scatter_(2, index, key)
        self.values[layer].scatter_(2, index, value)


class Layer(nn.Module):
    """Attention and a feed-forward network, each on a normalised copy of what it adds to."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention, self.before_feed = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.read, self.write = nn.Linear(shape.width, 3 * shape.width), nn.Linear(shape.width, shape.width)
        self.feed = nn.Sequential(
            nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width)
        )

    def forward(
        self,
        x: torch.Tensor,
        turn: torch.Tensor,
        seen: torch.Tensor,
        positions: torch.Tensor,
        cache: Cache | None,
        at: int,
    ) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.read(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        query, key = rotate(query, turn), rotate(key, turn)
        if cache is not None:
            cache.write(at, positions, key, value)
            key, value = cache.keys[at][:, :, : seen.shape[-1]], cache.values[at][:, :, : seen.shape[-1]]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen[:, None])
        x = x + self.write(mixed.transpose(1, 2).reshape(batch, length, width))
        result: torch.Tensor = x + self.feed(self.before_feed(x))
        return result


def rotate(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotate pairs of numbers by an angle that grows with the position: attention then sees distances."""
    even, odd = x.chunk(2, dim=-1)
    cosine, sine = turn.cos()[:, None], turn.sin()[:, None]
    return torch.cat((even * cosine - odd * sine, even * sine + odd * cosine), dim=-1)


class Transformer(nn.Module):
    """A causal language model."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embedding.weight, std=shape.width**-0.5)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.last = nn.LayerNorm(shape.width)
        nn.init.constant_(self.last.weight, 4.0)  # logits large enough that a format can be sure from the start

    def forward(
        self, tokens: torch.Tensor, positions: torch.Tensor | None = None, cache: Cache | None = None
    ) -> torch.Tensor:
        """Logits (batch, tokens, vocabulary) of what comes behind each token.

        Args:
            tokens: ids (batch, tokens).
            positions: of each token in its sequence; None = from 0.
            cache: of what came before; the tokens are written into it.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1]).expand(tokens.shape)
        reach = int(positions.max()) + 1 if cache is not None else tokens.shape[1]
        seen = torch.arange(reach) <= positions[..., None]
        half = self.shape.width // self.shape.heads // 2
        turn = positions[..., None] * 10_000.0 ** (-torch.arange(half) / half)
        x = self.embedding(tokens)
        for at, layer in enumerate(self.layers):
            x = layer(x, turn, seen, positions, cache, at)
        logits: torch.Tensor = self.last(x) @ self.embedding.weight.T
        return logits


def sample(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    stops: frozenset[int],
    longest: int,
    generator: torch.Generator,
) -> list[Spoken]:
    """Sample one answer to each prompt, at temperature 1.

    Args:
        model: whose distribution it is.
        prompts: ids, none empty; of any lengths.
        stops: tokens that end an answer; they belong to it.
        longest: tokens of an answer.
        generator: what is drawn from.
    """
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    tokens = torch.zeros(len(prompts), int(lengths.max()), dtype=torch.long)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)] = torch.tensor(prompt)
    cache = Cache(model.shape, len(prompts), tokens.shape[1] + longest)
    said: list[list[int]] = [[] for _ in prompts]
    logprobs: list[list[float]] = [[] for _ in prompts]
    going = set(range(len(prompts)))
    with torch.inference_mode():
        # A padded position is overwritten by the answer's own tokens before anything may look at it.
        logits = model(tokens, cache=cache)[torch.arange(len(prompts)), lengths - 1]
        for step in range(longest):
            distribution = logits.log_softmax(-1)
            drawn = torch.multinomial(distribution.exp(), 1, generator=generator)
            chosen, chances = drawn[:, 0].tolist(), distribution.gather(1, drawn)[:, 0].tolist()
            for row in list(going):
                said[row].append(chosen[row])
                logprobs[row].append(chances[row])
                going -= {row} if chosen[row] in stops else set()
            if not going:
                break
            logits = model(drawn, (lengths + step)[:, None], cache)[:, 0]
    return [Spoken(said[row], logprobs[row], row not in going) for row in range(len(prompts))]
