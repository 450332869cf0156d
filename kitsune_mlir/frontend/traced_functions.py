"""Functions of torch that its own trace does not get through, in others: what looks at numbers of tensors before it
computes with them (`OF_DATA`), and what asks for sizes as numbers, or computes otherwise for some, so that a trace
takes those of the example for open ones (`OF_OPEN_SIZES`). A rule gives NotImplemented for what it does not know."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .medians import quantile
from .shapes import line_along
from .spectrograms import signal_of_windows

_MODES = {
    None: None,
    "use_mm_for_euclid_dist_if_necessary": None,
    "use_mm_for_euclid_dist": 1,
    "donot_use_mm_for_euclid_dist": 2,
}
_REDUCTIONS = {"none": lambda loss: loss, "mean": torch.mean, "sum": torch.sum}


def _distances(x: Tensor, y: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    x, y = x.expand(*batch, *x.shape[-2:]), y.expand(*batch, *y.shape[-2:])
    return torch.ops.aten._cdist_forward(x, y, p, _MODES[compute_mode])


def _gradient(
    x: Tensor, *, spacing: float | None = None, dim: int | Sequence[int] | None = None, edge_order: int = 1
) -> Any:
    if edge_order != 1 or not (spacing is None or isinstance(spacing, int | float)):
        return NotImplemented
    step = 1.0 if spacing is None else spacing

    def along(d: int) -> Tensor:
        places, last = torch.arange(x.shape[d], device=x.device), x.shape[d] - 1
        ahead, behind = (places + 1).clamp(max=last), (places - 1).clamp(min=0)
        width = ((ahead - behind) * step).to(x.dtype).view([-1 if d % x.dim() == k else 1 for k in range(x.dim())])
        return (x.index_select(d, ahead) - x.index_select(d, behind)) / width

    dims = range(x.dim()) if dim is None else [dim] if isinstance(dim, int) else dim
    return [along(d) for d in dims]


def _take_along(x: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    if dim is None:
        return x.flatten().gather(0, indices.flatten())
    dim %= x.dim()
    beside = torch.broadcast_shapes(*([*t.shape[:dim], 1, *t.shape[dim + 1 :]] for t in (x, indices)))
    x, indices = (t.expand(*beside[:dim], t.shape[dim], *beside[dim + 1 :]) for t in (x, indices))
    return x.gather(dim, indices)


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """Within torch.func, where torch's own takes the rows of an input of several dimensions for the example's."""
    if bias is None or _unwrapped(x).dim() < 3 or not _is_transformed():
        return NotImplemented
    return x @ weight.T + bias


def _layer_norm(x: Tensor, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Within torch.func, as `_linear`."""
    if not _is_transformed():
        return NotImplemented
    dims = list(range(-len(shape), 0))
    apart = x - x.mean(dims, keepdim=True)
    found = apart * torch.rsqrt(apart.square().mean(dims, keepdim=True) + eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _gelu(x: Tensor, approximate: str = "none") -> Any:
    if not _is_transformed():
        return NotImplemented
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))  # sqrt(2 / pi)
    return 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))  # 1 / sqrt(2)


def _mish(x: Tensor, inplace: bool = False) -> Any:
    return x * torch.tanh(torch.nn.functional.softplus(x)) if _is_transformed() and not inplace else NotImplemented


def _is_transformed() -> bool:
    return bool(torch._C._functorch.get_dynamic_layer_stack_depth())


def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Places of images, or volumes, that lie along lines between -1 and 1, whose ends are corners' middles or not."""
    space = size[2:]

    def along(d: int) -> Tensor:
        count, number = space[d], torch.arange(space[d], dtype=theta.dtype, device=theta.device)
        line = (2 * number - (count - 1)) / (torch.sym_max(count - 1, 1) if align_corners else count)
        return line.view(line_along(d, len(space)))

    lines = [along(d) for d in reversed(range(len(space)))]  # x is the last dimension
    factors = theta.view(*theta.shape, *[1] * len(space))
    rows = [factors[:, i].unbind(1) for i in range(len(space))]
    found = [sum((a * x for a, x in zip(row, lines)), start=row[-1]) for row in rows]
    return torch.stack([each.expand(size[0], *space) for each in found], -1)


def _kron(x: Tensor, y: Tensor) -> Tensor:
    rank = max(x.dim(), y.dim())
    x, y = (t.view(*[1] * (rank - t.dim()), *t.shape) for t in (x, y))
    sizes = [n * m for n, m in zip(x.shape, y.shape)]
    for d in range(rank):
        x, y = x.unsqueeze(2 * d + 1), y.unsqueeze(2 * d)
    return (x * y).reshape(sizes)


