"""A product whose columns are read in two to four equal parts, and the products of the parts of its weight.

    %y = linalg.matmul ins(%x, %w : tensor<300x128xbf16>, tensor<512x128xbf16>) ...
    %b = linalg.generic {...} ins(%y, %bias : ..., tensor<512xbf16>)
    %v = tensor.extract_slice %b[0, 0] [300, 256] [1, 1]
    %g = tensor.extract_slice %b[0, 256] [300, 256] [1, 1]
  =>
    %w0 = tensor.extract_slice %w[0, 0] [256, 128] [1, 1]
    %w1 = tensor.extract_slice %w[256, 0] [256, 128] [1, 1]
    %y0 = linalg.matmul ins(%x, %w0) ...         %y1 = linalg.matmul ins(%x, %w1) ...
    %v = linalg.generic {...} ins(%y0, %bias0)   %g = linalg.generic {...} ins(%y1, %bias1)

The parts of weights are computed once, when the program is loaded. Between the product and its parts there may be
elementwise operators, whose other operands are read in parts, too, and what gives rows the dimensions of the model's
input. So are the gates of a GLU, and those of a recurrent network's step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, match_product
from kitsune_mlir.generics import cloned_on, generic, zero_tensor
from kitsune_mlir.mlir import ir, tensor
from kitsune_mlir.operations import element_type, only_user, slice_of, users_of
from kitsune_mlir.weights import is_weight

from .product_follows import is_elementwise
from .reshapes import slice_along
from .strided_views import begins_at_granule

MOST = 4  # parts


@dataclass(frozen=True)
class Parts:
    """A product, elementwise operators behind it, in their order, the expansion of their rows, where there is one, and
    what takes the parts out of that, from left to right."""

    product: ir.Operation
    found: Contraction
    chain: list[ir.Operation]
    expansion: ir.Operation | None
    slices: tuple[ir.Operation, ...]

    @property
    def columns(self) -> int:
        """The columns of a part."""
        return ir.RankedTensorType(self.product.results[0].type).shape[1] // len(self.slices)


def parts_of(product: ir.Operation) -> Parts | None:
    """The parts that are all that is read of a product with a weight; None of other products."""
    found, kind = match_product(product), ir.RankedTensorType(product.results[0].type)
    if found is None or kind.rank != 2 or kind.is_dynamic_dim(1):
        return None
    if found.right != product.operands[1] or not is_weight(found.right):
        return None
    value, chain, expansion = product.results[0], [], None
    while (op := only_user(value)) is not None and is_elementwise(op, [value]) and _has_parts(op, value):
        chain.append(op)
        value = op.results[0]
    if op is not None and op.name == "tensor.expand_shape" and _keeps_columns(op):
        expansion, value = op, op.results[0]
    slices = users_of(value)
    if not 1 < len(slices) <= MOST or kind.shape[1] % len(slices):
        return None
    columns = kind.shape[1] // len(slices)
    by_first = {_first_column(op, value, columns): op for op in slices}
    wanted = [str(number * columns) for number in range(len(slices))]
    if by_first.keys() != set(wanted):
        return None
    return Parts(product, found, chain, expansion, tuple(by_first[first] for first in wanted))


def _has_parts(op: ir.Operation, value: ir.Value) -> bool:
    """Whether all else that an operator reads, and that has columns, is a weight, or lies in memory so that its parts
    are read there."""
    s = rows.Structured(op)
    last = ir.AffineDimExpr.get(len(s.iterators) - 1)
    others = ((s.maps[i], op.operands[i]) for i in range(s.inputs) if op.operands[i] != value)
    return all(
        last not in list(map_.results) or is_weight(operand) or begins_at_granule(operand) for map_, operand in others
    )


def _keeps_columns(expansion: ir.Operation) -> bool:
    groups = rows.groups_of(expansion)
    return len(groups) == 2 and len(groups[1]) == 1


def _first_column(op: ir.Operation, value: ir.Value, columns: int) -> str:
    """The first column of an operation that takes so many columns of all rows of a tensor, as text; none of others."""
    if op.name != "tensor.extract_slice":
        return ""
    offsets, sizes, strides = slice_of(op)
    kind = ir.RankedTensorType(value.type)
    *outer, taken = sizes
    if any(offsets[:-1]) or set(strides) != {1} or taken != columns or outer != list(kind.shape)[:-1]:
        return ""
    open_ = [d for d, size in enumerate(outer) if size == rows.DYNAMIC]
    known = len(op.operands) == 1 + len(open_)  # where it begins
    whole = known and all(rows.is_size_of(size, value, d) for d, size in zip(open_, list(op.operands)[1:]))
    return str(offsets[-1]) if whole and ir.RankedTensorType(op.results[0].type).rank == kind.rank else ""


def part(parts: Parts) -> list[ir.Operation]:
    """Puts the products of the parts of the weight in the place of a product, which are returned."""
    made, whole, axis = [], ir.RankedTensorType(parts.product.results[0].type), parts.found.left_roles.index("m")
    with parts.product.location, ir.InsertionPoint(parts.product):
        left = parts.found.left
        count = rows.size_of(left, axis) if whole.is_dynamic_dim(0) else whole.shape[0]
    for number, taken in enumerate(parts.slices):
        first = number * parts.columns
        with parts.product.location, ir.InsertionPoint(parts.product):
            made.append(_product(parts, count, first))
        before, value = parts.product.results[0], made[-1].results[0]
        for op in parts.chain:
            with op.location, ir.InsertionPoint(op):
                value = _elementwise(op, {before: value}, [count, parts.columns], first)
            before = op.results[0]
        if parts.expansion is not None:
            with parts.expansion.location, ir.InsertionPoint(parts.expansion):
                value = _expanded(parts.expansion, value)
        taken.results[0].replace_all_uses_with(value)
    expansion = [parts.expansion] if parts.expansion is not None else []
    for op in [*parts.slices, *expansion, *reversed(parts.chain), parts.product]:
        op.erase()
    return made


def _product(parts: Parts, count: int | ir.Value, first: int) -> ir.Operation:
    """The product of some columns, of so many rows."""
    op, found = parts.product, parts.found
    start = zero_tensor([count, parts.columns], element_type(op.results[0]))
    right = slice_along(found.right, found.right_roles.index("n"), first, parts.columns)
    return cloned_on(op, [op.operands[0], right, start])


def _elementwise(
    op: ir.Operation, given: Mapping[ir.Value, ir.Value], sizes: Sequence[int | ir.Value], first: int
) -> ir.Value:
    """An operator on some columns, so that its result has these sizes; `given` are those of what it reads of the
    product."""
    s = rows.Structured(op)
    last, inputs = ir.AffineDimExpr.get(len(s.iterators) - 1), []
    for map_, operand in zip(s.maps[: s.inputs], op.operands):
        axes = [axis for axis, expr in enumerate(map_.results) if expr == last]
        if operand in given:
            inputs.append(given[operand])
        else:
            inputs.append(slice_along(operand, axes[0], first, sizes[1]) if axes else operand)
    start = tensor.empty(list(sizes), element_type(op.results[0]))
    return generic(inputs, [start], s.maps, ["parallel"] * 2, s.body).results[0]


def _expanded(expansion: ir.Operation, value: ir.Value) -> ir.Value:
    kind, columns = ir.RankedTensorType(expansion.results[0].type), ir.RankedTensorType(value.type).shape[1]
    sizes: Sequence[int] = [*list(kind.shape)[:-1], columns]
    attributes = {name: expansion.attributes[name] for name in expansion.attributes}
    if "static_output_shape" in attributes:
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(sizes)
    made = ir.Operation.create(
        expansion.name,
        results=[ir.RankedTensorType.get(sizes, element_type(value))],
        operands=[value, *list(expansion.operands)[1:]],
        attributes=attributes,
    )
    return made.results[0]
