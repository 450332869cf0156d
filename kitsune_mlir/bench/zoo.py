"""A zoo of forms: small models, each named by what it stresses, at three sizes.

A case is `zoo/NAME[-TYPE][-SIZE]`, such as zoo/geglu, zoo/geglu-large, zoo/geglu-tf32-small. TYPE is one of TYPES, bf16
where none is named; tf32 is f32 whose products are of torch's "high" precision. SIZE is one of SIZES, medium where none
is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from . import zoo_attention as a
from . import zoo_features as f
from . import zoo_images as i
from . import zoo_models as m
from .networks import drawn

PREFIX = "zoo/"
SIZES = ("small", "medium", "large")
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "tf32": torch.float32}
N = -1  # in a shape: the number that the size says
ROWS, WIDE_ROWS, SQUARES = (1000, 16_384, 262_144), (512, 8192, 65_536), (256, 2048, 8192)
BATCHES, SEQUENCES, IMAGES = (4, 64, 1024), (4, 128, 512), (1, 16, 128)
FEW = (1, 16, 64)
CACHE = (N, 16, 1023, 64)  # of keys or values: heads, tokens, columns
FIVE = (1, 3, 3, 9, 16)  # columns of five heads


@dataclass(frozen=True)
class Model:
    """What it stresses; the module; its inputs' shapes, whose N are the number of a size."""

    stresses: str
    make: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    sizes: tuple[int, int, int] = ROWS

    def shapes(self, size: str) -> list[tuple[int, ...]]:
        """The shapes of the inputs at a size."""
        count = self.sizes[SIZES.index(size)]
        return [tuple(count if extent == N else extent for extent in shape) for shape in self.inputs]


def _rows(*widths: int) -> tuple[tuple[int, ...], ...]:
    return tuple((N, width) for width in widths)


def _images(channels: int, side: int) -> tuple[tuple[int, ...], ...]:
    return ((N, channels, side, side),)


