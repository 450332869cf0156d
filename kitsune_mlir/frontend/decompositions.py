"""How torch operators are taken apart before import, so that they reach linalg in shapes worth pipelining.

torch-mlir's table is the base. What is different, and why:

- products stay whole: its `addmm` casts bf16 operands to f32 before the product;
- norms, of groups too, work in f32 with as few passes over the rows as there are reductions (torch-mlir's mean goes
  through f64), and say "times 1/n", not "divided by n";
- softmax carries neither max-with-indices nor the f64 chain of torch's safe softmax;
- batch norm of a trained model is one scale and one shift a channel;
- powers by small numbers are products and roots; the tanh of a GELU has the full constant;
- attention has rules in `attention`; what torch-mlir computes otherwise than torch, or not at all, in `arithmetic`,
  `bit_patterns`, `convolutions`, `einsums`, `extrema`, `fused_layers`, `grid_samples`, `grouped_products`,
  `indexing`, `medians`, `norms`, `pooling`, `scans`, `scatters`, `signal_windows`, `sorts`, `special_functions`,
  `sums`, `sums_by_index`, `tensor_lists`, `unfolding` and `upsampling`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decompositions
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_map

from kitsune_mlir import mlir
from kitsune_mlir.planning.row_tiles import WIDEST

from .arithmetic import ARITHMETIC, integer_power, of_torchs_compiler
from .attention import ATTENTION
from .attention_gradients import ATTENTION_GRADIENTS
from .bit_patterns import BIT_PATTERNS
from .complex_rules import COMPLEX_RULES
from .convolutions import CONVOLUTIONS
from .einsums import EINSUMS
from .extrema import EXTREMA
from .fused_layers import FUSED_LAYERS
from .gradients import GRADIENTS
from .grid_samples import GRID_SAMPLES
from .grouped_products import GROUPED_PRODUCTS, of_libraries
from .image_gradients import IMAGE_GRADIENTS
from .indexing import INDEXING
from .integer_products import INTEGER_PRODUCTS
from .linear_algebra import LINEAR_ALGEBRA
from .losses import LOSSES
from .medians import MEDIANS
from .narrow_floats import NARROW_FLOATS
from .norms import NORMS
from .open_transforms import OPEN_TRANSFORMS
from .padding import PADDING
from .pooling import adaptive_average_pool, adaptive_max_pool, max_pool, max_pool_with_indices
from .recurrent_cells import RECURRENT_CELLS
from .recurrent_layers import RECURRENT_LAYERS
from .sample_gradients import SAMPLE_GRADIENTS
from .scans import SCANS
from .scatters import SCATTERS
from .signal_windows import SIGNAL_WINDOWS
from .sorts import SORTS
from .special_functions import SPECIAL_FUNCTIONS
from .spectrograms import SPECTROGRAMS
from .sums import SUMS
from .sums_by_index import SUMS_BY_INDEX
from .tensor_lists import TENSOR_LISTS
from .unfolding import UNFOLDING
from .upsampling import UPSAMPLING
from .working import NARROW, working

aten = torch.ops.aten

Table = dict[Any, Callable[..., Any]]


def softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    y = working(x)
    y = (y - y.amax(dim, keepdim=True)).exp()
    y = y / y.sum(dim, keepdim=True)
    return y if half_to_float else y.to(x.dtype)


def log_softmax(x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
    y = working(x)
    y = y - y.amax(dim, keepdim=True)
    y = y - y.exp().sum(dim, keepdim=True).log()
    return y if half_to_float else y.to(x.dtype)


def of_scalars(operator: Any, rule: Callable[..., Any]) -> Callable[..., Any]:
    """The rule, by which a tensor without dimensions has one of one element: torch lets it have a dimension 0."""

    def along(x: Tensor, *args: Any, **options: Any) -> Any:
        if x.dim():
            return rule(x, *args, **options)
        found = operator(x.view(1), *args, **options)
        return tree_map(lambda result: result.view(()), found)

    return along


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    return native_layer_norm(x, normalized_shape, weight, bias, eps)[0]


def native_layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    count = math.prod(normalized_shape)
    y = working(x)
    mean = y.sum(dims, keepdim=True) * (1 / count)
    y = y - mean
    scale = ((y * y).sum(dims, keepdim=True) * (1 / count) + eps).rsqrt()
    y = y * scale
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(x.dtype), mean, scale


def native_group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, N: Any, C: Any, HxW: Any, group: int, eps: float
) -> Any:
    """A layer norm of rows, each what a group has of an image. Where a kernel can keep such a row, what a channel is
    scaled and shifted by is repeated for its pixels, so that it has the row's form. Pixels of open sizes are not put
    into one row."""
    if not C:
        return NotImplemented
    if not isinstance(HxW, int) or not HxW:
        rows, pixels = x.unflatten(1, (group, C // group)), list(range(2, x.dim() + 1))
        y = working(rows)
        mean = y.mean(pixels, keepdim=True)
        scale = ((y - mean).square().mean(pixels, keepdim=True) + eps).rsqrt()
        y = ((y - mean) * scale).flatten(1, 2)
        channels = [-1] + [1] * (x.dim() - 2)
        y = y if weight is None else y * weight.view(channels)
        y = y if bias is None else y + bias.view(channels)
        return y.to(x.dtype), mean.flatten(1), scale.flatten(1)
    channels = [each if each is None else each.view(group, C // group, 1) for each in (weight, bias)]
    shape = [C // group, HxW]
    if math.prod(shape) <= WIDEST:
        channels = [each if each is None else each.expand(group, *shape).flatten(1) for each in channels]
        shape = [math.prod(shape)]
    y, mean, scale = native_layer_norm(x.reshape(-1, group, *shape), shape, *channels, eps)
    return y.reshape(x.shape), mean.reshape(-1, group), scale.reshape(-1, group)


def instance_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Any, running_var: Any, *rest: Any
) -> Any:
    """A group norm whose groups are channels."""
    use_input_stats, _, eps, *_ = rest
    if not use_input_stats or running_mean is not None:
        return NotImplemented
    found = native_group_norm(x, weight, bias, x.shape[0], x.shape[1], math.prod(x.shape[2:]), x.shape[1], eps)
    return found if found is NotImplemented else found[0]


def rms_norm(x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    y = working(x)
    eps = torch.finfo(y.dtype).eps if eps is None else eps
    y = y * ((y * y).sum(dims, keepdim=True) * (1 / math.prod(normalized_shape)) + eps).rsqrt()
    return (y if weight is None else y * weight).to(x.dtype)


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Any:
    if training or running_mean is None or running_var is None:
        return NotImplemented
    return batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps)[0]


def batch_norm_no_training(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    scale = (working(running_var) + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -running_mean * scale
    shift = shift if bias is None else shift + bias
    channels = [-1] + [1] * (x.dim() - 2)
    y = working(x) * scale.view(channels) + shift.view(channels)
    return y.to(x.dtype), x.new_empty((0,)), x.new_empty((0,))


def gelu(x: Tensor, approximate: str = "none") -> Any:
    if approximate == "none":
        return NotImplemented  # torch-mlir's is one operator, and exact
    y = working(x)
    inner = math.sqrt(2 / math.pi) * (y + 0.044715 * (y * y * y))
    return (0.5 * y * (1 + inner.tanh())).to(x.dtype)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """By expm1, as torch computes it: e^x - 1 loses the digits of numbers near 0."""
    y = working(x)
    return torch.where(y > 0, y * scale, (y * input_scale).expm1() * (alpha * scale)).to(x.dtype)


def mish(x: Tensor) -> Tensor:
    """x tanh(log(1 + e)) with e = e^x is x n / (n + 2) with n = e (e + 2): one exponential, where tanh, log1p and exp,
    each good to the last digit, take some 300 instructions an element. From 20 on n / (n + 2) is 1."""
    y = working(x)
    e = y.clamp(max=20.0).exp()
    n = e * (e + 2.0)
    return (y * (n / (n + 2.0))).to(x.dtype)


def power(x: Tensor, exponent: float) -> Any:
    if x.is_complex() and exponent not in (2, 3, -1):
        return (x.log() * exponent).exp()
    if not x.is_floating_point() and not x.is_complex():
        kind = torch.result_type(x, exponent)
        x = x.to(kind)
        return integer_power(x, exponent) if isinstance(exponent, int) else torch.pow(x, exponent)
    forms: dict[float, Callable[[], Tensor]] = {
        2: lambda: x * x,
        3: lambda: x * x * x,
        -1: lambda: x.reciprocal(),
        0.5: lambda: x.sqrt(),
        -0.5: lambda: x.rsqrt(),
    }
    return forms[exponent]() if exponent in forms else NotImplemented


def as_strided(x: Tensor, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None) -> Any:
    """The tensor itself, where it lies so: torch says this way that a mean of images with channels last has strides of
    such images."""
    same = x.dim() == len(size) and storage_offset in (None, 0)
    same = same and all(a is b or statically_known_true(a == b) for a, b in zip(x.shape, size))
    lies = same and all(n == 1 or statically_known_true(a == b) for n, a, b in zip(size, x.stride(), stride))
    return x.clone() if lies else NotImplemented


def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """A product with all weights, whose columns are weighed by `y` and summed: torch multiplies and adds up three
    factors number by number."""
    outputs, left, right = weight.shape
    whole = x @ weight.permute(1, 0, 2).reshape(left, outputs * right)
    found = (whole.unflatten(-1, (outputs, right)) * y.unsqueeze(-2)).sum(-1)
    return found if bias is None else found + bias


def trilinear(
    x: Tensor,
    y: Tensor,
    z: Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Tensor:
    """Three factors, in which the dimensions of one that are named are new, summed over some: one product after
    another, where torch multiplies number by number. A bilinear layer's gradients are that."""
    dims = range(x.dim() + len(expand1))
    given = [[d for d in dims if d not in new] for new in (expand1, expand2, expand3)]
    return torch.einsum(x, given[0], y, given[1], z, given[2], [d for d in dims if d not in sumdim])


