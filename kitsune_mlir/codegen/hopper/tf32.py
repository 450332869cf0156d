"""Products of f32 elements: operands as tf32 numbers, one or two for each element (precision.py).

tf32 keeps 10 bits of a fraction (PTX ISA, Alternate Floating-Point Data Formats). One number an element is the element
rounded. Two are its upper bits and what is left, which keep 21 bits: x w is then the sum of high high, low high
and high low. Tensor cores cut off what they add, so that a sum loses with every step: in full precision the small terms
come first, and chunks are summed outside.

The left operand always comes from registers. A thread holds neighbouring columns 2q and 2q + 1 of a tile in registers
where an instruction wants columns q and q + 4 (wgmma.py): the weight's columns are put in that order instead, once,
when weights are laid out (packing.py). So they are for tiles that waited in shared memory; tiles that a tensor
copy brought are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.pipeline.products import split, split_words
from kitsune_mlir.mlir import arith, ir, linalg, llvm

_UPPER = -8192  # a tf32's bits of a word


def piece_of(x: ir.Value, pieces: int, dimension: int) -> ir.Value:
    """In the body of a linalg.generic: the piece of a weight's element `x` (f32) that its dimension `dimension` counts.
    The only one is the element rounded to the nearest tf32; of two, the first is its upper bits and the second what is
    left."""
    if pieces == 1:
        bits = arith.bitcast(device.i32(), x)
        up = arith.andi(arith.addi(bits, device.value(1 << 12)), device.value(_UPPER))
        size = arith.bitcast(x.type, arith.andi(bits, device.value(0x7FFFFFFF)))
        finite = arith.cmpf(arith.CmpFPredicate.OLT, size, arith.constant(x.type, float("inf")))
        return arith.select(finite, arith.bitcast(x.type, up), x)
    high, low = split(x)
    index = linalg.IndexOp(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), dimension)).result
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
