"""The windows of a convolution on images whose sizes are open until the call, as a matrix that is in no memory.

    %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] ... : tensor<?x?x?x64xbf16> to tensor<?x?x?x64xbf16>
    %w = linalg.generic {(b, i, j, k, l, c)} ins(%p by (b, i + k, j + l, c)) { yield %in } : tensor<?x?x?x3x3x64xbf16>
    %m = tensor.collapse_shape %w ... into tensor<?x576xbf16>
    %y = linalg.generic {...} ins(%m, %filters) ...                    // the sums of a linear layer
      =>
    %n = tensor.empty(%windows) : tensor<?xi8>                         // says how many windows there are
    %m = "kitsune.windows"(%x, %n) {filter = [3, 3], low = [1, 1], places = [-1, -1], upper = [-1, -1], ...}

The copy engine reads windows from the images where channels are whole chunks of what tensor cores sum, so that the
columns are those of the filters as they lie. Else each element would be written as often as windows see it, and read.
Chunks of fewer than 64 columns are of numbers of 16 bits alone.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from kitsune_mlir import example_sizes, rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.contraction import NAMES, match_product
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.mlir import arith, ir, tensor, walk
from kitsune_mlir.planning.product_engines import CHUNK
from kitsune_mlir.planning.windows import OPEN, STEP, Windows

from .convolutions import is_zero_padded
from .schedule_build import constant_index, i64
from .single_products import LEAST
from .split_windows import reads_windows


def read_open_windows(function: ir.Operation) -> None:
    """Rewrites such windows of a function that products alone read, of floating-point numbers."""
    for op in walk(function, "linalg.generic"):
        if op.parent.operation != function or not reads_windows(op):
            continue
        kind = ir.RankedTensorType(op.results[0].type)
        reshapes = _reshapes(op.results[0])
        matrices = [value for value in reshapes if ir.RankedTensorType(value.type).rank == 2]
        known = (
            isinstance(kind.element_type, ir.BF16Type | ir.F16Type | ir.F32Type)
            and matrices
            and all(map(_is_read, reshapes))
        )
        found = _windows(op) if known else None
        if found is not None:
            with op.location, ir.InsertionPoint(op):
                _replace(op, reshapes, *found)


def _reshapes(value: ir.Value) -> list[ir.Value]:
    """A tensor, and what is collapsed of it, and of that."""
    collapsed = [user for user in _readers(value) if user.name == "tensor.collapse_shape"]
    return [value, *(further for user in collapsed for further in _reshapes(user.results[0]))]


def _readers(value: ir.Value) -> list[ir.Operation]:
    """What reads a tensor's elements, not its sizes alone."""
    users = (use.owner.operation for use in value.uses)
    return [user for user in users if user.name != "tensor.dim"]


def _is_read(value: ir.Value) -> bool:
    """Whether reshapes alone read windows, or, where they are rows of a matrix, large products as their left operand,
    whose right ones have known sizes."""
    kind = ir.RankedTensorType(value.type)
    if kind.rank != 2 or not kind.is_dynamic_dim(0) or kind.is_dynamic_dim(1):
        return kind.rank > 2 and all(user.name == "tensor.collapse_shape" for user in _readers(value))
    for user in _readers(value):
        product = match_product(user) if user.name in NAMES else None
        if product is None or product.left != value or product.left_roles != ("m", "k") or product.right == value:
            return False
        right = rows.shape_of(product.right)
        if sorted(product.right_roles) != ["k", "n"] or rows.DYNAMIC in right:
            return False
        if prod((example_sizes.shape_of(value)[0], *right)) < LEAST:
            return False
    return True


def _windows(op: ir.Operation) -> tuple[ir.Value, Windows] | None:
    """The images that windows of open sizes are on, without zeros around them, and the windows; None where the copy
    engine cannot read them."""
    s, images = rows.Structured(op), op.operands[0]
    shape, rank = rows.shape_of(op.results[0]), len(s.maps[0].results) - 2
    if rank < 1 or len(s.iterators) != 2 + 2 * rank or not _yields_all(s.body):
        return None
    first, *_, last = (rows.dim_of(expr) for expr in s.maps[0].results)
    if first != 0 or last != len(shape) - 1:
        return None
    strides, dilations = [], []
    for d, expr in enumerate(list(s.maps[0].results)[1:-1], 1):
        begin, steps = linear(expr, len(shape)) or (1, [])
        if begin or {at for at, step in enumerate(steps) if step} != {d, d + rank} or min(steps) < 0:
            return None
        strides.append(steps[d])
        dilations.append(steps[d + rank])
    filter_, channels = tuple(shape[1 + rank : -1]), shape[-1]
    low = high = (0,) * rank
    pad = rows.producer(images)
    if pad is not None and is_zero_padded(pad):
        around = [list(ir.DenseI64ArrayAttr(pad.attributes[name])) for name in ("static_low", "static_high")]
        if min(min(own) for own in around) >= 0 and not any(own[0] or own[-1] for own in around):
            images, low, high = pad.operands[0], *(tuple(own[1:-1]) for own in around)
    sizes = tuple(OPEN if size == rows.DYNAMIC else size for size in rows.shape_of(images)[1:-1])
    least = CHUNK if isinstance(ir.RankedTensorType(images.type).element_type, ir.F32Type) else STEP
    chunk = next((width for width in range(CHUNK, least - 1, -STEP) if channels % width == 0), None)
    if OPEN not in sizes or rows.DYNAMIC in (*filter_, channels) or chunk is None:
        return None
    reach = ((size - 1) * dilation for size, dilation in zip(filter_, dilations))
    upper = tuple(behind - far for behind, far in zip(high, reach))
    places = tuple(OPEN if size == rows.DYNAMIC else size for size in shape[1 : 1 + rank])
    steps = tuple(strides), low, tuple(dilations)
    found = Windows(sizes, channels, filter_, *steps, places, chunk=chunk, ends=upper)
    return None if found.unreadable() else (images, found)


def _yields_all(body: ir.Block) -> bool:
    """Whether an operator's results are the elements that it reads."""
    end, *others = reversed(list(body.operations))
    return not others and end.operation.operands[0] == body.arguments[0]


def _replace(op: ir.Operation, reshapes: list[ir.Value], images: ir.Value, windows: Windows) -> None:
    """Puts a matrix that is in no memory in the place of those among the `reshapes` of windows that are written."""
    kind = ir.RankedTensorType(op.results[0].type)
    sizes = [tensor.dim(op.operands[1], constant_index(d)) for d in range(1 + len(windows.sizes))]
    count = reduce(arith.muli, sizes)
    like = tensor.empty([count], ir.IntegerType.get_signless(8))
    made = WindowsOp(images, [like], ir.RankedTensorType.get([rows.DYNAMIC, windows.columns], kind.element_type))
    for name in ("filter", "strides", "low", "dilations", "places", "upper"):
        made.attributes[name] = ir.DenseI64ArrayAttr.get(getattr(windows, name))
    if windows.chunk != CHUNK:
        made.attributes["chunk"] = i64(windows.chunk)
    for value in reshapes:
        for asked in [use.owner.operation for use in value.uses if use.owner.operation.name == "tensor.dim"]:
            if value == op.results[0]:
                asked.operands[0] = op.operands[1]
            elif rows.shape_of(value).count(rows.DYNAMIC) == 1 and rows.shape_of(value)[0] == rows.DYNAMIC:
                asked.results[0].replace_all_uses_with(count)
        if ir.RankedTensorType(value.type).rank == 2:
            value.replace_all_uses_with(made.results[0])
