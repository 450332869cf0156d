"""The operands of a convolution as its product takes them: filters with the channels of their group among zeros; what
takes its results so."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import arith, ir, linalg, tensor

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


def behind(images: ir.Value) -> ir.InsertionPoint:
    """Where other convolutions of these images find what is made of them, wherever each is rewritten."""
    owner = images.owner
    return ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else ir.InsertionPoint.after(owner)


def turned_last(result: ir.Value, of: Convolution) -> ir.Operation | None:
    """The transpose that makes the channels of images last, their space being one dimension: all that reads them."""
    uses = [use.owner.operation for use in result.uses]
    if len(uses) != 1 or uses[0].name != "tensor.collapse_shape":
        return None
    kind = ir.RankedTensorType(uses[0].results[0].type)
    uses = [use.owner.operation for use in uses[0].results[0].uses]
    if kind.rank != 3 or kind.shape[1:] != [of.outputs, of.count] or len(uses) != 1:
        return None
    turns = uses[0].name == "linalg.transpose" and list(ir.DenseI64ArrayAttr(uses[0].attributes["permutation"]))
    return uses[0] if turns == [0, 2, 1] else None
