"""How a weight is laid out anew, once, before the products that read it by tensor copies.

The left operand of a product may be several tiles side by side, each of which meets columns of the weight of its own.
A tensor copy begins at a multiple of 16 bytes of a tensor's row, or the instruction is illegal (seen on an H100; the
PTX ISA says so of addresses). So the columns of each tile begin at one: they are padded with zeros to groups of 8.
Weights of f32 are laid out as tf32 numbers besides (tf32.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from kitsune_mlir.codegen.hopper import tf32
from kitsune_mlir.generics import generic
from kitsune_mlir.mlir import arith, ir, linalg, tensor

GROUP = 8  # columns: 16 bytes of 16-bit elements, those of one instruction of tf32 numbers


@dataclass(frozen=True)
class Columns:
    """Columns of a weight that meet one tile: `width` from `start` on. `paired` says that each group of 8 f32 is put in
    the order 0, 2, 4, 6, 1, 3, 5, 7."""

    start: int
    width: int
    paired: bool = False


def packed_width(width: int) -> int:
    """How many columns of one piece there are, zeros included, for so many columns of a tile."""
    return -(-width // GROUP) * GROUP


@dataclass(frozen=True)
class Packing:
    """How a weight (n, k) lies for the products: (n, packed), for each of `parts` its `pieces` pieces one after
    another, each padded with zeros to groups of 8 columns. Elements of 16 bits have one piece, as they are."""

    pieces: int
    parts: tuple[Columns, ...]

    @property
    def columns(self) -> int:
        return sum(self.pieces * packed_width(part.width) for part in self.parts)

    def starts(self) -> list[int]:
        """The column at which each part begins."""
        found, at = [], 0
        for part in self.parts:
            found.append(at)
            at += self.pieces * packed_width(part.width)
        return found

    def apply(self, weight: ir.Value) -> ir.Value:
        """The packed weight, computed at the insertion point."""
        packed = [self._part(weight, part) for part in self.parts]
        n, kind = weight.type.shape[0], weight.type.element_type
        return (
            packed[0]
            if len(packed) == 1
            else tensor.concat(ir.RankedTensorType.get([n, self.columns], kind), 1, packed)
        )

    def _part(self, weight: ir.Value, part: Columns) -> ir.Value:
        source, (n, k), kind = weight, weight.type.shape, weight.type.element_type
        if (part.start, part.width) != (0, k):
            source = tensor.ExtractSliceOp(
                ir.RankedTensorType.get([n, part.width], kind), source, [], [], [],
                [0, part.start], [n, part.width], [1, 1],
            ).result  # fmt: skip
        width = packed_width(part.width)
        if width > part.width:
            zero = arith.constant(kind, 0.0)
            zeros = linalg.fill(zero, outs=[tensor.EmptyOp([n, width - part.width], kind).result])
            source = tensor.concat(ir.RankedTensorType.get([n, width], kind), 1, [source, zeros])
        if not isinstance(kind, ir.F32Type):
            return source
        grouped = self._generic(source, n, width, part.paired)
        flat = ir.RankedTensorType.get([n, self.pieces * width], kind)
        return tensor.CollapseShapeOp(flat, grouped, [[0], [1, 2, 3, 4]]).result

    def _generic(self, source: ir.Value, n: int, width: int, paired: bool) -> ir.Value:
        """(n, piece, group, half of a group, column of it)."""
        kind = source.type.element_type
        row, _, group, half, column = (ir.AffineExpr.get_dim(d) for d in range(5))
        inside = column * 2 + half if paired else half * 4 + column
        maps = [ir.AffineMap.get(5, 0, [row, group * GROUP + inside]), ir.AffineMap.get_identity(5)]
        shape = [n, self.pieces, width // GROUP, 2, GROUP // 2]
        start = tensor.EmptyOp(shape, kind).result

        def piece(x: ir.Value, _: ir.Value) -> ir.Value:
            return tf32.piece_of(x, self.pieces, dimension=1)

        return generic([source], [start], maps, ["parallel"] * 5, piece).results[0]
