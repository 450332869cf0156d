"""Random attention by seed: sizes, masks and layouts as people have them, and those that nobody had."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MOST_SCORES = {False: 1 << 26, True: 1 << 15}  # of all heads; of a small one, for the simulator
_LENGTHS = {False: (1, 16, 49, 64, 77, 100, 128, 197, 256, 300, 512, 577, 1024, 2048), True: (5, 49, 64, 77, 130, 200)}
BATCH, ROWS, COLUMNS = ("batch", "all"), ("rows", "tokens", "all"), ("columns", "tokens", "all")  # what is open then
_MASKS = ("none", "none", "causal", "causal", "bool", "bias", "padding", "alibi", "window", "cap")


@dataclass(frozen=True)
class Drawn:
    """What was drawn. Queries are [batch, heads, rows, width], keys have `columns` rows of `key_heads`, values rows of
    `out` numbers."""

    batch: int
    heads: int
    key_heads: int
    rows: int
    columns: int
    width: int
    out: int
    mask: str
    way: str  # "sdpa", or "written" out, its softmax perhaps "wide", in f32
    layout: str  # "apart": heads have their dimension; "beside": they lie side by side; "joined": with keys and values
    dtype: torch.dtype
    open: str = ""  # until the call: "batch", "rows", "columns", "tokens", "all", each apart; masks are arguments then

    @property
    def mask_shape(self) -> tuple[int, ...] | None:
        """The sizes of a mask in memory."""
        return {
            "bias": (self.heads, self.rows, self.columns),
            "bool": (self.rows, self.columns),
            "padding": (self.batch, 1, 1, self.columns),
        }.get(self.mask)


def draw(seed: int, small: bool = False, open: str = "") -> Drawn:
    """The attention of a seed; a `small` one for the simulator."""
    rng = random.Random(seed)
    while True:
        heads = rng.choice((1, 2, 3, 4, 6, 8, 12, 16))
        rows, columns = rng.choice(_LENGTHS[small]), rng.choice(_LENGTHS[small])
        columns = rows if rng.random() < 0.6 else columns
        width = rng.choice((16, 24, 32, 40, 48, 64, 64, 64, 72, 80, 96, 128, 128, 160, 256))
        found = Drawn(
            batch=rng.choice((1, 2, 2, 3, 4, 8, 16)),
            heads=heads,
            key_heads=rng.choice([h for h in range(1, heads + 1) if heads % h == 0]) if rng.random() < 0.25 else heads,
            rows=rows,
            columns=columns,
            width=width,
            out=width if rng.random() < 0.8 else rng.choice((8, 32, 64, 100, 128)),
            mask=rng.choice(_MASKS),
            way=rng.choice(("sdpa", "sdpa", "written", "wide")),
            layout=rng.choice(("apart", "beside", "beside", "joined")),
            dtype=rng.choice(
                (torch.bfloat16, torch.bfloat16, torch.float16, torch.float32 if rng.random() < 0.3 else torch.bfloat16)
            ),
            open=open,
        )
        if found.layout == "joined" and (found.key_heads != heads or rows != columns or found.out != width):
            continue
        if found.batch * heads * rows * columns <= MOST_SCORES[small] and _may_be_open(found):
            return found


def _may_be_open(of: Drawn) -> bool:
    """Whether what is open is not also a size that is known: torch.export takes 1 to be known, and tokens are one size;
    of what is joined rows and columns are one."""
    alone = of.open in ("rows", "columns")
    sizes = {"batch": of.batch, "rows": of.rows, "columns": of.columns, "tokens": of.rows}
    sizes["all"] = min(sizes.values())
    if of.open == "tokens" and of.rows != of.columns or alone and of.layout == "joined":
        return False
    return not of.open or sizes[of.open] > 1


class Attention(nn.Module):
    """The attention that was drawn: of queries, keys and values, or of these in one tensor; and of the mask, where that
    is an argument."""

    def __init__(self, of: Drawn):
        super().__init__()
        self.of = of
        self.register_buffer("mask", None if of.open else _mask(of))

    def forward(self, *args: Tensor) -> Tensor:
        of, mask = self.of, self.mask
        if of.open and of.mask_shape is not None:
            *args, mask = args
        if of.layout == "joined":
            query, key, value = args[0].unflatten(-1, (3, of.heads, -1)).permute(2, 0, 3, 1, 4)
        elif of.layout == "beside":
            query, key, value = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x, heads in zip(args, self._heads))
        else:
            query, key, value = args
        if of.way == "sdpa" and of.mask != "cap":
            causal, mask = of.mask == "causal", self._of_places(query, key, mask)
            grouped = of.key_heads != of.heads
            found = F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal, enable_gqa=grouped)
        else:
            found = self._written(query, key, value, mask)
        return found if of.layout == "apart" else found.transpose(1, 2).flatten(2)

    @property
    def _heads(self) -> tuple[int, int, int]:
        return self.of.heads, self.of.key_heads, self.of.key_heads

    def _of_places(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor | None:
        """A mask of bool, or numbers that are added to scores: one that is computed, or that in memory."""
        of, (rows, columns) = self.of, (query.shape[-2], key.shape[-2])
        step = torch.arange(columns, device=query.device) - torch.arange(rows, device=query.device)[:, None]
        if of.mask == "window":
            return (step <= 0) & (step > -100)
        if of.mask == "alibi":
            slopes = torch.exp2(-torch.arange(1, of.heads + 1, device=query.device))
            return (slopes[:, None, None] * step).to(of.dtype).to(query.dtype)  # rounded in float64's run, too
        return mask

    def _written(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        of = self.of
        key, value = (x.repeat_interleave(of.heads // of.key_heads, 1) for x in (key, value))
        scores = query @ key.transpose(-1, -2) / math.sqrt(of.width)
        if of.way == "wide":
            scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        mask = self._of_places(query, key, mask)
        if of.mask == "causal":
            rows = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
            scores = scores.masked_fill(~rows, float("-inf"))
        elif of.mask == "cap":
            scores = 20 * torch.tanh(scores / 20)
        elif mask is not None:
            scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
        return scores.softmax(-1).to(value.dtype) @ value


def _mask(of: Drawn) -> Tensor | None:
    """The mask in memory."""
    if of.mask_shape is None:
        return None
    mask = torch.randn(of.mask_shape, generator=torch.Generator().manual_seed(of.rows))
    if of.mask == "bias":
        return mask.to(of.dtype)
    mask = mask < 0.7
    mask[..., 0] = True
    return mask


def make(seed: int, small: bool = False, open: str = "") -> tuple[nn.Module, tuple[Any, ...]]:
    """The module of a seed, and its arguments."""
    of = draw(seed, small, open)
    return Attention(of), arguments(of, seed)


def arguments(of: Drawn, seed: int) -> tuple[Tensor, ...]:
    """Arguments for what was drawn."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(of.heads, of.rows, of.width), (of.key_heads, of.columns, of.width), (of.key_heads, of.columns, of.out)]
    if of.layout == "joined":
        sizes = [(of.batch, of.rows, 3 * of.heads * of.width)]
    elif of.layout == "beside":
        sizes = [(of.batch, length, heads * width) for heads, length, width in shapes]
    else:
        sizes = [(of.batch, *shape) for shape in shapes]
    found = tuple(torch.randn(size, generator=generator).to(of.dtype) for size in sizes)
    return (*found, mask) if of.open and (mask := _mask(of)) is not None else found


def open_sizes(of: Drawn) -> tuple[dict[int, Any], ...] | None:
    """torch.export's `dynamic_shapes` of what was drawn."""
    if not of.open:
        return None
    joined = "tokens" if of.layout == "joined" or of.open == "tokens" else ""
    number, height, width = (torch.export.Dim(name) for name in ("batch", joined or "rows", joined or "columns"))
    tokens = 2 if of.layout == "apart" else 1  # their dimension
    batch = {0: number} if of.open in BATCH else {}
    rows, columns = ({tokens: size} if of.open in own else {} for size, own in ((height, ROWS), (width, COLUMNS)))
    found = [batch | rows] if of.layout == "joined" else [batch | rows, batch | columns, batch | columns]
    if of.mask_shape is not None:
        rank = len(of.mask_shape)
        own = {rank - 2: height} if of.open in ROWS and of.mask != "padding" else {}
        own |= {rank - 1: width} if of.open in COLUMNS else {}
        found.append(own | (batch if of.mask == "padding" else {}))
    return (tuple(found),)  # of forward's *args
