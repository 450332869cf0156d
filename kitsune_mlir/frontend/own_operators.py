"""Operators of ours in torch's graphs: what they give, without data. They become operations of the kitsune dialect
(lifted_operators.py)."""

from __future__ import annotations

import torch
from torch import Tensor

_library = torch.library.Library("kitsune", "FRAGMENT")
_ARGUMENTS = "Tensor re, Tensor? im, int dim, int size, int kept, bool inverse, float scale"
_library.define(f"fourier({_ARGUMENTS}) -> (Tensor, Tensor)")
_library.define(f"fourier_to_real({_ARGUMENTS}) -> Tensor")
_library.define("firsts(Tensor keys, int count, bool descending) -> (Tensor, Tensor)")
_library.define("order(Tensor keys, Tensor? counted, int count) -> Tensor")
_library.define("bits(Tensor x, ScalarType kind) -> Tensor")
_library.define("extrema(Tensor x, int dim, bool largest) -> Tensor")
_library.define("cholesky(Tensor matrix) -> Tensor")
_library.define("substitute(Tensor right, Tensor matrix, bool upper, bool transposed, bool unit) -> Tensor")
_library.define("solve(Tensor right, Tensor matrix) -> Tensor")
_library.define("pivots(Tensor matrix) -> Tensor")
_STEPS = "Tensor given, Tensor weights, Tensor bias, Tensor state"
_library.define(f"steps({_STEPS}, str cell, int time) -> (Tensor, Tensor)")
_library.define(f"lstm_steps({_STEPS}, Tensor cell, int time) -> (Tensor, Tensor, Tensor)")
_library.define("unfactored(Tensor matrix) -> Tensor")
_library.define("sample(Tensor x, Tensor grid, bool linear, int padding, bool corners, bool last) -> Tensor")
_library.define("between(Tensor x, Tensor[] places) -> Tensor")
_library.define("windows(Tensor x, int[] kernel, int[] dilation, int[] stride, bool last) -> Tensor")
_library.define(
    "filter_gradient(Tensor image, Tensor gradient, int[] kernel, int[] stride, int[] dilation, int[] padding,"
    " int groups) -> Tensor"
)
_library.define("around(Tensor x, int[] padding, int way) -> Tensor")
_library.define("rolled(Tensor x, SymInt[] shifts, int[] dims) -> Tensor")


def _result(re: Tensor, dim: int, kept: int) -> Tensor:
    shape = list(re.shape)
    shape[dim] = kept
    return re.new_empty(shape)


