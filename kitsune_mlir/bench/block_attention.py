"""The attention of the random blocks: heads from layers, positions, masks, caches, and what is done to scores."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .block_networks import norm
from .draw_blocks import Drawn

FARTHEST = 8  # places that a table of biases tells apart
Given = dict[str, Tensor]  # the model's arguments, and what it makes of them for all blocks


def steps(of: Drawn, rows: int, columns: int, given: Given, device: torch.device) -> Tensor:
    """How far behind each query, [rows, 1], each key is, [columns]."""
    first = {"joined": of.past, "written": (of.past - of.tokens) // 2}.get(of.cache, 0)
    places = given["place"] if of.cache == "copied" else torch.arange(rows, device=device) + first
    return torch.arange(columns, device=device) - places[:, None]


class Places(nn.Module):
    """Which keys a query sees, and what is added to their scores: by places, or as arguments say."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of = of
        self.table = nn.Embedding(2 * FARTHEST + 1, of.heads) if of.positions == "table" else None

    def forward(self, query: Tensor, key: Tensor, given: Given) -> tuple[Tensor | None, Tensor | None]:
        of, seen, added = self.of, None, given.get("bias")
        step = steps(of, query.shape[-2], key.shape[-2], given, query.device)
        if "causal" in of.mask:
            seen = step <= 0
        elif of.mask == "window":
            seen = (step <= 0) & (step > -5)
        if "padding" in of.mask:
            padding = given["padding"][:, None, None, :]
            seen = padding if seen is None else seen & padding
        if self.table is not None:
            biases = self.table(step.clamp(-FARTHEST, FARTHEST) + FARTHEST).permute(2, 0, 1)
            added = biases if added is None else added + biases
        elif of.positions == "alibi":
            slopes = torch.exp2(-torch.arange(1, of.heads + 1, device=query.device) / 2)
            biases = (-slopes[:, None, None] * step.abs()).to(query.dtype)
            added = biases if added is None else added + biases
        return seen, added


