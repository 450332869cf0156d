"""Rows that are added to rows of a table in global memory (PTX ISA, red); those that meet in a tile are summed before.

A warp lays 64 columns of its 16 rows out in its part of two boxes (stores.py). Then a thread takes four neighbouring
columns of eight rows, one after another: it sums while rows go to the same row of the table, and adds the sum where the
next goes to another. So 16 threads add 256 bytes of a row together. Rows in the order of the table's rows, about six
for each, are 2.2 additions for 8, in any other order 8; the L2 does as many operations a second whatever they add.
A segmented scan by shuffles would be 96 of them for 64 columns, a thread's, beside as many selections and sums; here
they are 16 stores, 8 loads and 64 selections and sums, and no registers but those of four columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

from . import warps
from .fragments import BLOCK, HALVES, ROW_THREADS, Fragment, blocks_of
from .stores import BOX_BYTES, BOXES, WARP_ROWS, Boxes, Outbox
from .wgmma import BOX_ROW

TOGETHER = 4  # columns that a thread adds at once
_F32 = 4  # bytes
_BOX_COLUMNS = BOX_ROW // _F32
_COLUMNS = BOXES * _BOX_COLUMNS  # that a warp lays out at once
_ROWS = WARP_ROWS // 2  # that a thread sums: half of its warp has the others
_SWIZZLED = 32  # bytes of a row that stay together: a block's columns
_BLOCKS = BOX_ROW // _SWIZZLED
_NOWHERE = -1  # the number of a row of the table that is none


def add_rows(
    tile: Fragment,
    table: ir.Value,
    to: Sequence[ir.Value],
    exists: Sequence[ir.Value],
    columns: int,
    start: Int,
    outbox: Outbox,
) -> None:
    """Adds `columns` columns of a tile of f32, from column `start` on, to a table (address) as wide as the tile. For
    each of a thread's two rows `to` (i64) is the table's row, below 2^31, and `exists` (i1) whether the tile has the
    row. All threads of the warpgroup; what left through its outbox before has been read."""
    numbers, boxes = _numbers(to, exists), Boxes.of(warps.thread(), outbox.boxes.leader)
    half, place = device.div(boxes.lane, warps.WARP // 2), device.mod(boxes.lane, warps.WARP // 2)
    local = device.mul(place, TOGETHER)  # the thread's first column of those laid out
    room = device.value(device.add(outbox.box(0), device.mul(boxes.warp, WARP_ROWS * BOX_ROW)))
    outbox.free()
    for first in range(0, columns, _COLUMNS):
        if first:
            warps.sync()  # all have read what was laid out before
        _lay_out(tile, first // BLOCK, min(blocks_of(columns), (first + _COLUMNS) // BLOCK), room, boxes)
        warps.sync()
        column = device.value(device.add(device.add(local, first), start))
        inside, read = device.less(column, tile.width), local
        if columns - first < _COLUMNS:
            inside = arith.andi(inside, device.less(local, columns - first))
            read = device.least(local, columns - first - TOGETHER)  # what is laid out, in any case
        at = device.offset(table, arith.extui(ir.IntegerType.get_signless(64), column), ir.F32Type.get())
        _walk(_rows(room, read, half), numbers, at, tile.width, inside)
    warps.sync()  # others may write there next


def _numbers(to: Sequence[ir.Value], exists: Sequence[ir.Value]) -> list[ir.Value]:
    """For the rows that a thread sums, in order, the table's rows (i32): those of its half of the warp. Of the four
    threads that have a row of each half, the first two tell."""
    i32 = device.i32()
    first, second = (
        arith.select(there, arith.trunci(i32, row), device.value(_NOWHERE)) for row, there in zip(to, exists)
    )
    lane = warps.lane()
    told = arith.select(device.equal(device.mod(lane, 2), 0), first, second)
    half = device.div(lane, warps.WARP // 2)
    return [warps.hand(told, device.add(half, ROW_THREADS * row)) for row in range(_ROWS)]


def _lay_out(tile: Fragment, begin: int, end: int, room: ir.Value, boxes: Boxes) -> None:
    """Writes the blocks from `begin` to `end` of the warp's rows. Block b of row r lies at block b ^ (r mod 4) of the
    row's 128 bytes: four rows that are written together, and all of a row that is read, lie in all banks."""
    row = device.mod(boxes.own_row, BLOCK)
    within = device.add(device.mul(device.mod(row, _BLOCKS), _SWIZZLED), device.mul(boxes.pair, _F32))
    place = device.value(device.add(device.add(room, device.mul(row, BOX_ROW)), within))
    for block in range(begin, end):
        box, number = divmod(block - begin, _BLOCKS)
        four = [tile.f32(block, h, e) for h in HALVES for e in (0, 1)]
        text = f"""{{
.reg .b32 place;
xor.b32 place, $0, {number * _SWIZZLED};
add.s32 place, place, {box * BOX_BYTES};
st.shared.v2.f32 [place], {{$1, $2}};
add.s32 place, place, {BLOCK * BOX_ROW};
st.shared.v2.f32 [place], {{$3, $4}};
}}"""
        device.assembly(text, place, *four)


def _rows(room: ir.Value, local: Int, half: Int) -> list[list[ir.Value]]:
    """A thread's four columns, from column `local` of those laid out on, of each of its rows."""
    box, within = device.div(local, _BOX_COLUMNS), device.mul(device.mod(local, _BOX_COLUMNS), _F32)
    start = device.add(device.add(room, device.mul(box, BOX_BYTES)), device.mul(half, _ROWS * BOX_ROW))
    found = []
    for row in range(_ROWS):
        swizzled = arith.xori(device.value(within), device.value(row % _BLOCKS * _SWIZZLED))
        at = device.shared(device.add(start, device.add(swizzled, row * BOX_ROW)))
        found.append(device.load_together(at, TOGETHER, ir.F32Type.get()))
    return found


def _walk(rows: list[list[ir.Value]], numbers: list[ir.Value], table: ir.Value, width: int, inside: ir.Value) -> None:
    """Sums rows while they have the same number, and adds each sum to that row of the table, at the thread's column."""
    total = rows[0]
    for at, number in enumerate(numbers):
        place, added = device.further(table, number, width, ir.F32Type.get()), device.differs(number, _NOWHERE)
        if at + 1 == len(numbers):
            _add(place, total, arith.andi(inside, added))
            return
        ends = device.differs(number, numbers[at + 1])
        _add(place, total, arith.andi(inside, arith.andi(added, ends)))
        total = [arith.select(ends, x, arith.addf(x, y)) for x, y in zip(rows[at + 1], total)]


def _add(place: ir.Value, four: Sequence[ir.Value], inside: ir.Value) -> None:
    """Where `inside` holds."""
    text = device.where(5, "red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};")
    device.assembly(text, place, *four, inside)
