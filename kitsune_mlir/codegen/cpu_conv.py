"""Convolutions as matrix products: every window of the image becomes a column ("im2col").

linalg.conv_2d_nchw_fchw ins(%x, %w) outs(%init)
    =>
%columns[n, (c, kh, kw), (oh, ow)] = %x[n, c, oh * stride + kh * dilation, ow * stride + kw * dilation]
%y[n, f, (oh, ow)] = %init + sum over (c, kh, kw) of %w[f, (c, kh, kw)] * %columns
"""

from __future__ import annotations

import math

from kitsune_mlir.generics import generic, multiply_add
from kitsune_mlir.mlir import ir, replace_op, tensor, walk

from .cpu_build import DYNAMIC, index

_NAMES = ("linalg.conv_1d_ncw_fcw", "linalg.conv_2d_nchw_fchw", "linalg.conv_3d_ncdhw_fcdhw")
_FLOATS = (ir.BF16Type, ir.F16Type, ir.F32Type, ir.F64Type)


def convolutions_to_products(module: ir.Module) -> None:
    """Rewrites convolutions of floating-point images whose sizes, but for the batch, are fixed."""
    for op in walk(module, *_NAMES):
        shapes = [list(ir.RankedTensorType(value.type).shape) for value in op.operands]
        elements = [ir.RankedTensorType(value.type).element_type for value in op.operands]
        fixed = DYNAMIC not in (*shapes[0][1:], *shapes[1], *shapes[2][1:])
        if fixed and all(isinstance(element, _FLOATS) for element in elements):
            with module.context, op.location, ir.InsertionPoint(op):
                result = _product(op, shapes)
            replace_op(op, result)


def _product(op: ir.Operation, shapes: list[list[int]]) -> ir.Value:
    image, weight, init = op.operands
    rank = len(shapes[0]) - 2
    channels, kernel, filters, out = shapes[1][1], shapes[1][2:], shapes[1][0], shapes[2][2:]
    batch = tensor.dim(image, index(0)) if shapes[0][0] == DYNAMIC else shapes[0][0]
    depth, pixels, count = channels * math.prod(kernel), math.prod(out), shapes[0][0]
    windows = _windows(op, image, [channels, *kernel, *out], batch, rank)
    middle = list(range(1, rank + 2)), list(range(rank + 2, 2 * rank + 2))
    columns = _collapse(windows, [[0], *middle], [count, depth, pixels])
    matrix = _collapse(weight, [[0], list(range(1, rank + 2))], [filters, depth])
    start = _collapse(init, [[0], [1], list(range(2, rank + 2))], [count, filters, pixels])
    n, f, p, k = (ir.AffineDimExpr.get(d) for d in range(4))
    maps = [ir.AffineMap.get(4, 0, dims) for dims in ([f, k], [n, k, p], [n, f, p])]
    product = generic([matrix, columns], [start], maps, ["parallel"] * 3 + ["reduction"], multiply_add).results[0]
    sizes = [batch] if count == DYNAMIC else []
    groups = [[0], [1], list(range(2, rank + 2))]
    return tensor.ExpandShapeOp(op.results[0].type, product, groups, sizes, shapes[2]).result


def _windows(op: ir.Operation, image: ir.Value, sizes: list[int], batch: ir.Value | int, rank: int) -> ir.Value:
    """n x c x kernel x out: what each output pixel sees of the image."""
    strides, dilations = (list(ir.DenseIntElementsAttr(op.attributes[name])) for name in ("strides", "dilations"))
    loops = [ir.AffineDimExpr.get(d) for d in range(2 + 2 * rank)]
    reads = [loops[2 + rank + d] * strides[d] + loops[2 + d] * dilations[d] for d in range(rank)]
    maps = [ir.AffineMap.get(len(loops), 0, [*loops[:2], *reads]), ir.AffineMap.get_identity(len(loops))]
    out = tensor.empty([batch, *sizes], ir.RankedTensorType(image.type).element_type)
    return generic([image], [out], maps, ["parallel"] * len(loops), lambda x, _: x).results[0]


def _collapse(value: ir.Value, groups: list[list[int]], sizes: list[int]) -> ir.Value:
    kind = ir.RankedTensorType.get(sizes, ir.RankedTensorType(value.type).element_type)
    return tensor.CollapseShapeOp(kind, value, groups).result
