"""Products of a warp: mma.sync (PTX ISA, Warp Level Matrix Multiply-Accumulate Instructions), every chip from sm_80.

D[16 x 8] += A[16 x k] B[k x 8], all in registers. Lane 4g + q holds of D the rows g and g + 8, columns 2q and 2q + 1:
sum [2h + e] is at row g + 8h, column 2q + e. For 16-bit elements k is 16: A is four words of two neighbouring columns,
(g, 2q), (g + 8, 2q), (g, 2q + 8), (g + 8, 2q + 8), B two, at (2q, g) and (2q + 8, g). For tf32 k is 8.

What ldmatrix loads of rows of 16 bytes lies so for either: a granule has 8 columns of 16 bits or 4 of tf32.

A warp's product of 16 `tiles` rows and any number of blocks of 8 columns has its sums tile by tile, block by block: the
order that a warpgroup's product (hopper/wgmma.py) has, tile by tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, ir

from .ldmatrix import STEPS, Boxes

ROWS, BLOCK = 16, 8  # of one instruction
WORDS, DEPTH = 4, 16  # a lane's of A, and columns of k of 16 bits, in one instruction
SUMS = 4  # of a lane, in one instruction
WIDE_SUMS, WIDE_DEPTH = 2, 4  # the same, and columns of k, of f64
Left = Callable[[int, int], Sequence[ir.Value]]  # the words of A of a tile of 16 rows and a step


def add(shape: str, words: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """One mma.sync of this shape and these types: the words of A, then two of B; the sums come in and go out in
    place."""
    count = len(words) - 2
    a = ", ".join(f"${2 * SUMS + i}" for i in range(count))
    b = ", ".join(f"${2 * SUMS + count + i}" for i in range(2))
    text = f"mma.sync.aligned.{shape} {{$0, $1, $2, $3}}, {{{a}}}, {{{b}}}, {{$0, $1, $2, $3}};"
    return device.assembled(text, [ir.F32Type.get()] * SUMS, *words, tied=sums, memory=False)


def add_16_bit(element: str, a: Sequence[ir.Value], b: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """A step of 16 columns of k; `element` is "bf16" or "f16"."""
    return add(f"m16n8k16.row.col.f32.{element}.{element}.f32", [*a, *b], sums)


def add_tf32(a: Sequence[ir.Value], b: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """A step of 8 columns of k, of tf32 numbers."""
    return add("m16n8k8.row.col.f32.tf32.tf32.f32", [*a, *b], sums)


def add_64_bit(a: ir.Value, b: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
    """A step of WIDE_DEPTH columns of k of f64, of 8 rows and as many columns: A is the element at (g, q), B that at
    (q, g), and sum [e] is at row g, column 2q + e."""
    text = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {$0, $1}, {$4}, {$5}, {$0, $1};"
    return device.assembled(text, [ir.F64Type.get()] * WIDE_SUMS, a, b, tied=sums, memory=False)


def zeros(count: int, kind: ir.Type | None = None) -> list[ir.Value]:
    """So many sums before a product starts, of f32 or another type."""
    return [arith.constant(kind or ir.F32Type.get(), 0.0)] * count


def add_step(element: str, a: Sequence[ir.Value], b: Sequence[ir.Value], sums: Sequence[ir.Value]) -> list[ir.Value]:
    """A step of 32 bytes of k: 16 columns of "bf16" or "f16", or 8 of "f32", whose words are tf32 numbers."""
    return add_tf32(a, b, sums) if element == "f32" else add_16_bit(element, a, b, sums)


def multiply(
    element: str, sums: Sequence[ir.Value], a: Left, b: Boxes, tiles: int, steps: int = STEPS
) -> list[ir.Value]:
    """Adds so many steps of a chunk of 128 bytes of k to a warp's sums of `tiles` times 16 rows. Of B two blocks are
    loaded together."""
    found = list(sums)
    each = len(found) // tiles
    for step in range(steps):
        left = [a(tile, step) for tile in range(tiles)]
        for pair in range(each // (2 * SUMS)):
            words = b.load(pair, step)
            for half in (0, 1):
                for tile, own in enumerate(left):
                    at = tile * each + (2 * pair + half) * SUMS
                    found[at : at + SUMS] = add_step(
                        element, own, words[2 * half : 2 * half + 2], found[at : at + SUMS]
                    )
    return found
