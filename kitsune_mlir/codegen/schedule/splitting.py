"""Numbers of f32 in swizzled boxes of shared memory, as pieces of bf16 in others, or turned (kitsune.split).

A warpgroup takes 16 bytes of each piece at a time, which are 32 bytes of f32. Boxes of f32 have half as many of the
numbers of a line as those of the pieces: the first half of such a line is in one box, the other in the next.

Boxes of 32 by 32 numbers are turned each onto itself. A thread takes 4 by 4 numbers, lines q and columns c of these in
blocks. Row r of a box has its 16 bytes number u at place u ^ (r mod 8). So eight threads that load and store together
have different c, and q = c ^ s for one s: then no two of them are in the same banks, either time.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.bf16_pieces import pieces_of
from kitsune_mlir.codegen.hopper import wgmma
from kitsune_mlir.codegen.hopper.fragments import pack
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int
from kitsune_mlir.mlir import arith, ir

_CHUNK = 16  # bytes that a swizzle leaves together
_CHUNKS = wgmma.BOX_ROW // _CHUNK  # of a box's row
_LINES = wgmma.THREADS // _CHUNKS  # rows of a box of pieces that a warpgroup takes at a time
_TOGETHER = 2  # chunks of a thread, or blocks that it turns, that are loaded before any is stored
_BLOCK = 4  # numbers of a chunk of f32, and rows of a block that a thread turns
_BOX_BYTES = _CHUNKS * _BLOCK * wgmma.BOX_ROW  # of numbers that are turned


def split(source: Int, targets: Sequence[Int], lines: int, length: int, thread: ir.Value) -> None:
    """`source` and `targets` are where slots begin, whose boxes have `lines` rows and `length` numbers of each in all;
    `thread` is the thread's number in the warpgroup, all of which come here."""
    line, chunk = device.div(thread, _CHUNKS), device.value(device.mod(thread, _CHUNKS))
    turn, row = device.value(device.mod(line, _CHUNKS)), device.mul(line, wgmma.BOX_ROW)
    box = lines * wgmma.BOX_ROW
    own = device.add(row, device.mul(arith.xori(chunk, turn), _CHUNK))
    half = device.add(row, device.mul(device.div(chunk, _CHUNKS // 2), box))
    first = device.value(device.mul(device.mod(chunk, _CHUNKS // 2), 2))
    given = [device.mul(arith.xori(device.value(device.add(first, h)), turn), _CHUNK) for h in (0, 1)]
    froms = [device.add(source, device.add(half, place)) for place in given]
    tos = [device.add(target, own) for target in targets]
    places = [(number, at) for number in range(length // wgmma.CHUNK) for at in range(0, lines, _LINES)]
    for start in range(0, len(places), _TOGETHER):
        some = places[start : start + _TOGETHER]
        moved = [number * box + at * wgmma.BOX_ROW for number, at in some]
        loaded = [
            _load(froms, place + number * box) for (number, _), place in zip(some, moved, strict=True)
        ]  # of two boxes each
        for numbers, place in zip(loaded, moved, strict=True):
            for to, piece in zip(tos, zip(*(pieces_of(x, len(tos)) for x in numbers)), strict=True):
                _store(piece, device.add(to, place))


def turn(source: Int, target: Int, nbytes: int, thread: ir.Value) -> None:
    """Slots of so many bytes begin at `source` and `target`; `thread` is as `split` has it."""
    column, number = device.value(device.mod(thread, _CHUNKS)), device.div(thread, _CHUNKS)
    line = arith.xori(column, device.value(device.mod(number, _CHUNKS)))
    half = device.mul(device.div(number, _CHUNKS), _BOX_BYTES)  # half of the threads have every other box
    froms, tos = _rows_of_block(source, half, line, column), _rows_of_block(target, half, column, line)
    each = wgmma.THREADS // _CHUNKS**2 * _BOX_BYTES
    for first in range(0, nbytes, _TOGETHER * each):
        starts = range(first, min(first + _TOGETHER * each, nbytes), each)
        blocks = [[_load([place], start) for place in froms] for start in starts]
        for start, rows in zip(starts, blocks, strict=True):
            for turned, place in zip(zip(*rows, strict=True), tos, strict=True):
                device.store_together(turned, device.shared(device.add(place, start)))


def _rows_of_block(slot: Int, box: Int, line: ir.Value, chunk: ir.Value) -> list[Int]:
    """Where the four rows of a block begin: rows 4 `line` and on of a box, its 16 bytes of number `chunk`."""
    first = device.add(device.add(slot, box), device.mul(line, _BLOCK * wgmma.BOX_ROW))
    turned = arith.xori(chunk, device.value(device.mul(device.mod(line, 2), _BLOCK)))
    places = [device.mul(arith.xori(turned, device.value(row)), _CHUNK) for row in range(_BLOCK)]
    return [device.add(device.add(first, place), row * wgmma.BOX_ROW) for row, place in enumerate(places)]


def _load(places: Sequence[Int], offset: int) -> list[ir.Value]:
    found = (device.shared(device.add(place, offset)) for place in places)
    return [x for place in found for x in device.load_together(place, _BLOCK, ir.F32Type.get())]


def _store(numbers: Sequence[ir.Value], place: Int) -> None:
    words = [pack(low, high, ir.BF16Type.get()) for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
    device.store_together(words, device.shared(place))
