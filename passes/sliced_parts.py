"""What is sliced off one part of a concatenation is sliced off that part (by prepare-linalg):

%c = tensor.concat dim(1) %a, %b : (tensor<?x3xf32>, tensor<?x5xf32>) -> tensor<?x8xf32>
%s = tensor.extract_slice %c[0, 4] [%n, 2] [1, 1]       =>      %s = tensor.extract_slice %b[0, 1] [%n, 2] [1, 1]

So is one of the tensors of a stack, which torch writes as a concatenation of which a dimension is cut. What is sliced
off a slice is sliced off what that one was, so that its place in the whole tensor can be seen; a slice that is all of a
tensor is that. What is sliced off a tensor of one number, such as one layer's first states, is such a tensor: nothing
reads it.
"""

from __future__ import annotations

from kitsune_mlir import rows
from kitsune_mlir.mlir import attr_int, ir, linalg, replace_op, tensor, walk
from kitsune_mlir.operations import made_by, slice_of

from .tensor_sizes import TensorSizes


def slice_part(op: ir.Operation) -> None:
    """Slices the part of a concatenation or of another slice, or of one within it, that has all that a
    tensor.extract_slice takes."""
    _step_by_one(op)
    op = _of_stack(op) or op
    while (part := _part(op) or _behind_slice(op)) is not None:
        value, offsets = part
        _, sizes, steps = slice_of(op)
        with op.location, ir.InsertionPoint(op):
            made = tensor.ExtractSliceOp(op.results[0].type, value, *_operands(op), offsets, sizes, steps)
        replace_op(op, made.result)
        op = made.operation


def _step_by_one(op: ir.Operation) -> None:
    """Where one element of a dimension is taken, its step is said to be 1: that there is none."""
    _, sizes, steps = slice_of(op)
    op.attributes["static_strides"] = ir.DenseI64ArrayAttr.get(
        [1 if size == 1 and step != rows.DYNAMIC else step for size, step in zip(sizes, steps, strict=True)]
    )


def _of_stack(op: ir.Operation) -> ir.Operation | None:
    """A slice of a concatenation in the place of one of that with a dimension cut, of which it takes one of the first
    part and all of the second; None for any other slice."""
    cut = rows.producer(op.operands[0])
    whole = rows.producer(cut.operands[0]) if cut is not None and cut.name == "tensor.expand_shape" else None
    if whole is None or whole.name != "tensor.concat":
        return None
    kind, groups = ir.RankedTensorType(cut.results[0].type), rows.groups_of(cut)
    (offsets, sizes, steps), lengths = slice_of(op), list(map(len, groups))
    if sorted(lengths) != [1] * (len(groups) - 1) + [2] or op.results[0].type.rank != kind.rank or {*steps} != {1}:
        return None
    dim = lengths.index(2)  # and the next one are the parts
    inner = kind.shape[dim + 1]
    if sizes[dim : dim + 2] != [1, inner] or inner == rows.DYNAMIC or offsets[dim] < 0 or offsets[dim + 1] != 0:
        return None
    first = [*offsets[:dim], offsets[dim] * inner, *offsets[dim + 2 :]]
    shape = [*sizes[:dim], *sizes[dim + 1 :]]
    dynamic = _operands(op)
    with op.location, ir.InsertionPoint(op):
        type_ = ir.RankedTensorType.get(shape, kind.element_type)
        made = tensor.ExtractSliceOp(type_, cut.operands[0], *dynamic, first, shape, [1] * len(shape))
        again = tensor.ExpandShapeOp(op.results[0].type, made.result, groups, dynamic[1], sizes)
    replace_op(op, again.result)
    return made.operation


def _operands(op: ir.Operation) -> list[list[ir.Value]]:
    """The offsets, sizes and steps of a tensor.extract_slice that are values."""
    segments = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    rest = iter(list(op.operands)[1:])
    return [[next(rest) for _ in range(count)] for count in segments[1:]]


def _part(op: ir.Operation) -> tuple[ir.Value, list[int]] | None:
    """The part of the concatenation that a slice is of, and the offsets in it; None where it is of several, or of
    something else."""
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or owner.name != "tensor.concat":
        return None
    along = attr_int(owner, "dim")
    offsets, sizes, steps = slice_of(op)
    mark, first = ir.ShapedType.get_dynamic_size(), 0
    if mark in (offsets[along], sizes[along], steps[along]):
        return None
    last = offsets[along] + (sizes[along] - 1) * steps[along]
    for value in owner.operands:
        size = ir.RankedTensorType(value.type).shape[along]
        if size == mark:
            return None
        if first <= offsets[along] and last < first + size:
            return value, [offset - first if d == along else offset for d, offset in enumerate(offsets)]
        first += size
    return None


def _behind_slice(op: ir.Operation) -> tuple[ir.Value, list[int]] | None:
    """What another slice is of that a slice is of, and the offsets in it; None where they are not known, or the other
    one leaves elements out."""
    other = made_by(op.operands[0], "tensor.extract_slice")
    if other is None:
        return None
    if other.results[0].type.rank != other.operands[0].type.rank:
        return None
    (before, _, steps), offsets = slice_of(other), slice_of(op).offsets
    mark = ir.ShapedType.get_dynamic_size()
    if {*steps} != {1} or mark in before or any(first and offset == mark for first, offset in zip(before, offsets)):
        return None
    return other.operands[0], [offset + first if first else offset for first, offset in zip(before, offsets)]


def pass_whole_slices(function: ir.Operation) -> None:
    """Takes tensors of open sizes for what is sliced off them and is all of them."""
    sizes = None
    for op in walk(function, "tensor.extract_slice"):
        source, part = op.operands[0], slice_of(op)
        if source.type != op.results[0].type or any(part.offsets) or {*part.strides} != {1}:
            continue
        sizes = sizes or TensorSizes(function.regions[0].blocks[0])
        if sizes.shape(source) == sizes.shape(op.results[0]):
            replace_op(op, source)


def slice_fill(op: ir.Operation) -> None:
    """Fills what a tensor.extract_slice takes of a linalg.fill, instead."""
    fill = made_by(op.operands[0], "linalg.fill")
    if fill is None:
        return
    count = list(ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    open_sizes = iter(list(op.operands)[1 + count[1] : 1 + count[1] + count[2]])
    kind = ir.RankedTensorType(op.results[0].type)
    with op.location, ir.InsertionPoint(op):
        sizes = [next(open_sizes) if size == rows.DYNAMIC else size for size in kind.shape]
        filled = linalg.fill(fill.operands[0], outs=[tensor.empty(sizes, kind.element_type)])
    replace_op(op, filled)
