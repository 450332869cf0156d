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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import evaluate
from kitsune_mlir.mlir import arith, attr_int, in_block_order, ir, linalg, slice_of, tensor

from .schedule_build import clone_operations, constant_index, generic, sizes_of

MOST = 4  # channels
_OPEN = 2  # open sizes, from which on planes are taken before rows' kernels


def split_channels(block: ir.Block) -> None:
    """Rewrites such operators of a block."""
    operations = [op.operation for op in block.operations]
    taken: set[ir.Operation] = set()
    found = []
    for op in reversed(operations):  # what a later sum alone reads is not of an earlier one
        space = None if op in taken else _Space.of(op, taken)
        if space is not None and space.is_worth_it:
            taken |= space.ops
            found.append((space, [one for one in operations if one in space.ops]))
    for space, ops in reversed(found):
        _Planes(space, ops).build()


@dataclass
class _Space:
    """Operators over the points of `shape`, whose dimension `dim` are the channels, or 1 where something is made of
    all of them."""

    dim: int
    shape: list[int]
    ops: set[ir.Operation] = field(default_factory=set)

    @staticmethod
    def of(op: ir.Operation, taken: set[ir.Operation]) -> _Space | None:
        """That around a reduction of channels, of operators that no other has; None around any other operator."""
        dim = _reduced(op)
        if dim is None:
            return None
        space = _Space(dim, rows.shape_of(op.operands[0]))
        space._grow(op, set(taken))
        space._prune()
        return space

    @property
    def is_worth_it(self) -> bool:
        """Whether planes are taken before rows' kernels: there are several open sizes, or several slices to be read."""
        slices = {value for op in self.ops for value in op.operands if _is_cut(value)}
        return self.shape.count(rows.DYNAMIC) >= _OPEN or len(slices) > 1

    @property
    def plane(self) -> list[int]:
        """The sizes without the channels."""
        return [*self.shape[: self.dim], *self.shape[self.dim + 1 :]]

    def is_full(self, value: ir.Value) -> bool:
        return rows.is_tensor(value) and rows.shape_of(value) == self.shape

    def is_flat(self, value: ir.Value) -> bool:
        """Whether a tensor has one element for all channels, in a dimension of its own."""
        flat = [*self.shape[: self.dim], 1, *self.shape[self.dim + 1 :]]
        return rows.is_tensor(value) and rows.shape_of(value) == flat

    def is_put(self, op: ir.Operation) -> bool:
        """Whether a reshape puts in, or takes away, the channels' dimension."""
        values = [op.operands[0], op.results[0]] if op.name in rows.RESHAPES else []
        return any(map(self.is_flat, values)) and any(rows.shape_of(value) == self.plane for value in values)

    def _grow(self, first: ir.Operation, seen: set[ir.Operation]) -> None:
        waiting = [first]
        seen.add(first)
        while waiting:
            op = waiting.pop()
            if self._fits(op):
                self.ops.add(op)
            elif not (self.is_put(op) or self._is_between(op)):
                continue
            others = [one for one in _neighbours(op) if one not in seen and one.block == first.block]
            seen.update(others)
            waiting += others

    def _prune(self) -> None:
        """Leaves out operators that neither make what channels are summed of, and that alone, nor take what was made of
        all channels: several of them would do what one does."""
        made = {op.results[0]: op for op in self.ops}
        single = {value for value in made if not self.is_full(value)}
        takes, order = set(single), in_block_order(self.ops)
        for op in order:
            if any(value in takes or self._behind_put(value) in takes for value in op.operands):
                takes.add(op.results[0])
        goes = set(takes)
        for op in reversed(order):
            users = [use.owner.operation for use in op.results[0].uses]
            if all(len(user.results) == 1 and user.results[0] in goes for user in users):
                goes.add(op.results[0])
        self.ops = {made[value] for value in goes if value in made}

    def _behind_put(self, value: ir.Value) -> ir.Value:
        """What has the channels' dimension put in, or taken away."""
        op = rows.producer(value)
        return op.operands[0] if op is not None and self.is_put(op) else value

    def _fits(self, op: ir.Operation) -> bool:
        if _reduced(op) == self.dim:
            return self.is_full(op.operands[0])
        return _is_plain(op) and (self.is_full(op.results[0]) or self.is_flat(op.results[0]))

    def _is_between(self, op: ir.Operation) -> bool:
        """Whether an operator has no channels, and is that of a plane as it is."""
        return _is_plain(op) and rows.shape_of(op.results[0]) == self.plane


