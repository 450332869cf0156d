"""Models of many fields with sizes that are open until the call: batches, lengths, heights and widths, as those have
them who export a model once and call it with all kinds of inputs.

A case is `fields/NAME`, such as fields/llama-layer. torch's side of a comparison knows the sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from . import fields_images as i
from . import fields_steps as s
from . import fields_tokens as t
from .everyday_sequences import Block
from .zoo_models import repeated

PREFIX = "fields/"
BF16, F32 = torch.bfloat16, torch.float32
Input = tuple[int, ...] | Callable[[], Tensor]  # the shape of normal values of the model's type, or what makes it
IMAGE, EIGHTHS, FOURTHS = {2: "h", 3: "w"}, {2: "8*h", 3: "8*w"}, {2: "4*h", 3: "4*w"}
GRID, PLACES = {1: "h", 2: "w"}, {1: "p"}
TOKENS, OTHERS, PAST = {0: "b", 1: "t"}, {0: "b", 1: "s"}, {0: "b", 2: "p"}


@dataclass(frozen=True)
class Field:
    """What it is; the module; its inputs; of each input the sizes that are open, by dimension: a name, or a number of
    times it, such as "8*h"; the type of the weights and of the inputs that are named by shapes."""

    about: str
    make: Callable[[], nn.Module]
    inputs: tuple[Input, ...]
    open: tuple[dict[int, str], ...]
    kind: torch.dtype = BF16


def _there() -> Tensor:
    return (torch.rand(16, 256) > 0.1).index_fill(1, torch.tensor(0), True)


def _cached() -> nn.Module:
    return t.Cached(1024, 16)


def _past(batch: int, length: int) -> tuple[Input, Input]:
    return ((batch, 16, length, 64),) * 2


def _image(*shape: int) -> Callable[[], Tensor]:
    return partial(torch.rand, shape)


def _points() -> Tensor:
    return torch.rand(2, 65536, 3) * 2 - 1


def _homographies() -> Tensor:
    spread = torch.tensor([[0.02, 0.02, 2.0], [0.02, 0.02, 2.0], [1e-4, 1e-4, 0.02]])
    return torch.eye(3) + torch.randn(1, 32, 3, 3) * spread


def _encoder() -> nn.Module:
    return nn.Sequential(*(t.encoder_layer(512, 8) for _ in range(2)))


# fmt: off
MODELS: dict[str, Field] = {
    "encoder": Field("torch's encoder, two layers", _encoder, ((16, 256, 512),), (TOKENS,)),
    "gpt": Field("two causal blocks", lambda: repeated(2, Block, 512, 8, True), ((8, 512, 512),), (TOKENS,)),
    "gpt-f32": Field("a causal block, f32", lambda: Block(256, 4, True), ((8, 200, 256),), (TOKENS,), F32),
    "llama-layer": Field("keys of groups", lambda: t.LlamaLayer(1024, 16, 4, 2816), ((4, 512, 1024),), (TOKENS,)),
    "padded": Field("a mask of tokens", lambda: t.Padded(512, 8), ((16, 256, 512), _there), (TOKENS, TOKENS)),
    "sliding-window": Field("128 tokens back", lambda: t.SlidingWindow(512, 8), ((4, 1000, 512),), (TOKENS,)),
    "relative-bias": Field("T5's attention", lambda: t.RelativeBias(512, 8), ((8, 256, 512),), (TOKENS,)),
    "linear-bias": Field("ALiBi, written out", lambda: t.LinearBias(512, 8), ((8, 256, 512),), (TOKENS,)),
    "cross": Field("two lengths", lambda: t.CrossAttention(512, 8), ((8, 256, 512), (8, 400, 512)), (TOKENS, OTHERS)),
    "decode": Field("a token and a cache", _cached, ((8, 1, 1024), *_past(8, 1000)), ({0: "b"}, PAST, PAST)),
    "prefill": Field("tokens and a cache", _cached, ((4, 128, 1024), *_past(4, 500)), (TOKENS, PAST, PAST)),
    "weighed": Field("attention and its weights", lambda: t.Weighed(512, 8), ((8, 200, 512),), (TOKENS,)),
    "retention": Field("decaying scores", lambda: t.Retention(512, 8), ((8, 256, 512),), (TOKENS,)),
    "pooled": Field("a weighted mean", lambda: t.Pooled(512), ((16, 256, 512), _there), (TOKENS, TOKENS)),
    "matcher": Field("points of two sets", lambda: t.Matcher(256), ((4, 512, 256), (4, 600, 256)), (TOKENS, OTHERS)),
    "bilateral": Field("25 neighbours weighed", i.BilateralFilter, (_image(2, 3, 512, 512),), (IMAGE,), F32),
    "bilateral-unfold": Field("by columns", i.UnfoldedBilateralFilter, (_image(2, 3, 512, 512),), (IMAGE,), F32),
    "guided": Field("averages of 9 x 9", i.GuidedFilter, (_image(4, 1, 512, 512),) * 2, (IMAGE,) * 2, F32),
    "exposure": Field("pyramids", i.ExposureFusion, (_image(3, 3, 512, 768),), (EIGHTHS,), F32),
    "colour-cube": Field("tables of colours", i.ColourCube, (_image(2, 3, 480, 640),), (IMAGE,), F32),
    "colour-numbers": Field("by number", i.IndexedColourCube, (_image(2, 3, 480, 640),), (IMAGE,), F32),
    "shallow-water": Field("a periodic grid", i.ShallowWater, (_image(4, 256, 256),) * 3, (GRID,) * 3, F32),
    "segmenter": Field("an encoder and decoder", i.SmallSegmenter, (_image(2, 3, 256, 256),), (FOURTHS,), F32),
    "demosaic": Field("a Bayer pattern", i.Demosaic, (_image(4, 1, 1024, 1024),), (IMAGE,), F32),
    "triplane": Field("three planes at points", i.TriplaneFeatures, (_points,), (PLACES,), F32),
    "plane-sweep": Field("32 depths", i.PlaneSweep, ((1, 32, 64, 80),) * 2 + (_homographies,), (IMAGE, IMAGE, {}), F32),
    "deformable": Field("nine moved places", i.DeformableConvolution, (_image(4, 32, 64, 64),), (IMAGE,), F32),
    "soft-warp": Field("two frames", i.SoftWarp, tuple((4, c, 256, 448) for c in (3, 3, 4, 1)), (IMAGE,) * 4, F32),
}
# fmt: on
MODELS |= {
    name: Field(about, make, inputs, ({0: "b"},) * len(inputs), F32) for name, (about, make, inputs) in s.MODELS.items()
}


def names() -> tuple[str, ...]:
    """The cases, in the order of the table."""
    return tuple(PREFIX + name for name in MODELS)


def make(name: str) -> tuple[nn.Module, tuple[Any, ...], tuple[dict[int, Any], ...]]:
    """The model of a case, in eval mode, with random arguments, and torch.export's `dynamic_shapes`. Raises KeyError
    for a name that is none."""
    of = MODELS[name.removeprefix(PREFIX)]
    args = tuple(torch.randn(one, dtype=of.kind) if isinstance(one, tuple) else one() for one in of.inputs)

    @cache
    def size(name: str) -> Any:
        return torch.export.Dim(name, min=4 if name in "hw" else None)  # some filters see three pixels beside each

    def open_(text: str) -> Any:
        times, _, symbol = text.rpartition("*")
        return int(times) * size(symbol) if times else size(symbol)

    shapes = tuple({d: open_(text) for d, text in own.items()} for own in of.open)
    return of.make().to(of.kind).eval(), args, shapes
