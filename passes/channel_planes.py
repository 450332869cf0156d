"""Images of few channels, some of whose channels are summed, as planes: each channel is a tensor of its own.

    %d = linalg.generic ins(%near, %x : tensor<2x3x?x?xf32>, ...) { (a - b) * (a - b) }
    %s = linalg.generic {... "reduction" over the channels} ins(%d) -> tensor<2x1x?x?xf32>
    %w = linalg.generic ins(%s) { exp } : tensor<2x1x?x?xf32>
    %y = linalg.generic ins(%w by (n, 0, h, w), %near) { a * b } : tensor<2x3x?x?xf32>
  =>
    %d0 = linalg.generic ins(%near by (n, 0, h, w), %x by (n, 0, h, w)) { (a - b) * (a - b) } : tensor<2x?x?xf32>
    ... %d1, %d2
    %s = linalg.generic ins(%d0, %d1, %d2) { a + b + c }
    %w = linalg.generic ins(%s) { exp } : tensor<2x?x?xf32>
    %y0 = linalg.generic ins(%w, %near by (n, 0, h, w)) { a * b }
    ... %y1, %y2, which are concatenated where others read all of them

All of these are of the same points, so that one kernel computes them (shared_elements.py): a thread has all channels of
a place, and what they share is computed once, where a kernel for each sum would write and read what is between. A
slice, as one for each neighbour of a window is, is read by number in the tensor that it is of. Where rows have a kernel
that holds them in registers (schedule-rows), they are left to it: of whole tensors, with one open size at most.

What has a few coordinates of all pairs of points is so in any dimension, the last one too, where no tensor of them all
is read from memory or asked for; and so is what is stacked to be reduced, as the ways to come to a place are. Sums over
points are then sums of planes, each a coordinate of the result:

    %d = linalg.generic ins(%x by (n, 0, k), %x by (0, m, k)) { a - b } : tensor<200x200x3xf32>
    %s = linalg.generic {... "reduction" over k} ins(%d) { a + b * b } -> tensor<200x200xf32>
    %y = linalg.generic {... "reduction" over m} ins(%d, %s) { ... } -> tensor<200x3xf32>
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import evaluate
from kitsune_mlir.generics import clone_operations, constant_index, generic, sizes_of
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, tensor
from kitsune_mlir.operations import element_type, operations_of, slice_of, users_of

from .channel_spaces import Space, is_cut, windows_behind


def split_channels(block: ir.Block) -> None:
    """Rewrites such operators of a block."""
    operations = operations_of(block)
    taken: set[ir.Operation] = set()
    found = []
    for op in reversed(operations):  # what a later sum alone reads is not of an earlier one
        space = None if op in taken else Space.of(op, taken)
        if space is not None:
            taken |= space.ops
            found.append((space, [one for one in operations if one in space.ops]))
    for space, ops in reversed(found):
        _Planes(space, ops).build()


@dataclass(frozen=True)
class _Read:
    """A tensor as a plane's operator reads it. Where it does so by number, `firsts` are added to what the map says for
    each of its dimensions."""

    value: ir.Value
    map: ir.AffineMap
    firsts: list[list[ir.Value]] | None = None

    def element(self, indices: Sequence[ir.Value]) -> ir.Value:
        """That at these indices of a plane, in a body."""
        at = evaluate(self.map, indices)
        at = [reduce(arith.addi, more, own) for own, more in zip(at, self.firsts or (), strict=True)]
        return tensor.extract(self.value, at)


class _Planes:
    """Writes operators of a space, in the order of their block, as those of planes."""

    def __init__(self, space: Space, ops: Sequence[ir.Operation]):
        self._space, self._ops = space, ops
        self._made = {op.results[0] for op in ops}
        self._planes: dict[ir.Value, list[ir.Value]] = {}

    def build(self) -> None:
        for op in self._ops:
            with op.location, ir.InsertionPoint(op):
                self._planes[op.results[0]] = planes = self._written(op)
                self._hand_on(op.results[0], planes)
        for op in reversed(self._ops):
            op.erase()

    def _written(self, op: ir.Operation) -> list[ir.Value]:
        s, dim = rows.Structured(op), self._space.dim
        if s.iterators[dim] == "reduction":
            return [self._operator(op, list(range(self._space.shape[dim])))]
        if "reduction" in s.iterators:
            return self._summed(s)
        count = self._space.shape[dim] if self._space.is_full(op.results[0]) else 1
        return [self._operator(op, [number]) for number in range(count)]

    def _summed(self, s: rows.Structured) -> list[ir.Value]:
        """What reduces tensors of all channels over points: one operator, which has all that they share at once."""
        dim, start, at = self._space.dim, s.op.operands[1], _place(s, self._space.dim)
        channels = range(self._space.shape[dim] if self._space.is_full(s.op.operands[0]) else 1)
        reads = [self._read(s.op.operands[0], s.maps[0], channel) for channel in channels]
        loops = [kind for d, kind in enumerate(s.iterators) if d != dim]
        sizes = sizes_of(start, [d for d in range(ir.RankedTensorType(start.type).rank) if d != at])
        element, begin = element_type(start), rows.init_of(start).scalar
        starts = [linalg.fill(begin, outs=[tensor.empty(sizes, element)]) for _ in channels]
        places = [ir.AffineDimExpr.get(d) for d in range(len(loops))]
        reduced = [d for d, kind in enumerate(loops) if kind == "reduction"]
        out = ir.AffineMap.get(len(loops), 0, [place for d, place in enumerate(places) if d not in reduced])
        values = [read.value if read.firsts is None else self._taken(read, s.op.operands[0]) for read in reads]
        identity = ir.AffineMap.get_identity(len(loops))
        maps = [read.map if read.firsts is None else identity for read in reads] + [out] * len(channels)

        def body(*given: ir.Value) -> list[ir.Value]:
            indices = [linalg.IndexOp(d).result for d in range(len(loops))]
            own = zip(given, given[len(channels) :])
            return [self._computed(s, pair, channel, indices) for channel, pair in zip(channels, own, strict=True)]

        return list(generic(values, starts, maps, loops, body).results)

    def _taken(self, read: _Read, like: ir.Value) -> ir.Value:
        """The plane that is read by number, of such a tensor of all channels."""
        rank, kind = len(self._space.plane), ir.RankedTensorType(like.type)
        empty = tensor.empty(sizes_of(like, [d for d in range(rank + 1) if d != self._space.dim]), kind.element_type)
        element = lambda _: read.element([linalg.IndexOp(d).result for d in range(rank)])  # noqa: E731
        return generic([], [empty], [ir.AffineMap.get_identity(rank)], ["parallel"] * rank, element).results[0]

    def _operator(self, op: ir.Operation, channels: Sequence[int]) -> ir.Value:
        """What an operator computes of a plane, or of several one after the other."""
        s, dim, rank = rows.Structured(op), self._space.dim, len(self._space.plane)
        start = op.operands[s.inputs]
        kept = range(rank) if ir.RankedTensorType(start.type).rank == rank else [d for d in range(rank + 1) if d != dim]
        element = element_type(start)
        reads = [[self._read(op.operands[n], s.maps[n], channel) for n in range(s.inputs)] for channel in channels]
        given = [read for each in reads for read in each if read.firsts is None]
        begin = rows.init_of(start).scalar if "reduction" in s.iterators else None

        def body(*arguments: ir.Value) -> ir.Value:
            own, found = iter(arguments), begin
            indices = [linalg.IndexOp(d).result for d in range(rank)]
            for channel, each in zip(channels, reads, strict=True):
                taken = [next(own) if read.firsts is None else read.element(indices) for read in each]
                found = self._computed(s, [*taken, found], channel, indices)
            return found

        identity = ir.AffineMap.get_identity(rank)
        maps, values = [*(read.map for read in given), identity], [read.value for read in given]
        empty = tensor.empty(sizes_of(start, kept), element)
        return generic(values, [empty], maps, ["parallel"] * rank, body).results[0]

    def _computed(
        self, s: rows.Structured, given: Sequence[ir.Value | None], channel: int, indices: Sequence[ir.Value]
    ) -> ir.Value:
        """What a body yields at these places of a channel."""
        values = dict(zip(s.body.arguments, given, strict=True))
        *inner, end = operations_of(s.body)
        places = [*indices[: self._space.dim], None, *indices[self._space.dim :]]
        for op in s.index_ops():
            values[op.results[0]] = places[attr_int(op, "dim")] or constant_index(channel)
        clone_operations([op for op in inner if op.name != "linalg.index"], values)
        return values.get(end.operands[0], end.operands[0])

    def _read(self, value: ir.Value, map_: ir.AffineMap, channel: int) -> _Read:
        """How a plane's operator reads what an operator reads by a map."""
        dim, loops = self._space.dim, map_.n_dims
        own = [ir.AffineDimExpr.get(d) for d in range(loops - 1)]
        moved = ir.AffineMap.get(loops - 1, 0, [*own[:dim], ir.AffineConstantExpr.get(channel), *own[dim:]])
        exprs = [expr.compose(moved) for expr in map_.results]
        if value not in self._planes and (parts := self._space.parts(value)):
            value = parts[ir.AffineConstantExpr(exprs[dim]).value]
            exprs[dim] = ir.AffineConstantExpr.get(0)
        if value not in self._planes and self._space.is_passing and (seen := windows_behind(value)) is not None:
            value, within = seen
            map_ = ir.AffineMap.get(
                loops - 1, 0, [expr.compose(ir.AffineMap.get(loops - 1, 0, exprs)) for expr in within]
            )
            return _Read(value, map_, [[] for _ in within])
        while (op := rows.producer(value)) is not None and self._space.is_put(op):
            if value not in self._planes and self._space.is_flat(value):
                value, exprs = op.operands[0], [*exprs[:dim], *exprs[dim + 1 :]]
            else:
                break
        if value in self._planes:
            planes = self._planes[value]
            if len(exprs) == loops:
                value = planes[ir.AffineConstantExpr(exprs[dim]).value if len(planes) > 1 else 0]
                exprs = [*exprs[:dim], *exprs[dim + 1 :]]
            else:
                (value,) = planes
        elif is_cut(value):
            firsts: list[list[ir.Value]] = [[] for _ in exprs]
            while is_cut(value):
                op = rows.producer(value)
                open_ = iter(list(op.operands)[1 : 1 + slice_of(op).offsets.count(rows.DYNAMIC)])
                for d, first in enumerate(slice_of(op).offsets):
                    if first == rows.DYNAMIC:
                        firsts[d].append(next(open_))
                    else:
                        exprs[d] += first
                value = op.operands[0]
            return _Read(value, ir.AffineMap.get(loops - 1, 0, exprs), firsts)
        # A window's first element is read by a map that says nothing of its tensor being larger than the plane.
        within = any(_is_moved(expr, dim) for expr in map_.results) and value not in self._planes
        return _Read(value, ir.AffineMap.get(loops - 1, 0, exprs), [[] for _ in exprs] if within else None)

    def _hand_on(self, value: ir.Value, planes: Sequence[ir.Value]) -> None:
        """Gives others than the operators of the space what one made."""
        for user in users_of(value):
            if len(planes) == 1 and self._space.is_put(user) and rows.shape_of(user.results[0]) == self._space.plane:
                user.results[0].replace_all_uses_with(planes[0])
        others = [use for use in value.uses if not self._is_own(use.owner.operation)]
        if not others:
            return
        op = rows.producer(value)
        assert op is not None
        at = _place(rows.Structured(op), self._space.dim)
        joined = _chosen if self._space.is_passing else inserted
        whole = planes[0] if at is None else joined(value, planes, at)
        for use in others:
            use.owner.operands[use.operand_number] = whole

    def _is_own(self, op: ir.Operation) -> bool:
        return len(op.results) == 1 and op.results[0] in self._made


