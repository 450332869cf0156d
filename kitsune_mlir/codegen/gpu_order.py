"""kitsune.order -> kernels: a stable sort of rows by their keys (gpu_radix.py).

A key that is none is taken for the one behind the last, so that every row has a place in any case. Vectors that are
carried come along; keys in order are made of what the sort knows of them, and one that is none is read again.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.dialects.checks import constant
from kitsune_mlir.generics import extended
from kitsune_mlir.mlir import arith, func, ir, memref, replace_op, walk

from .gpu_kernel import Kernel, Kernels, Size, as_value, extent
from .gpu_radix import RadixSort
from .outlined import callee, outlined
from .pipeline import device

CALL = "kitsune_order"  # what a kitsune.order is a call of while tensors become buffers


def outline_orders(module: ir.Module, main: func.FuncOp) -> None:
    """Makes calls of kitsune.orders, which bufferization takes for calls of code from elsewhere. Behind the keys and
    their count a call is given the vectors that are no keys; keys in order are its last result."""
    for position, op in enumerate(walk(main, "kitsune.order")):
        keys, count, *carried = op.operands
        others = [number for number, vector in enumerate(carried) if vector != keys]
        given = [keys, count, *(carried[number] for number in others)]
        results = [op.results[0].type, op.results[1].type] + [keys.type] * (len(others) + (len(others) < len(carried)))
        _, call = outlined(module, op, f"{CALL}{position}", given, results)
        moved = {number: call.results[2 + i] for i, number in enumerate(others)}
        made = [*call.results[:2], *(moved.get(i, call.results[len(results) - 1]) for i in range(len(carried)))]
        replace_op(op, *made)


def lower_orders(main: func.FuncOp, kernels: Kernels) -> None:
    """Puts the kernels' launches in the place of such calls."""
    for op in walk(main, "func.call"):
        if callee(op).startswith(CALL):
            _lower(op, kernels)


def _lower(op: ir.Operation, kernels: Kernels) -> None:
    keys, count, *others = op.operands
    with op.context, op.location, ir.InsertionPoint(op):
        size = extent(keys, 0)
        dynamic = [] if isinstance(size, int) else [size]
        made = [memref.alloc(result.type, dynamic, []) for result in op.results]
    places = made[1] if list(op.results[1].uses) else None
    known = constant(count)
    order = _Order(keys, count if known is None else known, made[0], places, made[2:], len(others))
    sort = RadixSort(
        kernels, op, "order", size, order.count, order.key, order.write_row, others, order.write_carried
    )  # fmt: skip
    sort.launch()
    replace_op(op, *made)


@dataclass(frozen=True)
class _Order:
    """Rows' keys, which are less than `count`, and what is made of their order: the vectors `moved` are the `others`
    that the sort carries, and behind them keys where anybody wants them."""

    keys: ir.Value
    count: Size
    rows: ir.Value
    places: ir.Value | None
    moved: list[ir.Value]
    others: int

    def key(self, kernel: Kernel, row: ir.Value, _: bool) -> ir.Value:
        i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)
        key = memref.load(kernel.inside(self.keys), [row])
        wide = extended(key, i64)
        return arith.trunci(i32, arith.minui(wide, arith.index_castui(i64, self._none(kernel))))

    def write_row(self, kernel: Kernel, place: ir.Value, row: ir.Value, key: ir.Value) -> None:
        memref.store(row, kernel.inside(self.rows), [place])
        number = arith.index_castui(ir.IndexType.get(), row)
        if self.places is not None:
            memref.store(arith.index_cast(row.type, place), kernel.inside(self.places), [number])
        for into in self.moved[self.others :]:
            element = ir.MemRefType(into.type).element_type
            is_none = arith.cmpi(arith.CmpIPredicate.eq, key, arith.index_cast(key.type, self._none(kernel)))
            own = device.choose(
                is_none,
                element,
                lambda: memref.load(kernel.inside(self.keys), [number]),
                lambda kind=element: key if kind == key.type else arith.extui(kind, key),
            )
            memref.store(own, kernel.inside(into), [place])

    def write_carried(self, kernel: Kernel, position: int, place: ir.Value, value: ir.Value) -> None:
        memref.store(value, kernel.inside(self.moved[position]), [place])

    def _none(self, kernel: Kernel) -> ir.Value:
        """The key of rows that have none."""
        return as_value(self.count) if isinstance(self.count, int) else kernel.inside(self.count)
