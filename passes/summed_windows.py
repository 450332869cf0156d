"""The windows of a convolution on images of known sizes that a product sums over all their places, as its gradient by
its filters does, as a matrix that is in no memory.

    %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] ... : tensor<8x28x28x96xbf16> to tensor<8x30x30x96xbf16>
    %w = linalg.generic {(b, i, j, k, l, c)} ins(%p by (b, i + k, j + l, c)) { yield %in } : tensor<8x28x28x3x3x96xbf16>
    %m = tensor.collapse_shape %w ... into tensor<6272x864xbf16>
    %y = linalg.matmul ins(%g, %m : tensor<64x6272xbf16>, tensor<6272x864xbf16>) outs(%zero : tensor<64x864xf32>)
      =>
    %m = "kitsune.windows"(%x) {filter = [3, 3], low = [1, 1], places = [28, 28], ...} : tensor<6272x1152xbf16>
    %s = linalg.matmul ins(%g, %m) ... : tensor<64x1152xf32>      // 96 channels are two chunks of 64
    %y = tensor.collapse_shape (tensor.extract_slice of %s as tensor<64x9x128xf32>) ...

The copy engine reads windows from the images, chunks of 64 channels at a time. Else each element would be written as
often as windows see it, and read.
"""

from __future__ import annotations

from math import prod

from kitsune_mlir import rows
from kitsune_mlir.contraction import Contraction, match_product
from kitsune_mlir.dialects.windows import WindowsOp
from kitsune_mlir.generics import generic, map_of, zero_tensor
from kitsune_mlir.mlir import ir, replace_op, tensor, walk
from kitsune_mlir.operations import element_type, made_by
from kitsune_mlir.planning.windows import Windows
from kitsune_mlir.precision import tf32_pieces

from .open_images import known_windows_on
from .single_products import LEAST
from .split_windows import reads_windows

MOST_COLUMNS = 1.4  # times the columns of windows, up to which a product may have zeros for channels that are none


def read_summed_windows(function: ir.Operation) -> None:
    """Rewrites such products of a function, of 16-bit numbers, or of f32 that are cut into such."""
    for op in walk(function, "linalg.matmul"):
        if op.parent.operation == function and (found := _windows_of(op)) is not None:
            with op.location, ir.InsertionPoint(op):
                _replace(op, *found)


def _windows_of(op: ir.Operation) -> tuple[Contraction, ir.Value, Windows] | None:
    """A product, the images, and the windows on them that it sums over; None where the copy engine cannot read them."""
    product = match_product(op)
    if product is None or product.right_roles != ("k", "n") or product.left == product.right:
        return None
    value = product.right
    element = element_type(value)
    if isinstance(element, ir.F32Type) and tf32_pieces(op) == 1:
        return None  # products of tf32 numbers want rows along their sums
    made = made_by(value, "tensor.collapse_shape")
    if made is None:
        return None
    windows = rows.producer(made.operands[0])
    if windows is None or not reads_windows(windows):
        return None
    found, rank = known_windows_on(windows), ir.RankedTensorType(made.operands[0].type).rank
    places = list(range(rank // 2))
    if found is None or rows.groups_of(made) != [places, list(range(len(places), rank))]:
        return None
    left, (count, columns) = rows.shape_of(product.left), rows.shape_of(value)
    if prod(left) * columns < LEAST or rows.DYNAMIC in (*left, count):
        return None
    return (product, *found) if found[1].columns <= MOST_COLUMNS * columns else None


def _replace(op: ir.Operation, product: Contraction, images: ir.Value, windows: Windows) -> None:
    """Puts a product with a matrix that is in no memory in the place of one."""
    count, columns = rows.shape_of(product.right)
    element, taps = element_type(images), prod(windows.filter)
    made = WindowsOp(images, [], ir.RankedTensorType.get([count, windows.columns], element))
    for name in ("filter", "strides", "low", "dilations", "places"):
        made.attributes[name] = ir.DenseI64ArrayAttr.get(getattr(windows, name))
    kind = ir.RankedTensorType(op.results[0].type)
    outputs, channels = kind.shape[0], windows.channels
    start = zero_tensor([outputs, windows.columns], kind.element_type)
    operands = [(product.left, product.left_roles), (made.results[0], product.right_roles)]
    maps = [map_of(3, ["mnk".index(role) for role in roles]) for roles in (*(own for _, own in operands), "mn")]
    given, iterators = [value for value, _ in operands], ["parallel", "parallel", "reduction"]
    whole = generic(given, [start], maps, iterators, op.regions[0].blocks[0]).results[0]
    if windows.columns == columns:
        replace_op(op, whole)
        return
    parts, sizes = [outputs, taps, windows.depth], [outputs, taps, channels]
    types = [ir.RankedTensorType.get(shape, kind.element_type) for shape in (parts, sizes)]
    split = tensor.ExpandShapeOp(types[0], whole, [[0], [1, 2]], [], parts).result
    own = tensor.ExtractSliceOp(types[1], split, [], [], [], [0] * 3, sizes, [1] * 3).result
    replace_op(op, tensor.CollapseShapeOp(kind, own, [[0], [1, 2]]).result)
