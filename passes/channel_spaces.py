"""Which operators are over the planes of a few channels, around a sum of these (channel_planes.py)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, in_block_order, ir
from kitsune_mlir.operations import is_generic, made_by, slice_of, users_of

from .split_windows import reads_windows

MOST = 4  # channels
_OPEN = 2  # open sizes, from which on planes are taken before rows' kernels


@dataclass
class Space:
    """Operators over the points of `shape`, whose dimension `dim` are the channels, or 1 where something is made of
    all of them. Those that `is_passing` are with reductions over points; no tensor of that shape is in memory."""

    dim: int
    shape: list[int]
    is_passing: bool
    ops: set[ir.Operation] = field(default_factory=set)

    @staticmethod
    def of(op: ir.Operation, taken: set[ir.Operation]) -> Space | None:
        """That around a reduction of channels, of operators that no other has, if planes are taken before rows'
        kernels; None around any other operator."""
        dim = _reduced(op)
        if dim is None:
            return None
        for is_passing in (True, False):
            space = Space(dim, rows.shape_of(op.operands[0]), is_passing)
            space._grow(op, set(taken))
            space._prune()
            if space._passes() and space._goes_on(op) if is_passing else space._is_of_slices():
                return space
        return None

    def _is_of_slices(self) -> bool:
        """Whether there are several open sizes, or several slices to be read, of channels that are no lines."""
        slices = {value for op in self.ops for value in op.operands if is_cut(value)}
        return self.dim < len(self.shape) - 1 and (self.shape.count(rows.DYNAMIC) >= _OPEN or len(slices) > 1)

    def _passes(self) -> bool:
        """Whether operators of the space alone make tensors of its shape, and read them."""
        made = {op.results[0] for op in self.ops}
        read = [value for op in self.ops for value in rows.Structured(op).given]
        users = [user for value in made if self.is_full(value) for user in users_of(value)]
        own = all(x in made or self.parts(x) or windows_behind(x) for x in read if self.is_full(x))
        return own and all(user in self.ops for user in users)

    def parts(self, value: ir.Value) -> list[ir.Value]:
        """The channels that a tensor of all of them is put together from; none where it is made otherwise."""
        op = made_by(value, "tensor.concat")
        if op is None or attr_int(op, "dim") != self.dim or not self.is_full(value):
            return []
        return list(op.operands) if all(map(self.is_flat, op.operands)) else []

    def _goes_on(self, first: ir.Operation) -> bool:
        """Whether channels are read again behind a sum of them, or put together in front of it, or its result goes into
        one other reduction: by itself it has a kernel that does the same."""
        if any(self.parts(value) or windows_behind(value) for op in self.ops for value in op.operands):
            return True
        made = {op.results[0] for op in self.ops}
        waiting, makers = [first], {first}
        while waiting:
            found = {op for value in waiting.pop().operands if value in made and (op := rows.producer(value))}
            waiting += found - makers
            makers |= found
        behind = users_of(first.results[0])
        seen, sums = set(behind), 0
        while behind:
            op = behind.pop()
            if _is_plain(op) or op.name in rows.RESHAPES:
                found = set(users_of(op.results[0])) - seen
                behind += found
                seen |= found
            elif op.name == "linalg.generic":
                sums += 1
        return self.ops != makers or sums == 1

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
            users = users_of(op.results[0])
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
        if self.is_passing and _sums_points(op, self.dim):
            return self.is_full(op.operands[0]) or self.is_flat(op.operands[0])
        return _is_plain(op) and (self.is_full(op.results[0]) or self.is_flat(op.results[0]))

    def _is_between(self, op: ir.Operation) -> bool:
        """Whether an operator has no channels, and is that of a plane as it is."""
        return _is_plain(op) and rows.shape_of(op.results[0]) == self.plane


def _reduced(op: ir.Operation) -> int | None:
    """The dimension of few elements of its only operand over which an operator reduces."""
    if not is_generic(op):
        return None
    s = rows.Structured(op)
    loops = s.reductions
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
    fits = 1 < size <= MOST and start is not None
    return dim if fits and not s.index_ops() else None


def _sums_points(op: ir.Operation, dim: int) -> bool:
    """Whether an operator reduces its only operand over other dimensions than this one."""
    if not is_generic(op) or not all(map(rows.is_tensor, op.operands)):
        return False
    s = rows.Structured(op)
    kept = [d for d, kind in enumerate(s.iterators) if kind == "parallel"]
    plain = s.inputs == 1 and s.maps[0] == ir.AffineMap.get_identity(len(s.iterators))
    plain = plain and [rows.dim_of(expr) for expr in s.maps[1].results] == kept and len(kept) < len(s.iterators)
    return plain and dim in kept and rows.init_of(op.operands[1]).scalar is not None


def _is_plain(op: ir.Operation) -> bool:
    """Whether an operator computes each element of its one result by itself."""
    if not is_generic(op) or not rows.is_tensor(op.results[0]):
        return False
    s = rows.Structured(op)
    whole = s.maps[s.inputs :] == [ir.AffineMap.get_identity(len(s.iterators))]
    return whole and s.is_elementwise() and not list(s.body.arguments[s.inputs].uses)


def _neighbours(op: ir.Operation) -> Iterator[ir.Operation]:
    for value in op.operands:
        if (maker := rows.producer(value)) is not None:
            yield maker
    for result in op.results:
        yield from users_of(result)


def is_cut(value: ir.Value) -> bool:
    """Whether a tensor is a slice with all that lies between its ends."""
    op = made_by(value, "tensor.extract_slice")
    if op is None or not rows.is_tensor(value):
        return False
    cut, shape = slice_of(op), rows.shape_of(op.operands[0])
    return len(shape) == ir.RankedTensorType(value.type).rank and {*cut.strides} == {1}


def windows_behind(value: ir.Value) -> tuple[ir.Value, list[ir.AffineExpr]] | None:
    """The tensor that a value is windows of, perhaps with dimensions of windows joined, and where its elements are read
    there; None for another value."""
    op = rows.producer(value) if rows.is_tensor(value) else None
    groups = [[d] for d in range(ir.RankedTensorType(value.type).rank)] if op is not None else []
    if op is not None and op.name == "tensor.collapse_shape":
        groups, op = rows.groups_of(op), rows.producer(op.operands[0])
    if op is None or not reads_windows(op) or len(rows.Structured(op).body.operations) > 1:
        return None
    loops, shape = list[ir.AffineExpr](), rows.shape_of(op.results[0])
    for d, group in enumerate(groups):
        if rows.DYNAMIC in [shape[loop] for loop in group[1:]]:
            return None
        for n, loop in enumerate(group):
            place = ir.AffineExpr.get_floor_div(ir.AffineExpr.get_dim(d), prod(shape[at] for at in group[n + 1 :]))
            loops.append(place if n == 0 else ir.AffineExpr.get_mod(place, shape[loop]))
    map_ = rows.Structured(op).maps[0]
    inner = ir.AffineMap.get(len(groups), 0, loops)
    return op.operands[0], [expr.compose(inner) for expr in map_.results]
