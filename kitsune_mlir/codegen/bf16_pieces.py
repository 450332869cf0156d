"""Numbers of f32 as sums of numbers of bf16, for products that are as exact as f32's."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir


def pieces_of(x: ir.Value, count: int) -> list[ir.Value]:
    """Numbers of f32 whose sum is one: each the upper 8 bits of what those before leave, but for the last, which bf16
    rounds. An infinity is 1, 0 and itself: the last meets only first pieces, which are 0 of zeros alone (and of numbers
    below 2^-133), and an infinity's last piece."""
    f32, i32 = ir.F32Type.get(), ir.IntegerType.get_signless(32)
    bits = arith.bitcast(i32, x)
    magnitude = arith.andi(bits, arith.constant(i32, 0x7FFFFFFF))
    infinite = arith.cmpi(arith.CmpIPredicate.eq, magnitude, arith.constant(i32, 0x7F800000))
    signed = arith.ori(arith.andi(bits, arith.constant(i32, -(2**31))), arith.constant(i32, 0x3F800000))
    found, rest = [], x
    for _ in range(count - 1):
        upper = arith.bitcast(f32, arith.andi(arith.bitcast(i32, rest), arith.constant(i32, -65536)))
        found.append(upper)
        rest = arith.subf(rest, upper)
    zero = arith.constant(f32, 0.0)
    found = [arith.select(infinite, zero if i else arith.bitcast(f32, signed), y) for i, y in enumerate(found)]
    return [*found, arith.select(infinite, x, rest)]