def _powers(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 (torch's name)
    count = x.shape[0] if N is None else N
    exponents = torch.arange(count, device=x.device)
    return x.unsqueeze(1) ** (exponents if increasing else count - 1 - exponents)


def _chain(tensors: Sequence[Tensor]) -> Tensor:
    return functools.reduce(torch.matmul, tensors)


def _covariance(x: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> Any:
    if fweights is not None or aweights is not None or x.is_complex():
        return NotImplemented
    y = x.reshape(1, -1) if x.dim() < 2 else x
    y = y - y.mean(1, keepdim=True)
    found = y @ y.T / (y.shape[1] - correction)
    return found.view(()) if x.dim() < 2 else found


def _correlation(x: Tensor) -> Any:
    covariance = _covariance(x)
    if covariance is NotImplemented or x.dim() < 2:
        return NotImplemented if covariance is NotImplemented else covariance / covariance
    scale = covariance.diagonal().sqrt()
    return (covariance / scale.unsqueeze(1) / scale).clamp(-1, 1)


def _counts(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Any:
    """Of so many bins as are asked for: a number that has none is out of range, where torch makes more of them."""
    if isinstance(minlength, int) and minlength <= 0:
        return NotImplemented
    if weights is None:
        weights = torch.ones(x.shape, dtype=torch.int64, device=x.device)
    elif weights.dtype != torch.float32:
        weights = weights.double()
    return torch.zeros(minlength, dtype=weights.dtype, device=x.device).index_add(0, x.long(), weights)


def _quantised(x: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int, quant_max: int) -> Tensor:
    """As 8-bit numbers are trained: rounded to steps of a scale, between the least and the largest of these."""
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    steps = torch.round(wide * (1.0 / scale) + zero_point)
    return ((steps.clamp(quant_min, quant_max) - zero_point) * scale).to(x.dtype)


def _quantised_along(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int, quant_max: int) -> Tensor:
    """The same with a scale for each channel."""
    shape = line_along(axis, x.dim())
    return _quantised(x, scale.view(shape), zero_point.view(shape), quant_min, quant_max)


def _combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    """What torch has of a vector of known size, by the numbers of its elements."""
    if x.dim() != 1 or not isinstance(x.shape[0], int) or r < 1:
        return NotImplemented
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    numbers = list(choose(range(x.shape[0]), r))
    return x[torch.tensor(numbers, device=x.device)] if numbers else x.new_empty(0, r)


def _gaussian_loss(
    input: Tensor,  # noqa: A002 (torch's name)
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Any:
    """Without a look for variances below 0, for which torch raises an error."""
    if not isinstance(var, Tensor) or reduction not in _REDUCTIONS:
        return NotImplemented
    if var.dim() == input.dim() - 1 and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    var = var.clamp(min=eps)
    loss = 0.5 * (var.log() + (input - target).square() / var)
    return _REDUCTIONS[reduction](loss + 0.9189385332046727 if full else loss)  # log(2 pi) / 2


def _soft_cross_entropy(
    input: Tensor,  # noqa: A002 (torch's name)
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Of shares of the classes; for torch's own the mean is over the example's rows."""
    shares = target.is_floating_point() and size_average is None and reduce is None
    if not shares or input.dim() < 2 or target.shape != input.shape or reduction not in _REDUCTIONS:
        return NotImplemented
    count = input.shape[1]
    if label_smoothing:
        target = target * (1 - label_smoothing) + label_smoothing / count
    loss = -torch.nn.functional.log_softmax(input, 1) * target
    if weight is not None:
        loss = loss * weight.view(1, -1, *[1] * (input.dim() - 2))
    return _REDUCTIONS[reduction](loss.sum(1))


def _quantile(x: Tensor, q: float | Tensor, dim: int | None = None, keepdim: bool = False, **options: Any) -> Any:
    """Without a look whether the shares are between 0 and 1, if they are in a tensor."""
    if not isinstance(q, Tensor) and not 0 <= q <= 1 or options.pop("out", None) is not None:
        return NotImplemented
    return quantile(x, q, dim, keepdim, **options)


def _norm_of_all(x: Tensor, p: Any = 2.0, dim: Any = None, keepdim: bool = False, **options: Any) -> Any:
    """Of all dimensions, which are named, for torch asks otherwise whether there is but one element."""
    order = 2.0 if p in (None, "fro") else p
    if dim is not None or isinstance(order, str) or options.pop("out", None) is not None:
        return NotImplemented
    return torch.linalg.vector_norm(x, order, tuple(range(x.dim())), keepdim, **options)


def _norm_of_elements(x: Tensor, ord: Any = None, *args: Any, **options: Any) -> Any:  # noqa: A002 (torch's name)
    """As torch.linalg says it, for which a matrix has other norms than a vector of its elements."""
    return _norm_of_all(x, ord, *args, **options) if ord is None or x.dim() < 2 else NotImplemented


def _vector_norm(x: Tensor, ord: Any = 2.0, *args: Any, **options: Any) -> Any:  # noqa: A002 (torch's name)
    return _norm_of_all(x, ord, *args, **options)


def _max_pool1d(
    x: Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """As images of one line have it; torch's own asks for sizes as numbers where there are no gradients."""
    if return_indices:
        return NotImplemented
    forms = zip((kernel_size, stride or kernel_size, padding, dilation), (1, 1, 0, 1))
    image = [[line, *(each if isinstance(each, tuple | list) else [each])] for each, line in forms]
    return torch.nn.functional.max_pool2d(x.unsqueeze(-2), *image, ceil_mode=ceil_mode).squeeze(-2)


def _unpooled(
    x: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None
) -> Any:
    """Of a size that is given, without a look whether it could be that of what was pooled."""
    if output_size is None:
        return NotImplemented
    return torch._C._nn.max_unpool2d(x, indices, list(output_size)[-2:])


def _frequencies(n: Any, d: float = 1.0, **options: Any) -> Tensor:
    """Those of the results of a transform of n numbers, the negative ones behind the others."""
    places = torch.arange(n, **options)
    return torch.where(2 * places < n, places, places - n) / (n * d)


def _first_frequencies(n: Any, d: float = 1.0, **options: Any) -> Tensor:
    return torch.arange(n // 2 + 1, **options) / (n * d)


OF_DATA: dict[Any, Callable[..., Any]] = {
    torch.cov: _covariance,
    torch.Tensor.cov: _covariance,
    torch.corrcoef: _correlation,
    torch.Tensor.corrcoef: _correlation,
    torch.fake_quantize_per_tensor_affine: _quantised,
    torch.fake_quantize_per_channel_affine: _quantised_along,
    torch.istft: signal_of_windows,
    torch.Tensor.istft: signal_of_windows,
    torch.combinations: _combinations,
    torch.bincount: _counts,
    torch.Tensor.bincount: _counts,
    torch.nn.functional.gaussian_nll_loss: _gaussian_loss,
    torch.quantile: _quantile,
    torch.Tensor.quantile: _quantile,
    torch.nanquantile: functools.partial(_quantile, skip_nan=True),
    torch.Tensor.nanquantile: functools.partial(_quantile, skip_nan=True),
}
OF_OPEN_SIZES: dict[Any, Callable[..., Any]] = {
    torch.cdist: _distances,
    torch.gradient: _gradient,
    torch.take_along_dim: _take_along,
    torch.Tensor.take_along_dim: _take_along,
    torch.nn.functional.affine_grid: _affine_grid,
    torch.nn.functional.cross_entropy: _soft_cross_entropy,
    torch.nn.functional.linear: _linear,
    torch.nn.functional.layer_norm: _layer_norm,
    torch.nn.functional.gelu: _gelu,
    torch.nn.functional.mish: _mish,
    torch.max_pool1d: _max_pool1d,
    torch.nn.functional.max_pool1d: _max_pool1d,
    torch.nn.functional.max_unpool2d: _unpooled,
    torch.norm: _norm_of_all,
    torch.Tensor.norm: _norm_of_all,
    torch.linalg.norm: _norm_of_elements,
    torch.linalg.vector_norm: _vector_norm,
    torch.dist: lambda x, y, p=2.0: _norm_of_all(x - y, p),
    torch.Tensor.dist: lambda x, y, p=2.0: _norm_of_all(x - y, p),
    torch.fft.fftfreq: _frequencies,
    torch.fft.rfftfreq: _first_frequencies,
    torch.kron: _kron,
    torch.Tensor.kron: _kron,
    torch.vander: _powers,
    torch.linalg.vander: lambda x, *, N=None: _powers(x, N, increasing=True) if x.dim() == 1 else NotImplemented,
    torch.linalg.multi_dot: _chain,
    torch.chain_matmul: lambda *tensors: _chain(tensors),
}


def in_others(function: Any, args: Any, kwargs: Any) -> Any:
    """What a call of a function gives that a trace does not get through; NotImplemented for others."""
    rule = OF_DATA.get(function)
    if rule is None and (rule := OF_OPEN_SIZES.get(function)) is not None and not _has_open_sizes(args):
        return NotImplemented
    return NotImplemented if rule is None else rule(*args, **kwargs)


def _has_open_sizes(args: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves(args)
    sizes = [size for leaf in leaves for size in (_unwrapped(leaf).shape if isinstance(leaf, Tensor) else [leaf])]
    return any(isinstance(size, torch.SymInt) for size in sizes)


def _unwrapped(x: Tensor) -> Tensor:
    """With the dimensions that torch.func maps a function over, too."""
    while torch._C._functorch.is_functorch_wrapped_tensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return x
