"""Sorts on a CPU: runs of each row are merged, two by two, as indices; equal elements stay in their order.

    tm_tensor.sort dimension(1) outs(%keys, %others : memref<8x300xf32>, ...)
  =>
    for each row:  a = 0, 1, ..., 299;   of runs of 1, 2, 4, ... 256 of a, pairs are merged into b, which is a then;
                   %keys, %others = what stands at a[0], a[1], ...

Others than of rows of a known size upstream's loops swap, neighbours one after another.
"""

from __future__ import annotations

import contextlib

from kitsune_mlir.mlir import arith, attr_int, clone_on, ir, memref, scf, walk
from kitsune_mlir.operations import operations_of

from .cpu_build import dim, each, index, least

LEAST = 2  # elements of a row
_P = arith.CmpIPredicate


def lower_sorts(module: ir.Module) -> None:
    """Puts loops in the place of each tm_tensor.sort on memrefs of rows of a known size."""
    for op in walk(module, "tm_tensor.sort"):
        kind = ir.MemRefType(op.operands[0].type)
        size = kind.shape[kind.rank - 1]
        if attr_int(op, "dimension") == kind.rank - 1 and size >= LEAST:
            with op.location, ir.InsertionPoint(op):
                _Rows(op, size).sort()
            op.erase()


class _Rows:
    """The rows of a sort's tensors, and what it goes through them with."""

    def __init__(self, op: ir.Operation, size: int):
        self._block, self._buffers, self._size = op.regions[0].blocks[0], list(op.operands), size
        self._outer = list[ir.Value]()
        self._kind = ir.IntegerType.get_signless(64)
        self._orders = [memref.alloc(ir.MemRefType.get([size], self._kind), [], []) for _ in range(2)]
        kinds = [ir.MemRefType(buffer.type).element_type for buffer in self._buffers]
        self._rows = [memref.alloc(ir.MemRefType.get([size], kind), [], []) for kind in kinds]

    def sort(self) -> None:
        """Builds the loops."""
        whole, turns = self._buffers[0], contextlib.ExitStack()
        with turns:
            for d in range(ir.MemRefType(whole.type).rank - 1):
                self._outer.append(turns.enter_context(each(index(0), dim(whole, d))))
            self._sort_row()

    def _sort_row(self) -> None:
        source, target = self._orders
        with each(index(0), index(self._size)) as i:
            for buffer, row in zip(self._buffers, self._rows, strict=True):
                memref.store(memref.load(buffer, [*self._outer, i]), row, [i])
            memref.store(arith.index_cast(self._kind, i), source, [i])
        run = 1
        while run < self._size:
            with each(index(0), index(self._size), 2 * run) as first:
                self._merge(first, run, source, target)
            source, target, run = target, source, 2 * run
        with each(index(0), index(self._size)) as i:
            at = self._place(source, i)
            for buffer, row in zip(self._buffers, self._rows, strict=True):
                memref.store(memref.load(row, [at]), buffer, [*self._outer, i])

    def _merge(self, first: ir.Value, run: int, source: ir.Value, target: ir.Value) -> None:
        """Two runs from there on, of `run` elements each, or what is left."""
        middle, end = (least(arith.addi(first, index(n * run)), index(self._size)) for n in (1, 2))
        loop = scf.ForOp(first, end, index(1), [first, middle])
        with ir.InsertionPoint(loop.body):
            i, j = loop.inner_iter_args
            left, right = (self._place(source, least(at, index(self._size - 1))) for at in (i, j))
            a, b = (memref.load(self._rows[0], [at]) for at in (left, right))
            yes = arith.constant(ir.IntegerType.get_signless(1), 1)
            stays = arith.ori(self._before(a, b), arith.xori(self._before(b, a), yes))
            is_left, is_over = arith.cmpi(_P.ult, i, middle), arith.cmpi(_P.uge, j, end)
            takes = arith.andi(is_left, arith.ori(is_over, stays))
            taken = arith.index_cast(self._kind, arith.select(takes, left, right))
            memref.store(taken, target, [loop.induction_variable])
            step = arith.index_castui(ir.IndexType.get(), takes)
            scf.yield_([arith.addi(i, step), arith.addi(j, arith.subi(index(1), step))])

    def _place(self, order: ir.Value, number: ir.Value) -> ir.Value:
        return arith.index_cast(ir.IndexType.get(), memref.load(order, [number]))

    def _before(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """Whether a key may stand before another one."""
        values: dict[ir.Value, ir.Value | None] = dict(zip(list(self._block.arguments)[:2], (a, b), strict=True))
        *body, end = operations_of(self._block)
        for op in body:
            clone_on(op, values)
        found = values[end.operands[0]]
        assert found is not None
        return found