@torch.library.register_fake("kitsune::fourier", lib=_library)
def _both(
    re: Tensor, im: Tensor | None, dim: int, size: int, kept: int, inverse: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return _result(re, dim, kept), _result(re, dim, kept)


@torch.library.register_fake("kitsune::fourier_to_real", lib=_library)
def _real(re: Tensor, im: Tensor | None, dim: int, size: int, kept: int, inverse: bool, scale: float) -> Tensor:
    return _result(re, dim, kept)


@torch.library.register_fake("kitsune::firsts", lib=_library)
def _firsts(keys: Tensor, count: int, descending: bool) -> tuple[Tensor, Tensor]:
    values = _result(keys, -1, count)
    return values, values.to(torch.int64)


@torch.library.register_fake("kitsune::order", lib=_library)
def _order(keys: Tensor, counted: Tensor | None, count: int) -> Tensor:
    return keys.to(torch.int32)


@torch.library.register_fake("kitsune::sample", lib=_library)
def _sample(x: Tensor, grid: Tensor, linear: bool, padding: int, corners: bool, last: bool) -> Tensor:
    batch, *places, _ = grid.shape
    return x.new_empty([batch, *places, x.shape[-1]] if last else [batch, x.shape[1], *places])


@torch.library.register_fake("kitsune::between", lib=_library)
def _between(x: Tensor, places: list[Tensor]) -> Tensor:
    return x.new_empty([*x.shape[: x.dim() - len(places)], *(one.shape[0] for one in places)])


@torch.library.register_fake("kitsune::windows", lib=_library)
def _windows(x: Tensor, kernel: list[int], dilation: list[int], stride: list[int], last: bool) -> Tensor:
    n, *sizes, c = x.shape if last else (x.shape[0], *x.shape[2:], x.shape[1])
    forms = zip(sizes, kernel, dilation, stride, strict=True)
    counts = [(size - d * (k - 1) - 1) // s + 1 for size, k, d, s in forms]
    return x.new_empty([n, *counts, *kernel, c] if last else [n, c, *kernel, *counts])


@torch.library.register_fake("kitsune::filter_gradient", lib=_library)
def _filter_gradient(
    image: Tensor,
    gradient: Tensor,
    kernel: list[int],
    stride: list[int],
    dilation: list[int],
    padding: list[int],
    groups: int,
) -> Tensor:
    kind = torch.float64 if image.dtype == torch.float64 else torch.float32
    return image.new_empty([*kernel, gradient.shape[-1] * image.shape[-1] // groups], dtype=kind)


@torch.library.register_fake("kitsune::rolled", lib=_library)
def _rolled(x: Tensor, shifts: list[int | torch.SymInt], dims: list[int]) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("kitsune::around", lib=_library)
def _around(x: Tensor, padding: list[int], way: int) -> Tensor:
    shape = list(x.shape)
    for d, pair in enumerate(zip(padding[::2], padding[1::2], strict=True)):
        shape[-1 - d] += sum(pair)
    return x.new_empty(shape)


@torch.library.register_fake("kitsune::bits", lib=_library)
def _bits(x: Tensor, kind: torch.dtype) -> Tensor:
    return x.new_empty(x.shape, dtype=kind)


@torch.library.register_fake("kitsune::extrema", lib=_library)
def _extrema(x: Tensor, dim: int, largest: bool) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.register_fake("kitsune::cholesky", lib=_library)
def _cholesky(matrix: Tensor) -> Tensor:
    return matrix.new_empty(matrix.shape)


@torch.library.register_fake("kitsune::substitute", lib=_library)
def _substitute(right: Tensor, matrix: Tensor, upper: bool, transposed: bool, unit: bool) -> Tensor:
    return right.new_empty(right.shape)


@torch.library.register_fake("kitsune::solve", lib=_library)
def _solve(right: Tensor, matrix: Tensor) -> Tensor:
    return right.new_empty(right.shape)


@torch.library.register_fake("kitsune::pivots", lib=_library)
def _pivots(matrix: Tensor) -> Tensor:
    return matrix.new_empty(matrix.shape[:-1])


@torch.library.register_fake("kitsune::steps", lib=_library)
def _steps(given: Tensor, weights: Tensor, bias: Tensor, state: Tensor, cell: str, time: int) -> tuple[Tensor, Tensor]:
    return _of_steps(given, state), state.new_empty(state.shape)


@torch.library.register_fake("kitsune::lstm_steps", lib=_library)
def _lstm_steps(
    given: Tensor, weights: Tensor, bias: Tensor, state: Tensor, cell: Tensor, time: int
) -> tuple[Tensor, Tensor, Tensor]:
    return _of_steps(given, state), state.new_empty(state.shape), cell.new_empty(cell.shape)


def _of_steps(given: Tensor, state: Tensor) -> Tensor:
    return given.new_empty([*given.shape[:2], state.shape[0] * state.shape[2]])


@torch.library.register_fake("kitsune::unfactored", lib=_library)
def _unfactored(matrix: Tensor) -> Tensor:
    return matrix.new_empty(matrix.shape[:-1], dtype=torch.int32)


FOURIER = torch.ops.kitsune.fourier.default  # X of x: see kitsune.fourier; scaled
FOURIER_TO_REAL = torch.ops.kitsune.fourier_to_real.default  # the same of the first half of the numbers
FIRSTS = torch.ops.kitsune.firsts.default  # see kitsune.firsts
ORDER = torch.ops.kitsune.order.default  # rows of kitsune.order; keys are less than count, or than counted's first size
SAMPLE = torch.ops.kitsune.sample.default  # elements of images at places, see sampled_elements.Sample
BETWEEN = torch.ops.kitsune.between.default  # images at places of each dimension, see sampled_elements.between
WINDOWS = torch.ops.kitsune.windows.default  # of images, see sampled_elements.windows
AROUND = torch.ops.kitsune.around.default  # more of an image beside it, see sampled_elements.around
FILTER_GRADIENT = torch.ops.kitsune.filter_gradient.default  # see kitsune.filter_gradient
ROLLED = torch.ops.kitsune.rolled.default  # along dimensions, see sampled_elements.rolled
BITS = torch.ops.kitsune.bits.default  # the bits of numbers, as numbers of another type of as many
EXTREMA = torch.ops.kitsune.extrema.default  # the largest, or least, so far along a dimension
CHOLESKY = torch.ops.kitsune.cholesky.default  # see kitsune.cholesky, and so on
SUBSTITUTE = torch.ops.kitsune.substitute.default
SOLVE = torch.ops.kitsune.solve.default
PIVOTS = torch.ops.kitsune.pivots.default
STEPS = torch.ops.kitsune.steps.default  # see kitsune.recurrent
LSTM_STEPS = torch.ops.kitsune.lstm_steps.default
UNFACTORED = torch.ops.kitsune.unfactored.default  # what stands for pivots of a matrix that stands for its own factors
