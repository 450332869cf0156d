"""Products and the elementwise operators behind them once more, with rows in the place of columns: so a product that
sums over their rows sums over columns, as kernels do that hold a tile of rows (schedule_back_to_back.py)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Roles
from kitsune_mlir.errors import UnsupportedError
from kitsune_mlir.generics import generic, map_of, moved, sizes_of, zero_tensor
from kitsune_mlir.mlir import ir, linalg, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.open_sizes import is_open

from .back_to_back import Between, Product, product_of
from .reshapes import reshaped, reshaped_as
from .row_groups import Member, Space, fit, root, scalar_of
from .tensor_sizes import TensorSizes


def turned(of: Between, sizes: TensorSizes) -> Between:
    """The same with rows in the place of columns, at the insertion point; the new seconds have the results of the old,
    but no users. Raises UnsupportedError where an operator's loops are not rows before columns."""
    return _Turned(of, sizes).made()


class _Turned:
    def __init__(self, of: Between, sizes: TensorSizes):
        self.of, self.sizes = of, sizes
        self.count = of.space.rows // of.batch
        self.space = Space(False, of.batch * of.space.columns, of.space.rows // of.batch)
        self.values: dict[ir.Value, ir.Value] = {}  # what is turned, by what it is of

    def made(self) -> Between:
        of, firsts, members, seconds = self.of, list[Product](), dict[ir.Value, Member](), list[Product]()
        for first in of.firsts:
            found = first.found
            right = _in_order(found.right, found.right_roles, "bnk")
            left = _in_order(found.left, found.left_roles, "bkm")
            firsts.append(self._product(right, left, first.result))
            self.values[first.result] = firsts[-1].result
        for result, member in of.members.items():
            made = self._member(member)
            members[made.op.results[0]] = made
            self.values[result] = made.op.results[0]
        for second in of.seconds:
            *outer, _, _ = self.sizes.shape(second.found.left)
            left = self.values[second.given]
            shape = [*outer, of.space.columns, self.count]
            right = _in_order(second.found.right, second.found.right_roles, "bkn")
            seconds.append(self._product(self._reshaped(left, shape), right, second.result))
        return Between(self.space, of.batch, tuple(firsts), members, tuple(seconds))

    def _product(self, left: ir.Value, right: ir.Value, like: ir.Value) -> Product:
        kind = ir.RankedTensorType(like.type)
        sizes = [*self.sizes.shape(left)[:-1], self.sizes.shape(right)[-1]]
        start = zero_tensor(list(map(self._size, sizes)), kind.element_type)
        make = linalg.batch_matmul if kind.rank == 3 else linalg.matmul
        made = product_of(make(left, right, outs=[start]).owner.operation)
        assert made is not None
        return made

    def _member(self, member: Member) -> Member:
        """An operator with its loops over columns in front of those over rows that are not the batch's."""
        s, loops = member.s, self._loops(member)
        place = {d: number for number, d in enumerate(loops)}
        lengths = self._lengths(member)
        shape = [lengths[d] for d in loops]
        inputs, maps = [], []
        for value, map_ in zip(s.given, s.maps):
            if (scalar := scalar_of(value)) is not None:
                inputs.append(scalar)
                maps.append(map_of(len(loops), []))
                continue
            if root(value) in self.values:
                inputs.append(self._reshaped(self.values[root(value)], shape))
                maps.append(ir.AffineMap.get_identity(len(loops)))
                continue
            dims = [expr.position for expr in map_.results if isinstance(expr, ir.AffineDimExpr)]
            dims = [d for d in dims if lengths[d] != 1]
            long = [size for size in self.sizes.shape(value) if size != 1]
            value, order = self._reshaped(value, long), sorted(dims, key=place.__getitem__)
            if order != dims:
                value = _transposed(value, [dims.index(d) for d in order])
            inputs.append(value)
            maps.append(map_of(len(loops), [place[d] for d in order]))
        start = tensor.empty(list(map(self._size, shape)), element_type(member.op.results[0]))
        maps.append(ir.AffineMap.get_identity(len(loops)))
        with member.op.location:
            made = generic(inputs, [start], maps, ["parallel"] * len(loops), s.body)
        found = fit(made, self.space, self.sizes.shape)
        if found is None or found.kind != "tile":
            raise UnsupportedError("an operator between products has no form with rows in the place of columns")
        return found

    def _size(self, size: int) -> int | ir.Value:
        """A size, or the value of one that is open until the call."""
        return self.sizes.as_value(size) if is_open(size) else size

    def _reshaped(self, value: ir.Value, shape: list[int]) -> ir.Value:
        """A tensor in other sizes, of which some may be open until the call."""
        if not any(map(is_open, shape)):
            return reshaped(value, shape)
        return reshaped_as(value, self.sizes.shape(value), shape, self.sizes.as_value)

    def _lengths(self, member: Member) -> dict[int, int]:
        found: dict[int, int] = {}
        for value, map_ in zip(member.op.operands, member.s.maps):
            if rows.is_tensor(value):
                found |= {
                    expr.position: size
                    for expr, size in zip(map_.results, self.sizes.shape(value))
                    if isinstance(expr, ir.AffineDimExpr)
                }
        return found

    def _loops(self, member: Member) -> list[int]:
        """The loops that have turns, in their new order."""
        lengths = self._lengths(member)
        batch, count = [], 1
        own = list(member.row_loops)
        while count < self.of.batch and own:
            batch.append(own.pop(0))
            count *= lengths[batch[-1]]
        if count != self.of.batch or prod(lengths[d] for d in own) != self.count:
            raise UnsupportedError("an operator's loops between products are not those of a batch, before rows")
        columns = [d for d, size in sorted(lengths.items()) if size != 1 and d not in member.row_loops]
        return [*batch, *columns, *own]


def _in_order(value: ir.Value, roles: Roles, wanted: str) -> ir.Value:
    """An operand with dimensions in this order, of those that it has."""
    order = [roles.index(role) for role in wanted if role in roles]
    if order == sorted(order):
        return value
    start = tensor.empty(sizes_of(value, order), element_type(value))
    return linalg.transpose(value, outs=[start], permutation=order).results[0]


def _transposed(value: ir.Value, order: Sequence[int]) -> ir.Value:
    """A tensor with dimensions in another order, by an operator: one that is computed of places stays such."""
    start = tensor.empty(sizes_of(value, order), element_type(value))
    return moved(value, start, [list(order).index(d) for d in range(len(order))])
