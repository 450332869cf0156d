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
    odd, upper = (_holds(lane, bit) for bit in (1, 2))
    pairs = []  # of neighbouring lanes, for words 0 or 1, and 2 or 3
    for even_word, odd_word in (words[:2], words[2:]):
        kept, given = _either(odd, odd_word, even_word), _either(odd, even_word, odd_word)
        taken = _from(given, 1)
        pairs.append([_either(odd, taken, kept), _either(odd, kept, taken)])
    kept = [_either(upper, high, low) for low, high in zip(*pairs)]
    taken = [_from(_either(upper, low, high), 2) for low, high in zip(*pairs)]
    first = [_either(upper, a, b) for a, b in zip(taken, kept)]
    last = [_either(upper, b, a) for a, b in zip(taken, kept)]
    return [*first, *last]


def _holds(lane: ir.Value, bit: int) -> ir.Value:
    masked = arith.andi(lane, device.value(bit))
    return arith.cmpi(arith.CmpIPredicate.ne, masked, device.value(0))


def _either(condition: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.select(condition, a, b)


def _from(word: ir.Value, distance: int) -> ir.Value:
    """The word that the lane at this distance gives."""
    mode = ir.Attribute.parse("#gpu<shuffle_mode xor>")
    return gpu.ShuffleOp(word, device.value(distance), device.value(_WARP), mode).results[0]