def inserted(value: ir.Value, planes: Sequence[ir.Value], dim: int) -> ir.Value:
    """The tensor of all planes, like `value`, whose dimension `dim` they are: each is stored where it belongs."""
    kind = ir.RankedTensorType(value.type)
    whole = tensor.empty(sizes_of(value), kind.element_type)
    sizes = sizes_of(planes[0])
    open_ = [size for size in sizes if isinstance(size, ir.Value)]
    shape = [*kind.shape[:dim], 1, *kind.shape[dim + 1 :]]
    for number, plane in enumerate(planes):
        firsts = [number if d == dim else 0 for d in range(kind.rank)]
        whole = tensor.insert_slice(plane, whole, [], open_, [], firsts, shape, [1] * kind.rank)
    return whole


def _chosen(value: ir.Value, planes: Sequence[ir.Value], dim: int) -> ir.Value:
    """The same, of few elements: whoever reads one takes it from its plane."""
    kind = ir.RankedTensorType(value.type)
    identity = ir.AffineMap.get_identity(kind.rank)
    plane = ir.AffineMap.get(kind.rank, 0, [expr for d, expr in enumerate(identity.results) if d != dim])

    def body(*given: ir.Value) -> ir.Value:
        own, found = linalg.IndexOp(dim).result, given[len(planes) - 1]
        for number in reversed(range(len(planes) - 1)):
            is_own = arith.cmpi(arith.CmpIPredicate.eq, own, constant_index(number))
            found = arith.select(is_own, given[number], found)
        return found

    start = tensor.empty(sizes_of(value), kind.element_type)
    maps = [*[plane] * len(planes), identity]
    return generic(planes, [start], maps, ["parallel"] * kind.rank, body).results[0]


def _is_moved(expr: ir.AffineExpr, dim: int) -> bool:
    """Whether the channel says how far on something is read, as the place in a window does."""
    loops = rows.loops_of(expr)
    return dim in loops and len(loops) > 1


def _place(s: rows.Structured, dim: int) -> int | None:
    """Where an operator's result has the channels, or the one element that is made of them; None where it has not."""
    exprs = list(s.maps[s.inputs].results)
    own = [d for d, expr in enumerate(exprs) if rows.dim_of(expr) == dim]
    own = own or [d for d, expr in enumerate(exprs) if isinstance(expr, ir.AffineConstantExpr)]
    return own[0] if own else None
