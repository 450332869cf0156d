"""Operands of mma.sync out of swizzled boxes in shared memory: ldmatrix (PTX ISA, Warp Level Matrix Load Instruction).

A box has rows of 128 bytes, 64 elements of 16 bits; the 16-byte chunk c of row r lies at chunk c ^ (r mod 8), the form
that tensor copies give a box too (hopper/tma.py). The rows of an operand's box are those of the product (of B: its
columns) with k along them; or, where the operand lies *across*, those of k: then boxes of 64 rows of the product follow
one another, and ldmatrix transposes what it loads.

A load is of four 8 x 8 matrices, to which lanes 8i to 8i + 7 give the addresses of rows: of A the four words of 16 rows
and 16 columns of k, in the order of mma.sync; of B two words each of two neighbouring blocks of 8 columns. The 16 rows
(of B: columns) are a tile, 16 of k a step: a lane's address for another tile or step is an xor and a distance away.
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

BOX_ROW = 128  # bytes
CHUNK = 64  # elements of a box's row
BOX = CHUNK * BOX_ROW  # bytes of a box of 64 rows
GRANULE = 16  # bytes that stay together
STEPS = CHUNK // 16  # of 16 columns of k, in a box
_TILE = 16  # rows of the product, or columns of k, that are loaded together
_MATRIX = 8
_ACROSS_TILES = CHUNK // _TILE  # tiles in a box whose rows are those of k


@dataclass(frozen=True)
class Boxes:
    """A lane's way to an operand: `place` is its address in the first tile and step, `across` whether the boxes' rows
    are those of k."""

    place: ir.Value
    across: bool

    def load(self, tile: int, step: int) -> list[ir.Value]:
        """The four words of a tile and a step."""
        if self.across:
            number, within = divmod(tile, _ACROSS_TILES)
            turned, further = within * 2 * GRANULE, number * BOX + step * _TILE * BOX_ROW
        else:
            turned, further = step * 2 * GRANULE, tile * _TILE * BOX_ROW
        return load_matrices(self.place, turned, further, self.across)


def load_matrices(place: Int, turned: int, further: int = 0, across: bool = False) -> list[ir.Value]:
    """The four words of what begins an xor and a distance away from a lane's place. The address is computed in the
    instruction's own text, for what is computed ahead of a loop takes registers there."""
    lines = ["{", ".reg .b32 place;", f"xor.b32 place, $4, {turned};"]
    if further:
        lines.append(f"add.s32 place, place, {further};")
    turns = ".trans" if across else ""
    lines += [f"ldmatrix.sync.aligned.m8n8.x4{turns}.shared.b16 {{$0, $1, $2, $3}}, [place];", "}"]
    return device.assembled("\n".join(lines), [device.i32()] * 4, place)


def left(start: Int, first: Int, lane: Int, across: bool) -> Boxes:
    """A, whose boxes begin at `start` (a multiple of 1024); of its rows those from `first` on, a multiple of 16 and of
    what a warp has in all."""
    inner, matrix = device.mod(lane, _MATRIX), device.div(lane, _MATRIX)
    second, last = device.mod(matrix, 2), device.div(matrix, 2)  # half of the rows, half of the step
    if not across:
        row = device.add(device.add(first, inner), device.mul(second, _MATRIX))
        return Boxes(_place(start, row, last, inner), across)
    box = device.add(start, device.mul(device.div(first, CHUNK), BOX))
    granule = device.add(device.div(device.mod(first, CHUNK), _MATRIX), second)
    return Boxes(_place(box, device.add(inner, device.mul(last, _MATRIX)), granule, inner), across)


def right(start: Int, lane: Int, across: bool) -> Boxes:
    """B, whose boxes begin at `start` (a multiple of 1024)."""
    inner, matrix = device.mod(lane, _MATRIX), device.div(lane, _MATRIX)
    second, last = device.mod(matrix, 2), device.div(matrix, 2)  # half of the step, block of columns
    outer, granule = (second, last) if across else (last, second)
    return Boxes(_place(start, device.add(inner, device.mul(outer, _MATRIX)), granule, inner), across)


def swizzled(row: Int, granule: Int) -> Int:
    """Where a granule of a row lies in a box."""
    turned = arith.xori(device.value(granule), device.value(device.mod(row, _MATRIX)))
    return device.add(device.mul(row, BOX_ROW), device.mul(turned, GRANULE))


def _place(start: Int, row: Int, granule: Int, turn: Int) -> ir.Value:
    """Where a granule of a row lies, given the row modulo 8."""
    swizzled = arith.xori(device.value(granule), device.value(turn))
    return device.value(
        device.add(device.add(start, device.mul(row, BOX_ROW)), device.mul(swizzled, GRANULE)),
    )