def _reduced(op: ir.Operation) -> int | None:
    """The dimension, not the last one, of few elements of its first operand over which an operator reduces."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    s = rows.Structured(op)
    loops = [d for d, kind in enumerate(s.iterators) if kind == "reduction"]
    if len(loops) != 1 or not s.inputs or not all(map(rows.is_tensor, op.operands)):
        return None
    (dim,), rank = loops, len(s.iterators)
    others = [d for d in range(rank) if d != dim]
    out = s.maps[s.inputs]
    kept = [expr for expr in out.results if not isinstance(expr, ir.AffineConstantExpr)]
    plain = list(map(rows.dim_of, kept)) == others and len(out.results) in (rank - 1, rank)
    plain = plain and s.maps[0] == ir.AffineMap.get_identity(rank) and s.inputs == 1
    if not plain:
        return None
    start = rows.init_of(op.operands[s.inputs]).scalar
    size = rows.shape_of(op.operands[0])[dim]
    fits = dim < rank - 1 and 1 < size <= MOST and start is not None
    return dim if fits and not s.index_ops() else None


def _is_plain(op: ir.Operation) -> bool:
    """Whether an operator computes each element of its one result by itself."""
    if op.name != "linalg.generic" or len(op.results) != 1 or not rows.is_tensor(op.results[0]):
        return False
    s = rows.Structured(op)
    whole = s.maps[s.inputs :] == [ir.AffineMap.get_identity(len(s.iterators))]
    return whole and s.is_elementwise() and not list(s.body.arguments[s.inputs].uses)


def _neighbours(op: ir.Operation) -> Iterator[ir.Operation]:
    for value in op.operands:
        if (maker := rows.producer(value)) is not None:
            yield maker
    for result in op.results:
        yield from (use.owner.operation for use in result.uses)


def _is_cut(value: ir.Value) -> bool:
    """Whether a tensor is a slice with all that lies between its ends."""
    op = rows.producer(value)
    if op is None or op.name != "tensor.extract_slice" or not rows.is_tensor(value):
        return False
    cut, shape = slice_of(op), rows.shape_of(op.operands[0])
    return len(shape) == ir.RankedTensorType(value.type).rank and {*cut.strides} == {1}


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

    def __init__(self, space: _Space, ops: Sequence[ir.Operation]):
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
        if "reduction" in s.iterators:
            return [self._operator(op, list(range(self._space.shape[dim])))]
        count = self._space.shape[dim] if self._space.is_full(op.results[0]) else 1
        return [self._operator(op, [number]) for number in range(count)]

    def _operator(self, op: ir.Operation, channels: Sequence[int]) -> ir.Value:
        """What an operator computes of a plane, or of several one after the other."""
        s, dim, rank = rows.Structured(op), self._space.dim, len(self._space.plane)
        start = op.operands[s.inputs]
        kept = range(rank) if ir.RankedTensorType(start.type).rank == rank else [d for d in range(rank + 1) if d != dim]
        element = ir.RankedTensorType(start.type).element_type
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
        *inner, end = [op.operation for op in s.body.operations]
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
        elif _is_cut(value):
            firsts: list[list[ir.Value]] = [[] for _ in exprs]
            while _is_cut(value):
                op = rows.producer(value)
                open_ = iter(list(op.operands)[1 : 1 + slice_of(op).offsets.count(rows.DYNAMIC)])
                for d, first in enumerate(slice_of(op).offsets):
                    if first == rows.DYNAMIC:
                        firsts[d].append(next(open_))
                    else:
                        exprs[d] += first
                value = op.operands[0]
            return _Read(value, ir.AffineMap.get(loops - 1, 0, exprs), firsts)
        return _Read(value, ir.AffineMap.get(loops - 1, 0, exprs))

    def _hand_on(self, value: ir.Value, planes: Sequence[ir.Value]) -> None:
        """Gives others than the operators of the space what one made."""
        others = [use for use in value.uses if not self._is_own(use.owner.operation)]
        if not others:
            return
        rank = ir.RankedTensorType(value.type).rank
        whole = planes[0] if rank == len(self._space.plane) else self._whole(value, planes)
        for use in others:
            use.owner.operands[use.operand_number] = whole

    def _is_own(self, op: ir.Operation) -> bool:
        return len(op.results) == 1 and op.results[0] in self._made

    def _whole(self, value: ir.Value, planes: Sequence[ir.Value]) -> ir.Value:
        """The tensor of all planes, like `value`."""
        kind, dim = ir.RankedTensorType(value.type), self._space.dim
        whole = tensor.empty(sizes_of(value), kind.element_type)
        sizes = sizes_of(planes[0])
        open_ = [size for size in sizes if isinstance(size, ir.Value)]
        shape = [*kind.shape[:dim], 1, *kind.shape[dim + 1 :]]
        for number, plane in enumerate(planes):
            firsts = [number if d == dim else 0 for d in range(kind.rank)]
            whole = tensor.insert_slice(plane, whole, [], open_, [], firsts, shape, [1] * kind.rank)
        return whole
