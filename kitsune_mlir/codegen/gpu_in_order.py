"""Updates that meet in one element of a table, one after another in their order: a stable sort of updates by where they
go (gpu_sorted_updates.py), and a loop over those of each place.

    ordered_scatter    table[key] = the body's result of its updates, one after another

All rows to one place are one thread's, which takes AHEAD of them at a time: a node that every edge points to is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir.mlir import arith, ir, memref, scf

from .gpu_kernel import Kernel, Kernels, See, Size, as_value, extent, of_points, only_if
from .gpu_sorted_updates import Order, Orders, linear, mapped
from .gpu_updates import applied
from .kernel_work import TURNS_HINT
from .pipeline.device import below, i64, index

LABEL = "ordered_scatter"  # what kernels are called that apply updates in their order
AHEAD = 4  # updates that are loaded together


@dataclass
class InOrder:
    """Scatters of a module whose updates come in their order."""

    kernels: Kernels
    orders: Orders

    def lower(self, op: ir.Operation) -> bool:
        """Puts kernels in the place of a tm_tensor.scatter; false where an update has several elements along a
        dimension of the table that numbers name."""
        named = mapped(op)
        updates, table = (ir.MemRefType(op.operands[i].type) for i in (0, 2))
        outer = table.rank - updates.rank + 1  # dimensions of the table in front of those of an update
        if len(set(named)) != len(named) or any(dim >= outer and updates.shape[dim - outer + 1] != 1 for dim in named):
            return False
        self._apply(op, named, self.orders.of(op), outer)
        op.erase()
        return True

    def _apply(self, op: ir.Operation, named: tuple[int, ...], order: Order, outer: int) -> None:
        """The kernel that applies updates: a thread for each element of the table that they may go to."""
        updates, table = op.operands[0], op.operands[2]
        free = [dim for dim in range(outer, ir.MemRefType(table.type).rank) if dim not in named]  # and an update has
        bounds = self.orders.bounds(order, op)

        def sizes(see: See) -> list[Size]:
            keys = [extent(see(table), dim) for dim in named]
            return [*keys, *(extent(see(updates), dim - outer + 1) for dim in free)]

        with of_points(self.kernels, op, LABEL, sizes) as (kernel, place):
            given, into, rows = (kernel.inside(buffer) for buffer in (updates, table, order.rows))
            key = linear(place[: len(named)], sizes(kernel.inside)[: len(named)])
            begin, end = (index(memref.load(kernel.inside(buffer), [key])) for buffer in bounds)
            target = [as_value(0)] * ir.MemRefType(table.type).rank
            for dim, number in zip((*named, *free), place, strict=True):
                target[dim] = number
            at = dict(zip(free, place[len(named) :], strict=True))
            position = [at.get(dim, as_value(0)) for dim in range(outer, len(target))]
            with only_if(begin, end):
                last = arith.subi(end, as_value(1))
                loop = scf.ForOp(begin, end, as_value(AHEAD), [memref.load(into, target)])
                loop.operation.attributes[TURNS_HINT] = ir.IntegerAttr.get(i64(), _turns(op, named))
                with ir.InsertionPoint(loop.body):
                    places = [arith.addi(loop.induction_variable, as_value(number)) for number in range(AHEAD)]
                    loaded = [index(memref.load(rows, [arith.minui(place, last)])) for place in places]
                    found = [memref.load(given, [row, *position]) for row in loaded]
                    there = [below(place, end) for place in places]
                    scf.yield_([_applied(op, kernel, found, there, loop.inner_iter_args[0])])
                memref.store(loop.results[0], into, target)


def _applied(
    op: ir.Operation, kernel: Kernel, updates: list[ir.Value], there: list[ir.Value], total: ir.Value
) -> ir.Value:
    """What a scatter's body makes of updates one after another, the first and those others that are `there`."""
    for number, (update, is_there) in enumerate(zip(updates, there, strict=True)):
        made = applied(op, kernel, update, total)
        total = arith.select(is_there, made, total) if number else made
    return total


def _turns(op: ir.Operation, named: tuple[int, ...]) -> int:
    """How many turns the loop over a place's updates has on average, as far as it is known."""
    updates, table = (ir.MemRefType(op.operands[i].type).shape for i in (0, 2))
    keys = prod(table[dim] for dim in named)
    return max(1, -(-updates[0] // (max(1, keys) * AHEAD)))
