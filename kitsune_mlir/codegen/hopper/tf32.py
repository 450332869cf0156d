"""Products of f32 elements: operands as tf32 numbers, one or two for each element (precision.py).

tf32 keeps 10 bits of a fraction (PTX ISA, Alternate Floating-Point Data Formats). One number an element is the element
rounded. Two are its upper bits and what is left, which keep 21 bits: x w is then the sum of high high, low high
and high low. Tensor cores cut off what they add, so that a sum loses with every step: in full precision the small terms
come first, and chunks are summed outside.

The left operand always comes from registers. A thread holds neighbouring columns 2q and 2q + 1 of a tile in registers
where an instruction wants columns q and q + 4 (wgmma.py): the weight's columns are put in that order instead, once,
when weights are laid out (`Packing`). So they are for tiles that waited in shared memory; tiles that a tensor
copy brought are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.products import split, split_words
from kitsune_mlir.mlir import arith, ir, linalg, llvm, tensor

GROUP = 8  # columns of one instruction, in which packed weights are padded
_UPPER = -8192  # a tf32's bits of a word


@dataclass(frozen=True)
class Columns:
    """Columns of a weight that meet one tile: `width` from `start` on. `paired` says that each group of 8 is put in the
    order 0, 2, 4, 6, 1, 3, 5, 7."""

    start: int
    width: int
    paired: bool


def packed_width(width: int) -> int:
    """Of one piece of some columns."""
    return -(-width // GROUP) * GROUP


@dataclass(frozen=True)
class Packing:
    """How an f32 weight (n, k) lies for the products: (n, packed), for each of `parts` its `pieces` pieces one after
    another, each padded with zeros to groups of 8 columns."""

    pieces: int
    parts: tuple[Columns, ...]

    @property
    def columns(self) -> int:
        return sum(self.pieces * packed_width(part.width) for part in self.parts)

    def starts(self) -> list[int]:
        """Where the parts begin."""
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
            zero = arith.ConstantOp(kind, ir.FloatAttr.get(kind, 0.0)).result
            zeros = linalg.fill(zero, outs=[tensor.EmptyOp([n, width - part.width], kind).result])
            source = tensor.concat(ir.RankedTensorType.get([n, width], kind), 1, [source, zeros])
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
        generic = linalg.GenericOp(
            [ir.RankedTensorType.get(shape, kind)],
            [source],
            [tensor.EmptyOp(shape, kind).result],
            ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
            ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * 5),
        )
        block = generic.regions[0].blocks.append(kind, kind)
        with ir.InsertionPoint(block):
            linalg.YieldOp([self._piece(block.arguments[0])])
        return generic.results[0]

    def _piece(self, x: ir.Value) -> ir.Value:
        """By the number of the piece: a weight's only one, rounded to the nearest, or its upper bits and the rest."""
        if self.pieces == 1:
            bits = arith.bitcast(device.i32(), x)
            up = arith.andi(arith.addi(bits, device.value(1 << 12)), device.value(_UPPER))
            size = arith.bitcast(x.type, arith.andi(bits, device.value(0x7FFFFFFF)))
            finite = arith.cmpf(arith.CmpFPredicate.OLT, size, arith.constant(x.type, float("inf")))
            return arith.select(finite, arith.bitcast(x.type, up), x)
        high, low = split(x)
        index = linalg.IndexOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 1)).result
        first = arith.cmpi(arith.CmpIPredicate.eq, index, arith.ConstantOp.create_index(0).result)
        return arith.select(first, high, low)


def operands(words: Sequence[ir.Value], pieces: int) -> list[list[ir.Value]]:
    """What f32 elements, `words` in steps of four, are multiplied as: rounded, or in the parts that `split` makes."""
    if pieces == 1:
        return [[_rounded(word) for word in words]]
    return split_words([arith.bitcast(ir.F32Type.get(), word) for word in words])


def _rounded(word: ir.Value) -> ir.Value:
    """To the nearest tf32 (PTX ISA, cvt)."""
    x = arith.bitcast(ir.F32Type.get(), word)
    return llvm.InlineAsmOp(device.i32(), [x], "cvt.rn.tf32.f32 $0, $1;", "=r,f", has_side_effects=False).results[0]
