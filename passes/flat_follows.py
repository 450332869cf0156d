"""Elementwise operators behind a product, in the product's dimensions.

    %v = tensor.expand_shape %y [[0, 1], [2]] : tensor<300x64xbf16> into tensor<4x75x64xbf16>
    %g = linalg.generic {...} ins(%v : tensor<4x75x64xbf16>) ...            // a GELU
  =>
    %f = linalg.generic {...} ins(%y : tensor<300x64xbf16>) ...
    %g = tensor.expand_shape %f [[0, 1], [2]]

Torch gives what a layer makes the dimensions of its input back; a kernel of the product has rows and columns. What rows
are summed of stays as it is: the kernel that sums them takes it with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import NAMES, match_product
from kitsune_mlir.generics import generic, sizes_of
from kitsune_mlir.mlir import ir, tensor, walk
from kitsune_mlir.operations import element_type, erase_unused, slice_of, users_of

from .broadcast_follows import take_broadcasts
from .product_follows import is_elementwise, is_reduced

Groups = list[list[int]]  # of dimensions that become one


def flatten_follows(module: ir.Module, keep_places: bool = False) -> None:
    """Rewrites what follows the products of the functions of a module. Tensors that are computed of nothing but places
    may stay such, for a kernel that makes them (of_places.py)."""
    products = [op for op in walk(module, *NAMES) if op.parent.name == "func.func" and match_product(op)]
    _flatten(products)
    take_broadcasts(products, keep_places)


def _flatten(products: Sequence[ir.Operation]) -> None:
    """What elementwise operators and reshapes make of products. Each value is looked at once, whichever products it is
    made of: what a recurrence carries along is made of those of all steps before."""
    left, seen = [op.results[0] for op in reversed(products)], set[ir.Value]()
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        users = _users(value, value.owner.operation.block)
        left += [op.results[0] for op in users if op.name == "linalg.generic" and is_elementwise(op, [value])]
        left += [op.results[0] for op in users if op.name == "tensor.extract_slice" and _are_columns(op)]
        for op in users:
            if op.name == "tensor.expand_shape" and not is_reduced(op.results[0]):
                left += _flatten_behind(op, seen)


def _are_columns(op: ir.Operation) -> bool:
    """Whether it takes columns of a product, of which others may be made besides."""
    kind, source = ir.RankedTensorType(op.results[0].type), ir.RankedTensorType(op.operands[0].type)
    return kind.rank == source.rank == 2 and kind.shape[0] == source.shape[0]


def _flatten_behind(expansion: ir.Operation, seen: set[ir.Value]) -> list[ir.Value]:
    """Elementwise operators that take an expanded tensor, and those that take theirs, on what was expanded; what they
    make. What is erased is taken out of `seen`: another value may come to lie in its place."""
    made, left = [], [expansion]
    while left:
        expansion = left.pop()
        source = expansion.operands[0]
        while (found := _next(expansion)) is not None:
            op, maps = found
            if op.name == "tensor.extract_slice":
                with op.location, ir.InsertionPoint(op):
                    behind = _columns_of(source, op, expansion)
                op.results[0].replace_all_uses_with(behind.results[0])
                left.append(behind)
            elif maps is None:
                op.results[0].replace_all_uses_with(source)
            else:
                with op.location, ir.InsertionPoint(op):
                    flat, behind = _flat(op, expansion, maps)
                op.results[0].replace_all_uses_with(behind.results[0])
                made.append(flat)
                left.append(behind)
            seen.difference_update(op.results)
            op.erase()
        erase_unused(expansion)
    return made


def _next(expansion: ir.Operation) -> tuple[ir.Operation, list[tuple[ir.AffineMap, Groups]] | None] | None:
    """A reader of an expanded tensor that can have what was expanded: one that collapses it again, or an elementwise
    operator, with its inputs' maps."""
    for op in _users(expansion.results[0], expansion.block):
        if op.name == "tensor.collapse_shape" and rows.undoes(op, expansion):
            return op, None
        if op.name == "tensor.extract_slice" and _takes_columns(op, expansion):
            return op, None
        if op.name == "linalg.generic" and is_elementwise(op, [expansion.results[0]]):
            maps = _flat_maps(op, rows.groups_of(expansion))
            if maps is not None:
                return op, maps
    return None


