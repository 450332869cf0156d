"""The operators that the front end can produce, as small models with inputs: what bench/check_gpu_models.py compiles
for a GPU and compares with torch.

A case is a function of tensors that returns a tensor or a tuple of them. Most are given every element type that the
operator takes, one tensor each, so that one compilation checks them all. Inputs are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from bench.elementwise_operators import binary, casts, unary
from bench.operator_cases import CASES, FLOATS, TYPES, WHOLE, Case, case, each, ints, numbers, reals


def _reductions() -> None:
    dims: dict[str, Any] = {"0": 0, "1": 1, "last": -1, "0-2": (0, 2), "all": None}
    for name in "sum mean amax amin var std any all prod argmax argmin logsumexp norm".split():
        for label, dim in dims.items():
            if isinstance(dim, tuple) and name in ("all", "prod", "argmax", "argmin"):
                continue
            function: Callable[..., Any] = getattr(torch, name)
            if name in ("any", "all"):
                function = lambda x, *at, f=function, **to: f(x > -1.5, *at, **to)  # noqa: E731
            if dim is None and name in ("amax", "amin"):
                call = function
            elif dim is None and name == "logsumexp":
                continue
            elif dim is None:
                call = function
            elif name == "norm":
                call = lambda x, d=dim: (torch.norm(x, 2, d), torch.linalg.vector_norm(x, 1, d))  # noqa: E731
            else:
                call = lambda x, f=function, d=dim: (f(x, dim=d), f(x, dim=d, keepdim=True))  # noqa: E731
            case(f"reduce/{name}-{label}", call, reals(5, 6, 41), looser=2.0)
    for name in "sum amax amin prod".split():
        function = getattr(torch, name)
        each(f"reduce-whole/{name}", lambda x, f=function: f(x, dim=1), WHOLE, (-3, 3), shape=(5, 6))
    for name in "sum mean amax argmax".split():
        function = getattr(torch, name)
        each(f"reduce-types/{name}", lambda x, f=function: (f(x, 1), f(x, 0)), FLOATS, (-3, 3), looser=4.0)
    each("reduce-bool", lambda x: (x.any(1), x.all(1), x.sum(1), x.any()), [torch.bool], (0, 1))
    case("reduce/long", lambda x: (x.sum(1), x.amax(1), x.sum(0), x.sum()), reals(3, 5000), looser=5.0)
    case("reduce/max-with-index", lambda x: (*x.max(1), *x.min(0)), reals(6, 40))
    case("reduce/aminmax", lambda x: torch.aminmax(x, dim=1), reals(6, 40))
    case("reduce/ties", lambda x: (x.argmax(1), x.argmin(1)), torch.zeros(4, 40))
    case("reduce/var-mean", lambda x: torch.var_mean(x, 1, correction=0), reals(6, 40))
    case("reduce/count", lambda x: (x > 0).sum(1), reals(6, 40))
    nan = reals(3, 40)
    nan[1, 7], nan[2, 3] = math.nan, math.inf
    case("special/reductions", lambda x: (x.sum(1), x.amax(1), x.amin(1), x.mean(1)), nan, exact=True)
    each("scan/cumsum", lambda x: (x.cumsum(1), x.cumsum(0)), FLOATS[:2] + WHOLE[:2], (-3, 3), looser=5.0)
    case("scan/cumprod", lambda x: x.cumprod(1), reals(5, 9, low=0.8, high=1.2))
    case("sort/values", lambda x: (*x.sort(1), *x.sort(0, descending=True)), reals(4, 13))
    case("sort/whole", lambda i: torch.sort(i, 1)[0], ints(4, 13))
    case("sort/argsort", lambda x: x.argsort(1), reals(4, 13))
    case("sort/topk", lambda x: (*x.topk(5, 1), *x.topk(3, 1, largest=False)), reals(4, 13))


def _normal() -> None:
    for dim in (0, 1, -1):
        each(f"softmax/{dim}", lambda x, d=dim: (x.softmax(d), x.log_softmax(d)), FLOATS, (-9, 9), looser=4.0)
    case("softmax/long", lambda x: x.softmax(-1), reals(3, 3000))
    case("softmax/masked", lambda x: x.masked_fill(x < 0, -math.inf).softmax(-1), reals(6, 40))
    case("softmax/as-f32", lambda x: F.softmax(x, -1, dtype=torch.float32), reals(6, 40, dtype=torch.bfloat16))
    for dtype in FLOATS[1:]:
        label = str(dtype).removeprefix("torch.")
        x, image, w, b = (reals(*shape, dtype=dtype) for shape in ((6, 40), (2, 6, 5, 7), (40,), (6,)))
        case(f"norm/layer-{label}", lambda x, w: F.layer_norm(x, (40,), w, w), x, w, looser=2.0)
        case(f"norm/group-{label}", lambda x, b: F.group_norm(x, 3, b, b), image, b, looser=2.0)
        case(f"norm/rms-{label}", lambda x, w: F.rms_norm(x, (40,), w), x, w, looser=2.0)
        case(f"norm/batch-{label}", lambda x, b, v: F.batch_norm(x, b, v, b, b), image, b, b.abs() + 0.5, looser=2.0)
    image = reals(2, 6, 5, 7)
    case("norm/layer-2d", lambda x: F.layer_norm(x, (5, 7)), image)
    case("norm/instance", F.instance_norm, image)
    case("norm/native-group", lambda x, b: torch.native_group_norm(x, b, b, 2, 6, 35, 2, 1e-5), image, reals(6))
    case("norm/normalize", lambda x: F.normalize(x, dim=1), image)
    case("norm/local-response", lambda x: F.avg_pool2d(x, 1) / (1 + x * x), image)
    case("norm/cosine", lambda x, y: F.cosine_similarity(x, y, 1), reals(6, 40), reals(6, 40) + 1)
    case(
        "loss/mse",
        lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y)),
        reals(6, 4),
        reals(6, 4) + 1,
    )
    case("loss/cross-entropy", lambda x, i: F.cross_entropy(x, i), reals(6, 10), ints(6, low=0, high=9))
    case("loss/bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y), reals(6, 4), reals(6, 4, low=0, high=1))


def _convolutions() -> None:
    image, line, volume = reals(2, 4, 9, 11), reals(2, 4, 13), reals(1, 4, 5, 6, 7)
    w1, w2, w3, b = reals(6, 4, 3), reals(6, 4, 3, 3), reals(6, 4, 2, 3, 2), reals(6)
    case("conv/1d", F.conv1d, line, w1, b)
    case("conv/1d-stride", lambda x, w: F.conv1d(x, w, stride=2, padding=1), line, w1)
    case("conv/2d", F.conv2d, image, w2, b)
    case("conv/2d-stride-padding", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2)), image, w2, b)
    case("conv/2d-dilation", lambda x, w: F.conv2d(x, w, dilation=2), image, w2)
    case("conv/2d-groups", lambda x, w: F.conv2d(x, w, groups=2), image, reals(6, 2, 3, 3))
    case("conv/2d-depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=4), image, reals(4, 1, 3, 3))
    case("conv/2d-depthwise-twice", lambda x, w: F.conv2d(x, w, groups=4), image, reals(8, 1, 3, 3))
    case("conv/2d-one-by-one", F.conv2d, image, reals(6, 4, 1, 1), b)
    case("conv/2d-bf16", F.conv2d, image.bfloat16(), w2.bfloat16(), b.bfloat16())
    case("conv/2d-f16", F.conv2d, image.half(), w2.half(), b.half(), looser=2.0)
    case("conv/2d-f64", F.conv2d, image.double(), w2.double(), b.double())
    case("conv/2d-same", lambda x, w: F.conv2d(x, w, padding="same"), image, w2)
    case("conv/3d", F.conv3d, volume, w3, b)
    case("conv/3d-padding", lambda x, w: F.conv3d(x, w, stride=2, padding=1), volume, w3)
    case("conv/transposed-1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), line, reals(4, 6, 3))
    case("conv/transposed-2d", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), image, reals(4, 6, 3, 3), b)
    case("conv/transposed-2d-plain", F.conv_transpose2d, image, reals(4, 6, 2, 2))
    case("conv/transposed-2d-groups", lambda x, w: F.conv_transpose2d(x, w, groups=2), image, reals(4, 3, 2, 2))
    case("conv/transposed-3d", lambda x, w: F.conv_transpose3d(x, w, stride=2), volume, reals(4, 3, 2, 2, 2))
    case("pool/max-1d", lambda x: F.max_pool1d(x, 3, 2), line)
    case("pool/max-2d", lambda x: F.max_pool2d(x, 3, 2), image)
    case("pool/max-2d-padding", lambda x: F.max_pool2d(x, 3, 2, 1), image)
    case("pool/max-2d-dilation", lambda x: F.max_pool2d(x, 2, 1, 0, 2), image)
    case("pool/max-2d-ceil", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), image)
    case("pool/max-2d-indices", lambda x: F.max_pool2d(x, 3, 2, return_indices=True), image)
    case("pool/max-2d-bf16", lambda x: F.max_pool2d(x, 3, 2), image.bfloat16())
    case("pool/max-3d", lambda x: F.max_pool3d(x, 2), volume)
    case("pool/avg-1d", lambda x: F.avg_pool1d(x, 3, 2), line)
    case("pool/avg-2d", lambda x: F.avg_pool2d(x, 3, 2), image)
    case("pool/avg-2d-padding", lambda x: F.avg_pool2d(x, 3, 2, 1), image)
    case("pool/avg-2d-no-padding-counted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), image)
    case("pool/avg-3d", lambda x: F.avg_pool3d(x, 2), volume)
    case("pool/adaptive-avg", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4))), image)
    case("pool/adaptive-max", lambda x: F.adaptive_max_pool2d(x, (3, 4)), image)
    for label, options in {
        "nearest": {"scale_factor": 2},
        "nearest-size": {"size": (5, 17)},
        "bilinear": {"scale_factor": 2, "mode": "bilinear"},
        "bilinear-corners": {"size": (13, 6), "mode": "bilinear", "align_corners": True},
        "bicubic": {"scale_factor": 2, "mode": "bicubic"},
    }.items():
        case(f"upsample/{label}", lambda x, o=options: F.interpolate(x, **o), image)
    case("upsample/nearest-op", lambda x: torch.ops.aten.upsample_nearest2d(x, (18, 33)), image)
    case("upsample/1d", lambda x: F.interpolate(x, scale_factor=2), line)
    case("upsample/grid-sample", lambda x, g: F.grid_sample(x, g, align_corners=False), image, reals(2, 5, 6, 2))
    case("image/pixel-shuffle", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :8, :8], 2)), image)
    case("image/unfold", lambda x: F.unfold(x, 3, padding=1), image)


def _gathers() -> None:
    x, rows, whole = reals(6, 40), torch.tensor([0, 3, 3, 1, 0, 3]), ints(6, 40, low=0, high=8)
    once = torch.stack([(torch.arange(9) * 2 + row) % 9 for row in range(6)])  # no index twice in a row
    case("gather/dim-1", lambda x, i: x.gather(1, i), x, whole)
    case("gather/dim-0", lambda x, i: x.gather(0, i), x, whole % 6)
    each("gather/types", lambda x: x.gather(1, (x > 0).long()), TYPES[:9], (-9, 9))
    case("gather/index-select", lambda x, r: (x.index_select(0, r), x.index_select(1, r)), x, rows)
    case("gather/index", lambda x, r, s: (x[r], x[:, r], x[r, s]), x, rows, rows + 2)
    case("gather/index-broadcast", lambda x, r, s: x[r[:, None], s[None, :]], x, rows, rows + 2)
    case("gather/negative", lambda x, r: x[r - 6], x, rows)
    case("gather/take", lambda x, i: torch.take(x, i), x, whole * 7)
    case("gather/take-along", lambda x, i: torch.take_along_dim(x, i, 1), x, whole)
    case("gather/embedding", lambda i, w: F.embedding(i, w), whole, reals(9, 5))
    case(
        "gather/embedding-bf16", lambda i, w: F.embedding(i, w, padding_idx=0), whole, reals(9, 5, dtype=torch.bfloat16)
    )
    case("gather/embedding-bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), whole, reals(9, 5))
    case("gather/as-strided", lambda x: x.as_strided((5, 3), (7, 2), 4), x)
    case("gather/as-strided-overlap", lambda x: x.as_strided((5, 4, 3), (2, 1, 1)), x)
    case("gather/one-hot", lambda i: F.one_hot(i, 9), whole)
    case("gather/element", lambda x: x * x[2, 3] + x.max(), x)
    updates = reals(6, 9)
    case("scatter/dim-1", lambda x, i, u: x.scatter(1, i, u), x, once, updates)
    case("scatter/value", lambda x, i: x.scatter(1, i, 2.5), x, whole)
    case("scatter/same-twice", lambda x, i: x.scatter(1, i, torch.ones(6, 40, dtype=x.dtype)), x, whole)
    case("scatter/add", lambda x, i, u: x.scatter_add(1, i % 4, u), x, once, updates)
    each("scatter/add-types", lambda x: x.scatter_add(1, (x > 0).long(), x), FLOATS + WHOLE[:2], (-3, 3), looser=8.0)
    for reduce in "sum prod amax amin mean".split():
        case(f"scatter/reduce-{reduce}", lambda x, i, u, r=reduce: x.scatter_reduce(1, i % 4, u, r), x, once, updates)
        case(
            f"scatter/reduce-{reduce}-without-self",
            lambda x, i, u, r=reduce: x.scatter_reduce(1, i % 4, u, r, include_self=False),
            *(x, once, updates),
        )
    case("scatter/reduce-whole", lambda x, i: x.scatter_reduce(1, i % 4, x, "amax"), ints(6, 40), whole)
    case("scatter/index-add", lambda x, r: torch.zeros(4, 40, dtype=x.dtype).index_add(0, r, x), x, rows)
    case("scatter/index-add-alpha", lambda x, r: x.index_add(0, r, x, alpha=2), x, rows)
    case("scatter/index-add-bf16", lambda x, r: x.index_add(0, r, x), x.bfloat16(), rows, looser=2.0)
    case("scatter/index-add-f64", lambda x, r: x.index_add(0, r, x), x.double(), rows)
    case("scatter/index-add-whole", lambda x, r: x.index_add(0, r, x), ints(6, 40), rows)
    case("scatter/index-copy", lambda x, r, u: x.index_copy(0, r, u), x, torch.tensor([4, 1]), reals(2, 40))
    case("scatter/index-fill", lambda x, r: x.index_fill(0, r, 7.0), x, rows)
    case("scatter/index-put", lambda x, r, u: x.index_put((r,), u), x, torch.tensor([4, 1]), reals(2, 40))
    case("scatter/index-put-two", lambda x, r, s: x.index_put((r, s), x[:2, 0]), x, rows[:2], rows[2:4])
    case("scatter/index-put-add", lambda x, r: x.index_put((r,), x, accumulate=True), x, rows)
    case("scatter/index-put-mask", lambda x: x.masked_fill(x > 0, 1.0), x)
    case("scatter/slice", lambda x: torch.slice_scatter(x, x[:, :5] * 2, 1, 3, 8), x)
    case("scatter/select", lambda x: torch.select_scatter(x, x[0] * 2, 0, 3), x)
    case("scatter/bincount", lambda i: torch.zeros(9).index_add(0, i.flatten(), torch.ones(240)), whole, exact=True)


def _movement() -> None:
    x, y, cube = reals(6, 40), reals(6, 40) + 1, reals(3, 4, 5)
    functions: dict[str, Callable[..., Any]] = {
        "cat": lambda x, y, c: (torch.cat([x, y]), torch.cat([x, y, x], 1), torch.stack([x, y], 1)),
        "cat-padded": lambda x, y, c: torch.cat([x[:, :3] * 2, y[:, 7:8], torch.zeros(6, 2, dtype=x.dtype)], 1),
        "flip": lambda x, y, c: (x.flip(1), c.flip(0, 2)),
        "roll": lambda x, y, c: (x.roll(3, 0), x.roll((1, -2), (0, 1))),
        "expand": lambda x, y, c: (x[:, None].expand(6, 3, 40), x[0].expand(4, 40) + 0),
        "repeat": lambda x, y, c: (x.repeat(2, 3), x.repeat(2, 1, 1)),
        "repeat-interleave": lambda x, y, c: x.repeat_interleave(3, 1),
        "tile": lambda x, y, c: torch.tile(c, (2, 1)),
        "transpose": lambda x, y, c: (x.t(), c.transpose(0, 2), c.permute(2, 0, 1)),
        "movedim": lambda x, y, c: c.movedim(0, -1) * 2,
        "reshape": lambda x, y, c: (x.reshape(4, 60), c.flatten(), c.flatten(1), x.view(2, 3, 8, 5)),
        "reshape-transposed": lambda x, y, c: (x.t().reshape(6, 40), c.transpose(0, 1).flatten(1)),
        "squeeze": lambda x, y, c: (x[:, None].squeeze(1), x[:1].squeeze(), x.unsqueeze(-1)),
        "slice": lambda x, y, c: (x[1:4], x[:, 3:20], x[2], c[:, 1], c[..., 2]),
        "slice-strided": lambda x, y, c: x[1::2, :39:3] + x[::2, 1::3],
        "narrow": lambda x, y, c: (x.narrow(1, 3, 7), x.select(1, 4)),
        "split": lambda x, y, c: (*x.split(3), *x.chunk(4, 1), *x.unbind(0)[:2]),
        "unfold": lambda x, y, c: x.unfold(1, 4, 2),
        "triangles": lambda x, y, c: (x.tril(), x.triu(2), c.tril(-1)),
        "diagonal": lambda x, y, c: (x.diagonal(), c.diagonal(1, 1, 2), torch.diag_embed(x[0])),
        "meshgrid": lambda x, y, c: torch.meshgrid(x[0], y[:, 0], indexing="ij"),
        "rot90": lambda x, y, c: torch.rot90(x),
        "views-of-views": lambda x, y, c: x[1:5].t()[3:30:2].reshape(2, -1).flip(0) + 1,
        "copies": lambda x, y, c: (x, x, x.clone(), x * 2, x.contiguous()),
        "swapped": lambda x, y, c: (y, x),
    }
    for name, function in functions.items():
        case(f"move/{name}", function, x, y, cube)
    each("move/types", lambda x: (x.t() + 0, x.flip(1), torch.cat([x, x])), TYPES[:9], (-9, 9))
    case("move/bool", lambda b: (b.t(), b.flip(1), torch.cat([b, b])), x > 0)
    image = reals(2, 3, 6, 7)
    case("pad/constant", lambda x: (F.pad(x, (1, 2, 0, 3), value=7.0), F.pad(x, (0, 1))), image)
    case("pad/negative", lambda x: F.pad(x, (-1, -2)), image)
    case("pad/reflect", lambda x: F.pad(x, (2, 1, 1, 2), "reflect"), image)
    case("pad/replicate", lambda x: F.pad(x, (2, 1, 1, 2), "replicate"), image)
    case("pad/types", lambda i, x: (F.pad(i, (1, 1), value=3), F.pad(x, (1, 1))), ints(4, 5), image.bfloat16())


def _products() -> None:
    a, b, bias = reals(33, 40), reals(40, 29), reals(29)
    for dtype in (*FLOATS, torch.int64, torch.int32):
        label = str(dtype).removeprefix("torch.")
        p, q, r = (numbers("p", t.shape, dtype, -3, 3) for t in (a, b, bias))
        case(f"product/mm-{label}", lambda p, q: p @ q, p, q, looser=4.0)
        if dtype.is_floating_point:
            case(f"product/linear-{label}", lambda p, q, r: F.linear(p, q.t(), r), p, q, r, looser=4.0)
    case("product/addmm", lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), a, b, bias)
    case("product/bmm", torch.bmm, reals(3, 17, 20), reals(3, 20, 19))
    case("product/bmm-bf16", torch.bmm, reals(3, 17, 20, dtype=torch.bfloat16), reals(3, 20, 19, dtype=torch.bfloat16))
    case(
        "product/baddbmm", lambda c, a, b: torch.baddbmm(c, a, b), reals(3, 17, 19), reals(3, 17, 20), reals(3, 20, 19)
    )
    case("product/broadcast", torch.matmul, reals(2, 1, 5, 6), reals(3, 6, 7))
    case("product/batch-by-matrix", torch.matmul, reals(2, 5, 6), reals(6, 7))
    case("product/vector", lambda a, b: (a @ b[:, 0], b[:, 0] @ b, a[0] @ b[:, 0]), a, b)
    case("product/outer", lambda a, b: (torch.outer(a, b), a[:, None] * b[None]), reals(9), reals(7))
    case("product/mv", torch.mv, a, reals(40))
    case("product/transposed", lambda a, b: (a.t() @ a, b.t() @ a.t()), a, b)
    case("product/itself", lambda a: a @ a.t(), a)
    case("product/bilinear", lambda x, y, w: F.bilinear(x, y, w), reals(6, 4), reals(6, 5), reals(3, 4, 5))
    case("product/rows-of-one", lambda a, b: a[:1] @ b, a, b)
    case("product/column-of-one", lambda a, b: a @ b[:, :1], a, b)
    case("product/one-inside", lambda a, b: a[:, :1] @ b[:1], a, b)
    for label, equation in {
        "rows": "ij,kj->ik",
        "batch": "bij,bjk->bik",
        "trace": "ii->",
        "diagonal": "ii->i",
        "outer": "i,j->ij",
        "attention": "bhqd,bhkd->bhqk",
        "three": "ij,jk,kl->il",
        "sum": "ijk->j",
    }.items():
        sizes = dict(zip("ijkldqhb", (5, 5, 5, 6, 4, 7, 3, 2), strict=True))
        tensors = [reals(*(sizes[c] for c in part)) for part in equation.split("->")[0].split(",")]
        case(f"einsum/{label}", lambda *t, e=equation: torch.einsum(e, *t), *tensors, looser=2.0)
    q, k, v = (reals(2, 3, 7, 8), reals(2, 3, 9, 8), reals(2, 3, 9, 8) + 1)
    case("attention/plain", F.scaled_dot_product_attention, q, k, v)
    case("attention/causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    case("attention/mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, reals(7, 9) > -1)
    case("attention/bf16", F.scaled_dot_product_attention, q.bfloat16(), k.bfloat16(), v.bfloat16())
    case("linear/mlp", lambda x, a, b: F.relu(x @ a) @ b, reals(33, 16), reals(16, 32), reals(32, 8), looser=2.0)
    case("linear/determinant", torch.linalg.det, reals(3, 4, 4) + 3 * torch.eye(4), looser=8.0)
    case("linear/multinomial", lambda x: torch.multinomial((x == x.amax(1, True)).float(), 2, True), reals(6, 9))
    case("linear/renorm", lambda x: torch.renorm(x, 2, 0, 1.0), reals(4, 9))


def _constants() -> None:
    x = reals(6, 8)
    for name, function in {
        "arange": lambda x: (torch.arange(8) + x, torch.arange(1, 17, 2) * x),
        "arange-float": lambda x: torch.arange(0.0, 2.4, 0.3) + x,
        "linspace": lambda x: torch.linspace(-1, 2, 8, dtype=x.dtype) * x,
        "full": lambda x: (
            torch.full((6, 8), 2.5) + x,
            torch.full_like(x, -1),
            torch.zeros(3),
            torch.ones(2, 2) * x[:2, :2],
        ),
        "eye": lambda x: torch.eye(6, 8) + x,
        "tensor": lambda x: (torch.tensor([1.5, -2.0]), torch.tensor([3, 4]), torch.tensor([True, False])),
        "table": lambda x: x[:, torch.tensor([3, 1, 7])] * torch.tensor([1.0, 2.0, 3.0]),
        "scalar": lambda x: (x * torch.tensor(3), torch.tensor(2.5) + x),
        "large": lambda x: torch.arange(1000)[:, None] % 7 + x[0],
        "bf16": lambda x: x.bfloat16() * torch.tensor([1.5] * 8, dtype=torch.bfloat16),
    }.items():
        case(f"constant/{name}", function, x, exact=name in ("tensor", "bf16"))


def _sizes() -> None:
    """No elements, one element, and rows whose number a call gives."""
    x = reals(6, 8)
    w = reals(8, 5)
    for name, function in {
        "no-rows": lambda x, w: (x[:0] @ w, x[:0] + 1, x[:0].sum(0), x[:0].sum(1), F.relu(x[:0])),
        "no-columns": lambda x, w: (x @ w[:, :0], x[:, :0] * 2, x[:, :0].sum(1), x[:, :0].exp()),
        "no-inside": lambda x, w: (x[:, :0] @ w[:0], F.linear(x[:, :0], w[:0].t(), w[0]), x[:, :0].prod(1)),
        "nothing": lambda x, w: (x[:0, :0] @ w[:0, :0], torch.cat([x[:0], x]), x[:0].t(), torch.zeros(0, 3)),
        "empty-batch": lambda x, w: torch.bmm(x[:0, None], w[:0, :, None].expand(0, 5, 8).transpose(1, 2)),
        "empty-gather": lambda x, w: (
            x[torch.zeros(0).long()],
            x.scatter_add(0, torch.zeros(0, 8).long(), x[:0]),
            x.index_add(0, torch.zeros(0).long(), x[:0]),
        ),
        "empty-any": lambda x, w: ((x[:, :0] > 0).any(1), (x[:, :0] > 0).all(1), x[:0].softmax(1), x[:0].cumsum(1)),
        "one-element": lambda x, w: (x[:1, :1] @ w[:1, :1], x[:1, :1].sum(), x[0, 0] + 1, x[:1, :1].softmax(1)),
        "no-dimension": lambda x, w: (x[0, 0] * w[0, 0], x.sum().exp(), x[0, 0].reshape(1)),
    }.items():
        case(f"size/{name}", function, x, w)
    counts = (0, 1, 2, 300)
    for name, (function, *rest) in {
        "elementwise": (lambda x: torch.relu(x) * 2,),
        "linear": (lambda x, w, b: F.linear(x, w.t(), b), w, reals(5)),
        "mlp": (lambda x, w, v: F.gelu(x @ w) @ v, w, reals(5, 3)),
        "softmax": (lambda x: x.softmax(1),),
        "layer-norm": (lambda x, w: F.layer_norm(x, (8,), w), reals(8)),
        "sum-rows": (lambda x: x.sum(0),),
        "sum-columns": (lambda x: x.sum(1),),
        "reshape": (lambda x: x.reshape(x.shape[0] * 2, 4) + 1,),
        "cat": (lambda x: torch.cat([x, x * 2], 0),),
        "slice": (lambda x: x[:, 2:5].flip(1),),
        "transposed": (lambda x: x.t() * 2,),
        "gather": (lambda x, w: x[:, torch.tensor([1, 0])] @ w[:2], w),
        "weights-gradient": (lambda x: x.t() @ x,),
        "count": (lambda x: x * x.shape[0] + torch.arange(x.shape[0])[:, None],),
        "argmax": (lambda x: x.argmax(1),),
        "bf16": (lambda x, w: (x.bfloat16() @ w.bfloat16()).float(), w),
    }.items():
        loose = 1e3 if name == "bf16" else 4.0
        others = tuple((reals(count, 8), *rest) for count in counts)
        case(f"dynamic/{name}", function, x, *rest, dynamic=(0,), others=others, looser=loose)
    ids = ints(6, low=0, high=7)
    case("dynamic/embedding", lambda i, w: F.embedding(i, w), ids, w, dynamic=(0,), others=((ints(0), w), (ids[:1], w)))


for _fill in (
    *(unary, binary, casts, _reductions, _normal, _convolutions),
    *(_gathers, _movement, _products, _constants, _sizes),
):
    _fill()


def chosen(names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """The cases whose names contain one of `names`; all without any."""
    for name, one in CASES.items():
        if not names or any(part in name for part in names):
            yield name, one
