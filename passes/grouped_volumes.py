"""Convolutions in three dimensions of several groups, which MLIR has no operation for, as those of one group whose
filters have zeros for the channels of others.

    %c = linalg.generic {(n, g, o, z, y, x, c, k, j, i) -> ...} ins(%x : tensor<2x5x16x70x70x70xbf16>, %f)
  =>
    %d = linalg.generic ins(%f) { arith.select (g == h), %f[g, o, c, k, j, i], 0 } -> tensor<5x3x5x16x7x7x7xbf16>
    %c = linalg.conv_3d_ncdhw_fcdhw ins(%joined : tensor<2x80x70x70x70xbf16>, %d as tensor<15x80x7x7x7xbf16>)

Tensor cores multiply those zeros faster than threads multiply what is none. A channel a group is left to threads.
"""

from __future__ import annotations

from collections.abc import Callable

from kitsune_mlir import rows
from kitsune_mlir.codegen.affine_index import linear
from kitsune_mlir.mlir import ir, linalg, replace_op, walk
from kitsune_mlir.operations import element_type
from kitsune_mlir.planning.product_tiles import PAIRS
from kitsune_mlir.precision import tf32_pieces

from .convolution_operands import beside_zeros
from .reshapes import reshaped

MOST_ZEROS = 32  # multiply-adds of 16-bit numbers for each one of the convolution, beyond which threads are as fast
_LOOPS = 10  # image, group, output, places, channel, elements of the filter


def join_volumes(function: ir.Operation, is_product: Callable[[ir.Operation], bool]) -> None:
    """Rewrites those of a function that are products then."""
    for op in walk(function, "linalg.generic"):
        if (steps := _steps(op)) is None:
            continue
        with op.location, ir.InsertionPoint(op):
            image, begin = (_joined(value) for value in (op.operands[0], op.operands[2]))
            filters = _dense(op.operands[1])
            strides, dilations = (list(each) for each in zip(*steps, strict=True))
            made = linalg.conv_3d_ncdhw_fcdhw(image, filters, outs=[begin], strides=strides, dilations=dilations)
            result = made.results[0] if isinstance(made, ir.OpView) else made
            made = result.owner.operation
            if is_product(made):
                sizes = rows.known_sizes(op.results[0])
                replace_op(op, reshaped(result, sizes))
            else:
                made.erase()


def _steps(op: ir.Operation) -> list[tuple[int, int]] | None:
    """By dimension of space how far apart places are, and elements of the filter; None for anything else."""
    s = rows.Structured(op)
    if s.iterators != ["parallel"] * 6 + ["reduction"] * 4 or s.inputs != 2 or len(op.operands) != 3:
        return None
    names = [one.operation.name for one in s.body.operations if one.operation.name != "arith.extf"]
    if names != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return None
    plain = [[rows.dim_of(expr) for expr in map_.results] for map_ in s.maps[1:]]
    image = [linear(expr, _LOOPS) for expr in s.maps[0].results]
    if plain != [[1, 2, 6, 7, 8, 9], [0, 1, 2, 3, 4, 5]] or None in image or len(image) != 6:
        return None
    loops = [[(d, n) for d, n in enumerate(factors) if n] for _, factors in image]
    if any(first for first, _ in image) or loops[:3] != [[(0, 1)], [(1, 1)], [(6, 1)]]:
        return None
    if any([d for d, _ in own] != [3 + n, 7 + n] for n, own in enumerate(loops[3:])):
        return None
    groups, _, channels, *_ = rows.shape_of(op.operands[1])
    element = element_type(op.operands[1])
    pairs = len(PAIRS[tf32_pieces(op) + 1]) if isinstance(element, ir.F32Type) else 1
    if groups < 2 or channels < 2 or groups * pairs > MOST_ZEROS:
        return None
    return [(own[0][1], own[1][1]) for own in loops[3:]]


def _joined(value: ir.Value) -> ir.Value:
    """A tensor with its second and its third dimension as one."""
    batch, groups, channels, *space = rows.known_sizes(value)
    made, joined = rows.producer(value), [batch, groups * channels, *space]
    if made is not None and made.name == "tensor.expand_shape":
        source = made.operands[0]
        if rows.known_sizes(source) == joined:
            return source
    return reshaped(value, joined)


def _dense(filters: ir.Value) -> ir.Value:
    """Filters of groups with zeros for the channels of others."""
    groups, outputs, channels, *kernel = rows.shape_of(filters)
    whole = beside_zeros(filters, [0, 1, *range(3, 7)], [groups, outputs, groups, channels, *kernel], (0, 2))
    return reshaped(whole, [groups * outputs, groups * channels, *kernel])
