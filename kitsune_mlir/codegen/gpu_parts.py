"""Parts of one buffer that operators compute, written where they belong.

    %a = memref.alloc() : memref<8x64xbf16>                %whole = memref.alloc() : memref<8x128xbf16>
    linalg.generic ... outs(%a)                            %left = memref.subview %whole[0, 0] ...
    %whole = memref.alloc() : memref<8x128xbf16>     =>    linalg.generic ... outs(%left)
    %left = memref.subview %whole[0, 0] ...
    memref.copy %a, %left

A concatenation of what operators compute is bufferized into allocations that are copied. Where nothing else reads such
an allocation its operator writes the part itself. (The kernels that fill parts of a buffer which lie apart are one
launch: passes/join_launches.py.)
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.mlir import func, gpu, in_block_order, ir, memref, walk
from kitsune_mlir.operations import made_by, operations_of, slice_of, users_of

from .gpu_buffers import VIEWS, ancestor_in, is_alloc, root_of, uses_of
from .gpu_copy import Copy
from .gpu_generic import Generic
from .gpu_kernel import Kernel, Kernels, on_host
from .gpu_word_access import bytes_of

LEAST_BYTES = 1 << 22  # of a copy that the driver does: kernels neither overlap it nor are joined with it
# What may stand between operators that one kernel does: nothing that reads or writes a buffer.
IDLE = (*VIEWS, "memref.alloc", "memref.dim", "arith.constant", "affine.apply")


def write_in_place(main: func.FuncOp) -> None:
    """Lets an operator write the part of a buffer into which its result is copied, where nothing else reads that."""
    block = main.body.blocks[0]
    for copy in operations_of(block, "memref.copy"):
        source, target = copy.operands
        views = [] if is_alloc(source) else [source.owner.operation] if _is_collapsed(source) else None
        if views is None or source.owner.operation.block != block:
            continue
        own = views[0].operands[0] if views else source
        writer, number = _writer(own, {copy, *views}) or (None, 0)
        brought = None if writer is None else needed(target, writer)
        if writer is None or brought is None or not is_untouched(target, writer, copy):
            continue
        for op in brought:
            op.move_before(writer)
        with copy.context, copy.location, ir.InsertionPoint(writer):
            place = _expanded(target, views[0]) if views else target
        writer.operands[number] = place
        for op in (copy, *views, own.owner.operation):
            op.erase()


def _is_collapsed(value: ir.Value) -> bool:
    owner = made_by(value, "memref.collapse_shape")
    return owner is not None and is_alloc(owner.operands[0])


def _writer(own: ir.Value, others: set[ir.Operation]) -> tuple[ir.Operation, int] | None:
    """The linalg.generic a result of which an allocation is, when besides it only `others` use that, and the number of
    its operand."""
    users = [use for use in own.uses if use.owner.operation not in others]
    later = [user for op in others for result in op.results for user in users_of(result)]
    if len(users) != 1 or users[0].owner.name != "linalg.generic" or any(user not in others for user in later):
        return None
    generic, number = Generic(users[0].owner.operation), users[0].operand_number
    output = number - len(generic.inputs)
    return (generic.op, number) if output >= 0 and not generic.reduction and not generic.reads(output) else None


def needed(value: ir.Value, before: ir.Operation) -> list[ir.Operation] | None:
    """The views and allocations, and their sizes, that must come to stand before an operation for `value` to be there,
    in order; None when something else would have to."""
    found: set[ir.Operation] = set()
    waiting = [value]
    while waiting:
        one = waiting.pop()
        owner = rows.producer(one)
        if owner is None or owner.block != before.block or owner.is_before_in_block(before):
            continue
        if owner.name not in IDLE and not owner.name.startswith("arith."):
            return None
        found.add(owner)
        waiting += owner.operands
    return in_block_order(found)


def is_untouched(target: ir.Value, first: ir.Operation, last: ir.Operation) -> bool:
    """Whether from operation `first` to `last` others only write parts of the buffer that are apart from it."""
    root = root_of(target)
    for op in {ancestor_in(first.block, use.owner.operation) for use in uses_of(root)}:
        if op.is_before_in_block(first) or not op.is_before_in_block(last):
            continue
        own = _targets(op)
        if own and all(root_of(one) != root or lie_apart(one, target) for one in own):
            touched = _read(op, len(own))
        else:
            touched = [operand for one in walk(op) for operand in one.operands] if op.name not in IDLE else []
        if any(root_of(value) == root for value in touched):
            return False
    return True


def _expanded(target: ir.Value, collapse: ir.Operation) -> ir.Value:
    """The view of `target` that has the shape of what `collapse` collapses."""
    kind, wanted = ir.MemRefType(target.type), ir.MemRefType(collapse.operands[0].type)
    groups = rows.groups_of(collapse)
    layout = None
    if kind.affine_map != ir.AffineMap.get_identity(kind.rank):
        (strides, offset), open_ = kind.get_strides_and_offset(), ir.ShapedType.get_dynamic_stride_or_offset()
        found = [0] * wanted.rank
        for group, stride in zip(groups, strides):
            for d in reversed(group):
                found[d] = stride
                stride = open_ if stride == open_ or wanted.is_dynamic_dim(d) else stride * wanted.shape[d]
        layout = ir.StridedLayoutAttr.get(offset, found)
    sizes = list(rows.producer(collapse.operands[0]).operands)  # with which the buffer is allocated
    result = ir.MemRefType.get(wanted.shape, wanted.element_type, layout)
    return memref.ExpandShapeOp(result, target, collapse.attributes["reassociation"], sizes, wanted.shape).result


def _targets(op: ir.Operation) -> list[ir.Value]:
    """The parts of buffers that an operation fills, if that is all it does."""
    if op.name == "memref.copy":
        return [op.operands[1]]
    if op.name != "linalg.generic":
        return []
    generic = Generic(op)
    filled = not generic.reduction and not any(map(generic.reads, range(len(generic.outputs))))
    return generic.outputs if filled else []


def _read(op: ir.Operation, targets: int) -> list[ir.Value]:
    """What an operation reads: its operands but the last ones, and what its body takes from outside."""
    inner = [operand for one in walk(op) if one != op for operand in one.operands]
    return [*list(op.operands)[: len(op.operands) - targets], *inner]


def lie_apart(a: ir.Value, b: ir.Value) -> bool:
    """Whether two parts of a buffer surely have no element in common: `are_apart`, or slices of one view that are apart
    along a dimension, where other dimensions are open, too."""
    first, second = rows.producer(a), rows.producer(b)
    if first is not None and first.name == "memref.expand_shape":  # of the same elements
        return lie_apart(first.operands[0], b)
    if second is not None and second.name == "memref.expand_shape":
        return lie_apart(a, second.operands[0])
    if first is None or second is None or {first.name, second.name} != {"memref.subview"}:
        return are_apart(a.type, b.type)
    one, two = slice_of(first), slice_of(second)
    ways = zip(one.offsets, one.sizes, two.offsets, two.sizes)
    behind = any(min(own) >= 0 and (own[0] >= sum(own[2:]) or own[2] >= sum(own[:2])) for own in ways)
    of_one = first.operands[0] == second.operands[0] and {*one.strides, *two.strides} == {1}
    return (of_one and behind) or are_apart(a.type, b.type)


def are_apart(a: ir.MemRefType, b: ir.MemRefType) -> bool:
    """Whether two parts of a buffer surely have no element in common: along a dimension one begins behind the other, or
    both have elements a multiple of the least stride apart, and one begins between those of the other. Dimensions of
    one element do not matter."""
    (strides, sizes, start), (others, counts, other) = _squeezed(a), _squeezed(b)
    if strides != others or min(*strides, start, other) < 0:  # of sizes that are open
        return False
    for stride, size, count in zip(strides, sizes, counts):
        (at, start), (before, other) = divmod(start, stride), divmod(other, stride)
        known = size >= 0 and count >= 0
        if known and (at >= before + count or before >= at + size):
            return True
    return start != other and all(stride % min(strides) == 0 for stride in strides)


def _squeezed(kind: ir.MemRefType) -> tuple[list[int], list[int], int]:
    """Strides and sizes of the dimensions that have not just one element, and the offset."""
    strides, offset = kind.get_strides_and_offset()
    kept = [(stride, size) for stride, size in zip(strides, kind.shape) if size != 1] or [(1, 1)]
    return [stride for stride, _ in kept], [size for _, size in kept], offset


def is_dense(kind: ir.MemRefType) -> bool:
    kind = ir.MemRefType(kind)
    with kind.context:
        return kind.layout == ir.AffineMapAttr.get(ir.AffineMap.get_identity(kind.rank))


def lower_copy(op: ir.Operation, kernels: Kernels) -> None:
    """Puts a kernel in the place of a memref.copy; the driver does those of large dense buffers."""
    source, target = op.operands
    if source == target or _are_one(source, target):  # a slice that was computed in place
        op.erase()
    elif not all(map(_is_of_driver, op.operands)) and (root_of(source) != root_of(target) or lie_apart(source, target)):
        copy, kernel = Copy(source, target), Kernel(kernels, op, "copy")
        with kernel.body():
            copy.emit(gpu.block_id(gpu.Dimension.x), kernel)
        kernel.launch(lambda: copy.blocks(on_host))
        op.erase()


def _are_one(a: ir.Value, b: ir.Value) -> bool:
    """Whether two views of a buffer have its same elements, as those do that are reached by other reshapes."""
    one, other = _squeezed(a.type), _squeezed(b.type)
    known = root_of(a) == root_of(b) and one == other and min(*one[0], *one[1], one[2]) >= 0
    return known or _reshaped(a) == _reshaped(b)


def _reshaped(value: ir.Value) -> ir.Value:
    """What a view is a reshape of: it has the same elements in the same order."""
    view = rows.producer(value)
    while view is not None and view.name in ("memref.collapse_shape", "memref.expand_shape", "memref.cast"):
        value = view.operands[0]
        view = rows.producer(value)
    return value


def _is_of_driver(buffer: ir.Value) -> bool:
    """Whether a buffer is dense, and not known to be so small that a kernel has copied it before the driver begins."""
    kind = ir.MemRefType(buffer.type)
    return is_dense(kind) and not (kind.has_static_shape and prod(kind.shape) * bytes_of(kind) < LEAST_BYTES)
