"""Products with several matrices that are gathered for each number of a batch, and lie side by side: a batch of all of
them, as what takes matrices by number wants it (numbered_matrices.py). For prepare-linalg.

einsum("beck,bk->bec", w[experts], x) is, for each b, a product with the rows of all its experts:

    %w = linalg.generic { gather } ...                                           // tensor<16x2x2048x1024xbf16>
    %l = tensor.collapse_shape %w [[0], [1, 2], [3]] ...                         // tensor<16x4096x1024xbf16>
    %p = linalg.batch_matmul ins(%l, %x : ..., tensor<16x1024x1xbf16>) ...       // tensor<16x4096x1xf32>

becomes

    %l = tensor.collapse_shape %w [[0, 1], [2], [3]] ...                         // tensor<32x2048x1024xbf16>
    %r = %x, once for each expert                                                // tensor<32x1024x1xbf16>
    %q = linalg.batch_matmul ins(%l, %r) ...                                     // tensor<32x2048x1xf32>
    %p = %q, reshaped
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.generics import indexing_maps, moved, set_maps, zero_tensor
from kitsune_mlir.mlir import ir, linalg, tensor
from kitsune_mlir.operations import element_type, permutation_of

from .numbered_matrices import taken_by
from .reshapes import reshaped

_MATRIX = 2  # the last dimensions of what is gathered are those of a matrix
_LEFT, _RIGHT = 0, 1  # operands of a product: batch x rows x sum, batch x sum x columns


@dataclass(frozen=True)
class _Apart:
    """An operand whose `count` matrices for each number of the batch lie side by side, as `gather` has them; `turned`
    where rows are there what are columns here."""

    gather: ir.Value
    count: int
    turned: bool


def take_apart(product: ir.Operation) -> None:
    """Puts a batch of all matrices in the place of a product of a batch, where one of its operands has several."""
    values = list(product.operands)
    if not is_zero_filled(values[2]) or any(rows.DYNAMIC in rows.shape_of(value) for value in values):
        return
    for side in (_LEFT, _RIGHT):
        if (found := _apart(values[side], along=1 if side == _LEFT else 2)) is not None:
            with product.location, ir.InsertionPoint(product):
                product.results[0].replace_all_uses_with(_batched(product, side, found))
            product.erase()
            return


def _apart(value: ir.Value, along: int) -> _Apart | None:
    """How an operand's matrices lie side by side along a dimension; None where they do not."""
    movers: list[ir.Operation] = []
    while (op := rows.producer(value)) is not None and op.name in (*rows.RESHAPES, "linalg.transpose"):
        movers.append(op)
        value = op.operands[0]
    if taken_by(op) is None:
        return None
    sizes = rows.shape_of(value)
    parts: list[list[int]] | None = [[d] for d in range(len(sizes))]
    for mover in reversed(movers):
        parts = None if parts is None else _moved(mover, parts, sizes)
    if parts is None or len(parts) != 1 + _MATRIX:
        return None
    batch, beside, summed = ([d for d in own if sizes[d] > 1] for own in (parts[0], parts[along], parts[3 - along]))
    *outer, own = beside or [-1]
    first = len(sizes) - _MATRIX
    if not outer or len(summed) != 1 or {own, *summed} != {first, first + 1}:
        return None
    if [*batch, *outer] != [d for d in range(first) if sizes[d] > 1]:
        return None
    return _Apart(value, prod(sizes[d] for d in outer), (own > summed[0]) != (along == 2))


def _moved(op: ir.Operation, parts: list[list[int]], sizes: Sequence[int]) -> list[list[int]] | None:
    """Which dimensions of the first tensor each one of an operation's result has, by those of its operand; None where
    it cuts one."""
    if op.name == "linalg.transpose":
        return [parts[axis] for axis in permutation_of(op)]
    groups = rows.groups_of(op)
    if op.name == "tensor.collapse_shape":
        return [[d for axis in group for d in parts[axis]] for group in groups]
    shape, found = rows.shape_of(op.results[0]), []
    for own, group in zip(parts, groups, strict=True):
        left = [d for d in own if sizes[d] > 1]
        for axis in group:
            taken: list[int] = []
            while left and prod(sizes[d] for d in taken) < shape[axis]:
                taken.append(left.pop(0))
            if prod(sizes[d] for d in taken) != shape[axis]:
                return None
            found.append(taken)
    return found


def _batched(product: ir.Operation, side: int, apart: _Apart) -> ir.Value:
    """The product's result, by way of one of a batch of all matrices."""
    *sizes, p, q = rows.shape_of(apart.gather)
    matrices = reshaped(apart.gather, [prod(sizes), p, q])
    if apart.turned:
        empty = tensor.empty([prod(sizes), q, p], element_type(matrices))
        matrices = linalg.transpose(matrices, outs=[empty], permutation=[0, 2, 1]).results[0]
    other = _repeated(product.operands[1 - side], apart.count)
    left, right = (matrices, other) if side == _LEFT else (other, matrices)
    kind = ir.RankedTensorType(product.results[0].type)
    count, m, n = prod(sizes), rows.shape_of(left)[1], rows.shape_of(right)[2]
    start = zero_tensor([count, m, n], kind.element_type)
    made = linalg.batch_matmul(left, right, outs=[start])
    set_maps(made.owner, indexing_maps(product))
    made = reshaped(made, [count // apart.count, apart.count, m, n])
    if side == _RIGHT and m > 1:
        empty = tensor.empty([count // apart.count, m, apart.count, n], kind.element_type)
        made = linalg.transpose(made, outs=[empty], permutation=[0, 2, 1, 3]).results[0]
    return reshaped(made, list(kind.shape))


def _repeated(value: ir.Value, count: int) -> ir.Value:
    """A batch of matrices, each so many times."""
    batch, p, q = rows.shape_of(value)
    start = tensor.empty([batch, count, p, q], element_type(value))
    return reshaped(moved(value, start, [0, 2, 3]), [batch * count, p, q])
