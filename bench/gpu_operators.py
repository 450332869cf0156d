"""The operators that the front end can produce, as small models with inputs: what bench/check_gpu_models.py compiles
for a GPU and compares with torch.

A case is a function of tensors that returns a tensor or a tuple of them. Most are given every element type that the
operator takes, one tensor each, so that one compilation checks them all. Inputs are the same in every run.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TYPES = (*FLOATS, *WHOLE, torch.bool)
# Largest difference from the result in float64, relative to the element and to the tensor's root mean square.
BOUNDS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A model and its inputs. With `dynamic`, the first size of the inputs of these numbers is dynamic, and `others`
    are inputs of other sizes. `exact` results are torch's for the inputs as they are, not for float64."""

    function: Callable[..., Any]
    args: Tensors
    exact: bool = False
    looser: float = 1.0  # times the bound
    dynamic: tuple[int, ...] = ()
    others: tuple[Tensors, ...] = ()

    def model(self) -> torch.nn.Module:
        """What is compiled."""
        return _Model(self.function)

    def dynamic_shapes(self) -> Any:
        """As torch.export takes them."""
        if not self.dynamic:
            return None
        rows = torch.export.Dim("rows", min=0, max=4096)
        return (tuple({0: rows} if i in self.dynamic else None for i in range(len(self.args))),)

    def wanted(self, args: Tensors) -> list[torch.Tensor]:
        """torch's results in float64, in shapes and types of what it makes of the inputs."""
        with torch.no_grad():
            plain = _listed(self.function(*args))
            if self.exact:
                return plain
            double = [x.double() if x.is_floating_point() else x for x in args]
            return [
                b if a.is_floating_point() else a for a, b in zip(plain, _listed(self.function(*double)), strict=True)
            ]

    def types(self) -> list[torch.dtype]:
        """The element types of the results."""
        with torch.no_grad():
            return [value.dtype for value in _listed(self.function(*self.args))]


