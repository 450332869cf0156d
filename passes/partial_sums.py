"""What adds up the parts of a sum that a kernel wrote one behind the other."""

from __future__ import annotations

from kitsune_mlir.generics import generic, sizes_of
from kitsune_mlir.mlir import arith, ir, tensor


def summed(parts: ir.Value) -> ir.Value:
    """The sum over the first dimension, of a known size, each part's element an operand: so that what follows is fused
    with it."""
    kind = ir.RankedTensorType(parts.type)
    count, rank = kind.shape[0], kind.rank - 1
    start = tensor.empty(sizes_of(parts, range(1, kind.rank)), kind.element_type)
    dims = [ir.AffineDimExpr.get(d) for d in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, [ir.AffineConstantExpr.get(part), *dims]) for part in range(count)]
    maps.append(ir.AffineMap.get_identity(rank))

    def total(*given: ir.Value) -> list[ir.Value]:
        terms = list(given[:-1])
        while len(terms) > 1:  # neighbours, then their sums
            pairs = [arith.addf(a, b) for a, b in zip(terms[::2], terms[1::2])]
            terms = [*pairs, *terms[2 * len(pairs) :]]
        return terms

    return generic([parts] * count, [start], maps, ["parallel"] * rank, total).results[0]
