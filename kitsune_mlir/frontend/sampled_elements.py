"""An image or a volume read at places that a tensor has, as a linalg.generic: the body of a `kitsune.sample` of torch's
graphs (own_operators.py). An element's place, the corners around it and their weights are computed where it is:

    %y = linalg.generic ins(%grid by (n, h, w, 0), %grid by (n, h, w, 1)) outs(%empty by (n, c, h, w)) {
      ...                                                       // where the place is, in elements
      %a = tensor.extract %x[%n, %c, %row, %column]             // a corner, 0.0 where it is outside
      ...                                                       // the others, each by its weight
    }
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from kitsune_mlir.generics import empty_generic, extended, generic
from kitsune_mlir.mlir import arith, ir, linalg, math, tensor

_ZEROS, _BORDER = 0, 1
REFLECTED, REPEATED, CIRCULAR = range(3)  # what is around an image


@dataclass(frozen=True)
class Sample:
    """How places are read: between elements or the nearest one (`is_linear`); what is beyond the ends, by torch's
    number; whether -1 and 1 are the centres of the first and the last element (`corners`) or their outer sides; whether
    channels are the last dimension."""

    is_linear: bool
    padding: int
    corners: bool
    is_last: bool

    def build(self, x: ir.Value, grid: ir.Value, result: ir.RankedTensorType) -> ir.Value:
        """The operator at the insertion point: x [n, c, *sizes] or [n, *sizes, c], of floats, and grid [n, *places, d],
        of f32 or f64, with the last of d sizes first."""
        rank, kind = result.rank, ir.RankedTensorType(grid.type)
        dims, channel = kind.shape[-1], rank - 1 if self.is_last else 1
        own = [d for d in range(rank) if d != channel]  # the loops of a grid
        sources = [(x, dims + 1 if self.is_last else 1) if d == channel else (grid, own.index(d)) for d in range(rank)]
        loops = [ir.AffineDimExpr.get(d) for d in range(rank)]
        at = [[*(loops[d] for d in own), ir.AffineConstantExpr.get(n)] for n in range(dims)]
        made = _operator(result, sources, [grid] * dims, at)
        block = made.regions[0].blocks[0]
        first = 1 if self.is_last else 2
        lengths = [
            tensor.dim(x, _index(first + d)) if _is_open(x, first + d) else x.type.shape[first + d] for d in range(dims)
        ]
        with ir.InsertionPoint(block):
            axes = [_Axis(self, length, block.arguments[dims - 1 - d]) for d, length in enumerate(lengths)]
            batch, number = linalg.IndexOp(0).result, linalg.IndexOp(channel).result
            linalg.YieldOp([_mean(x, axes, partial(self._at, batch, number))])
        return made.results[0]

    def _at(self, batch: ir.Value, channel: ir.Value, places: Sequence[ir.Value]) -> list[ir.Value]:
        """The indices of an element of the image."""
        return [batch, *places, channel] if self.is_last else [batch, channel, *places]


@dataclass(frozen=True)
class _Corner:
    """An element along a dimension, or one beside the end where there is none; whether there is; its weight, None where
    it is the only one."""

    index: ir.Value
    inside: ir.Value
    weight: ir.Value | None


class _Axis:
    """What is read of a dimension of so many elements, for a place from -1 to 1."""

    def __init__(self, sample: Sample, size: int | ir.Value, place: ir.Value):
        self._kind = place.type
        self._size = self._number(size) if isinstance(size, int) else self._float(size)
        self._last = self._number(size - 1) if isinstance(size, int) else arith.subf(self._size, self._number(1))
        at = (
            self._padded(self._element(place, sample.corners), sample)
            if size != 1 or not sample.padding
            else (self._number(0))
        )
        if sample.is_linear:
            low = math.floor(at)
            part = arith.subf(at, low)
            high = arith.addf(low, self._number(1))
            self.corners = [
                self._corner(low, arith.subf(self._number(1), part)),
                self._corner(high, part),
            ]
        else:
            self.corners = [self._corner(math.roundeven(at), None)]

    def _element(self, place: ir.Value, corners: bool) -> ir.Value:
        """Where a place is, in elements."""
        place = arith.addf(place, self._number(1))
        if corners:
            return arith.mulf(place, arith.mulf(self._last, self._number(0.5)))
        return arith.mulf(arith.subf(arith.mulf(place, self._size), self._number(1)), self._number(0.5))

    def _padded(self, at: ir.Value, sample: Sample) -> ir.Value:
        """Inside of the dimension, where the padding says so."""
        if sample.padding == _ZEROS:
            return at
        if sample.padding != _BORDER:
            first, span = (self._number(0), self._last) if sample.corners else (self._number(-0.5), self._size)
            turned = math.absf(arith.subf(at, first))
            turns = math.floor(arith.divf(turned, span))
            over = arith.subf(turned, arith.mulf(turns, span))
            half = arith.mulf(turns, self._number(0.5))
            is_even = arith.cmpf(arith.CmpFPredicate.OEQ, half, math.floor(half))
            at = arith.addf(arith.select(is_even, over, arith.subf(span, over)), first)
        return self._clamped(at)

    def _corner(self, at: ir.Value, weight: ir.Value | None) -> _Corner:
        inside = arith.andi(
            arith.cmpf(arith.CmpFPredicate.OGE, at, self._number(0)),
            arith.cmpf(arith.CmpFPredicate.OLE, at, self._last),
        )
        number = ir.IntegerType.get_signless(32)
        whole = arith.maxsi(arith.fptosi(number, self._clamped(at)), arith.constant(number, 0))  # of NaN, too
        return _Corner(arith.index_cast(ir.IndexType.get(), whole), inside, weight)

    def _clamped(self, at: ir.Value) -> ir.Value:
        """The nearest that there is."""
        return arith.minimumf(arith.maximumf(at, self._number(0)), self._last)

    def _number(self, value: float) -> ir.Value:
        return arith.constant(self._kind, float(value))

    def _float(self, size: ir.Value) -> ir.Value:
        return arith.sitofp(self._kind, arith.index_cast(ir.IntegerType.get_signless(32), size))


def _mean(x: ir.Value, axes: Sequence[_Axis], at: Callable[[Sequence[ir.Value]], Sequence[ir.Value]]) -> ir.Value:
    """The sum of the corners, each by its weight; what is outside has no part in it, even beside infinite numbers."""
    element, total = ir.RankedTensorType(x.type).element_type, None
    fma = ir.Attribute.parse("#arith.fastmath<contract>")
    for corners in itertools.product(*(axis.corners for axis in axes)):
        found = tensor.extract(x, list(at([corner.index for corner in corners])))
        inside = reduce(arith.andi, (corner.inside for corner in corners))
        found = arith.select(inside, found, arith.constant(element, 0.0))
        weights = [corner.weight for corner in corners if corner.weight is not None]
        if not weights:
            return found
        wide = weights[0].type
        found = arith.extf(wide, found) if wide != element else found
        found = arith.mulf(found, reduce(arith.mulf, weights), fastmath=fma)
        total = found if total is None else arith.addf(total, found, fastmath=fma)
    return arith.truncf(element, total) if total.type != element else total


def between(x: ir.Value, places: Sequence[ir.Value], result: ir.RankedTensorType) -> ir.Value:
    """An image [n, c, *sizes] of another size, at the insertion point: of each of its last dimensions the places of the
    results, in elements and not less than 0."""
    rank, first = result.rank, result.rank - len(places)
    kind = ir.RankedTensorType(places[0].type).element_type
    loops = [ir.AffineDimExpr.get(d) for d in range(rank)]
    sources = [(x, d) for d in range(first)] + [(place, 0) for place in places]
    lengths = [tensor.dim(x, _index(d)) for d in range(first, rank)]  # a constant, where it is known
    made = _operator(result, sources, list(places), [[loops[d]] for d in range(first, rank)])
    with ir.InsertionPoint(made.regions[0].blocks[0]):
        corners = [_corners(place, length) for place, length in zip(made.regions[0].blocks[0].arguments, lengths)]
        own = [linalg.IndexOp(d).result for d in range(first)]
        found = _blended(x, corners, own, kind)
        linalg.YieldOp([found if kind == result.element_type else arith.truncf(result.element_type, found)])
    return made.results[0]


def windows(
    x: ir.Value,
    kernel: Sequence[int],
    dilation: Sequence[int],
    stride: Sequence[int],
    is_last: bool,
    result: ir.RankedTensorType,
) -> ir.Value:
    """The elements of all windows of an image at the insertion point: [n, c, *sizes] -> [n, c, *kernel, *windows], or,
    where channels are last, [n, *sizes, c] -> [n, *windows, *kernel, c]."""
    dims, rank = len(kernel), result.rank
    loops, kind = [ir.AffineDimExpr.get(d) for d in range(rank)], ir.RankedTensorType(x.type)
    places, elements = (1, 1 + dims) if is_last else (2 + dims, 2)  # the first loops of windows, and of their elements
    first, channel = (1, 1 + dims) if is_last else (2, 1)  # dimensions of the image
    sizes: list[int | ir.Value] = list(result.shape)
    for d in range(rank):
        if result.is_dynamic_dim(d):
            axis = d - places if places <= d < places + dims else None
            whole = 0 if d == 0 else channel
            sizes[d] = tensor.dim(x, _index(whole if axis is None else first + axis))
            if axis is not None:
                less = dilation[axis] * (kernel[axis] - 1) + 1
                steps = arith.divui(arith.subi(sizes[d], _index(less)), _index(stride[axis]))
                sizes[d] = arith.addi(steps, _index(1))
    seen = [loops[elements + d] * dilation[d] + loops[places + d] * stride[d] for d in range(dims)]
    read = [loops[0], *seen, loops[rank - 1]] if is_last else [*loops[:2], *seen]
    maps = [ir.AffineMap.get(rank, 0, read), ir.AffineMap.get_identity(rank)]
    start = tensor.empty(sizes, kind.element_type)
    return generic([x], [start], maps, ["parallel"] * rank, lambda element, _: element).results[0]


def rolled(x: ir.Value, shifts: Mapping[int, int | ir.Value], result: ir.RankedTensorType) -> ir.Value:
    """A tensor at the insertion point whose elements move up by so many places (i64, where it is not known) along each
    of these dimensions, and from the end to the start. Each is read where it lies: its place takes a comparison, the
    remainder of the shift and the size is that of all."""
    made = _operator(result, [(x, d) for d in range(result.rank)], [], [])
    lengths = {d: tensor.dim(x, _index(d)) for d in shifts}  # a constant, where it is known
    wrapped = {}  # how many elements come from the end, to the start
    for d, shift in shifts.items():
        least = arith.maxui(lengths[d], _index(1))
        if isinstance(shift, int):
            moved = arith.remui(_index(abs(shift)), least)
            wrapped[d] = moved if shift >= 0 else arith.subi(lengths[d], moved)
        else:
            moved = arith.remsi(arith.index_cast(ir.IndexType.get(), shift), least)
            is_back = arith.cmpi(arith.CmpIPredicate.slt, moved, _index(0))
            wrapped[d] = arith.select(is_back, arith.addi(moved, least), moved)
    with ir.InsertionPoint(made.regions[0].blocks[0]):
        places = [linalg.IndexOp(d).result for d in range(result.rank)]
        for d, count in wrapped.items():
            from_end = arith.addi(places[d], arith.subi(lengths[d], count))
            is_first = arith.cmpi(arith.CmpIPredicate.ult, places[d], count)
            places[d] = arith.select(is_first, from_end, arith.subi(places[d], count))
        linalg.YieldOp([tensor.extract(x, places)])
    return made.results[0]


def around(x: ir.Value, padding: Sequence[int], way: int, result: ir.RankedTensorType) -> ir.Value:
    """A tensor at the insertion point with more of its own elements beside it, which are read where they lie: of its
    dimensions from the last one on so many before and behind."""
    rank = result.rank
    before = {rank - 1 - d: first for d, first in enumerate(padding[::2])}
    lengths = [tensor.dim(x, _index(d)) for d in range(rank)]  # a constant, where it is known
    more = {d: padding[2 * (rank - 1 - d)] + padding[2 * (rank - 1 - d) + 1] for d in before}
    sizes = [
        (arith.addi(lengths[d], _index(more[d])) if d in more else lengths[d]) if result.is_dynamic_dim(d) else size
        for d, size in enumerate(result.shape)
    ]

    def element(_: ir.Value) -> ir.Value:
        places = [linalg.IndexOp(d).result for d in range(rank)]
        for d, first in before.items():
            places[d] = _inside(arith.subi(places[d], _index(first)), lengths[d], way)
        return tensor.extract(x, places)

    start = tensor.empty(sizes, result.element_type)
    return generic([], [start], [ir.AffineMap.get_identity(rank)], ["parallel"] * rank, element).results[0]


def _inside(n: ir.Value, size: ir.Value, way: int) -> ir.Value:
    """Which element of so many stands at a number around them, a signed index; one of them whatever it is."""
    none, last = _index(0), arith.subi(size, _index(1))
    if way == REFLECTED:
        n = arith.maxsi(n, arith.subi(none, n))
        n = arith.minsi(n, arith.subi(arith.addi(last, last), n))
    elif way == CIRCULAR:
        below = arith.cmpi(arith.CmpIPredicate.slt, n, none)
        beyond = arith.cmpi(arith.CmpIPredicate.sge, n, size)
        n = arith.select(below, arith.addi(n, size), arith.select(beyond, arith.subi(n, size), n))
    return arith.minsi(arith.maxsi(n, none), last)


def _operator(
    result: ir.RankedTensorType,
    sources: Sequence[tuple[ir.Value, int]],
    inputs: list[ir.Value],
    read: Sequence[Sequence[ir.AffineExpr]],
) -> ir.Operation:
    """An elementwise operator with an empty body, of inputs that are read at these places of its loops; for each of
    these `sources` say a tensor, and a dimension of it, that is as long."""
    rank = result.rank
    sizes = [
        tensor.dim(value, _index(d)) if result.is_dynamic_dim(loop) else result.shape[loop]
        for loop, (value, d) in enumerate(sources)
    ]
    maps = [*(ir.AffineMap.get(rank, 0, list(exprs)) for exprs in read), ir.AffineMap.get_identity(rank)]
    return empty_generic(inputs, [tensor.empty(sizes, result.element_type)], maps, ["parallel"] * rank)


def _corners(place: ir.Value, size: ir.Value) -> list[tuple[ir.Value, ir.Value]]:
    """The elements in front of a place and behind it, or the last one, with their weights."""
    number, low = ir.IntegerType.get_signless(32), math.floor(place)
    last = arith.subi(arith.index_cast(number, size), arith.constant(number, 1))
    before = arith.minsi(arith.fptosi(number, low), last)
    behind = arith.minsi(arith.addi(before, arith.constant(number, 1)), last)
    part = arith.subf(place, low)
    weights = arith.subf(arith.constant(place.type, 1.0), part), part
    return [(arith.index_cast(ir.IndexType.get(), at), own) for at, own in zip((before, behind), weights)]


def _blended(
    x: ir.Value, corners: Sequence[list[tuple[ir.Value, ir.Value]]], at: list[ir.Value], kind: ir.Type
) -> ir.Value:
    """What lies between the corners, those of the last dimension first."""
    if not corners:
        found = tensor.extract(x, at)
        return extended(found, kind)
    (one, own), (other, weight) = corners[0]
    near, far = (_blended(x, corners[1:], [*at, index], kind) for index in (one, other))
    return arith.addf(arith.mulf(near, own), arith.mulf(far, weight))


def _is_open(value: ir.Value, d: int) -> bool:
    return bool(ir.RankedTensorType(value.type).is_dynamic_dim(d))


def _index(number: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), number)
