"""One product of a chained pipeline as plain data: its columns, its left operand's tiles, the order of its chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from kitsune_mlir.mlir import ir

from .packing import packed_width
from .wgmma import BOX_ROW, STEP_BYTES

Turn = tuple[int, ...]  # the sets of sums that a product's chunks are multiplied for, one after another


@dataclass(frozen=True)
class Segment:
    """Columns of a product's left operand: those of the tile `value`, which meet the columns of the weight
    from `start` on; `parts` times `width` of them, an exchanged tile having a part for each CTA of the cluster. `map`
    is the tensor map of the weight, `rows_map` that of the tile when it comes by TMA. Elements have `nbytes` bytes; an
    f32 weight lies there in `pieces` (tf32.py), one after another."""

    value: ir.Value
    start: int
    width: int
    map: int
    rows_map: int | None = None
    parts: int = 1
    nbytes: int = 2
    pieces: int = 1

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

    def steps(self, chunk: int) -> int:
        """The steps of the products of a chunk."""
        columns = min(self.chunk_columns, self.width - chunk * self.chunk_columns)
        return -(-columns * self.nbytes // STEP_BYTES)

    def is_whole(self, chunk: int) -> bool:
        """Whether a chunk has all the columns of a box: behind a smaller one lie columns of what follows, in a packed
        weight."""
        return (chunk + 1) * self.chunk_columns <= self.width

    def boxes(self, turn: Turn) -> Iterator[tuple[int, int, bool]]:
        """The boxes of weights that a chunk meets: number of the set, columns to add for the piece, whether it is the
        last."""
        last, low = (turn[-1], self.pieces - 1), packed_width(self.width * self.parts)
        for number, piece in product(turn, range(self.pieces)):
            yield number, piece * low, (number, piece) == last


@dataclass
class Product:
    """One product: `n` columns of a CTA, in `sets` sets of registers of `columns` columns each, or else in passes.
    `frees` says that it is the last to read the exchanged tile."""

    op: ir.Operation
    n: int
    columns: int
    segments: list[Segment]
    sets: int = 1
    frees: bool = False

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

    @property
    def bound(self) -> int | None:
        """What bounds the columns of all passes, where they all exist."""
        return self.n if self.n % self.pass_columns == 0 else None

    def turns(self) -> list[Turn]:
        """In which order. Set after set, so that one set's columns are worked on while the next is multiplied. A chunk
        that is streamed is multiplied for every set while it is there."""
        sets = range(self.sets)
        if any(segment.rows_map is not None for segment in self.segments):
            return [tuple(sets)]
        return [(number,) for number in sets]

    @property
    def undisturbed(self) -> int:
        """Chunks that can be multiplied before other CTAs must have been sent all of the tile that they read."""
        return sum(len(leg) * segment.parts for segment in self.segments for leg in segment.legs[:-1]) + sum(
            len(segment.legs[-1]) for segment in self.segments
        )
