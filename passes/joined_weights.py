"""The weights of several products of one operand as one operand, for tiles of few columns.

    w0, w1 : tensor<64x128xbf16>   =>   tensor<128x128xbf16>: rows 0 to 7 of w0, 0 to 7 of w1, 8 to 15 of w0, ...

A product of a few columns takes tensor cores as long as one of 32, for each reads all of the left operand. So a tile
has the same columns of all products side by side, in one set of sums; a thread has its elements of each of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from kitsune_mlir.contraction import Roles
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.weights import is_weight

from .reshapes import reshaped

_FEW = 32  # columns of a product


def are_joined(rights: Sequence[ir.Value], roles: Roles, columns: int) -> bool:
    """Whether tiles of so many columns of each product have them side by side."""
    shapes = [list(ir.RankedTensorType(right.type).shape) for right in rights]
    if len(rights) == 1 or columns > _FEW or roles != ("n", "k") or any(shape != shapes[0] for shape in shapes):
        return False
    return shapes[0][0] % columns == 0 and all(map(is_weight, rights))


def side_by_side(rights: Sequence[ir.Value], columns: int) -> ir.Value:
    """The rows of weights, so many of each in turn."""
    kind = ir.RankedTensorType(rights[0].type)
    n, k = kind.shape
    parts = [reshaped(right, [n // columns, columns, k]) for right in rights]
    type_ = ir.RankedTensorType.get([n // columns, len(rights) * columns, k], kind.element_type)
    return reshaped(tensor.ConcatOp(type_, 1, parts).result, [n * len(rights), k])
