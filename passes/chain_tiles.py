"""Tiles in the registers of a warpgroup, made piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kitsune_mlir.chains.operands import is_multiplied
from kitsune_mlir.chains.program import LEAST_ROW_BYTES
from kitsune_mlir.dialects import schedule
from kitsune_mlir.generics import elementwise, generic, zero_tensor
from kitsune_mlir.mlir import arith, i64, ir, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.target import Target
from kitsune_mlir.traffic import element_bytes

BLOCK = 8  # columns of a piece that is computed in the background


@dataclass
class Pieces:
    """A tile in registers that is made piece by piece: `make` computes that of a number, once."""

    width: int
    each: int  # columns of a piece
    make: Callable[[int], ir.Value]
    made: dict[int, ir.Value] = field(default_factory=dict)

    def piece(self, number: int) -> ir.Value:
        if number not in self.made:
            self.made[number] = self.make(number)
        return self.made[number]

    def columns(self, first: int, end: int) -> ir.Value:
        """The tile's columns from one piece's first to another's last."""
        found = [self.piece(number) for number in range(first // self.each, -(-min(end, self.width) // self.each))]
        return found[0] if len(found) == 1 else beside(found)


def part(tile: ir.Value, first: int, count: int, wide: bool = False) -> ir.Value:
    """Columns of a tile, computed here."""
    kind = ir.RankedTensorType(tile.type)
    made = schedule.PartOp(tile, i64(first), ir.RankedTensorType.get([kind.shape[0], count], kind.element_type))
    if wide:
        made.attributes["wide"] = ir.UnitAttr.get()
    return made.results[0]


def beside(tiles: Sequence[ir.Value]) -> ir.Value:
    """Tiles side by side."""
    if len(tiles) == 1:
        return tiles[0]
    kinds = [ir.RankedTensorType(tile.type) for tile in tiles]
    type_ = ir.RankedTensorType.get([kinds[0].shape[0], sum(kind.shape[1] for kind in kinds)], kinds[0].element_type)
    return tensor.ConcatOp(type_, 1, list(tiles)).result


def zeros(count: int, columns: int) -> ir.Value:
    """A tile of f32 of so many rows that is zero."""
    return zero_tensor([count, columns], ir.F32Type.get())


def added(a: ir.Value, b: ir.Value) -> ir.Value:
    """The sum of two tiles of numbers."""
    return elementwise([a, b], element_type(a), arith.addf)


def columns_of_tile(tile: ir.Value, first: int, count: int) -> ir.Value:
    """So many columns of a tile."""
    kind = ir.RankedTensorType(tile.type)
    type_ = ir.RankedTensorType.get([kind.shape[0], count], kind.element_type)
    return tensor.ExtractSliceOp(type_, tile, [], [], [], [0, first], list(type_.shape), [1, 1]).result


def one_column(tile: ir.Value, column: int) -> ir.Value:
    """One column of a tile, for all threads of a row."""
    kind = ir.RankedTensorType(tile.type)
    row, there = ir.AffineDimExpr.get(0), ir.AffineConstantExpr.get(column)
    maps = [ir.AffineMap.get(2, 0, [row, there]), ir.AffineMap.get_identity(2)]
    start = tensor.empty([kind.shape[0], 1], kind.element_type)
    return generic([tile], [start], maps, ["parallel"] * 2, lambda x, _: x).results[0]


def engine_of(type_: ir.Type, target: Target, columns: int | None = None) -> str | None:
    """What stores a tile of this type, or so many of its columns at a time: the copy engine where its rows are whole 16
    bytes, else warps, but for narrow ones. Threads do on chips without such an engine, and where columns that are
    stored by themselves are no whole boxes, for the rest of the last box belongs to others."""
    kind = ir.RankedTensorType(type_)
    if not target.has_warpgroups or kind.rank != 2 or not is_multiplied(kind.element_type):
        return None
    if kind.is_dynamic_dim(1):
        return schedule.BY_ROWS
    alone = columns is not None and columns < kind.shape[1]
    if alone and columns * element_bytes(kind.element_type) % schedule.BOX_BYTES:
        return None
    row_bytes = kind.shape[1] * element_bytes(kind.element_type)
    if row_bytes % schedule.GRANULE == 0:
        return schedule.COPIED
    return schedule.BY_ROWS if row_bytes >= LEAST_ROW_BYTES else None
