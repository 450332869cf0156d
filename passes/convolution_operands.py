"""The operands of a convolution as its product takes them: filters with the channels of their group among zeros; what
takes its results so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from kitsune_mlir import rows
from kitsune_mlir.generics import generic, map_of, sizes_of
from kitsune_mlir.mlir import arith, ir, linalg, tensor
from kitsune_mlir.operations import element_type, permutation_of, users_of

from .convolutions import Convolution
from .reshapes import reshaped


def filters_last(of: Convolution) -> ir.Value:
    """The filters with their channels last, outputs x kernel x channels: all of a block of groups, with zeros for those
    of other groups."""
    groups, outputs, channels = of.groups // of.blocks, of.outputs // of.groups, of.channels // of.groups
    if groups == prod(of.kernel) == 1:
        return reshaped(of.filters, [of.outputs, *of.kernel, channels])
    if groups == 1:
        filters = reshaped(of.filters, [of.outputs, channels, *of.kernel])
        return transposed(filters, last_order(2 + of.rank))
    filters = reshaped(of.filters, [of.blocks, groups, outputs, channels, *of.kernel])
    rank = 5 + of.rank
    read = [0, 1, 2, rank - 1, *range(3, rank - 2)]  # the last two loops: a channel's group, and its number in it
    whole = beside_zeros(filters, read, [of.blocks, groups, outputs, *of.kernel, groups, channels], (1, rank - 2))
    return reshaped(whole, [of.outputs, *of.kernel, groups * channels])


def beside_zeros(filters: ir.Value, read: Sequence[int], sizes: Sequence[int], groups: tuple[int, int]) -> ir.Value:
    """Filters, whose dimensions are the loops `read` of these sizes, where the indices of both loops `groups` are the
    same, zeros elsewhere."""
    element, rank = element_type(filters), len(sizes)

    def chosen(x: ir.Value, _: ir.Value) -> ir.Value:
        own = arith.cmpi(arith.CmpIPredicate.eq, *(linalg.IndexOp(loop).result for loop in groups))
        zero = arith.constant(element, 0.0)
        return arith.select(own, x, zero)

    maps = [map_of(rank, read), map_of(rank, range(rank))]
    return generic([filters], [tensor.empty(list(sizes), element)], maps, ["parallel"] * rank, chosen).results[0]


def windows_of(last: ir.Value, of: Convolution) -> ir.Value:
    """The elements that each place sees of images whose channels are last, those of a filter side by side:
    images x places x elements."""
    reach = [(p - 1) * s + (k - 1) * d + 1 for p, s, k, d in zip(of.places, of.strides, of.kernel, of.dilations)]
    high = [max(0, far - low - size) for far, low, size in zip(reach, of.low, of.sizes)]
    around = padded(last, [0, *of.low, 0], [0, *high, 0])
    (batch,), kind, count = sizes_of(last, [0]), ir.RankedTensorType(last.type), 2 + 2 * of.rank
    loops = [ir.AffineExpr.get_dim(d) for d in range(count)]
    seen = [
        place * stride + element * dilation
        for place, element, stride, dilation in zip(loops[1:], loops[1 + of.rank :], of.strides, of.dilations)
    ][: of.rank]
    start = tensor.empty([batch, *of.places, *of.kernel, of.channels], kind.element_type)
    maps = [ir.AffineMap.get(count, 0, [loops[0], *seen, loops[-1]]), ir.AffineMap.get_identity(count)]
    made = generic([around], [start], maps, ["parallel"] * count, lambda x, _: x).results[0]
    return reshaped(made, [None if of.batch is None else of.batch, of.count, prod(of.kernel) * of.channels])


def transposed(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """The tensor with its dimensions in another order."""
    kind = ir.RankedTensorType(value.type)
    empty = tensor.empty(sizes_of(value, permutation), kind.element_type)
    return linalg.transpose(value, outs=[empty], permutation=list(permutation)).results[0]


def last_order(rank: int) -> list[int]:
    """The dimensions of images in the order in which their channels, the second ones, are last."""
    return [0, *range(2, rank), 1]


def second_order(rank: int) -> list[int]:
    """Those of images whose channels are last in the order in which these are the second ones."""
    return [0, rank - 1, *range(1, rank - 1)]


def turns_last(op: ir.Operation) -> bool:
    """Whether an operation is the transpose of images that makes their channels last."""
    return _orders(op, last_order)


def last_of(images: ir.Value) -> ir.Value | None:
    """What a transpose makes images of whose channels are last; None where they are made by anything else."""
    op = rows.producer(images)
    return op.operands[0] if op is not None and _orders(op, second_order) else None


def _orders(op: ir.Operation, order: Callable[[int], list[int]]) -> bool:
    if op.name != "linalg.transpose":
        return False
    permutation = permutation_of(op)
    return len(permutation) > 2 and permutation == order(len(permutation))


def padded(
    value: ir.Value, low: Sequence[int], high: Sequence[int], around: Callable[[], ir.Value] | None = None
) -> ir.Value:
    """A tensor with zeros around it, or with what `around` makes at the insertion point."""
    if not any((*low, *high)):
        return value
    kind = ir.RankedTensorType(value.type)
    shape = [rows.DYNAMIC if kind.is_dynamic_dim(d) else size + low[d] + high[d] for d, size in enumerate(kind.shape)]
    outside = around() if around else arith.constant(kind.element_type, 0.0)
    pad = tensor.PadOp(ir.RankedTensorType.get(shape, kind.element_type), value, [], [], low, high)
    block = pad.operation.regions[0].blocks.append(*[ir.IndexType.get()] * kind.rank)
    with ir.InsertionPoint(block):
        tensor.YieldOp(outside)
    return pad.result


def channels_last(images: ir.Value, extra: int) -> ir.Value:
    """Images with their channels last, and so many more channels, which are zero."""
    batch, channels, *sizes = rows.known_sizes(images)
    around = [0, extra, *[0] * len(sizes)]
    more = padded(images, [0] * len(around), around)
    turned = transposed(reshaped(more, [batch, channels + extra, prod(sizes)]), [0, 2, 1])
    return reshaped(turned, [batch, *sizes, channels + extra])


def behind(images: ir.Value) -> ir.InsertionPoint:
    """Where other convolutions of these images find what is made of them, wherever each is rewritten."""
    owner = images.owner
    return ir.InsertionPoint.at_block_begin(owner) if isinstance(owner, ir.Block) else ir.InsertionPoint.after(owner)


def turned_last(result: ir.Value, of: Convolution) -> ir.Operation | None:
    """The transpose that makes the channels of images last, their space being one dimension: all that reads them."""
    uses = users_of(result)
    if len(uses) != 1 or uses[0].name != "tensor.collapse_shape":
        return None
    kind = ir.RankedTensorType(uses[0].results[0].type)
    uses = users_of(uses[0].results[0])
    if kind.rank != 3 or kind.shape[1:] != [of.outputs, of.count] or len(uses) != 1:
        return None
    turns = uses[0].name == "linalg.transpose" and permutation_of(uses[0])
    return uses[0] if turns == [0, 2, 1] else None
