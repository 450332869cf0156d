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
from kitsune_mlir.contraction import NAMES, match_product
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.generics import constant_index
from kitsune_mlir.mlir import arith, i64, ir, tensor, walk
from kitsune_mlir.operations import users_of
from kitsune_mlir.planning.product_engines import CHUNK
from kitsune_mlir.planning.windows import Windows

from .open_images import windows_on
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
        found = windows_on(op) if known else None
        if found is not None:
            with op.location, ir.InsertionPoint(op):
                _replace(op, reshapes, *found)


def _reshapes(value: ir.Value) -> list[ir.Value]:
    """A tensor, and what is collapsed of it, and of that."""
    collapsed = [user for user in _readers(value) if user.name == "tensor.collapse_shape"]
    return [value, *(further for user in collapsed for further in _reshapes(user.results[0]))]


def _readers(value: ir.Value) -> list[ir.Operation]:
    """What reads a tensor's elements, not its sizes alone."""
    users = users_of(value)
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
        for asked in users_of(value, "tensor.dim"):
            if value == op.results[0]:
                asked.operands[0] = op.operands[1]
            elif rows.shape_of(value).count(rows.DYNAMIC) == 1 and rows.shape_of(value)[0] == rows.DYNAMIC:
                asked.results[0].replace_all_uses_with(count)
        if ir.RankedTensorType(value.type).rank == 2:
            value.replace_all_uses_with(made.results[0])
