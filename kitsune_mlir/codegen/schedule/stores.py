"""Tiles that leave a warpgroup's registers for global memory, each thread its part of two rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.hopper.fragments import BLOCK, Lanes, blocks_of, halves, is_packed, pack
from kitsune_mlir.codegen.hopper.quads import QUAD, transposed
from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.device import Int, Offset
from kitsune_mlir.codegen.pipeline.evaluate import Evaluator
from kitsune_mlir.mlir import arith, ir

from .boxes import GlobalBox

_TOGETHER = 8  # pairs of columns that a thread computes before it stores them


@dataclass(frozen=True)
class Half:
    """One of a thread's two rows of a tile: what is known of it."""

    row: ir.Value
    evaluator: Evaluator


@dataclass(frozen=True)
class RowNumbers:
    """A number for each of a thread's rows, whatever the column that is asked for."""

    numbers: Sequence[tuple[ir.Value, ir.Value]]  # rows, and what is known of them

    def load(self, index: Sequence[Int]) -> ir.Value:
        return next(number for row, number in self.numbers if row == index[0])


@dataclass(frozen=True)
class Place:
    """An index that bodies of operators take from around them."""

    number: Int

    def load(self, index: Sequence[Int]) -> ir.Value:
        return arith.index_cast(ir.IndexType.get(), device.value(self.number))


def column(box: GlobalBox, halves: Sequence[Half], lanes: Lanes, tile: ir.Value, here: ir.Value | None = None) -> None:
    """A number for each row, which one of the threads that share the row stores, where `here` (i1) holds."""
    rank = ir.RankedTensorType(tile.type).rank
    for half in halves:
        first = [lanes.column(0, 0)] * (rank - 1)
        x = half.evaluator(tile, [half.row, *first])
        stores = arith.andi(box.is_inside(0, half.row), device.equal(lanes.pair, 0))
        with device.when(stores if here is None else arith.andi(stores, here)):
            box.store([half.row, *[0] * (rank - 1)], x)


def tile(box: GlobalBox, halves: Sequence[Half], lanes: Lanes, value: ir.Value, first_column: int) -> None:
    """Rows and columns of a tile whose first column a multiple of `first_column` is. Where it can be, a thread stores
    eight columns of a row at once, the last blocks that are no four in pairs."""
    blocks = range(blocks_of(ir.RankedTensorType(value.type).shape[1]))
    words = len(blocks) // QUAD * QUAD if box.takes_words and first_column % BLOCK == 0 else 0
    for half in halves:
        for first in blocks[:words:_TOGETHER]:
            _words(box, half, lanes, value, blocks[first : min(first + _TOGETHER, words)])
        for first in blocks[words::_TOGETHER]:
            _pairs(box, half, lanes, value, blocks[first : first + _TOGETHER])


def _words(box: GlobalBox, half: Half, lanes: Lanes, value: ir.Value, blocks: Sequence[int]) -> None:
    """Blocks of columns, a block of a row a thread, for which the four that share it exchange their pairs. All are
    computed, by all threads, then all stored, for no load can pass a store before it."""
    pairs = [pack(*pair, box.element) for _, pair in _computed(half, lanes, value, blocks)]
    lane = device.div(lanes.pair, 2)
    own = [transposed(pairs[i : i + QUAD], lane) for i in range(0, len(pairs), QUAD)]
    start = device.mul(lanes.pair, BLOCK // 2)
    with box.where_inside(0, half.row):
        for block, whole in zip(blocks[::QUAD], own, strict=True):
            column = Offset(start, BLOCK * block)
            with box.where_inside(1, column):
                box.store_word([half.row, column], whole)


def _pairs(box: GlobalBox, half: Half, lanes: Lanes, value: ir.Value, blocks: Sequence[int]) -> None:
    """Blocks of columns, of each of which a thread stores its pair."""
    computed = _computed(half, lanes, value, blocks)
    with box.where_inside(0, half.row):
        for column, pair in computed:
            if box.takes_pairs:
                with box.where_inside(1, column):
                    box.store_pair([half.row, column], pair)
                continue
            # Numbers of 16 bits are made in pairs, too: ptxas joins conversions that it finds apart, and has moved
            # such a one of sums in front of the wait for the products (13.0).
            both = halves(*pair, box.element) if is_packed(box.element) else pair
            for c, x in zip((column, column.moved(1)), both, strict=True):
                with box.where_inside(1, c):
                    box.store([half.row, c], x)


def _computed(half: Half, lanes: Lanes, value: ir.Value, blocks: Sequence[int]) -> list[tuple[Offset, list[ir.Value]]]:
    """The first of a thread's two columns of each block, and what it computes of both."""
    evaluator = half.evaluator.fork(nested=False)
    columns = [lanes.column(block, 0) for block in blocks]
    return [(column, [evaluator(value, [half.row, c]) for c in (column, column.moved(1))]) for column in columns]