def _takes_columns(op: ir.Operation, expansion: ir.Operation) -> bool:
    """Whether it takes neighbouring columns of rows that were given dimensions of one element besides."""
    whole, source = (ir.RankedTensorType(value.type) for value in (op.operands[0], expansion.operands[0]))
    kind = ir.RankedTensorType(op.results[0].type)
    if source.rank != 2 or not whole.has_static_shape or kind.rank != whole.rank:
        return False
    outer = list(whole.shape[:-1])
    (*before, _), sizes, steps = slice_of(op)
    grown = sorted(outer) == sorted([1] * (len(outer) - 1) + [source.shape[0]]) and whole.shape[-1] == source.shape[1]
    return grown and not any(before) and list(sizes[:-1]) == outer and set(steps) == {1}


def _columns_of(source: ir.Value, op: ir.Operation, expansion: ir.Operation) -> ir.Operation:
    """Columns of what was expanded, and what expands them as an operation took them."""
    kind, whole = ir.RankedTensorType(source.type), ir.RankedTensorType(op.results[0].type)
    first, columns = slice_of(op)[0][-1], whole.shape[-1]
    type_ = ir.RankedTensorType.get([kind.shape[0], columns], kind.element_type)
    flat = tensor.ExtractSliceOp(type_, source, [], [], [], [0, first], list(type_.shape), [1, 1]).result
    attributes = {name: expansion.attributes[name] for name in expansion.attributes}
    if "static_output_shape" in attributes:
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(whole.shape))
    return ir.Operation.create(expansion.name, results=[whole], operands=[flat], attributes=attributes)


def _users(value: ir.Value, block: ir.Block) -> list[ir.Operation]:
    users = dict.fromkeys(users_of(value))
    return [op for op in users if op.block == block]


def _flat_maps(op: ir.Operation, groups: Groups) -> list[tuple[ir.AffineMap, Groups]] | None:
    """For each input its map in the fewer dimensions, and which of its own dimensions become one; None where one has
    some of the dimensions that become one, and not the others."""
    s, found = rows.Structured(op), []
    sizes = list(ir.RankedTensorType(op.results[0].type).shape)
    group_of = {d: number for number, group in enumerate(groups) for d in group}
    for map_ in s.maps[: s.inputs]:
        if not all(isinstance(expr, ir.AffineDimExpr) for expr in map_.results):
            return None
        dims = [expr.position for expr in map_.results]
        named = list(dict.fromkeys(group_of[d] for d in dims))
        wanted = [d for number in named for d in groups[number] if sizes[d] != 1]
        in_order = all(group_of[a] <= group_of[b] for a, b in zip(dims, dims[1:]))
        if not in_order or [d for d in dims if sizes[d] != 1] != wanted:
            return None
        own = [[place for place, d in enumerate(dims) if group_of[d] == number] for number in named]
        found.append((ir.AffineMap.get(len(groups), 0, [ir.AffineDimExpr.get(n) for n in named]), own))
    return found


def _flat(
    op: ir.Operation, expansion: ir.Operation, maps: Sequence[tuple[ir.AffineMap, Groups]]
) -> tuple[ir.Value, ir.Operation]:
    """The operator in fewer dimensions, and what expands its result."""
    source, value = expansion.operands[0], expansion.results[0]
    inputs = []
    for operand, (_, own) in zip(op.operands, maps):
        if operand == value:
            inputs.append(source)
        elif rows.is_tensor(operand) and len(own) < ir.RankedTensorType(operand.type).rank:
            inputs.append(tensor.collapse_shape(_collapsed(operand, own), operand, own))
        else:
            inputs.append(operand)
    element, rank = element_type(op.results[0]), ir.RankedTensorType(source.type).rank
    starts = [tensor.empty(sizes_of(source), element)]
    own = [*(map_ for map_, _ in maps), ir.AffineMap.get_identity(rank)]
    flat = generic(inputs, starts, own, ["parallel"] * rank, op.regions[0].blocks[0])
    behind = ir.Operation.create(
        expansion.name,
        results=[ir.RankedTensorType.get(ir.RankedTensorType(value.type).shape, element)],
        operands=[flat.results[0], *list(expansion.operands)[1:]],
        attributes={name: expansion.attributes[name] for name in expansion.attributes},
    )
    return flat.results[0], behind


def _collapsed(operand: ir.Value, groups: Groups) -> ir.Type:
    kind, shape = ir.RankedTensorType(operand.type), []
    for group in groups:
        is_open = any(kind.is_dynamic_dim(d) for d in group)
        shape.append(rows.DYNAMIC if is_open else prod(kind.shape[d] for d in group))
    return ir.RankedTensorType.get(shape, kind.element_type)