class _Model(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]):
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def _listed(results: Any) -> list[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def wrong(found: torch.Tensor, wanted: torch.Tensor, dtype: torch.dtype, looser: float = 1.0) -> str:
    """How a result differs from what is wanted of it; empty where it does not. NaN and infinities must be where they
    are wanted; integers must be equal."""
    if found.dtype != dtype or found.shape != wanted.shape:
        return f"{found.dtype} {list(found.shape)}, wanted {dtype} {list(wanted.shape)}"
    if not dtype.is_floating_point:
        count = int((found != wanted).sum())
        return f"{count} of {found.numel()} elements differ" if count else ""
    a, b = found.double(), wanted.to(dtype).double() if wanted.dtype == torch.bool else wanted.double()
    finite = b.isfinite()
    special = torch.where(finite, a.isfinite(), (a == b) | (a.isnan() & b.isnan()))
    if not special.all():
        return f"{int((~special).sum())} of {found.numel()} elements are NaN or infinite, or should be"
    a, b = a[finite], b[finite]
    if not a.numel():
        return ""
    error = ((a - b).abs() / (b.abs() + b.square().mean().sqrt()).clamp_min(1e-30)).max().item()
    return f"relative error {error:.1e}" if error > BOUNDS[dtype] * looser else ""


CASES: dict[str, Case] = {}


def _case(name: str, function: Callable[..., Any], *args: torch.Tensor, **options: Any) -> None:
    assert name not in CASES, name
    CASES[name] = Case(function, args, **options)


def _numbers(name: str, shape: Sequence[int], dtype: torch.dtype, low: float, high: float) -> torch.Tensor:
    """Uniform between two bounds, whole for integers, within what a type holds; the same for the same name."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{name} {list(shape)}".encode()))
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) > 0.4
    if dtype == torch.uint8 and low < 0:
        low, high = 0, 250  # beyond what it would be with a sign
    if not dtype.is_floating_point:
        low, high = max(low, torch.iinfo(dtype).min), min(high, torch.iinfo(dtype).max)
        return torch.randint(math.ceil(low), math.floor(high) + 1, shape, generator=generator, dtype=dtype)
    return (torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype)


def _f(*shape: int, low: float = -2.0, high: float = 2.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return _numbers("f", shape, dtype, low, high)


def _i(*shape: int, low: int = -9, high: int = 9, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return _numbers("i", shape, dtype, low, high)


def _each(
    name: str,
    function: Callable[..., Any],
    types: Sequence[torch.dtype],
    *ranges: tuple[float, float],
    shape: Sequence[int] = (7, 37),
    **options: Any,
) -> None:
    """A case of one tensor for each of `ranges` in each of `types`: results are of one type after the other."""
    count = len(ranges)
    args = [_numbers(f"{name} {n}", shape, dtype, *ranges[n]) for dtype in types for n in range(count)]

    def every(*args: torch.Tensor) -> Tensors:
        found = (_listed(function(*args[i : i + count])) for i in range(0, len(args), count))
        return tuple(value for values in found for value in values)

    _case(name, every, *args, **options)


def _unary() -> None:
    usual, positive, unit = (-3.0, 3.0), (0.05, 5.0), (-0.95, 0.95)
    for bounds, names in {
        usual: "abs neg exp exp2 expm1 sin cos tan tanh sinh cosh atan asinh erf sigmoid relu floor ceil round trunc "
        "frac sign square isnan isinf sgn deg2rad nan_to_num logical_not",
        positive: "log log2 log10 log1p sqrt rsqrt reciprocal",
        (1.1, 6.0): "acosh",
        unit: "asin acos atanh",
        (0.1, 0.9): "logit",
    }.items():
        for name in names.split():
            _each(f"unary/{name}", getattr(torch, name), FLOATS, bounds, looser=4.0 if name == "tan" else 2.0)
    for name in (
        "gelu silu elu selu celu softplus mish hardsigmoid hardswish hardtanh leaky_relu logsigmoid relu6 softsign "
        "tanhshrink softshrink hardshrink"
    ).split():
        _each(f"activation/{name}", getattr(F, name), FLOATS, (-4.0, 4.0), looser=2.0)
    _each("activation/gelu-tanh", lambda x: F.gelu(x, approximate="tanh"), FLOATS, (-4.0, 4.0), looser=2.0)
    _each("activation/threshold", lambda x: F.threshold(x, 0.25, -1.0), FLOATS, usual)
    _each("activation/glu", lambda x: F.glu(x, 1), FLOATS, usual, shape=(5, 38))
    _case("activation/prelu", F.prelu, _f(3, 4, 5), _f(4))
    for name in "abs neg sign square bitwise_not relu".split():
        _each(f"unary-whole/{name}", getattr(torch, name), WHOLE[: 4 if name == "neg" else 5], (-9, 9))
    _each("unary-whole/to-float", lambda x: (x.sqrt(), x.exp(), x.sigmoid()), WHOLE, (0, 9), looser=2.0)
    _each("unary-bool/not", lambda x: (x.logical_not(), ~x), [torch.bool], (0, 1))
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e-40, 3e38])
    for name in "abs neg exp log sqrt tanh sigmoid relu sign isnan isinf floor erf sin nan_to_num".split():
        _case(f"special/{name}", getattr(torch, name), special, exact=True)


def _binary() -> None:
    usual, positive = (-3.0, 3.0), (0.5, 4.0)
    functions: dict[str, Callable[..., Any]] = {
        "add": torch.add,
        "sub": torch.sub,
        "mul": torch.mul,
        "maximum": torch.maximum,
        "minimum": torch.minimum,
        "atan2": torch.atan2,
        "fmax": torch.fmax,
        "add-alpha": lambda x, y: torch.add(x, y, alpha=2),
        "rsub": lambda x, y: torch.rsub(x, y),
        "lerp": lambda x, y: torch.lerp(x, y, 0.3),
        "scalars": lambda x, y: (x + 1, 2 - y, x * 3, y / 4, 1.5 * x),
    }
    for name, function in functions.items():
        _each(f"binary/{name}", function, FLOATS, usual, usual, looser=2.0)
    for name, function in {
        "div": torch.div,
        "reciprocal": lambda x, y: 1 / y - x,
        "hypot": lambda x, y: torch.sqrt(x * x + y * y),
        "logaddexp": torch.logaddexp,
        "addcmul": lambda x, y: torch.addcmul(x, y, y, value=0.5),
        "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
        "pow": lambda x, y: (x.abs() + 0.1) ** y,
        "pow-scalar": lambda x, y: (x**2, x**3, y**0.5, y**-1.5, 2.0**x),
    }.items():
        _each(f"binary/{name}", function, FLOATS, usual, positive, looser=6.0 if "pow" in name else 2.0)
    for name, function in {  # of whole numbers, so that every type cuts at the same place
        "fmod": torch.fmod,
        "remainder": torch.remainder,
        "floor-divide": torch.floor_divide,
        "div-floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
        "div-trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    }.items():
        _each(f"binary/{name}", lambda x, y, f=function: f(x.round(), y.round()), FLOATS, (-90, 90), (1.0, 7.0))
        floored = "floor" in name  # which torch-mlir does for 16 bits and more
        _each(f"binary-whole/{name}", function, WHOLE[: 3 if floored else 5], (-90, 90), (1, 7))
    for name in "add sub mul maximum minimum bitwise_and bitwise_or bitwise_xor".split():
        _each(f"binary-whole/{name}", getattr(torch, name), WHOLE, (-9, 9), (-9, 9))
    _each("binary-whole/wraps", lambda x, y: (x * y, x + y), WHOLE[2:], (-40000, 40000), (-40000, 40000))
    _each("binary-whole/shifts", lambda x: (x << 3, x >> 2), WHOLE[:1], (-90, 90))
    _each("binary-whole/div", torch.div, WHOLE, (-90, 90), (1, 7))
    _each("binary-whole/pow", lambda x: x**2, WHOLE, (-5, 5))
    for name in "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor add mul".split():
        _each(f"binary-bool/{name}", getattr(torch, name), [torch.bool], (0, 1), (0, 1))
    f, i = _f(7, 37), _i(7, 37, dtype=torch.int32)
    mixed = (f, i, f.bfloat16(), f.half(), f.double(), i.long(), i.to(torch.int8), i > 0)
    _case("binary/mixed-types", lambda x, *others: tuple(x + other for other in others), *mixed)
    _case("binary/mixed-whole", lambda i, j, k, b: (i + j, j * k, k - i, b + i, b * k), i, i.long(), i.short(), i > 0)
    _case("binary/mixed-16", lambda x, y, i: (x + y, x * i, y - i), f.bfloat16(), f.half(), i)
    _case("binary/broadcast", lambda x, y, z, s: (x + y, x * z, x - s, y * z), f, _f(37), _f(7, 1), _f())
    _case("binary/broadcast-3", lambda x, y: (x + y, x[:, 0] * y[0]), _f(4, 1, 9), _f(5, 9))
    for name in "eq ne lt le gt ge".split():
        compare = getattr(torch, name)
        _each(f"compare/{name}", compare, TYPES, (-2, 2), (-2, 2))
        _each(f"compare-scalar/{name}", lambda x, f=compare: (f(x, 1), f(x, 0)), TYPES, (-2, 2))
    nan = torch.tensor([math.nan, 1.0, math.inf, -math.inf, 0.0])
    _case("compare/nan", lambda x, y: (x == y, x != y, x < y, x >= y, x == x, x != x), nan, nan.flip(0), exact=True)
    _case("special/max-min", lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), nan, nan.flip(0), exact=True)
    _case("special/clamp", lambda x: (x.clamp(-0.5, 0.5), F.relu6(x), F.hardtanh(x)), nan, exact=True)
    _each("where/types", lambda x, y: torch.where(x > y, x, y), TYPES[:9], (-9, 9), (-9, 9))
    _each("where/scalars", lambda x: (torch.where(x > 0, x, 0), torch.where(x > 0, 1, x)), FLOATS + WHOLE[:4], (-9, 9))
    _each("where/masked-fill", lambda x: x.masked_fill(x > 0, 3), TYPES[:9], (-9, 9))
    _each("clamp/both", lambda x: x.clamp(-1, 2), FLOATS + WHOLE[:4], (-9, 9))
    _each("clamp/one", lambda x: (x.clamp_min(1), x.clamp_max(1)), FLOATS + WHOLE, (-9, 9))
    _case(
        "clamp/tensors", lambda x, a, b: torch.clamp(x, a, b), _f(7, 37), _f(37, low=-1, high=0), _f(37, low=0, high=1)
    )


def _casts() -> None:
    for dtype in TYPES:
        name = str(dtype).removeprefix("torch.")
        x = _numbers(name, (7, 37), dtype, 0, 120)  # what every type can hold
        _case(f"cast/{name}", lambda x: tuple(x.to(kind) for kind in TYPES if kind != x.dtype), x, exact=True)
    signed = _f(7, 37, low=-120, high=120)
    _case("cast/negative", lambda x: tuple(x.to(kind) for kind in WHOLE[:4]), signed, exact=True)
    _case(
        "cast/whole-narrower", lambda i: (i.to(torch.int8), i.to(torch.uint8), i.bool()), _i(7, 37, low=-900, high=900)
    )
    _case("cast/round-to-even", lambda x: (x.bfloat16(), x.half()), _f(64, 37, low=-1e4, high=1e4), exact=True)


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
            _case(f"reduce/{name}-{label}", call, _f(5, 6, 41), looser=2.0)
    for name in "sum amax amin prod".split():
        function = getattr(torch, name)
        _each(f"reduce-whole/{name}", lambda x, f=function: f(x, dim=1), WHOLE, (-3, 3), shape=(5, 6))
    for name in "sum mean amax argmax".split():
        function = getattr(torch, name)
        _each(f"reduce-types/{name}", lambda x, f=function: (f(x, 1), f(x, 0)), FLOATS, (-3, 3), looser=4.0)
    _each("reduce-bool", lambda x: (x.any(1), x.all(1), x.sum(1), x.any()), [torch.bool], (0, 1))
    _case("reduce/long", lambda x: (x.sum(1), x.amax(1), x.sum(0), x.sum()), _f(3, 5000), looser=5.0)
    _case("reduce/max-with-index", lambda x: (*x.max(1), *x.min(0)), _f(6, 40))
    _case("reduce/aminmax", lambda x: torch.aminmax(x, dim=1), _f(6, 40))
    _case("reduce/ties", lambda x: (x.argmax(1), x.argmin(1)), torch.zeros(4, 40))
    _case("reduce/var-mean", lambda x: torch.var_mean(x, 1, correction=0), _f(6, 40))
    _case("reduce/count", lambda x: (x > 0).sum(1), _f(6, 40))
    nan = _f(3, 40)
    nan[1, 7], nan[2, 3] = math.nan, math.inf
    _case("special/reductions", lambda x: (x.sum(1), x.amax(1), x.amin(1), x.mean(1)), nan, exact=True)
    _each("scan/cumsum", lambda x: (x.cumsum(1), x.cumsum(0)), FLOATS[:2] + WHOLE[:2], (-3, 3), looser=5.0)
    _case("scan/cumprod", lambda x: x.cumprod(1), _f(5, 9, low=0.8, high=1.2))
    _case("sort/values", lambda x: (*x.sort(1), *x.sort(0, descending=True)), _f(4, 13))
    _case("sort/whole", lambda i: torch.sort(i, 1)[0], _i(4, 13))
    _case("sort/argsort", lambda x: x.argsort(1), _f(4, 13))
    _case("sort/topk", lambda x: (*x.topk(5, 1), *x.topk(3, 1, largest=False)), _f(4, 13))


def _normal() -> None:
    for dim in (0, 1, -1):
        _each(f"softmax/{dim}", lambda x, d=dim: (x.softmax(d), x.log_softmax(d)), FLOATS, (-9, 9), looser=4.0)
    _case("softmax/long", lambda x: x.softmax(-1), _f(3, 3000))
    _case("softmax/masked", lambda x: x.masked_fill(x < 0, -math.inf).softmax(-1), _f(6, 40))
    _case("softmax/as-f32", lambda x: F.softmax(x, -1, dtype=torch.float32), _f(6, 40, dtype=torch.bfloat16))
    for dtype in FLOATS[1:]:
        label = str(dtype).removeprefix("torch.")
        x, image, w, b = (_f(*shape, dtype=dtype) for shape in ((6, 40), (2, 6, 5, 7), (40,), (6,)))
        _case(f"norm/layer-{label}", lambda x, w: F.layer_norm(x, (40,), w, w), x, w, looser=2.0)
        _case(f"norm/group-{label}", lambda x, b: F.group_norm(x, 3, b, b), image, b, looser=2.0)
        _case(f"norm/rms-{label}", lambda x, w: F.rms_norm(x, (40,), w), x, w, looser=2.0)
        _case(f"norm/batch-{label}", lambda x, b, v: F.batch_norm(x, b, v, b, b), image, b, b.abs() + 0.5, looser=2.0)
    image = _f(2, 6, 5, 7)
    _case("norm/layer-2d", lambda x: F.layer_norm(x, (5, 7)), image)
    _case("norm/instance", F.instance_norm, image)
    _case("norm/native-group", lambda x, b: torch.native_group_norm(x, b, b, 2, 6, 35, 2, 1e-5), image, _f(6))
    _case("norm/normalize", lambda x: F.normalize(x, dim=1), image)
    _case("norm/local-response", lambda x: F.avg_pool2d(x, 1) / (1 + x * x), image)
    _case("norm/cosine", lambda x, y: F.cosine_similarity(x, y, 1), _f(6, 40), _f(6, 40) + 1)
    _case("loss/mse", lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y)), _f(6, 4), _f(6, 4) + 1)
    _case("loss/cross-entropy", lambda x, i: F.cross_entropy(x, i), _f(6, 10), _i(6, low=0, high=9))
    _case("loss/bce", lambda x, y: F.binary_cross_entropy_with_logits(x, y), _f(6, 4), _f(6, 4, low=0, high=1))


def _convolutions() -> None:
    image, line, volume = _f(2, 4, 9, 11), _f(2, 4, 13), _f(1, 4, 5, 6, 7)
    w1, w2, w3, b = _f(6, 4, 3), _f(6, 4, 3, 3), _f(6, 4, 2, 3, 2), _f(6)
    _case("conv/1d", F.conv1d, line, w1, b)
    _case("conv/1d-stride", lambda x, w: F.conv1d(x, w, stride=2, padding=1), line, w1)
    _case("conv/2d", F.conv2d, image, w2, b)
    _case("conv/2d-stride-padding", lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 2)), image, w2, b)
    _case("conv/2d-dilation", lambda x, w: F.conv2d(x, w, dilation=2), image, w2)
    _case("conv/2d-groups", lambda x, w: F.conv2d(x, w, groups=2), image, _f(6, 2, 3, 3))
    _case("conv/2d-depthwise", lambda x, w: F.conv2d(x, w, padding=1, groups=4), image, _f(4, 1, 3, 3))
    _case("conv/2d-depthwise-twice", lambda x, w: F.conv2d(x, w, groups=4), image, _f(8, 1, 3, 3))
    _case("conv/2d-one-by-one", F.conv2d, image, _f(6, 4, 1, 1), b)
    _case("conv/2d-bf16", F.conv2d, image.bfloat16(), w2.bfloat16(), b.bfloat16())
    _case("conv/2d-f16", F.conv2d, image.half(), w2.half(), b.half(), looser=2.0)
    _case("conv/2d-f64", F.conv2d, image.double(), w2.double(), b.double())
    _case("conv/2d-same", lambda x, w: F.conv2d(x, w, padding="same"), image, w2)
    _case("conv/3d", F.conv3d, volume, w3, b)
    _case("conv/3d-padding", lambda x, w: F.conv3d(x, w, stride=2, padding=1), volume, w3)
    _case("conv/transposed-1d", lambda x, w: F.conv_transpose1d(x, w, stride=2), line, _f(4, 6, 3))
    _case("conv/transposed-2d", lambda x, w, b: F.conv_transpose2d(x, w, b, 2, 1, 1), image, _f(4, 6, 3, 3), b)
    _case("conv/transposed-2d-plain", F.conv_transpose2d, image, _f(4, 6, 2, 2))
    _case("conv/transposed-2d-groups", lambda x, w: F.conv_transpose2d(x, w, groups=2), image, _f(4, 3, 2, 2))
    _case("conv/transposed-3d", lambda x, w: F.conv_transpose3d(x, w, stride=2), volume, _f(4, 3, 2, 2, 2))
    _case("pool/max-1d", lambda x: F.max_pool1d(x, 3, 2), line)
    _case("pool/max-2d", lambda x: F.max_pool2d(x, 3, 2), image)
    _case("pool/max-2d-padding", lambda x: F.max_pool2d(x, 3, 2, 1), image)
    _case("pool/max-2d-dilation", lambda x: F.max_pool2d(x, 2, 1, 0, 2), image)
    _case("pool/max-2d-ceil", lambda x: F.max_pool2d(x, 2, 2, ceil_mode=True), image)
    _case("pool/max-2d-indices", lambda x: F.max_pool2d(x, 3, 2, return_indices=True), image)
    _case("pool/max-2d-bf16", lambda x: F.max_pool2d(x, 3, 2), image.bfloat16())
    _case("pool/max-3d", lambda x: F.max_pool3d(x, 2), volume)
    _case("pool/avg-1d", lambda x: F.avg_pool1d(x, 3, 2), line)
    _case("pool/avg-2d", lambda x: F.avg_pool2d(x, 3, 2), image)
    _case("pool/avg-2d-padding", lambda x: F.avg_pool2d(x, 3, 2, 1), image)
    _case("pool/avg-2d-no-padding-counted", lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), image)
    _case("pool/avg-3d", lambda x: F.avg_pool3d(x, 2), volume)
    _case("pool/adaptive-avg", lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4))), image)
    _case("pool/adaptive-max", lambda x: F.adaptive_max_pool2d(x, (3, 4)), image)
    for label, options in {
        "nearest": {"scale_factor": 2},
        "nearest-size": {"size": (5, 17)},
        "bilinear": {"scale_factor": 2, "mode": "bilinear"},
        "bilinear-corners": {"size": (13, 6), "mode": "bilinear", "align_corners": True},
        "bicubic": {"scale_factor": 2, "mode": "bicubic"},
    }.items():
        _case(f"upsample/{label}", lambda x, o=options: F.interpolate(x, **o), image)
    _case("upsample/nearest-op", lambda x: torch.ops.aten.upsample_nearest2d(x, (18, 33)), image)
    _case("upsample/1d", lambda x: F.interpolate(x, scale_factor=2), line)
    _case("upsample/grid-sample", lambda x, g: F.grid_sample(x, g, align_corners=False), image, _f(2, 5, 6, 2))
    _case("image/pixel-shuffle", lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x[..., :8, :8], 2)), image)
    _case("image/unfold", lambda x: F.unfold(x, 3, padding=1), image)


def _gathers() -> None:
    x, rows, whole = _f(6, 40), torch.tensor([0, 3, 3, 1, 0, 3]), _i(6, 40, low=0, high=8)
    once = torch.stack([(torch.arange(9) * 2 + row) % 9 for row in range(6)])  # no index twice in a row
    _case("gather/dim-1", lambda x, i: x.gather(1, i), x, whole)
    _case("gather/dim-0", lambda x, i: x.gather(0, i), x, whole % 6)
    _each("gather/types", lambda x: x.gather(1, (x > 0).long()), TYPES[:9], (-9, 9))
    _case("gather/index-select", lambda x, r: (x.index_select(0, r), x.index_select(1, r)), x, rows)
    _case("gather/index", lambda x, r, s: (x[r], x[:, r], x[r, s]), x, rows, rows + 2)
    _case("gather/index-broadcast", lambda x, r, s: x[r[:, None], s[None, :]], x, rows, rows + 2)
    _case("gather/negative", lambda x, r: x[r - 6], x, rows)
    _case("gather/take", lambda x, i: torch.take(x, i), x, whole * 7)
    _case("gather/take-along", lambda x, i: torch.take_along_dim(x, i, 1), x, whole)
    _case("gather/embedding", lambda i, w: F.embedding(i, w), whole, _f(9, 5))
    _case("gather/embedding-bf16", lambda i, w: F.embedding(i, w, padding_idx=0), whole, _f(9, 5, dtype=torch.bfloat16))
    _case("gather/embedding-bag", lambda i, w: F.embedding_bag(i, w, mode="sum"), whole, _f(9, 5))
    _case("gather/as-strided", lambda x: x.as_strided((5, 3), (7, 2), 4), x)
    _case("gather/as-strided-overlap", lambda x: x.as_strided((5, 4, 3), (2, 1, 1)), x)
    _case("gather/one-hot", lambda i: F.one_hot(i, 9), whole)
    _case("gather/element", lambda x: x * x[2, 3] + x.max(), x)
    updates = _f(6, 9)
    _case("scatter/dim-1", lambda x, i, u: x.scatter(1, i, u), x, once, updates)
    _case("scatter/value", lambda x, i: x.scatter(1, i, 2.5), x, whole)
    _case("scatter/same-twice", lambda x, i: x.scatter(1, i, torch.ones(6, 40, dtype=x.dtype)), x, whole)
    _case("scatter/add", lambda x, i, u: x.scatter_add(1, i % 4, u), x, once, updates)
    _each("scatter/add-types", lambda x: x.scatter_add(1, (x > 0).long(), x), FLOATS + WHOLE[:2], (-3, 3), looser=8.0)
    for reduce in "sum prod amax amin mean".split():
        _case(f"scatter/reduce-{reduce}", lambda x, i, u, r=reduce: x.scatter_reduce(1, i % 4, u, r), x, once, updates)
        _case(
            f"scatter/reduce-{reduce}-without-self",
            lambda x, i, u, r=reduce: x.scatter_reduce(1, i % 4, u, r, include_self=False),
            *(x, once, updates),
        )
    _case("scatter/reduce-whole", lambda x, i: x.scatter_reduce(1, i % 4, x, "amax"), _i(6, 40), whole)
    _case("scatter/index-add", lambda x, r: torch.zeros(4, 40, dtype=x.dtype).index_add(0, r, x), x, rows)
    _case("scatter/index-add-alpha", lambda x, r: x.index_add(0, r, x, alpha=2), x, rows)
    _case("scatter/index-add-bf16", lambda x, r: x.index_add(0, r, x), x.bfloat16(), rows, looser=2.0)
    _case("scatter/index-add-f64", lambda x, r: x.index_add(0, r, x), x.double(), rows)
    _case("scatter/index-add-whole", lambda x, r: x.index_add(0, r, x), _i(6, 40), rows)
    _case("scatter/index-copy", lambda x, r, u: x.index_copy(0, r, u), x, torch.tensor([4, 1]), _f(2, 40))
    _case("scatter/index-fill", lambda x, r: x.index_fill(0, r, 7.0), x, rows)
    _case("scatter/index-put", lambda x, r, u: x.index_put((r,), u), x, torch.tensor([4, 1]), _f(2, 40))
    _case("scatter/index-put-two", lambda x, r, s: x.index_put((r, s), x[:2, 0]), x, rows[:2], rows[2:4])
    _case("scatter/index-put-add", lambda x, r: x.index_put((r,), x, accumulate=True), x, rows)
    _case("scatter/index-put-mask", lambda x: x.masked_fill(x > 0, 1.0), x)
    _case("scatter/slice", lambda x: torch.slice_scatter(x, x[:, :5] * 2, 1, 3, 8), x)
    _case("scatter/select", lambda x: torch.select_scatter(x, x[0] * 2, 0, 3), x)
    _case("scatter/bincount", lambda i: torch.zeros(9).index_add(0, i.flatten(), torch.ones(240)), whole, exact=True)


def _movement() -> None:
    x, y, cube = _f(6, 40), _f(6, 40) + 1, _f(3, 4, 5)
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
        _case(f"move/{name}", function, x, y, cube)
    _each("move/types", lambda x: (x.t() + 0, x.flip(1), torch.cat([x, x])), TYPES[:9], (-9, 9))
    _case("move/bool", lambda b: (b.t(), b.flip(1), torch.cat([b, b])), x > 0)
    image = _f(2, 3, 6, 7)
    _case("pad/constant", lambda x: (F.pad(x, (1, 2, 0, 3), value=7.0), F.pad(x, (0, 1))), image)
    _case("pad/negative", lambda x: F.pad(x, (-1, -2)), image)
    _case("pad/reflect", lambda x: F.pad(x, (2, 1, 1, 2), "reflect"), image)
    _case("pad/replicate", lambda x: F.pad(x, (2, 1, 1, 2), "replicate"), image)
    _case("pad/types", lambda i, x: (F.pad(i, (1, 1), value=3), F.pad(x, (1, 1))), _i(4, 5), image.bfloat16())


def _products() -> None:
    a, b, bias = _f(33, 40), _f(40, 29), _f(29)
    for dtype in (*FLOATS, torch.int64, torch.int32):
        label = str(dtype).removeprefix("torch.")
        p, q, r = (_numbers("p", t.shape, dtype, -3, 3) for t in (a, b, bias))
        _case(f"product/mm-{label}", lambda p, q: p @ q, p, q, looser=4.0)
        if dtype.is_floating_point:
            _case(f"product/linear-{label}", lambda p, q, r: F.linear(p, q.t(), r), p, q, r, looser=4.0)
    _case("product/addmm", lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), a, b, bias)
    _case("product/bmm", torch.bmm, _f(3, 17, 20), _f(3, 20, 19))
    _case("product/bmm-bf16", torch.bmm, _f(3, 17, 20, dtype=torch.bfloat16), _f(3, 20, 19, dtype=torch.bfloat16))
    _case("product/baddbmm", lambda c, a, b: torch.baddbmm(c, a, b), _f(3, 17, 19), _f(3, 17, 20), _f(3, 20, 19))
    _case("product/broadcast", torch.matmul, _f(2, 1, 5, 6), _f(3, 6, 7))
    _case("product/batch-by-matrix", torch.matmul, _f(2, 5, 6), _f(6, 7))
    _case("product/vector", lambda a, b: (a @ b[:, 0], b[:, 0] @ b, a[0] @ b[:, 0]), a, b)
    _case("product/outer", lambda a, b: (torch.outer(a, b), a[:, None] * b[None]), _f(9), _f(7))
    _case("product/mv", torch.mv, a, _f(40))
    _case("product/transposed", lambda a, b: (a.t() @ a, b.t() @ a.t()), a, b)
    _case("product/itself", lambda a: a @ a.t(), a)
    _case("product/bilinear", lambda x, y, w: F.bilinear(x, y, w), _f(6, 4), _f(6, 5), _f(3, 4, 5))
    _case("product/rows-of-one", lambda a, b: a[:1] @ b, a, b)
    _case("product/column-of-one", lambda a, b: a @ b[:, :1], a, b)
    _case("product/one-inside", lambda a, b: a[:, :1] @ b[:1], a, b)
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
        tensors = [_f(*(sizes[c] for c in part)) for part in equation.split("->")[0].split(",")]
        _case(f"einsum/{label}", lambda *t, e=equation: torch.einsum(e, *t), *tensors, looser=2.0)
    q, k, v = (_f(2, 3, 7, 8), _f(2, 3, 9, 8), _f(2, 3, 9, 8) + 1)
    _case("attention/plain", F.scaled_dot_product_attention, q, k, v)
    _case("attention/causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q)
    _case("attention/mask", lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, m), q, k, v, _f(7, 9) > -1)
    _case("attention/bf16", F.scaled_dot_product_attention, q.bfloat16(), k.bfloat16(), v.bfloat16())
    _case("linear/mlp", lambda x, a, b: F.relu(x @ a) @ b, _f(33, 16), _f(16, 32), _f(32, 8), looser=2.0)
    _case("linear/determinant", torch.linalg.det, _f(3, 4, 4) + 3 * torch.eye(4), looser=8.0)
    _case("linear/multinomial", lambda x: torch.multinomial((x == x.amax(1, True)).float(), 2, True), _f(6, 9))
    _case("linear/renorm", lambda x: torch.renorm(x, 2, 0, 1.0), _f(4, 9))


def _constants() -> None:
    x = _f(6, 8)
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
        _case(f"constant/{name}", function, x, exact=name in ("tensor", "bf16"))


def _sizes() -> None:
    """No elements, one element, and rows whose number a call gives."""
    x = _f(6, 8)
    w = _f(8, 5)
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
        _case(f"size/{name}", function, x, w)
    counts = (0, 1, 2, 300)
    for name, (function, *rest) in {
        "elementwise": (lambda x: torch.relu(x) * 2,),
        "linear": (lambda x, w, b: F.linear(x, w.t(), b), w, _f(5)),
        "mlp": (lambda x, w, v: F.gelu(x @ w) @ v, w, _f(5, 3)),
        "softmax": (lambda x: x.softmax(1),),
        "layer-norm": (lambda x, w: F.layer_norm(x, (8,), w), _f(8)),
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
        others = tuple((_f(count, 8), *rest) for count in counts)
        _case(f"dynamic/{name}", function, x, *rest, dynamic=(0,), others=others, looser=loose)
    ids = _i(6, low=0, high=7)
    _case("dynamic/embedding", lambda i, w: F.embedding(i, w), ids, w, dynamic=(0,), others=((_i(0), w), (ids[:1], w)))


for _fill in (
    _unary,
    _binary,
    _casts,
    _reductions,
    _normal,
    _convolutions,
    _gathers,
    _movement,
    _products,
    _constants,
    _sizes,
):
    _fill()


def chosen(names: Sequence[str]) -> Iterator[tuple[str, Case]]:
    """The cases whose names contain one of `names`; all without any."""
    for name, case in CASES.items():
        if not names or any(part in name for part in names):
            yield name, case
