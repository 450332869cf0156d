"""Numbers of f32 as sums of numbers of bf16, for products that are as exact as f32's."""

from __future__ import annotations

from kitsune_mlir.codegen.scalar import Scalar, select
from kitsune_mlir.mlir import ir


def pieces_of(x: ir.Value, count: int) -> list[ir.Value]:
    """Numbers of f32 whose sum is one: each the upper 8 bits of what those before leave, but for the last, which bf16
    rounds. An infinity is 1, 0 and itself: the last meets only first pieces, which are 0 of zeros alone (and of numbers
    below 2^-133), and an infinity's last piece."""
    number = rest = Scalar(x)
    bits, found = number.bits(), list[Scalar]()
    infinite = (bits & 0x7FFFFFFF).equals(0x7F800000)
    signed = (bits & -(2**31)) | 0x3F800000
    for _ in range(count - 1):
        upper = (rest.bits() & -65536).as_real(number)
        found.append(upper)
        rest = rest - upper
    found = [select(infinite, 0.0 if i else signed.as_real(number), y) for i, y in enumerate(found)]
    return [piece.value for piece in (*found, select(infinite, number, rest))]