def addmv(x: Tensor, matrix: Tensor, vector: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    column = x.expand(matrix.shape[0]).unsqueeze(1)
    return torch.addmm(column, matrix, vector.unsqueeze(1), beta=beta, alpha=alpha).squeeze(1)


def addbmm(x: Tensor, left: Tensor, right: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """A sum of products is the product of the matrices side by side and those one below the other."""
    return torch.addmm(x, left.transpose(0, 1).flatten(1), right.flatten(0, 1), beta=beta, alpha=alpha)


def arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None, **_: Any) -> Any:
    """Of 16 bits by f32, rounded: torch-mlir rounds the end first, which may be another number of elements."""
    if dtype not in NARROW:
        return NotImplemented
    return torch.arange(start, end, step, dtype=torch.float32, device=device).to(dtype)


def frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    """Those of a Fourier transform's results: the second half of them is below zero."""
    places = torch.arange(n, device=device)
    return torch.where(places < (n + 1) // 2, places, places - n).to(dtype or torch.get_default_dtype()) * (1 / (n * d))


def half_of_frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
    return torch.arange(n // 2 + 1, device=device).to(dtype or torch.get_default_dtype()) * (1 / (n * d))


def empty(size: Sequence[int], *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    """Zeros: whatever is there will do. torch leaves such tensors where fused operators had results nobody uses."""
    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


_OWN: Table = {
    aten.empty.memory_format: empty,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten.layer_norm.default: layer_norm,
    aten.native_layer_norm.default: native_layer_norm,
    aten.native_group_norm.default: native_group_norm,
    aten.instance_norm.default: instance_norm,
    aten.rms_norm.default: rms_norm,
    aten.batch_norm.default: batch_norm,
    aten._native_batch_norm_legit_no_training.default: batch_norm_no_training,
    aten.gelu.default: gelu,
    aten.elu.default: elu,
    aten.mish.default: mish,
    aten.pow.Tensor_Scalar: power,
    aten.arange.start_step: arange,
    aten._linalg_check_errors.default: lambda *_, **__: None,  # no program checks its data so
    aten.fft_fftfreq.default: frequencies,
    aten.fft_rfftfreq.default: half_of_frequencies,
    torch.ops.prims.scalar_tensor.default: lambda x, **options: torch.full((), x, **options),
    torch.ops.prims.copy_strided.default: lambda x, _: x.clone(),  # how a copy lies in memory is not ours to keep
    aten.as_strided.default: as_strided,
    aten.permute_copy.default: lambda x, dims: x.permute(dims).clone(),
    aten.view_copy.default: lambda x, size: x.reshape(size).clone(),
    aten.narrow_copy.default: lambda x, dim, start, length: x.narrow(dim, start, length).clone(),
    aten._batch_norm_with_update_functional.default: decompositions._batch_norm_with_update_functional,
    aten.batch_norm_backward.default: decompositions.batch_norm_backward,
    aten.bilinear.default: bilinear,
    aten._trilinear.default: trilinear,
    aten.addmv.default: addmv,
    aten.addbmm.default: addbmm,
    aten.max_pool1d.default: max_pool(aten.max_pool1d.default, 1),
    aten.max_pool2d.default: max_pool(aten.max_pool2d.default, 2),
    aten.max_pool3d.default: max_pool(aten.max_pool3d.default, 3),
    aten.max_pool2d_with_indices.default: max_pool_with_indices(2),
    aten.max_pool3d_with_indices.default: max_pool_with_indices(3),
    aten._adaptive_avg_pool2d.default: adaptive_average_pool,
    aten._adaptive_avg_pool3d.default: adaptive_average_pool,
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
}

_ALONG = [
    getattr(aten, name).default for name in "_softmax _log_softmax amax amin argmax argmin flip logsumexp".split()
] + [aten.max.dim, aten.min.dim, aten.prod.dim_int]

_BY_SUBJECT = (
    ARITHMETIC, ATTENTION, ATTENTION_GRADIENTS, BIT_PATTERNS, CONVOLUTIONS, EINSUMS, EXTREMA, FUSED_LAYERS, GRADIENTS,
    GRID_SAMPLES, GROUPED_PRODUCTS, IMAGE_GRADIENTS, INDEXING, INTEGER_PRODUCTS, LINEAR_ALGEBRA, LOSSES, MEDIANS,
    NARROW_FLOATS, NORMS, OPEN_TRANSFORMS, PADDING, RECURRENT_CELLS, RECURRENT_LAYERS, SAMPLE_GRADIENTS, SCANS,
    SCATTERS, SIGNAL_WINDOWS, SORTS, SPECIAL_FUNCTIONS, SPECTROGRAMS, SUMS, SUMS_BY_INDEX, TENSOR_LISTS, UNFOLDING,
    UPSAMPLING,
)  # fmt: skip

_WHOLE = (aten.addmm, aten.baddbmm, aten._unsafe_index_put)  # operators torch-mlir's table should not have taken apart


def table() -> Table:
    """Operator overload -> decomposition, for `ExportedProgram.run_decompositions`."""
    return _own_table() | of_libraries() | of_torchs_compiler()


def _or_else(rule: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """What a rule makes of its arguments, or another one of those that are none of its."""

    @functools.wraps(rule)
    def either(*args: Any, **kwargs: Any) -> Any:
        found = rule(*args, **kwargs)
        return other(*args, **kwargs) if found is NotImplemented else found

    return either


@functools.cache
def _own_table() -> Table:
    base = mlir.importer("fx_decomp_util").get_decomposition_table()
    kept = {op: rule for op, rule in base.items() if getattr(op, "_overloadpacket", None) not in _WHOLE}
    found = functools.reduce(operator.or_, (*_BY_SUBJECT, _OWN), kept)
    found |= {op: _or_else(rule, kept[op]) for op, rule in NARROW_FLOATS.items() if op in kept}
    not_ours = lambda *_, **__: NotImplemented  # noqa: E731
    found |= {op: _or_else(rule, found.get(op, not_ours)) for op, rule in COMPLEX_RULES.items()}
    return found | {op: of_scalars(op, found.get(op, not_ours)) for op in _ALONG}
