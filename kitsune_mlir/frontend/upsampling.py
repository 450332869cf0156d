"""Images of another size.

Nearest neighbours of images whole times as large are each element repeated, where it lies, and no table of places.
Linear interpolation is, along one dimension after the other, the two elements around each result, weighed by its place
between them, where torch's rule reads four elements, or eight of a volume, whose numbers it computes in f32. Of open
sizes these are read by one operator of ours. Cubic
interpolation to whole times as many is each element and its neighbours, where torch's rule reads 16 by number. Of an
image that is made smaller against aliasing each result is a weighted mean of all elements near it, along one dimension
after the other: of few elements their sum, of many a product with a matrix.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from kitsune_mlir import mlir

from .own_operators import AROUND, BETWEEN
from .sampled_elements import REPEATED
from .shapes import are_known
from .working import working

aten = torch.ops.aten

MANY = 1 << 17  # results
_EXACT = 1e-9  # of a factor of sizes: what a fraction may be off
FRACTION = 20  # bits behind the point of how far apart nearest neighbours are
_LINEAR = (aten.upsample_linear1d.vec, aten.upsample_bilinear2d.vec, aten.upsample_trilinear3d.vec)


def repeated(rank: int) -> Callable[..., Any]:
    """A rule for images of `rank` dimensions behind batch and channels. Where elements are not repeated equally often,
    each is read by number. Of open sizes torch-mlir has a rule for that, but for volumes: theirs is torch's own."""
    operator = getattr(aten, f"upsample_nearest{rank}d").vec
    otherwise = torch._decomp.decomposition_table[operator] if rank == 3 else lambda *_: NotImplemented

    def rule(x: Tensor, output_size: Sequence[Any] | None, factors: Sequence[float] | None) -> Any:
        sizes, times = x.shape[-rank:], factors
        if output_size is not None and are_known((*sizes, *output_size)) and 0 not in sizes:
            times = [out / size for out, size in zip(output_size, sizes, strict=True)]
        if times is None or not all(map(_is_exact, times, sizes)):
            found = None if times is None else _places(sizes, output_size, factors)
            return otherwise(x, output_size, factors) if found is None else _taken(x, found)
        if all(factor == 1 for factor in times):
            return x.clone()  # for models write to it
        shape, last = list(x.shape), x.dim() - rank
        for dim in range(rank):
            x = x.unsqueeze(last + 2 * dim + 1)
        wide = [n for size, factor in zip(sizes, times, strict=True) for n in (size, int(factor))]
        whole = [size * int(factor) for size, factor in zip(sizes, times, strict=True)]
        return x.expand([*shape[:last], *wide]).reshape([*shape[:last], *whole])

    return rule


def _places(
    sizes: Sequence[Any], output_size: Sequence[Any] | None, factors: Sequence[float] | None
) -> list[tuple[int, int]] | None:
    """For each dimension how many results there are, and a factor: of result i that is element i * factor >> FRACTION,
    which is what torch finds in f32. None where it is no such, and where sizes are open."""
    found = []
    for number, size in enumerate(sizes):
        if not isinstance(size, int):
            return None
        out = int(size * factors[number]) if output_size is None and factors is not None else output_size[number]
        step = np.float32(1 / factors[number]) if factors and factors[number] else np.float32(size) / np.float32(out)
        results = np.arange(out)
        wanted = np.minimum((results.astype(np.float32) * step).astype(np.int64), size - 1)
        least = int(float(step) * (1 << FRACTION))
        fitting = [n for n in (least, least + 1) if (results * n >> FRACTION == wanted).all()]
        if not fitting:
            return None
        found.append((out, fitting[0]))
    return found


