"""Rows that are written to rows of an output in another order, from the registers of a warpgroup.

A warp lays 128 bytes of its 16 rows out in its part of a box (stores.py), then eight threads write those of one row
together, 16 bytes each: four rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir
from kitsune_mlir.traffic import element_bytes

from . import warps
from .fragments import BLOCK, ROW_THREADS, Fragment
from .stores import SWIZZLED, WARP_ROWS, Boxes, Outbox, boxes_of
from .wgmma import BOX_ROW

_CHUNKS = BOX_ROW // SWIZZLED  # threads that write a row's 128 bytes
_ROWS = warps.WARP // _CHUNKS  # that are written at once
_NOWHERE = -1


def place_rows(
    tile: Fragment, output: ir.Value, to: Sequence[ir.Value], exists: Sequence[ir.Value], columns: int, start: Int,
    outbox: Outbox,
) -> None:  # fmt: skip
    """Writes `columns` columns of a tile, from column `start` on, to an output (address) as wide as the tile, with rows
    of a multiple of 16 bytes. For each of a thread's two rows `to` (i32) is the output's row, and `exists` (i1) whether
    the tile has the row. All threads of the warpgroup; what left through its outbox before has been read."""
    boxes, nbytes = Boxes.of(warps.thread(), outbox.boxes.leader), element_bytes(tile.element)
    chunk, first = device.mod(boxes.lane, _CHUNKS), device.value(device.div(boxes.lane, _CHUNKS))
    numbers = _numbers(to, exists, first)
    outbox.free()
    each = SWIZZLED // nbytes  # columns of a thread
    for box in range(boxes_of(columns, nbytes)):
        outbox.write(tile, box)
        warps.sync()  # behind it all have read what lay in the other box, which comes next
        local = device.value(device.add(device.mul(chunk, each), box * BOX_ROW // nbytes))
        column = device.value(device.add(local, start))
        inside = arith.andi(device.less(local, columns), device.less(column, tile.width))
        rows = device.add(outbox.box(box), device.mul(boxes.warp, WARP_ROWS * BOX_ROW))
        for turn, number in enumerate(numbers):
            row = device.value(device.add(first, turn * _ROWS))
            swizzled = device.mul(arith.xori(device.value(chunk), device.value(device.mod(row, BLOCK))), SWIZZLED)
            at = device.shared(device.add(device.add(rows, device.mul(row, BOX_ROW)), swizzled))
            words = device.load(at, ir.VectorType.get([SWIZZLED // 4], device.i32()), align=SWIZZLED)
            exists_here = device.differs(number, _NOWHERE)
            with device.when(arith.andi(inside, exists_here)):
                device.store(words, _place(output, number, column, tile), align=SWIZZLED)
    warps.sync()  # others may write there next


def _numbers(to: Sequence[ir.Value], exists: Sequence[ir.Value], first: ir.Value) -> list[ir.Value]:
    """The output's rows (i32) of those that a thread writes, one turn after another: the first of the four threads that
    have a row tells."""
    told = [arith.select(there, row, device.value(_NOWHERE)) for row, there in zip(to, exists)]
    return [
        warps.hand(told[row // BLOCK], device.mul(device.add(first, row % BLOCK), ROW_THREADS))
        for row in range(0, WARP_ROWS, _ROWS)
    ]


def _place(output: ir.Value, number: ir.Value, column: ir.Value, tile: Fragment) -> ir.Value:
    i64 = ir.IntegerType.get_signless(64)
    row = arith.muli(arith.extui(i64, number), arith.constant(i64, tile.width))
    return device.offset(output, arith.addi(row, arith.extui(i64, column)), tile.element)
