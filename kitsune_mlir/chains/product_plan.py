"""One product of a chained pipeline as plain data: its columns, its left operand's tiles, the order of its chunks."""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.codegen.hopper.wgmma import BOX_ROW
from kitsune_mlir.codegen.pipeline.loops import is_zero
from kitsune_mlir.mlir import ir

Turn = tuple[int, ...]  # the sets of sums that a product's chunks are multiplied for, one after another


@dataclass(frozen=True)
class Segment:
    """Columns of a product's left operand: those of the tile `value`, which meet the columns of the weight
    from `start` on; `parts` times `width` of them, an exchanged tile having a part for each CTA of the cluster. A tile
    that `streams` comes through shared memory, one that is `gathered` as rows of a table. Elements have `nbytes` bytes;
    an f32 weight lies in shared memory in `pieces` (tf32.py), one after another."""

    value: ir.Value
    start: int
    width: int
    streams: bool = False
    parts: int = 1
    nbytes: int = 2
    pieces: int = 1
    gathered: bool = False

    @property
    def chunk_columns(self) -> int:
        return BOX_ROW // self.nbytes

    @property
    def chunks(self) -> int:
        return -(-self.width // self.chunk_columns)

    @property
    def legs(self) -> list[range]:
        """Its chunks in the order of the products: of an exchanged tile, which is computed in two halves, those of the
        first half, the own CTA's and the others', come first."""
        if self.parts == 1:
            return [range(self.chunks)]
        return [range(self.chunks // 2), range(self.chunks // 2, self.chunks)]


@dataclass
class Product:
    """One product: `n` columns of a CTA, in `sets` sets of registers of `columns` columns each, or else in passes."""

    op: ir.Operation
    n: int
    columns: int
    segments: list[Segment]
    sets: int = 1

    @property
    def nbytes(self) -> int:
        """The bytes of an element of the operands."""
        return self.segments[0].nbytes

    @property
    def chunks(self) -> int:
        """The chunks of all its segments."""
        return sum(segment.chunks for segment in self.segments)

    @property
    def passes(self) -> int:
        return -(-self.n // self.pass_columns)

    @property
    def pass_columns(self) -> int:
        return self.columns * self.sets

    def turns(self) -> list[Turn]:
        """In which order. Set after set, so that one set's columns are worked on while the next is multiplied. A chunk
        that is streamed is multiplied for every set while it is there."""
        sets = range(self.sets)
        if any(segment.streams for segment in self.segments):
            return [tuple(sets)]
        return [(number,) for number in sets]

    @property
    def undisturbed(self) -> int:
        """Chunks that can be multiplied before other CTAs must have been sent all of the tile that they read."""
        return sum(len(leg) * segment.parts for segment in self.segments for leg in segment.legs[:-1]) + sum(
            len(segment.legs[-1]) for segment in self.segments
        )


def starts_from_zero(op: ir.Operation) -> bool:
    """Whether a product's sums begin with zero, not with a tile."""
    init = rows.init_of(op.operands[2])
    return init.scalar is not None and is_zero(init.scalar)
