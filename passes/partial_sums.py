"""What adds up the parts of a sum that a kernel wrote one behind the other."""

from __future__ import annotations

from kitsune_mlir.mlir import arith, ir, linalg, tensor

from .schedule_build import constant_index, empty_generic


def summed(parts: ir.Value) -> ir.Value:
    """The sum over the first dimension, of a known size, each part's element an operand: so that what follows is fused
    with it."""
    kind = ir.RankedTensorType(parts.type)
    count, *shape = kind.shape
    rank = len(shape)
    sizes = [tensor.dim(parts, constant_index(d + 1)) if kind.is_dynamic_dim(d + 1) else shape[d] for d in range(rank)]
    start = tensor.empty(sizes, kind.element_type)
    dims = [ir.AffineDimExpr.get(d) for d in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, [ir.AffineConstantExpr.get(part), *dims]) for part in range(count)]
    generic = empty_generic([parts] * count, [start], [*maps, ir.AffineMap.get_identity(rank)], ["parallel"] * rank)
    with ir.InsertionPoint(generic.regions[0].blocks[0]):
        *terms, _ = generic.regions[0].blocks[0].arguments
        while len(terms) > 1:  # neighbours, then their sums
            pairs = [arith.addf(a, b) for a, b in zip(terms[::2], terms[1::2])]
            terms = [*pairs, *terms[2 * len(pairs) :]]
        linalg.YieldOp(terms)
    return generic.results[0]