class Rotations(nn.Module):
    """The cosines and sines of each token, from buffers or computed: [tokens, half of the columns that are rotated]."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of = of
        self.register_buffer("speeds", 100.0 ** -(torch.arange(of.rotated // 2) * 2 / of.rotated), persistent=False)
        if of.tables == "buffers":
            angles = torch.arange(of.past + of.tokens)[:, None] * self.speeds
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor, given: Given) -> tuple[Tensor, Tensor]:
        of, tokens = self.of, x.shape[1]
        places = given["place"] if of.cache == "copied" else torch.arange(tokens, device=x.device) + of.past
        if of.tables == "buffers":
            if of.cache == "copied":
                return self.cos[places], self.sin[places]
            return self.cos[of.past : of.past + tokens], self.sin[of.past : of.past + tokens]
        angles = places[:, None] * self.speeds.to(torch.promote_types(x.dtype, torch.float32))
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)


def rotate(of: Drawn, x: Tensor, given: Given) -> Tensor:
    """Turns pairs of columns, those beside each other or those half a head apart."""
    cos, sin = given["cos"], given["sin"]
    if of.positions == "pairs":
        even, odd = x[..., ::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    first, second = x.chunk(2, -1)
    return x * torch.cat((cos, cos), -1) + torch.cat((-second, first), -1) * torch.cat((sin, sin), -1)


class Scores(nn.Module):
    """What becomes of queries, keys and values [batch, heads, tokens, columns], in the way that was drawn."""

    def __init__(self, of: Drawn, cross: bool = False):
        super().__init__()
        self.of, self.extras = of, () if cross else of.extras
        self.places = None if cross else Places(of)
        self.sinks = nn.Parameter(torch.randn(of.heads)) if "sinks" in self.extras else None
        mixes = [torch.eye(of.heads) + 0.3 * torch.randn(of.heads, of.heads) for _ in range(2)]
        self.before, self.after = (nn.Parameter(mix) if "talking" in self.extras else None for mix in mixes)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, given: Given) -> Tensor:
        of, causal = self.of, False
        seen, added = (None, None) if self.places is None else self.places(query, key, given)
        if of.way == "sdpa" and not set(self.extras) & {"cap", "sinks", "talking"}:
            if self.places is not None and of.mask == "causal" and added is None and not of.cache:
                seen, causal = None, True
            mask = added if seen is None else seen if added is None else added.masked_fill(~seen, float("-inf"))
            grouped = key.shape[1] != query.shape[1]
            return F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=grouped)
        return self._written(query, key, value, seen, added)

    def _written(self, query: Tensor, key: Tensor, value: Tensor, seen: Tensor | None, added: Tensor | None) -> Tensor:
        of, heads = self.of, query.shape[1] // key.shape[1]
        if heads > 1:
            key, value = (x[:, :, None].expand(-1, -1, heads, -1, -1).flatten(1, 2) for x in (key, value))
        if of.way == "einsum":
            scores = torch.einsum("bihd,bjhd->bhij", query.transpose(1, 2), key.transpose(1, 2))
        else:
            scores = query @ key.transpose(-1, -2)
        scores = scores * query.shape[-1] ** -0.5
        if self.before is not None:
            scores = torch.einsum("bhij,hg->bgij", scores, self.before)
        if "cap" in self.extras:
            scores = 5 * torch.tanh(scores / 5)
        scores = scores if added is None else scores + added
        scores = scores if seen is None else scores.masked_fill(~seen, float("-inf"))
        weights = self._weights(scores).to(value.dtype)
        if self.after is not None:
            weights = torch.einsum("bhij,hg->bgij", weights, self.after)
        if of.way == "einsum":
            return torch.einsum("bhij,bjhd->bihd", weights, value.transpose(1, 2)).transpose(1, 2)
        return weights @ value

    def _weights(self, scores: Tensor) -> Tensor:
        if self.sinks is not None:
            sinks = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)
            return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1]
        if self.of.way == "wide":
            return F.softmax(scores, -1, dtype=torch.promote_types(scores.dtype, torch.float32))
        return scores.softmax(-1)


class Attention(nn.Module):
    """Of rows to themselves, to what a cache holds too, or to a second sequence."""

    def __init__(self, of: Drawn, block: int, cross: bool = False):
        super().__init__()
        self.of, self.cross = of, cross
        self.cache = (f"keys{block}", f"values{block}") if of.cache and not cross else None
        inner, of_keys = of.heads * of.head_width, of.key_heads * of.head_width
        parts = {"joined": (inner + 2 * of_keys,), "paired": (inner, 2 * of_keys)}.get(
            of.layout, (inner, of_keys, of_keys)
        )
        if cross and of.layout == "joined":
            parts = (inner, 2 * of_keys)
        self.parts = nn.ModuleList(nn.Linear(of.width, size, bias=of.bias) for size in parts)
        self.out = nn.Linear(inner, of.width, bias=of.bias)
        self.scores = Scores(of, cross)
        self.gate = nn.Linear(of.width, inner, bias=False) if "gate" in of.extras else None
        normed = "query_norm" in of.extras
        self.norms = nn.ModuleList(norm(of, of.head_width) for _ in range(2)) if normed else None

    def _heads(self, x: Tensor, given: Given) -> tuple[Tensor, ...]:
        """Queries, keys and values: [batch, heads, tokens, columns]."""
        of, source = self.of, given["context"] if self.cross else x
        first, *others = self.parts
        sizes = [heads * of.head_width for heads in (of.heads, of.key_heads, of.key_heads)]
        if not others and of.heads == of.key_heads:
            return first(x).unflatten(-1, (3, of.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        if not others:
            found = first(x).split(sizes, -1)
        elif len(others) == 1:
            found = (first(x), *others[0](source).chunk(2, -1))
        else:
            found = (first(x), *(layer(source) for layer in others))
        return tuple(part.unflatten(-1, (-1, of.head_width)).transpose(1, 2) for part in found)

    def forward(self, x: Tensor, given: Given) -> Tensor:
        query, key, value = self._heads(x, given)
        if self.norms is not None:
            query, key = self.norms[0](query), self.norms[1](key)
        if self.of.rotates and self.of.positions in ("halves", "pairs") and not self.cross:
            query, key = rotate(self.of, query, given), rotate(self.of, key, given)
        if self.cache is not None:
            key, value = (self._cached(name, new, given) for name, new in zip(self.cache, (key, value)))
        found = self.scores(query, key, value, given).transpose(1, 2).flatten(2)
        if self.gate is not None:
            found = found * torch.sigmoid(self.gate(x))
        return self.out(found)

    def _cached(self, name: str, new: Tensor, given: Given) -> Tensor:
        """What a cache holds with the tokens of this step."""
        of, past = self.of, given[name]
        if of.cache == "copied":
            return past.index_copy_(2, given["place"], new)
        if of.cache == "joined":
            given[name] = torch.cat([past, new], 2)
            return given[name]
        first = (of.past - of.tokens) // 2
        past[:, :, first : first + of.tokens] = new
        return past
