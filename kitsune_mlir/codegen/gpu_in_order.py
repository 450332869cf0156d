"""Updates that meet in one element of a table, one after another in their order: a stable sort of updates by where they
go (gpu_sorted_updates.py), and a loop over those of each place.

    ordered_scatter    table[key] = the body's result of its updates, one after another

All rows to one place are one thread's, which takes AHEAD of them at a time: a node that every edge points to is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from kitsune_mlir.mlir import arith, ir, memref, scf

from .gpu_clone import clone_into
from .gpu_i32 import index
from .gpu_kernel import THREADS, Kernel, Kernels, as_value, ceildiv, delinearize, extent, linear_id, only_if, product
from .gpu_sorted_updates import Order, Orders, linear, mapped
from .kernel_work import TURNS_HINT

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
        kernel = Kernel(self.kernels, op, LABEL)
        with kernel.body():
            given, into = kernel.inside(updates), kernel.inside(table)
            rows, begins, ends = (kernel.inside(buffer) for buffer in (order.rows, *bounds))
            sizes = [extent(given, dim - outer + 1) for dim in free]
            keys = [extent(into, dim) for dim in named]
            thread = linear_id(THREADS)
            with only_if(thread, product([*keys, *sizes])):
                place = delinearize(thread, [*keys, *sizes])
                own, further = place[: len(keys)], place[len(keys) :]
                key = linear(own, keys)
                begin, end = (index(memref.load(buffer, [key])) for buffer in (begins, ends))
                target = [as_value(0)] * ir.MemRefType(table.type).rank
                for dim, number in zip((*named, *free), place, strict=True):
                    target[dim] = number
                at = dict(zip(free, further, strict=True))
                position = [at.get(dim, as_value(0)) for dim in range(outer, len(target))]
                with only_if(begin, end):
                    turns = _turns(op, named)
                    self._loop(op, kernel, (begin, end), turns, rows, (given, into), position, target)
        with op.context, op.location, ir.InsertionPoint(op):
            counts = [extent(table, dim) for dim in named] + [extent(updates, dim - outer + 1) for dim in free]
            kernel.launch(ceildiv(product(counts), THREADS))

    @staticmethod
    def _loop(
        op: ir.Operation,
        kernel: Kernel,
        bounds: tuple[ir.Value, ir.Value],
        turns: int,
        rows: ir.Value,
        buffers: tuple[ir.Value, ir.Value],
        position: list[ir.Value],
        target: list[ir.Value],
    ) -> None:
        """The element of the table with all its updates applied."""
        begin, end = bounds
        updates, table = buffers
        block, last = op.regions[0].blocks[0], arith.subi(end, as_value(1))

        def load(place: ir.Value) -> ir.Value:
            row = index(memref.load(rows, [arith.minui(place, last)]))
            return memref.load(updates, [row, *position])

        loop = scf.ForOp(begin, end, as_value(AHEAD), [memref.load(table, target)])
        loop.operation.attributes[TURNS_HINT] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), turns)
        with ir.InsertionPoint(loop.body):
            (total,) = loop.inner_iter_args
            places = [arith.addi(loop.induction_variable, as_value(number)) for number in range(AHEAD)]
            found = [load(place) for place in places]
            for number, (place, update) in enumerate(zip(places, found, strict=True)):
                values = {hash(block.arguments[0]): update, hash(block.arguments[1]): total}
                made = clone_into(block, kernel, values)[0]
                there = arith.cmpi(arith.CmpIPredicate.ult, place, end)
                total = arith.select(there, made, total) if number else made
            scf.yield_([total])
        memref.store(loop.results[0], table, target)


def _turns(op: ir.Operation, named: tuple[int, ...]) -> int:
    """How many turns the loop over a place's updates has on average, as far as it is known."""
    updates, table = (ir.MemRefType(op.operands[i].type).shape for i in (0, 2))
    keys = prod(table[dim] for dim in named)
    return max(1, -(-updates[0] // (max(1, keys) * AHEAD)))
