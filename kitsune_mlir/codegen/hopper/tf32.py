"""Products of f32 elements: operands as tf32 numbers, one or two for each element (precision.py).

tf32 keeps 10 bits of a fraction (PTX ISA, Alternate Floating-Point Data Formats). One number an element is the element
rounded. Two are its upper bits and what is left, which keep 21 bits: x w is then the sum of high high, low high
and high low. Tensor cores cut off what they add, so that a sum loses with every step: in full precision the small terms
come first, and chunks are summed outside.

The left operand comes from registers, unless copies rounded it on its way to shared memory (tma.py). A thread holds
neighbouring columns 2q and 2q + 1 of a tile in registers where an instruction wants columns q and q + 4 (wgmma.py): the
weight's columns are put in that order instead, once, when weights are laid out (packing.py). So they are for tiles that
waited in shared memory; tiles that a tensor copy brought are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.codegen.scalar import Scalar, select
from kitsune_mlir.mlir import arith, ir, linalg

EVEN, AWAY = "rn", "rna"
HIGH, LOW = range(2)  # parts of f32 elements, as `split` gives them
LARGEST = (2 - 2**-10) * 2.0**127  # tf32 number
_UPPER = -8192  # a tf32's bits of a word: without the 13 that it drops
_HALF = 1 << 12  # of the last of those bits


def piece_of(x: ir.Value, pieces: int, dimension: int) -> ir.Value:
    """In the body of a linalg.generic: the piece of a weight's element `x` (f32) that its dimension `dimension` counts.
    The only one is the element rounded to the nearest tf32; of two, the first is its upper bits and the second what is
    left."""
    if pieces == 1:
        number = Scalar(x)
        bits = number.bits()
        up = (bits + _HALF) & _UPPER
        return select((bits & 0x7FFFFFFF).as_real(number) < inf, up.as_real(number), number).value
    high, low = split(x)
    index = linalg.IndexOp(ir.IntegerAttr.get(device.i64(), dimension)).result
    first = arith.cmpi(arith.CmpIPredicate.eq, index, arith.ConstantOp.create_index(0).result)
    return arith.select(first, high, low)


def operands(words: Sequence[ir.Value], pieces: int, ties: str = EVEN) -> list[list[ir.Value]]:
    """What f32 elements, `words` in steps of four, are multiplied as: rounded, or in the parts that `split` makes."""
    numbers = [arith.bitcast(ir.F32Type.get(), word) for word in words]
    return [[rounded(x, ties) for x in numbers]] if pieces == 1 else split_words(numbers)


def rounded(x: ir.Value, ties: str = AWAY) -> ir.Value:
    """x as the nearest tf32 number (PTX ISA, cvt); of two the even one (sm_90 on), or that farther from zero."""
    return device.assembly(f"cvt.{ties}.tf32.f32 $0, $1;", x, result=device.i32(), memory=False, effects=False)


def split(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """An f32 as a sum of two tf32 numbers: its upper bits, and what is left of it, rounded, for tensor cores would cut
    it off and so make every product a little smaller. Neither has the other sign. Those of an infinity are the largest
    number and the infinity: low parts meet upper bits alone, which are 0 only of 0 and of numbers too small for tf32
    (below 2^-136). Such a one times an infinity is not a number, as 0 times it is."""
    number = Scalar(x)
    high = (number.clamp(-LARGEST, LARGEST).bits() & _UPPER).as_real(number)
    left = ((number - high).bits() + _HALF) & _UPPER
    return high.value, left.as_real(number).value


def split_words(numbers: list[ir.Value]) -> list[list[ir.Value]]:
    """Each part that `split` makes of f32 numbers, as 32-bit words."""
    return [[arith.bitcast(device.i32(), x) for x in part] for part in zip(*map(split, numbers))]
