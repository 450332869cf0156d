"""Random transformer blocks by seed, as plain data: what people combine, and what nobody did. The modules stand in
random_blocks.py."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

MIXERS = (
    *("attention",) * 8,
    *("latent", "differential", "linear", "retention", "windows", "tokens", "fourier", "scan", "gated_conv"),
)
ATTENDS = ("attention", "latent", "differential", "retention", "windows")  # mixers with a product of rows and columns
NETWORKS = (
    *("gelu", "gelu", "tanh_gelu", "silu", "relu_squared", "geglu", "swiglu", "swiglu", "swiglu_joined", "low_rank"),
    *("experts_dense", "experts_looped", "experts_grouped", "experts_gathered"),
)
ORDERS = ("pre", "pre", "pre", "post", "sandwich", "parallel")
NORMS = ("layer", "layer", "rms", "rms", "wide", "none")
MASKS = ("none", "none", "causal", "causal", "window", "padding", "causal_padding", "bias")
POSITIONS = ("none", "none", "learned", "table", "alibi", "halves", "halves", "pairs")
ROTATED = ("halves", "pairs")
EXTRAS = ("cap", "sinks", "talking", "gate", "query_norm")  # of attention
FRONTS = ("vectors", "vectors", "vectors", "numbers", "patches", "frames")
LASTS = ("nothing", "nothing", "norm", "logits", "mean", "first", "last", "classes")
TOKENS = (1, 2, 7, 16, 49, 64, 77, 100, 128, 197, 256, 333, 512, 768, 1024)
SMALL_TOKENS = (1, 3, 7, 16, 17, 24, 33)
SIDES = {False: ((14, 7), (16, 8), (24, 8), (28, 7), (32, 8)), True: ((4, 2), (6, 3), (8, 4))}  # of images, of windows
WIDTHS = {False: (64, 96, 128, 192, 256, 320, 384, 512, 512, 640, 768, 768, 1024), True: (16, 24, 32, 40, 64)}
VOCABULARY = {False: 1000, True: 50}
MOST_SCAN = 16  # steps of a recurrence, which torch.export unrolls
MOST_WORK = 1.5e11  # multiply-adds of a model of 16-bit numbers
MOST_SCORES = 1 << 25  # of all heads of a block
EXPERTS = 4


@dataclass(frozen=True)
class Drawn:
    """What was drawn. The model's rows are [batch, tokens, width]."""

    dtype: torch.dtype
    batch: int
    tokens: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    mixers: tuple[str, ...]  # one for each block
    cross: int  # tokens of a second sequence that each block reads too, or 0
    cache: str  # how a decoding step adds its keys to what it was given: "", "joined", "copied" or "written"
    past: int  # tokens that the caches have room for
    way: str  # "sdpa", "written" out, "wide", whose softmax is in f32, or "einsum"
    mask: str
    positions: str
    tables: str  # where a rotation's numbers come from: "arguments", "buffers" or "computed"
    extras: tuple[str, ...]
    layout: str  # queries, keys and values "apart", by one layer "joined", or keys and values "paired"
    bias: bool
    norm: str
    order: str
    network: str
    hidden: int
    scaled: bool  # what a block adds has a factor for each column
    conditioned: bool  # norms are shifted and scaled by a vector of each sample
    convolved: bool  # each block ends with a Conformer's convolutions
    front: str
    last: str
    side: int  # of the image whose patches are the tokens, or 0
    window: int  # the side of an image's windows
    shifted: bool  # windows of every second block lie across those of the others
    vocabulary: int
    open: str = ""  # what is open until the call: "batch", "tokens", or "all", both

    @property
    def columns(self) -> int:
        """The keys of a block's attention."""
        return self.past + self.tokens if self.cache == "joined" else self.past or self.tokens

    @property
    def names(self) -> tuple[str, ...]:
        """The arguments of the model, in order."""
        found = ["x"]
        found += ["context"] if self.cross else []
        found += ["condition"] if self.conditioned else []
        found += ["padding"] if "padding" in self.mask else []
        found += ["bias"] if self.mask == "bias" else []
        found += ["cos", "sin"] if self.rotates and self.tables == "arguments" else []
        found += ["place"] if self.cache == "copied" else []
        caches = [f"{kind}{block}" for block in range(len(self.mixers)) for kind in ("keys", "values")]
        return (*found, *(caches if self.cache else []))

    @property
    def rotates(self) -> bool:
        return "latent" in self.mixers or self.positions in ROTATED and "attention" in self.mixers

    @property
    def rotated(self) -> int:
        """Columns of a head that are rotated by their position."""
        return self.head_width // 2 if "latent" in self.mixers else self.head_width

    @property
    def work(self) -> float:
        """Multiply-adds, roughly."""
        rows, inner = self.batch * self.tokens, self.heads * self.head_width
        experts = EXPERTS if self.network.startswith("experts") else 1
        layers = self.width * (4 * inner + 3 * self.hidden * experts)
        attention = 2 * self.columns * inner if set(self.mixers) & {*ATTENDS, "tokens", "fourier"} else 0
        last = self.width * self.vocabulary if self.last == "logits" else 0
        return rows * (len(self.mixers) * (layers + attention) + last)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The sizes of the arguments."""
        sides = 4 * self.side
        x = {"numbers": (), "patches": (3, sides, sides), "frames": (80,)}.get(self.front, (self.width,))
        cache = (self.batch, self.key_heads, self.past, self.head_width)
        rows = (self.batch, *x) if self.front == "patches" else (self.batch, self.tokens, *x)
        found = {"x": rows, "context": (self.batch, self.cross, self.width), "condition": (self.batch, self.width)}
        found |= {"padding": (self.batch, self.columns), "bias": (self.heads, self.tokens, self.columns)}
        found |= {name: (self.tokens, self.rotated // 2) for name in ("cos", "sin")}
        found |= {"place": (self.tokens,)}
        return {name: found.get(name, cache) for name in self.names}


def draw(seed: int, small: bool = False, open: str = "") -> Drawn:
    """The model of a seed; a `small` one for the simulator."""
    rng = random.Random(seed)
    while not _fits(found := _any(rng, small, open), small):
        pass
    return found


def _any(rng: random.Random, small: bool, open: str) -> Drawn:
    """One of independent choices, but for those that need each other."""
    blocks, mixer = rng.choice((1, 1, 2, 2, 3)), rng.choice(MIXERS)
    other = rng.choice(MIXERS) if rng.random() < 0.15 else mixer  # of every second block
    front = rng.choice(FRONTS)
    width = rng.choice(WIDTHS[small])
    heads = rng.choice((1, 2, 4, 4) if small else (1, 2, 3, 4, 6, 8, 8, 12, 12, 16))
    mixers = tuple(other if block % 2 else mixer for block in range(blocks))
    cache = rng.choice(("joined", "copied", "written")) if set(mixers) == {"attention"} and rng.random() < 0.3 else ""
    in_image = "windows" in mixers or front == "patches"
    side, window = rng.choice(SIDES[small]) if in_image else (0, 0)
    tokens = rng.choice(SMALL_TOKENS if small else TOKENS)
    tokens = side * side if in_image else rng.choice((1, 1, 1, 2, 4)) if cache else tokens
    own_width = rng.choice((8, 16) if small else (32, 64, 80, 128))
    kind = rng.random()
    return Drawn(
        dtype=torch.float32 if kind < 0.15 else torch.float16 if kind < 0.3 else torch.bfloat16,
        batch=rng.choice((1, 2, 3) if small else (1, 1, 2, 3, 4, 8, 16)),
        tokens=tokens,
        width=width,
        heads=heads,
        key_heads=rng.choice([h for h in range(1, heads + 1) if heads % h == 0]) if rng.random() < 0.3 else heads,
        head_width=width // heads if width % heads == 0 and rng.random() < 0.8 else own_width,
        mixers=mixers,
        cross=rng.choice((5, 12) if small else (16, 77, 100, 256)) if not cache and rng.random() < 0.15 else 0,
        cache=cache,
        past=rng.choice((8, 21) if small else (100, 256, 512, 1024, 2048)) if cache else 0,
        way=rng.choice(("sdpa", "sdpa", "written", "wide", "einsum")),
        mask=rng.choice(MASKS),
        positions=rng.choice(POSITIONS),
        tables=rng.choice(("arguments", "buffers", "computed")),
        extras=tuple(extra for extra in EXTRAS if rng.random() < 0.12),
        layout=rng.choice(("apart", "joined", "paired")),
        bias=rng.random() < 0.5,
        norm=rng.choice(NORMS),
        order=rng.choice(ORDERS),
        network=rng.choice(NETWORKS),
        hidden=rng.choice((2, 3, 4, 4)) * width,
        scaled=rng.random() < 0.2,
        conditioned=rng.random() < 0.15,
        convolved=not cache and rng.random() < 0.1,
        front=front,
        last=rng.choice(LASTS),
        side=side,
        window=window,
        shifted=rng.random() < 0.5,
        vocabulary=VOCABULARY[small],
        open=open,
    )


def _fits(of: Drawn, small: bool) -> bool:
    """Whether sizes go with each other, are of a model that people have, and may be open."""
    if not 8 <= of.head_width <= 256 or of.rotates and of.rotated % 2 or "latent" in of.mixers and of.head_width % 4:
        return False
    if of.cache and (of.front not in ("vectors", "numbers") or of.positions in ("learned", "table")):
        return False
    if of.cache and (of.mask == "window" or of.last == "mean" or of.cache != "copied" and "causal" in of.mask):
        return False
    if "windows" in of.mixers and (of.front == "numbers" or of.front == "frames"):
        return False
    if "scan" in of.mixers and of.tokens > MOST_SCAN or of.convolved and of.tokens < 7:
        return False
    if of.conditioned and of.order not in ("pre", "parallel") or of.norm == "none" and of.order != "pre":
        return False
    if of.network == "experts_gathered" and of.batch * of.tokens > 64:
        return False
    if of.network == "experts_grouped" and (of.dtype != torch.bfloat16 or of.hidden % 16):
        return False  # grouped_mm takes rows of bf16, of whole 16 bytes
    if not small and of.batch * of.heads * of.tokens * of.columns > MOST_SCORES:
        return False
    if not small and of.work > MOST_WORK * (1 if of.dtype != torch.float32 else 0.15):
        return False
    return _may_be_open(of)


def _may_be_open(of: Drawn) -> bool:
    """Whether what is open is not also a size that is known: torch.export takes 1 to be known, weights have the number
    of tokens in some mixers, and tables and caches in some forms."""
    if not of.open:
        return True
    if of.open == "batch":
        return of.batch > 1
    if of.open == "all" and of.batch == 1:
        return False
    known = of.side or set(of.mixers) & {"tokens", "fourier", "scan"} or of.last == "last" or of.cross == of.tokens
    return of.tokens > 1 and not (known or of.cache or of.rotates and of.tables == "buffers")


def arguments(of: Drawn, seed: int) -> tuple[Tensor, ...]:
    """Arguments for what was drawn."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(_argument(of, name, shape, generator) for name, shape in of.shapes.items())


def _argument(of: Drawn, name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if name == "place":
        return torch.arange(of.tokens) + (of.past - of.tokens) // 2
    if name == "x" and of.front == "numbers":
        return torch.randint(0, of.vocabulary, shape, generator=generator)
    numbers = torch.randn(shape, generator=generator)
    if name == "padding":
        return (numbers < 0.7).index_fill(1, torch.tensor(0), True)
    if name in ("cos", "sin"):
        return getattr(torch, name)(3 * numbers).to(of.dtype)
    return numbers.to(of.dtype)


def open_sizes(of: Drawn) -> tuple[tuple[dict[int, Any], ...]] | None:
    """torch.export's `dynamic_shapes` of what was drawn."""
    if not of.open:
        return None
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    unbatched = ("bias", "cos", "sin", "place")
    places = {"x": (1,), "padding": (1,), "bias": (1, 2), "cos": (0,), "sin": (0,)}
    found: list[dict[int, Any]] = [{} for _ in of.names]
    for own, name in zip(found, of.names):
        if of.open != "tokens" and name not in unbatched:
            own[0] = batch
        if of.open != "batch":
            own.update(dict.fromkeys(places.get(name, ()), tokens))
    return (tuple(found),)  # of forward's *args