# fmt: off
MODELS: dict[str, Model] = {
    "heads-apart": Model("five outputs of one trunk", lambda: m.Heads(64, 256, FIVE), _rows(64)),
    "heads-joined": Model("five heads concatenated", lambda: m.Heads(64, 256, FIVE, joined=True), _rows(64)),
    "nerf-two-outputs": Model("a skip, a side input, two outputs", lambda: m.Nerf(False), _rows(60, 24)),
    "nerf-one-output": Model("the same, outputs concatenated", lambda: m.Nerf(True), _rows(60, 24)),
    "concat-inputs": Model("three inputs concatenated", lambda: m.Joined(m.mlp(224, 256, 256, 8)), _rows(128, 64, 32)),
    "concat-between": Model("each layer reads all before it (DenseNet)", lambda: m.Dense(64, 64, 5), _rows(64)),
    "concat-outputs": Model("all layers at the output", lambda: m.Dense(64, 128, 4, at_end=True), _rows(64)),
    "concat-unet": Model("narrow, then wide beside what was kept", lambda: m.Unet(256, 128, 64, 32), _rows(256)),
    "glu": Model("nn.GLU", lambda: nn.Sequential(nn.Linear(256, 1024), nn.GLU(), nn.Linear(512, 256)), _rows(256)),
    "geglu": Model("chunk and GELU, hidden 2560", lambda: m.Chunked(640, 2560, m.F.gelu), _rows(640), WIDE_ROWS),
    "reglu": Model("chunk and ReLU", lambda: m.Chunked(256, 512, m.F.relu), _rows(256)),
    "swiglu": Model("two products, residual", lambda: m.Residual(m.SwiGlu(1024, 2816)), _rows(1024), WIDE_ROWS),
    "residual-prenorm": Model("norm, network, sum", lambda: m.repeated(2, m.prenorm, 256), _rows(256)),
    "residual-postnorm": Model("network, sum, norm", lambda: m.repeated(2, m.postnorm, 256), _rows(256)),
    "residual-batchnorm": Model("norms inside", lambda: m.repeated(4, m.batchnorm_residual, 512), _rows(512)),
    "residual-two-layers": Model("sums over two layers", lambda: m.repeated(4, m.two_layer_residual, 128), _rows(128)),
    "batchnorm": Model("a fixed norm", lambda: nn.Sequential(m.normed(64, 256, 256), nn.Linear(256, 10)), _rows(64)),
    "highway": Model("gates weigh a layer and its input", lambda: m.repeated(3, m.Highway, 256), _rows(256)),
    "gate": Model("tanh times sigmoid, one column out", lambda: m.Gate(512, 256), _rows(512)),
    "film": Model("scaled and moved by another input", lambda: m.Film(256, 64), _rows(256, 64)),
    "experts": Model("a dense mixture, products apart", lambda: m.Experts(256, 512, 4), _rows(256), WIDE_ROWS),
    "experts-batched": Model("batched products", lambda: m.BatchedExperts(256, 512, 4), _rows(256), WIDE_ROWS),
    "graph-convolution": Model("A X W twice", lambda: m.GraphConvolution(256, 128, 16), ((N, N), (N, 256)), SQUARES),
    "gru-cell": Model("three gates", lambda: nn.GRUCell(256, 256), _rows(256, 256)),
    "lstm-cell": Model("four gates, two outputs", lambda: m.LstmStep(256, 256), _rows(256, 256, 256)),
    "rnn-step": Model("two inputs' products summed, two outputs", lambda: m.RnnStep(128, 256, 32), _rows(128, 256)),
    "mixer": Model("transposed products (MLP-mixer)", lambda: m.Mixer(196, 256), ((N, 196, 256),), SEQUENCES),
    "attention": Model("one head, written out", lambda: a.Written(128), ((N, 128, 128),), SEQUENCES),
    "attention-block": Model("a pre-norm transformer block", lambda: a.block(256), ((N, 128, 256),), SEQUENCES),
    "attention-causal": Model("a causal mask", lambda: a.block(256, causal=True), ((N, 128, 256),), SEQUENCES),
    "attention-grouped": Model("shared keys", lambda: a.block(512, key_heads=2), ((N, 128, 512),), SEQUENCES),
    "attention-cross": Model("two inputs", lambda: a.CrossAttention(256), ((N, 64, 256), (N, 128, 256)), SEQUENCES),
    "decode-step": Model("one token, cached keys", lambda: a.DecodeStep(1024, 16), ((N, 1, 1024), CACHE, CACHE), FEW),
    "conv3x3": Model("a residual block", lambda: i.convolution_block(64), _images(64, 56), IMAGES),
    "conv1x1": Model("products over channels", i.bottleneck, _images(256, 56), IMAGES),
    "conv-depthwise": Model("a channel at a time, then 1x1", lambda: i.depthwise(128), _images(128, 56), IMAGES),
    "conv-stem": Model("7x7 of three channels, stride 2, pooling", i.stem, _images(3, 224), IMAGES),
    "patch-embedding": Model("16x16 patches to tokens", lambda: i.Patches(16, 384), _images(3, 224), IMAGES),
    "squeeze-excite": Model("means scale channels", lambda: i.SqueezeExcite(256, 16), _images(256, 28), IMAGES),
    "odd": Model("sizes that fill no tile", lambda: m.mlp(131, 77, 3), _rows(131), (37, 9973, 262_139)),
    "tall": Model("2 M rows of 16 columns", lambda: m.mlp(16, 16, 16, 16), _rows(16), (10_000, 2_000_000, 16_000_000)),
    "flat": Model("few rows, 4096 columns", lambda: m.mlp(4096, 4096, 4096), _rows(4096), FEW),
    "vae-encoder": Model("784-400-40, a sample by given noise", m.VaeEncoder, _rows(784, 20)),
    "vae-decoder": Model("20-400-784, sigmoid", lambda: nn.Sequential(m.mlp(20, 400, 784), nn.Sigmoid()), _rows(20)),
    "autoencoder": Model("wide, narrow, wide", lambda: m.mlp(784, 256, 64, 16, 64, 256, 784), _rows(784)),
    "autoencoder-tied": Model("a weight and its transpose", lambda: m.TiedAutoencoder(784, 128), _rows(784)),
    "tied": Model("one layer four times", lambda: m.TiedLayer(256, 4), _rows(256)),
    "classifier": Model("LayerNorm, 512 -> 1000, softmax", m.classifier, _rows(512)),
    "graphcast-block": Model("1536 -> 512 SiLU -> 512, norm, residual", m.GraphCastBlock, _rows(512, 512, 512)),
    "dropout": Model("does nothing in use", lambda: nn.Sequential(m.mlp(256, 256, 256), nn.Dropout()), _rows(256)),
    "low-rank": Model("a product of rank 8 beside a layer (LoRA)", lambda: m.Lora(1024, 8), _rows(1024), WIDE_ROWS),
    "fourier": Model("sines and cosines of a product", lambda: f.Fourier(3, 64, 3), _rows(3)),
    "polynomial": Model("powers of the columns", lambda: f.Polynomial(32, 4, 64), _rows(32)),
    "siren": Model("sines between layers", lambda: m.mlp(2, 256, 256, 256, 3, activation=f.Sine), _rows(2)),
    "softplus": Model("exp and log between layers", lambda: m.mlp(3, 256, 256, 1, activation=nn.Softplus), _rows(3)),
    "cross": Model("products with the first value again", lambda: f.Cross(256, 3), _rows(256)),
    "bilinear": Model("x W y of every row", lambda: nn.Bilinear(32, 32, 16), _rows(32, 32)),
    "outer": Model("each row's outer product", lambda: m.Function(f.outer), _rows(32, 32)),
    "tensor-product": Model("the same, then weights", lambda: f.TensorProduct(32, 32, 64), _rows(32, 32), WIDE_ROWS),
    "points": Model("the largest of all points (PointNet)", m.Points, ((N, 1024, 3),), (1, 16, 128)),
    "towers": Model("logits of all pairs (CLIP)", lambda: f.Towers(512, 384, 256), _rows(512, 384), SQUARES),
    "cosine": Model("cosine similarity of rows", lambda: nn.CosineSimilarity(-1), _rows(256, 256)),
    "distances": Model("pairwise distances", lambda: m.Function(f.distances), _rows(64, 64), SQUARES),
    "batched-product": Model("a b", lambda: m.Function(lambda a, b: a @ b), ((N, 128, 64), (N, 64, 128)), BATCHES),
    "batched-product-left": Model("a^T b", lambda: m.Function(lambda a, b: a.mT @ b), 2 * ((N, 64, 128),), BATCHES),
    "batched-product-right": Model("a b^T", lambda: m.Function(lambda a, b: a @ b.mT), 2 * ((N, 128, 64),), BATCHES),
    "softmax": Model("a row's softmax alone", lambda: nn.Softmax(-1), _rows(1024)),
    "layernorm": Model("a row's norm alone", lambda: nn.LayerNorm(1024), _rows(1024)),
    "rmsnorm": Model("the same without a mean", lambda: nn.RMSNorm(1024), _rows(1024)),
    "elementwise": Model("no product", lambda: m.Function(lambda x, y: m.F.gelu(x) * y + x), _rows(1024, 1024)),
    "transpose": Model("rows become columns", lambda: m.Function(lambda x: x.t().contiguous()), _rows(1024)),
    "row-sums": Model("a sum over columns", lambda: m.Function(lambda x: x.sum(-1)), _rows(1024)),
    "column-sums": Model("a sum over rows", lambda: m.Function(lambda x: x.sum(0)), _rows(1024)),
}
# fmt: on
# Those that also run in other types.
TYPED = (
    *("nerf-two-outputs", "geglu", "swiglu", "residual-prenorm", "residual-batchnorm", "attention-block", "conv3x3"),
    *("odd", "vae-encoder", "graphcast-block", "gru-cell", "layernorm", "batched-product"),
)
_NAME = re.compile(rf"{PREFIX}({'|'.join(MODELS)})(?:-({'|'.join(TYPES)}))?(?:-({'|'.join(SIZES)}))?")


def names(size: str = "medium") -> tuple[str, ...]:
    """The cases of a size, in the order of the table, other types last."""
    typed = (f"{name}-{kind}" for name in TYPED for kind in ("f32", "tf32", "f16"))
    return tuple(f"{PREFIX}{name}{'' if size == 'medium' else f'-{size}'}" for name in (*MODELS, *typed))


def is_case(name: str) -> bool:
    """Whether `make` knows it."""
    return _NAME.fullmatch(name) is not None


def make(name: str, dtype: str) -> tuple[nn.Module, tuple[Any, ...], None]:
    """The model of a case, in eval mode, with random arguments, in `dtype` where its name says no type. Sets torch's
    precision of f32 products where the name is of tf32. Raises KeyError for a name that is none."""
    if (match := _NAME.fullmatch(name)) is None:
        raise KeyError(name)
    known, kind, size = match.groups()
    if kind == "tf32":
        torch.set_float32_matmul_precision("high")
    model, torch_type = MODELS[known], TYPES[kind or dtype]
    module = model.make().to(torch_type).eval()
    return module, tuple(drawn(shape, torch_type) for shape in model.shapes(size or "medium")), None