def _taken(x: Tensor, places: Sequence[tuple[int, int]]) -> Tensor:
    """The elements at these places. Their numbers are no f32: threads have them, and their addresses, sooner."""
    numbers = [(torch.arange(out, device=x.device) * factor) // (1 << FRACTION) for out, factor in places]
    own = [one.view(-1, *[1] * (len(places) - 1 - dim)) for dim, one in enumerate(numbers)]
    return aten._unsafe_index(x, [*[None] * (x.dim() - len(places)), *own])


def _is_exact(factor: float, size: Any) -> bool:
    """Whether torch, which divides by the factor in f32, repeats each element as often. Of an open size that is known
    for powers of two."""
    whole = int(factor)
    if whole != factor or whole < 1:
        return False
    if not isinstance(size, int):
        return whole & (whole - 1) == 0
    places = np.arange(size * whole)
    return bool((np.floor(places.astype(np.float32) * np.float32(1 / whole)) == places // whole).all())


def linear(operator: Any) -> Callable[..., Any]:
    """A rule for linear interpolation in all dimensions behind batch and channels."""

    def rule(
        x: Tensor, output_size: Sequence[Any] | None, align_corners: bool, factors: Sequence[float] | None
    ) -> Tensor:
        if not x.is_floating_point():
            return _general(operator)(x, output_size, align_corners, factors)
        ways = _ways(x.shape[2:], output_size, align_corners, factors)
        return _between(x, output_size, align_corners, factors) if ways is None else _weighed(x, ways)

    return rule


def _between(
    x: Tensor, output_size: Sequence[Any] | None, align_corners: bool, factors: Sequence[float] | None
) -> Tensor:
    """Linear interpolation in all dimensions at once, at places that are computed as torch does it: of open sizes."""
    places = []
    for number, size in enumerate(x.shape[2:]):
        times = None if output_size is not None or factors is None else Fraction(factors[number])
        out = output_size[number] if times is None else size * times.numerator // times.denominator
        results = torch.arange(out, device=x.device).to(working(x).dtype)
        if align_corners:
            places.append(results * ((size - 1) / torch.sym_max(out - 1, 1)))
        else:
            step = 1 / factors[number] if factors and factors[number] else size / out
            places.append(((results + 0.5) * step - 0.5).clamp(min=0))
    return BETWEEN(x, places)


def cubic(x: Tensor, output_size: Sequence[Any] | None, align_corners: bool, factors: Sequence[float] | None) -> Tensor:
    """Cubic interpolation, to whole times as many elements where they are many, or where sizes are open."""
    times = _whole_times(x.shape[2:], output_size, factors)
    if align_corners or times is None or not x.is_floating_point() or not _are_many(x, times):
        return _general(aten.upsample_bicubic2d.vec)(x, output_size, align_corners, factors)
    y = x
    for dim, factor in enumerate(times, 2):
        y = y if factor == 1 else _cubic_between(y, dim, factor)
    return y.to(x.dtype)


def _whole_times(
    sizes: Sequence[Any], output_size: Sequence[Any] | None, factors: Sequence[float] | None
) -> list[int] | None:
    """How many times as many results there are as elements along each dimension; None where these are no whole
    numbers, or an open size does not tell. A size that is computed of an open one is that times a number where it is
    whatever the open one is."""
    if any(isinstance(size, int) and size == 0 for size in sizes):
        return None
    if output_size is None or factors is not None:
        assert factors is not None
        found = [int(factor) for factor in factors]
        return found if found == [*factors] and min(found) >= 1 else None
    found = []
    for size, out in zip(sizes, output_size, strict=True):
        hints = [each if isinstance(each, int) else each.node.hint for each in (size, out)]
        if None in hints or not hints[0] or hints[1] < hints[0]:
            return None
        found.append(hints[1] // hints[0])
        if not statically_known_true(out == size * found[-1]):
            return None
    return found


def _are_many(x: Tensor, factors: Sequence[float]) -> bool:
    """Whether reading by number takes longer than two launches for each dimension."""
    return not are_known(x.shape) or x.numel() * math.prod(factors) >= MANY


@functools.cache
def _general(operator: Any) -> Callable[..., Any]:
    """The rule of torch-mlir's table."""
    return mlir.importer("fx_decomp_util").get_decomposition_table()[operator]


@dataclass(frozen=True)
class _Way:
    """Where `out` results lie along a dimension of `size` elements: result i at (i * `step` + `first`) / `whole`, or at
    0 where that is less. The element in front of it is i * `factor` + `offset` >> FRACTION."""

    size: int
    out: int
    step: int
    first: int
    whole: int

    @functools.cached_property
    def shifted(self) -> tuple[int, int] | None:
        """`factor` and `offset`; None where no such numbers are found."""
        results = np.arange(self.out)
        wanted = np.maximum(results * self.step + self.first, 0) // self.whole
        unit = 1 << FRACTION
        for factor, more in product((self.step * unit // self.whole, -(-self.step * unit // self.whole)), (0, 1, 2)):
            offset = self.first * unit // self.whole + more
            if (np.maximum(results * factor + offset >> FRACTION, 0) == wanted).all():
                return factor, offset
        return None


def _ways(
    sizes: Sequence[Any], output_size: Sequence[Any] | None, align_corners: bool, factors: Sequence[float] | None
) -> list[_Way] | None:
    """How each dimension is gone along; None where sizes are open, or a factor is no fraction of small numbers."""
    found = []
    if not are_known((*sizes, *(output_size or ()))) or 0 in sizes:
        return None
    for number, size in enumerate(sizes):
        factor = None if factors is None else Fraction(factors[number])
        out = output_size[number] if output_size is not None else int(size * factors[number])
        if align_corners:
            way = _Way(size, out, size - 1 if out > 1 else 0, 0, max(1, out - 1))
        else:
            times = Fraction(out, size) if factor is None else factor.limit_denominator(size * out)
            if factor is not None and abs(times - factor) > _EXACT * factor:
                return None
            over, under = times.denominator, times.numerator
            way = _Way(size, out, 2 * over, over - under, 2 * under)
        if way.shifted is None:
            return None
        found.append(way)
    return found


def _weighed(x: Tensor, ways: Sequence[_Way]) -> Tensor:
    """Along one dimension after the other, those that grow least first, the elements around each result, weighed by its
    place between them."""
    first, y = x.dim() - len(ways), x
    changed = [(number, way) for number, way in enumerate(ways) if way.out != way.size]
    for number, way in sorted(changed, key=lambda each: (each[1].out / each[1].size, -each[0])):
        results, (factor, offset) = torch.arange(way.out, device=x.device), way.shifted
        before = ((results * factor + offset) // (1 << FRACTION)).clamp(min=0)
        place = (results * way.step + way.first).clamp(min=0) - before * way.whole
        share = (place.to(working(y).dtype) * (1 / way.whole)).view(-1, *[1] * (len(ways) - 1 - number))
        after = (before + 1).clamp(max=way.size - 1)
        near, far = (working(y.index_select(first + number, at)) for at in (before, after))
        y = near * (1 - share) + far * share
    return y.to(x.dtype) if changed else x.clone()  # for models write to it


def _cubic_between(x: Tensor, dim: int, factor: int) -> Tensor:
    """The same by cubic polynomials through the two neighbours on either side; the ends stand for what is beyond."""
    size = x.shape[dim]
    if isinstance(size, int):
        ends = [x.narrow(dim, place, 1) for place in (0, size - 1)]
        around = torch.cat([ends[0], ends[0], x, ends[1], ends[1]], dim)
    else:
        around = AROUND(x, [0, 0] * (x.dim() - 1 - dim) + [2, 2], REPEATED)
    shifted = [working(around.narrow(dim, first, size)).unsqueeze(dim + 1) for first in range(5)]
    places = (torch.arange(factor, dtype=shifted[0].dtype, device=x.device) + 0.5) * (1 / factor) - 0.5
    is_before = (places < 0).view(factor, *[1] * (x.dim() - dim - 1))
    way = torch.where(places < 0, places + 1, places).view(is_before.shape)
    weights = [_cubic((way - place).abs(), -0.75) for place in range(-1, 3)]
    taken = [torch.where(is_before, one, next_) for one, next_ in zip(shifted, shifted[1:])]
    return functools.reduce(torch.add, [one * weight for one, weight in zip(taken, weights, strict=True)]).flatten(
        dim, dim + 1
    )


def antialiased(weight: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A rule for images whose elements have this weight by their distance from a result, in elements of the smaller
    image."""

    def rule(x: Tensor, output_size: Sequence[Any], align_corners: bool, *scales: float | None) -> Any:
        sizes = x.shape[-2:]
        if not are_known((*sizes, *output_size)) or not x.is_floating_point():
            return NotImplemented
        y, ways = working(x), [*enumerate(zip(sizes, output_size, scales or (None, None), strict=True), -2)]
        for dim, (size, out, scale) in sorted(ways, key=lambda way: way[1][1] / way[1][0]):  # what shrinks most first
            y = _means(y, dim, out, _step(size, out, align_corners, scale), weight)
        return y.to(x.dtype)

    return rule


def _step(size: int, out: int, align_corners: bool, scale: float | None) -> float:
    """How far apart results are in the image."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1 / scale if scale else size / out


def _means(x: Tensor, dim: int, out: int, step: float, weight: Callable[[Tensor], Tensor]) -> Tensor:
    """Along a dimension, so many results of the elements near each: sums of a few that are taken by number, or, of
    many, products with a matrix that is mostly zeros."""
    size, reach = x.shape[dim], max(step, 1.0)
    places, centres = (torch.arange(n, dtype=x.dtype, device=x.device) + 0.5 for n in (size, out))
    count = 2 * math.ceil(reach * _REACH[weight]) + 1
    if count > _NEAR or count >= size:
        found = weight((places - centres[:, None] * step).abs() / reach)
        means = found / found.sum(1, keepdim=True)
        return means @ x if dim == -2 else x @ means.T
    first = (centres * step - count / 2).ceil().to(torch.int32)
    numbers = [first + n for n in range(count)]
    found = [weight((number + 0.5 - centres * step).abs() / reach) for number in numbers]
    found = [torch.where((number >= 0) & (number < size), one, 0.0) for number, one in zip(numbers, found)]
    total = functools.reduce(torch.add, found)
    behind = [1] * (-1 - dim)
    parts = [
        x.index_select(dim, number.clamp(0, size - 1)) * (one / total).view(-1, *behind)
        for number, one in zip(numbers, found)
    ]
    return functools.reduce(torch.add, parts)


def _linear(distance: Tensor) -> Tensor:
    return (1 - distance).clamp(min=0)


def _cubic(distance: Tensor, a: float = -0.5) -> Tensor:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))


_REACH = {_linear: 1.0, _cubic: 2.0}  # beyond which elements have no weight
_NEAR = 16  # elements of a mean that are added one by one


UPSAMPLING = {
    **{getattr(aten, f"upsample_nearest{rank}d").vec: repeated(rank) for rank in (1, 2, 3)},
    **{operator: linear(operator) for operator in _LINEAR},
    aten.upsample_bicubic2d.vec: cubic,
    aten._upsample_bilinear2d_aa.default: antialiased(_linear),
    aten._upsample_bicubic2d_aa.default: antialiased(_cubic),
}
