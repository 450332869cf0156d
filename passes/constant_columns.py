"""Columns of a layer's operand that hold one number everywhere, such as a time, are a vector that is added to its sums
(by prepare-linalg):

    %f = linalg.fill ins(%t : bf16) outs(...) -> tensor<8192x1xbf16>
    %c = tensor.concat dim(1) %x, %f : (tensor<8192x64xbf16>, tensor<8192x1xbf16>) -> tensor<8192x65xbf16>
    %y = linalg.matmul ... ins(%c, %w : tensor<8192x65xbf16>, tensor<128x65xbf16>) ...
  =>
    %u = tensor.extract_slice %w[0, 0] [128, 64] [1, 1]
    %v = tensor.extract_slice %w[0, 64] [128, 1] [1, 1]
    %p = linalg.matmul ... ins(%x, %u : tensor<8192x64xbf16>, tensor<128x64xbf16>) ...
    %y = linalg.generic {...} ins(%p, %v ...) { ... %p + %t * %v ... }

Nothing is put beside anything then, and no kernel has to read rows of odd lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.contraction import is_zero_filled, match_product
from kitsune_mlir.generics import extended, generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, attr_int, ir, replace_op, tensor
from kitsune_mlir.operations import element_type
from kitsune_mlir.weights import is_weight

from .row_groups import scalar_of

_MOST = 4  # such columns


@dataclass(frozen=True)
class _Part:
    """Columns of the operand: from `first` on, those of a tensor, or of the constant `number`."""

    first: int
    columns: int
    value: ir.Value
    number: float | None


def fold_constant_columns(op: ir.Operation) -> None:
    """Rewrites a linalg.matmul of a weight whose left operand has such columns."""
    found = match_product(op)
    if found is None or found.left_roles != ("m", "k") or found.left != op.operands[0] or found.right != op.operands[1]:
        return
    if (
        not is_zero_filled(found.init)
        or not is_weight(found.right)
        or not isinstance(element_type(found.init), ir.F32Type)
    ):
        return
    joined, groups = rows.producer(found.left), None
    if joined is not None and joined.name == "tensor.collapse_shape":
        groups, joined = rows.groups_of(joined), rows.producer(joined.operands[0])
    parts = _parts(joined)
    kept = [part for part in parts if part.number is None]
    if not kept or not 0 < sum(part.columns for part in parts if part.number is not None) <= _MOST:
        return
    if groups is not None and len(groups[-1]) > 1:
        return
    with op.location, ir.InsertionPoint(op):
        along = found.right_roles.index("k")
        left = _beside([part.value for part in kept], ir.RankedTensorType(joined.results[0].type).rank - 1)
        if groups is not None:
            shape = [rows.shape_of(found.left)[0], sum(part.columns for part in kept)]
            left = tensor.CollapseShapeOp(ir.RankedTensorType.get(shape, element_type(left)), left, groups).result
        right = _beside([_columns(found.right, along, part.first, part.columns) for part in kept], along)
        made = op.clone().operation
        made.operands[0], made.operands[1] = left, right
        total = _begun(made.results[0], found.right, along, [part for part in parts if part not in kept])
    replace_op(op, total)


def _parts(joined: ir.Operation | None) -> list[_Part]:
    """What is side by side in a concatenation of columns; nothing of anything else."""
    if joined is None or joined.name != "tensor.concat":
        return []
    kind = ir.RankedTensorType(joined.results[0].type)
    if attr_int(joined, "dim") != kind.rank - 1 or kind.is_dynamic_dim(kind.rank - 1):
        return []
    parts, first = list[_Part](), 0
    for value in joined.operands:
        columns, scalar = rows.shape_of(value)[-1], scalar_of(value)
        number = None if scalar is None else _number(scalar)
        parts.append(_Part(first, columns, value, number))
        first += columns
    return parts


def _number(scalar: ir.Value) -> float | None:
    attribute = scalar.owner.attributes["value"] if scalar.owner.name == "arith.constant" else None
    return attribute.value if isinstance(attribute, ir.FloatAttr) else None


def _beside(values: Sequence[ir.Value], dim: int) -> ir.Value:
    """Tensors side by side."""
    if len(values) == 1:
        return values[0]
    kind = ir.RankedTensorType(values[0].type)
    shape = list(kind.shape)
    shape[dim] = sum(rows.shape_of(value)[dim] for value in values)
    return tensor.concat(ir.RankedTensorType.get(shape, kind.element_type), dim, list(values))


def _columns(weight: ir.Value, along: int, first: int, count: int) -> ir.Value:
    """What of a weight some columns of the operand are multiplied with."""
    shape, offsets = list(rows.shape_of(weight)), [0, 0]
    shape[along], offsets[along] = count, first
    type_ = ir.RankedTensorType.get(shape, element_type(weight))
    return tensor.ExtractSliceOp(type_, weight, [], [], [], offsets, shape, [1, 1]).result


def _begun(sums: ir.Value, weight: ir.Value, along: int, constants: Sequence[_Part]) -> ir.Value:
    """Sums with what columns of constants add to them."""
    f32, vectors, numbers = ir.F32Type.get(), list[ir.Value](), list[ir.Value]()
    for part in constants:
        for column in range(part.first, part.first + part.columns):
            one = _columns(weight, along, column, 1)
            kind = ir.RankedTensorType.get([rows.shape_of(one)[1 - along]], element_type(one))
            vectors.append(tensor.CollapseShapeOp(kind, one, [[0, 1]]).result)
            numbers.append(arith.constant(f32, part.number))

    def added(total: ir.Value, *rest: ir.Value) -> ir.Value:
        for factor, number in zip(rest, numbers):  # what the output held is not used
            wide = extended(factor, f32)
            total = arith.addf(total, arith.mulf(wide, number))
        return total

    start = tensor.empty(sizes_of(sums), f32)
    maps = [map_of(2, [0, 1]), *[map_of(2, [1]) for _ in vectors], map_of(2, [0, 1])]
    return generic([sums, *vectors], [start], maps, ["parallel"] * 2, added).results[0]
