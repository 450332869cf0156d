"""Four lanes that hold a row of sums between them (wgmma.py) give each other words, so that each has neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.codegen.pipeline import device
from kitsune_mlir.mlir import arith, gpu, ir

QUAD = 4  # lanes
_WARP = 32


def transposed(words: Sequence[ir.Value], lane: ir.Value) -> list[ir.Value]:
    """Lane q of a quad gets word q of each of its lanes, in their order, for the four that it gives; `lane` is q, i32.
    All lanes of a warp must be here."""
    odd, upper = (device.has_bit(lane, bit) for bit in (1, 2))
    pairs = []  # of neighbouring lanes, for words 0 or 1, and 2 or 3
    for even_word, odd_word in (words[:2], words[2:]):
        kept, given = arith.select(odd, odd_word, even_word), arith.select(odd, even_word, odd_word)
        taken = _from(given, 1)
        pairs.append([arith.select(odd, taken, kept), arith.select(odd, kept, taken)])
    kept = [arith.select(upper, high, low) for low, high in zip(*pairs)]
    taken = [_from(arith.select(upper, low, high), 2) for low, high in zip(*pairs)]
    first = [arith.select(upper, a, b) for a, b in zip(taken, kept)]
    last = [arith.select(upper, b, a) for a, b in zip(taken, kept)]
    return [*first, *last]


def _from(word: ir.Value, distance: int) -> ir.Value:
    """The word that the lane at this distance gives."""
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    return gpu.ShuffleOp(word, device.value(distance), device.value(_WARP), mode).results[0]
