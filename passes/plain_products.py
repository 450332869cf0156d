"""Products of tensors with dimensions of one element, as einsum makes them, in their plain form; for prepare-linalg.

`einsum("nd,edh->neh", x, w)` is a batch of one product, between views and transposes that move only dimensions of one
element:

    %y = linalg.batch_matmul ins(%a, %b : tensor<1x8192x256xbf16>, tensor<1x256x2048xbf16>) ...
    %v = tensor.expand_shape %y ... into tensor<8192x1x4x512xf32>
    %t = linalg.transpose ins(%v) outs(...) permutation = [0, 2, 3, 1]         // tensor<8192x4x512x1xf32>
    %g = linalg.generic ins(%t) ...                                            // elementwise

becomes

    %y = linalg.matmul ins(%c, %d : tensor<8192x256xbf16>, tensor<256x2048xbf16>) ...
    %g = linalg.generic ins(%y) ...
    %t = tensor.expand_shape %g ...

A batch of products of a matrix and one column, whose sums are so short that no tensor core is worth it, is an
elementwise operator on slices where the matrices are transposed, which reads them where they lie.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import is_zero_filled
from kitsune_mlir.generics import constant_index, extended, generic, indexing_maps, set_iterators, set_maps
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, replace_op, run_passes, tensor, walk
from kitsune_mlir.operations import element_type, is_generic, made_by, permutation_of, users_of

from .matrices_apart import take_apart
from .reshapes import slice_at

MOST_SUMMED = 8  # of a sum that is short
_CLEAN = "builtin.module(canonicalize,cse)"


def plain_products(module: ir.Module) -> None:
    """Rewrites a module in place."""
    products = walk(module, "linalg.batch_matmul")
    if not products:
        return
    for op in walk(module, "linalg.transpose"):
        if _is_beside_product(op):
            _without_units(op)
    run_passes(module, _CLEAN)
    for op in walk(module, "linalg.batch_matmul"):
        if _has_plain_maps(op):
            take_apart(op)
    for op in walk(module, "linalg.batch_matmul"):
        if _has_plain_maps(op):
            _unbatched(op) if rows.shape_of(op.operands[0])[0] == 1 else _as_sums(op)
    run_passes(module, _CLEAN)
    for op in walk(module, "tensor.collapse_shape"):
        _composed(op)
    for op in walk(module, "linalg.generic"):
        _before_expansion(op)
    for op in walk(module, "tensor.collapse_shape"):
        _composed(op)
    run_passes(module, _CLEAN)


def concatenate_collapsed(concat: ir.Operation) -> None:
    """Gives what is concatenated the dimensions of what reads it, where that has fewer, so that products find the
    parts of their operands as they are loaded: [rows, 1, columns] are rows and columns."""
    readers = users_of(concat.results[0])
    if [op.name for op in readers] != ["tensor.collapse_shape"]:
        return
    (reader,) = readers
    groups = rows.groups_of(reader)
    dim = attr_int(concat, "dim")
    number, group = next((i, group) for i, group in enumerate(groups) if dim in group)
    shape = ir.RankedTensorType(concat.results[0].type).shape
    if any(shape[d] != 1 for d in group if d != dim):
        return
    with concat.location, ir.InsertionPoint(concat):
        parts = [_collapsed(part, groups) for part in concat.operands]
        joined = tensor.concat(reader.results[0].type, number, parts)
    replace_op(reader, joined)
    concat.erase()


# ---- dimensions of one element


def _is_beside_product(transpose: ir.Operation) -> bool:
    """Whether it has dimensions of one element, and an operand of a batch of products is a view of it, or it is of such
    products, elementwise operators between."""
    return 1 in rows.shape_of(transpose.results[0]) and (
        _reaches(transpose.results[0]) or _comes_from_product(transpose.operands[0])
    )


def _reaches(value: ir.Value) -> bool:
    users = [use.owner for use in value.uses]
    return any(
        user.name == "linalg.batch_matmul" or (user.name in rows.RESHAPES and _reaches(user.results[0]))
        for user in users
    )


def _comes_from_product(value: ir.Value) -> bool:
    while (op := made_by(value, "linalg.generic", *rows.RESHAPES)) is not None:
        if op.name == "linalg.generic" and rows.Structured(op).inputs != 1:
            return False
        value = op.operands[0]
    return made_by(value, "linalg.batch_matmul", "linalg.matmul") is not None


def _without_units(transpose: ir.Operation) -> None:
    """Collapses dimensions of one element before the transpose, which goes where it moves no others, and brings them
    back behind it."""
    source, result = transpose.operands[0], transpose.results[0]
    permutation = permutation_of(transpose)
    kept = [d for d, size in enumerate(rows.shape_of(source)) if size != 1]
    if not kept:
        return
    order = [kept.index(d) for d in permutation if d in kept]
    with transpose.location, ir.InsertionPoint(transpose):
        value = _collapsed(source, _groups(rows.shape_of(source)))
        if order != sorted(order):
            sizes = [_size(value, d) for d in order]
            value = linalg.transpose(value, outs=[tensor.empty(sizes, element_type(value))], permutation=order).results[
                0
            ]
        result.replace_all_uses_with(_expanded(value, result.type, _groups(rows.shape_of(result))))
    transpose.erase()


def _groups(shape: Sequence[int]) -> list[list[int]]:
    """The dimensions, each of more than one element with those of one beside it."""
    groups: list[list[int]] = [[]]
    for d, size in enumerate(shape):
        if size != 1 and any(shape[other] != 1 for other in groups[-1]):
            groups.append([])
        groups[-1].append(d)
    return groups


def _size(value: ir.Value, dimension: int) -> int | ir.Value:
    kind = ir.RankedTensorType(value.type)
    if kind.is_dynamic_dim(dimension):
        return tensor.dim(value, constant_index(dimension))
    return kind.shape[dimension]


def _collapsed(value: ir.Value, groups: Sequence[Sequence[int]]) -> ir.Value:
    kind, mark = ir.RankedTensorType(value.type), ir.ShapedType.get_dynamic_size()
    if len(groups) == kind.rank:
        return value
    sizes = []
    for group in groups:
        size = 1
        for d in group:
            size = mark if mark in (size, kind.shape[d]) else size * kind.shape[d]
        sizes.append(size)
    type_ = ir.RankedTensorType.get(sizes, kind.element_type)
    return tensor.CollapseShapeOp(type_, value, [list(group) for group in groups]).result


def _expanded(value: ir.Value, type_: ir.Type, groups: Sequence[Sequence[int]]) -> ir.Value:
    """The other way; an open size has dimensions of one element beside it alone, and is what the value says."""
    kind = ir.RankedTensorType(type_)
    if len(groups) == kind.rank:
        return value
    open_ = [_size(value, n) for n, group in enumerate(groups) if any(kind.is_dynamic_dim(d) for d in group)]
    return tensor.ExpandShapeOp(kind, value, [list(group) for group in groups], open_, list(kind.shape)).result


# ---- products


def _has_plain_maps(product: ir.Operation) -> bool:
    a, b, c = (list(map(str, map_.results)) for map_ in indexing_maps(product))
    return (a, b, c) == (["d0", "d1", "d3"], ["d0", "d3", "d2"], ["d0", "d1", "d2"])


def _unbatched(product: ir.Operation) -> None:
    """One product in place of a batch of one."""
    groups = [[0, 1], [2]]
    with product.location, ir.InsertionPoint(product):
        left, right, start = (_collapsed(operand, groups) for operand in product.operands)
        value = linalg.matmul(left, right, outs=[start])
        m, n, k = (ir.AffineDimExpr.get(d) for d in range(3))
        maps = [ir.AffineMapAttr.get(ir.AffineMap.get(3, 0, results)) for results in ([m, k], [k, n], [m, n])]
        value.owner.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
        product.results[0].replace_all_uses_with(_expanded(value, product.results[0].type, groups))
    product.erase()


def _as_sums(product: ir.Operation) -> None:
    """An elementwise operator in place of short sums for one column of each product of a batch, where the left operand
    is a transposed tensor in whose rows the summed dimension does not lie."""
    left, right, start = product.operands
    k, n = rows.shape_of(right)[1:]
    floats = (ir.BF16Type, ir.F16Type, ir.F32Type)
    turned = rows.producer(left)
    if n != 1 or not 1 < k <= MOST_SUMMED or not all(isinstance(element_type(v), floats) for v in product.operands):
        return
    if turned is None or turned.name != "linalg.transpose" or not is_zero_filled(start):
        return
    summed, *others = (permutation_of(turned)[d] for d in (2, 0, 1))
    if summed == 2:
        return
    batch, row = (ir.AffineDimExpr.get(d) for d in range(2))
    of_left = [batch, row] if others == sorted(others) else [row, batch]
    with product.location, ir.InsertionPoint(product):
        start = _collapsed(start, [[0], [1, 2]])
        lefts = [slice_at(turned.operands[0], {summed: i}) for i in range(k)]
        rights = [slice_at(right, {1: i, 2: 0}) for i in range(k)]
        maps = [ir.AffineMap.get(2, 0, results) for results in [of_left] * k + [[batch]] * k + [[batch, row]]]

        def total(*given: ir.Value) -> ir.Value:
            *factors, _ = (extended(value, element_type(start)) for value in given)
            terms = [arith.mulf(a, b) for a, b in zip(factors[:k], factors[k:], strict=True)]
            return functools.reduce(arith.addf, terms)

        made = generic([*lefts, *rights], [start], maps, ["parallel"] * 2, total)
        whole = _expanded(made.results[0], product.results[0].type, [[0], [1, 2]])
        product.results[0].replace_all_uses_with(whole)
    product.erase()


# ---- what follows


def _composed(collapse: ir.Operation) -> None:
    """One reshape in place of a tensor.collapse_shape of a tensor.expand_shape, where one does."""
    expansion, result = rows.producer(collapse.operands[0]), collapse.results[0]
    if expansion is None or expansion.name != "tensor.expand_shape":
        return
    source = expansion.operands[0]
    if not rows.keeps_open(collapse, expansion):
        return
    with collapse.location, ir.InsertionPoint(collapse):
        if source.type == result.type:
            result.replace_all_uses_with(source)
        elif groups := _split(rows.shape_of(source), rows.shape_of(result)):
            result.replace_all_uses_with(_expanded(source, result.type, groups))
        elif groups := _split(rows.shape_of(result), rows.shape_of(source)):
            result.replace_all_uses_with(_collapsed(source, groups))


def _split(shape: Sequence[int], finer: Sequence[int]) -> list[list[int]] | None:
    """For each of the sizes, which of the finer ones make it; None where they do not."""
    groups: list[list[int]] = []
    rest, mark = list(range(len(finer))), ir.ShapedType.get_dynamic_size()
    for size in shape:
        group = [rest.pop(0)] if rest else []
        while group and rest and mark not in (size, finer[group[-1]]) and prod(finer[d] for d in group) < size:
            group.append(rest.pop(0))
        made = [finer[d] for d in group]
        if not group or (made != [mark] if size == mark else mark in made or prod(made) != size):
            return None
        groups.append(group)
    while rest and finer[rest[0]] == 1 and groups:
        groups[-1].append(rest.pop(0))
    return None if rest or len(groups) == len(finer) else groups


def _before_expansion(generic: ir.Operation) -> None:
    """An elementwise operator on products whose columns, or whose batch, were split in several dimensions, or that were
    given dimensions of one element, is done before."""
    is_plain = is_generic(generic) and rows.Structured(generic).inputs == 1
    expansion = made_by(generic.operands[0], "tensor.expand_shape") if is_plain else None
    if expansion is None or len(list(expansion.results[0].uses)) != 1:
        return
    groups = rows.groups_of(expansion)
    shape, rank = rows.shape_of(expansion.results[0]), ir.RankedTensorType(generic.results[0].type).rank
    of_rows = groups[-2] if len(groups) > 1 else []  # of a batch's products the batch may be split, too
    rows_are_split = sum(shape[d] != 1 for d in of_rows) > 1
    identity = ir.AffineMap.get_identity(rank)
    indexed = walk(generic, "linalg.index")
    started = list(generic.regions[0].blocks[0].arguments[1].uses)
    if rows_are_split or indexed or started or any(map_ != identity for map_ in rows.Structured(generic).maps):
        return
    before = expansion.operands[0]
    kind = ir.RankedTensorType(before.type)
    if not _comes_from_product(before):
        return
    with generic.location, ir.InsertionPoint(generic):
        sizes = [_size(before, d) for d in range(kind.rank)]
        empty = tensor.empty(sizes, element_type(generic.results[0]))
        moved = generic.clone()
        moved.operands[0], moved.operands[1] = before, empty
        moved.results[0].set_type(empty.type)
        set_maps(moved, [ir.AffineMap.get_identity(kind.rank)] * 2)
        set_iterators(moved, ["parallel"] * kind.rank)
        type_, open_ = ir.RankedTensorType(generic.results[0].type), list(expansion.operands)[1:]
        split = tensor.ExpandShapeOp(type_, moved.results[0], groups, open_, list(type_.shape))
        generic.results[0].replace_all_uses_with(split.result)
    generic.erase()
