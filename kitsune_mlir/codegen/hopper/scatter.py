"""Rows that are added to rows of a table in global memory, straight from registers (PTX ISA, red).

Four threads have a row together, of each block of 8 columns two each (fragments.py). Neighbours exchange halves of two
blocks, so that each adds four neighbouring columns at once: the L2 does as many operations a second whatever they add.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, gpu, ir

from .fragments import BLOCK, HALVES, Fragment, blocks_of

TOGETHER = 4  # columns
_AHEAD = 8  # blocks that a thread computes before it adds them
_WARP = 32


def add_rows(
    tile: Fragment, table: ir.Value, to: Sequence[ir.Value], exists: Sequence[ir.Value], columns: int, width: int
) -> None:
    """Adds `columns` columns of a tile of f32 to a table (address) of `width` columns. For each of a thread's two rows
    `to` (i64) is the table's row, and `exists` (i1) whether the tile has the row."""
    f32, i64 = ir.F32Type.get(), ir.IntegerType.get_signless(64)
    odd = arith.cmpi(arith.CmpIPredicate.ne, arith.andi(tile.lanes.pair, device.value(2)), device.value(0))
    # A thread's four columns: of the even block for an even thread of the row, of the odd one for an odd thread.
    shift = arith.select(odd, device.value(BLOCK - 2), device.value(0))
    first = arith.addi(tile.lanes.pair, shift)
    starts = []
    for row in to:
        place = arith.addi(arith.muli(row, arith.constant(i64, width)), arith.extui(i64, first))
        starts.append(device.offset(table, place, f32))
    blocks = list(range(blocks_of(columns)))
    for begin in range(0, len(blocks), _AHEAD):
        group = blocks[begin : begin + _AHEAD]
        for block in group:
            tile.make(block)
        for h in HALVES:
            fours = [(block, _four(tile, block, h, odd)) for block in group[::2]]
            for block, four in fours:
                at = device.offset(starts[h], BLOCK * block, f32)
                inside = exists[h]
                if device.is_less(tile.lanes.column(block + 1, 1), width) is not True:
                    column = arith.addi(first, device.value(BLOCK * block))
                    inside = arith.andi(inside, device.less(column, width))
                _add(at, four, inside)


def _four(tile: Fragment, block: int, half: int, odd: ir.Value) -> list[ir.Value]:
    """Four neighbouring columns of a thread's row, of this block or the next."""
    lower, upper = ([tile.f32(b, half, e) for e in (0, 1)] for b in (block, block + 1))
    given = [arith.select(odd, a, b) for a, b in zip(lower, upper)]
    kept = [arith.select(odd, b, a) for a, b in zip(lower, upper)]
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    taken = [gpu.ShuffleOp(x, device.value(1), device.value(_WARP), mode).results[0] for x in given]
    first = [arith.select(odd, b, a) for a, b in zip(kept, taken)]
    last = [arith.select(odd, a, b) for a, b in zip(kept, taken)]
    return [*first, *last]


def _add(place: ir.Value, four: Sequence[ir.Value], inside: ir.Value) -> None:
    """Where `inside` holds."""
    text = """{
.reg .pred inside;
setp.ne.u32 inside, $5, 0;
@inside red.relaxed.gpu.global.add.v4.f32 [$0], {$1, $2, $3, $4};
}"""
    held = arith.extui(device.i32(), inside)
    device.assembly(text, "l,f,f,f,f,r,~{memory}", [place, *four, held], None)
