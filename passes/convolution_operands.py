"""The operands of a convolution as its product takes them: filters with the channels of their group among zeros."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, attr_int, ir, linalg, slice_of, tensor

from .convolutions import Convolution
from .schedule_build import constant_index, empty_generic, reshaped


def filters_last(of: Convolution) -> ir.Value:
    """The filters with their channels last, outputs x kernel x channels: all of a block of groups, with zeros for those
    of other groups."""
    groups, outputs, channels = of.groups // of.blocks, of.outputs // of.groups, of.channels // of.groups
    if groups == prod(of.kernel) == 1:
        return reshaped(of.filters, [of.outputs, *of.kernel, channels])
    if groups == 1:
        filters = reshaped(of.filters, [of.outputs, channels, *of.kernel])
        return transposed(filters, [0, *range(2, 2 + of.rank), 1])
    filters = reshaped(of.filters, [of.blocks, groups, outputs, channels, *of.kernel])
    element, rank = ir.RankedTensorType(filters.type).element_type, 5 + of.rank
    loops = [ir.AffineDimExpr.get(d) for d in range(rank)]  # the last two: a channel's group, and its number in it
    read = ir.AffineMap.get(rank, 0, [*loops[:3], loops[-1], *loops[3:-2]])
    start = tensor.empty([of.blocks, groups, outputs, *of.kernel, groups, channels], element)
    generic = empty_generic([filters], [start], [read, ir.AffineMap.get_identity(rank)], ["parallel"] * rank)
    with ir.InsertionPoint(generic.regions[0].blocks[0]):
        own = arith.cmpi(arith.CmpIPredicate.eq, linalg.IndexOp(1).result, linalg.IndexOp(rank - 2).result)
        zero = arith.ConstantOp(element, ir.FloatAttr.get(element, 0.0)).result
        linalg.YieldOp([arith.select(own, generic.regions[0].blocks[0].arguments[0], zero)])
    return reshaped(generic.results[0], [of.outputs, *of.kernel, groups * channels])


def transposed(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """The tensor with its dimensions in another order."""
    kind = ir.RankedTensorType(value.type)
    sizes = [tensor.dim(value, constant_index(d)) if kind.is_dynamic_dim(d) else kind.shape[d] for d in permutation]
    empty = tensor.empty(sizes, kind.element_type)
    return linalg.transpose(value, outs=[empty], permutation=list(permutation)).results[0]


def padded(value: ir.Value, low: Sequence[int], high: Sequence[int]) -> ir.Value:
    """A tensor with zeros around it."""
    if not any((*low, *high)):
        return value
    kind = ir.RankedTensorType(value.type)
    shape = [rows.DYNAMIC if kind.is_dynamic_dim(d) else size + low[d] + high[d] for d, size in enumerate(kind.shape)]
    zero = arith.ConstantOp(kind.element_type, ir.FloatAttr.get(kind.element_type, 0.0)).result
    pad = tensor.PadOp(ir.RankedTensorType.get(shape, kind.element_type), value, [], [], low, high)
    block = pad.operation.regions[0].blocks.append(*[ir.IndexType.get()] * kind.rank)
    with ir.InsertionPoint(block):
        tensor.YieldOp(zero)
    return pad.result


def padded_by_itself(images: ir.Value) -> ir.Operation | None:
    """The concatenation along a dimension of space that puts parts of a tensor, whole in all others, around itself, as
    reflected padding does; the tensor is its longest operand. None where images are made by anything else."""
    op = rows.producer(images)
    if op is None or op.name != "tensor.concat" or attr_int(op, "dim") < 2:
        return None
    inner = longest(op)
    parts = [value for value in op.operands if value != inner]
    return op if all(_is_part(value, inner, attr_int(op, "dim")) for value in parts) else None


def longest(concat: ir.Operation) -> ir.Value:
    """The operand of a concatenation that has the most elements along its dimension."""
    return max(concat.operands, key=lambda value: ir.RankedTensorType(value.type).shape[attr_int(concat, "dim")])


def _is_part(value: ir.Value, of: ir.Value, dim: int) -> bool:
    op = rows.producer(value)
    if op is None or op.name != "tensor.extract_slice" or op.operands[0] != of:
        return False
    part, kinds = slice_of(op), [ir.RankedTensorType(one.type) for one in (value, of)]
    whole = all(a == b for d, (a, b) in enumerate(zip(*(kind.shape for kind in kinds), strict=True)) if d != dim)
    first = [offset for d, offset in enumerate(part.offsets) if d != dim]
    return whole and not any(first) and part.offsets[dim] >= 0 and {*part.strides} == {1}


def padded_last(concat: ir.Operation, inner: ir.Value) -> ir.Value:
    """What `padded_by_itself` found, with its channels last, as `inner` is, which is the tensor itself."""
    dim = attr_int(concat, "dim") - 1
    kind, own = ir.RankedTensorType(inner.type), longest(concat)
    open_ = [tensor.dim(inner, constant_index(0))] if kind.is_dynamic_dim(0) else []
    parts = []
    for value in concat.operands:
        if value == own:
            parts.append(inner)
            continue
        part = slice_of(rows.producer(value))
        offsets, sizes = ([n if d == dim else m for d, m in enumerate(rest)] for n, rest in (
            (part.offsets[dim + 1], [0] * kind.rank), (part.sizes[dim + 1], kind.shape)))
        result = ir.RankedTensorType.get(sizes, kind.element_type)
        parts.append(tensor.ExtractSliceOp(result, inner, [], open_, [], offsets, sizes, [1] * kind.rank).result)
    total = sum(ir.RankedTensorType(part.type).shape[dim] for part in parts)
    shape = [total if d == dim else size for d, size in enumerate(kind.shape)]
    return tensor.ConcatOp(ir.RankedTensorType.get(shape, kind.element_type), dim, parts).result
